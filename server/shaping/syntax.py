"""A judge of texts for one place: which of them leaves the file with the fewest parse errors.

  grammar   what tree-sitter parses a language with; all of them are inside an installed package
  window    the lines around the cursor that are parsed, at most 4,096 characters on each side
  errors    the ERROR and MISSING nodes of a parse, shown or not

The surroundings may have errors of their own, as a window begins anywhere in a file: only what one
text has more of than another says anything. Without a grammar for the language there is no opinion,
nor any more once a parse takes more than so many steps (no clock, so that the same text is judged
the same again), or has so many errors that the language is another. Markdown and the like have no
grammar here: whatever one writes, it is no error.

Y1  The same question gets the same answer, from any thread: grammars are shared, parsers are not.
Y2  Nothing is downloaded, and nothing raises, whatever the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import cast

from tree_sitter import Language, Node, Parser, Point
from tree_sitter_language_pack import SupportedLanguage, get_language

from suture.server.shaping.balance import lines_below
from suture.server.shaping.closers import OverClosers
from suture.server.shaping.surroundings import MAX_SIDE, Surroundings

_TRIPLE_LINE = re.compile("(?:\"\"\"|''').*\n")
# Code of two such sides takes up to 50 of the steps that tree-sitter reports.
_MAX_STEPS = 100
# What is recovered from takes the time, and hundreds of errors are another language's code.
_MAX_ERRORS = 100
# Headers have the same ending in C and C++.
_IS_CPP = re.compile(
    r"\btemplate\s*<|\bnamespace\s+\w|\bclass\s+\w+\s*[:{;]|\bstd::|"
    r"^\s*(?:public|private|protected)\s*:",
    re.MULTILINE,
)

# grammar  file endings and names  other names that editors have for the language
_GRAMMARS = """
bash        sh bash zsh ksh bats ebuild .bashrc .bash_profile .profile .zshrc  shellscript shell
c           c h
clojure     clj cljs cljc edn
cmake       cmake CMakeLists.txt
cpp         cc cpp cxx c++ hh hpp hxx h++ ipp inl  c++
csharp      cs csx  c# cs
css         css
cuda        cu cuh  cuda-cpp
dart        dart
dockerfile  dockerfile Dockerfile Containerfile
elixir      ex exs
elm         elm
erlang      erl hrl
fsharp      fs fsi fsx  f#
gleam       gleam
glsl        glsl vert frag
go          go  golang
graphql     graphql gql
groovy      groovy gradle Jenkinsfile
haskell     hs  literate-haskell
hcl         hcl tf tfvars  terraform
java        java
javascript  js jsx mjs cjs  javascriptreact
json        json jsonc json5 webmanifest ipynb  jsonc json5
julia       jl
kotlin      kt kts
lua         lua
make        mk mak Makefile GNUmakefile makefile  makefile
nix         nix
objc        m mm  objective-c objective-cpp
ocaml       ml
perl        pl pm  perl5
php         php phtml
powershell  ps1 psm1 psd1
proto       proto  proto3 protobuf
python      py pyi pyw  py
r           r R
ruby        rb rake gemspec ru Gemfile Rakefile  rb
rust        rs
scala       scala sc sbt
scss        scss
solidity    sol
sql         sql
starlark    bzl bazel BUILD WORKSPACE  bazel
swift       swift
toml        toml
tsx         tsx  typescriptreact
typescript  ts mts cts
yaml        yaml yml  dockercompose
zig         zig
"""
_OF_FILE: dict[str, str] = {}
_OF_NAME: dict[str, str] = {}
for _row in _GRAMMARS.strip().splitlines():
    _grammar, _files, *_names = re.split(" {2,}", _row)
    _OF_FILE.update(dict.fromkeys(_files.split(), _grammar))
    _OF_NAME.update(dict.fromkeys([_grammar, *" ".join(_names).split()], _grammar))


def grammar_of(path: str | None, language: str | None) -> str | None:
    """The grammar of a language as an editor calls it, or else of a file; None if there is none."""
    named = _OF_NAME.get((language or "").lower())
    name = re.split(r"[/\\]", path or "")[-1]
    return named or _OF_FILE.get(name) or _OF_FILE.get(name.rpartition(".")[2].lower())


class Syntax:
    """The judge of texts for one place."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._grammar = grammar_of(around.path, around.language)
        if self._grammar == "c" and _IS_CPP.search(
            around.prefix[-MAX_SIDE:] + around.suffix[:MAX_SIDE]
        ):
            self._grammar = "cpp"
        self._last: tuple[str, Node | None] = "", None
        self._counts: dict[str, int] = {}

    def n_errors(self, text: str) -> int | None:
        """How many parse errors the window has with `text` at the cursor; None is no opinion."""
        if self._grammar is None:
            return None
        if text not in self._counts:
            root = self._parsed(text)
            n_errors = _MAX_ERRORS + 1 if root is None else _n_errors(root)
            if n_errors > _MAX_ERRORS:
                self._grammar = None
                return None
            self._counts[text] = n_errors
        return self._counts[text]

    def n_added_errors(self, text: str) -> int | None:
        """How many of them there are not without the text; None is no opinion."""
        without, with_it = self.n_errors(""), self.n_errors(text)
        return None if without is None or with_it is None else max(with_it - without, 0)

    def better_cut(self, texts: Sequence[str]) -> int:
        """Which of some texts adds the fewest parse errors; of equals the first.

        It is the first where there is no opinion, too.
        """
        found = [self.n_errors(text) for text in texts]
        counts = [n for n in found if n is not None]
        return counts.index(min(counts)) if len(counts) == len(texts) else 0

    def is_token(self, text: str, at: int) -> bool | None:
        """Whether a bracket or quote of `text` is one in the file, not in a comment or string.

        None is no opinion.
        """
        root = self._parsed(text)
        if root is None:
            return None
        start = len(_encoded(self._window[0] + text[:at]))
        leaf = root.descendant_for_byte_range(start, start + 1)
        token = (leaf and leaf.text) or b"?"
        return not token.strip(text[at].encode())

    @cached_property
    def _window(self) -> tuple[str, str]:
        return _window(self._around, self._grammar or "")

    def _parsed(self, text: str) -> Node | None:
        if self._grammar is None:
            return None
        if self._last[1] is None or self._last[0] != text:
            before, behind = self._window
            document = before + over_rest(self._around, text) + behind
            self._last = text, _parsed(self._grammar, document)
            if self._last[1] is None:  # so would the next texts take too long
                self._grammar = None
        return self._last[1]


def over_rest(around: Surroundings, text: str) -> str:
    """A text and what it leaves of the closers behind the cursor, as editors apply it."""
    over = OverClosers(around.rest, around.prefix)
    over.feed(text)
    edit = over.edit
    return edit.text + around.rest[edit.delete_after :] if edit else text


def _window(around: Surroundings, grammar: str) -> tuple[str, str]:
    """What is parsed of the two sides: lines, where they are too long.

    A side that is cut is closed, or one closer too many would mend it.
    """
    before = around.prefix[-MAX_SIDE:]
    is_cut = around.is_prefix_cut or len(before) < len(around.prefix)
    if is_cut:
        before = before[before.find("\n") + 1 :]
    suffix, closers = lines_below(around)
    behind = suffix + closers
    # It may begin in a string of several lines, and then all of it is read the wrong way round.
    inside = _TRIPLE_LINE.search(before) if is_cut else None
    befores = [before, before[inside.end() :]] if inside else [before]
    if is_cut and grammar == "php":  # without its mark all of a file is text
        befores = [text if "<?" in text else f"<?php\n{text}" for text in befores]
    if len(befores) == 1:
        return befores[0], behind
    n_least, best = _MAX_STEPS + 1, befores[0]
    for text in befores:
        root = _parsed(grammar, text + around.rest + behind)
        n_errors = _n_errors(root) if root else _MAX_STEPS
        if n_errors < n_least:
            n_least, best = n_errors, text
        if not n_errors:  # to read it the wrong way round takes long
            break
    return best, behind


def _parsed(grammar: str, document: str) -> Node | None:
    """What a document is parsed to; None where that takes too many steps."""
    source = _encoded(document)
    steps = 0

    def read(offset: int, _: Point) -> bytes:
        return source[offset:]

    def is_too_much(_: int, __: bool) -> bool:
        nonlocal steps
        steps += 1
        return steps > _MAX_STEPS

    try:
        return Parser(_language(grammar)).parse(read, progress_callback=is_too_much).root_node
    except ValueError:  # it was stopped
        return None


def _n_errors(root: Node) -> int:
    count, nodes = 0, [root]
    while nodes:
        node = nodes.pop()
        below = [child for child in node.children if child.has_error]
        # A missing line end is a node that is not shown (`a = 1return b`).
        is_hidden = node.has_error and not below
        count += node.is_error or node.is_missing or is_hidden
        nodes.extend(below)
    return count


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


@lru_cache
def _language(grammar: str) -> Language:
    return get_language(cast(SupportedLanguage, grammar))
