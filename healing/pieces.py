"""From the token strings of a GGUF file to the bytes that the tokens stand for.

Three spellings: *byte-level* (GPT-2's alphabet: every byte is one printable character),
*SentencePiece* (``▁`` is a space, ``<0x0A>`` a byte), and others that have no bytes of their own
(WordPiece), which are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from suture.healing.specials import TokenKind

SPACE_MARK = "▁".encode()
_SPACE_ESCAPED = ("gemma4", "granite-embed-multi-311m", "sarvam-moe")


class UnsupportedVocabulary(ValueError):
    """The bytes of this vocabulary's tokens depend on their neighbours, or are unknown to us."""


def pieces_of(
    strings: Sequence[bytes], kinds: npt.NDArray[np.int32], model: str, pretokenizer: str
) -> list[bytes]:
    """The bytes of every token; for control, unknown and unused ones those of its own text.

    Raises `UnsupportedVocabulary` for a tokenizer model that is not byte-homomorphic.
    """
    if escapes_spaces(model, pretokenizer):
        pieces = [string.replace(SPACE_MARK, b" ") for string in strings]
    elif model == "gpt2":
        pieces = _from_byte_level(strings)
    else:
        raise UnsupportedVocabulary(
            f"tokenizer model {model!r} is not supported: its tokens have no fixed bytes"
        )
    for token_id in np.flatnonzero(kinds != TokenKind.NORMAL).tolist():
        string = strings[token_id]
        pieces[token_id] = _byte_of(string) if kinds[token_id] == TokenKind.BYTE else string
    return pieces


def escapes_spaces(model: str, pretokenizer: str) -> bool:
    """Whether a space is written ``▁``, in the text to tokenize too."""
    return model in ("llama", "gemma4") or pretokenizer in _SPACE_ESCAPED


def _byte_of(string: bytes) -> bytes:
    """The byte that ``<0x41>`` names. Another spelling is taken as it stands."""
    if len(string) == 6 and string[:3] == b"<0x" and string[5:] == b">":
        try:
            return bytes([int(string[3:5], 16)])
        except ValueError:
            return string
    return string


def _from_byte_level(strings: Sequence[bytes]) -> list[bytes]:
    """Bytes of byte-level strings; one with a character outside the alphabet keeps its UTF-8.

    All at once in numpy: the alphabet's characters take one or two bytes of UTF-8.
    """
    blob = np.frombuffer(b"".join(strings) + b"\0", np.uint8).astype(np.int32)
    is_start = (blob & 0xC0) != 0x80
    is_pair = (blob >= 0xC2) & (blob < 0xC8)
    following = np.roll(blob, -1)
    code_points = np.where(is_pair, (blob & 0x1F) << 6 | (following & 0x3F), blob)
    code_points[(blob >= 0xC8) | ~is_start] = 0
    mapped = _BYTE_OF_CHARACTER[code_points]
    ends = np.cumsum(np.fromiter(map(len, strings), np.int64, len(strings)))
    n_starts = np.concatenate(([0], np.cumsum(is_start)))
    offsets = n_starts[np.concatenate(([0], ends))].tolist()
    data = mapped[is_start].astype(np.uint8).tobytes()
    pieces = [data[a:b] for a, b in pairwise(offsets)]
    foreign = np.flatnonzero((mapped < 0) & is_start)[:-1]
    for token_id in set(np.searchsorted(ends, foreign, side="right").tolist()):
        pieces[token_id] = strings[token_id]
    return pieces


def byte_level_alphabet() -> dict[int, str]:
    """Byte to character: printable Latin-1 stands for itself, the rest from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(0x100 + index) for index, byte in enumerate(others)
    }


def _byte_of_character() -> npt.NDArray[np.int32]:
    table = np.full(0x200, -1, np.int32)
    for byte, character in byte_level_alphabet().items():
        table[ord(character)] = byte
    return table


_BYTE_OF_CHARACTER = _byte_of_character()
