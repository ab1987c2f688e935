"""Which lines and files are shown beside a document, against what each rule says slowly."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suture.lsp.context.chunks import (
    MAX_CHARS,
    MAX_LINES,
    Chunk,
    around,
    joined,
    lines_of,
    share_in,
    similarity,
)
from suture.lsp.context.counterparts import counterparts
from suture.lsp.context.definitions import definitions_of
from suture.lsp.context.excerpts import Definition, Names, excerpt, names_near
from suture.lsp.context.imports import MAX_MENTIONS, mentions
from suture.lsp.context.listing import (
    MAX_SHARE,
    MAX_SIMILARITY,
    MAX_TEXT,
    Recent,
    arranged,
    in_place,
)

LINE = st.one_of(
    st.sampled_from(["", "  ", "x", "def f(a):", "y" * 90]), st.text("ab ", max_size=4)
)
LINES = st.lists(LINE, min_size=1, max_size=150)


def is_part_of(text: str, lines: Sequence[str]) -> bool:
    """Whether the lines of a text are lines of a file, in their order."""
    rest = iter(lines)
    return all(any(line == other for other in rest) for line in text.split("\n")[:-1])


@given(LINES, st.integers(-5, 200), st.lists(st.integers(0, 150), max_size=8))
def test_c6_what_is_around_a_place_is_whole_lines_with_the_place_among_them(
    lines: list[str], place: int, starts: list[int]
) -> None:
    rows = around(lines, place, starts)
    text = joined(lines, rows)
    assert is_part_of(text, lines)
    assert len(rows) <= MAX_LINES and len(text) <= MAX_CHARS
    assert max(0, min(place, len(lines) - 1)) in rows
    if len(lines) > MAX_LINES and max(map(len, lines)) < MAX_CHARS // MAX_LINES:
        assert len(rows) >= MAX_LINES // 2


def test_c6_it_begins_and_ends_with_definitions_where_some_are_near() -> None:
    lines = [f"line {n}" for n in range(200)]
    rows = around(lines, 100, [70, 80, 97, 120, 150])
    assert (rows[0], rows[-1] + 1) == (80, 120)


@given(st.text("a\r\n\u2028\ud800", max_size=12))
def test_lines_end_as_files_have_it_and_can_be_sent(text: str) -> None:
    lines = lines_of(text)
    assert not any("\n" in line or "\r" in line for line in lines)
    "\n".join(lines).encode()


@st.composite
def defined(draw: st.DrawFn) -> tuple[list[str], tuple[Definition, ...]]:
    """A file's lines, and definitions that lie in each other as parsers find them."""

    def some(first: int, end: int, depth: int) -> Iterator[Definition]:
        while first < end and draw(st.booleans()):
            start = draw(st.integers(first, end - 1))
            head_end = draw(st.integers(start + 1, end))
            last = draw(st.integers(head_end, end))
            members = tuple(some(head_end, last, depth + 1)) if depth < 2 else ()
            yield Definition(draw(st.sampled_from("abcd")), start, head_end, last, members)
            first = last

    lines = draw(LINES)
    return lines, tuple(some(0, len(lines), 0))


NAMES = st.frozensets(st.sampled_from("abcd"))


def owners(
    definitions: Sequence[Definition], above: tuple[Definition, ...] = ()
) -> Iterator[tuple[Definition, tuple[Definition, ...]]]:
    for one in definitions:
        yield one, above
        yield from owners(one.members, (*above, one))


@given(defined(), NAMES, NAMES)
def test_c6_an_excerpt_is_whole_lines_and_no_member_is_without_its_class(
    file: tuple[list[str], tuple[Definition, ...]], near: frozenset[str], used: frozenset[str]
) -> None:
    numbered = [f"{row} {line}" for row, line in enumerate(file[0])]
    definitions = file[1]
    shown = excerpt(numbered, definitions, Names(near, near | used), "a.py")
    lines = shown.text.split("\n")[:-1]
    assert is_part_of(shown.text, numbered)
    assert len(lines) <= MAX_LINES and len(shown.text) <= MAX_CHARS
    rows = {int(line.split(" ")[0]) for line in lines}
    if not definitions:
        return
    whole = {row for one in definitions if one.name in near for row in range(one.start, one.end)}
    heads = {
        row: above for one, above in owners(definitions) for row in range(one.start, one.head_end)
    }
    for row in rows:
        assert row in whole or row in heads
        if row not in whole:
            for owner in heads[row]:
                assert set(range(owner.start, owner.head_end)) <= rows


def test_what_is_near_is_shown_whole_and_of_all_else_the_heads() -> None:
    lines = [
        "class Near:",
        "    def m(self):",
        "        return 1",
        "",
        "def far(x):",
        "    return x",
    ]
    near = Definition("Near", 0, 1, 3, (Definition("m", 1, 2, 3),))
    definitions = (near, Definition("far", 4, 5, 6))
    names = Names(frozenset({"Near"}), frozenset({"Near"}))
    shown = excerpt(lines, definitions, names, "near.py")
    assert shown.text == "class Near:\n    def m(self):\n        return 1\ndef far(x):\n"
    assert (shown.n_near, shown.n_used) == (1, 1)


def test_names_are_those_of_the_lines_around_but_for_the_documents_own() -> None:
    lines = ["import area", *[""] * 60, "area(own, x1, y)", *[""] * 60, "far"]
    names = names_near(lines, 61, {"own"})
    assert names.near == {"area", "x1"}
    assert names.used == {"import", "area", "x1", "far"}


CHUNK = st.builds(
    lambda path, n, m: Chunk(path, path, f"line {n}\nline {m}\n"),
    st.sampled_from("abcdef"),
    st.integers(0, 6),
    st.integers(0, 6),
)
CHUNKS = st.lists(CHUNK, max_size=12)
# A list as it is made: one chunk of a file.
LIST = st.lists(CHUNK, max_size=8, unique_by=lambda chunk: chunk.path)
AT_HAND = Chunk("a", "a", "line 1\nline 2\n")


def left_slowly(chunks: Sequence[Chunk], capacity: int) -> list[Chunk]:
    """What is kept of files that were left one after the other."""
    kept: list[tuple[int, Chunk]] = []  # when it was used, in the order of the list
    for now, chunk in enumerate(chunks):
        if chunk in [one for _, one in kept]:
            kept = [(now if one == chunk else used, one) for used, one in kept]
        else:
            kept = [
                (used, one)
                for used, one in kept
                if one.path != chunk.path and not similarity(one.text, chunk.text) > MAX_SIMILARITY
            ]
            kept.append((now, chunk))
        last = sorted((used for used, _ in kept), reverse=True)[:capacity]
        kept = [(used, one) for used, one in kept if used in last]
    return [one for _, one in kept]


@given(CHUNKS, st.integers(0, 5))
def test_c3_of_files_that_were_left_the_latest_are_kept_one_chunk_each(
    chunks: list[Chunk], capacity: int
) -> None:
    recent = Recent()
    for chunk in chunks:
        recent.put(chunk, capacity)
    assert list(recent.chunks) == left_slowly(chunks, capacity)


@given(st.lists(CHUNK, unique=True, max_size=8), st.lists(CHUNK, unique=True, max_size=8))
def test_c2_what_stays_keeps_its_place_and_what_is_new_comes_behind(
    old: list[Chunk], wanted: list[Chunk]
) -> None:
    placed = in_place(old, wanted)
    assert sorted(map(str, placed)) == sorted(map(str, wanted))
    stays = [one for one in old if one in wanted]
    assert placed == stays + [one for one in wanted if one not in old]
    n_same = next((n for n, one in enumerate(old) if one not in wanted), len(old))
    assert placed[:n_same] == old[:n_same]


@given(CHUNKS, LIST, CHUNKS, st.integers(0, 8))
def test_c3_c7_a_list_has_one_chunk_of_a_file_and_is_bounded(
    left: list[Chunk], old: list[Chunk], neighbours: list[Chunk], max_chunks: int
) -> None:
    recent = Recent()
    for chunk in left:
        recent.put(chunk, max_chunks)
    made = arranged(recent, old, neighbours, AT_HAND, max_chunks)
    paths = [one.path for one in made]
    assert len(set(paths)) == len(paths) <= max_chunks and "a" not in paths
    assert set(made) <= {*left, *neighbours}
    assert sum(len(one.text) for one in made) <= MAX_TEXT
    assert not any(share_in(one.text, AT_HAND.text) > MAX_SHARE for one in made)
    # The same again is the same list.
    assert arranged(recent, made, neighbours, AT_HAND, max_chunks) == made


def test_c7_long_chunks_are_fewer() -> None:
    chunks = [Chunk(str(n), "", f"{n}" * (MAX_TEXT // 4)) for n in range(10, 20)]
    assert arranged(Recent(), (), chunks, AT_HAND, 16) == tuple(chunks[8:])


def test_c2_while_one_edits_a_document_only_its_neighbours_change() -> None:
    recent = Recent()
    left = [Chunk(path, path, f"text of {path}\n") for path in "bcd"]
    for chunk in left:
        recent.put(chunk, 8)
    x, y, y2 = (Chunk(*one) for one in (("x", "x", "1\n"), ("y", "y", "2\n"), ("y", "y", "3\n")))
    first = arranged(recent, (), [x, y], AT_HAND, 8)
    assert first == (*left, x, y)
    assert arranged(recent, first, [y2, x], AT_HAND, 8) == (*left, x, y2)


PIECES = """
import from . .. a b.c c ( ) , * as x \n # "./y" require('../z.js') use crate::{a, b::c}; mod m;
#include "x.h" import static a.b.C; package a.b; use App\\Models\\User; require_relative '../../..'
@import("z.zig") source ./x.sh @use 'a/b'; "m.org/a/b" ../../../etc/passwd / \0 ~/.ssh import "/a"
""".split(" ")
GRAMMARS = st.sampled_from(
    "python tsx go rust c cpp java kotlin php ruby lua dart proto zig bash scss swift".split()
)
PATHS = st.sampled_from(
    ["a.py", "src/a.py", "src/test/java/a/b/A.java", "x/y/z/mod.rs", "p/test_q.c"]
)


@given(GRAMMARS, PATHS, st.lists(st.sampled_from(PIECES), max_size=30).map(" ".join))
@settings(max_examples=300)
def test_i1_no_place_is_outside_the_folder_and_none_is_the_document(
    grammar: str, path: str, text: str
) -> None:
    found = [*mentions(grammar, path, text), *counterparts(path)]
    for place in (place for mention in found for place in mention):
        whole = posixpath.normpath(posixpath.join("/folder", place))
        assert whole.startswith("/folder") and not place.startswith("/")
        assert place != path
    assert len(mentions(grammar, path, text)) <= MAX_MENTIONS


def test_i2_a_text_of_nothing_but_imports_is_bounded() -> None:
    text = "".join(f"import a{n}.b\nfrom .c{n} import (d, e)\n" for n in range(20_000))
    assert len(mentions("python", "x/y.py", text)) == MAX_MENTIONS


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        ("java", "import a" + " " * 60_000 + "x"),
        ("php", "require " * 8000),
        ("python", "from a import (" * 4000),
        ("python", "from" + " " * 4000),
        ("python", ("from" + " " * 600 + "\n") * 100),
        ("python", "from " + "." * 60_000),
        ("python", "from " + "." * 20_000 + "a" * 20_000 + " " * 20_000),
        ("python", "from " + "a." * 30_000 + "b import c, d, e, f"),
        ("python", "from " + "." * 60_000 + " import c, d, e, f"),
        ("rust", "use crate::" + "a::" * 20_000 + "b;"),
        ("rust", ("use crate::{" + "a::" * 600 + "b};\n") * 30),
        ("rust", "use crate::{" * 5000),
        ("go", '"' + "a/" * 30_000),
        ("javascript", "require(" + " " * 60_000),
        ("zig", '@import("a.zig' * 4000),
    ],
)
def test_i2_no_text_takes_for_ever(grammar: str, text: str) -> None:
    started = time.process_time()
    mentions(grammar, "src/a", text)
    # It takes a tenth; with a search that tries all ways, minutes.
    assert time.process_time() - started < 5


CODE = """
@decorated
class A(B):
    x: int = 1
    def f(self, a):
        return a
struct point { int x; };
typedef struct { int a; } t;
int main(int argc) {
  return 0;
}
export const f = (a) => { g() }
impl X for Y { fn z(&self) -> u8 { 1 } }
func (t *T) Name(a int) error {
namespace n { template<class T> T m(T a) { return a; } }
interface I { a(): b; }
module M
  def q; end
end
""".split("\n")


@given(
    st.sampled_from(
        "python c cpp typescript rust go java ruby csharp php lua kotlin swift".split()
    ),
    st.lists(
        st.one_of(st.sampled_from(CODE), st.text("{}()=:;\t a\x00é", max_size=6)), max_size=25
    ),
)
@settings(max_examples=300, deadline=None)
def test_d1_d2_definitions_lie_in_each_other_whatever_the_text(
    grammar: str, lines: list[str]
) -> None:
    def check(definitions: Sequence[Definition], first: int, end: int) -> None:
        for one in definitions:
            assert first <= one.start < one.head_end <= one.end <= end
            assert one.name
            check(one.members, one.start, one.end)

    lines = "\n".join(lines).split("\n")
    check(definitions_of(grammar, lines), 0, len(lines))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [("a\nb\n", "b\n  a\n\n", 1.0), ("a\n", "b\n", 0.0), ("", "", 0.0), ("a\nb\nc\n", "a\n", 0.5)],
)
def test_texts_are_as_similar_as_they_have_lines_in_common(
    left: str, right: str, expected: float
) -> None:
    assert similarity(left, right) == expected
