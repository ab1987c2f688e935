"""Small tokenizers' own `decode`, each with one habit that a streaming decoder must survive."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from suture.healing import Decode


def byte_level(pieces: Sequence[bytes]) -> Decode:
    """The bytes joined, U+FFFD for each maximal ill-formed part."""

    def decode(ids: Sequence[int]) -> str:
        return b"".join(pieces[token_id] for token_id in ids).decode("utf-8", "replace")

    return decode


def wordpiece(words: Sequence[str]) -> Decode:
    """A space before every word but the first, none before ``##``; no clean-up."""

    def decode(ids: Sequence[int]) -> str:
        first, *others = [words[token_id] for token_id in ids] or [""]
        return first + "".join(
            word.removeprefix("##") if word.startswith("##") else " " + word for word in others
        )

    return decode


def tidying(words: Sequence[str]) -> Decode:
    """WordPiece with some of the usual clean-up of English, which moves what was said before."""
    join = wordpiece(words)

    def decode(ids: Sequence[int]) -> str:
        text = join(ids)
        for untidy, tidy in ((" ' ", "'"), (" .", "."), (" n't", "n't"), (" do not", " don't")):
            text = text.replace(untidy, tidy)
        return text

    return decode


def first_space_stripped(pieces: Sequence[str]) -> Decode:
    """SentencePiece without byte tokens: U+2581 is a space, and one at the start goes."""

    def decode(ids: Sequence[int]) -> str:
        text = "".join(pieces[token_id] for token_id in ids)
        return text.replace("▁", " ").removeprefix(" ")

    return decode


def byte_fallback(pieces: Sequence[str | int]) -> Decode:
    """As above with byte tokens (numbers): one bad byte makes every byte of its run a U+FFFD."""

    def run(values: Sequence[int]) -> str:
        try:
            return bytes(values).decode()
        except UnicodeDecodeError:
            return "\ufffd" * len(values)

    def decode(ids: Sequence[int]) -> str:
        text = ""
        for is_byte, group in groupby([pieces[i] for i in ids], lambda piece: type(piece) is int):
            if is_byte:
                text += run([value for value in group if isinstance(value, int)])
            else:
                words = "".join(piece for piece in group if isinstance(piece, str))
                text += words.replace("▁", " ")
        return text.removeprefix(" ")

    return decode


def erratic(texts: Sequence[str]) -> Decode:
    """One of the texts, by length and sum of the ids: no decode has to do with another."""

    def decode(ids: Sequence[int]) -> str:
        return texts[(7 * len(ids) + sum(ids)) % len(texts)] if ids else ""

    return decode
