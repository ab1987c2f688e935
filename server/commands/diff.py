"""A unified diff that shows one insertion; made from the place of it, not by comparing."""

from __future__ import annotations

import re

CONTEXT = 3
# A line with its end, or the rest that has none.
_LINES = re.compile(r"[^\n]*\n|[^\n]+")


def unified_diff(prefix: str, suffix: str, text: str, delete_after: int, name: str) -> str:
    """The diff that puts `text` between, for the first `delete_after` characters of `suffix`."""
    before, head = _cut_last_line(prefix)
    old_rest, new_rest = head + suffix, head + text + suffix[delete_after:]
    if old_rest == new_rest:
        return ""
    old, new = _LINES.findall(old_rest), _LINES.findall(new_rest)
    n_after = 0
    while n_after < min(len(old), len(new)) and old[-1 - n_after] == new[-1 - n_after]:
        n_after += 1
    after = old[len(old) - n_after :][:CONTEXT]
    old, new = old[: len(old) - n_after], new[: len(new) - n_after]
    above = _LINES.findall(before)
    shown = above[-CONTEXT:]
    first = len(above) - len(shown)
    hunk = [f"@@ -{_range(first, shown + old + after)} +{_range(first, shown + new + after)} @@\n"]
    for mark, lines in ((" ", shown), ("-", old), ("+", new), (" ", after)):
        hunk += [_marked(mark, line) for line in lines]
    return f"--- a/{name}\n+++ b/{name}\n" + "".join(hunk)


def _cut_last_line(text: str) -> tuple[str, str]:
    cut = text.rfind("\n") + 1
    return text[:cut], text[cut:]


def _range(first: int, lines: list[str]) -> str:
    # A range without lines names the line before it.
    return f"{first + 1 if lines else first},{len(lines)}"


def _marked(mark: str, line: str) -> str:
    return (
        f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"
    )
