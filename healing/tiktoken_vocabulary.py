"""The vocabulary of a tiktoken encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from suture.healing.pretokenizer import family_of_pattern
from suture.healing.specials import TokenKind, effective_kinds, end_ids
from suture.healing.token_table import TokenTable

if TYPE_CHECKING:
    import tiktoken


def read_encoding(
    encoding: tiktoken.Encoding, *, n_vocab: int | None, bos: str | None, eos: str | None
) -> TokenTable:
    """The tokens of `encoding`; an `eos` that it lacks is none.

    Raises `ValueError` where `bos` is not among its special tokens.
    """
    n_rows = max(encoding.max_token_value + 1, n_vocab or 0)
    specials = {
        text.encode(): encoding.encode_single_token(text) for text in encoding.special_tokens_set
    }
    if bos is not None and bos.encode() not in specials:
        raise ValueError(f"{encoding.name} has no special token {bos!r}")
    pieces = _pieces(encoding, n_rows)
    kinds = np.array(
        [TokenKind.NORMAL if piece else TokenKind.UNUSED for piece in pieces], np.int32
    )
    kinds[list(specials.values())] = TokenKind.CONTROL
    eos_id = None if eos is None else specials.get(eos.encode())
    return TokenTable(
        pieces,
        kinds=effective_kinds(kinds, specials, {}),
        n_vocab=n_rows,
        bos_id=None if bos is None else specials[bos.encode()],
        eos_id=eos_id,
        eog_ids=frozenset(end_ids(specials, {}) | ({eos_id} if eos_id is not None else set())),
        add_bos=bos is not None,
        model="gpt2",
        # An encoding shows its expression to nobody, but the splits are the better half of it.
        pretokenizer=family_of_pattern(encoding._pat_str),
    )


def _pieces(encoding: tiktoken.Encoding, n_rows: int) -> list[bytes]:
    """Bytes by id, those of its text for a special token, none in a gap."""
    pieces = [b""] * n_rows
    for token_id in range(encoding.max_token_value + 1):
        try:
            pieces[token_id] = encoding.decode_single_token_bytes(token_id)
        except KeyError:
            continue
    return pieces
