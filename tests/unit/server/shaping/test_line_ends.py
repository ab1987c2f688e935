"""Line ends as the document has them, however the text comes apart."""

from __future__ import annotations

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from suture.server.shaping.line_ends import BetweenCrAndLf, LineEnds

PARTS = st.lists(st.text("a\r\n", max_size=4), max_size=8)


@settings(max_examples=1000)
@given(PARTS, st.sampled_from(["\r\n", "\r"]))
@example(["\r", "\n", "\n"], "\r\n")
def test_each_line_end_becomes_the_documents(parts: list[str], line_end: str) -> None:
    line_ends = LineEnds(line_end)
    text = "".join(line_ends.feed(part) for part in parts)
    assert text == re.sub(r"\r\n|\r|\n", line_end, "".join(parts))


@given(PARTS)
def test_lf_documents_get_the_text_as_it_is(parts: list[str]) -> None:
    line_ends = LineEnds("\n")
    assert [line_ends.feed(part) for part in parts] == parts


@given(PARTS, st.sampled_from(["\n", "\r\n", "\r"]))
@example(["\n", "a"], "\r\n")
def test_inside_a_line_end_nothing_is_inserted_that_breaks_it(
    parts: list[str], line_end: str
) -> None:
    parts = [part.replace("\r", "\n") for part in parts]
    line_ends, said = BetweenCrAndLf(line_end), "".join(parts)
    text = "".join([*map(line_ends.feed, parts), line_ends.flush()])
    if not said.startswith("\n"):
        assert text == "" and line_ends.ended == bool(said)
        return
    # As if the cursor were before the CR, but for the first line end, which is the document's.
    assert "x\r" + text + "\ny" == "x\r\n" + said[1:].replace("\n", line_end) + "\r\ny"


@settings(max_examples=500)
@given(PARTS, st.sampled_from(["\r\n", "\r", "\n"]))
@example(["\r", "\n"], "\r")
@example(["\r", "\n"], "\r\n")
def test_it_has_fired_where_the_text_is_another_for_it(parts: list[str], line_end: str) -> None:
    line_ends = LineEnds(line_end)
    text = "".join([*map(line_ends.feed, parts), line_ends.flush()])
    assert line_ends.fired == (text != "".join(parts))
