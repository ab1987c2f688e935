"""What the rules of shaping make of a text, read all at once: slow, and nothing is held."""

from __future__ import annotations

import re
from collections.abc import Sequence

from suture.server.shaping.rule import Rule


def shaped(rule: Rule, *parts: str) -> str:
    """What a rule makes of a text that comes so."""
    text = ""
    for part in parts:
        if not rule.ended:
            text += rule.feed(part)
    return text if rule.ended else text + rule.flush()


def slow_tail(text: str, suffix: str) -> str:
    return text.rstrip(" \t\n") if re.match(r"[ \t]*(\n|\Z)", suffix) else text


def slow_tabs(text: str, unit: int) -> str:
    """Every tab among the blanks of a line in a file of spaces."""
    lines = []
    for line in text.split("\n"):
        body = line.lstrip(" \t")
        blanks = line[: len(line) - len(body)]
        lines.append((blanks.expandtabs(unit) if body else blanks) + body)
    return "\n".join(lines)


def slow_first_line(text: str, typed: str, most: int) -> str:
    """Without what was typed, as long as that makes the line deeper than `most`."""
    while True:
        body = text.lstrip(" ")
        n_blanks = len(text) - len(body)
        is_deeper = len(typed) + n_blanks > most
        if not body[:1].isalpha() or n_blanks < len(typed) or not is_deeper:
            return text
        text = text[len(typed) :]


def slow_scope(text: str, typed: str, floor: int) -> str:
    """Up to the first line below the floor, of words only."""
    lines = (typed + text).split("\n")
    for n, line in enumerate(lines):
        is_first_rest = n == 0 and typed.strip()
        if line.strip() and not is_first_rest and len(line) - len(line.lstrip(" ")) < floor:
            return "".join(other + "\n" for other in lines[:n])[len(typed) :]
    return text


def slow_repeats(text: str) -> str:
    """Before the first line that goes on with a block that was said as often as any may be."""
    lines = re.findall(r"[^\n]*\n|[^\n]+\Z", text)
    said: list[str] = []
    kept = ""
    for line in lines:
        if line.strip():
            if any(_is_loop(said, line.rstrip("\n"), n) for n in range(1, 9)):
                return kept
            said.append(line.rstrip("\n"))
        kept += line
    return kept


def _is_loop(said: Sequence[str], line: str, n: int) -> bool:
    block = list(said[-n:])
    has_letters = any(c.isalpha() for other in block for c in other)
    n_copies = {1: 6, 2: 4}.get(n, 3) if has_letters else 32
    return len(block) == n and list(said[-n * n_copies :]) == block * n_copies and block[0] == line


def slow_run(text: str) -> str:
    """One line, up to where the next character goes on with 256 of at most 32 kinds of turn."""
    for end in range(256, len(text)):
        run = text[end - 256 : end + 1]
        if any(run[n:] == run[:-n] for n in range(1, 33)):
            return text[:end]
    return text


def slow_echo(text: str, above: Sequence[str]) -> str:
    """Nothing, if the first lines are the last ones above."""
    said = [line for line in text.split("\n") if line.strip()]
    for n in range(1, min(len(above), 8) + 1):
        n_letters = sum(len(re.findall(r"\w", line)) for line in above[-n:])
        if list(above[-2 * n : -n]) == list(above[-n:]):
            return text
        if said[:n] == list(above[-n:]) and n_letters >= 24:
            return ""
    return text
