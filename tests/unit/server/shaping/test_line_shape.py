"""One line, asked for by the shape "line"."""

from __future__ import annotations

import pytest

from support.answering import answered
from suture.server.request import CompletionRequest

# prefix, what the model says, suffix, what is inserted
LINES = [
    ("if a:\n", "    b()\n    c()\n", "    d()\n", "    b()\n"),
    ("if a:\n    ", "b()\n    c()\n", "d()\n", "b()\n"),
    ("if a:\r\n", "    b()\n    c()\n", "    d()\r\n", "    b()\r\n"),
    ("if a:\n", "    b()\n    c()\n", "\n    d()\n", "    b()"),
    ("x = ", "1\ny = 2\n", " + z\n", "1"),
    ("x = ", "1\ny = 2\n", "\nz = 3\n", "1"),
    ("if a:\n", "    b()", "    d()\n", "    b()"),
]


@pytest.mark.parametrize(("prefix", "says", "suffix", "inserted"), LINES)
def test_a_line_that_goes_in_before_another_has_its_line_end(
    prefix: str, says: str, suffix: str, inserted: str
) -> None:
    hole = CompletionRequest(prefix, suffix, infill=True, layout="psm", shape="line", max_tokens=60)
    text, result = answered(hole, says)
    assert text == inserted
    assert ("line" in result.rules) == ("\n" in says)


def test_a_line_end_that_was_asked_for_as_a_stop_is_no_text() -> None:
    hole = CompletionRequest(
        "if a:\n", "    d()\n", infill=True, shape="line", stop=("\n",), max_tokens=60
    )
    assert answered(hole, "    b()\n    c()\n")[0] == "    b()"
