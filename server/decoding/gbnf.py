"""Is this a grammar in GBNF that llama.cpp can take?

llama.cpp trusts its grammars. One that it cannot read it prints to standard error; others overflow
its stack, fill the memory or keep it searching for ever: ten thousand brackets, ``"a"{3,2}``,
``a ::= b | b`` forty times over, left recursion behind a rule that may be empty. So a text is read
here first, as llama.cpp reads it, and what it would choke on is refused with the reason. Rules for
single tokens (``<|im_end|>``) are not taken.

Each group and each repetition becomes a rule of its own, as in llama.cpp. A rule's *first* symbols
are those that its text may begin with. They are followed to find left recursion, and the *ways* to
a first character are counted, because llama.cpp goes each of them: at the start, and behind each
character where it compares every way with every other, once for each way that led there.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from suture.server.errors import InvalidRequest

MAX_BYTES = 1 << 16
MAX_ELEMENTS = 100_000
MAX_NESTING = 512
MAX_DEPTH = 1000
MAX_WAYS = 4096
# Some 3 ns each.
MAX_COMPARISONS = 50_000_000
# llama.cpp's own, of which more are taken for any number.
MAX_REPETITIONS = 2000

_BLANK = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_BLANK_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_NAME = re.compile(r"[a-zA-Z0-9-]+")
_ESCAPE = r'\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[trn\\"\[\]-])'
_LITERAL = re.compile(rf'"((?:{_ESCAPE}|[^\\"])*)"')
_CLASS = re.compile(rf"\[\^?((?:{_ESCAPE}|[^\\\]])*)\]")
_CHAR = re.compile(rf"{_ESCAPE}|.", re.DOTALL)
_TIMES = re.compile(r"\{[ \t]*([0-9]{1,9})[ \t]*(?:(,)[ \t]*([0-9]{1,9})?[ \t]*)?\}")
_OPERATORS: Mapping[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}

_CHARACTER = -1
Alternatives = list[list[int]]
"""Of a rule: sequences of rules, by number, and of `_CHARACTER`s."""


def check(text: str) -> None:
    """Raise `InvalidRequest` unless `text` is a grammar that llama.cpp takes, and soon."""
    n_bytes = len(text.encode("utf-8", "replace"))
    if not text.strip() or "\0" in text:
        # The library takes an empty text for "no grammar", and NUL for its end.
        raise refusal("must have rules, and no NUL")
    if n_bytes > MAX_BYTES:
        raise refusal(f"must be at most {MAX_BYTES} bytes, not {n_bytes}")
    reader = _Reader(text)
    rules = reader.read()
    nullable = _nullable(rules)
    ways = _count_ways(rules, nullable)
    behind = _most_ways_behind(rules, nullable, ways)
    # The rule `root` is the start, whichever number it has.
    if ways[reader.number_of_root] * behind**2 > MAX_COMPARISONS:
        raise refusal("may go on in too many ways behind a character")


def refusal(reason: str) -> InvalidRequest:
    return InvalidRequest(f"grammar: {reason}", "grammar")


@dataclass(slots=True)
class _Open:
    """A rule or group being read: its alternatives, and where the last one's last item begins.

    `n_rules` were made for that item; `n_before` stood before the group.
    """

    rule: int
    n_before: int = 0
    alternatives: Alternatives = field(default_factory=lambda: [[]])
    item: int = 0
    n_rules: int = 1

    def begin_item(self, n_rules: int = 1) -> list[int]:
        """The sequence to put an item into."""
        sequence = self.alternatives[-1]
        self.item, self.n_rules = len(sequence), n_rules
        return sequence


class _Reader:
    """Reads the rules of a text, which are numbered as they are first named."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._numbers: dict[str, int] = {}
        self._rules: list[Alternatives | None] = []
        self._n_elements = 0

    def read(self) -> list[Alternatives]:
        self._skip(_BLANK_LINES)
        while self._at < len(self._text):
            self._read_rule()
        for name, number in self._numbers.items():
            if self._rules[number] is None:
                raise refusal(f"rule {name[:50]} is not defined")
        if "root" not in self._numbers:
            raise refusal("not a grammar in GBNF with a rule `root`")
        return [rule for rule in self._rules if rule is not None]

    @property
    def number_of_root(self) -> int:
        return self._numbers["root"]

    def _read_rule(self) -> None:
        name = self._take(_NAME, "a rule's name")[0]
        self._skip(_BLANK)
        if not self._text.startswith("::=", self._at):
            raise self._expected("::=")
        self._at += 3
        self._skip(_BLANK_LINES)
        top = _Open(self._number(name))
        self._read_alternatives(top)
        self._rules[top.rule] = top.alternatives
        if self._at < len(self._text) and self._text[self._at] not in "\r\n":
            raise self._expected("the end of the line")
        self._skip(_BLANK_LINES)

    def _read_alternatives(self, top: _Open) -> None:
        opened = [top]
        while self._read_item(opened):
            self._skip(_BLANK_LINES if len(opened) > 1 else _BLANK)
        if len(opened) > 1:
            raise self._expected(")")

    def _read_item(self, opened: list[_Open]) -> bool:
        """One item or operator into the innermost of `opened`; False where there is none."""
        inner, char = opened[-1], self._text[self._at : self._at + 1]
        if char == '"':
            literal = self._take(_LITERAL, "a literal with known escapes")[1]
            self._add(inner.begin_item(), [_CHARACTER] * len(_CHAR.findall(literal)))
        elif char == "[":
            chars = self._take(_CLASS, "a class of characters with known escapes")[1]
            self._add(inner.begin_item(), [_CHARACTER] * bool(chars))
            self._count(len(chars))
        elif char == ".":
            self._at += 1
            self._add(inner.begin_item(), [_CHARACTER])
        elif name := _NAME.match(self._text, self._at):
            self._at = name.end()
            number = self._number(name[0])
            self._add(inner.begin_item(), [number])
        elif char == "(":
            self._at += 1
            self._open(opened)
        elif char == ")" and len(opened) > 1:
            self._at += 1
            self._close(opened)
        elif char == "|":
            self._at += 1
            self._skip(_BLANK_LINES)
            inner.alternatives.append([])
            inner.begin_item()
        elif char and char in "*+?{":
            self._repeat(inner, *self._times(char))
        elif char and char in "<!":
            raise refusal("rules for single tokens are not supported")
        else:
            return False
        return True

    def _open(self, opened: list[_Open]) -> None:
        if len(opened) > MAX_NESTING:
            raise refusal(f"must not nest deeper than {MAX_NESTING}")
        n_before = len(self._rules)
        opened.append(_Open(self._new_rule([]), n_before))

    def _close(self, opened: list[_Open]) -> None:
        group = opened.pop()
        self._rules[group.rule] = group.alternatives
        n_rules = max(1, len(self._rules) - group.n_before)
        self._add(opened[-1].begin_item(n_rules), [group.rule])

    def _times(self, char: str) -> tuple[int, int | None]:
        """How often the item before comes; None for any number."""
        if char != "{":
            self._at += 1
            return _OPERATORS[char]
        match = self._take(_TIMES, "a number of repetitions")
        least = int(match[1])
        most = least if match[2] is None else int(match[3]) if match[3] else None
        if least > MAX_REPETITIONS or (most is not None and most < least):
            raise refusal(f"cannot repeat {match[0]}")
        return least, None if most is not None and most > MAX_REPETITIONS else most

    def _repeat(self, inner: _Open, least: int, most: int | None) -> None:
        sequence = inner.alternatives[-1]
        if inner.item == len(sequence):
            raise self._expected("something to repeat")
        if (least, most) == (1, 1):
            return
        item = sequence[inner.item :]
        total = most or least or 1
        if inner.n_rules * total > MAX_REPETITIONS:
            raise refusal(f"repeats more than {MAX_REPETITIONS} rules")
        inner.n_rules *= total
        if least == 0:
            del sequence[inner.item :]
        self._count(len(item) * max(least - 1, 0))
        sequence += item * max(least - 1, 0)
        last: int | None = None
        for _ in range(1 if most is None else most - least):
            self._count(len(item))
            rule = self._new_rule([])
            follower = rule if most is None else last
            self._rules[rule] = [[*item, *([] if follower is None else [follower])], []]
            last = rule
        if last is not None:
            self._add(sequence, [last])

    def _add(self, sequence: list[int], symbols: Sequence[int]) -> None:
        self._count(len(symbols))
        sequence += symbols

    def _count(self, n_elements: int) -> None:
        self._n_elements += n_elements
        if self._n_elements > MAX_ELEMENTS:
            raise refusal(f"has more than {MAX_ELEMENTS} elements")

    def _number(self, name: str) -> int:
        if name not in self._numbers:
            self._numbers[name] = self._new_rule(None)
        return self._numbers[name]

    def _new_rule(self, alternatives: Alternatives | None) -> int:
        self._rules.append(alternatives)
        return len(self._rules) - 1

    def _skip(self, blanks: re.Pattern[str]) -> None:
        match = blanks.match(self._text, self._at)
        assert match is not None
        self._at = match.end()

    def _take(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise self._expected(what)
        self._at = match.end()
        return match

    def _expected(self, what: str) -> InvalidRequest:
        before = self._text[: self._at]
        line, column = before.count("\n") + 1, self._at - before.rfind("\n")
        return refusal(f"expected {what} at line {line} column {column}")


def _nullable(rules: Sequence[Alternatives]) -> set[int]:
    """The rules that the empty text satisfies."""
    users: dict[int, list[tuple[int, int]]] = collections.defaultdict(list)
    n_missing: dict[tuple[int, int], int] = {}
    found: set[int] = set()
    for number, rule in enumerate(rules):
        for i, alternative in enumerate(rule):
            if _CHARACTER in alternative:
                continue
            n_missing[number, i] = len(alternative)
            for symbol in alternative:
                users[symbol].append((number, i))
            if not alternative:
                found.add(number)
    todo = list(found)
    while todo:
        for user in users[todo.pop()]:
            n_missing[user] -= 1
            if n_missing[user] == 0 and user[0] not in found:
                found.add(user[0])
                todo.append(user[0])
    return found


def _firsts(alternative: Sequence[int], nullable: set[int]) -> Iterator[int]:
    """The rules that its text may begin with."""
    for symbol in alternative:
        if symbol == _CHARACTER:
            return
        yield symbol
        if symbol not in nullable:
            return


def _reaches_an_end(alternative: Sequence[int], nullable: set[int]) -> bool:
    """Whether a way leads past its first rules, to a character or to what comes behind it."""
    head = next((symbol for symbol in alternative if symbol not in nullable), _CHARACTER)
    return head == _CHARACTER


def _count_ways(rules: Sequence[Alternatives], nullable: set[int]) -> list[int]:
    """Of each rule the ways to its first characters.

    Refuses left recursion, and firsts that are followed too far or in too many ways.
    """
    firsts = [[symbol for one in rule for symbol in _firsts(one, nullable)] for rule in rules]
    ends = [sum(_reaches_an_end(one, nullable) for one in rule) for rule in rules]
    ways = [0] * len(firsts)
    depths = [0] * len(firsts)
    open_rules: set[int] = set()
    for start in range(len(firsts)):
        path = [(start, iter(firsts[start]))] if not ways[start] else []
        open_rules.update(rule for rule, _ in path)
        while path:
            rule, rest = path[-1]
            below = next((symbol for symbol in rest if not ways[symbol]), None)
            if below in open_rules:
                raise refusal("has a rule that begins with itself")
            if below is not None:
                path.append((below, iter(firsts[below])))
                open_rules.add(below)
                continue
            path.pop()
            open_rules.remove(rule)
            ways[rule] = ends[rule] + sum(ways[symbol] for symbol in firsts[rule])
            depths[rule] = 1 + max((depths[symbol] for symbol in firsts[rule]), default=0)
            if ways[rule] > MAX_WAYS or depths[rule] > MAX_DEPTH:
                raise refusal("has a rule that may begin in too many ways")
    return ways


def _most_ways_behind(
    rules: Sequence[Alternatives], nullable: set[int], ways: Sequence[int]
) -> int:
    """The most ways that lead on behind one character.

    Where all that follows in its rule may be empty, they lead on behind that rule too.
    """
    most = 1
    at_end = [-1] * len(rules)  # of characters in front of what may be empty
    tails = [0] * len(rules)  # behind a rule, where what follows is not empty
    users: list[dict[int, int]] = [{} for _ in rules]  # where it may be
    for number, rule in enumerate(rules):
        for alternative in rule:
            n_ways, is_open = 0, True
            for symbol in reversed(alternative):
                if symbol == _CHARACTER:
                    if is_open:
                        at_end[number] = max(at_end[number], n_ways)
                    most = max(most, n_ways)
                    n_ways, is_open = 1, False
                    continue
                if is_open:
                    users[symbol][number] = max(users[symbol].get(number, 0), n_ways)
                else:
                    tails[symbol] = max(tails[symbol], n_ways)
                n_ways = ways[symbol] + (n_ways if symbol in nullable else 0)
                is_open = is_open and symbol in nullable
    _add_tails_of_users(tails, users)
    open_ends = (n + tail for n, tail in zip(at_end, tails, strict=True) if n >= 0)
    return max(most, *open_ends, 1)


def _add_tails_of_users(tails: list[int], users: Sequence[Mapping[int, int]]) -> None:
    """What comes behind a rule that ends another comes from behind that one.

    A rule that ends itself is gone around once.
    """
    seen: set[int] = set()
    for start in range(len(users)):
        path = [] if start in seen else [(start, iter(users[start]))]
        seen.add(start)
        while path:
            rule, rest = path[-1]
            above = next((user for user in rest if user not in seen), None)
            if above is not None:
                seen.add(above)
                path.append((above, iter(users[above])))
                continue
            path.pop()
            ends = (n_ways + tails[user] for user, n_ways in users[rule].items())
            tails[rule] = max(tails[rule], *ends, 0)
