"""The texts and streams that break systems of this kind, on every vocabulary llama.cpp ships."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cases import NEXT, STREAMS, TYPED
from support.vocabularies import pulled
from suture.healing import Detokenizer, TokenHealer, TokenTransducer, Vocabulary, stable_boundary
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

    def spelled(self, ids: tuple[int, ...]) -> bytes:
        return b"".join(map(self.vocabulary.bytes_of, ids))


@pytest.fixture(scope="module", params=NAMES)
def real(request: pytest.FixtureRequest, model_store: Path) -> Iterator[Real]:
    loaded = Real(pulled([request.param], model_store)[request.param])
    yield loaded
    loaded.tokenizer.close()


def test_b1_b2_hold_after_every_byte_of_every_text(real: Real) -> None:
    """Whatever is typed next, the kept tokens stay; characters are cut inside as well."""
    wrong = []
    for typed in TYPED:
        data = typed.encode()
        continued = [real.encode(data + more.encode()) for more in NEXT]
        for end in range(len(data) + 1):
            kept = stable_boundary(data[:end], real.encode, real.vocabulary)
            spelled = real.spelled(kept.kept_ids) + kept.pending
            if spelled not in (data[:end], b" " + data[:end]):
                wrong.append((data[:end], "B1", spelled))
            if any(ids[: len(kept.kept_ids)] != kept.kept_ids for ids in continued):
                wrong.append((data[:end], "B2", spelled))

    assert wrong == []


def test_h1_the_tokens_of_what_is_meant_are_never_forbidden(real: Real) -> None:
    """`x = a:` and then `//` too, in as many steps as the vocabulary takes for them."""
    vocabulary = real.vocabulary
    for typed in TYPED:
        boundary = stable_boundary(typed.encode(), real.encode, vocabulary)
        for more in NEXT:
            healer = TokenHealer(vocabulary, boundary.pending)
            for token_id in real.encode((typed + more).encode())[len(boundary.kept_ids) :]:
                # Markup that the tokenizer makes of text is never drawn.
                if healer.done or vocabulary.rank[token_id] < 0:
                    break
                assert healer.constraint().allows(token_id), (typed, more)
                healer.consume(token_id)


@pytest.mark.parametrize(
    ("pieces", "stops", "min_tokens", "deltas"),
    [case[1:] for case in STREAMS],
    ids=[case[0] for case in STREAMS],
)
def test_t1_streams_give_the_right_deltas_in_the_tokens_that_there_are(
    real: Real, pieces: list[str], stops: list[str], min_tokens: int, deltas: list[str]
) -> None:
    spelled = [tokens_of(real.vocabulary, bytes.fromhex(piece)) for piece in pieces]
    # Given for one token a piece; as many pieces as before, in more tokens.
    n_early = sum(map(len, spelled[: min_tokens - 1])) if min_tokens else 0
    detokenizer = Detokenizer(
        TokenTransducer(real.vocabulary, stops), min_tokens=n_early + 1 if min_tokens else 0
    )

    streamed = ["".join(map(detokenizer.feed, ids)) for ids in spelled]

    assert [*streamed, detokenizer.flush()] == deltas


def tokens_of(vocabulary: Vocabulary, piece: bytes) -> list[int]:
    """The one token that is `piece`, or the tokens of its bytes.

    Some vocabularies cannot say F5; another byte that begins no character takes its place.
    """
    whole = vocabulary.ids_of(piece)
    if whole:
        return [whole[0]]
    hopeless = next(byte for byte in b"\xf5\xc0\xff\x80" if byte in vocabulary.single_bytes)
    return [vocabulary.ids_of(bytes([hopeless if b == 0xF5 else b]))[0] for b in piece]
