"""What shaping knows of a language without a parser: comments, long strings, whether blanks count.

A language that is not known is taken for code with the comments of most.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Literal

from suture.server.shaping.marks import CLOSER_OF


@dataclass(frozen=True, slots=True)
class LexicalSyntax:
    """How a language writes what rules must know.

    `long_quotes` are those whose strings go over line ends. `here_document` matches what promises
    one from the next line on, its `word` what ends that. With `is_indented`, what stands
    farther left is outside. `tabs` says where a tab means something: all of the language's
    lines are indented with tabs, or those of its recipes are. `has_characters`: `'a'` is one
    character, and a name with a colon a label; `has_directives`: `#if` is the preprocessor's.
    `unit` is what most people indent it by, in spaces.
    """

    line_comments: tuple[str, ...] = ("#", "//")
    block_comments: tuple[tuple[str, str], ...] = ()
    long_quotes: tuple[str, ...] = ('"""', "'''")
    here_document: str = ""
    has_characters: bool = False
    has_directives: bool = False
    is_indented: bool = True
    tabs: Literal["always", "recipes", "as found"] = "as found"
    unit: int = 4


_C = (("/*", "*/"),)
# Behind a number, or before `))`, it is a shift.
_HERE_IN_SHELL = r"(?<![<\d])<<-?[ \t]*[\"'\\]?(?P<word>[A-Za-z_]\w*)[\"']?(?![ \t\w]*\)\))"
_HERE_IN_RUBY = r"<<(?:[~-][\"'`]?(?=[A-Za-z_])|[\"'`]?(?=[A-Z]))(?P<word>\w+)[\"'`]?"
_HERE_IN_PHP = r"<<<[ \t]*[\"']?(?P<word>[A-Za-z_]\w*)[\"']?"
_HERE_IN_ANY = r"(?<=[ (=])<<<?[~-]?[\"']?(?=[A-Z])(?P<word>\w+)[\"']?"
_SYNTAXES = {
    "code": LexicalSyntax(("#", "//"), _C, ('"""', "'''", "`"), _HERE_IN_ANY, has_directives=True),
    "python": LexicalSyntax(("#",)),
    "c": LexicalSyntax(("//",), _C, (), has_characters=True, has_directives=True),
    "go": LexicalSyntax(("//",), _C, ("`",), has_characters=True, tabs="always"),
    "java": LexicalSyntax(("//",), _C, ('"""',), has_characters=True),
    "rust": LexicalSyntax(("//",), (*_C, ('r#"', '"#')), ('"',), has_characters=True),
    "javascript": LexicalSyntax(("//",), _C, ("`",), unit=2),
    "css": LexicalSyntax((), _C, (), unit=2),
    "php": LexicalSyntax(("//", "#"), _C, ("'", '"'), _HERE_IN_PHP),
    "ruby": LexicalSyntax(("#",), (("\n=begin", "\n=end"),), (), _HERE_IN_RUBY, unit=2),
    "perl": LexicalSyntax(("#",), (), (), _HERE_IN_RUBY),
    "shell": LexicalSyntax(("#",), (), ("'", '"'), _HERE_IN_SHELL),
    "lua": LexicalSyntax(("--[^[]",), (("--[[", "]]"), ("[[", "]]"), ("[=[", "]=]")), ()),
    "hash": LexicalSyntax(("#",), (), (), unit=2),
    "make": LexicalSyntax(("#",), (), (), tabs="recipes"),
    "text": LexicalSyntax((), (), (), is_indented=False),
}

# Names of editors, and what follows the last dot of a path.
_NAMES = {
    "python": "py pyi pyx pxd pyw gyp",
    "c": "h cc cpp cxx hpp hxx hh objective-c m mm objective-cpp cuda-cpp cu csharp cs d glsl",
    "go": "",
    "java": "kotlin kt kts scala sc groovy gradle swift",
    "rust": "rs",
    "javascript": "js mjs cjs jsx ts mts cts tsx javascriptreact typescript typescriptreact json"
    " jsonc json5",
    "css": "scss less sass",
    "php": "",
    "ruby": "rb rake gemspec crystal cr elixir ex exs",
    "shell": "shellscript sh bash zsh",
    "lua": "tl",
    "perl": "pl pm",
    "hash": "yaml yml toml r julia jl cmake nix dockerfile",
    "make": "makefile mk mak",
    "text": "markdown md mdx plaintext txt rst restructuredtext tex latex html htm xml xhtml svg"
    " vue svelte erb haml slim csv tsv diff patch log adoc asciidoc org asm s f f77 for fixed-form"
    " git-commit bat",
}
_SYNTAX_OF = {
    name: syntax
    for syntax, names in _NAMES.items()
    for name in (syntax, *names.split())
}  # fmt: skip
_FILES = {"makefile": "make", "gnumakefile": "make", "dockerfile": "hash", "gemfile": "ruby",
          "rakefile": "ruby", "readme": "text", "license": "text", "changelog": "text"}  # fmt: skip


def lexical_syntax(language: str | None, path: str | None) -> LexicalSyntax:
    """What is known of a language by its name, else by the file's."""
    name = _SYNTAX_OF.get((language or "").lower())
    if name is None and path:
        file = PurePosixPath(path.replace("\\", "/")).name.lower()
        name = _FILES.get(file) or _SYNTAX_OF.get(file.rpartition(".")[2])
    return _SYNTAXES[name or "code"]


class Nesting:
    """What is open behind the lines of a text: brackets, and a string or comment over line ends."""

    def __init__(self, syntax: LexicalSyntax, text: str = "", string_end: str = "") -> None:
        self._pattern = _pattern(syntax)
        self._marks = _marks(syntax)
        self._syntax = syntax
        self.closers = ""  # of the open brackets, the innermost last
        self.opened_at: tuple[int, ...] = ()  # where these were opened in all that was fed
        self.n_closing = 0  # brackets that close none of these
        self.string_end = string_end  # what ends the open string or comment
        self.string_at = 0  # where that began
        self._promised = ""  # the word that ends what begins in the next line
        self._n_fed = 0
        self.feed(text)

    def copy(self) -> Nesting:
        """Another that goes on from here on its own."""
        other = Nesting(self._syntax)
        other.closers, other.opened_at = self.closers, self.opened_at
        other.n_closing, other._n_fed = self.n_closing, self._n_fed
        other.string_end, other.string_at = self.string_end, self.string_at
        other._promised = self._promised
        return other

    @property
    def statement_at(self) -> int | None:
        """Where what is open began that lines are no blocks in: a string, `(` or `[`; or None."""
        n_braces = len(self.closers.rstrip(")]"))
        if len(self.closers) > n_braces:
            return self.opened_at[n_braces]
        return self.string_at if self.string_end else None

    def feed(self, text: str) -> None:
        """Go on behind whole lines, or behind a part of a line after which nothing comes."""
        at = 0
        while at < len(text):
            if self.string_end:
                ended = _end_of(self.string_end).match(text, at)
                if ended is None:
                    break
                self.string_end, at = "", ended.end()
                continue
            mark = self._marks.search(text, at)
            line_end = text.find("\n", at) if self._promised else -1
            if line_end >= 0 and (mark is None or mark.start() > line_end):
                at = line_end + 1
                self.string_end, self.string_at = _HERE + self._promised, self._n_fed + at
                self._promised = ""
                continue
            if mark is None:
                break
            found = self._pattern.match(text, mark.start())
            at = found.end() if found else mark.end()
            if found:
                self._take(found)
        self._n_fed += len(text)

    def _take(self, found: re.Match[str]) -> None:
        mark, at = found[0], self._n_fed + found.start()
        if found.lastgroup == "bracket":
            self._take_bracket(mark, at)
        elif found.lastgroup == "long":
            self.string_end, self.string_at = mark, at
        elif found.lastgroup == "here":
            self._promised = found["word"]
        elif found.lastgroup == "continued":
            self.string_end, self.string_at = mark[0], at
        elif found.lastgroup == "block":
            ends = dict(self._syntax.block_comments)
            self.string_end = ends[mark if mark in ends else "\n" + mark]
            self.string_at = at

    def _take_bracket(self, mark: str, at: int) -> None:
        if mark in CLOSER_OF:
            if len(self.closers) < _MAX_OPEN:
                self.closers += CLOSER_OF[mark]
                self.opened_at += (at,)
        elif mark in self.closers:
            self.closers = self.closers[: self.closers.rfind(mark)]
            self.opened_at = self.opened_at[: len(self.closers)]
        else:
            self.n_closing += 1


_NEVER = r"(?!)"
# Before the word that ends a here-document, alone with blanks before it.
_HERE = "<<"
# A text with more open brackets is no code, and what they are is nothing to spend time on.
_MAX_OPEN = 200


@lru_cache
def _pattern(syntax: LexicalSyntax) -> re.Pattern[str]:
    """What of a language opens and closes; strings and comments within a line are passed over."""
    blocks = "|".join(
        rf"^{re.escape(start[1:])}" if start[0] == "\n" else re.escape(start)
        for start, _ in syntax.block_comments
    )
    # A hash inside a word is no comment: `$#`, `a#b`.
    line = "|".join(
        r"(?<![\w$&{])#(?!\{)" if start == "#" else start for start in syntax.line_comments
    )
    long = "|".join(map(re.escape, syntax.long_quotes))
    single = r"'(?:\\[^'\n]+|[^'\\\n])'" if syntax.has_characters else r"'(?:\\.|[^'\\\n])*'"
    strings = [r'"(?:\\.|[^"\\\n])*"', single, r"`[^`\n]*`"]
    parts = (
        rf"(?P<block>{blocks or _NEVER})",
        rf"(?P<long>{long or _NEVER})",
        rf"(?P<line>(?:{line or _NEVER})[^\n]*)",
        # A backslash at a line's end goes on with the string.
        r'(?P<continued>"(?:\\.|[^"\\\n])*\\\n)',
        rf"(?P<here>{syntax.here_document or _NEVER})",
        rf"(?P<string>{'|'.join(strings)})",
        r"(?P<bracket>[()\[\]{}])",
    )
    return re.compile("|".join(parts), re.MULTILINE)


@lru_cache
def _marks(syntax: LexicalSyntax) -> re.Pattern[str]:
    """The characters that any of it begins with: to look for these is faster."""
    starts = (*syntax.line_comments, *(start.lstrip() for start, _ in syntax.block_comments))
    marks = {'"', "'", "`", *"()[]{}", *(start[0] for start in starts)}
    if syntax.here_document:
        marks.add("<")
    return re.compile(f"[{re.escape(''.join(sorted(marks)))}]")


@lru_cache
def _end_of(end: str) -> re.Pattern[str]:
    if end[0] == "\n":
        return re.compile(rf".*?^{re.escape(end[1:])}", re.DOTALL | re.MULTILINE)
    if end.startswith(_HERE):
        return re.compile(rf".*?^[ \t]*{end.removeprefix(_HERE)}\b", re.DOTALL | re.MULTILINE)
    if end[0] in "\"'`":
        return re.compile(rf"(?:\\.|[^\\])*?{re.escape(end)}", re.DOTALL)
    return re.compile(rf".*?{re.escape(end)}", re.DOTALL)
