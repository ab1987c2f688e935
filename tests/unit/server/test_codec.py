"""Which tokenizer and detokenizer a model gets, and what is said where one cannot be had."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from support.toy import toy_budget
from support.vocab import byte_level, sentencepiece_like, write_gguf
from suture.healing import (
    Encode,
    TiktokenTokenizer,
    TokenKind,
    Vocabulary,
    tokenizer_from_gguf,
)
from suture.healing.pieces import byte_level_alphabet
from suture.server.codec import (
    MAX_TIKTOKEN_BYTES,
    PROBES,
    Codec,
    choose_codec,
    lossy_probe,
    read_tiktoken,
)
from suture.server.completion import Completions, LoadedModel
from suture.server.engine.protocol import Logits
from suture.server.engine.scheduler import Scheduler
from suture.server.engine.scripted import ScriptedEngine
from suture.server.errors import SetupError
from suture.server.request import CompletionChunk, CompletionRequest


@dataclass(frozen=True)
class Own:
    """The model's own tokenizer, played by `encode`; markup is text to it."""

    vocabulary: Vocabulary
    encode_text: Encode

    def encode(self, piece: bytes) -> list[int]:
        return list(self.encode_text(piece))

    def encode_markup(self, piece: bytes) -> list[int]:
        return self.encode(piece)

    def decode(self, token_ids: Sequence[int]) -> str:
        return b"".join(map(self.vocabulary.bytes_of, token_ids)).decode("utf-8", "replace")

    def decode_markup(self, token_ids: Sequence[int]) -> str:
        return "".join(map(self.vocabulary.text_of, token_ids))


def bytes_only(tmp_path: Path) -> tuple[Path, TiktokenTokenizer, Own]:
    """A file whose tokens are the bytes and `th`, its fast tokenizer, and its own."""
    alphabet = byte_level_alphabet()
    strings = [*(alphabet[byte].encode() for byte in range(256)), b"th"]
    pairs: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": strings,
        "tokenizer.ggml.merges": [b"t h"],
    }
    path = write_gguf(tmp_path / "model.gguf", pairs, {})

    def encode(text: bytes) -> list[int]:
        parts = re.findall(rb"th|.", text, re.DOTALL)
        return [256 if part == b"th" else part[0] for part in parts]

    fast = tokenizer_from_gguf(path)
    assert fast is not None
    return path, fast, Own(Vocabulary.from_gguf(path), encode)


def changed_at(own: Own, mark: bytes, tokens: Sequence[int]) -> Own:
    """`own`, but texts with `mark` in them get these tokens."""

    def encode(text: bytes) -> Sequence[int]:
        return tokens if mark in text else own.encode(text)

    return replace(own, encode_text=encode)


def auto(own: Own, fast: TiktokenTokenizer | None = None) -> Codec:
    return choose_codec("auto", "auto", own.vocabulary, own, fast)


def test_tiktoken_is_taken_where_it_gives_the_same_tokens(tmp_path: Path) -> None:
    _, fast, own = bytes_only(tmp_path)
    codec = auto(own, fast)

    assert (codec.tokenizer.name, codec.detokenizer.name, codec.heals) == (
        "tiktoken",
        "bytes",
        True,
    )
    assert codec.encode(b"the th") == own.encode(b"the th")
    assert read_tiktoken("auto", own.vocabulary) is not None
    assert read_tiktoken("llama", own.vocabulary) is None


def test_a_text_with_other_tokens_is_named_or_ends_it(tmp_path: Path) -> None:
    _, fast, own = bytes_only(tmp_path)
    other = changed_at(own, b"camelCase", own.encode(PROBES[5].encode())[::-1])
    codec = auto(other, fast)

    told = "tiktoken gives other tokens for 'camelCase snake_case"
    assert codec.tokenizer.name == "llama" and codec.tokenizer.why.startswith(told)
    assert codec.encode == other.encode
    with pytest.raises(SetupError, match=f"--tokenizer tiktoken: .*{told}.*…'$"):
        choose_codec("tiktoken", "auto", other.vocabulary, other, fast)


def test_control_tokens_taken_as_such_have_to_agree_too(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Marking(Own):
        def encode_markup(self, piece: bytes) -> list[int]:
            return [1] if b"<|fim_middle|>" in piece else self.encode(piece)

    _, fast, own = bytes_only(tmp_path)
    codec = auto(Marking(own.vocabulary, own.encode_text), fast)

    assert "'<|fim_middle|>" in codec.tokenizer.why


@pytest.mark.parametrize(
    ("family", "told"),
    [
        ("falcon", "no one expression splits text as its family, falcon, does"),
        ("qwen2", "its ids or marked tokens are not in tiktoken's order"),
    ],
)
def test_without_an_encoding_the_reason_is_told(family: str, told: str) -> None:
    vocabulary, encode = byte_level(family)
    own = Own(vocabulary, encode)

    assert auto(own).tokenizer.why == told
    with pytest.raises(SetupError, match=told):
        choose_codec("tiktoken", "auto", vocabulary, own, None)


def test_a_family_that_is_not_known_is_not_tried() -> None:
    vocabulary = Vocabulary([bytes([byte]) for byte in range(256)], pretokenizer="brand-new")

    assert read_tiktoken("auto", vocabulary) is None
    codec = auto(Own(vocabulary, list))
    assert codec.tokenizer.why == "its family, brand-new, is not known"


def test_sentencepiece_is_not_even_tried() -> None:
    vocabulary, encode = sentencepiece_like()

    assert read_tiktoken("tiktoken", vocabulary) is None
    codec = auto(Own(vocabulary, encode))
    assert codec.tokenizer.why == "its vocabulary is not byte-level"
    assert codec.detokenizer.name == "bytes", "the space before a text is no loss"


def test_what_tiktoken_fails_at_goes_to_the_own_tokenizer(tmp_path: Path) -> None:
    _, fast, own = bytes_only(tmp_path)
    asked: list[int] = []

    def encode(text: bytes) -> list[int]:
        asked.append(len(text))
        return own.encode(text)

    codec = auto(replace(own, encode_text=encode), fast)
    asked.clear()
    for blank in (b" ", b"\n", b"\r\n", b"\t", "\u3000".encode(), b"x", b"7", "你".encode()):
        longest = blank * (MAX_TIKTOKEN_BYTES // len(blank))
        assert codec.encode(longest) == own.encode(longest)
    assert not asked

    assert len(codec.encode(b" " * 1_000_000)) == 1_000_000
    assert codec.encode(b"th\xff") == [256, 0xFF]
    assert asked == [1_000_000, 3]


def test_a_vocabulary_that_loses_text_is_decoded_in_windows_and_not_healed(
    tmp_path: Path,
) -> None:
    _, fast, own = bytes_only(tmp_path)
    lossy = changed_at(own, "我".encode(), [63])
    codec = auto(lossy, fast)

    assert lossy_probe(own.vocabulary, own.encode) is None
    assert (codec.detokenizer.name, codec.heals) == ("window", False)
    assert "'我很感谢" in codec.detokenizer.why and "no healing" in codec.detokenizer.why
    assert codec.windows is not None and codec.windows["skip"].decode([104, 105]) == "hi"
    with pytest.raises(SetupError, match=r"--detokenizer bytes: .*我很感谢"):
        choose_codec("auto", "bytes", own.vocabulary, lossy, fast)


def test_windows_may_be_asked_for_and_then_heal(tmp_path: Path) -> None:
    _, _, own = bytes_only(tmp_path)
    codec = choose_codec("llama", "window", own.vocabulary, own, None)

    assert (str(codec.tokenizer), str(codec.detokenizer)) == (
        "llama (asked for)",
        "window (asked for)",
    )
    assert codec.heals and codec.windows is not None


def test_the_probes_say_what_they_are_for() -> None:
    text = "".join(PROBES)
    for needle in ("\r\n", "\ufffd", "\u200d", "<|fim_middle|>", "e\u0301", "\t", "'ll", "1234"):
        assert needle in text
    assert len(text.encode()) < 4096


def test_text_without_tokens_is_planned_for_and_completed_unhealed() -> None:
    """SentencePiece without byte fallback: what it cannot spell is the unknown token."""
    pieces = [b"<unk>", b"</s>", *(bytes([byte]) for byte in range(128))]
    kinds = [TokenKind.UNKNOWN, TokenKind.CONTROL] + [TokenKind.NORMAL] * 128
    vocabulary = Vocabulary(pieces, kinds=kinds, eos_id=1, eog_ids=frozenset({1}), model="llama")

    def encode(text: bytes) -> list[int]:
        return [2 + ord(c) if c.isascii() else 0 for c in text.decode()]

    def next_token(tokens: Sequence[int]) -> Logits:
        row = np.zeros(vocabulary.n_vocab, np.float32)
        row[2 + ord("!") if tokens.count(2 + ord("!")) < 3 else 1] = 1.0
        return row

    own = Own(vocabulary, encode)
    model = LoadedModel(
        ScriptedEngine(vocabulary, encode, next_token), None, toy_budget(), auto(own)
    )

    async def run() -> list[CompletionChunk]:
        scheduler = Scheduler(lambda: model.engine)
        scheduler.start()
        scheduler.wait_ready(20)
        completions = Completions(scheduler)
        try:
            asked = completions.complete(CompletionRequest("é ab"), model)
            return [chunk async for chunk in asked]
        finally:
            completions.close()
            scheduler.close()

    chunks = asyncio.run(run())
    result = chunks[-1].result
    assert "".join(chunk.text for chunk in chunks) == "!!!"
    assert result is not None and (result.finish, result.healing.level) == ("eos", "none")
