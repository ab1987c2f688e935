from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Literal

import numpy as np
import pytest

from support.toy import PIECES, special, toy_encode, toy_vocabulary
from suture.healing import TokenHealer, Vocabulary
from suture.server.engine.remote.errors import (
    BackendFailed,
    BackendRefused,
    TokenizerDiffers,
)
from suture.server.engine.remote.openai import OpenAI
from suture.server.engine.remote.probe import Detected, Probed, detect, model_of, probe
from suture.server.engine.remote.protocol import Json
from suture.server.engine.remote.vllm import Vllm, VllmStrict
from suture.server.errors import SetupError

VOCABULARY = toy_vocabulary()
SERVER = Detected("vllm", "0.32.0", ("tiny",), 2048)
WANTED = toy_encode(b" const user return x")
NO_LOGITS = np.zeros(VOCABULARY.n_vocab, np.float32)
Behaviour = Literal["recursive", "canonical", "ignores", "takes specials", "refuses", "no biases"]


class TinyEngine:
    """Speaks as vLLM does, and heals as told to."""

    def __init__(self, behaviour: Behaviour, shown: Vocabulary = VOCABULARY) -> None:
        self.behaviour = behaviour
        self.shown = shown
        self.bodies: list[Json] = []

    async def ask(self, body: Json, path: str) -> AsyncGenerator[object, None]:
        assert path == "/v1/completions"
        self.bodies.append(body)
        pending = self.pending(body)
        if self.behaviour == "refuses" and pending:
            raise BackendRefused("no regular expressions here")
        if self.behaviour == "no biases" and body.get("logit_bias"):
            raise BackendRefused("no logit_bias with speculative decoding")
        for token_id in self.said(pending, body):
            text = self.shown.bytes_of(token_id).decode("utf-8", "replace")
            yield {"choices": [{"index": 0, "text": text, "token_ids": [token_id]}]}
        yield {"choices": [{"index": 0, "text": "", "token_ids": [], "finish_reason": "length"}]}

    def pending(self, body: Json) -> bytes:
        if "vllm_xargs" in body:
            return bytes.fromhex(body["vllm_xargs"]["heal_hex"])
        regex = body.get("structured_outputs", {}).get("regex", "")
        literal = regex.removesuffix(r"[\s\S]*")
        signs = {"n": "\n", "t": "\t", "r": "\r"}
        return re.sub(r"\\(.)", lambda m: signs.get(m[1], m[1]), literal).encode()

    def said(self, pending: bytes, body: Json) -> Sequence[int]:
        if self.behaviour == "ignores":
            return WANTED[:3]
        if self.behaviour == "takes specials" and pending.startswith(b"<"):
            return [special("<|fim_prefix|>")]
        if self.behaviour == "canonical":
            return toy_encode(pending)
        healer, ids = TokenHealer(VOCABULARY, pending), list[int]()
        biases = {int(i): bias for i, bias in body.get("logit_bias", {}).items()}
        while not healer.done:
            allowed, _ = healer.constraint().apply(NO_LOGITS, VOCABULARY)
            best = max(allowed.tolist(), key=lambda i: (biases.get(i, 0), len(PIECES[i])))
            healer.consume(best)
            ids.append(best)
        return ids


def probed(engine: TinyEngine, adapter: Vllm | OpenAI | None = None) -> Probed:
    async def run() -> Probed:
        adapted = adapter or Vllm()
        return await probe(SERVER, adapted, "tiny", engine.ask, VOCABULARY, toy_encode)

    return asyncio.run(run())


def test_an_engine_that_heals_by_the_recursive_rule_is_found_in_ten_requests() -> None:
    engine = TinyEngine("recursive")
    found = probed(engine)
    assert (found.level, found.version, found.model, found.n_ctx) == (
        "recursive",
        "0.32.0",
        "tiny",
        2048,
    )
    assert len(engine.bodies) == 10
    assert "structured_outputs" not in engine.bodies[0]


def test_the_strict_variant_is_probed_by_its_own_field() -> None:
    engine = TinyEngine("recursive")
    assert probed(engine, VllmStrict()).level == "recursive"
    assert "vllm_xargs" in engine.bodies[1]


def test_one_that_says_pending_bytes_in_its_own_tokens_only_is_canonical() -> None:
    assert probed(TinyEngine("canonical")).level == "canonical"


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        ("ignores", "held to"),
        ("takes specials", "held to '<'"),
        ("refuses", "no regular expressions"),
    ],
)
def test_one_that_cannot_be_held_to_anything_heals_nothing_and_it_says_why(
    behaviour: Behaviour, why: str
) -> None:
    found = probed(TinyEngine(behaviour))
    assert found.level == "none"
    assert why in found.why


def test_without_biases_the_lower_level_is_claimed() -> None:
    found = probed(TinyEngine("no biases"))
    # A `<` cannot be held to without bans either.
    assert found.level == "none" and "speculative" in found.why


def test_another_tokenizer_is_found_and_the_text_that_differs_is_named() -> None:
    others = [*PIECES[:255], b"?", *(word.upper() for word in PIECES[256:])]
    texts = [VOCABULARY.text_of(i).encode() for i in range(len(PIECES), VOCABULARY.n_vocab)]
    with pytest.raises(TokenizerDiffers, match="NAME"):
        probed(TinyEngine("recursive", Vocabulary([*others, *texts])))


def test_another_tokenizer_is_found_where_it_leaves_a_character_in_pieces() -> None:
    class Broken(TinyEngine):
        async def ask(self, body: Json, path: str) -> AsyncGenerator[object, None]:
            yield {"choices": [{"text": "\ufffd of the prompt\ufffd and", "token_ids": WANTED[:2]}]}

    with pytest.raises(TokenizerDiffers, match="and"):
        probed(Broken("recursive"))


def test_a_token_outside_of_the_vocabulary_is_of_another_tokenizer() -> None:
    class Larger(TinyEngine):
        async def ask(self, body: Json, path: str) -> AsyncGenerator[object, None]:
            yield {"choices": [{"text": "x", "token_ids": [100_000]}]}

    with pytest.raises(TokenizerDiffers, match="100000"):
        probed(Larger("recursive"))


def test_an_answer_is_not_read_further_than_it_is_looked_at() -> None:
    n_ended = 0

    class Endless(TinyEngine):
        async def ask(self, body: Json, path: str) -> AsyncGenerator[object, None]:
            nonlocal n_ended
            pending = self.pending(body)
            try:
                async for event in super().ask(body, path):
                    if pending and event["choices"][0].get("finish_reason"):  # type: ignore[index]
                        break
                    yield event
                while pending:
                    yield {"choices": [{"text": "x", "token_ids": toy_encode(b"x")}]}
            finally:
                n_ended += 1

    assert probed(Endless("canonical")).level == "canonical"
    assert n_ended == 10


def test_a_server_that_does_not_answer_is_no_matter_of_levels() -> None:
    class Down(TinyEngine):
        async def ask(self, body: Json, path: str) -> AsyncGenerator[object, None]:
            raise BackendFailed("status 500")
            yield

    with pytest.raises(BackendFailed, match="500"):
        probed(Down("recursive"))


def test_where_nothing_can_be_forced_one_request_is_enough() -> None:
    n_asked = 0

    async def ask(body: Json, path: str) -> AsyncGenerator[object, None]:
        nonlocal n_asked
        n_asked += 1
        yield {"choices": [{"text": "x", "finish_reason": "length"}]}

    async def run() -> Probed:
        server = Detected("openai", "", ("m",), None)
        return await probe(server, OpenAI(), "m", ask, VOCABULARY, toy_encode)

    assert asyncio.run(run()).level == "hygiene"
    assert n_asked == 1


MODELS: Mapping[str, object] = {"object": "list", "data": [{"id": "tiny", "max_model_len": 2048}]}


def owned(by: str) -> Mapping[str, object]:
    return {"data": [{"id": "tiny", "max_model_len": 2048, "owned_by": by}]}


PROPS = {"default_generation_settings": {"n_ctx": 8192}, "build_info": "b10054-abc"}
SGLANG = {"tokenizer_path": "a", "version": "0.5.23"}
TGI = {"model_id": "m", "version": "3.3", "max_total_tokens": 4096}


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        ({"/version": {"version": "0.32.0"}, "/v1/models": MODELS}, ("vllm", "0.32.0", 2048)),
        ({"/v1/models": owned("vllm")}, ("vllm", "", 2048)),
        ({"/version": {"version": "1"}, "/v1/models": owned("trtllm")}, ("openai", "", 2048)),
        ({"/props": PROPS, "/v1/models": {}}, ("llama-server", "b10054-abc", 8192)),
        ({"/get_server_info": SGLANG}, ("sglang", "0.5.23", None)),
        ({"/server_info": SGLANG, "/v1/models": owned("sglang")}, ("sglang", "0.5.23", 2048)),
        ({"/info": TGI}, ("tgi", "3.3", 4096)),
        ({"/v1/models": {"data": [{"id": "gpt"}]}}, ("openai", "", None)),
        ({"/v1/models": ["nonsense"], "/version": "text", "/props": {}}, ("openai", "", None)),
        ({}, ("openai", "", None)),
    ],
)
def test_a_server_is_known_by_what_it_says_of_itself(
    paths: Mapping[str, object], found: tuple[str, str, int | None]
) -> None:
    async def get(path: str) -> object:
        if path not in paths:
            raise BackendFailed("status 404")
        return paths[path]

    server = asyncio.run(detect(get))
    assert (server.kind, server.version, server.n_ctx) == found
    assert server.owner == ("" if "owned_by" not in str(paths) else owner_in(paths))


def owner_in(paths: Mapping[str, object]) -> str:
    models = paths["/v1/models"]
    assert isinstance(models, dict)
    owner: str = models["data"][0]["owned_by"]
    return owner


def test_the_model_is_the_one_named_if_the_server_has_it() -> None:
    assert model_of(SERVER, None) == "tiny"
    assert model_of(SERVER, "tiny") == "tiny"
    with pytest.raises(SetupError, match=r"no model 'other'; it has tiny"):
        model_of(SERVER, "other")
    nameless = Detected("openai", "", (), None)
    assert model_of(nameless, "any") == "any"
    with pytest.raises(SetupError, match="say which"):
        model_of(nameless, None)
    assert model_of(Detected("llama-server", "", ("x.gguf",), None), "any") == "any"
