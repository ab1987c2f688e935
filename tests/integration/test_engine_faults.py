"""A real engine that fails under several requests, over real HTTP.

Guards against what llama.cpp#10072 and llama-cpp-python#867 report: several at once, of which one
spoils the others' answers.
"""

from __future__ import annotations

import concurrent.futures
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.http_server import serving, settings
from support.tiny_models import Architecture, tiny_model
from support.vocabularies import pulled
from suture.server.decoding.generation import Generation
from suture.server.engine import libllama
from suture.server.engine.protocol import Logits
from suture.server.engine.tokenizer import LlamaTokenizer
from suture.server.local import local_completer
from suture.server.request import CompletionChunk

pytestmark = pytest.mark.model

POISON = "€"
PROMPTS = ["import os\ndef x", f'price = "{POISON}"\nreturn b', "let a\nconst user", "\nimport nu"]
ARCHITECTURES: list[Architecture] = ["llama", "gemma2", "mamba", "jamba"]


class PoisonedLibrary:
    """llama.cpp, whose `llama_decode` fails where a token of the poison is in the batch."""

    def __init__(self, library: Any, token_ids: Sequence[int]) -> None:
        self._library = library
        self._token_ids = set(token_ids)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def llama_decode(self, context: Any, batch: Any) -> int:
        poisoned = self._token_ids.intersection(batch.token[: batch.n_tokens])
        return -3 if poisoned else int(self._library.llama_decode(context, batch))


@pytest.fixture
def vocabulary(model_store: Path) -> Path:
    return pulled(["vocab-llama-spm"], model_store)["vocab-llama-spm"]


def ask(url: str, prompt: str, *, stream: bool = False) -> httpx2.Response:
    body = {"prompt": prompt, "max_tokens": 40, "ignore_eos": True, "temperature": 0}
    return httpx2.post(f"{url}/v1/completions", json=body | {"stream": stream}, timeout=60)


def all_at_once(url: str, *, stream: bool = False) -> list[httpx2.Response]:
    with concurrent.futures.ThreadPoolExecutor(len(PROMPTS)) as pool:
        return list(pool.map(lambda prompt: ask(url, prompt, stream=stream), PROMPTS))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_decode_that_fails_fails_one_request_of_four(
    architecture: Architecture,
    vocabulary: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_model(vocabulary, tmp_path / "tiny.gguf", architecture)
    own = LlamaTokenizer(model)
    library = PoisonedLibrary(libllama.load(), own.encode(f'"{POISON}"'.encode())[1:2])
    own.close()
    monkeypatch.setattr(libllama, "load", lambda: library)
    at = settings(model=str(model), threads=1)
    with local_completer(at) as completer, serving(completer) as url:
        for _ in range(5):
            answers = all_at_once(url)
            assert answers[1].status_code == 500
            assert "code -3" in answers[1].json()["error"]["message"]
            for answer in (answers[0], *answers[2:]):
                if answer.status_code == 503:
                    assert architecture in ("mamba", "jamba")
                    assert answer.headers["retry-after"] == "1"
                else:
                    assert answer.json()["usage"]["completion_tokens"] == 40
        after = ask(url, PROMPTS[0]).json()
        deadline = time.monotonic() + 5
        while completer.measured().counters.sequences_running and time.monotonic() < deadline:
            time.sleep(0.01)  # it is shown at the end of the step that answered
        assert completer.measured().counters.sequences_running == 0
    with local_completer(at) as completer, serving(completer) as url:
        assert ask(url, PROMPTS[0]).json()["choices"] == after["choices"]


@pytest.mark.parametrize("stream", [False, True])
def test_an_exception_in_one_generation_of_four_is_that_ones_error(
    stream: bool, vocabulary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Generation.feed

    def failing(self: Generation, rows: Logits) -> CompletionChunk | None:
        if POISON in self.request.prefix and self.n_generated == 5:
            raise RuntimeError("broken on purpose")
        return feed(self, rows)

    monkeypatch.setattr(Generation, "feed", failing)
    model = tiny_model(vocabulary, tmp_path / "tiny.gguf")
    at = settings(model=str(model), threads=1)
    with local_completer(at) as completer, serving(completer) as url:
        answers = all_at_once(url, stream=stream)
        last = [json.loads(_last_event(answer.text)) for answer in answers]
        assert "RuntimeError" in last[1]["error"]["message"]
        assert [one["suture"]["finish"] for one in (last[0], *last[2:])] == ["length"] * 3
        assert answers[1].status_code == (200 if stream else 500)
        assert ask(url, PROMPTS[0]).status_code == 200


def _last_event(text: str) -> str:
    """The body, or the last event of a stream that says something."""
    blocks = [block.removeprefix("data: ") for block in text.strip().split("\n\n")]
    return [block for block in blocks if block != "[DONE]"][-1]
