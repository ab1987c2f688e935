from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from suture.server.commands.diff import unified_diff

LINES = st.text(st.sampled_from("ab\n\r "), max_size=30)


def test_an_insertion_is_shown_with_the_lines_around_it() -> None:
    diff = unified_diff("1\n2\n3\n4\nfor x in ", ":\n6\n7\n8\n9\n", "range(3)", 0, "a.py")
    assert diff == (
        "--- a/a.py\n+++ b/a.py\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n"
        "-for x in :\n+for x in range(3):\n 6\n 7\n 8\n"
    )


def test_what_the_edit_deletes_is_taken_out() -> None:
    diff = unified_diff("f(", ")", "x)", 1, "a")
    assert diff.splitlines()[3:] == [
        "-f()",
        "\\ No newline at end of file",
        "+f(x)",
        "\\ No newline at end of file",
    ]


def test_nothing_inserted_is_no_diff() -> None:
    assert unified_diff("a", "b", "", 0, "a") == ""


def patched(text: str, diff: str) -> str:
    """`text` with the one hunk of `diff` applied, as patch(1) reads it."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    _, _, head, *marked = re.findall(r"[^\n]*\n", diff)
    start, n_old = map(int, re.match(r"@@ -(\d+),(\d+) ", head).groups())  # type: ignore[union-attr]
    hunk: list[tuple[str, str]] = []
    for line in marked:
        if line.startswith("\\"):
            hunk[-1] = (hunk[-1][0], hunk[-1][1].removesuffix("\n"))
        else:
            hunk.append((line[0], line[1:]))
    first = start - 1 if n_old else start
    assert lines[first : first + n_old] == [line for mark, line in hunk if mark in " -"]
    lines[first : first + n_old] = [line for mark, line in hunk if mark in " +"]
    return "".join(lines)


@given(LINES, LINES, LINES, st.integers(0, 3))
def test_applying_it_makes_the_completed_file(
    prefix: str, suffix: str, text: str, delete_after: int
) -> None:
    diff = unified_diff(prefix, suffix, text, delete_after, "f")
    completed = prefix + text + suffix[delete_after:]
    assert (patched(prefix + suffix, diff) if diff else prefix + suffix) == completed
