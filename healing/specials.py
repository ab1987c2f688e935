"""Token kinds, and the control tokens that a vocabulary file does not mark as such.

Converters mark too few: llama.cpp therefore knows end-of-generation and fill-in-the-middle
tokens by their text and overrides their kind. We use the same texts, or the engine would end a
generation at a token that we take for text.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt


class TokenKind(enum.IntEnum):
    """What a token is, in GGUF's numbers (`tokenizer.ggml.token_type`)."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_END_TEXTS = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
)
_FIM_TEXTS = {
    "pre": (
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
    ),
    "suf": (
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
    ),
    "mid": (
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
        "<|middle|>",
    ),
    "pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "sep": ("<|file_sep|>",),
}
# A model that says one of these has not finished its answer, but has left the text of the file.
_ENDING_FIM_ROLES = ("pad", "rep", "sep")
# gpt-oss marks them as control tokens and yet expects to see them.
_VISIBLE_TEXTS = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")


def effective_kinds(
    kinds: npt.NDArray[np.int32], ids: Mapping[bytes, int], fim_ids: Mapping[str, int]
) -> npt.NDArray[np.int32]:
    """The declared kinds, put right for tokens that are known by their text."""
    kinds = kinds.copy()
    kinds[list(control_ids(ids, fim_ids))] = TokenKind.CONTROL
    kinds[list(visible_ids(ids))] = TokenKind.USER_DEFINED
    return kinds


def control_ids(ids: Mapping[bytes, int], fim_ids: Mapping[str, int]) -> set[int]:
    """Ids that are control tokens by their text or role, whatever their declared kind.

    A role of `fim_ids` that the file names explicitly is not looked for by text.
    """
    by_role = _fim_ids_by_text(ids, fim_ids) | dict(fim_ids)
    return set(by_role.values()) | set(_known(ids, _END_TEXTS).values()) - _not_ending(ids)


def visible_ids(ids: Mapping[bytes, int]) -> set[int]:
    """Ids that are text by their text, although their declared kind is control."""
    return set(_known(ids, _VISIBLE_TEXTS).values()) | _not_ending(ids) - _normal_ids(ids)


def end_ids(ids: Mapping[bytes, int], fim_ids: Mapping[str, int]) -> set[int]:
    """Ids after which nothing of the completion follows, by their text."""
    by_role = _fim_ids_by_text(ids, fim_ids) | dict(fim_ids)
    ending = {by_role[role] for role in _ENDING_FIM_ROLES if role in by_role}
    return ending | set(_known(ids, _END_TEXTS).values()) - _not_ending(ids)


def _fim_ids_by_text(ids: Mapping[bytes, int], fim_ids: Mapping[str, int]) -> dict[str, int]:
    found = {}
    for role, texts in _FIM_TEXTS.items():
        known = _known(ids, texts)
        if role not in fim_ids and known:
            found[role] = min(known.values())
    return found


def _known(ids: Mapping[bytes, int], texts: tuple[str, ...]) -> dict[str, int]:
    return {text: ids[text.encode()] for text in texts if text.encode() in ids}


def _not_ending(ids: Mapping[bytes, int]) -> set[int]:
    """`<|end|>` only ends a channel in harmony's format, `</s>` is plain text for Gemma 4."""
    texts = set(_known(ids, _END_TEXTS))
    harmony = {"<|return|>", "<|call|>"} <= texts
    solar = bool({"<|call|>", "<|calls|>"} & texts) and "<|flush|>" in texts
    ended = _known(ids, ("<|end|>",)) if harmony or solar else {}
    return set(ended.values()) | _normal_ids(ids)


def _normal_ids(ids: Mapping[bytes, int]) -> set[int]:
    gemma = b"<|tool_response>" in ids or b"<|plamo:eos|>" in ids
    return set(_known(ids, ("</s>",)).values()) if gemma else set()
