"""Holes in real code whose closers an editor has written already, and what models say there.

The code is Python's standard library, and small files beside this one. Tree-sitter, which reads all
of a file, tells the brackets and quotes that are code.
"""

from __future__ import annotations

import random
import re
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import cast

from tree_sitter import Language, Node, Parser
from tree_sitter_language_pack import SupportedLanguage, get_language

from suture.server.shaping.closers import line_rest
from suture.server.shaping.shaper import Shaper
from suture.server.shaping.surroundings import Surroundings
from suture.server.shaping.syntax import grammar_of

_OWN = Path(__file__).parent / "bracket_sources"
_MODULES = """bisect calendar cmd code codeop colorsys configparser contextlib copy csv dis fnmatch
functools getpass gettext glob graphlib heapq html.parser json.decoder json.encoder json.scanner
keyword linecache netrc nturl2path numbers pkgutil plistlib pprint queue quopri reprlib sched
selectors shelve shlex stat string tabnanny textwrap tokenize trace tracemalloc types warnings
wave weakref zipapp""".split()
_CLOSER_OF = {"(": ")", "[": "]", "{": "}"}
_MARKS = re.compile("[()\\[\\]{}]|\"\"\"|'''|[\"'`]")
_CLOSERS = re.compile(r"\s*[)\]}\"'`]+(?:\s*[)\]}])*")
_OTHER = "\n\nxs = other(1)\n"
_MAX_HOLE = 300
# So many characters are shown where not all are. What is missing is not known in such a place.
FAR = 3000


@dataclass(frozen=True, slots=True)
class Hole:
    """A place in a document, and the text that is missing there."""

    path: str
    kind: str
    before: str
    middle: str
    behind: str
    is_balanced: bool  # without the middle

    @property
    def document(self) -> str:
        return self.before + self.middle + self.behind

    def answers(self) -> dict[str, str]:
        """What models say: the middle, and how much of what stands behind it once more."""
        closers = _CLOSERS.match(self.behind)
        first = re.match(r"\s*(?:\"\"\"|'''|\S)", self.behind)
        lines = self.behind.splitlines(keepends=True)
        n_rest = 1 + (not self.behind[:1].strip() and "\n" in lines[0] and not lines[0].strip())
        assert first and closers
        return {
            "the middle": self.middle,
            "a closer": self.middle + first[0],
            "closers": self.middle + closers[0],
            "a closer and a line": self.middle + first[0] + "\n",
            "the line": self.middle + "".join(lines[:n_rest]),
            "more lines": self.middle + "".join(lines[: n_rest + 3]),
            "other lines": self.middle + closers[0] + _OTHER,
        }


def holes(n: int, seed: int = 6) -> list[Hole]:
    """As many holes of all files and kinds, the same each time."""
    found: dict[str, dict[tuple[str, str], list[Hole]]] = {}
    for path, document in _sources():
        for hole in _holes_in(path, document, random.Random(f"{seed} {path}")):
            found.setdefault(Path(path).suffix, {}).setdefault((path, hole.kind), []).append(hole)
    by_language = [_in_turn(list(of_file.values())) for of_file in found.values()]
    return list(dict.fromkeys(_in_turn(by_language)))[:n]


def documents(hole: Hole, answer: str, n_part: int, shown: int, knows: bool) -> set[str]:
    """The documents that the answer makes: inserted or edited, the rest shown to the model or not.

    The answer comes in parts of so many characters; so many are shown on either side; the server
    knows the path or not.
    """
    made = set()
    # A model that is not shown the rest would say it; where more is missing, nobody knows whether.
    hidden = line_rest(hole.before, hole.behind) if hole.is_balanced else ""
    for rest in {"", hidden}:
        prefix, suffix = hole.before[-shown:], hole.behind[len(rest) :][:shown]
        around = Surroundings(
            prefix,
            suffix,
            len(prefix) < len(hole.before),
            len(suffix) < len(hole.behind) - len(rest),
            rest,
            path=hole.path if knows else None,
        )
        shaper = Shaper(around, hole.before)
        parts = [answer[at : at + n_part] for at in range(0, len(answer), n_part)]
        inserted = "".join(map(shaper.feed, parts)) + shaper.flush()
        made.add(hole.before + inserted + hole.behind)
        if edit := shaper.edit:
            made.add(hole.before + edit.text + hole.behind[edit.delete_after :])
    return made


def brackets(path: str, document: str) -> str | None:
    """The brackets and quotes of a document that are code, in their order; None in a broken one."""
    root = _parsed(path, document.replace(_OTHER, "\n"))
    if root.has_error:
        return None
    return "".join(mark for _, mark in _marks(root))


def _sources() -> Iterator[tuple[str, str]]:
    library = Path(sysconfig.get_path("stdlib"))
    for module in _MODULES:
        path = library / f"{module.replace('.', '/')}.py"
        document = path.read_text("utf-8") if path.exists() else ""
        if document.isascii() and len(document) < 40_000:
            yield path.name, document
    for path in sorted(_OWN.iterdir()):
        yield path.name, path.read_text("utf-8")


def _holes_in(path: str, document: str, rng: random.Random) -> Iterator[Hole]:
    """Holes that end before the closer of each pair of a document, or the line ends before it."""
    root = _parsed(path, document)
    all_marks = list(_marks(root))
    for kind, start, end in sorted(set(_pairs(root))):
        inside = document[start:end].rstrip()
        if kind == "block" or rng.random() < 0.5:
            end = start + len(inside)
        start = max(start, end - _MAX_HOLE)
        at = rng.randint(start, end)
        is_balanced = _is_balanced([mark for place, mark in all_marks if at <= place < end])
        is_known = is_balanced or len(document) - end <= FAR
        if document[at - 1 : at] != "\\" and at < end and is_known:
            parts = document[:at], document[at:end], document[end:]
            yield Hole(path, kind, *parts, is_balanced)


def _is_balanced(some_marks: list[str]) -> bool:
    """Whether some marks close no bracket and no string but their own."""
    opened: list[str] = []
    for mark in some_marks:
        if mark in _CLOSER_OF:
            opened.append(_CLOSER_OF[mark])
        elif opened and opened[-1] == mark:
            opened.pop()
        elif mark in _CLOSER_OF.values():
            return False
        else:
            opened.append(mark)
    return not opened


def _pairs(node: Node) -> Iterator[tuple[str, int, int]]:
    """The insides of brackets and strings, and their kinds."""
    texts = [cast(bytes, child.text).decode() for child in node.children]
    for n, opener in enumerate(texts):
        closer = _CLOSER_OF.get(opener)
        if closer and closer in texts[n:]:
            kind = {"(": "call", "[": "subscript", "{": "block"}[opener]
            yield kind, node.children[n].end_byte, node.children[texts.index(closer, n)].start_byte
    if len(texts) > 1 and texts[-1][:1] in ("'", '"', "`") and texts[0].endswith(texts[-1]):
        yield "string", node.children[0].end_byte, node.children[-1].start_byte
    for child in node.children:
        yield from _pairs(child)


def _marks(node: Node) -> Iterator[tuple[int, str]]:
    for child in node.children:
        yield from _marks(child)
    if not node.children and (not node.is_named or node.type.startswith("string_")):
        text = cast(bytes, node.text).decode()
        yield from ((node.start_byte, mark) for mark in _MARKS.findall(text))


def _parsed(path: str, document: str) -> Node:
    return Parser(_language(path)).parse(document.encode()).root_node


@lru_cache
def _language(path: str) -> Language:
    return get_language(cast(SupportedLanguage, grammar_of(path, None)))


def _in_turn(groups: list[list[Hole]]) -> list[Hole]:
    longest = max(map(len, groups))
    return [group[n] for n in range(longest) for group in groups if n < len(group)]
