"""Tokens to text where bytes cannot be joined: decode a short window of tokens, send what it grew.

A vocabulary is byte-homomorphic if the bytes of a text are those of its tokens, joined; then
`Detokenizer` is exact and this module is not needed. Some decoders look at neighbours (WordPiece
joins at ``##``, others strip the first space or tidy blanks), and all they offer is `decode`.

The *window* is the tokens p..n of a text: its *context* p..r has been sent, its *unread* part r..n
has not. A token is held while the window got no longer or ends in U+FFFD, which may be half a
character; else the text after the context's is sent, p moves to r and r to n. The first context
is the prompt's last five tokens that are not special; the text of the prompt is never sent.

Where a decoder takes back what was sent, the text can only go on, not mend: the unread tokens are
decoded without the context, and `resyncs` counts it. Text shows no difference between half a
character, bytes that never become one and a literal U+FFFD, so all three wait, but not for long:
at `MAX_UNREAD` unread tokens, those without text are forgotten, and of the rest all is sent but
the last U+FFFD, as many as an unfinished character may show as.

W1   the deltas and the flush are the text; what was sent is never changed and never sent again.
W2   no call decodes more than 2 * `MAX_UNREAD` tokens, and no more waits than `MAX_UNREAD` tokens
     and three U+FFFD.
W3   byte-level tokenizers: the text equals the byte path's, for ill-formed bytes too.
W4   decoders that a prefix determines: the text equals decoding all tokens at once.
W5   a decoder that revises itself never raises, and `resyncs` counts each time it did.
W6   a token outside the vocabulary, or one that cannot be decoded, is an error of its own text
     only, which then is as it was before.
W7   in batches every text is what it is alone.
W8   stop strings: no more is held than the longest tail of the text released that begins one.
W9   `restore` puts back any earlier state.
W10  healed text is skipped exactly, and stop strings complete before the `min_tokens`-th new token
     do not count: as in the byte path, for well-formed text. A U+FFFD that tokens cut is excepted:
     text shows no difference between its parts and the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from operator import eq
from typing import Literal, NamedTuple, TypeAlias

from suture.healing.stops import OnStop, StopSet

Decode: TypeAlias = Callable[[Sequence[int]], str]
DecodeBatch: TypeAlias = Callable[[Sequence[Sequence[int]]], Sequence[str]]

MAX_UNREAD = 8
_CONTEXT_TOKENS = 5
# An unfinished character has up to three bytes, and some decoders show each as one.
_UNFINISHED_CHARS = 3
_REPLACEMENT = "\ufffd"

_Span: TypeAlias = tuple[int, ...]
# A step asks for the texts of spans, as often as it needs to, and returns the text to send. So
# one text and a batch of them take the same steps, and only the calls to decode are shared.
_Steps: TypeAlias = Generator[list[_Span], list[str], str]


@dataclass(frozen=True, eq=False, slots=True)
class Decoding:
    """A tokenizer's own `decode` under one set of flags; texts that share the object share calls.

    `special_ids` are those that the flags skip: they have no text and are no context.
    `decode_batch` decodes many lists at once, where the tokenizer can.
    """

    decode: Decode
    n_vocab: int
    special_ids: frozenset[int] = frozenset()
    decode_batch: DecodeBatch | None = None


def decode_batch(rows: Sequence[tuple[Decoding, Sequence[int]]]) -> list[str | Exception]:
    """The text of every row, or the error that decoding it alone raises.

    Rows of one `Decoding` go into one call; empty ones are not decoded at all.
    """
    outcomes: list[str | Exception] = [""] * len(rows)
    groups: dict[Decoding, list[int]] = {}
    for index, (decoding, ids) in enumerate(rows):
        if ids:
            groups.setdefault(decoding, []).append(index)
    for decoding, members in groups.items():
        texts = _decode_group(decoding, [rows[index][1] for index in members])
        for index, text in zip(members, texts, strict=True):
            outcomes[index] = text
    return outcomes


def _decode_group(decoding: Decoding, spans: Sequence[Sequence[int]]) -> Sequence[str | Exception]:
    if decoding.decode_batch is not None and len(spans) > 1:
        try:
            return decoding.decode_batch(spans)
        except Exception:  # One bad row fails the call: find out which.
            pass
    return [_decode_or_error(decoding.decode, span) for span in spans]


def _decode_or_error(decode: Decode, span: Sequence[int]) -> str | Exception:
    try:
        return decode(span)
    except Exception as error:  # Tokenizers raise what they like for an id they cannot decode.
        return error


class _Window(NamedTuple):
    """Tokens that give context, and tokens whose text was not sent.

    Of the context's own text the last `n_unsent` characters, all U+FFFD, were not sent either.
    `is_prompt`: the context is not ours, and may end inside a character that we finish.
    """

    context: _Span
    unread: _Span = ()
    n_unsent: int = 0
    is_prompt: bool = False

    @property
    def ids(self) -> _Span:
        return self.context + self.unread

    @property
    def holds(self) -> bool:
        return bool(self.unread or self.n_unsent)

    def reading(self, token_id: int) -> _Window:
        """The window with another token to read."""
        return _Window(self.context, (*self.unread, token_id), self.n_unsent, self.is_prompt)

    def advance(self, n_unsent: int = 0) -> _Window:
        """p moves to r, and r to n."""
        return _Window(self.unread, n_unsent=n_unsent)

    def n_sent(self, context_text: str) -> int:
        """Characters of the context's text that were sent, and that `text` must start with."""
        if self.is_prompt:
            return len(context_text.rstrip(_REPLACEMENT))
        return max(0, len(context_text) - self.n_unsent)

    def growth(self, context_text: str, text: str) -> str | None:
        """What follows the text that was sent; None if `text` does not continue that."""
        n_sent = self.n_sent(context_text)
        if text[:n_sent] != context_text[:n_sent]:
            return None
        if self.is_prompt:
            n_sent = _n_common(context_text, text)
        return text[n_sent:]

    def unsent(self, context_text: str) -> str:
        """What of the context's text was not sent."""
        return "" if self.is_prompt else context_text[self.n_sent(context_text) :]


def _n_common(text: str, other: str) -> int:
    """How many characters the texts have in common at their start."""
    return sum(takewhile(bool, map(eq, text, other)))


@dataclass(frozen=True, slots=True)
class WindowSnapshot:
    """All that a `WindowDetokenizer` remembers; opaque."""

    window: _Window
    node: int
    stop_held: bytes
    stop: int
    ended: bool
    held: str
    early: str
    skip: str
    n_tokens: int
    counters: tuple[int, int, int, int, int, int]


class WindowDetokenizer:
    """One text being generated after `prompt_ids`, over a tokenizer's own `decode`.

    Used as `Detokenizer` is. `skip` is the text that comes first and is not shown: the healed
    one, from the start of the character that the prompt ends in. Stop strings complete before the
    `min_tokens`-th new token do not count; tokens that only repeat skipped text are not new.
    `on_incomplete` says whether `flush` keeps the U+FFFD that the text ends in; dropped are
    literal ones too, where they were still held.
    """

    def __init__(
        self,
        decoding: Decoding,
        prompt_ids: Sequence[int] = (),
        *,
        stops: Sequence[str] = (),
        skip: str = "",
        min_tokens: int = 0,
        include_stop: OnStop = OnStop.EXCLUDE,
        on_incomplete: Literal["replace", "drop"] = "replace",
    ) -> None:
        self._decoding = decoding
        self._stops = StopSet(stops)
        self._include_stop = include_stop
        self._on_incomplete = on_incomplete
        self._min_tokens = min_tokens
        last_ids = (i for i in reversed(prompt_ids) if i not in decoding.special_ids)
        context = tuple(islice(last_ids, _CONTEXT_TOKENS))[::-1]
        self._window = _Window(context, is_prompt=True)
        self._node = 0
        self._stop_held = b""
        self._stop = -1
        self._ended = False
        # Text read and not released, and what it was when stop strings did not count yet.
        self._held = ""
        self._early = ""
        self._skip = skip
        self._n_tokens = 0
        self.held_steps = 0
        self.held_max_tokens = 0
        self.held_max_bytes = 0
        self.resyncs = 0
        self.text_bytes = 0
        self.text_utf16 = 0

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the text."""
        return self._stop >= 0

    @property
    def stop_match(self) -> str | None:
        """The stop string that ended the text."""
        return self._stops.stops[self._stop] if self.stopped else None

    @property
    def held_tokens(self) -> int:
        """Tokens read whose text was not released; a possible stop string is not counted."""
        return len(self._window.unread)

    @property
    def held_bytes(self) -> int:
        """Bytes of released text that may begin a stop string."""
        return len(self._stop_held)

    @property
    def held_chars(self) -> int:
        """Characters read that may still be sent, without those that may be half ones."""
        return len(self._stop_held.decode()) + len(self._new(self._held).rstrip(_REPLACEMENT))

    def feed(self, token_id: int) -> str:
        """Takes a token and returns the text that it releases, often none.

        After the text has ended, nothing more comes. Raises `IndexError` for a token outside the
        vocabulary, and what `decode` raises; then the text is as it was before.
        """
        return _run(self._feed(token_id), self._decoding.decode)

    def flush(self) -> str:
        """Ends the text and returns what is still held. Raises what `decode` raises."""
        return _run(self._flush(), self._decoding.decode)

    def snapshot(self) -> WindowSnapshot:
        """The present state, cheap to take and to keep."""
        held = (self.held_steps, self.held_max_tokens, self.held_max_bytes)
        return WindowSnapshot(
            self._window,
            self._node,
            self._stop_held,
            self._stop,
            self._ended,
            self._held,
            self._early,
            self._skip,
            self._n_tokens,
            (*held, self.resyncs, self.text_bytes, self.text_utf16),
        )

    def restore(self, snapshot: WindowSnapshot) -> None:
        """Puts back the state of a snapshot of this detokenizer, as if nothing had come since."""
        self._window, self._node = snapshot.window, snapshot.node
        self._stop_held, self._stop = snapshot.stop_held, snapshot.stop
        self._ended, self._held = snapshot.ended, snapshot.held
        self._early, self._skip = snapshot.early, snapshot.skip
        self._n_tokens = snapshot.n_tokens
        self.held_steps, self.held_max_tokens, self.held_max_bytes = snapshot.counters[:3]
        self.resyncs, self.text_bytes, self.text_utf16 = snapshot.counters[3:]

    def _feed(self, token_id: int) -> _Steps:
        if self._ended:
            return ""
        if not 0 <= token_id < self._decoding.n_vocab:
            raise IndexError(f"token {token_id} is outside the vocabulary")
        if token_id in self._decoding.special_ids:
            return self._take(_Release(self._window, held=self._held), is_new=True)
        # Nothing is changed before the last call to decode, which may fail.
        release = yield from _release(self._window.reading(token_id))
        is_new = not self._skip or bool(self._new(release.text + release.held))
        return self._take(release, is_new=is_new)

    def _new(self, text: str) -> str:
        """What of the text that was read follows the one that is skipped.

        U+FFFD for a part of a skipped character is not that character, so nothing follows yet.
        """
        return text[len(self._skip) :] if text.startswith(self._skip) else ""

    def _take(self, release: _Release, *, is_new: bool) -> str:
        """Makes the release the present state; returns what of its text is sent."""
        self._window, self._held = release.window, release.held
        self.resyncs += release.n_resyncs
        self._n_tokens += is_new
        text = self._send(release.text, release.held)
        if is_new and (self._window.holds or self._stop_held):
            self._note_held()
        return text

    def _send(self, text: str, held: str = "") -> str:
        """What of released text is sent, where `held` is read but not released."""
        if self._n_tokens < self._min_tokens:
            self._early = text + held
        # What has changed since is a character that was finished by a token that counts.
        n_early = _n_common(text, self._early)
        self._early = self._early[n_early:] if n_early == len(text) else ""
        n_skipped = min(len(text), len(self._skip))
        self._skip = self._skip[n_skipped:]
        return self._match_stops(text[n_skipped:], max(0, n_early - n_skipped))

    def _note_held(self) -> None:
        n_held = len(self._new(self._held).encode()) + len(self._stop_held)
        self.held_steps += 1
        self.held_max_tokens = max(self.held_max_tokens, self.held_tokens)
        self.held_max_bytes = max(self.held_max_bytes, n_held)

    def _flush(self) -> _Steps:
        if self._ended:
            return ""
        text, n_resyncs = yield from _rest(self._window)
        self.resyncs += n_resyncs
        if not self._new(text):
            text = ""  # All that came was to be skipped, an unfinished character perhaps.
        if self._on_incomplete == "drop":
            text = text.rstrip(_REPLACEMENT)
        text = self._send(text)
        rest = self._stop_held.decode()
        self._count(rest)
        self._end()
        return text + rest

    def _match_stops(self, text: str, n_early: int) -> str:
        """Holds back what may begin a stop string, and ends the text at the first that counts.

        Those that are complete within the first `n_early` characters do not.
        """
        if not self._stops.stops:
            self._count(text)
            return text
        stops, node, excludes = self._stops, self._node, self._include_stop is OnStop.EXCLUDE
        read = self._stop_held + text.encode()
        n_before = len(self._stop_held) + len(text[:n_early].encode())
        n_sent = 0
        for end in range(len(self._stop_held) + 1, len(read) + 1):
            node = stops.rows[node][read[end - 1]]
            if end > n_before and stops.completed[node] >= 0:
                self._stop = stops.completed[node]
                n_sent = end - (stops.lengths[self._stop] if excludes else 0)
                self._end()
                break
        else:
            n_sent = len(read) - (stops.holds[node] if excludes else 0)
            self._node, self._stop_held = node, read[n_sent:]
        sent = read[:n_sent].decode()
        self._count(sent)
        return sent

    def _count(self, text: str) -> None:
        self.text_bytes += len(text.encode())
        self.text_utf16 += len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2

    def _end(self) -> None:
        self._window, self._held, self._early = _Window(()), "", ""
        self._stop_held = b""
        self._ended = True


def feed_batch(
    detokenizers: Sequence[WindowDetokenizer], token_ids: Sequence[int]
) -> list[str | Exception]:
    """What `feed` returns or raises for each text and its token, with few calls to decode.

    Raises `ValueError` for a text that occurs twice.
    """
    if len(set(map(id, detokenizers))) < len(detokenizers):
        raise ValueError("a text can take one token in a batch")
    rows = [_Row(d, token_id) for d, token_id in zip(detokenizers, token_ids, strict=True)]
    while asking := [row for row in rows if row.spans]:
        texts = iter(decode_batch([(row.decoding, span) for row in asking for span in row.spans]))
        for row in asking:
            row.go_on([next(texts) for _ in row.spans])
    return [row.outcome for row in rows]


class _Row:
    """One text of a batch: the spans it asks for, or how its token came out."""

    def __init__(self, detokenizer: WindowDetokenizer, token_id: int) -> None:
        self.decoding = detokenizer._decoding
        self.spans: list[_Span] = []
        self.outcome: str | Exception = ""
        self._steps = detokenizer._feed(token_id)
        self._advance(lambda: next(self._steps))

    def go_on(self, texts: Sequence[str | Exception]) -> None:
        """Takes the texts of the spans; an error among them is the outcome."""
        decoded = [text for text in texts if isinstance(text, str)]
        if len(decoded) == len(texts):
            self._advance(lambda: self._steps.send(decoded))
            return
        self.spans = []
        self.outcome = next(text for text in texts if isinstance(text, Exception))

    def _advance(self, step: Callable[[], list[_Span]]) -> None:
        self.spans = []
        try:
            self.spans = step()
        except StopIteration as end:
            self.outcome = end.value
        except IndexError as error:
            self.outcome = error


def _run(steps: _Steps, decode: Decode) -> str:
    try:
        spans = next(steps)
        while True:
            spans = steps.send([decode(span) if span else "" for span in spans])
    except StopIteration as end:
        text: str = end.value
        return text


class _Release(NamedTuple):
    """What reading a token comes to: the window after it, the text to send, and what is read but
    held, with U+FFFD at its end for what may be unfinished."""

    window: _Window
    text: str = ""
    held: str = ""
    n_resyncs: int = 0


def _release(window: _Window) -> Generator[list[_Span], list[str], _Release]:
    """What comes of the window's last token."""
    context_text, text = yield [window.context, window.ids]
    growth = window.growth(context_text, text)
    if not text.endswith(_REPLACEMENT):
        if growth:
            return _Release(window.advance(), growth)
        if growth is None and len(text) > window.n_sent(context_text):
            return (yield from _resynchronise(window, context_text))
    if len(window.unread) < MAX_UNREAD:
        return _Release(window, held=growth or "")
    kept = yield from _without_blanks(window, text)
    if len(kept) < len(window.unread):
        return _Release(window._replace(unread=kept), held=growth or "")
    if not growth:
        return (yield from _resynchronise(window, context_text))
    return _send_most(window, growth, 0)


def _resynchronise(
    window: _Window, context_text: str
) -> Generator[list[_Span], list[str], _Release]:
    """Sends the unread tokens as what they are without the context."""
    (text,) = yield [window.unread]
    return _send_most(window, window.unsent(context_text) + text, 1)


def _send_most(window: _Window, text: str, n_resyncs: int) -> _Release:
    """Sends `text` but for U+FFFD at its end that may yet become a character."""
    n_unsent = min(_UNFINISHED_CHARS, len(text) - len(text.rstrip(_REPLACEMENT)))
    n_sent = len(text) - n_unsent
    return _Release(window.advance(n_unsent), text[:n_sent], text[n_sent:], n_resyncs)


def _without_blanks(window: _Window, text: str) -> Generator[list[_Span], list[str], _Span]:
    """The unread tokens without those that have no text, if the window's stays the same."""
    alone = yield [(token_id,) for token_id in window.unread]
    kept = tuple(i for i, own_text in zip(window.unread, alone, strict=True) if own_text)
    (kept_text,) = yield [window.context + kept]
    return kept if kept_text == text else window.unread


def _rest(window: _Window) -> Generator[list[_Span], list[str], tuple[str, int]]:
    """What was not sent of a window that gets no more tokens, and how many resyncs that took."""
    if not window.holds:
        return "", 0
    context_text, text = yield [window.context, window.ids]
    growth = window.growth(context_text, text)
    if growth or not window.unread:
        return growth or "", 0
    (alone,) = yield [window.unread]
    return window.unsent(context_text) + alone, 1 if alone else 0
