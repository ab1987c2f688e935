"""The text on both sides of the cursor, cut down to what a prompt has room for.

A window is the part of the text nearest to the cursor. It is clipped by bytes before anything is
tokenized, so that a file of 10 MB costs no more than a small one, and then trimmed by tokens.
Offsets are code points of the document, which is prefix + suffix as the request has them.

W1  Windows are LF only. CRLF and lone CR become LF, and a cursor between CR and LF stands before
    the CR. `Window.document_offset` maps back.
W2  The prefix window is a tail of the normalised prefix, the suffix window a head of the suffix.
W3  Whole lines go, those furthest from the cursor first. Only where that would leave less than
    three quarters of the budget is a line cut inside, between characters: a paragraph in one line
    is no reason to show nothing.
W4  A trimmed window has no more tokens than it was given, in the encoding of its own text.
W5  A trimmed window's far edge moves in steps, or all that stands behind it in a prompt would be
    read again with every line: it has between three quarters of the tokens that it may have and
    all of them, and of the line starts in between its edge is the one whose text has the least
    hash. That is the same one for as long as it is in between, wherever the text that was sent
    begins, and whatever is typed.

Only LF, CR and CRLF end a line: U+2028 and others are text to editors and tokenizers.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from suture.healing.boundary import Encode
from suture.healing.vocabulary import Vocabulary
from suture.server.shaping.line_ends import LineEnd

# Code is 3 to 5 bytes a token, deeply indented code up to 8: a clipped window fills its budget.
BYTES_PER_TOKEN = 8
# How much of the text at an edge is hashed: some lines, so that few edges are alike.
_EDGE_CHARS = 64

_CRLF = re.compile("\r\n")
_CR_OR_CRLF = re.compile("\r\n?")
_ANY_LINE_END = re.compile("\r\n?|\n")


@dataclass(frozen=True, slots=True)
class Window:
    """LF-normalised `text`, and where it stood.

    `start` is the document offset of its first character. `crlf` are the offsets in `text` of
    the LFs that were CRLF, ascending. `truncated`: the document has more on this side.
    """

    text: str
    start: int
    crlf: tuple[int, ...] = ()
    truncated: bool = False

    def document_offset(self, offset: int) -> int:
        """Where the character at `offset` of `text` stands in the document."""
        return self.start + offset + bisect_left(self.crlf, offset)

    def tail(self, offset: int) -> Window:
        """What starts at `offset` of `text`."""
        first = bisect_left(self.crlf, offset)
        crlf = tuple(at - offset for at in self.crlf[first:])
        return Window(self.text[offset:], self.document_offset(offset), crlf, truncated=True)

    def head(self, offset: int) -> Window:
        """What ends before `offset` of `text`."""
        crlf = self.crlf[: bisect_left(self.crlf, offset)]
        return Window(self.text[:offset], self.start, crlf, truncated=True)


@dataclass(frozen=True, slots=True)
class EncodedWindow:
    """A window and `ids`, the encoding of its text."""

    window: Window
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CursorWindows:
    """The windows before and after the cursor; `line_end` is the one most lines near it have."""

    prefix: Window
    suffix: Window
    line_end: LineEnd

    @property
    def text(self) -> str:
        """The text around the cursor, without the cursor."""
        return self.prefix.text + self.suffix.text

    @property
    def truncated(self) -> bool:
        """Whether the document has more than the windows show."""
        return self.prefix.truncated or self.suffix.truncated


def cursor_windows(prefix: str, suffix: str, max_bytes: int) -> CursorWindows:
    """At most `max_bytes` of UTF-8 on each side of the cursor, in whole lines as W3 says."""
    if prefix.endswith("\r") and suffix.startswith("\n"):
        prefix, suffix = prefix[:-1], "\r" + suffix
    start = _whole_lines_from(prefix, _clip_tail(prefix, max_bytes))
    end = _whole_lines_to(suffix, _clip_head(suffix, max_bytes))
    before, after = prefix[start:], suffix[:end]
    return CursorWindows(
        _window(before, start, truncated=start > 0),
        _window(after, len(prefix), truncated=end < len(suffix)),
        _line_end(before + after),
    )


def head_window(text: str, max_bytes: int) -> Window:
    """The head of a text, at most `max_bytes` of UTF-8, in whole lines as W3 says."""
    return cursor_windows("", text, max_bytes).suffix


def encode_window(window: Window, encode: Encode) -> EncodedWindow:
    """The window with its tokens, measured."""
    return EncodedWindow(window, tuple(encode(window.text.encode())))


def trim_prefix(
    encoded: EncodedWindow, n_tokens: int, encode: Encode, vocabulary: Vocabulary
) -> EncodedWindow:
    """The last lines that are at most `n_tokens` tokens of `encode`, cut in steps (W3, W5).

    The whole window may be encoded otherwise: it may begin a document, and what is left does not.
    """
    return _trim(encoded, n_tokens, encode, vocabulary, _cut_top)


def trim_suffix(
    encoded: EncodedWindow, n_tokens: int, encode: Encode, vocabulary: Vocabulary
) -> EncodedWindow:
    """The first lines that are at most `n_tokens` tokens, cut in steps (W3, W5)."""
    return _trim(encoded, n_tokens, encode, vocabulary, _cut_bottom)


# A window, the byte offsets at which its tokens end from 0 on, and the tokens that it may have.
_Cut = Callable[[Window, Sequence[int], int], Window]


def _trim(
    encoded: EncodedWindow, n_tokens: int, encode: Encode, vocabulary: Vocabulary, cut: _Cut
) -> EncodedWindow:
    """Cut by the tokens' lengths, then measure again: half a token may be several.

    What is truncated already has an edge that moves, so it is cut even if it is small enough.
    """
    is_cut = not encoded.window.truncated
    while encoded.window.text and not (is_cut and len(encoded.ids) <= n_tokens):
        lengths = [len(vocabulary.bytes_of(token_id)) for token_id in encoded.ids]
        has_dummy_space = sum(lengths) == len(encoded.window.text.encode()) + 1
        ends = list(accumulate(lengths, initial=-1 if has_dummy_space else 0))
        n_most = min(max(n_tokens, 0), len(encoded.ids))
        encoded = encode_window(cut(encoded.window, ends, n_most), encode)
        is_cut = True
    return encoded


def _cut_top(window: Window, ends: Sequence[int], n_tokens: int) -> Window:
    text, text_bytes = window.text, window.text.encode()
    n_all = len(ends) - 1
    # With all tokens it may stay as it is, else something has to go.
    least = _character_from(text_bytes, max(ends[n_all - n_tokens], int(n_tokens < n_all)))
    most = max(least, _character_to(text_bytes, ends[n_all - _three_quarters(n_tokens)]))
    starts = _line_starts(text, least, most)
    if not any(starts):
        # What was cut off already may begin inside a line.
        starts = list(range(least, most + 1))
    edge = _least_hash(starts, lambda at: text[at : at + _EDGE_CHARS], window.document_offset)
    return window.tail(edge)


def _cut_bottom(window: Window, ends: Sequence[int], n_tokens: int) -> Window:
    text, text_bytes = window.text, window.text.encode()
    n_all = len(ends) - 1
    most = _character_to(text_bytes, min(ends[n_tokens], len(text_bytes) - int(n_tokens < n_all)))
    least = min(most, _character_from(text_bytes, ends[_three_quarters(n_tokens)]))
    starts = _line_starts(text, max(least, 1), most)
    if not starts:
        starts = list(range(least, most + 1))
    return window.head(_least_hash(starts, lambda at: text[max(at - _EDGE_CHARS, 0) : at], int))


def _three_quarters(n_tokens: int) -> int:
    return -(-3 * n_tokens // 4)


def _line_starts(text: str, least: int, most: int) -> list[int]:
    """The offsets from `least` to `most` at which a line of `text` starts."""
    starts = [0] if least == 0 else []
    at = text.find("\n", max(least - 1, 0), most) + 1
    while at:
        starts.append(at)
        at = text.find("\n", at, most) + 1
    return starts


def _least_hash(
    edges: Sequence[int], text_at: Callable[[int], str], place_of: Callable[[int], int]
) -> int:
    """The edge whose text has the least hash; in a text that repeats itself, one in steps."""
    hashes = [zlib.crc32(text_at(edge).encode()) for edge in edges]
    least = min(hashes)
    alike = [edge for edge, edge_hash in zip(edges, hashes, strict=True) if edge_hash == least]
    places = [place_of(edge) for edge in alike]
    return alike[bisect_left(places, _roundest(places[0], places[-1]))]


def _roundest(least: int, most: int) -> int:
    """The number from `least` to `most` that the highest power of two divides."""
    if least == 0:
        return 0
    n_bits = ((least - 1) ^ most).bit_length() - 1
    return most >> n_bits << n_bits


def _character_from(text_bytes: bytes, offset: int) -> int:
    """The first character that starts at a byte offset or behind it."""
    while _inside_character(text_bytes, offset):
        offset += 1
    return len(text_bytes[:offset].decode())


def _character_to(text_bytes: bytes, offset: int) -> int:
    """The last character that starts at a byte offset or before it."""
    offset = max(offset, 0)
    while _inside_character(text_bytes, offset):
        offset -= 1
    return len(text_bytes[:offset].decode())


def _inside_character(text_bytes: bytes, offset: int) -> bool:
    return offset < len(text_bytes) and text_bytes[offset] & 0xC0 == 0x80


def _clip_tail(text: str, max_bytes: int) -> int:
    """Where the longest tail of whole characters starts that is at most `max_bytes` long."""
    start = max(len(text) - max_bytes, 0)
    excess = len(tail := text[start:].encode()) - max_bytes
    if excess <= 0:
        return start
    while _inside_character(tail, excess):
        excess += 1
    return start + len(tail[:excess].decode())


def _clip_head(text: str, max_bytes: int) -> int:
    """Where the longest head of whole characters ends that is at most `max_bytes` long."""
    head = text[:max_bytes].encode()
    end = min(len(head), max_bytes)
    while _inside_character(head, end):
        end -= 1
    return len(head[:end].decode())


def _whole_lines_from(text: str, start: int) -> int:
    """The first line start from `start` on; if that costs too much (W3) `start`, but never inside
    a CRLF."""
    if text[max(start - 1, 0) : start + 1] == "\r\n":
        start += 1
    if start == 0 or text[start - 1] in "\r\n":
        return start
    line_end = _ANY_LINE_END.search(text, start)
    if line_end is None or 4 * (len(text) - line_end.end()) < 3 * (len(text) - start):
        return start
    return line_end.end()


def _whole_lines_to(text: str, end: int) -> int:
    """The last line end up to `end`; if that costs too much (W3) `end`, but never inside a CRLF."""
    if end == len(text):
        return end
    if text[end - 1 : end + 1] == "\r\n":
        end -= 1
    line_end = max(text.rfind("\n", 0, end), text.rfind("\r", 0, end)) + 1
    return line_end if 4 * line_end >= 3 * end else end


def _window(text: str, start: int, *, truncated: bool) -> Window:
    crlf = tuple(match.start() - n for n, match in enumerate(_CRLF.finditer(text)))
    return Window(_CR_OR_CRLF.sub("\n", text), start, crlf, truncated)


def _line_end(text: str) -> LineEnd:
    crlf = text.count("\r\n")
    counts: dict[LineEnd, int] = {
        "\n": text.count("\n") - crlf,
        "\r\n": crlf,
        "\r": text.count("\r") - crlf,
    }
    return max(counts, key=counts.__getitem__)
