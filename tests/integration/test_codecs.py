"""Every tokenizer and detokenizer that a model can be served with gives the same answers."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from support.engine_completer import EngineCompleter
from support.http_server import Json, client, events, serving, settings
from suture.healing import Encode, Vocabulary, tokenizer_from_gguf
from suture.server import local
from suture.server.codec import Codec, DetokenizerName, TokenizerName, choose_codec
from suture.server.completion import LoadedModel
from suture.server.engine.llama import LlamaEngine
from suture.server.engine.scheduler import Scheduler
from suture.server.engine.tokenizer import LlamaTokenizer
from suture.server.errors import SetupError
from suture.server.local import local_completer
from suture.server.prompt.budget import PromptBudget

pytestmark = pytest.mark.model

TOKENIZERS: tuple[TokenizerName, ...] = ("tiktoken", "llama")
DETOKENIZERS: tuple[DetokenizerName, ...] = ("bytes", "window")
REQUESTS: list[Json] = [
    {"prompt": "import nump", "max_tokens": 12},
    {"prompt": "我很感谢", "max_tokens": 12, "healing": "off"},
    {"prompt": "Ünïcödé 😀 is wr", "max_tokens": 12, "give_back": 3},
    {"prompt": "def area(width, hei", "max_tokens": 24, "stop": ["return", "\n\n"]},
    {
        "prompt": "The sky is bl",
        "max_tokens": 16,
        "stop": ["."],
        "include_stop_str_in_output": True,
    },
    {"prompt": "The sky is bl", "stop": [" ", "."], "min_tokens": 6, "max_tokens": 12},
    {"prompt": "I am", "max_tokens": 12, "skip_special_tokens": False, "ignore_eos": True},
]


def codec_completer(scheduler: Scheduler, engine: LlamaEngine, codec: Codec) -> EngineCompleter:
    """Completes with one codec on an engine that others use too."""
    loaded = LoadedModel(engine, None, PromptBudget(engine.n_ctx, 1e6), codec)
    return EngineCompleter("small", scheduler, loaded)


@pytest.fixture(scope="module")
def clients(small_model: Path) -> Iterator[list[httpx2.Client]]:
    """One for each pair of tokenizer and detokenizer, all on one engine."""
    engines: list[LlamaEngine] = []

    def load() -> LlamaEngine:
        engines.append(LlamaEngine(small_model, n_threads=1, n_ctx=1024))
        return engines[0]

    fast = tokenizer_from_gguf(small_model)
    with contextlib.ExitStack() as stack:
        scheduler = Scheduler(load)
        scheduler.start()
        stack.callback(scheduler.close)
        scheduler.wait_ready()
        (engine,) = engines
        made = []
        for tokenizer, detokenizer in itertools.product(TOKENIZERS, DETOKENIZERS):
            codec = choose_codec(tokenizer, detokenizer, engine.vocabulary, engine, fast)
            assert (codec.tokenizer.name, codec.detokenizer.name) == (tokenizer, detokenizer)
            completer = codec_completer(scheduler, engine, codec)
            stack.callback(completer.close)
            url = stack.enter_context(serving(completer))
            made.append(stack.enter_context(client(url)))
        yield made


def streamed(http: httpx2.Client, body: Json) -> tuple[str, object]:
    *chunks, done = map(str, events(http.post("/v1/completions", json=body | {"stream": True})))
    assert done == "[DONE]"
    answers = [json.loads(chunk) for chunk in chunks]
    text = "".join(answer["choices"][0]["text"] for answer in answers if answer["choices"])
    return text, _comparable(answers[-1]["suture"])


def whole(http: httpx2.Client, body: Json) -> tuple[str, object]:
    answer = http.post("/v1/completions", json=body).json()
    return answer["choices"][0]["text"], _comparable(answer["suture"])


def _comparable(suture: Json) -> object:
    """What must agree: how much waits differs, and logits to the last bit need not."""
    healing = {key: suture["healing"][key] for key in ("level", "pending_bytes", "nodes")}
    return suture["finish"], suture["reason"], healing, suture["prompt"]["tokens"]


@pytest.mark.parametrize("body", REQUESTS, ids=lambda body: body["prompt"])
def test_w3_w10_answers_do_not_depend_on_tokenizer_and_detokenizer(
    clients: list[httpx2.Client], body: Json
) -> None:
    greedy = body | {"temperature": 0}
    expected = whole(clients[0], greedy)

    assert expected[0]
    for http in clients:
        assert whole(http, greedy) == expected
        assert streamed(http, greedy) == expected


def test_an_answer_in_windows_without_healing_is_one(small_model: Path) -> None:
    """A vocabulary that loses text: the level is none, and the text still comes."""
    engines: list[LlamaEngine] = []

    def load() -> LlamaEngine:
        engines.append(LlamaEngine(small_model, n_threads=1, n_ctx=512))
        return engines[0]

    scheduler = Scheduler(load)
    scheduler.start()
    scheduler.wait_ready()
    codec = choose_codec("llama", "window", engines[0].vocabulary, engines[0], None)
    lossy = replace(codec, heals=False)
    completer = codec_completer(scheduler, engines[0], lossy)
    try:
        with serving(completer) as url, client(url) as http:
            body = {"prompt": "import nump", "max_tokens": 8, "temperature": 0}
            answer = http.post("/v1/completions", json=body).json()
    finally:
        completer.close()
        scheduler.close()
    assert answer["choices"][0]["text"]
    assert answer["suture"]["healing"]["level"] == "none"


def test_a_loaded_model_says_what_it_is_served_with(small_model: Path) -> None:
    flags = {"model": str(small_model), "detokenizer": "window", "ctx": 512, "threads": 1}
    with local_completer(settings(**flags)) as completer:
        with serving(completer) as url, client(url) as http:
            model = http.get("/v1/status").json()["model"]

    assert model["tokenizer"] == {"name": "tiktoken", "why": "llama.cpp's tokens on 14 probes"}
    assert model["detokenizer"] == {"name": "window", "why": "asked for"}


def test_a_contradiction_ends_the_loading(
    small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "read_tiktoken", lambda *_: None)
    flags = {"model": str(small_model), "tokenizer": "tiktoken", "ctx": 512, "threads": 1}

    with pytest.raises(SetupError, match="--tokenizer tiktoken: not with this vocabulary"):
        with local_completer(settings(**flags)):
            pass


def test_the_engines_text_of_tokens_is_that_of_their_bytes(
    real_vocabulary: tuple[Vocabulary, Encode], small_model: Path, coder_model: Path
) -> None:
    vocabulary, _ = real_vocabulary
    path = small_model if vocabulary.n_vocab < 100_000 else coder_model
    own = LlamaTokenizer(path)
    longest = max(range(vocabulary.n_vocab), key=lambda i: len(vocabulary.bytes_of(i)))
    ids: Sequence[int] = [*range(0, vocabulary.n_vocab, 61), longest, vocabulary.n_vocab - 1]

    for token_id in ids:
        assert own.decode([token_id]) == vocabulary.bytes_of(token_id).decode("utf-8", "replace")
        if vocabulary.is_special(token_id):
            assert own.decode_markup([token_id]) == vocabulary.text_of(token_id)
    assert own.decode(own.encode(b" a . b ?  c")) == " a . b ?  c", "no blank is tidied away"
    own.close()
