from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from support.toy_tokenizer import QWEN_CONTROLS, ToyTokenizer
from suture.healing.vocabulary import TokenKind
from suture.server.errors import ModelError
from suture.server.prompt.families import FamilyRow, Role, detect_family, missing_sentinels

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
    ("name", "order"), [("Refact-1_6B-fim", "spm"), ("starcoderbase", "psm"), ("my-model", None)]
)
def test_families_with_the_same_sentinels_are_told_apart_by_name(
    name: str, order: str | None
) -> None:
    rows = (
        FamilyRow("refact", "spm", STARCODER_SENTINELS, ("<|endoftext|>",), ("refact",)),
        FamilyRow("starcoder", "psm", STARCODER_SENTINELS, ("<|endoftext|>",), ("starcoder",)),
    )
    toy = ToyTokenizer(controls=STARCODER_CONTROLS)
    family = detect_family(toy.vocabulary, name, rows)
    assert (family and family.order) == order


def test_two_rows_that_match_are_no_answer() -> None:
    row = FamilyRow("one", "psm", STARCODER_SENTINELS, ())
    other = FamilyRow("other", "spm", STARCODER_SENTINELS, ())
    toy = ToyTokenizer(controls=STARCODER_CONTROLS)
    assert detect_family(toy.vocabulary, "", (row, other)) is None


def test_missing_sentinels_are_named_in_llama_cpps_order() -> None:
    none = ToyTokenizer(controls=("<|endoftext|>",))
    assert missing_sentinels(none.vocabulary) == ("prefix", "suffix", "middle")
    assert missing_sentinels(ToyTokenizer().vocabulary) == ()
    named = ToyTokenizer(controls=("<x>",), fim_ids={"suf": 256})
    assert missing_sentinels(named.vocabulary) == ("prefix", "middle")
