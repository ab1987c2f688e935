"""Line ends as the document has them, however the text comes apart."""

from __future__ import annotations

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from suture.server.shaping.line_ends import LineEnds

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
