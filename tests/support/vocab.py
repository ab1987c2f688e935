"""Small vocabularies with their tokenizers, each with one property that breaks careless code."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from suture.healing import Encode, TokenKind, Vocabulary
from suture.healing.pretokenizer import Pretokenizer

SAMPLE = """\
def is_palindrome(userName: str) -> bool:
    \"\"\"Return True if userName reads the same backwards.\"\"\"
    return userName == userName[::-1]


class Reader:
    def __init__(self, url="https://example.org/") -> None:
        self.url = url
        self.userNames = []

\tdef close(self):
\t\treturn self.url, self.userName, numpy.linalg
for name in range(100):
    print('Hello, world', name, name)  # don't, we're, we'll
import numpy as np
    if userName:\r\n        return \r\n
é 我很感谢你 我很好 👩‍👩‍👧‍👦 မင်္ဂလာပါ
"""


def train_merges(pretokens: Sequence[Sequence[bytes]], n_merges: int) -> list[tuple[bytes, bytes]]:
    """The merges that byte-pair encoding learns from these pretokens, most frequent first."""
    words = [list(pretoken) for pretoken in pretokens]
    merges: list[tuple[bytes, bytes]] = []
    for _ in range(n_merges):
        counts = Counter(pair for word in words for pair in pairwise(word))
        if not counts:
            break
        best = max(counts, key=lambda pair: (counts[pair], pair))
        merges.append(best)
        words = [merge_once(word, best) for word in words]
    return merges


def merge_once(word: Sequence[bytes], pair: tuple[bytes, bytes]) -> list[bytes]:
    """The word with every occurrence of the pair joined, from the left."""
    joined: list[bytes] = []
    for symbol in word:
        if joined and (joined[-1], symbol) == pair:
            joined[-1] += symbol
        else:
            joined.append(symbol)
    return joined


def merge_all(word: Sequence[bytes], ranks: dict[tuple[bytes, bytes], int]) -> list[bytes]:
    """The word after all merges, the earliest learned first."""
    symbols = list(word)
    while known := [pair for pair in pairwise(symbols) if pair in ranks]:
        symbols = merge_once(symbols, min(known, key=ranks.__getitem__))
    return symbols


def byte_level(family: str = "qwen2", n_merges: int = 250) -> tuple[Vocabulary, Encode]:
    """All 256 bytes and the merges of `SAMPLE`, split as the named family does."""
    pretokenizer = Pretokenizer(family)
    words = [_symbols(word.encode()) for word in pretokenizer.split(SAMPLE)]
    merges = train_merges(words, n_merges)
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    pieces = [*_symbols(bytes(range(256))), *(left + right for left, right in merges)]
    ids = {piece: token_id for token_id, piece in enumerate(pieces)}

    def encode(text: bytes) -> list[int]:
        words = pretokenizer.split(text.decode())
        return [ids[piece] for word in words for piece in merge_all(_symbols(word.encode()), ranks)]

    rows = np.array([(ids[a], ids[b], ids[a + b]) for a, b in merges], np.int32).reshape(-1, 3)
    return Vocabulary(pieces, model="gpt2", pretokenizer=family, merges=lambda: rows), encode


def sentencepiece_like(n_merges: int = 200) -> tuple[Vocabulary, Encode]:
    """Characters, byte tokens beside them (so ``a`` has two ids), a space put before the text."""
    merges = train_merges([_characters(" " + line) for line in SAMPLE.splitlines()], n_merges)
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    characters = sorted(
        {character.encode() for character in SAMPLE if character.isascii()} | {b" "}
    )
    specials = [b"<unk>", b"<s>", b"</s>"]
    pieces = [*specials, *_symbols(bytes(range(256))), *characters]
    pieces += dict.fromkeys(left + right for left, right in merges)
    kinds = [TokenKind.UNKNOWN, TokenKind.CONTROL, TokenKind.CONTROL]
    kinds += [TokenKind.BYTE] * 256 + [TokenKind.NORMAL] * (len(pieces) - 259)
    ids = {piece: token_id for token_id, piece in enumerate(pieces) if token_id >= 259}

    def encode(text: bytes) -> list[int]:
        symbols = merge_all(_characters(" " + text.decode()), ranks)
        return [i for symbol in symbols for i in _ids_or_bytes(symbol, ids)]

    vocabulary = Vocabulary(
        pieces,
        kinds=kinds,
        bos_id=1,
        eos_id=2,
        eog_ids=frozenset({2}),
        add_bos=True,
        model="llama",
    )
    return vocabulary, encode


def without_single_bytes() -> Vocabulary:
    """Cannot spell everything: after ``ab`` nothing spells a single ``d``."""
    return Vocabulary([b"ab", b"abc", b"c", b"cde", b"cd", b"de", b"e f", b" ", b"\xff\xff"])


def with_specials() -> Vocabulary:
    """Control, unknown, unused, added and padding rows among two letters and blanks."""
    tokens = [
        ("<|endoftext|>", TokenKind.CONTROL),
        ("<unk>", TokenKind.UNKNOWN),
        ("a", TokenKind.NORMAL),
        ("b", TokenKind.NORMAL),
        ("ab", TokenKind.NORMAL),
        ("<tool_call>", TokenKind.USER_DEFINED),
        ("    ", TokenKind.USER_DEFINED),
        ("gap", TokenKind.UNUSED),
        ("<", TokenKind.NORMAL),
        (" ", TokenKind.NORMAL),
        ("", TokenKind.NORMAL),
    ]
    return Vocabulary(
        [text.encode() for text, _ in tokens],
        kinds=[kind for _, kind in tokens],
        n_vocab=16,
        eos_id=0,
        eog_ids=frozenset({0}),
    )


def of_pieces(pieces: Sequence[bytes]) -> Vocabulary:
    """Exactly these tokens, by position."""
    return Vocabulary(pieces)


def write_gguf(path: Path, pairs: dict[str, object], shapes: dict[str, tuple[int, ...]]) -> Path:
    """A GGUF file with this metadata and these tensors' shapes, in f32, and no tensor data.

    The data belong behind the header, each tensor's at a multiple of 32 bytes.
    """
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(shapes), len(pairs))]
    for key, value in pairs.items():
        parts += [_string(key.encode()), _value(value)]
    offset = 0
    for name, shape in shapes.items():
        parts += [_string(name.encode()), struct.pack(f"<I{len(shape)}Q", len(shape), *shape)]
        parts.append(struct.pack("<IQ", 0, offset))
        offset += -(-4 * math.prod(shape) // 32) * 32
    path.write_bytes(b"".join(parts))
    return path


def _value(value: object) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + _string(value.encode())
        case list():
            return struct.pack("<I", 9) + _array(value)
    raise TypeError(f"no GGUF type for {value!r}")


def _array(values: list[object]) -> bytes:
    if values and isinstance(values[0], bytes):
        items = b"".join(_string(value) for value in values if isinstance(value, bytes))
        return struct.pack("<IQ", 8, len(values)) + items
    if values and isinstance(values[0], list):
        items = b"".join(_array(value) for value in values if isinstance(value, list))
        return struct.pack("<IQ", 9, len(values)) + items
    if values and isinstance(values[0], float):
        return struct.pack(f"<IQ{len(values)}f", 6, len(values), *values)
    return struct.pack(f"<IQ{len(values)}i", 5, len(values), *values)


def _string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _symbols(data: bytes) -> list[bytes]:
    return [bytes([byte]) for byte in data]


def _characters(text: str) -> list[bytes]:
    return [character.encode() for character in text]


def _ids_or_bytes(symbol: bytes, ids: dict[bytes, int]) -> list[int]:
    return [ids[symbol]] if symbol in ids else [3 + byte for byte in symbol]
