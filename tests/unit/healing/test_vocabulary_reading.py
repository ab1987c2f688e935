"""Text as a SentencePiece tokenizer reads it, which is what is kept and given back (B1)."""

import pytest

from suture.healing import TokenKind, Vocabulary, fixed_boundary, stable_boundary

PIECES = [b"", *(bytes([byte]) for byte in range(256)), b" a", b"<x>", b"  "]
KINDS = [TokenKind.UNKNOWN, *[TokenKind.BYTE] * 256, *[TokenKind.NORMAL] * 3]
KINDS[258] = TokenKind.USER_DEFINED
SPM = Vocabulary(PIECES, kinds=KINDS, model="llama")


def encode(segment: bytes) -> list[int]:
    """As llama.cpp: ``<x>`` first, then a space before each text between, ``▁`` as a space."""
    ids: list[int] = []
    for index, text in enumerate(segment.split(b"<x>")):
        ids += [258] if index else []
        text = text.lstrip() if index else text
        read = b" " + text.replace("▁".encode(), b" ") if text else b""
        while read:
            length = 2 if read[:2] in (b" a", b"  ") else 1
            ids.append(PIECES.index(read[:length], 1))
            read = read[length:]
    return ids


def test_b1_at_the_start_of_a_text_the_space_before_it_is_given_back() -> None:
    """Without it, healing would force a token that no text begins with."""
    boundary = fixed_boundary(b"a", 1, encode, SPM)

    assert (boundary.kept_ids, boundary.pending) == ((), b" a")


@pytest.mark.parametrize("n_tokens", range(9))
@pytest.mark.parametrize(
    "text", ["a▁a", "▁", "b a<x>a b", "<x>", "<x>   b", "a<x><x>a", "x <x>\n b<x>"]
)
def test_b1_every_token_ends_where_it_is_read(text: str, n_tokens: int) -> None:
    ids = encode(text.encode())

    boundary = fixed_boundary(text.encode(), n_tokens, encode, SPM)

    kept = boundary.kept_ids
    assert kept == tuple(ids[: max(0, len(ids) - n_tokens)])
    spelled = b"".join(SPM.bytes_of(token_id) for token_id in ids)
    assert b"".join(map(SPM.bytes_of, kept)) + boundary.pending == spelled


@pytest.mark.parametrize("n_bytes", [1, 2])
def test_b2_an_unfinished_mark_may_become_a_space(n_bytes: int) -> None:
    """Two spaces are one token here, so the one before the mark is not certain."""
    unfinished = "▁".encode()[:n_bytes]

    boundary = stable_boundary(b"b " + unfinished, encode, SPM)

    assert boundary.pending == b" " + unfinished
    whole = tuple(encode("b ▁".encode()))
    assert whole[: len(boundary.kept_ids)] == boundary.kept_ids
