from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.toy_tokenizer import QWEN_CONTROLS, ToyTokenizer
from support.vocab import write_gguf
from suture.healing.vocabulary import TokenKind, Vocabulary
from suture.server.doctor.model import describe_vocabulary
from suture.server.errors import InfillUnsupported, InvalidRequest, ModelError
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.families import (
    COMMENTED,
    FAMILIES,
    FamilyRow,
    FimFamily,
    RepositoryLayout,
    Role,
    detect_family,
    families_by_name,
    missing_sentinels,
)
from suture.server.prompt.plan import plan_prompt
from suture.server.request import CompletionRequest, ExtraText

HOLE = CompletionRequest("a = ", "\n", infill=True)

STARCODER_CONTROLS = ("<|endoftext|>", "<fim_prefix>", "<fim_middle>", "<fim_suffix>")
STARCODER_SENTINELS: Mapping[Role, str] = MappingProxyType(
    {"pre": "<fim_prefix>", "suf": "<fim_suffix>", "mid": "<fim_middle>"}
)


def test_qwen_is_found_by_its_sentinels_whatever_the_file_is_called() -> None:
    toy = ToyTokenizer()
    family = detect_family(toy.vocabulary, "my-finetune-v3")
    assert family is not None
    assert (family.name, family.order) == ("qwen2.5-coder", "psm")
    assert dict(family.sentinel_ids) == {
        "pre": toy.id_of["<|fim_prefix|>"],
        "suf": toy.id_of["<|fim_suffix|>"],
        "mid": toy.id_of["<|fim_middle|>"],
        "rep": toy.id_of["<|repo_name|>"],
        "sep": toy.id_of["<|file_sep|>"],
    }


def test_a_generation_ends_at_every_end_text_and_every_sentinel() -> None:
    toy = ToyTokenizer()
    family = detect_family(toy.vocabulary, "")
    assert family is not None
    assert family.stop_ids == frozenset(toy.id_of.values())


def test_end_texts_that_a_vocabulary_lacks_are_left_out() -> None:
    toy = ToyTokenizer(controls=[c for c in QWEN_CONTROLS if c != "<|im_end|>"])
    family = detect_family(toy.vocabulary, "")
    assert family is not None
    assert family.stop_ids == frozenset(toy.id_of.values())


def test_a_left_to_right_model_has_no_family() -> None:
    assert detect_family(ToyTokenizer(controls=("<|endoftext|>",)).vocabulary, "smollm2") is None


def test_one_missing_sentinel_is_no_family() -> None:
    toy = ToyTokenizer(controls=[c for c in QWEN_CONTROLS if c != "<|fim_suffix|>"])
    assert detect_family(toy.vocabulary, "qwen2.5-coder-1.5b") is None


def test_f1_a_sentinel_spelled_by_an_ordinary_token_is_none() -> None:
    toy = ToyTokenizer(control_kind=TokenKind.NORMAL)
    assert detect_family(toy.vocabulary, "qwen2.5-coder-1.5b") is None


def test_an_added_token_may_be_a_sentinel() -> None:
    toy = ToyTokenizer(control_kind=TokenKind.USER_DEFINED)
    assert detect_family(toy.vocabulary, "qwen2.5-coder-1.5b") is not None


def test_ids_that_the_file_names_win_over_the_texts() -> None:
    controls = (*QWEN_CONTROLS, "<|other_prefix|>")
    named = ToyTokenizer(controls=controls).id_of["<|other_prefix|>"]
    toy = ToyTokenizer(controls=controls, fim_ids={"pre": named})
    family = detect_family(toy.vocabulary, "")
    assert family is not None
    assert family.sentinel_ids["pre"] == named
    assert {named, toy.id_of["<|fim_prefix|>"]} <= family.stop_ids


def test_f1_an_id_that_is_ordinary_text_cannot_be_a_sentinel() -> None:
    toy = ToyTokenizer(fim_ids={"suf": 33})
    with pytest.raises(ModelError, match=r"token 33 as its FIM suffix token.*text: '!'"):
        detect_family(toy.vocabulary, "")


def test_one_token_cannot_have_two_roles() -> None:
    middle = ToyTokenizer().id_of["<|fim_middle|>"]
    with pytest.raises(ModelError, match="two FIM roles"):
        detect_family(ToyTokenizer(fim_ids={"suf": middle}).vocabulary, "")


@pytest.mark.parametrize(
    ("name", "architecture", "family"),
    [
        ("Refact-1_6B-fim.Q4", "", "refact-1.6b"),
        ("model", "refact", "refact-1.6b"),
        ("starcoderbase", "refact", "starcoder"),
        ("granite-20b-code", "starcoder", "granite-code"),
    ],
)
def test_families_with_the_same_sentinels_are_told_apart_by_name_then_architecture(
    name: str, architecture: str, family: str
) -> None:
    toy = ToyTokenizer(controls=STARCODER_CONTROLS)
    found = detect_family(toy.vocabulary, name, architecture)
    assert found is not None
    assert (found.name, found.ambiguous) == (family, ())


def test_the_title_in_a_file_tells_where_its_name_does_not() -> None:
    vocabulary = ToyTokenizer(controls=STARCODER_CONTROLS).vocabulary
    for name, family in [("model", "refact-1.6b"), ("starcoderbase", "starcoder")]:
        found = detect_family(vocabulary, name, "starcoder", "Refact 1.6B")
        assert found is not None and found.name == family
    unknown = detect_family(vocabulary, "model", "llama")
    assert unknown is not None and unknown.ambiguous
    assert detect_family(vocabulary, "starcoder", title="Yi Coder 9B") is None


def test_where_neither_tells_psm_is_taken_and_all_candidates_are_named() -> None:
    toy = ToyTokenizer(controls=STARCODER_CONTROLS)
    found = detect_family(toy.vocabulary, "my-model", "llama")
    assert found is not None
    assert (found.name, found.order) == ("starcoder", "psm")
    assert found.ambiguous == ("starcoder", "refact-1.6b", "codeqwen1.5", "granite-code")


def test_an_ambiguous_family_has_only_the_hole_and_all_stops() -> None:
    controls = (*STARCODER_CONTROLS, "<a>", "<b>", "<files>")
    spm = FamilyRow("spm", "spm", STARCODER_SENTINELS, ("<a>",))
    files: Mapping[Role, str] = {**STARCODER_SENTINELS, "sep": "<files>"}
    psm = FamilyRow("psm", "psm", files, ("<b>",), repository=RepositoryLayout(title=""))
    other = replace(psm, name="other")
    toy = ToyTokenizer(controls=controls)
    found = detect_family(toy.vocabulary, "", rows=(spm, psm, other))
    assert found is not None
    assert found.ambiguous == ("psm", "other")
    assert set(found.sentinel_ids) == {"pre", "suf", "mid"}
    assert found.repository == COMMENTED
    assert {toy.id_of["<b>"], toy.id_of["<files>"]} <= found.stop_ids


def test_candidates_that_are_all_spm_are_no_answer() -> None:
    row = FamilyRow("one", "spm", STARCODER_SENTINELS, ())
    toy = ToyTokenizer(controls=STARCODER_CONTROLS)
    assert detect_family(toy.vocabulary, "", rows=(row, replace(row, name="other"))) is None


def test_candidates_that_name_different_tokens_are_no_answer() -> None:
    toy = ToyTokenizer(controls=(*STARCODER_CONTROLS, "<|code_prefix|>", "<|code_suffix|>",
                                 "<|code_middle|>"))  # fmt: skip
    assert detect_family(toy.vocabulary, "") is None
    assert detect_family(toy.vocabulary, "GLM-4.5-Air") is not None


def test_the_family_with_more_sentinels_is_meant() -> None:
    toy = ToyTokenizer(controls=(*STARCODER_CONTROLS, "<repo_name>", "<file_sep>"))
    found = detect_family(toy.vocabulary, "my-model")
    assert found is not None
    assert (found.name, found.ambiguous) == ("starcoder2", ())


def test_the_longest_part_of_a_name_decides() -> None:
    controls = (*STARCODER_CONTROLS, "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
    vocabulary = ToyTokenizer(controls=controls).vocabulary
    four = detect_family(vocabulary, "granite-4.0-h-tiny")
    three = detect_family(vocabulary, "granite-3b-code-base")
    assert four is not None and four.name == "granite4"
    assert three is not None and three.name == "granite-code"


def test_a_row_that_another_family_contains_is_never_certain_by_its_tokens() -> None:
    toy = ToyTokenizer(controls=QWEN_CONTROLS[:5])
    found = detect_family(toy.vocabulary, "")
    assert found is not None
    assert (found.name, found.ambiguous) == ("granite4", ("granite4",))


def _controls(row: FamilyRow) -> tuple[str, ...]:
    return tuple(row.sentinels.values())


@pytest.mark.parametrize("row", FAMILIES, ids=lambda row: row.name)
def test_rows_known_by_name_or_from_memory_are_never_taken_without_it(row: FamilyRow) -> None:
    toy = ToyTokenizer(controls=_controls(row))
    for architecture in ("", "llama", "starcoder", "chatglm", "falcon-h1"):
        found = detect_family(toy.vocabulary, "my-model", architecture)
        if found is not None and found.name == row.name:
            assert row.known_by == "tokens"
            assert found.verified
    assert row.evidence == "source" or row.known_by == "name"


@pytest.mark.parametrize("row", FAMILIES, ids=lambda row: row.name)
def test_every_row_is_found_by_each_of_its_names(row: FamilyRow) -> None:
    toy = ToyTokenizer(controls=_controls(row))
    for name in row.names:
        found = detect_family(toy.vocabulary, f"{name}-7b.Q4_K_M")
        assert found is not None
        assert (found.name, found.order, found.ambiguous) == (row.name, row.order, ())
        assert found.verified == (row.evidence == "source")
        assert set(found.sentinel_ids) == set(row.sentinels)
        assert set(found.sentinel_ids.values()) <= found.stop_ids


def test_a_name_without_the_sentinels_is_no_family() -> None:
    assert detect_family(ToyTokenizer(controls=STARCODER_CONTROLS).vocabulary, "mellum") is not None
    toy = ToyTokenizer(controls=STARCODER_CONTROLS[:3])
    for row in FAMILIES:
        for name in row.names:
            assert detect_family(toy.vocabulary, name, "starcoder2") is None


@pytest.mark.parametrize("name", ["Yi-Coder-9B", "yi_coder_1.5b", "CodeLlama-7b-Python"])
def test_models_that_have_tokens_but_were_not_trained_have_no_family(name: str) -> None:
    controls = (*STARCODER_CONTROLS, "▁<PRE>", "▁<SUF>", "▁<MID>")
    toy = ToyTokenizer(controls=controls)
    assert detect_family(toy.vocabulary, name) is None  # ollama#8320


def test_a_tokenizer_that_nothing_keeps_from_putting_a_space_before_a_suffix_is_refused() -> None:
    vocabulary = Vocabulary([b" ", b"x", b" x", b"xx"], model="llama", bos_id=0)
    family = FimFamily("codegemma", "psm", {"pre": 1, "suf": 2, "mid": 0}, frozenset())

    def encode(text_bytes: bytes) -> list[int]:
        return [2, *[1] * (len(text_bytes) - 1)]

    with pytest.raises(InfillUnsupported, match="family codegemma, but its tokenizer puts a space"):
        plan_prompt(HOLE, vocabulary, family, encode, PromptBudget(1024, 1000))
    plain = plan_prompt(CompletionRequest("x"), vocabulary, None, encode, PromptBudget(1024, 1000))
    assert plain.pending == b" x"


@pytest.mark.parametrize(
    ("kind", "stop_ids"), [(TokenKind.CONTROL, {1, 2, 3, 4}), (TokenKind.NORMAL, {1, 2, 3, 4})]
)
def test_an_end_text_counts_also_where_the_file_marks_it_as_ordinary(
    kind: TokenKind, stop_ids: set[int]
) -> None:
    texts = ["x", "▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"]
    vocabulary = Vocabulary(
        [b"x", b"", b"", b"", b" <EOT>"],
        kinds=[TokenKind.NORMAL, *[TokenKind.CONTROL] * 3, kind],
        texts=texts,
        model="llama",
    )
    family = detect_family(vocabulary, "codellama-7b")
    assert family is not None and family.stop_ids == stop_ids


def test_only_codestral_goes_on_to_another_file_in_text() -> None:
    assert {row.name: row.stop_strings for row in FAMILIES if row.stop_strings} == {
        "codestral": ("\n+++++ ",)
    }
    toy = ToyTokenizer(controls=("[PREFIX]", "[SUFFIX]"))
    family = detect_family(toy.vocabulary, "codestral-22b")
    for request, stops in [(HOLE, ("\n+++++ ",)), (CompletionRequest("a"), ())]:
        plan = plan_prompt(request, toy.vocabulary, family, toy.encode, PromptBudget(1024, 1000))
        assert plan.stop_strings == stops


def test_p1_a_header_that_the_context_cannot_hold_is_an_error_and_a_long_path_is_cut() -> None:
    toy = ToyTokenizer(controls=_controls(next(row for row in FAMILIES if row.name == "codegeex4")))
    family = detect_family(toy.vocabulary, "codegeex4")
    request = replace(HOLE, path="x" * 10_000, language="y" * 10_000)
    plan = plan_prompt(request, toy.vocabulary, family, toy.encode, PromptBudget(1024, 1000))
    assert len(plan.kept_ids) < 160
    with pytest.raises(InvalidRequest, match="the context is too small"):
        plan_prompt(request, toy.vocabulary, family, toy.encode, PromptBudget(64, 1000))


def test_f1_turns_and_sentinels_in_a_header_stay_text() -> None:
    toy = ToyTokenizer(controls=_controls(next(row for row in FAMILIES if row.name == "codegeex4")))
    family = detect_family(toy.vocabulary, "codegeex4")
    request = replace(HOLE, path="<|assistant|>\n{path}.py", language="<|user|>")
    plan = plan_prompt(request, toy.vocabulary, family, toy.encode, PromptBudget(1024, 1000))
    shown = toy.show(plan.kept_ids)
    assert "###PATH:<|assistant|> {path}.py\n###LANGUAGE:<|user|>\n" in shown
    assert [plan.kept_ids.count(i) for i in toy.id_of.values()] == [1] * 5


CONTROLS = tuple(dict.fromkeys(text for row in FAMILIES for text in _controls(row)))
TOY = ToyTokenizer((" user", "Name", "<|", "|>"), CONTROLS)
TEXTS = st.lists(
    st.sampled_from((*CONTROLS, " user", "Name", "\n", "é", "x" * 40)), max_size=12
).map("".join)


@settings(max_examples=150)
@given(
    row=st.sampled_from(FAMILIES),
    request=st.builds(
        CompletionRequest,
        prefix=TEXTS,
        suffix=TEXTS,
        infill=st.just(True),
        extra=st.lists(st.builds(ExtraText, TEXTS, st.none() | TEXTS), max_size=3).map(tuple),
        path=st.none() | TEXTS,
        language=st.none() | TEXTS,
        max_tokens=st.integers(0, 200),
    ),
    budget=st.builds(PromptBudget, st.integers(400, 900), st.floats(1, 300)),
)
def test_f1_p1_whatever_the_texts_are_each_family_has_its_own_controls_only(
    row: FamilyRow, request: CompletionRequest, budget: PromptBudget
) -> None:
    family = detect_family(TOY.vocabulary, row.names[0] if row.names else row.name, rows=(row,))
    assert family is not None
    request = replace(request, layout=row.order)
    plan = plan_prompt(request, TOY.vocabulary, family, TOY.encode, budget)
    room = budget.prompt_room(request.max_tokens, "latency")
    if request.max_tokens == 0:
        room += budget.ahead_room()
    assert len(plan.kept_ids) + plan.dropped_tokens <= room
    controls = [i for i in plan.kept_ids if i in TOY.id_of.values()]
    n_files = sum(role == "extra" for role, _ in plan.segments)
    n_separators = n_files + (1 if row.repository.first_separated else 0) if n_files else 0
    expected = {
        token_id: {"rep": min(n_files, 1), "sep": n_separators}.get(role, 1)
        for role, token_id in family.sentinel_ids.items()
    }
    assert {i: controls.count(i) for i in family.sentinel_ids.values()} == expected
    assert len(controls) == sum(expected.values())
    assert [plan.kept_ids[at] for at in plan.barriers] == controls
    shown = TOY.show(plan.kept_ids) + plan.pending.decode()
    assert plan.windows.prefix.text in shown
    assert plan.windows.suffix.text in shown


def test_text_that_is_no_hole_has_no_turn_and_names_files_in_comments() -> None:
    request = CompletionRequest("a = ", extra=(ExtraText("b\n", "b.py"),), healing="off")
    family = detect_family(TOY.vocabulary, "codegeex4")
    plan = plan_prompt(request, TOY.vocabulary, family, TOY.encode, PromptBudget(1024, 1000))
    assert TOY.show(plan.kept_ids) == "# b.py\nb\na = "


def test_a_family_without_a_middle_token_heals_the_end_of_its_prompt() -> None:
    toy = ToyTokenizer(("userName", "userN"), controls=("[PREFIX]", "[SUFFIX]"))
    family = detect_family(toy.vocabulary, "codestral-22b")
    request = replace(HOLE, prefix="a = userN", suffix=";")
    plan = plan_prompt(request, toy.vocabulary, family, toy.encode, PromptBudget(1024, 1000))
    assert toy.show(plan.kept_ids) + plan.pending.decode() == "[SUFFIX];[PREFIX]a = userN"
    assert plan.pending.endswith(b"userN")


def test_missing_sentinels_are_named_in_llama_cpps_order() -> None:
    none = ToyTokenizer(controls=("<|endoftext|>",))
    assert missing_sentinels(none.vocabulary) == ("prefix", "suffix", "middle")
    assert missing_sentinels(ToyTokenizer().vocabulary) == ()
    named = ToyTokenizer(controls=("<x>",), fim_ids={"suf": 256})
    assert missing_sentinels(named.vocabulary) == ("prefix", "middle")


@pytest.mark.parametrize(
    ("name", "sentinels", "said"),
    [
        ("refact", STARCODER_CONTROLS, "ok      .*fills in the middle as refact-1.6b\n"),
        (
            "my-model",
            STARCODER_CONTROLS,
            "note    .*as starcoder in psm order: ambiguous, its tokens fit starcoder, refact-1.6b",
        ),
        (
            "Mellum-4b",
            (*STARCODER_CONTROLS, "<filename>"),
            "note    .*as mellum in spm order: unverified, a format known from memory",
        ),
        ("smollm2", ("<|endoftext|>",), "ok      .*no FIM: left to right only\n"),
    ],
)
def test_the_doctor_says_how_sure_a_family_is(
    name: str, sentinels: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    path = write_gguf(
        tmp_path / f"{name}.gguf",
        {
            "general.architecture": "llama",
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.tokens": [b"x", *(text.encode() for text in sentinels)],
            "tokenizer.ggml.token_type": [1, *[3] * len(sentinels)],
        },
        {},
    )
    assert re.match(said, str(describe_vocabulary(name, path, Vocabulary.from_gguf(path))))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("codestral-22b", "ok      .*fills in the middle as codestral\n"),
        ("Mistral-7B-v0.3", "note    .*as mistral-7b in spm order: unverified"),
        ("model", "note    .*left to right only: ambiguous, its tokens fit codestral, mistral-7b,"),
    ],
)
def test_the_doctor_says_which_of_mistrals_models_it_takes_a_file_for(
    name: str, said: str, tmp_path: Path
) -> None:
    path = write_gguf(
        tmp_path / f"{name}.gguf",
        {
            "general.architecture": "llama",
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": [b"<unk>", b"<s>", b"</s>", b"[PREFIX]", b"[SUFFIX]"],
            "tokenizer.ggml.token_type": [2, 3, 3, 3, 3],
        },
        {},
    )
    assert re.match(said, str(describe_vocabulary(name, path, Vocabulary.from_gguf(path))))


def test_a_model_that_was_not_trained_fits_no_family_by_name() -> None:
    toy = ToyTokenizer(controls=("[PREFIX]", "[SUFFIX]"))
    assert families_by_name(toy.vocabulary, "model") == ("codestral", "mistral-7b")
    assert families_by_name(toy.vocabulary, "yi-coder") == ()
    assert families_by_name(toy.vocabulary, "model", "Yi Coder 9B") == ()
    assert families_by_name(ToyTokenizer().vocabulary, "model") == ()
