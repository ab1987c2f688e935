"""Where an answer has reached the text after the cursor: what it repeats of that is left out.

  suffix   the text after the cursor as the prompt shows it, LF only
  watched  the head of the suffix, without the blank lines in front, that an answer is compared with
  word     what the watched text begins with, if that is a word and stands at the cursor
  match    a part of the answer, from some place on, that is the watched text so far: an open one
           ends where the answer does, a complete one is a rejoin

An answer rejoins the suffix with whole lines of it, or with what of the cursor's line is behind the
cursor, up to its end: left out or not, the file is the same up to there. They have some letters
among them, or end the answer. A line that begins many things (`@property`, `try:`), or is in the
file more than once (`pass`), says nothing without the next one. Blank lines
before them count for nothing. A word is enough where the cursor is inside it and the answer begins
with its rest, or with another beginning and the same rest (`get‸Name()`: `UserName(`); where the
answer begins with a longer word that ends so and has the same behind it (`Not ‸qual"`: `Equal"`);
and at the answer's end, where it would be glued to itself.

J1  What is released and what is left out are together the text; without a rejoin it is untouched.
J2  How the text comes apart changes nothing.
J3  Held is what the first match holds that may still become a rejoin, at most 512 characters, and
    no more.
J4  A match begins where the cursor stands or at a line end, if the suffix begins with a line end.
    If not, it begins anywhere in a line; but where only blanks stand before the cursor, and no
    bracket closes behind it, behind the same blanks, as elsewhere the line would have another place
    in what is below it.
J5  What is left out closes nothing that would stay open without it, so that lines of closers
    (`}`, `)`) are left out only if they close what was open before the cursor.
    The same of `#endif`, `{% endif %}`, `\\end{…}` and what else ends by name, and of `#else`.
J6  A few lines at the answer's end are kept where the file has fewer parse errors with them, and
    left out, closers or not, where it has fewer without.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from suture.server.shaping.closers import n_unclosed
from suture.server.shaping.statements import opens_block

# So many characters of words in whole lines are no coincidence: in the same place, or elsewhere
# in a line, where they may be what many lines end with; or so many of any kind.
_ENOUGH_IN_PLACE = 4
_ENOUGH_ELSEWHERE = 12
_ENOUGH = 256
# No match is longer, however many blank lines there are.
_MAX_MATCH = 2 * _ENOUGH
# What was opened farther from the cursor is not looked for.
_MAX_CONTEXT = 2048
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n)*")
_LEADING_BLANK_LINES = re.compile(r"(?:[ \t]*\n)+")
_BLANK_END = re.compile(r"(?:\n[ \t\n]*)?\Z")
_CLOSER = re.compile(r"[)\]}\"'`]")
_WORD = re.compile(r"\w*")
_LINE = re.compile(r"[^\n]*\n")
# Decorators, attributes and documentation: it is what follows that has the name.
_PRELUDE = re.compile(r"\s*(?:@|#!?\[|\[[A-Z]\w*(?:\(.*\))?\]\s*\Z|template\s*<|///)")
_NAMELESS = re.compile(
    r"\s*(?:if|for|foreach|while|until|unless|with|switch|match|select|try|do|loop|public|"
    r"private|protected)\b"
)
# Of one statement there is one.
_BRANCH = re.compile(
    r"\s*(?:\}\s*)?(?:el\w+|catch|except|rescue|finally|ensure|case|when|default)\b"
)
_NAMED_END = re.compile(
    r"[ \t]*(?:(?P<mark>#|\{%-?|\\|)[ \t]*end\{?(?P<word>[a-z]\w*)|"
    r"(?P<of>#|\{%-?)[ \t]*(?:else|elif)\b)"
)


@dataclass(frozen=True, slots=True)
class _Watched:
    """Lines of the suffix; whether all of them are enough before the answer ends."""

    text: str
    is_enough: bool


@dataclass(frozen=True, slots=True)
class _Match:
    """`at` is where the watched text begins, behind blank lines."""

    start: int
    at: int
    end: int
    watched: _Watched
    is_complete: bool


class Rejoin:
    """What of an answer that comes in parts is not the text after the cursor.

    `prefix` and `suffix` are the texts at the cursor, LF only, as the model is shown them. Of a
    suffix that `is_cut_off` the last line may not be whole. An empty suffix changes nothing.
    `better_cut` tells which of two texts leaves the better file, of equals the first.
    """

    name = "suffix"

    def __init__(
        self,
        prefix: str,
        suffix: str,
        is_cut_off: bool = False,
        better_cut: Callable[[Sequence[str]], int] = lambda texts: 0,
    ) -> None:
        self._better_cut = better_cut
        blank = _LEADING_BLANK_LINES.match(suffix)
        self._is_below = blank is not None
        body = suffix[blank.end() :] if blank else suffix
        self._cursor_line = prefix[prefix.rfind("\n") + 1 :]
        self._is_blank = not self._cursor_line.strip(" \t")
        is_whole = self._is_below or self._is_blank
        typed = "" if self._is_below else self._cursor_line
        lines = Counter(f"{prefix}{suffix}".split("\n"))
        heads = _Heads(lines, typed, 0 if is_whole else 1)
        self._watched = _watched(body, is_cut_off, _ENOUGH_IN_PLACE, heads)
        self._elsewhere = _watched(body, is_cut_off, _ENOUGH_ELSEWHERE, heads)
        # On a blank line the answer begins where the next line would, behind the same blanks.
        is_aligned = self._is_blank and self._watched.text.startswith(self._cursor_line)
        self._here = replace(self._watched, text=self._watched.text[len(self._cursor_line) :])
        self._has_line_here = self._is_below and is_aligned
        self._word = "" if self._is_below else _word(self._watched.text)
        self._is_in_word = bool(self._word) and _is_word(prefix[-1:])
        self._prefix, self._suffix = prefix[-_MAX_CONTEXT:], suffix[:_MAX_CONTEXT]
        self._text = ""
        self._n_released = 0
        self.found = False

    @property
    def fired(self) -> bool:
        return self.found

    @property
    def ended(self) -> bool:
        return self.found

    @property
    def is_all(self) -> bool:
        """Whether the answer was nothing but the text after the cursor."""
        return self.found and not self._n_released

    def feed(self, text: str) -> str:
        """What of the answer is known now and was not before; nothing once it is `found`."""
        if not self._watched.text:
            return text
        if self.found:
            return ""
        self._text += text
        for match in self._matches():
            if not match.is_complete:
                return self._release(match.start)
            if self._closes_nothing(match):
                return self._rejoin(match)
        return self._release(len(self._text))

    def flush(self) -> str:
        """What is left of the answer, which ends here."""
        if not self._watched.text or self.found:
            return ""
        for match in self._matches():
            if match.is_complete and self._closes_nothing(match):
                return self._rejoin(match)
            if not match.is_complete and self._ends_in(match) and self._is_cut(match):
                return self._rejoin(match)
        return self._release(len(self._text))

    def _is_cut(self, match: _Match) -> bool:
        """Whether an answer that ends with a match leaves the better file without it (J6)."""
        without, with_it = self._text[: match.start], self._text
        if self._closes_nothing(match):
            return self._better_cut([without, with_it]) == 0
        return self._better_cut([with_it, without]) == 1

    def _release(self, end: int) -> str:
        text = self._text[self._n_released : end]
        self._n_released = end
        return text

    def _rejoin(self, match: _Match) -> str:
        self.found = True
        return self._release(match.start)

    def _matches(self) -> Iterator[_Match]:
        """The complete and open matches in what is held, the earliest first."""
        for start in self._starts():
            match = self._match(start)
            if match is not None and match.end - start <= _MAX_MATCH:
                yield match

    def _starts(self) -> Iterator[int]:
        """Where in what is held a match may begin (J4)."""
        text, at = self._text, self._n_released
        if self._has_line_here and at == 0 and text[:1] not in ("", "\n"):
            yield 0
        first = "\n" if self._is_below else self._watched.text[0]
        is_anywhere = self._is_below or not self._is_blank or first in ")]}"
        while (at := text.find(first, at)) >= 0:
            if at == 0 or is_anywhere or self._is_in_column(at):
                yield at
            at += 1

    def _is_in_column(self, at: int) -> bool:
        """Whether only the blanks that stand before the cursor stand before it, in another line."""
        line_start = self._text.rfind("\n", 0, at) + 1
        return line_start > 0 and self._text[line_start:at] == self._cursor_line

    def _match(self, start: int) -> _Match | None:
        at, watched = self._compared(start)
        said = self._text[at : at + len(watched.text)]
        if self._has_word_again(start):
            return _Match(start, at, at + len(self._word), watched, is_complete=True)
        if said == watched.text:
            end = at + len(said)
            if watched.is_enough:
                return _Match(start, at, end, watched, is_complete=True)
            # It is all of the suffix, and may be all of the answer.
            is_open = not self._text[end:].strip(" \t\n")
        else:
            may_be_blank = at > start and not said.strip(" \t")
            is_open = may_be_blank or watched.text.startswith(said)
        end = len(self._text)
        return _Match(start, at, end, watched, is_complete=False) if is_open else None

    def _compared(self, start: int) -> tuple[int, _Watched]:
        """From where on a match that begins at `start` is compared, and with what."""
        if not self._is_below:
            is_in_place = start == 0 or (self._is_blank and self._is_in_column(start))
            return start, self._watched if is_in_place else self._elsewhere
        blank = _BLANK_LINES.match(self._text, start)
        return (blank.end(), self._watched) if blank else (start, self._here)

    def _has_word_again(self, start: int) -> bool:
        """Whether the answer's first word ends at `start` as the word does that the cursor is at.

        One letter may well be what the model means to write before it. In front of a word, not
        inside it, what stands behind both has to be the same (`Not ‸qual"`: `Equal"`).
        """
        n_word = len(self._word)
        if not self._word or (start > 0 and n_word < 2):
            return False
        end = start + n_word
        if not self._is_in_word:
            behind = self._watched.text[n_word : n_word + 1]
            if start == 0 or n_word < 3 or self._text[end : end + 1] != behind:
                return False
        is_whole = end < len(self._text) and not _is_word(self._text[end])
        is_first = _word(self._text[:start]) == self._text[:start]
        return is_whole and is_first and self._text.startswith(self._word, start)

    def _ends_in(self, match: _Match) -> bool:
        """Whether an answer that ends with an open match has rejoined the suffix.

        It has with a whole line, or if it ends in a word and would be glued to the word behind it.
        """
        said = self._text[match.at :]
        line, line_end, _ = match.watched.text.partition("\n")
        if line_end and said.startswith(line):
            return True
        is_glued = len(said) >= len(self._word) > 0 and _is_word(said[-1])
        is_apart = match.start == 0 or not _is_word(self._text[match.start - 1])
        return is_glued and (is_apart or len(self._word) > 1)

    def _closes_nothing(self, match: _Match) -> bool:
        """Whether what is left out closes only what the suffix closes as well (J5)."""
        if _n_open_by_name(match.watched.text, self._text[: match.start]) > 0:
            return False
        if not _CLOSER.search(self._text, match.start, match.end):
            return True
        without = self._n_unclosed(self._text[: match.start])
        with_it = self._n_unclosed(self._text[: match.end])
        return without <= min(with_it, self._n_unclosed(""))

    def _n_unclosed(self, text: str) -> int:
        """How many brackets around the cursor nothing closes with `text` there."""
        return n_unclosed(self._prefix + text + self._suffix)


@dataclass(frozen=True, slots=True)
class _Heads:
    """Which lines of a suffix say nothing without the next one.

    `lines` are those of the file. The first goes on behind what is `typed`; the first `n_rests` are
    the rest of one, and none.
    """

    lines: Counter[str]
    typed: str
    n_rests: int

    def has(self, index: int, line: str) -> bool:
        if index < self.n_rests:
            return False
        if _PRELUDE.match(line):
            return True
        if _BRANCH.match(line):
            return False
        whole = line if index else self.typed + line
        if self.lines[whole.removesuffix("\n")] > 1:
            return True
        return opens_block(line) and _NAMELESS.match(line) is not None


def _n_open_by_name(line: str, text: str) -> int:
    """How many blocks a text opens that a line ends, or goes on with, by their name."""
    found = _NAMED_END.match(line)
    if not found:
        return 0
    mark, word = re.escape(found["mark"] or found["of"] or ""), found["word"] or "if"
    opening = rf"^[ \t]*{mark}[ \t]*(?:begin\{{?)?{word}(?:n?def|n?eq)?\b"
    ending = rf"^[ \t]*{mark}[ \t]*end\{{?{word}\b"
    n_opened, n_ended = (len(re.findall(p, text, re.MULTILINE)) for p in (opening, ending))
    return n_opened - n_ended


def _watched(body: str, is_cut_off: bool, n_enough_in_words: int, heads: _Heads) -> _Watched:
    """As many lines of `body` as are no coincidence in an answer, or all of them."""
    head, is_long = body[:_ENOUGH], len(body) >= _ENOUGH
    if not is_long:
        head = head[: head.rfind("\n") + 1] if is_cut_off else _BLANK_END.sub("\n", head, count=1)
    n_in_words = 0
    for index, line in enumerate(_LINE.finditer(head)):
        n_in_line = sum(map(_is_word, line[0]))
        n_in_words += n_in_line
        if n_in_line and n_in_words >= n_enough_in_words and not heads.has(index, line[0]):
            return _Watched(head[: line.end()], is_enough=True)
    return _Watched(head, is_long) if head.strip() else _Watched("", is_enough=False)


def _word(text: str) -> str:
    """The word that `text` begins with."""
    found = _WORD.match(text)
    return found[0] if found else ""


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
