"""The tokenizer of a model that runs elsewhere: the one that is asked for, or a refusal."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers

from support.http_server import settings
from suture.server.engine.remote.tokenizer import read_tokenizer
from suture.server.errors import SetupError


@pytest.fixture
def tokenizer_json(tmp_path: Path) -> Path:
    """Bytes, and a pair of them."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    texts = {sign: i for i, sign in enumerate([*alphabet, "de"])}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(texts, [("d", "e")]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>"])
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return path


@pytest.mark.parametrize(
    ("asked", "used"), [("auto", "bytes"), ("bytes", "bytes"), ("window", "window")]
)
def test_text_is_made_as_it_is_asked_for(tokenizer_json: Path, asked: str, used: str) -> None:
    _, codec = read_tokenizer(tokenizer_json, settings(detokenizer=asked))
    assert codec.detokenizer.name == used
    assert (codec.windows is not None) == (used == "window")


@pytest.mark.parametrize("asked", ["auto", "llama"])
def test_tokens_are_those_of_the_models_own_tokenizer(tokenizer_json: Path, asked: str) -> None:
    vocabulary, codec = read_tokenizer(tokenizer_json, settings(tokenizer=asked))
    assert [*map(vocabulary.bytes_of, codec.encode(b"def"))] == [b"de", b"f"]


def test_tiktoken_is_refused_for_a_tokenizer_json(tokenizer_json: Path) -> None:
    with pytest.raises(SetupError, match="--tokenizer tiktoken"):
        read_tokenizer(tokenizer_json, settings(tokenizer="tiktoken"))


@pytest.mark.model
@pytest.mark.parametrize("asked", ["tiktoken", "llama"])
def test_tokens_of_a_gguf_are_made_as_it_is_asked_for(small_model: Path, asked: str) -> None:
    at = settings(tokenizer=asked, detokenizer="window")
    _, codec = read_tokenizer(small_model, at)
    assert (codec.tokenizer.name, codec.detokenizer.name) == (asked, "window")
