"""Our adapter against llama.cpp's own server, over HTTP and a real model."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.llama_server import llama_cpp_server
from support.vocabularies import pulled
from suture.healing import Encode, SaidAgain, Vocabulary, stable_boundary, word_end
from suture.server.engine.remote.errors import BackendFailed, TokenizerDiffers
from suture.server.engine.remote.llama_server import LlamaServer
from suture.server.engine.remote.openai import OpenAI
from suture.server.engine.remote.openai_chat import OpenAIChat
from suture.server.engine.remote.probe import Probed, detect, model_of, probe
from suture.server.engine.remote.protocol import Adapter, Affinity, Asked, Heard, Json
from suture.server.engine.tokenizer import LlamaTokenizer
from suture.server.request import SamplingParams

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.model,
    pytest.mark.skipif(
        importlib.util.find_spec("xllamacpp") is None, reason="pip install xllamacpp, for the peer"
    ),
]

TIMEOUT_S = 120.0
CODE = '''\
import json
from pathlib import Path


class Reader:
    """Reads settings: naïve, 我很好, 😀."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.userNames = [name for name in path.read_text("utf-8").split("\\n") if name]

    def first(self, default: str = "nobody") -> str:
        if not self.userNames:
            return default  # don't fail
        return self.userNames[0].strip().replace("\\\\", "/")
'''
# Inside words, numbers and runs of blanks, behind signs of patterns, and at clean ends.
CUTS = sorted(round(len(CODE) * (n + 0.5) / 20) for n in range(20))


@dataclass(frozen=True)
class Server:
    """llama-server over the small model, which this vocabulary and tokenizer are of."""

    url: str
    vocabulary: Vocabulary
    encode: Encode

    def asked(self, text: str, **fields: Any) -> Asked:
        """What is to go on after a text, healed from its stable cut on."""
        boundary = stable_boundary(text.encode(), self.encode, self.vocabulary)
        ends = self.vocabulary.eog_ids
        asked = Asked(
            prompt_ids=boundary.kept_ids or tuple(self.encode(b"\n")),
            pending=boundary.pending,
            level="recursive" if boundary.pending else "none",
            max_tokens=len(boundary.pending) + 8,
            sampling=SamplingParams(),
            end_ids=ends,
            banned_ids=tuple(i for i in self.vocabulary.silent_ids if i not in ends),
            affinity=Affinity("test"),
        )
        return replace(asked, **fields)

    def answer(self, asked: Asked, adapter: Adapter | None = None) -> list[Heard]:
        return asyncio.run(self._answer(asked, adapter or LlamaServer()))

    async def _answer(self, asked: Asked, adapter: Adapter) -> list[Heard]:
        hear = adapter.reader(self.vocabulary)
        body = adapter.body(asked, "small", self.vocabulary)
        heard = [hear(event) async for event in self.ask(body, adapter.path)]
        return [one for one in heard if one is not None]

    def text_of(self, heard: Sequence[Heard]) -> bytes:
        ids = [token_id for one in heard for token_id in one.token_ids or ()]
        return b"".join(map(self.vocabulary.bytes_of, ids))

    async def ask(self, body: Json, path: str) -> AsyncGenerator[object, None]:
        async with (
            httpx2.AsyncClient(base_url=self.url, timeout=TIMEOUT_S) as client,
            client.stream("POST", path, json=body) as response,
        ):
            assert response.status_code == 200, await response.aread()
            async for line in response.aiter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    yield json.loads(line.removeprefix("data: "))

    async def get(self, path: str) -> object:
        async with httpx2.AsyncClient(base_url=self.url, timeout=TIMEOUT_S) as client:
            response = await client.get(path)
        if response.status_code != 200:
            raise BackendFailed(f"status {response.status_code}")
        return response.json()

    @property
    def is_idle(self) -> bool:
        slots = httpx2.get(self.url + "/slots", timeout=TIMEOUT_S).json()
        return not any(slot["is_processing"] for slot in slots)


def read(path: Path) -> tuple[Vocabulary, Encode]:
    return Vocabulary.from_gguf(path), LlamaTokenizer(path).encode


@pytest.fixture(scope="module")
def server(small_model: Path) -> Iterator[Server]:
    with llama_cpp_server(small_model) as url:
        yield Server(url, *read(small_model))


@pytest.mark.parametrize("cut", CUTS)
def test_the_answer_begins_with_the_pending_bytes(server: Server, cut: int) -> None:
    asked = server.asked(CODE[:cut])
    heard = server.answer(asked)
    said = server.text_of(heard)
    assert said.startswith(asked.pending)
    assert "".join(one.text for one in heard) == said.decode("utf-8", "ignore")


@pytest.mark.parametrize(
    "pending", ["<", "<|", "\n  ", " .+*?()|[]{}^$/\\-\"'", "é 我很感谢你 😀", "\tx_1"]
)
def test_any_text_can_be_forced_and_no_special_token_comes_for_it(
    server: Server, pending: str
) -> None:
    data = pending.encode()
    forced = server.asked("x = 1\n", pending=data, level="recursive", max_tokens=len(data) + 8)
    heard = server.answer(forced)
    assert server.text_of(heard).startswith(data)
    assert heard[-1].finish in ("stop", "length")
    ids = [token_id for one in heard for token_id in one.token_ids or ()]
    assert not set(ids) & server.vocabulary.control_ids - server.vocabulary.eog_ids


def test_a_grammar_of_the_client_holds_behind_the_pending_bytes(server: Server) -> None:
    asked = server.asked("x = f", grammar='root ::= "1" [0-9]{2} "\\n"', max_tokens=30)
    said = server.text_of(server.answer(replace(asked, pending=b"f", level="recursive")))
    assert said.startswith(b"f1") and said.endswith(b"\n") and len(said) == 5


def test_the_last_event_tells_what_was_cached(server: Server) -> None:
    asked = server.asked(CODE)
    server.answer(asked)
    usage = server.answer(asked)[-1].usage
    assert usage is not None and usage.cached is not None
    assert usage.prompt == len(asked.prompt_ids)
    assert usage.cached >= usage.prompt - 8
    assert 0 < usage.completion <= asked.max_tokens


def test_scores_are_those_of_the_tokens(server: Server) -> None:
    heard = server.answer(server.asked("def add(a, b):\n    return a +", n_probs=3))
    scored = [(one.token_ids, score) for one in heard for score in one.scores]
    assert scored
    for ids, score in scored:
        assert ids == (score.token_id,)
        assert score.logprob <= 0 and 1 <= len(score.top) <= 3


def test_closing_the_connection_frees_the_slot(server: Server) -> None:
    async def leave_after(n_events: int) -> None:
        adapter = LlamaServer()
        endless = server.asked(CODE, max_tokens=100_000, ignore_eos=True)
        events = server.ask(adapter.body(endless, "m", server.vocabulary), adapter.path)
        n_heard = 0
        async for _ in events:
            n_heard += 1
            if n_heard == n_events:
                assert not server.is_idle
                break
        await events.aclose()

    asyncio.run(leave_after(3))
    until = time.monotonic() + 20
    while not server.is_idle:
        assert time.monotonic() < until, "the slot is still busy"
        time.sleep(0.05)


@pytest.mark.parametrize("adapter", [OpenAI(), OpenAIChat(), OpenAIChat("continue")])
def test_its_openai_api_is_one_of_that_api(server: Server, adapter: Adapter) -> None:
    end = word_end(b"def add(a, b):\n    return a + b\n\n\nprint(ad")
    asked = server.asked(
        "", prompt_ids=tuple(server.encode(end.kept)), pending=end.pending, level="hygiene"
    )
    heard = server.answer(replace(asked, max_tokens=12), adapter)
    assert "".join(one.text for one in heard)
    assert [one.finish for one in heard if one.finish] in (["length"], ["stop"])
    [usage] = [one.usage for one in heard if one.usage is not None]
    assert usage.prompt > 0 and 0 < usage.completion <= 12


def test_the_end_of_a_clean_prompt_is_said_again(server: Server) -> None:
    end = word_end(CODE.encode() + b"\n    def last(self")
    asked = server.asked(
        "", prompt_ids=tuple(server.encode(end.kept)), pending=end.pending, level="hygiene"
    )
    heard = server.answer(replace(asked, max_tokens=12), OpenAI())
    again = SaidAgain(end.pending)
    new = again.feed("".join(one.text for one in heard).encode())
    assert again.done and new


def test_the_probe_finds_what_it_is_and_that_it_heals(server: Server) -> None:
    async def run() -> Probed:
        found = await detect(server.get)
        assert found.kind == "llama-server" and found.n_ctx and found.version
        model = model_of(found, None)
        adapter = LlamaServer()
        return await probe(found, adapter, model, server.ask, server.vocabulary, server.encode)

    found = asyncio.run(run())
    assert found.level == "recursive", found.why


def test_the_probe_finds_a_tokenizer_that_is_not_the_models(
    server: Server, model_store: Path
) -> None:
    # As large as the model's.
    [path] = pulled(["vocab-starcoder"], model_store).values()
    vocabulary, encode = read(path)

    async def run() -> Probed:
        found = await detect(server.get)
        return await probe(found, LlamaServer(), "m", server.ask, vocabulary, encode)

    with pytest.raises(TokenizerDiffers, match="another: it says"):
        asyncio.run(run())
