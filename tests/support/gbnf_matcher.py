"""What a grammar describes, slowly: the oracle of what is written for engines.

`STRICT` is what both llama.cpp and xgrammar read: no `.`, no empty alternative, few escapes, no
digit behind the two of a `\\x`, and names that do not begin with a digit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Positions = set[int]
Matcher = Callable[[str, Positions], Positions]


@dataclass(frozen=True)
class Dialect:
    name: str
    escape: str
    code: str
    any_char: bool
    empty: bool


_CODE = r"x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}"
_STRICT_CODE = _CODE.replace("{2}", "{2}(?![0-9a-fA-F])")
LLAMA = Dialect(r"[a-zA-Z0-9-]+", r"""[nrt\\"\[\]-]""", _CODE, any_char=True, empty=True)
STRICT = Dialect(
    r"[a-zA-Z-][a-zA-Z0-9-]*", r'[nrt\\"\]-]', _STRICT_CODE, any_char=False, empty=False
)


def matches(grammar: str, text: str, dialect: Dialect = LLAMA) -> bool:
    """Whether all of `text` is what `root` describes. Raises `ValueError` on bad syntax."""
    return len(text) in Grammar(grammar, dialect).rules["root"](text, {0})


class Grammar:
    """A grammar's rules, each a function from where it may begin to where it may end."""

    def __init__(self, grammar: str, dialect: Dialect) -> None:
        self._dialect = dialect
        char = rf"\\(?:{dialect.escape}|{dialect.code})|[^\\]"
        self._char = re.compile(char, re.DOTALL)
        self._tokens = re.findall(
            rf'\s+|#[^\n]*|"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|::=|{dialect.name}'
            r"|\{[^}]*\}|[()|.*+?]|.",
            grammar,
            re.DOTALL,
        )
        self._tokens = [t for t in self._tokens if t.strip() and not t.startswith("#")]
        self._at = 0
        self.rules: dict[str, Matcher] = {}
        while self._at < len(self._tokens):
            name = self._take(dialect.name)
            self._take("::=")
            self.rules[name] = self._alternatives()

    def _peek(self) -> str:
        """The next token; nothing where the next rule begins."""
        rest = self._tokens[self._at : self._at + 2]
        return "" if not rest or rest[1:] == ["::="] else rest[0]

    def _take(self, pattern: str) -> str:
        token = self._tokens[self._at] if self._at < len(self._tokens) else ""
        if not re.fullmatch(pattern, token):
            raise ValueError(f"expected {pattern}, found {token!r}")
        self._at += 1
        return token

    def _alternatives(self) -> Matcher:
        ways = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            ways.append(self._sequence())
        return lambda text, at: set().union(*(way(text, at) for way in ways))

    def _sequence(self) -> Matcher:
        items: list[Matcher] = []
        while self._peek() not in ("", "|", ")"):
            items.append(self._repeated(self._item()))
        if not items and not self._dialect.empty:
            raise ValueError("an empty alternative")

        def match(text: str, at: Positions) -> Positions:
            for item in items:
                at = item(text, at)
            return at

        return match

    def _item(self) -> Matcher:
        token = self._peek()
        self._at += 1
        if token[0] == '"':
            literal = "".join(map(_decoded, self._chars(token[1:-1])))
            return lambda text, at: {i + len(literal) for i in at if text.startswith(literal, i)}
        if token[0] == "[":
            return _stepping(self._in_set(token[1:-1]))
        if token == "(":
            inner = self._alternatives()
            self._take(r"\)")
            return inner
        if token == "." and self._dialect.any_char:
            return _stepping(lambda _: True)
        if not re.fullmatch(self._dialect.name, token):
            raise ValueError(f"unexpected {token!r}")
        return lambda text, at: self.rules[token](text, at) if at else set()

    def _repeated(self, item: Matcher) -> Matcher:
        times = re.fullmatch(r"[*+?]|\{\s*(\d+)\s*(,)?\s*(\d+)?\s*\}", self._peek())
        if times is None:
            return item
        self._at += 1
        signs = {"*": (0, 99), "+": (1, 99), "?": (0, 1)}
        low, high = signs.get(times[0], (int(times[1] or 0), int(times[3] or 99)))
        if times[0] not in signs and not times[2]:
            high = low

        def match(text: str, at: Positions) -> Positions:
            found = set(at) if low == 0 else set()
            for n in range(1, high + 1):
                at = item(text, at)
                if not at or (n > low and at <= found):
                    break
                found |= at if n >= low else set()
            return found

        return self._repeated(match)

    def _in_set(self, inner: str) -> Callable[[str], bool]:
        is_negated = inner.startswith("^")
        chars = self._chars(inner[is_negated:])
        ranges: list[tuple[str, str]] = []
        i = 0
        while i < len(chars):
            low = _decoded(chars[i])
            is_range = chars[i + 1 : i + 2] == ["-"] and i + 2 < len(chars)
            ranges.append((low, _decoded(chars[i + 2]) if is_range else low))
            i += 3 if is_range else 1
        return lambda c: any(low <= c <= high for low, high in ranges) != is_negated

    def _chars(self, inner: str) -> list[str]:
        chars = self._char.findall(inner)
        if "".join(chars) != inner:
            raise ValueError(f"an escape that is not known in {inner!r}")
        return chars


def _decoded(char: str) -> str:
    if len(char) == 1:
        return char
    named = {"n": "\n", "r": "\r", "t": "\t"}
    return chr(int(char[2:], 16)) if len(char) > 2 else named.get(char[1], char[1])


def _stepping(takes: Callable[[str], bool]) -> Matcher:
    def match(text: str, at: Iterable[int]) -> Positions:
        return {i + 1 for i in at if i < len(text) and takes(text[i])}

    return match
