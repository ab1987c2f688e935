"""Prompts of a tokenizer that reads a space before every text: where it stands, and B1, B2, P1."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from support.vocab import sentencepiece_like
from suture.healing.vocabulary import Vocabulary
from suture.server.prompt.budget import PromptBudget, Scope
from suture.server.prompt.families import COMMENTED, FimFamily, RepositoryLayout
from suture.server.prompt.plan import PromptPlan, plan_prompt
from suture.server.prompt.text_encoding import text_encoding
from suture.server.request import CompletionRequest, ExtraText

VOCABULARY, ENCODE = sentencepiece_like()
ENCODING = text_encoding(ENCODE, VOCABULARY)
BLOCKS = RepositoryLayout(title="+ ", first_separated=False, separator="\n", inside_prefix=True)
FAMILIES = (
    FimFamily("trained-psm", "psm", {"pre": 1, "suf": 2, "mid": 0}, frozenset(), COMMENTED),
    FimFamily("no-middle", "spm", {"pre": 1, "suf": 2}, frozenset(), BLOCKS),
)
PIECES = (
    "return",
    " self",
    ".url",
    "user",
    "Name",
    " ",
    "    ",
    "\n",
    "é",
    "x" * 60,
    "def f(",
)
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
FILES = st.lists(st.builds(ExtraText, TEXTS, st.none() | TEXTS), max_size=3).map(tuple)
REQUESTS = st.builds(
    CompletionRequest,
    prefix=TEXTS,
    suffix=TEXTS,
    infill=st.just(True),
    extra=st.just(()) | FILES,
    layout=st.sampled_from(["auto", "spm"]),
    fim_boundary=st.sampled_from(["keep", "move"]),
    healing=st.sampled_from(["recursive", "off"]),
    max_tokens=st.integers(0, 100),
) | st.builds(
    CompletionRequest, prefix=TEXTS, extra=st.just(()) | FILES, max_tokens=st.integers(0, 100)
)
BUDGETS = st.builds(PromptBudget, st.integers(64, 500), st.floats(1, 300))


def planned(request: CompletionRequest, family: FimFamily, budget: PromptBudget) -> PromptPlan:
    return plan_prompt(request, VOCABULARY, family, ENCODE, budget)


def parts(plan: PromptPlan) -> list[tuple[str, tuple[int, ...]]]:
    at = 0
    found = []
    for role, n_tokens in plan.segments:
        found.append((role, plan.kept_ids[at : at + n_tokens]))
        at += n_tokens
    return found


def spelled(ids: tuple[int, ...], vocabulary: Vocabulary = VOCABULARY) -> bytes:
    return b"".join(map(vocabulary.bytes_of, ids))


def is_opening(plan: PromptPlan) -> bool:
    """Whether the prefix begins a document: the whole of it is there, and no text before it."""
    roles = [role for role, _ in plan.segments]
    before = roles[: roles.index("prefix")][-1:]
    return not plan.windows.prefix.truncated and before not in (["extra"], ["path"])


@given(REQUESTS, st.sampled_from(FAMILIES), BUDGETS)
def test_s1_b1_the_prefix_has_the_space_exactly_where_it_begins_a_document(
    request: CompletionRequest, family: FimFamily, budget: PromptBudget
) -> None:
    plan = planned(request, family, budget)
    ids = dict(parts(plan))
    prefix = VOCABULARY.as_read(plan.windows.prefix.text.encode())
    # Nor behind the sentinels, where a moved tail may be all of the prefix.
    is_there = is_opening(plan) and (plan.boundary != "move" or ids["prefix"])
    space = b" " if prefix and is_there else b""
    assert VOCABULARY.as_read(spelled(ids["prefix"]) + plan.pending) == space + prefix


@given(REQUESTS, st.sampled_from(FAMILIES), BUDGETS)
def test_s1_no_other_text_has_it_but_the_first_of_the_prompt(
    request: CompletionRequest, family: FimFamily, budget: PromptBudget
) -> None:
    plan = planned(request, family, budget)
    suffix = plan.windows.suffix.text.encode()
    before = "bos"
    for role, ids in parts(plan):
        read = spelled(ids)
        if role == "suffix":
            assert ids == tuple(ENCODING.inner(suffix))
        if role in ("extra", "path") and before in ("extra", "path"):
            assert ids == tuple(ENCODING.inner(read))
        before = role


@given(REQUESTS, st.sampled_from(FAMILIES), BUDGETS, TEXTS)
def test_b2_the_kept_tokens_begin_every_continuation(
    request: CompletionRequest, family: FimFamily, budget: PromptBudget, continuation: str
) -> None:
    request = replace(request, layout="spm" if request.fim_boundary == "keep" else "auto")
    plan = planned(replace(request, healing="recursive"), family, budget)
    kept = dict(parts(plan))["prefix"]
    encode = ENCODING.opening if is_opening(plan) else ENCODING.inner
    whole = tuple(encode((plan.windows.prefix.text + continuation).encode()))
    assert whole[: len(kept)] == kept


@given(REQUESTS, st.sampled_from(FAMILIES), BUDGETS)
def test_p1_prompt_and_output_fit(
    request: CompletionRequest, family: FimFamily, budget: PromptBudget
) -> None:
    plan = planned(request, family, budget)
    scope: Scope = "latency" if request.infill else "context"
    room = budget.prompt_room(request.max_tokens, scope)
    assert 0 < len(plan.kept_ids)
    assert len(plan.kept_ids) + plan.dropped_tokens <= room
    extra = sum(n_tokens for role, n_tokens in plan.segments if role in ("extra", "path"))
    assert extra <= room // 4
    assert len(plan.kept_ids) + plan.max_tokens <= budget.n_ctx


@given(TEXTS)
def test_an_inner_text_is_encoded_as_behind_any_other_anchor(text: str) -> None:
    anchor = "\x02"
    ids = tuple(ENCODE((anchor + text).encode()))
    assert ids[len(ENCODE(anchor.encode())) :] == tuple(ENCODING.inner(text.encode()))
