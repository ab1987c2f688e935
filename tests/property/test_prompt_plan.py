"""Any request, in any context: what holds for every prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from support.toy_tokenizer import QWEN_CONTROLS, ToyTokenizer
from suture.server.prompt.budget import PromptBudget, Scope
from suture.server.prompt.families import detect_family
from suture.server.prompt.plan import PromptPlan, plan_prompt
from suture.server.request import CompletionRequest, ExtraText

CONTROLS = (*QWEN_CONTROLS, "<s>")
WORDS = (" user", " userName", "Na", "<|fim_", "\n\n", "|>", "pad|><|")
PIECES = (*CONTROLS, *WORDS, "a", " ", "\n", "\r\n", "\r", "é", "🎉", "(", "x = 1\n", "y" * 90)
TEXTS = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)
REQUESTS = st.builds(
    CompletionRequest,
    prefix=TEXTS,
    suffix=TEXTS,
    infill=st.just(True),
    extra=st.lists(
        st.builds(ExtraText, text=TEXTS, path=st.none() | TEXTS), max_size=3
    ).map(tuple),
    path=st.none() | TEXTS,
    healing=st.sampled_from(["exact", "recursive", "off"]),
    give_back=st.none() | st.integers(1, 8),
    layout=st.sampled_from(["auto", "psm", "spm", "anchor"]),
    fim_boundary=st.sampled_from(["auto", "keep", "move"]),
    max_tokens=st.integers(0, 600),
) | st.builds(
    CompletionRequest,
    prefix=TEXTS,
    extra=st.lists(st.builds(ExtraText, text=TEXTS, path=TEXTS), max_size=2).map(tuple),
    give_back=st.none() | st.integers(1, 8),
    max_tokens=st.integers(0, 600),
)  # fmt: skip
BUDGETS = st.builds(PromptBudget, st.integers(64, 600), st.floats(1, 300))
WITHOUT_BOS = ToyTokenizer(WORDS, CONTROLS)
WITH_BOS = ToyTokenizer(WORDS, CONTROLS, bos="<s>")
TOKENIZERS = st.sampled_from([WITHOUT_BOS, WITH_BOS])


def planned(toy: ToyTokenizer, request: CompletionRequest, budget: PromptBudget) -> PromptPlan:
    family = detect_family(toy.vocabulary, "")
    assert family is not None
    return plan_prompt(request, toy.vocabulary, family, toy.encode, budget)


def spelled(toy: ToyTokenizer, ids: Sequence[int]) -> bytes:
    return b"".join(map(toy.vocabulary.bytes_of, ids))


def part(plan: PromptPlan, role: str) -> tuple[int, ...]:
    at = 0
    for name, n_tokens in plan.segments:
        if name == role:
            return plan.kept_ids[at : at + n_tokens]
        at += n_tokens
    return ()


@given(TOKENIZERS, REQUESTS, BUDGETS)
def test_f1_control_ids_stand_at_barriers_only_and_are_those_of_the_layout(
    toy: ToyTokenizer, request: CompletionRequest, budget: PromptBudget
) -> None:
    plan = planned(toy, request, budget)
    controls = set(toy.id_of.values())
    at_controls = [at for at, token_id in enumerate(plan.kept_ids) if token_id in controls]
    assert at_controls == list(plan.barriers)
    texts = [toy.vocabulary.text_of(plan.kept_ids[at]) for at in plan.barriers]
    hole = [text for text in texts if text.startswith("<|fim_")]
    prefix, suffix, middle = "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"
    assert hole == ([] if plan.layout == "plain" else [prefix, suffix, middle])
    n_files = sum(role == "extra" for role, _ in plan.segments)
    assert texts.count("<|file_sep|>") == (n_files + 1 if n_files else 0)
    assert texts.count("<|repo_name|>") == (1 if n_files else 0)


@given(TOKENIZERS, REQUESTS, BUDGETS)
def test_f2_bos_stands_first_exactly_where_it_is_wanted(
    toy: ToyTokenizer, request: CompletionRequest, budget: PromptBudget
) -> None:
    plan = planned(toy, request, budget)
    bos_id = toy.id_of["<s>"]
    assert plan.kept_ids.count(bos_id) == toy.vocabulary.add_bos
    assert bos_id not in plan.kept_ids[1:]


@given(TOKENIZERS, REQUESTS, BUDGETS)
def test_p1_prompt_and_output_fit_and_the_prompt_is_never_empty(
    toy: ToyTokenizer, request: CompletionRequest, budget: PromptBudget
) -> None:
    plan = planned(toy, request, budget)
    n_prompt = len(plan.kept_ids)
    assert n_prompt > 0
    assert n_prompt + plan.max_tokens <= budget.n_ctx
    assert min(request.max_tokens, 1) <= plan.max_tokens <= request.max_tokens
    scope: Scope = "latency" if request.infill else "context"
    room = budget.prompt_room(request.max_tokens, scope)
    assert n_prompt + plan.dropped_tokens <= room
    extra = ("rep", "repository", "sep", "extra", "path")
    assert sum(n_tokens for role, n_tokens in plan.segments if role in extra) <= room // 4
    assert sum(n_tokens for _, n_tokens in plan.segments) == n_prompt


@given(TOKENIZERS, REQUESTS, BUDGETS)
def test_b1_the_prompt_shows_its_windows_and_what_is_given_back(
    toy: ToyTokenizer, request: CompletionRequest, budget: PromptBudget
) -> None:
    plan = planned(toy, request, budget)
    prefix, suffix = plan.windows.prefix.text, plan.windows.suffix.text
    before = part(plan, "prefix") + part(plan, "typed")
    assert spelled(toy, before) + plan.pending == prefix.encode()
    assert list(part(plan, "suffix")) == toy.encode(suffix.encode())
    document = (request.prefix + request.suffix).replace("\r\n", "\n").replace("\r", "\n")
    assert prefix + suffix in document
    assert plan.truncated or prefix + suffix == document
    assert plan.level == (request.healing if plan.pending else "none")
    if plan.boundary == "keep" or request.healing == "off":
        assert plan.pending == b""


@given(TOKENIZERS, REQUESTS, BUDGETS)
def test_b3_a_moved_tail_changes_no_other_part_and_is_what_plain_text_gives_back(
    toy: ToyTokenizer, request: CompletionRequest, budget: PromptBudget
) -> None:
    request = replace(request, infill=True, layout="psm")
    kept, moved = (
        planned(toy, replace(request, fim_boundary=boundary), budget)
        for boundary in ("keep", "move")
    )
    assert (kept.boundary, kept.level) == ("keep", "none")
    assert moved.boundary == ("keep" if request.healing == "off" else "move")
    assert moved.windows == kept.windows and moved.truncated == kept.truncated
    n_given_back = moved.dropped_tokens
    assert len(kept.kept_ids) - len(moved.kept_ids) == n_given_back
    prefix, tail = part(kept, "prefix"), part(moved, "prefix")
    assert (*tail, *prefix[len(prefix) - n_given_back :]) == prefix
    others = [(role, part(moved, role)) for role, _ in moved.segments if role != "prefix"]
    assert others == [(role, part(kept, role)) for role, _ in kept.segments if role != "prefix"]
    assert not moved.pending or moved.pending[0] & 0xC0 != 0x80
    if request.give_back is None and not moved.windows.prefix.truncated:
        left_to_right = replace(request, suffix="", infill=False, extra=(), max_tokens=0)
        whole = planned(toy, left_to_right, PromptBudget(8192, 300))
        assert moved.pending == whole.pending


@given(TOKENIZERS, REQUESTS, BUDGETS)
def test_left_ids_are_the_last_line_before_the_cut(
    toy: ToyTokenizer, request: CompletionRequest, budget: PromptBudget
) -> None:
    plan = planned(toy, request, budget)
    before = part(plan, "prefix") + part(plan, "typed")
    left = plan.left_ids
    assert left == before[len(before) - len(left) :]
    assert len(left) <= 12
    has_line_end = [b"\n" in toy.vocabulary.bytes_of(token_id) for token_id in left]
    assert not any(has_line_end[1:])
    if len(left) < min(len(before), 12):
        assert has_line_end[0]
