"""The texts and streams that break systems of this kind, on every vocabulary llama.cpp ships."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cases import boundary_faults, healing_faults, stream_faults
from support.vocabularies import pulled
from suture.healing import Vocabulary
from suture.server.engine.tokenizer import LlamaTokenizer

pytestmark = pytest.mark.model

NAMES = [
    *("vocab-aquila", "vocab-baichuan", "vocab-command-r", "vocab-deepseek-coder"),
    *("vocab-deepseek-llm", "vocab-falcon", "vocab-gemma-4", "vocab-gpt-2", "vocab-gpt-neox"),
    *("vocab-llama-bpe", "vocab-llama-spm", "vocab-mpt", "vocab-phi-3", "vocab-qwen2"),
    *("vocab-qwen35", "vocab-refact", "vocab-starcoder"),
]


class Real:
    """A vocabulary, and its tokenizer as llama.cpp runs it."""

    def __init__(self, path: Path) -> None:
        self.vocabulary = Vocabulary.from_gguf(path)
        self.tokenizer = LlamaTokenizer(path)

    def encode(self, text: bytes) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text))


@pytest.fixture(scope="module", params=NAMES)
def real(request: pytest.FixtureRequest, model_store: Path) -> Iterator[Real]:
    loaded = Real(pulled([request.param], model_store)[request.param])
    yield loaded
    loaded.tokenizer.close()


def test_b1_b2_hold_after_every_byte_of_every_text(real: Real) -> None:
    """Whatever is typed next, the kept tokens stay; characters are cut inside as well."""
    assert list(boundary_faults(real.vocabulary, real.encode)) == []


def test_h1_the_tokens_of_what_is_meant_are_never_forbidden(real: Real) -> None:
    assert list(healing_faults(real.vocabulary, real.encode)) == []


def test_t1_streams_give_the_right_deltas_in_the_tokens_that_there_are(real: Real) -> None:
    assert list(stream_faults(real.vocabulary)) == []
