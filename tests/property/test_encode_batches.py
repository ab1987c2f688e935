"""Q1, Q2 with real tokenizers: prompts planned in batches, in a crowd, are those planned alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import suture.healing
from support.text import TRICKY_TEXTS
from support.vocabularies import pulled
from suture.healing import Encode, Vocabulary, tokenizer_of
from suture.server.codec import Encoder, choose_codec
from suture.server.counters import EncodeCounters
from suture.server.encoding import BatchedEncoding
from suture.server.engine.tokenizer import LlamaTokenizer
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.plan import PromptPlan, plan_prompt
from suture.server.request import CompletionRequest

pytestmark = pytest.mark.model

BUDGET = PromptBudget(n_ctx=2048, prefill_tokens_per_s=1e6)
SOURCES = sorted(Path(suture.healing.__file__).parent.glob("*.py"))
CODE = "".join(file.read_text("utf-8") for file in SOURCES)
SPELT = "<|fim_middle|> <|endoftext|> <|im_start|>"

Work = Callable[[Encode], object]


class Qwen:
    """One vocabulary and the encoders that texts may be sent to."""

    def __init__(self, path: Path) -> None:
        self.vocabulary = Vocabulary.from_gguf(path)
        self.own = LlamaTokenizer(path)
        fast = tokenizer_of(self.vocabulary)
        assert fast is not None
        chosen = choose_codec("tiktoken", "auto", self.vocabulary, self.own, fast)
        self.encoders = (
            chosen.encoder,
            Encoder(fast.encode_markup),
            Encoder(self.own.encode),
            Encoder(self.own.encode_markup),
        )


@pytest.fixture(scope="module")
def qwen(model_store: Path) -> Iterator[Qwen]:
    loaded = Qwen(pulled(["vocab-qwen2"], model_store)["vocab-qwen2"])
    yield loaded
    loaded.own.close()


def in_a_crowd(
    works: list[tuple[Work, Encoder]], max_texts: int, wait_s: float
) -> tuple[list[object], EncodeCounters]:
    """The results of all, run at the same time."""

    async def run() -> list[object]:
        return list(await asyncio.gather(*(encoding.run(*work) for work in works)))

    encoding = BatchedEncoding(max_texts, wait_s)
    try:
        return asyncio.run(run()), encoding.counters
    finally:
        encoding.close()


def text_at(start: int, n_characters: int) -> str:
    """Code, with texts in it that tell tokenizers apart."""
    pieces = random.Random(start).sample([*TRICKY_TEXTS, SPELT], 2)
    start %= len(CODE) - n_characters
    return pieces[0] + CODE[start : start + n_characters] + pieces[1]


@settings(max_examples=10, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 4000), st.integers(0, 3)),
        min_size=2,
        max_size=40,
    ),
    st.integers(2, 12),
    st.sampled_from([0.0, 0.001]),
)
def test_q1_q2_each_text_has_the_tokens_of_its_own_encoder(
    qwen: Qwen, texts: list[tuple[int, int, int]], max_texts: int, wait_s: float
) -> None:
    def encoding_of(piece: bytes) -> Work:
        return lambda encode: list(encode(piece))

    pieces = [text_at(start, n).encode("utf-8", "replace") for start, n, _ in texts]
    works = [
        (encoding_of(piece), qwen.encoders[flags])
        for piece, (_, _, flags) in zip(pieces, texts, strict=True)
    ]
    got, counters = in_a_crowd(works, max_texts, wait_s)
    alone = [list(encoder.encode(piece)) for piece, (_, encoder) in zip(pieces, works, strict=True)]
    assert got == alone
    assert counters.batch_texts.total <= len(texts)


def test_q1_whole_plans_are_those_made_alone(qwen: Qwen) -> None:
    def planning(start: int) -> Callable[[Encode], PromptPlan]:
        request = CompletionRequest(text_at(start, 9000))
        return lambda encode: plan_prompt(request, qwen.vocabulary, None, encode, BUDGET)

    plans = [planning(start) for start in range(0, 48_000, 1_000)]
    works: list[tuple[Work, Encoder]] = [
        (plan, qwen.encoders[(at % 2) * 2]) for at, plan in enumerate(plans)
    ]
    got, counters = in_a_crowd(works, max_texts=8, wait_s=0.001)
    assert got == [plan(encoder.encode) for plan, (_, encoder) in zip(plans, works, strict=True)]
    n_batches = sum(counters.batch_texts.counts)
    assert 0 < n_batches < counters.batch_texts.total


def test_a_batch_with_a_text_that_is_none_or_too_long_has_the_tokens_of_each(qwen: Qwen) -> None:
    plain = qwen.encoders[0]
    assert plain.encode_all is not None
    for odd in (b"caf\xc3", b"\xff" * 600, b" " * 300_000):
        pieces = [b"def f(): ...", odd, "naïve".encode()]
        encoded = plain.encode_all(pieces)
        assert [list(ids) for ids in encoded] == [list(plain.encode(piece)) for piece in pieces]
