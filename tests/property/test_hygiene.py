"""Hygiene against its numbered rules, over texts of any characters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.healing import NotSaidAgain, SaidAgain, structural_end, word_end
from suture.healing.hygiene import MAX_PENDING

_CODE = st.text(st.sampled_from("ab_1é我😀 \t\n\r.,;()[]{}<>=\"'\\/-+"), max_size=40)
TEXTS = (_CODE | st.text(max_size=40)).map(str.encode)
ENDS = st.sampled_from([word_end, structural_end])
BLANKS = b" \t"


def is_whole(data: bytes) -> bool:
    return data.decode("utf-8", "ignore").encode() == data


@given(TEXTS, ENDS)
def test_y1_kept_and_pending_are_the_text(text: bytes, end: object) -> None:
    assert callable(end)
    cut = end(text)
    assert cut.kept + cut.pending == text


@given(TEXTS, ENDS, st.integers(0, 3))
def test_y2_no_character_is_split(text: bytes, end: object, n_missing: int) -> None:
    assert callable(end)
    text = text[: len(text) - n_missing]  # the text itself may end inside one
    cut = end(text)
    assert is_whole(cut.kept)
    assert not cut.pending[:1] or cut.pending[0] & 0xC0 != 0x80


@given(TEXTS, ENDS)
def test_y3_the_last_lines_final_blanks_are_never_sent(text: bytes, end: object) -> None:
    assert callable(end)
    assert not end(text).kept.endswith((b" ", b"\t"))


@given(TEXTS)
def test_y3_with_nothing_pending_a_token_ends_there(text: bytes) -> None:
    cut = word_end(text)
    if not cut.pending and cut.kept:
        last = cut.kept.decode()[-1]
        assert last in "\r\n)]};," or len(cut.kept) > MAX_PENDING or last.isspace()


@given(TEXTS)
def test_structural_ends_are_where_a_turn_may_begin(text: bytes) -> None:
    cut = structural_end(text)
    if len(text) <= MAX_PENDING and cut.kept:
        assert cut.kept[-1:] in b"\r\n)]};,{(["


@given(TEXTS, TEXTS, st.data())
def test_y4_what_is_said_again_is_taken_however_the_answer_is_parted(
    pending: bytes, new: bytes, data: st.DataObject
) -> None:
    answer = pending + new
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=4)))
    again = SaidAgain(pending)
    parts = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    assert b"".join(map(again.feed, parts)) == new
    again.finish()


@given(TEXTS, TEXTS)
def test_y4_only_blanks_may_be_missing(pending: bytes, answer: bytes) -> None:
    again = SaidAgain(pending)
    try:
        new = again.feed(answer)
        again.finish()
    except NotSaidAgain:
        assert slowly_taken(pending, answer) is None
    else:
        assert slowly_taken(pending, answer) == new
        taken = answer[: len(answer) - len(new)]
        assert taken.translate(None, BLANKS) == pending.translate(None, BLANKS)


def slowly_taken(pending: bytes, answer: bytes) -> bytes | None:
    """What is new in the answer, read run by run; None if something else comes."""
    while pending and answer:
        if pending[:1] == answer[:1]:
            pending, answer = pending[1:], answer[1:]
        elif pending[:1] in (b" ", b"\t"):
            pending = pending[1:]
        else:
            return None
    return None if pending.strip(BLANKS) else answer


@pytest.mark.parametrize(
    ("text", "kept", "pending"),
    [
        ("    return use", "    return", " use"),
        ("    return ", "    return", " "),
        ("x = ", "x =", " "),
        ("x =", "x", " ="),
        ("foo.", "foo", "."),
        ("foo.ba", "foo", ".ba"),
        ("foo(bar", "foo", "(bar"),
        ("foo(bar)", "foo(bar)", ""),
        ("x[i].", "x[i]", "."),
        ("x;\n", "x;\n", ""),
        ("x;\n    ", "x;\n", "    "),
        ("\n    ret", "\n", "    ret"),
        ("é我", "", "é我"),
        ("", "", ""),
        ("a" * 100, "a" * 100, ""),
    ],
)
def test_a_word_ends_where_the_document_shows_it(text: str, kept: str, pending: str) -> None:
    cut = word_end(text.encode())
    assert (cut.kept.decode(), cut.pending.decode()) == (kept, pending)


def test_a_turn_begins_behind_a_line_end_or_a_bracket() -> None:
    assert structural_end(b"def f(self").kept == b"def f("
    assert structural_end(b"x = 1\n    retur").kept == b"x = 1\n"
    assert structural_end(b"word").kept == b""
    far = b"x;" + b"word " * 20 + b"wor"
    assert structural_end(far) == word_end(far)


def test_an_unfinished_character_is_given_back() -> None:
    assert word_end("aé".encode()[:-1]).pending == "é".encode()[:-1]


def test_a_blank_that_is_missing_or_shorter_is_no_refusal() -> None:
    assert SaidAgain(b"    ").feed(b"  x") == b"x"
    assert SaidAgain(b" use").feed(b"user") == b"r"
    assert SaidAgain(b" ").feed(b"\n") == b"\n"


def test_a_word_that_is_not_said_again_refuses_the_answer() -> None:
    with pytest.raises(NotSaidAgain):
        SaidAgain(b" use").feed(b" other")
    again = SaidAgain(b" use")
    again.feed(b" us")
    with pytest.raises(NotSaidAgain):
        again.finish()
