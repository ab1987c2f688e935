"""From a request to the token ids that are evaluated for it.

  kept      the ids of the whole prompt, without those that healing gives back
  pending   the bytes given back, with which the generation has to begin
  barrier   the position of a control token: healing gives back nothing up to the last one

The text before the cursor can be healed only where it stands last. In a prompt that ends with a
sentinel its tail is kept as it is, which is how such models were trained: with cuts between
characters, not between tokens.

F1  Control ids come from the family and the BOS rule only; the user's text is never parsed.
S1  The space that SentencePiece reads before a text stands where a document begins only: not
    before a suffix, a prefix that was cut off at its start, or text behind other text.
F2  BOS stands first, exactly once, where the vocabulary wants one, and nowhere else.
P1  Prompt and output fit into the context, and the prompt is never empty.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from suture.server.prompt.budget import PromptBudget, extra_room, share_room
from suture.server.prompt.extra import plan_extra
from suture.server.prompt.families import FimFamily
from suture.server.prompt.layouts import Layout, LayoutName, choose_layout
from suture.server.prompt.parts import Part
from suture.server.prompt.text_encoding import TextEncoding, text_encoding
from suture.server.prompt.windows import (
    BYTES_PER_TOKEN,
    CursorWindows,
    EncodedWindow,
    cursor_windows,
    encode_window,
    trim_prefix,
    trim_suffix,
)
from suture.server.request import CompletionRequest, HealingLevel


@dataclass(frozen=True, slots=True)
class PromptPlan:
    """What is evaluated for a request, and what its generation must know of it.

    `kept_ids` is the whole prompt, control ids included, never empty. `pending` are the bytes
    that the generation must produce first and that are no output; `dropped_tokens` is how many
    tokens they were. `barriers` are positions in `kept_ids`, ascending. `level` is "recursive"
    if there is anything to heal, else "none". At any of `stop_ids` or, in a hole, of
    `stop_strings` the model has ended its text.
    `max_tokens` is as many as asked for, or as fit. `truncated` says that text of the request
    was left out. `segments` are the parts in order, as (role, number of tokens in `kept_ids`).
    `windows` are the texts at the cursor that the prompt shows, LF only, with the way back to
    the document's offsets and line ends.
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


def plan_prompt(
    request: CompletionRequest,
    vocabulary: Vocabulary,
    family: FimFamily | None,
    encode: Encode,
    budget: PromptBudget,
) -> PromptPlan:
    """The prompt for a request.

    However long the texts are, `encode` gets only some multiples of the budget to encode. Raises
    `InfillUnsupported` for a hole that the model cannot fill, and `InvalidRequest` for a layout
    that it was not trained in or an empty prompt where it has no token to start a text with.
    """
    encoding = text_encoding(encode, vocabulary, family)
    layout = choose_layout(request, vocabulary, family, encoding.inner)
    bos = _bos(vocabulary) or _separator(layout, vocabulary)
    n_fixed = len(bos) + layout.n_fixed
    room = budget.prompt_room(request.max_tokens, "latency" if request.infill else "context")
    if n_fixed > room:
        raise InvalidRequest(f"the context is too small: the prompt's frame takes {n_fixed} tokens")
    prefix, suffix, windows = _fit(request, layout, room - n_fixed, encoding, vocabulary)
    inner = encode_window(prefix.window, encoding.inner) if encoding.has_dummy_space else prefix
    n_used = n_fixed + max(len(prefix.ids), len(inner.ids)) + len(suffix.ids)
    left = extra_room(room, n_used)
    extra = plan_extra(request, windows.text, left, family, encoding, vocabulary)
    if windows.prefix.truncated or not layout.begins_with_prefix(extra.parts):
        boundary = _boundary(request, layout, inner, encoding.inner, vocabulary)
    else:
        boundary = _boundary(request, layout, prefix, encoding.opening, vocabulary)
    if windows.truncated:
        bos = _bos(vocabulary)
    parts = (*bos, *layout.parts(tuple(boundary.kept_ids), suffix.ids, extra.parts))
    if not any(part.ids for part in parts):
        parts = (_document_start(vocabulary), *parts)
    kept_ids = tuple(token_id for part in parts for token_id in part.ids)
    return PromptPlan(
        kept_ids=kept_ids,
        pending=boundary.pending,
        dropped_tokens=boundary.dropped_tokens,
        barriers=_barriers(parts),
        layout=layout.name,
        level="recursive" if boundary.pending else "none",
        stop_ids=vocabulary.eog_ids | (family.stop_ids if family else frozenset()),
        stop_strings=family.stop_strings if family and layout.name != "plain" else (),
        max_tokens=budget.output_room(request.max_tokens, len(kept_ids), len(boundary.pending)),
        truncated=windows.truncated or extra.truncated,
        segments=tuple((part.role, len(part.ids)) for part in parts),
        windows=windows,
    )


def _fit(
    request: CompletionRequest,
    layout: Layout,
    room: int,
    encoding: TextEncoding,
    vocabulary: Vocabulary,
) -> tuple[EncodedWindow, EncodedWindow, CursorWindows]:
    """The prefix and suffix that `room` tokens hold, encoded, and as the windows they are."""
    shown_suffix = request.suffix if layout.shows_suffix else ""
    clipped = cursor_windows(request.prefix, shown_suffix, room * BYTES_PER_TOKEN)
    is_opening = layout.begins_with_prefix(()) and not clipped.prefix.truncated
    prefix = encode_window(clipped.prefix, encoding.opening if is_opening else encoding.inner)
    suffix = encode_window(clipped.suffix, encoding.inner)
    n_prefix, n_suffix = share_room(room, len(prefix.ids), len(suffix.ids))
    prefix = trim_prefix(prefix, n_prefix, encoding.inner, vocabulary)
    suffix = trim_suffix(suffix, n_suffix, encoding.inner, vocabulary)
    return prefix, suffix, CursorWindows(prefix.window, suffix.window, clipped.line_end)


def _boundary(
    request: CompletionRequest,
    layout: Layout,
    prefix: EncodedWindow,
    encode: Encode,
    vocabulary: Vocabulary,
) -> Boundary:
    """Where the prefix ends in the prompt, as the request wants it healed."""
    if not layout.ends_with_prefix:
        return Boundary(prefix.ids, b"", 0)
    segment = prefix.window.text.encode()
    if request.healing == "off":
        return uncut_boundary(segment, encode, vocabulary)
    try:
        if request.give_back is None:
            boundary = stable_boundary(segment, encode, vocabulary)
        else:
            boundary = fixed_boundary(segment, request.give_back, encode, vocabulary)
    except BoundaryError:
        return uncut_boundary(segment, encode, vocabulary)
    # What no tokens could say again stays: a vocabulary may lack bytes of the text's end.
    is_sayable = coverable(vocabulary, boundary.pending)
    return boundary if is_sayable else uncut_boundary(segment, encode, vocabulary)


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
