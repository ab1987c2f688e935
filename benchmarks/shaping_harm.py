"""How often shaping changes what people wrote: real code is cut, and the true text fed in.

    python benchmarks/shaping_harm.py [FOLDER ...] [--n N] [--show COLUMN] [--language NAME]

It takes two minutes for 2000 holes of each language.

Files are those of Python's standard library, of the packages installed beside it and of the folders
named, by language; the sample is the same each time. A hole is one to twelve lines from anywhere in
a line, from behind a line's blanks, from a line's beginning or from a blank line, to the end of a
line. Each rule is fed the true text of the hole, in parts, and should leave it as it is.

Of the scope two kinds are told apart: *inside* are holes whose text stays in the block of the
cursor, by the tokenizer of Python and elsewhere by brackets: none of them should end. *Leaving* are
the others, where the author wrote on in another block: the rule is meant to end those. Of the blank
end, *blank lines* are holes that end in some: the rule is meant to leave them out.

`--show` prints what is counted in a column.
"""

from __future__ import annotations

import argparse
import io
import random
import sysconfig
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.tables import print_table, show_progress

from suture.server.shaping.echo import Echo
from suture.server.shaping.glue import Glue
from suture.server.shaping.indentation import FirstLine, Tabs
from suture.server.shaping.lexical import Nesting, lexical_syntax
from suture.server.shaping.rejoin import Rejoin
from suture.server.shaping.repeats import Repeats
from suture.server.shaping.rule import Rule
from suture.server.shaping.scope import Scope
from suture.server.shaping.surroundings import Surroundings
from suture.server.shaping.syntax import Syntax
from suture.server.shaping.tails import Tail

RULES: dict[str, Callable[[Surroundings], Rule]] = {
    "indent": FirstLine,
    "tabs": Tabs,
    "suffix": lambda around: Rejoin(
        around.prefix, around.suffix, around.is_suffix_cut, Syntax(around).better_cut
    ),
    "echo": Echo,
    "repeats": Repeats,
    "scope": Scope,
    "glue": lambda around: Glue(around, Syntax(around).n_errors),
    "tail": Tail,
}
LANGUAGES = {
    "python": "py pyi pyx",
    "c, c++": "c h cc cpp hpp cxx",
    "javascript": "js ts tsx jsx mjs mts",
    "go": "go",
    "rust": "rs",
    "java": "java",
    "ruby": "rb",
    "lua": "lua",
    "markdown": "md rst txt",
    "yaml": "yaml yml",
    "make": "mk cmake",
    "other code": "css f90 f sh m pl pm tl json toml xml html vim scm",
}
LANGUAGE_OF = {ext: name for name, exts in LANGUAGES.items() for ext in exts.split()}
WITH_BRACKETS = ("c, c++", "javascript", "go", "rust", "java")
MAX_BYTES = 200_000
MAX_FILES = 1500
N_A_FILE = 8
COLUMNS = (
    *("indent", "tabs", "suffix", "echo", "repeats"),
    *("scope, inside", "scope, leaving", "glue", "tail", "tail, blank lines"),
)


@dataclass(frozen=True, slots=True)
class Hole:
    """A place in a file, and the text that stands there; whether it stays in the block."""

    path: Path
    number: int
    around: Surroundings
    text: str
    stays: bool


def main() -> None:
    parser = argparse.ArgumentParser(description="How often shaping changes what people wrote.")
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="more sources")
    parser.add_argument("--n", type=int, default=2000, metavar="N", help="holes of a language")
    parser.add_argument("--show", choices=COLUMNS, metavar="COLUMN", help="print what it changed")
    parser.add_argument("--language", choices=LANGUAGES, metavar="NAME", help="only this one")
    args = parser.parse_args()
    n_changed: dict[str, Counter[str]] = defaultdict(Counter)
    n_holes: dict[str, Counter[str]] = defaultdict(Counter)
    for language, paths in files(args.folders).items():
        if args.language in (None, language):
            show_progress(language)
            for hole in holes(paths, args.n):
                count(hole, n_holes[language], n_changed[language], args.show)
    show_progress("")
    print_table(
        ("language", "holes", "of them leaving", *COLUMNS),
        [row(name, n_holes[name], n_changed[name]) for name in n_holes]
        + [row("all", sum(n_holes.values(), Counter()), sum(n_changed.values(), Counter()))],
    )


def files(folders: Sequence[Path]) -> dict[str, list[Path]]:
    """By language, in an order that is shuffled once and for all."""
    roots = [*map(Path, dict.fromkeys(map(sysconfig.get_path, ("stdlib", "purelib")))), *folders]
    found: dict[str, list[Path]] = defaultdict(list)
    for root in roots:
        for path in sorted(root.rglob("*")):
            name = "mk" if path.name in ("Makefile", "makefile") else path.suffix[1:]
            if name in LANGUAGE_OF and path.is_file():
                found[LANGUAGE_OF[name]].append(path)
    for paths in found.values():
        random.Random(0).shuffle(paths)
    return {name: found[name] for name in LANGUAGES if name in found}


def holes(paths: Sequence[Path], n: int) -> Iterator[Hole]:
    """At most `n` of some files, a few of each."""
    n_left = n
    n_a_file = max(N_A_FILE, -(-n // max(len(paths), 1)))
    for path in paths:
        for hole in of_file(path, n_a_file):
            if not n_left:
                return
            n_left -= 1
            yield hole


def of_file(path: Path, n: int) -> Iterator[Hole]:
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        return
    lines = text.split("\n")
    if len(text) > MAX_BYTES or len(lines) < 15 or max(map(len, lines)) > 2000:
        return
    levels = levels_of(path, text)
    if levels is None:
        return
    chosen = random.Random(path.name)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    for number in range(n):
        first = chosen.randrange(len(lines) - 1)
        last = min(first + chosen.randrange(12), len(lines) - 2)
        line = lines[first]
        n_blanks = len(line) - len(line.lstrip())
        within = chosen.choice((0, n_blanks, n_blanks // 2, chosen.randint(0, len(line))))
        start, end = starts[first] + within, starts[last] + len(lines[last])
        if start >= end or not text[start:end].strip():
            continue
        is_whole = chosen.random() < 0.7
        around = Surroundings(
            text[:start] if is_whole else text[max(start - 3000, 0) : start],
            text[end:] if is_whole else text[end : end + 1000],
            is_prefix_cut=not is_whole and start > 3000,
            is_suffix_cut=not is_whole and end + 1000 < len(text),
            path=path.name if chosen.random() < 0.8 or path.suffix in (".md", ".rst") else None,
        )
        written = levels[first : last + 1]
        stays = bool(written) and min(written) >= written[0] and bool(text[end:].strip())
        yield Hole(path, number, around, text[start:end], stays)


def levels_of(path: Path, text: str) -> list[int] | None:
    """How deep each line is; empty where only its blanks say that, None if it cannot be read."""
    if path.suffix in (".py", ".pyi"):
        return python_levels(text)
    lines = text.split("\n")
    return bracket_levels(lines, path) if LANGUAGE_OF.get(path.suffix[1:]) in WITH_BRACKETS else []


def python_levels(text: str) -> list[int] | None:
    """How deep in blocks each line is; a line within a statement is as deep as the statement."""
    levels, level, at = [0] * (text.count("\n") + 1), 0, 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.INDENT, tokenize.DEDENT):
                level += 1 if token.type == tokenize.INDENT else -1
            elif token.type not in (tokenize.NL, tokenize.COMMENT, tokenize.ENDMARKER):
                for line in range(at, token.end[0]):
                    levels[line] = level
                at = max(at, token.end[0])
    except (tokenize.TokenError, SyntaxError):
        return None
    return levels


def bracket_levels(lines: Sequence[str], path: Path) -> list[int]:
    """In how many brackets each line is, the ones that it begins with closed."""
    nesting = Nesting(lexical_syntax(None, path.name))
    levels = []
    for line in lines:
        before = len(nesting.closers)
        closing = len(line.strip()) - len(line.strip().lstrip(")]}"))
        closing += line.strip().startswith(("case ", "default:"))
        levels.append(max(before - closing, 0) if not nesting.string_end else before)
        nesting.feed(line + "\n")
    return levels


def count(hole: Hole, n_holes: Counter[str], n_changed: Counter[str], shown: str | None) -> None:
    n_holes["all"] += 1
    n_holes["leaving"] += not hole.stays
    for name, make in RULES.items():
        fed = said(make(hole.around), hole.text)
        if fed == hole.text:
            continue
        column = name
        if name == "scope":
            column = "scope, inside" if hole.stays else "scope, leaving"
        if name == "tail" and hole.text.rpartition("\n")[2].strip() == "":
            column = "tail, blank lines"
        n_changed[column] += 1
        if column == shown:
            show(hole, fed)


def said(rule: Rule, text: str) -> str:
    """What a rule makes of a text that comes in parts, as tokens would."""
    parts = []
    for at in range(0, len(text), 4):
        if not rule.ended:
            parts.append(rule.feed(text[at : at + 4]))
    return "".join(parts) + ("" if rule.ended else rule.flush())


def show(hole: Hole, fed: str) -> None:
    before = "\n".join(hole.around.prefix.split("\n")[-6:])
    after = "\n".join(hole.around.suffix.split("\n")[:4])
    kind = "inside" if hole.stays else "leaving"
    print(f"\n=== {hole.path} {hole.number}, {kind}, path {hole.around.path}")
    n_same = next((n for n, (a, b) in enumerate(zip(fed, hole.text, strict=False)) if a != b), None)
    cut = len(fed) if n_same is None else n_same
    print(f"{before}«{hole.text[:cut]}‖{hole.text[cut:]}»{after}")


def row(name: str, n_holes: Counter[str], n_changed: Counter[str]) -> tuple[object, ...]:
    counts = [n_changed[column] for column in COLUMNS]
    return (name, n_holes["all"], n_holes["leaving"], *counts)


if __name__ == "__main__":
    main()
