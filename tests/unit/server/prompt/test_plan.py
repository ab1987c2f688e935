from __future__ import annotations

from dataclasses import replace

import pytest

from support.toy_tokenizer import QWEN_CONTROLS, ToyTokenizer
from suture.healing import TokenKind, Vocabulary
from suture.server.errors import EngineError, InfillUnsupported, InvalidRequest
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.families import FimFamily, LayoutDefaults, Role, detect_family
from suture.server.prompt.plan import PromptPlan, plan_prompt
from suture.server.request import CompletionRequest, ExtraText

FAST = PromptBudget(n_ctx=4096, prefill_tokens_per_s=2000)
SLOW = PromptBudget(n_ctx=4096, prefill_tokens_per_s=65)
LEFT_TO_RIGHT = ("<|endoftext|>", "<s>")
WORDS = (" user", " userName", "Na")


def plan(
    request: CompletionRequest, toy: ToyTokenizer | None = None, budget: PromptBudget = FAST
) -> PromptPlan:
    toy = toy or ToyTokenizer(WORDS)
    family = detect_family(toy.vocabulary, "")
    return plan_prompt(request, toy.vocabulary, family, toy.encode, budget)


def hole(prefix: str, suffix: str) -> CompletionRequest:
    return CompletionRequest(prefix, suffix, infill=True, layout="psm")


def test_a_hole_is_planned_psm_and_its_tail_kept() -> None:
    toy = ToyTokenizer(WORDS)
    planned = plan(hole("const userNa", ";\n"), toy)
    assert list(planned.kept_ids) == toy.ids(
        "<|fim_prefix|>", "const userNa", "<|fim_suffix|>", ";\n", "<|fim_middle|>"
    )
    assert (planned.layout, planned.level, planned.pending) == ("psm", "none", b"")
    assert planned.segments == (
        ("pre", 1), ("prefix", 7), ("suf", 1), ("suffix", 2), ("mid", 1)
    )  # fmt: skip
    assert planned.barriers == (0, 8, 11)


def moved(prefix: str, suffix: str) -> CompletionRequest:
    return replace(hole(prefix, suffix), layout="psm", fim_boundary="move")


def test_b1_b3_psm_moves_the_tail_behind_the_middle_sentinel() -> None:
    toy = ToyTokenizer(WORDS)
    planned = plan(moved("const userNa", ";\n"), toy)
    assert list(planned.kept_ids) == toy.ids(
        "<|fim_prefix|>", "const", "<|fim_suffix|>", ";\n", "<|fim_middle|>"
    )
    assert (planned.layout, planned.boundary) == ("psm", "move")
    assert (planned.pending, planned.dropped_tokens) == (b" userNa", 2)
    assert planned.level == "exact"
    assert planned.barriers == (0, 6, 9)
    assert list(planned.left_ids) == toy.ids("const")
    assert planned.rest == ""


def test_a_tail_that_is_moved_may_be_all_of_the_prefix_or_none_of_it() -> None:
    toy = ToyTokenizer(WORDS)
    sentinels = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
    for prefix, pending in ((" user", b" user"), ("", b"")):
        planned = plan(moved(prefix, "\n"), toy)
        assert list(planned.kept_ids) == toy.ids(*sentinels[:2], "\n", sentinels[2])
        assert (planned.pending, planned.left_ids) == (pending, ())
    clean = plan(moved("const userName", ";\n"), toy)
    assert clean.kept_ids == plan(hole("const userName", ";\n"), toy).kept_ids
    assert (clean.pending, clean.level, clean.boundary) == (b"", "none", "move")


def test_a_moved_tail_is_of_so_many_tokens_and_begins_with_a_whole_character() -> None:
    toy = ToyTokenizer(WORDS)
    planned = plan(replace(moved("const userNa", ""), give_back=1), toy)
    assert (planned.pending, planned.dropped_tokens) == (b"Na", 1)
    emoji = plan(replace(moved("x = 🎉", ""), give_back=1), toy)
    assert (emoji.pending, emoji.dropped_tokens) == ("🎉".encode(), 4)


def test_other_files_stand_before_a_hole_whose_tail_is_moved() -> None:
    extra = (ExtraText("other\n", "b.py"),)
    request = replace(moved("const userNa", ";\n"), extra=extra)
    planned, kept = plan(request), plan(replace(request, fim_boundary="keep"))
    assert planned.pending == b" userNa"
    at = kept.kept_ids.index(ToyTokenizer(WORDS).id_of["<|fim_prefix|>"])
    assert at > 0 and planned.kept_ids[:at] == kept.kept_ids[:at]


def test_without_healing_no_tail_is_moved() -> None:
    request = moved("const userNa", ";\n")
    planned = plan(replace(request, healing="off"))
    assert planned == plan(replace(request, healing="off", fim_boundary="keep"))
    assert (planned.boundary, planned.pending) == ("keep", b"")


def test_no_tail_is_moved_into_a_turn_of_the_models_or_behind_a_suffix() -> None:
    controls = (*QWEN_CONTROLS, "<user>", "<assistant>")
    toy = ToyTokenizer(WORDS, controls)
    ids: dict[Role, int] = {
        "pre": toy.id_of["<|fim_prefix|>"],
        "suf": toy.id_of["<|fim_suffix|>"],
    }
    turns: dict[Role, int] = {
        "mid": toy.id_of["<|fim_middle|>"],
        "user": toy.id_of["<user>"],
        "assistant": toy.id_of["<assistant>"],
    }
    without_middle = FimFamily("toy", "psm", ids, frozenset())
    chat = FimFamily("toy", "psm", {**ids, **turns}, frozenset())
    for family in (without_middle, chat):
        request = moved("const userNa", ";\n")
        planned = plan_prompt(request, toy.vocabulary, family, toy.encode, FAST)
        assert (planned.boundary, planned.pending) == ("keep", b"")


def test_only_psm_has_a_boundary_and_asking_for_one_asks_for_psm() -> None:
    request = replace(hole("const userNa", ";\n"), layout="auto")
    defaults = LayoutDefaults("anchor", "move")
    toy = ToyTokenizer(WORDS)
    family = detect_family(toy.vocabulary, "")

    def told(request: CompletionRequest) -> tuple[str, str | None]:
        planned = plan_prompt(request, toy.vocabulary, family, toy.encode, FAST, defaults=defaults)
        return planned.layout, planned.boundary

    assert told(request) == ("anchor", None)
    assert told(replace(request, fim_boundary="keep")) == ("psm", "keep")
    assert told(replace(request, layout="psm")) == ("psm", "move")
    assert told(replace(request, layout="spm", fim_boundary="move")) == ("spm", None)
    assert told(replace(request, suffix="", infill=False)) == ("plain", None)


def test_a_family_says_what_auto_stands_for_unless_its_model_was_measured() -> None:
    toy = ToyTokenizer(WORDS)
    request = replace(hole("const userNa", ";\n"), layout="auto")
    ids = {"pre": 259 + 2, "mid": 259 + 3, "suf": 259 + 4}
    unmeasured = FimFamily("toy", "psm", ids, frozenset())  # type: ignore[arg-type]
    measured = replace(unmeasured, default_layout="psm", default_boundary="move")
    trained_spm = replace(unmeasured, order="spm")

    def told(family: FimFamily, defaults: LayoutDefaults | None = None) -> tuple[str, str | None]:
        planned = plan_prompt(request, toy.vocabulary, family, toy.encode, FAST, defaults=defaults)
        return planned.layout, planned.boundary

    assert told(unmeasured) == ("psm", "keep")
    assert told(measured) == ("psm", "move")
    assert told(measured, LayoutDefaults("spm", "keep")) == ("spm", None)
    assert told(measured, LayoutDefaults("psm", "keep")) == ("psm", "keep")
    # What was measured is about healed text.
    anchored = LayoutDefaults("anchor", "keep")
    assert told(measured, anchored) == ("anchor", None)
    request = replace(request, healing="off")
    assert told(measured, anchored) == ("psm", "keep")
    # A profile is no reason to refuse a request that asked for nothing.
    assert told(trained_spm, LayoutDefaults("anchor", "keep")) == ("spm", None)


def test_left_ids_begin_with_the_last_token_that_has_a_line_end() -> None:
    toy = ToyTokenizer((*WORDS, ";\n"))
    text = "a;\nconst"
    for layout in ("psm", "spm", "anchor"):
        request = replace(moved(text + " userNa", "\n"), layout=layout)
        assert list(plan(request, toy).left_ids) == toy.ids(";\n", "const")
    assert list(plan(CompletionRequest("x" * 40 + " userNa"), toy).left_ids) == toy.ids("x" * 12)


def test_spm_of_a_family_trained_psm_has_the_prefix_behind_all_sentinels_and_heals_it() -> None:
    toy = ToyTokenizer(WORDS)
    planned = plan(replace(hole("const userNa", ";\n"), layout="spm"), toy)
    assert list(planned.kept_ids) == toy.ids(
        "<|fim_prefix|>", "<|fim_suffix|>", ";\n", "<|fim_middle|>", "const"
    )
    assert (planned.layout, planned.level) == ("spm", "exact")
    assert (planned.pending, planned.dropped_tokens) == (b" userNa", 2)
    assert planned.barriers == (0, 1, 4)


def test_a_family_trained_spm_has_its_own_order_and_no_other() -> None:
    toy = ToyTokenizer(WORDS)
    ids = {"pre": 259 + 2, "mid": 259 + 3, "suf": 259 + 4}
    family = FimFamily("toy", "spm", ids, frozenset())  # type: ignore[arg-type]
    request = replace(hole("a", "b"), layout="auto")
    planned = plan_prompt(request, toy.vocabulary, family, toy.encode, FAST)
    assert list(planned.kept_ids) == toy.ids(
        "<|fim_suffix|>", "b", "<|fim_prefix|>", "a", "<|fim_middle|>"
    )
    with pytest.raises(InvalidRequest, match="toy was trained spm") as caught:
        plan_prompt(replace(request, layout="psm"), toy.vocabulary, family, toy.encode, FAST)
    assert caught.value.field == "layout"


def test_text_without_a_hole_is_plain_and_healed_whatever_the_layout() -> None:
    toy = ToyTokenizer(WORDS)
    planned = plan(CompletionRequest("const userNa", layout="spm"), toy)
    assert list(planned.kept_ids) == toy.ids("const")
    assert (planned.layout, planned.level, planned.pending) == ("plain", "exact", b" userNa")


def test_healing_off_gives_nothing_back() -> None:
    toy = ToyTokenizer(WORDS)
    planned = plan(CompletionRequest("const userNa", healing="off"), toy)
    assert list(planned.kept_ids) == toy.ids("const userNa")
    assert (planned.level, planned.pending, planned.dropped_tokens) == ("none", b"", 0)


def test_a_fixed_number_of_tokens_is_given_back() -> None:
    planned = plan(CompletionRequest("const userNa", healing="recursive", give_back=1))
    assert (planned.level, planned.pending, planned.dropped_tokens) == ("recursive", b"Na", 1)


def test_a_clean_end_leaves_nothing_to_heal() -> None:
    planned = plan(CompletionRequest("const userName"))
    assert (planned.level, planned.pending) == ("none", b"")


def test_f2_bos_stands_first_once_where_the_vocabulary_wants_it() -> None:
    toy = ToyTokenizer(controls=(*QWEN_CONTROLS, "<s>"), bos="<s>")
    extra = (ExtraText("<s>\nother\n", "b.py"),)
    for request in (
        CompletionRequest("<s>a"),
        hole("<s>a", "<s>b"),
        replace(hole("a", "b"), layout="spm", extra=extra),
    ):
        planned = plan(request, toy)
        assert planned.kept_ids.index(toy.id_of["<s>"]) == 0
        assert planned.kept_ids.count(toy.id_of["<s>"]) == 1
        assert planned.barriers[0] == 0
        assert planned.segments[0] == ("bos", 1)


def test_a_documents_head_has_the_separator_before_it_where_a_model_knows_one() -> None:
    toy = ToyTokenizer(named_bos=None)
    planned = plan(CompletionRequest("x = 1\ny"), toy)
    assert list(planned.kept_ids) == toy.ids("<|endoftext|>", "x = 1\ny")
    assert toy.id_of["<|endoftext|>"] not in plan(hole("x = ", "\n"), toy).kept_ids


def test_a_documents_middle_has_no_separator_before_it() -> None:
    toy = ToyTokenizer(named_bos=None)
    planned = plan(CompletionRequest("x = 1\n" * 5000), toy)
    assert toy.id_of["<|endoftext|>"] not in planned.kept_ids


def test_f2_no_bos_where_the_vocabulary_wants_none() -> None:
    toy = ToyTokenizer(WORDS)
    assert list(plan(CompletionRequest("ab"), toy).kept_ids) == toy.ids("ab")


def test_an_empty_prompt_starts_behind_the_end_of_another_document() -> None:
    toy = ToyTokenizer(WORDS)
    planned = plan(CompletionRequest(""), toy)
    assert list(planned.kept_ids) == toy.ids("<|endoftext|>")
    assert planned.barriers == (0,)


def test_a_prompt_that_is_given_back_whole_starts_the_same_way() -> None:
    toy = ToyTokenizer(WORDS)
    planned = plan(CompletionRequest(" user"), toy)
    assert (list(planned.kept_ids), planned.pending) == (toy.ids("<|endoftext|>"), b" user")


def test_an_empty_prompt_of_a_model_with_bos_is_bos_alone() -> None:
    toy = ToyTokenizer(controls=("<|endoftext|>", "<s>"), bos="<s>")
    assert list(plan(CompletionRequest(""), toy).kept_ids) == toy.ids("<s>")


def test_an_empty_prompt_without_any_token_to_start_from_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="the prompt is empty"):
        plan(CompletionRequest(""), ToyTokenizer(controls=()))


def test_a_hole_in_an_empty_file_and_at_offset_0() -> None:
    toy = ToyTokenizer()
    sentinels = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
    assert list(plan(hole("", ""), toy).kept_ids) == toy.ids(*sentinels)
    assert list(plan(hole("", "b\n"), toy).kept_ids) == toy.ids(*sentinels[:2], "b\n", sentinels[2])


def test_no_newline_is_made_up_at_the_end_of_a_file() -> None:
    toy = ToyTokenizer()
    assert list(plan(hole("a\nb", ""), toy).kept_ids) == toy.ids(
        "<|fim_prefix|>", "a\nb", "<|fim_suffix|>", "<|fim_middle|>"
    )


def test_crlf_text_gives_the_ids_of_lf_text_and_says_so() -> None:
    windows = plan(hole("a\r\nb", "\r\nc")).windows
    assert plan(hole("a\r\nb", "\r\nc")).kept_ids == plan(hole("a\nb", "\nc")).kept_ids
    assert windows.line_end == "\r\n"
    assert windows.suffix.document_offset(1) == 6


@pytest.mark.parametrize("sentinel", QWEN_CONTROLS)
def test_f1_sentinels_in_the_users_text_stay_text(sentinel: str) -> None:
    toy = ToyTokenizer()
    spelled = list(sentinel.encode())
    planned = plan(hole(sentinel, sentinel), toy)
    assert list(planned.kept_ids) == [
        *toy.ids("<|fim_prefix|>"), *spelled, *toy.ids("<|fim_suffix|>"), *spelled,
        *toy.ids("<|fim_middle|>"),
    ]  # fmt: skip


def test_f1_what_a_tokenizer_takes_for_a_sentinel_is_spelled_in_two_parts() -> None:
    toy = ToyTokenizer()
    family = detect_family(toy.vocabulary, "")

    def parsing(text_bytes: bytes) -> list[int]:
        return toy.ids(text_bytes.decode())

    request = hole("<|fim_middle|>", "<|im_end|>")
    planned = plan_prompt(request, toy.vocabulary, family, parsing, FAST)
    assert planned == plan_prompt(request, toy.vocabulary, family, toy.encode, FAST)


def test_f1_a_control_token_that_is_not_of_the_text_is_caught() -> None:
    toy = ToyTokenizer()
    family = detect_family(toy.vocabulary, "")
    middle = toy.id_of["<|fim_middle|>"]
    with pytest.raises(EngineError, match="control token"):
        plan_prompt(hole("a", ""), toy.vocabulary, family, lambda text_bytes: [middle], FAST)


def test_text_that_the_vocabulary_cannot_spell_is_completed_unhealed() -> None:
    """llama.cpp drops such bytes without a word, and a binary byte in a file must not end it."""
    toy = ToyTokenizer()

    def lossy(text_bytes: bytes) -> list[int]:
        return list(text_bytes.replace(b"\x04", b""))

    fixed = CompletionRequest("a\x04", give_back=1)
    planned = plan_prompt(fixed, toy.vocabulary, None, lossy, FAST)
    assert (planned.kept_ids, planned.level) == ((ord("a"),), "none")


def test_a_hole_without_sentinels_is_refused_in_llama_cpps_words() -> None:
    with pytest.raises(InfillUnsupported) as caught:
        plan(hole("a", "b"), ToyTokenizer(controls=LEFT_TO_RIGHT))
    assert str(caught.value).startswith(
        "Infill is not supported by this model: prefix token is missing."
        " suffix token is missing. middle token is missing. Serve one that"
    )


@pytest.mark.parametrize("suffix", ["\n", "\r\n", "\n\n  \t\n"])
def test_behind_the_last_line_of_a_file_any_model_goes_on(suffix: str) -> None:
    planned = plan(hole("a b", suffix), ToyTokenizer(controls=LEFT_TO_RIGHT))
    without = plan(hole("a b", ""), ToyTokenizer(controls=LEFT_TO_RIGHT))
    assert planned.layout == "plain" and planned.kept_ids == without.kept_ids


def test_sentinels_of_an_unknown_order_are_not_said_to_be_missing() -> None:
    toy = ToyTokenizer(controls=("<x>", "<y>", "<z>"), fim_ids={"pre": 256, "suf": 257, "mid": 258})
    with pytest.raises(InfillUnsupported, match=r"model: it has the tokens, but the order"):
        plan(hole("a", "b"), toy)


def test_without_sentinels_an_empty_suffix_is_completed_left_to_right() -> None:
    toy = ToyTokenizer(WORDS, LEFT_TO_RIGHT)
    planned = plan(hole("const userNa", ""), toy)
    assert (planned.layout, list(planned.kept_ids)) == ("plain", toy.ids("const"))
    assert planned.pending == b" userNa"


def test_a_generation_ends_at_the_familys_and_the_vocabularys_end_tokens() -> None:
    toy = ToyTokenizer()
    assert plan(CompletionRequest("a"), toy).stop_ids == frozenset(toy.id_of.values())
    plain = ToyTokenizer(controls=LEFT_TO_RIGHT)
    assert plan(CompletionRequest("a"), plain).stop_ids == {plain.id_of["<|endoftext|>"]}


def test_a_hole_gets_what_is_evaluated_in_time_three_to_one() -> None:
    line = "x = 1\n"
    planned = plan(hole(line * 100, line * 100), budget=SLOW)
    n_tokens = dict(planned.segments)
    # Their edges move in steps of up to a quarter (W5).
    assert 3 * 144 // 4 <= n_tokens["prefix"] <= 144
    assert 3 * 47 // 4 <= n_tokens["suffix"] <= 47
    assert planned.truncated


def test_text_without_a_hole_gets_the_whole_context() -> None:
    planned = plan(CompletionRequest("x = 1\n" * 1000), budget=SLOW)
    room = 4096 - 128 - 64
    assert 3 * room // 4 <= len(planned.kept_ids) <= room
    assert planned.max_tokens == 128
    assert planned.truncated


def test_a_huge_output_is_cut_to_what_the_context_holds() -> None:
    planned = plan(replace(hole("a", "b"), max_tokens=10_000_000), budget=SLOW)
    assert planned.max_tokens == 4096 - 5


def test_nothing_to_generate_stays_nothing() -> None:
    assert plan(replace(hole("a", "b"), max_tokens=0)).max_tokens == 0


def test_one_huge_line_is_cut_at_characters_next_to_the_cursor() -> None:
    minified = "é🎉" * 50_000
    planned = plan(hole(minified, minified), budget=SLOW)
    assert minified.endswith(planned.windows.prefix.text)
    assert minified.startswith(planned.windows.suffix.text)
    assert 3 * 144 // 4 - 6 <= len(planned.windows.prefix.text.encode()) <= 144
    assert planned.truncated


@pytest.mark.parametrize("line", ["value = compute(1)\n", "x" * 5_000_000, "é\r\n", "\r"])
def test_a_file_of_10_mb_costs_what_the_budget_costs(line: str) -> None:
    toy = ToyTokenizer()
    half = line * (5_000_000 // len(line.encode()) + 1)
    planned = plan(hole(half, half), toy, SLOW)
    assert toy.n_encoded <= 192 * 8 * 3
    assert 90 <= len(planned.kept_ids) <= 192
    assert planned.truncated


def test_10_mb_of_extra_text_cost_what_the_budget_costs() -> None:
    toy = ToyTokenizer()
    extra = (ExtraText("b = 2\n" * 1_600_000, "p" * 1_000_000), ExtraText("c" * 1_000_000))
    plan(replace(hole("a", "b"), extra=extra), toy, SLOW)
    assert toy.n_encoded <= 4000


def test_what_no_tokens_could_say_again_is_not_given_back() -> None:
    kinds = [TokenKind.NORMAL, TokenKind.USER_DEFINED]
    vocabulary = Vocabulary([b"a", b"<t>"], kinds=kinds)
    request = CompletionRequest("a<t>", give_back=1)
    planned = plan_prompt(request, vocabulary, None, lambda piece: [0, 1], FAST)
    assert (planned.kept_ids, planned.pending, planned.level) == ((0, 1), b"", "none")
