"""Token ids to text and back, on real vocabularies with llama.cpp's own tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.text import TRICKY_TEXTS
from support.vocabularies import pulled
from suture.healing import Vocabulary
from suture.server.codec import Codec, choose_codec
from suture.server.engine.tokenizer import LlamaTokenizer
from suture.server.prompt.families import detect_family
from suture.server.prompt.text_encoding import text_encoding
from suture.server.token_texts import NoText, TokenTexts, token_texts

pytestmark = pytest.mark.model

# SentencePiece with its space before a text; byte-level with a BOS, and without.
NAMES = ["vocab-llama-spm", "vocab-llama-bpe", "vocab-qwen2"]
TEXTS = [*TRICKY_TEXTS.values(), " x", "  x", "def area(width):\n    return width * 2\n"]


@dataclass(frozen=True)
class Model:
    vocabulary: Vocabulary
    codec: Codec
    texts: TokenTexts


@pytest.fixture(scope="module", params=NAMES)
def model(request: pytest.FixtureRequest, model_store: Path) -> Iterator[Model]:
    path = pulled([request.param], model_store)[request.param]
    vocabulary = Vocabulary.from_gguf(path)
    tokenizer = LlamaTokenizer(path)
    codec = choose_codec("llama", "auto", vocabulary, tokenizer, None)
    yield Model(vocabulary, codec, token_texts(vocabulary, codec, detect_family(vocabulary, "")))


@pytest.mark.parametrize("text", TEXTS)
def test_the_ids_of_a_text_are_a_prompt_of_the_same_ids(model: Model, text: str) -> None:
    encoding = text_encoding(model.codec.encode, model.vocabulary)
    ids = list(encoding.opening(text.encode()))
    read = model.vocabulary.as_read(text.encode()).decode()
    for prompt in (ids, [*model.texts.opening_ids, *ids]):
        taken = model.texts.prompt_text(prompt)
        assert taken == read
        assert list(encoding.opening(taken.encode())) == ids


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_are_shown_as_they_were_written(model: Model, text: str) -> None:
    for reading in (model.codec.reading("parse"), model.codec.reading("spell")):
        ids = reading.encode(text.encode())
        read, shown = text.encode(), b"".join(map(model.texts.shown, ids))
        if model.vocabulary.model == "llama":  # blanks are what it adds, and reads otherwise
            read = model.vocabulary.as_read(read).replace(b" ", b"")
            shown = shown.replace(b" ", b"")
        assert shown == read


def test_no_control_token_is_part_of_a_prompt(model: Model) -> None:
    for token_id in model.vocabulary.control_ids - set(model.texts.opening_ids):
        with pytest.raises(NoText):
            model.texts.prompt_text([token_id])
