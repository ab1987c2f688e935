"""A text while it is written: what is known of it, against the whole."""

from __future__ import annotations

import asyncio

from hypothesis import example, given
from hypothesis import strategies as st

from suture.lsp.documents import Document, Position
from suture.lsp.http_client import Answer
from suture.lsp.shown import Suggestion
from suture.lsp.writing import Writing, whole_lines

CODE = st.text(st.sampled_from("ab()]}:;, \t\n\r"), max_size=24)
CUTS = st.lists(st.integers(0, 24), max_size=6)


def lines_known(text: str) -> str:
    """The oracle: line for line, as one reads."""
    lines, line, known = [], "", ""
    for n, char in enumerate(text):
        following = text[n + 1 : n + 2]
        line += char
        if char == "\n" or (char == "\r" and following != "\n"):
            lines.append(line)
            line = ""
            if any(one.isalnum() for one in "".join(lines)):
                known = "".join(lines).rstrip()
    return known


def written_at(text: str) -> Writing:
    cursor = Document("file:///a.py", "python", 1, text).cursor(Position(99, 0), "utf-16")
    return Writing(cursor, ())


@given(CODE)
@example("a\r\nb")
@example(")\n}\na\n")
def test_g1_whole_lines_are_known_once_they_say_something(text: str) -> None:
    assert whole_lines(text) == lines_known(text)
    assert text.startswith(whole_lines(text))


@given(CODE, CUTS)
def test_g1_what_is_known_is_the_beginning_of_what_it_grows_to(text: str, cuts: list[int]) -> None:
    writing, before = written_at("x"), ""
    for end in sorted(min(cut, len(text)) for cut in cuts):
        is_more = writing.came(Suggestion(text[:end], number=7), lambda ms: None)
        known = writing.known.text if writing.known else ""
        assert known.startswith(before) and is_more == (known != before)
        assert writing.known is None or writing.known.number == 7
        assert text.startswith(known)
        before = known
    assert writing.ended(Answer(Suggestion(text, 1, 7), None)).text.startswith(before)


def test_g1_a_server_that_takes_back_what_it_said_changes_nothing_that_is_shown() -> None:
    writing = written_at("x")
    writing.came(Suggestion("one\ntwo", number=1), lambda ms: None)
    answer = Answer(Suggestion("another\n", 0, 1), None, {"finish": "eos"})
    assert writing.ended(answer) == Suggestion("one")
    assert writing.answer == Answer(Suggestion("one"), None, {"finish": "eos"})


@given(CODE, CODE, CODE)
def test_it_may_reach_where_what_is_typed_may_be_what_it_says(
    said: str, to_come: str, typed: str
) -> None:
    writing = written_at("x = ")
    writing.came(Suggestion(said), lambda ms: None)
    there = Document("file:///a.py", "python", 2, f"x = {typed}").cursor(Position(99, 0), "utf-16")
    goes_on = (said + to_come).startswith(typed)
    assert writing.may_reach(there) or not goes_on
    assert writing.may_reach(there) == (said.startswith(typed) or typed.startswith(said))


def test_it_may_reach_where_the_editor_has_closed_what_was_typed_and_nowhere_else() -> None:
    writing = written_at("f")
    writing.came(Suggestion("(a)\n"), lambda ms: None)

    def at(text: str, character: int) -> bool:
        document = Document("file:///a.py", "python", 2, text)
        return writing.may_reach(document.cursor(Position(0, character), "utf-16"))

    assert at("f(", 2) and at("f()", 2) and at("f(a)", 3)
    assert not at("f(b", 3) and not at("f(]", 2) and not at("f( x", 2) and not at("", 0)


def test_who_waits_hears_of_each_piece_and_of_the_end() -> None:
    async def wait() -> list[str]:
        writing, heard = written_at("x"), []
        go_on = asyncio.Event()

        async def write() -> None:
            writing.came(Suggestion("a\n", number=1), lambda ms: None)
            await go_on.wait()

        writing.run(write())
        await writing.more()
        heard.append(writing.known.text if writing.known else "")
        await writing.over(within_s=0.01)
        assert not writing.is_over
        go_on.set()
        await writing.more()
        heard.append("over" if writing.is_over else "")
        await writing.more()  # nothing is waited for any more
        return heard

    assert asyncio.run(wait()) == ["a", "over"]
