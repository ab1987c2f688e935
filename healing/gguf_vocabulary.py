"""The vocabulary in the header of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from suture.healing.gguf import GgufError, GgufHeader
from suture.healing.pieces import pieces_of
from suture.healing.specials import TokenKind, effective_kinds, end_ids
from suture.healing.token_table import MergeSource, TokenTable

_FIM_KEYS = {
    "pre": ("fim_pre_token_id", "prefix_token_id"),
    "suf": ("fim_suf_token_id", "suffix_token_id"),
    "mid": ("fim_mid_token_id", "middle_token_id"),
    "pad": ("fim_pad_token_id",),
    "rep": ("fim_rep_token_id",),
    "sep": ("fim_sep_token_id",),
}
# The largest vocabularies have a quarter of a million tokens.
_MAX_ROWS = 1 << 24
# Families whose files may leave `add_bos_token` out and still mean it.
_BOS_PRETOKENIZERS = frozenset(
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano"
    " tekken chameleon".split()
)


def table_of(header: GgufHeader) -> TokenTable:
    """The tokens of a model file.

    Raises `GgufError` for a file that has no tokens, and `UnsupportedVocabulary` for a tokenizer
    whose tokens have no fixed bytes.
    """
    metadata = header.metadata
    strings = _strings(metadata, "tokenizer.ggml.tokens")
    if not strings:
        raise GgufError("the file has no vocabulary (tokenizer.ggml.tokens)")
    model = str(metadata.get("tokenizer.ggml.model", ""))
    pretokenizer = str(metadata.get("tokenizer.ggml.pre", "default"))
    is_spm = model == "llama"
    ids = dict(zip(strings, range(len(strings)), strict=True))
    fim_ids = _explicit_fim_ids(metadata, len(strings))
    kinds = _kinds(metadata, len(strings), ids, fim_ids)
    eos_id = _id(metadata, "eos_token_id", len(strings), default=2 if is_spm else None)
    ends = (_id(metadata, key, len(strings)) for key in ("eot_token_id", "eom_token_id"))
    return TokenTable(
        pieces_of(strings, kinds, model, pretokenizer),
        kinds=kinds,
        n_vocab=max(len(strings), _n_rows(metadata, header.tensor_shapes)),
        bos_id=_id(metadata, "bos_token_id", len(strings), default=1 if is_spm else None),
        eos_id=eos_id,
        eog_ids=frozenset({i for i in (eos_id, *ends) if i is not None} | end_ids(ids, fim_ids)),
        add_bos=_flag(metadata, "add_bos_token", is_spm or pretokenizer in _BOS_PRETOKENIZERS),
        model=model,
        pretokenizer=pretokenizer,
        fim_ids=fim_ids,
        merges=_merges(metadata, ids),
        architecture=str(metadata.get("general.architecture", "")),
        title=str(metadata.get("general.name", "")),
    )


def _merges(metadata: Mapping[str, object], ids: Mapping[bytes, int]) -> MergeSource | None:
    merges = _strings(metadata, "tokenizer.ggml.merges")
    return None if merges is None else partial(_merge_rows, merges, ids)


def _strings(metadata: Mapping[str, object], key: str) -> list[bytes] | None:
    """An array of strings; None if there is none, or one of something else."""
    values = metadata.get(key)
    if not isinstance(values, list):
        return None
    strings = [value for value in values if isinstance(value, bytes)]
    return strings if len(strings) == len(values) else None


def _flag(metadata: Mapping[str, object], key: str, default: bool) -> bool:
    value = metadata.get(f"tokenizer.ggml.{key}")
    return bool(value) if isinstance(value, int) else default


def _merge_rows(merges: Sequence[bytes], ids: Mapping[bytes, int]) -> npt.NDArray[np.int32]:
    # In the byte-level alphabet no space stands for itself, so the first one is the seam.
    parts = [merge.partition(b" ") for merge in merges]
    rows = np.empty((len(merges), 3), np.int32)
    rows[:, 0] = [ids.get(left, -1) for left, _, _ in parts]
    rows[:, 1] = [ids.get(right, -1) for _, _, right in parts]
    rows[:, 2] = [ids.get(left + right, -1) for left, _, right in parts]
    return rows


def _kinds(
    metadata: Mapping[str, object],
    n_tokens: int,
    ids: Mapping[bytes, int],
    fim_ids: Mapping[str, int],
) -> npt.NDArray[np.int32]:
    kinds = np.full(n_tokens, TokenKind.NORMAL, np.int32)
    declared = metadata.get("tokenizer.ggml.token_type")
    if declared is not None:
        if (
            not isinstance(declared, np.ndarray)
            or declared.dtype.kind not in "iu"
            or len(declared) < n_tokens
        ):
            raise GgufError("tokenizer.ggml.token_type does not give every token a kind")
        kinds[:] = declared[:n_tokens]
    kinds[~np.isin(kinds, list(TokenKind))] = TokenKind.UNUSED
    # Old converters fill unused rows with user-defined tokens of this form.
    padding = [i for text, i in ids.items() if text[:4] == b"[PAD" and text == b"[PAD%d]" % i]
    kinds[padding] = TokenKind.UNUSED
    return effective_kinds(kinds, ids, fim_ids)


def _explicit_fim_ids(metadata: Mapping[str, object], n_tokens: int) -> dict[str, int]:
    found = {
        role: [_id(metadata, key, n_tokens) for key in keys] for role, keys in _FIM_KEYS.items()
    }
    return {role: i for role, ids in found.items() for i in ids[::-1] if i is not None}


def _id(
    metadata: Mapping[str, object], key: str, n_tokens: int, default: int | None = None
) -> int | None:
    value = metadata.get(f"tokenizer.ggml.{key}")
    return value if isinstance(value, int) and 0 <= value < n_tokens else default


def _n_rows(metadata: Mapping[str, object], shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Rows of the logits. Raises `GgufError` for more than any model could have."""
    declared = metadata.get(f"{metadata.get('general.architecture')}.vocab_size")
    n_rows = declared if isinstance(declared, int) else 0
    for name in ("token_embd.weight", "output.weight"):
        if len(shapes.get(name, ())) == 2:
            n_rows = shapes[name][1]
    if n_rows > _MAX_ROWS:
        raise GgufError(f"the file claims {n_rows} rows of logits, and {_MAX_ROWS} at most can be")
    return n_rows
