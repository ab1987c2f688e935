"""Where an answer leaves the block that the cursor is in: what comes then is for another place.

  depth     the columns of blanks that a line begins with
  floor     the least depth that is still in the cursor's block
  header    a line that begins a definition (`def`, `class`, `fn`, `func`), or any that opens
            braces but a branch or a loop
  closer    a line of closing brackets, or `end`
  branch    a line that goes on with a statement above it at its depth: `else`, `except`, `}` `else`

O1  The text ends before the first line that is below the floor. If there is text below the cursor,
    the floor is the depth of its first line, one more if that is a closer or a branch, or the depth
    of the cursor's line if that is less.
O2  If there is none, the floor is one more than the depth of the innermost header around the
    cursor; without one, the text ends before the first line at depth 0 behind a deeper one.
O3  A closer is in the block if it closes what nothing below the cursor does, and a branch if it is
    no less deep than what ends the block. Behind such a closer only others may come.
O4  Nothing ends in brackets, a string or a comment that the answer has begun, nor in a string or
    a comment that was begun before the cursor; nor do closing tags, and in C labels and directives
    (`#if`), which may stand anywhere.
O5  In languages where blanks mean nothing, and before the rest of a line, nothing ends.
O6  Held is a line below the floor, as long as it may be a closer, a branch, or such.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from suture.server.shaping.lexical import LexicalSyntax, Nesting, lexical_syntax
from suture.server.shaping.lines import LineRule, Verdict
from suture.server.shaping.statements import goes_on, opens_block
from suture.server.shaping.style import blanks_of, nesting_above, style_of
from suture.server.shaping.surroundings import Surroundings

_MODIFIERS = (
    "export|default|pub|local|static|private|public|protected|internal|abstract|final|async|"
    "unsafe|extern|const|override|virtual|inline"
)
_DEFINITION = re.compile(
    rf"\s*(?:(?:{_MODIFIERS})(?:\(\w+\))?\s+)*(?:def|class|module|function|func|fun|fn|sub|struct|"
    r"enum|interface|trait|impl|type|namespace)\b"
)
_STATEMENT = re.compile(
    r"\s*(?:\}\s*)?(?:if|else|elif|elsif|elseif|for|foreach|while|until|unless|switch|case|default|"
    r"do|try|catch|finally|with|match|loop|select|when|begin|rescue|ensure|return|await)\b"
)
# Of a block, not of a value.
_OPENS_BRACE = re.compile(r"(?:^|[^=(\[,:?\s])\s*\{\s*(?:\|[^|]*\|\s*)?(?://.*|/\*.*)?\Z")
_END_WORDS = frozenset("end esac fi done endif endfor endwhile endfunction".split())
_BRANCH_WORDS = frozenset(
    "else elif elsif elseif except finally catch case when default rescue ensure".split()
)
_CLOSER = re.compile(rf"(?:[)\]}};,\s]|\b(?:{'|'.join(sorted(_END_WORDS))})\b)+\Z")
_BRANCH = re.compile(rf"(?:\}}\s*)?(?:{'|'.join(sorted(_BRANCH_WORDS))})\b|\}}\s*while\b")
_ACCESS_WORDS = frozenset("public private protected".split())
_ANYWHERE = re.compile(rf"</|>|\{{\s*\Z|(?:{'|'.join(sorted(_ACCESS_WORDS))})\s*:(?!:)")
_DIRECTIVE = re.compile(
    r"#\s*(?:if|ifdef|ifndef|else|elif|endif|define|undef|include|pragma|error|region|endregion)\b"
)
_HALF_DIRECTIVE = re.compile(r"#\s*[a-z]*")
_LABEL = re.compile(r"[A-Za-z_]\w*\s*:(?!:)")
_WORD = re.compile(r"\w+")
# A statement of more lines is taken for several.
_MAX_LINES = 20
_LINE_END = re.compile(r"[ \t]*(?:\n|\Z)")


class Scope(LineRule):
    """Ends a text that comes in parts where it leaves the cursor's block."""

    name = "scope"

    def __init__(self, around: Surroundings) -> None:
        typed = around.cursor_line
        super().__init__(typed)
        self._syntax = lexical_syntax(around.language, around.path)
        self._is_on = self._syntax.is_indented and _LINE_END.match(around.suffix) is not None
        if not self._is_on:
            return
        self._columns = style_of(around).columns
        self._nesting = nesting_above(around).copy()
        with_typed = self._nesting.copy()
        with_typed.feed(typed)
        self._n_outer = len(with_typed.closers)
        self._prefix = around.prefix
        self._n_unclosed = _n_unclosed(around, self._n_outer, self._syntax)
        self._branch_depth: int | None = None
        self._floor = 0
        self._is_flat = False  # only lines at depth 0 behind deeper ones end (O2)
        below = around.suffix.partition("\n")[2]
        self._is_at_end = not below.strip() and not around.is_suffix_cut
        if not self._is_at_end:
            self._set_floor_by(below)
        else:
            self._set_floor_at_end(around)
        self._is_deeper = bool(typed) and self._depth(typed) > 0
        self._least_closed: int | None = None

    def feed(self, text: str) -> str:
        """What of the text is sure now and was not before; nothing once it has ended."""
        return super().feed(text) if self._is_on else text

    def _set_floor_by(self, below: str) -> None:
        """The floor where there is text below the cursor (O1)."""
        line = next((line for line in below.split("\n") if line.strip()), "")
        depth = self._depth(line)
        if line.lstrip(" \t").startswith("*"):
            depth = max(depth - 1, 0)  # a comment's, whose own depth is that of its first line
        if _CLOSER.match(line.strip()) or _BRANCH.match(line.strip()):
            self._branch_depth = depth
            depth += 1
        self._floor = min(self._statement_depth(), depth)

    def _set_floor_at_end(self, around: Surroundings) -> None:
        """The floor where there is none (O2)."""
        header = header_above(around.prefix, self._columns)
        self._is_flat = not header
        self._branch_depth = self._depth(header)
        self._floor = self._branch_depth + 1 if header else 0
        if around.is_prefix_cut:
            self._n_unclosed = max(self._n_unclosed, 1)

    def _statement_depth(self) -> int:
        """The depth of the line that begins the statement which the cursor is in, or behind."""
        at = self._nesting.statement_at
        if self._n_outer < len(self._nesting.closers):
            at = self._nesting.opened_at[self._n_outer]
        return self._depth_of_statement(self._prefix if at is None else self._prefix[: at + 1])

    def _depth_of_statement(self, text: str) -> int:
        """The depth of the line that begins the statement of the last line of `text`."""
        *above, line = text.split("\n")
        depth = self._depth(line)
        if self._syntax.has_directives and _is_indented_directive(line, above):
            return 0
        above = [other for other in above[-_MAX_LINES:] if other.strip()]
        while above and (not line.strip() or self._continues(line, above[-1])):
            if not line.strip() and not self._may_go_on(depth, above):
                break
            line = above.pop()
            depth = min(depth, self._depth(line))
        return depth

    def _continues(self, line: str, above: str) -> bool:
        is_deeper = self._depth(line) > self._depth(above)
        return goes_on(line, above) or (is_deeper and not opens_block(above))

    def _may_go_on(self, depth: int, above: list[str]) -> bool:
        """Whether a line still without text, so deep, may go on with the statement above it."""
        if depth > self._depth(above[-1]) and not opens_block(above[-1]):
            return True
        return len(above) > 1 and self._continues(above[-1], above[-2])

    def _depth(self, line: str) -> int:
        return self._columns(blanks_of(line))

    def _judge(self, line: str, is_whole: bool) -> Verdict:
        if self._is_inside or not self._is_below(self._depth(line)):
            return Verdict.GOES_ON
        body = line.strip()
        if not is_whole:
            return Verdict.UNSURE if self._may_be_in(body) else Verdict.ENDS
        return Verdict.GOES_ON if self._is_in(body, self._depth(line)) else Verdict.ENDS

    @property
    def _is_inside(self) -> bool:
        """Whether the line begins in brackets, a string or a comment (O4)."""
        is_own = len(self._nesting.closers) > self._n_outer
        return is_own or self._nesting.statement_at is not None

    def _is_below(self, depth: int) -> bool:
        if self._least_closed is not None:
            return True
        return depth < self._floor or (self._is_flat and depth == 0 and self._is_deeper)

    def _is_in(self, body: str, depth: int) -> bool:
        """Whether a line below the floor is in the block all the same."""
        if _CLOSER.match(body):
            return self._closes(body, depth)
        if _BRANCH.match(body):
            return self._branch_depth is not None and depth >= self._branch_depth
        return self._is_anywhere(body)

    def _closes(self, body: str, depth: int) -> bool:
        """Whether a closer closes what nothing below does (O3)."""
        if self._least_closed is not None and depth >= self._least_closed:
            return False
        n_brackets = sum(map(body.count, ")]}"))
        # Of words it is not known what they end; at the end of the file nothing else can.
        return n_brackets <= self._n_unclosed if n_brackets else self._is_at_end

    def _is_anywhere(self, body: str) -> bool:
        if _ANYWHERE.match(body):
            return True
        if self._syntax.has_characters and _LABEL.match(body):
            return True
        return self._syntax.has_directives and _DIRECTIVE.match(body) is not None

    def _may_be_in(self, body: str) -> bool:
        """Whether a line that begins so may be in the block though it is below the floor."""
        if body[0] in ")]};,<>#{":
            return True
        word = _WORD.match(body)
        if word is None:
            return False
        if self._syntax.has_characters and _WORD.fullmatch(body.split(":")[0].rstrip()):
            return True
        words = _END_WORDS | _BRANCH_WORDS | _ACCESS_WORDS
        if word.end() < len(body):
            return word[0] in words
        return any(other.startswith(word[0]) for other in words)

    def _pass(self, line: str) -> None:
        if not self._is_on:
            return
        if line.strip():
            depth = self._depth(line)
            if not self._is_inside and _CLOSER.match(line.strip()) and self._is_below(depth):
                self._least_closed = depth
            self._is_deeper = self._is_deeper or depth > 0
        opened_at = self._nesting.opened_at
        self._nesting.feed(line)
        n_open = len(self._nesting.closers)
        if n_open < self._n_outer:
            self._n_unclosed -= self._n_outer - n_open
            self._n_outer = n_open
            if n_open < len(opened_at) and not self._is_at_end:
                # What goes on behind the bracket is in the block of the line that opened it.
                opening = self._prefix[: opened_at[n_open] + 1]
                self._floor = min(self._floor, self._depth_of_statement(opening))


def _n_unclosed(around: Surroundings, n_open: int, syntax: LexicalSyntax) -> int:
    """How many brackets are open at the cursor that nothing below closes, as far as is known."""
    if around.is_suffix_cut:
        return 0
    return max(n_open - Nesting(syntax, around.rest + around.suffix).n_closing, 0)


def header_above(prefix: str, depth_of: Callable[[str], int]) -> str:
    """The line that begins the innermost definition around the end of `prefix`; empty if none does.

    It is the last line itself if that begins one. `depth_of` some blanks are their columns.
    """
    *above, typed = prefix.split("\n")
    if typed.strip() and _is_header(typed, above):
        return typed
    depth = depth_of(blanks_of(typed))
    for n in range(len(above) - 1, -1, -1):
        line = above[n]
        line_depth = depth_of(blanks_of(line))
        if line_depth < depth and line.strip():
            depth = line_depth
            if _is_header(line, above[max(n - 4, 0) : n]):
                return line
    return ""


def _is_header(line: str, above: Sequence[str]) -> bool:
    if _DEFINITION.match(line):
        return True
    if not _OPENS_BRACE.search(line):
        return False
    if line.strip() == "{":
        # What it belongs to stands above it.
        line = next((other for other in reversed(above) if other.strip()), line)
    return not _STATEMENT.match(line)


def _is_indented_directive(line: str, above: Sequence[str]) -> bool:
    """Whether directives are indented here as blocks are, so that depth says nothing."""
    lines = [line, *reversed(above)]
    last = next((other for other in lines if other.strip()), "")
    is_typed = last is line and _HALF_DIRECTIVE.fullmatch(last.strip()) is not None
    return last[:1] in (" ", "\t") and (is_typed or _DIRECTIVE.match(last.strip()) is not None)
