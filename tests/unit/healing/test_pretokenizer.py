import pytest

from suture.healing.pretokenizer import Pretokenizer, shadow

TEXT = "don't user_name\n    x = foo(\n\n  1234  é我"


SPLITS = {
    "gpt-2": "don|'t| user|_|name|\n   | x| =| foo|(|\n\n | 1234| | é我",
    "starcoder": "don|'t| user|_|name|\n   | x| =| foo|(|\n\n  |1|2|3|4| | é我",
    "qwen2": "don|'t| user|_name|\n|   | x| =| foo|(\n\n| | |1|2|3|4| | é我",
    "llama-bpe": "don|'t| user|_name|\n|   | x| =| foo|(\n\n| | |123|4| | é我",
    "deepseek-coder": "don|'|t| user|_|name|\n|   | x| =| foo|(|\n|\n|  |1|2|3|4| | é|我",
}


@pytest.mark.parametrize("family", SPLITS)
def test_families_split_as_their_expressions_say(family: str) -> None:
    assert "|".join(Pretokenizer(family).split(TEXT)) == SPLITS[family]


def test_nothing_is_lost_in_any_family() -> None:
    for family in ("gpt-2", "qwen2", "deepseek-v3", "gpt-4o", "tekken", "falcon", "default"):
        assert "".join(Pretokenizer(family).split(TEXT)) == TEXT


def test_an_unknown_family_says_so_and_splits_nothing() -> None:
    pretokenizer = Pretokenizer("never heard of")

    assert not pretokenizer.known
    assert pretokenizer.split(TEXT) == [TEXT]
    assert pretokenizer.anchors(TEXT) == []


def test_a_shadow_keeps_length_and_kinds() -> None:
    text = "aé我\u0301ー٣。€\u00a0\x01\udc80z"

    assert shadow(text) == "a\x01\x02\x03\x07\x08\x04\x05\v\x06\x06z"


def test_families_that_say_0_to_9_group_no_other_numbers() -> None:
    """Falcon's ``[0-9]{3}`` beside Llama 3's ``\\p{N}{1,3}``."""
    for family in ("falcon", "default"):
        assert Pretokenizer(family).split("½1234") == ["½", "123", "4"]
    assert Pretokenizer("llama-bpe").split("½1234") == ["½12", "34"]


def test_blanks_at_the_end_stay_open() -> None:
    starts, open_end = Pretokenizer("qwen2").stable_starts("foo\n  ")

    assert (starts, open_end) == ([0, 3], 4)


def test_a_contraction_that_may_grow_stays_open() -> None:
    assert Pretokenizer("gpt-2").stable_starts("don'l") == ([0, 3], 4)
