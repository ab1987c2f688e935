"""From a request to the token ids that are evaluated for it.

  kept      the ids of the whole prompt, without those that healing gives back
  pending   the bytes given back, with which the generation has to begin
  barrier   the position of a control token: healing gives back nothing up to the last one

The text before the cursor is healed where it stands last, or where its tail is moved behind the
sentinels that the prompt ends with (`layouts.py`). Else its tail is kept as it is, which is how
such models were trained: with cuts between characters, not between tokens.

F1  Control ids come from the family and the BOS rule only; the user's text is never parsed.
S1  The space that SentencePiece reads before a text stands where a document begins only: not
    before a suffix, a prefix that was cut off at its start, or text behind other text.
B3  A moved tail is cut inside the prefix's text and said behind the last sentinel: no token crosses
    one. It begins with a whole character, and never with the space that is read before a text.
F2  BOS stands first, exactly once, where the vocabulary wants one, and nowhere else.
P1  Prompt and output fit into the context, and the prompt is never empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate

from suture.healing.boundary import (
    Boundary,
    BoundaryError,
    Encode,
    fixed_boundary,
    stable_boundary,
    uncut_boundary,
)
from suture.healing.healer import coverable
from suture.healing.vocabulary import Vocabulary
from suture.server.errors import InvalidRequest
from suture.server.prompt.anchors import MAX_LINES, MAX_TYPED, Anchor, Anchors
from suture.server.prompt.budget import PromptBudget, extra_room, share_room
from suture.server.prompt.extra import MAX_CHUNKS, ExtraParts, plan_extra
from suture.server.prompt.families import FimFamily, LayoutDefaults, TailBoundary
from suture.server.prompt.layouts import Layout, LayoutName, choose_layout
from suture.server.prompt.parts import Part
from suture.server.prompt.sent_texts import SentTexts
from suture.server.prompt.text_encoding import TextEncoding, text_encoding
from suture.server.prompt.windows import (
    BYTES_PER_TOKEN,
    CursorWindows,
    EncodedWindow,
    Window,
    cursor_windows,
    encode_window,
    trim_prefix,
    trim_suffix,
)
from suture.server.request import CompletionRequest, HealingLevel
from suture.server.shaping.closers import line_rest

# A split of the tokenizer is seldom farther back.
MAX_LEFT = 12


@dataclass(frozen=True, slots=True)
class PromptPlan:
    """What is evaluated for a request, and what its generation must know of it.

    `kept_ids` is the whole prompt, control ids included, never empty. `pending` are the bytes
    that the generation must produce first and that are no output; `dropped_tokens` is how many
    tokens they were. `barriers` are positions in `kept_ids`, ascending. `level` is how the pending
    bytes are to be healed, "none" without any; a generation may have to lower it. At any of
    `stop_ids` or, in a hole, of `stop_strings` the model has ended its text.
    `max_tokens` is as many as asked for, or as fit. `truncated` says that text of the request
    was left out, or by the client itself. `segments` are the parts in order, as (role, number
    of tokens in `kept_ids`).
    `n_excluded` chunks of other files hold secrets, and are not in the prompt.
    `windows` are the texts at the cursor that the prompt shows, LF only, with the way back to
    the document's offsets and line ends. `rest` stands between the cursor and the suffix window:
    closers that the prompt leaves out, and that the answer is an edit over (`closers.py`).
    `is_far` says that the cursor will soon be too far from its anchor, where the layout has one.
    `boundary` is what becomes of the prefix's tail in psm, None in other layouts. `left_ids` are
    the last kept tokens before the cut as the text has them, whatever stands between in the prompt:
    from the last one with a line end on, at most `MAX_LEFT`.
    """

    kept_ids: tuple[int, ...]
    pending: bytes
    dropped_tokens: int
    barriers: tuple[int, ...]
    layout: LayoutName
    level: HealingLevel
    stop_ids: frozenset[int]
    stop_strings: tuple[str, ...]
    max_tokens: int
    truncated: bool
    segments: tuple[tuple[str, int], ...]
    windows: CursorWindows
    rest: str
    is_far: bool
    n_excluded: int = 0
    boundary: TailBoundary | None = None
    left_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Hole:
    """The texts at the cursor, encoded: `boundary` keeps the prefix's tokens, or those typed
    behind `head_ids` where the layout parts it."""

    boundary: Boundary
    head_ids: tuple[int, ...]
    suffix_ids: tuple[int, ...]
    extra: ExtraParts
    windows: CursorWindows


def plan_prompt(
    request: CompletionRequest,
    vocabulary: Vocabulary,
    family: FimFamily | None,
    encode: Encode,
    budget: PromptBudget,
    anchors: Anchors | None = None,
    defaults: LayoutDefaults | None = None,
) -> PromptPlan:
    """The prompt for a request; `anchors` are those of the requests before.

    `defaults` are what "auto" stands for with this model, None: with its family.

    However long the texts are, `encode` gets only some multiples of the budget to encode. Raises
    `InfillUnsupported` for a hole that the model cannot fill, and `InvalidRequest` for a layout
    that it was not trained in or an empty prompt where it has no token to start a text with.
    """
    encoding = text_encoding(_remembering(encode), vocabulary, family)
    layout = choose_layout(request, vocabulary, family, encoding.inner, defaults)
    bos = _bos(vocabulary) or _separator(layout, vocabulary)
    n_fixed = len(bos) + layout.n_fixed
    room = budget.prompt_room(request.max_tokens, "latency" if request.infill else "context")
    if n_fixed > room:
        raise InvalidRequest(f"the context is too small: the prompt's frame takes {n_fixed} tokens")
    anchors = anchors or Anchors()
    n_ahead = _ahead_room(request, budget, anchors)
    planner = _Planner(request, layout, room, n_ahead, n_fixed, family, encoding, vocabulary)
    clipped = planner.clipped(anchors.sent)
    hole = planner.anchored(clipped, anchors) if layout.has_anchor else planner.whole(clipped)
    boundary, windows = hole.boundary, hole.windows
    if windows.truncated:
        bos = _bos(vocabulary)
    prefix_ids, typed_ids = hole.head_ids, boundary.kept_ids
    if not layout.has_anchor:
        prefix_ids, typed_ids = boundary.kept_ids, ()
    parts = (*bos, *layout.parts(prefix_ids, hole.suffix_ids, hole.extra.parts, typed_ids))
    if not any(part.ids for part in parts):
        parts = (_document_start(vocabulary), *parts)
    kept_ids = tuple(token_id for part in parts for token_id in part.ids)
    return PromptPlan(
        kept_ids=kept_ids,
        pending=boundary.pending,
        dropped_tokens=boundary.dropped_tokens,
        barriers=_barriers(parts),
        layout=layout.name,
        level=_level(request, boundary.pending),
        stop_ids=vocabulary.eog_ids | (family.stop_ids if family else frozenset()),
        stop_strings=family.stop_strings if family and layout.name != "plain" else (),
        max_tokens=budget.output_room(request.max_tokens, len(kept_ids), len(boundary.pending)),
        truncated=windows.truncated or hole.extra.truncated,
        segments=tuple((part.role, len(part.ids)) for part in parts),
        windows=windows,
        rest=planner.rest,
        is_far=_is_far(typed_ids, vocabulary),
        n_excluded=hole.extra.n_excluded,
        boundary=layout.boundary,
        left_ids=last_line_ids((*prefix_ids, *typed_ids), vocabulary),
    )


def _ahead_room(request: CompletionRequest, budget: PromptBudget, anchors: Anchors) -> int:
    """The room of a hole's text from other files that is read ahead of time, or was; else 0."""
    is_ahead = request.max_tokens == 0 or anchors.warmed.has(request.extra, request.cache_salt)
    return budget.ahead_room() if request.infill and is_ahead else 0


def _remembering(encode: Encode) -> Encode:
    """Texts are counted and then cut: neither is worth encoding them twice."""

    @lru_cache(maxsize=8)
    def remembered(text_bytes: bytes) -> Sequence[int]:
        return tuple(encode(text_bytes))

    return remembered


def _is_far(typed_ids: tuple[int, ...], vocabulary: Vocabulary) -> bool:
    n_lines = sum(vocabulary.bytes_of(token_id).count(b"\n") for token_id in typed_ids)
    return n_lines > MAX_LINES // 2 or len(typed_ids) > MAX_TYPED // 2


def _level(request: CompletionRequest, pending: bytes) -> HealingLevel:
    return "none" if request.healing == "off" or not pending else request.healing


def last_line_ids(text_ids: tuple[int, ...], vocabulary: Vocabulary) -> tuple[int, ...]:
    """The last of these tokens, from one with a line end on, at most `MAX_LEFT`."""
    for start in range(len(text_ids) - 1, max(len(text_ids) - MAX_LEFT, 0) - 1, -1):
        if b"\n" in vocabulary.bytes_of(text_ids[start]):
            return text_ids[start:]
    return text_ids[-MAX_LEFT:]


@dataclass(frozen=True, slots=True)
class _Planner:
    """Fits the texts of one request into `room` tokens, of which `n_fixed` are not theirs.

    Text from other files may have `n_ahead` tokens however much the cursor's takes.
    """

    request: CompletionRequest
    layout: Layout
    room: int
    n_ahead: int
    n_fixed: int
    family: FimFamily | None
    encoding: TextEncoding
    vocabulary: Vocabulary

    def clipped(self, sent: SentTexts) -> CursorWindows:
        """The texts at the cursor, no longer than a prompt may be long; `sent` are those before."""
        request, n_rest = self.request, len(self.rest)
        shown_suffix = request.suffix[n_rest:] if self.layout.shows_suffix else ""
        n_bytes = (self.room - self.n_fixed) * BYTES_PER_TOKEN
        windows = cursor_windows(request.prefix, shown_suffix, n_bytes)
        prefix, suffix = windows.prefix, windows.suffix
        windows = replace(windows, suffix=replace(suffix, start=suffix.start + n_rest))
        # Left to right the text is what the client says it is.
        if request.infill and not prefix.truncated:
            source = request.session, request.path, request.cache_salt
            is_clipped = sent.is_clipped(prefix.text, source)
            windows = replace(windows, prefix=replace(prefix, truncated=is_clipped))
        return windows

    @property
    def rest(self) -> str:
        """What stands behind the cursor and not in the prompt: it comes and goes as one types."""
        request = self.request
        if not self.layout.has_anchor or request.shape == "raw" or not request.detokenize:
            return ""
        rest = line_rest(request.prefix, request.suffix)
        # Without it a CR and LF would become one line end.
        is_between = request.prefix.endswith("\r") and request.suffix[len(rest) :][:1] == "\n"
        return "" if is_between else rest

    def whole(self, clipped: CursorWindows) -> _Hole:
        """The hole with its prefix in one piece."""
        encoding = self.encoding
        prefix, suffix, n_share = self._fit(clipped, self.room - self.n_fixed)
        windows = CursorWindows(prefix.window, suffix.window, clipped.line_end)
        inner = encode_window(prefix.window, encoding.inner) if encoding.has_dummy_space else prefix
        extra = self._extra(windows, max(n_share, len(inner.ids) + len(suffix.ids)))
        begins_document = self._begins_document(prefix.window, extra)
        encoded = prefix if begins_document else inner
        boundary = self._boundary(encoded, self._encode(begins_document))
        return _Hole(boundary, (), suffix.ids, extra, windows)

    def anchored(self, clipped: CursorWindows, anchors: Anchors) -> _Hole:
        """The hole with its prefix parted at an anchor, one that was there before if it can be."""
        request = self.request
        # Anchors are remembered longer than extra text is to be.
        extra = hash(request.extra[-MAX_CHUNKS:])
        rooms = self.room, self.n_ahead, self.n_fixed
        setting = (*rooms, extra, request.path, request.language, request.cache_salt)
        for anchor, at in anchors.find(clipped, setting):
            hole = self._behind(anchor, at, clipped)
            if hole is not None:
                return hole
        for target in (self._target(clipped.prefix.text), len(clipped.prefix.text)):
            anchor, at = self._new_anchor(clipped, target, setting)
            hole = self._behind(anchor, at, clipped)
            if hole is not None:
                anchors.remember(anchor)
                return hole
        # Tokens that do not spell the text: nothing is given back.
        prefix, suffix, _ = self._fit(clipped, self.room - self.n_fixed)
        windows = CursorWindows(prefix.window, suffix.window, clipped.line_end)
        return _Hole(Boundary((), b"", 0), prefix.ids, suffix.ids, ExtraParts(), windows)

    def _fit(self, windows: CursorWindows, room: int) -> tuple[EncodedWindow, EncodedWindow, int]:
        """The prefix and suffix that `room` tokens hold, encoded, and the tokens they may have.

        What the steps of their edges leave of those is nobody else's, or it would move in steps.
        """
        encoding, vocabulary = self.encoding, self.vocabulary
        is_opening = self.layout.begins_with_prefix(()) and not windows.prefix.truncated
        prefix = encode_window(windows.prefix, self._encode(is_opening))
        suffix = encode_window(windows.suffix, encoding.inner)
        n_prefix, n_suffix = share_room(room, len(prefix.ids), len(suffix.ids))
        prefix = trim_prefix(prefix, n_prefix, encoding.inner, vocabulary)
        suffix = trim_suffix(suffix, n_suffix, encoding.inner, vocabulary)
        return prefix, suffix, n_prefix + n_suffix

    def _extra(self, windows: CursorWindows, n_tokens: int) -> ExtraParts:
        left = max(extra_room(self.room, self.n_fixed + n_tokens), self.n_ahead)
        return plan_extra(self.request, windows, left, self.family, self.encoding, self.vocabulary)

    def _begins_document(self, prefix: Window, extra: ExtraParts) -> bool:
        return not prefix.truncated and self.layout.begins_with_prefix(extra.parts)

    def _encode(self, begins_document: bool) -> Encode:
        return self.encoding.opening if begins_document else self.encoding.inner

    def _boundary(self, prefix: EncodedWindow, encode: Encode) -> Boundary:
        """Where the prefix ends in the prompt, as the request wants it healed."""
        if not self.layout.heals_prefix:
            return Boundary(prefix.ids, b"", 0)
        return self._cut(prefix.window.text.encode(), encode)

    def _cut(self, segment: bytes, encode: Encode) -> Boundary:
        request, vocabulary = self.request, self.vocabulary
        if request.healing == "off":
            return uncut_boundary(segment, encode, vocabulary)
        try:
            if request.give_back is None:
                boundary = stable_boundary(segment, encode, vocabulary)
            else:
                boundary = fixed_boundary(segment, request.give_back, encode, vocabulary)
        except BoundaryError:
            return uncut_boundary(segment, encode, vocabulary)
        if self.layout.boundary == "move":
            boundary = self._moved(boundary, segment)
        # What no tokens could say again stays: a vocabulary may lack bytes of the text's end.
        is_sayable = coverable(vocabulary, boundary.pending)
        return boundary if is_sayable else uncut_boundary(segment, encode, vocabulary)

    def _moved(self, boundary: Boundary, segment: bytes) -> Boundary:
        """A boundary with sentinels between what is kept and what is given back (B3)."""
        vocabulary = self.vocabulary
        kept_ids, pending = boundary.kept_ids, boundary.pending
        while kept_ids and pending and pending[0] & 0xC0 == 0x80:
            kept_ids, pending = kept_ids[:-1], vocabulary.bytes_of(kept_ids[-1]) + pending
        whole = vocabulary.as_read(segment)
        if len(pending) >= len(whole):
            kept_ids, pending = (), whole
        n_more = len(boundary.kept_ids) - len(kept_ids)
        return Boundary(kept_ids, pending, boundary.dropped_tokens + n_more)

    @property
    def _typed_room(self) -> int:
        return min(MAX_TYPED, (self.room - self.n_fixed) // 4)

    def _target(self, text: str) -> int:
        """Where in the prefix a new anchor is to stand: the cursor's line start, or in steps."""
        line_start = text.rfind("\n") + 1
        # A character is three tokens at most, and few are more than one.
        step = max(self._typed_room // 3, 1)
        n_steps = (len(text) - line_start) // step
        return line_start + max(n_steps - 1, 0) * step

    def _new_anchor(
        self, clipped: CursorWindows, target: int, setting: object
    ) -> tuple[Anchor, int]:
        """An anchor at or before `target`, and where its text begins in the prefix window."""
        head = replace(clipped.prefix.head(target), truncated=clipped.prefix.truncated)
        room = self.room - self.n_fixed - self._typed_room
        prefix, suffix, n_share = self._fit(replace(clipped, prefix=head), room)
        windows = CursorWindows(prefix.window, suffix.window, clipped.line_end)
        extra = self._extra(windows, n_share + self._typed_room)
        encode = self._encode(self._begins_document(prefix.window, extra))
        ids, n_chars = self._stable_head(prefix.window.text, encode)
        at = target - len(prefix.window.text)
        anchor = Anchor(
            text=prefix.window.text[:n_chars],
            ids=ids,
            is_opening=not prefix.window.truncated,
            suffix=suffix.window.text,
            suffix_ids=suffix.ids,
            is_whole=not suffix.window.truncated,
            extra=extra,
            setting=setting,
        )
        return anchor, at

    def _stable_head(self, text: str, encode: Encode) -> tuple[tuple[int, ...], int]:
        """The tokens that stay whatever follows `text`, and how many characters they are."""
        try:
            boundary = stable_boundary(text.encode(), encode, self.vocabulary)
        except BoundaryError:
            return (), 0
        as_read = self.vocabulary.as_read
        for n_chars in range(len(text), 0, -1):
            tail = as_read(text[n_chars:].encode())
            if tail == boundary.pending:
                return boundary.kept_ids, n_chars
            if len(tail) > len(boundary.pending):
                break
        return (), 0

    def _behind(self, anchor: Anchor, at: int, clipped: CursorWindows) -> _Hole | None:
        """The hole with what was typed since the anchor behind it; None if that does not fit."""
        prefix = clipped.prefix.tail(at) if at else clipped.prefix
        suffix = clipped.suffix if anchor.is_whole else clipped.suffix.head(len(anchor.suffix))
        windows = CursorWindows(prefix, suffix, clipped.line_end)
        encode = self._encode(self._begins_document(prefix, anchor.extra))
        boundary = self._cut(prefix.text.encode(), encode)
        n_head = len(anchor.ids)
        n_typed = len(boundary.kept_ids) + boundary.dropped_tokens - n_head
        if n_typed > self._typed_room:
            return None
        if len(boundary.kept_ids) < n_head:
            # Never across the anchor: sentinels stand there.
            typed = self.vocabulary.as_read(prefix.text[len(anchor.text) :].encode())
            boundary = Boundary(anchor.ids, typed, max(n_typed, 0))
        if boundary.kept_ids[:n_head] != anchor.ids:
            return None
        boundary = replace(boundary, kept_ids=boundary.kept_ids[n_head:])
        return _Hole(boundary, anchor.ids, anchor.suffix_ids, anchor.extra, windows)


def _bos(vocabulary: Vocabulary) -> tuple[Part, ...]:
    if vocabulary.bos_id is None or not vocabulary.add_bos:
        return ()
    return (Part("bos", (vocabulary.bos_id,)),)


def _separator(layout: Layout, vocabulary: Vocabulary) -> tuple[Part, ...]:
    """The token that stood before a document in training, for text that is a document's head.

    Without it the first token takes its place, and what follows is guessed badly: 1.3 bits a
    token worse over the first four (SmolLM2, code). A model whose file names it as BOS and says
    that none is wanted gets none (F2).
    """
    token_id = vocabulary.special_id("<|endoftext|>")
    if layout.name != "plain" or token_id is None or token_id == vocabulary.bos_id:
        return ()
    return (Part("bos", (token_id,)),)


def _document_start(vocabulary: Vocabulary) -> Part:
    """What stands before the first token of a text, for a model that wants no BOS.

    Models in GPT-2's line saw documents one after the other with an end token between them:
    behind it anything may start. It is there by its text even where a chat model's file names
    other tokens as BOS and EOS.
    """
    known = (vocabulary.special_id("<|endoftext|>"), vocabulary.bos_id, vocabulary.eos_id)
    for token_id in known:
        if token_id is not None:
            return Part("bos", (token_id,))
    raise InvalidRequest("the prompt is empty, and this model cannot start from nothing")


def _barriers(parts: tuple[Part, ...]) -> tuple[int, ...]:
    starts = accumulate((len(part.ids) for part in parts), initial=0)
    return tuple(start for start, part in zip(starts, parts, strict=False) if part.is_control)
