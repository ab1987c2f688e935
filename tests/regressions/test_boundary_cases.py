"""Text left of a cursor that has broken healing, on toy tokenizers of every family we know."""

from functools import cache

import pytest

from support.cases import NEXT, TYPED
from support.vocab import byte_level, sentencepiece_like
from suture.healing import Encode, TokenHealer, Vocabulary, reference, stable_boundary

FAMILIES = ["gpt2", "starcoder", "qwen2", "llama3", "deepseek-coder", "spm"]


@cache
def toy(family: str) -> tuple[Vocabulary, Encode]:
    return sentencepiece_like() if family == "spm" else byte_level(family)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("typed", TYPED)
def test_b1_b2_h1_hold_at_every_byte_of_the_last_characters(family: str, typed: str) -> None:
    vocabulary, encode = toy(family)
    data = typed.encode()

    for end in range(max(0, len(data) - 4), len(data) + 1):
        segment = data[:end]
        boundary = stable_boundary(segment, encode, vocabulary)
        kept = b"".join(map(vocabulary.bytes_of, boundary.kept_ids))
        assert (kept + boundary.pending).lstrip(b" ") == segment.lstrip(b" ")
        assert kept + boundary.pending in (segment, b" " + segment)
        if boundary.pending:
            assert TokenHealer(vocabulary, boundary.pending).constraint().hi >= 0
    if data:
        continuations = [text.encode() for text in NEXT]
        assert len(boundary.kept_ids) <= reference.count_stable(data, encode, continuations)
