"""Clients as their makers publish them, against our server: they need another URL and no more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import openai
import pytest
from mistralai.client import Mistral
from mistralai.client.errors import SDKError
from mistralai.client.models import BaseModelCard, FIMCompletionResponse

from support.answering import answering_model
from support.fake_completer import MODEL, FakeCompleter, says
from support.http_server import serving, settings
from support.scripted_completer import scripted
from suture.server.errors import EngineError, InfillUnsupported, QueueFull
from suture.server.request import (
    CompletionChunk,
    CompletionRequest,
    CompletionResult,
    FinishReason,
    PromptReport,
    ScoredToken,
)
from suture.server.version import VERSION

PROMPT, SUFFIX = "const user", "return user\n"


@contextmanager
def mistral(url: str, key: str = "k") -> Iterator[Mistral]:
    with httpx2.Client(trust_env=False, follow_redirects=True) as http:
        yield Mistral(api_key=key, server_url=url, client=http)


@contextmanager
def openais(url: str) -> Iterator[openai.OpenAI]:
    with httpx2.Client(trust_env=False) as http:
        yield openai.OpenAI(api_key="k", base_url=f"{url}/v1", http_client=http, max_retries=0)


@contextmanager
def deepseek(url: str, key: str = "k") -> Iterator[openai.OpenAI]:
    with httpx2.Client(trust_env=False) as http:
        yield openai.OpenAI(api_key=key, base_url=f"{url}/beta", http_client=http, max_retries=0)


def ended(finish: FinishReason) -> CompletionChunk:
    result = CompletionResult(finish, completion_tokens=3, prompt=PromptReport(20, 15, 5, "psm"))
    return CompletionChunk("", result=result)


def text_of(response: FIMCompletionResponse) -> str:
    message = response.choices[0].message
    assert message is not None and isinstance(message.content, str)
    assert message.role == "assistant"
    return message.content


def test_mistrals_client_is_answered_by_the_engine() -> None:
    asked = CompletionRequest(prefix=PROMPT, suffix=SUFFIX, infill=True, layout="psm")
    model = answering_model(asked, "Name = ret;\n")
    with (
        scripted(model, settings(layout="psm")) as completer,
        serving(completer, layout="psm") as url,
        mistral(url) as client,
    ):
        response = client.fim.complete(
            model="codestral", prompt=PROMPT, suffix=SUFFIX, temperature=0, max_tokens=20
        )
        assert text_of(response) == "Name = ret;\n"


@pytest.mark.parametrize(
    ("finish", "reason"), [("stop", "stop"), ("eos", "stop"), ("suffix", "stop"), ("length",) * 2]
)
def test_mistrals_client_reads_an_answer(finish: FinishReason, reason: str) -> None:
    completer = FakeCompleter(says("ra", "nge(é🎉)", finish=ended(finish)))
    with serving(completer) as url, mistral(url) as client:
        response = client.fim.complete(
            model="codestral-latest",
            prompt="for i in ",
            suffix=":\n",
            temperature=0.5,
            top_p=0.9,
            max_tokens=64,
            min_tokens=2,
            stop=["\n\n", "#"],
            random_seed=7,
            metadata={"a": 1},
        )
        client.fim.complete(model="m", prompt="a", stop="x")
    assert text_of(response) == "range(é🎉)"
    assert response.object == "chat.completion" and response.model == "toy"
    assert response.choices[0].finish_reason == reason and response.choices[0].index == 0
    usage = response.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (20, 3, 23)
    request, bare = completer.requests
    assert (request.prefix, request.suffix, request.infill) == ("for i in ", ":\n", True)
    assert (request.max_tokens, request.min_tokens, request.stop) == (64, 2, ("\n\n", "#"))
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.seed) == (0.5, 0.9, 7)
    assert (bare.suffix, bare.infill, bare.shape, bare.stop) == ("", False, "raw", ("x",))


def test_mistrals_client_reads_a_stream() -> None:
    completer = FakeCompleter(says("ra", "nge(é🎉)", finish=ended("length")))
    with serving(completer) as url, mistral(url) as client:
        with client.fim.stream(model="codestral", prompt="for i in ", suffix=":\n") as stream:
            chunks = [event.data for event in stream]
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["ra", "nge(é🎉)", ""]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert not any(chunk.choices[0].delta.role for chunk in chunks[1:])
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, "length"]
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].usage is not None and chunks[-1].usage.total_tokens == 23


@pytest.mark.parametrize("streamed", [False, True])
def test_mistrals_client_reads_an_error(streamed: bool) -> None:
    completer = FakeCompleter([InfillUnsupported("this model cannot fill in")])
    with serving(completer) as url, mistral(url) as client:
        ask = client.fim.stream if streamed else client.fim.complete
        with pytest.raises(SDKError, match="this model cannot fill in") as raised:
            ask(model="m", prompt="a", suffix="b")
        assert raised.value.status_code == 501
        with pytest.raises(SDKError, match='\\\\"temperature\\\\" must be at least 0') as raised:
            ask(model="m", prompt="a", temperature=-1)
        assert raised.value.status_code == 400


def test_mistrals_client_lists_models() -> None:
    with serving(FakeCompleter()) as url, mistral(url) as client:
        [listed] = client.models.list().data or []
        retrieved = client.models.retrieve(model_id="toy")
        with pytest.raises(SDKError, match="no model of that name") as raised:
            client.models.retrieve(model_id="codestral-latest")
    for card in (listed, retrieved):
        # What it cannot read it keeps raw, as of a kind that it does not know.
        assert isinstance(card, BaseModelCard)
        assert (card.id, card.object, card.owned_by) == ("toy", "model", "suture")
        assert card.max_context_length == MODEL.n_ctx
        can = card.capabilities
        assert can.completion_fim and not can.completion_chat and not can.function_calling
    assert raised.value.status_code == 404


def test_openais_client_lists_models() -> None:
    with serving(FakeCompleter()) as url, openais(url) as client:
        [listed] = client.models.list()
        retrieved = client.models.retrieve("toy")
        with pytest.raises(openai.NotFoundError, match="no model of that name") as raised:
            client.models.retrieve("gpt-3.5-turbo-instruct")
    assert listed == retrieved
    assert (listed.id, listed.object, listed.owned_by) == ("toy", "model", "suture")
    assert listed.created > 0
    assert raised.value.param == "model"


def test_a_key_is_given_in_each_clients_own_way(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("k\n")
    completer = FakeCompleter()
    with serving(completer, api_key_file=str(keys)) as url:
        with mistral(url) as right, deepseek(url) as other:
            assert text_of(right.fim.complete(model="m", prompt="a")) == "ab"
            assert other.completions.create(model="m", prompt="a").choices[0].text == "ab"
        with mistral(url, "wrong") as wrong, deepseek(url, "wrong") as other:
            with pytest.raises(SDKError, match='"type":"unauthorized"') as raised:
                wrong.fim.complete(model="m", prompt="a")
            assert raised.value.status_code == 401
            with pytest.raises(openai.AuthenticationError):
                other.completions.create(model="m", prompt="a")
    assert len(completer.requests) == 2


def test_a_path_that_is_none_is_told_in_the_words_of_its_neighbours() -> None:
    with serving(FakeCompleter()) as url, httpx2.Client(base_url=url, trust_env=False) as http:
        lost = http.get("/v1/fim/completions")
        assert (lost.status_code, lost.json()["object"]) == (405, "error")
        assert http.post("/beta/chat").json()["error"].keys() == {
            "message",
            "type",
            "param",
            "code",
        }


def test_deepseeks_client_is_answered_by_the_engine() -> None:
    asked = CompletionRequest(prefix=PROMPT, suffix=SUFFIX, infill=True, layout="psm")
    model = answering_model(asked, "Name = ret;\n")
    with (
        scripted(model, settings(layout="psm")) as completer,
        serving(completer, layout="psm") as url,
        deepseek(url) as client,
    ):
        answer = client.completions.create(
            model="deepseek-chat", prompt=PROMPT, suffix=SUFFIX, temperature=0
        )
        stream = client.completions.create(
            model="deepseek-chat", prompt=PROMPT, suffix=SUFFIX, temperature=0, stream=True
        )
        streamed = "".join(chunk.choices[0].text for chunk in stream)
    assert answer.choices[0].text == streamed == "Name = ret;\n"


def test_deepseeks_client_reads_an_answer() -> None:
    scores = (ScoredToken(5, b"range", -0.5),)
    said = [CompletionChunk("range", (5,), scores=scores), ended("length")]
    completer = FakeCompleter(said)
    with serving(completer) as url, deepseek(url) as client:
        answer = client.completions.create(
            model="deepseek-chat", prompt="a", suffix="b", echo=False, logprobs=0, stop=["x"]
        )
        client.completions.create(model="deepseek-chat", prompt="a", max_tokens=8)
    choice = answer.choices[0]
    assert (choice.text, choice.finish_reason, choice.index) == ("range", "length", 0)
    assert choice.logprobs is not None and choice.logprobs.tokens == ["range"]
    assert choice.logprobs.token_logprobs == [-0.5]
    assert answer.object == "text_completion"
    assert answer.system_fingerprint == f"suture-{VERSION}"
    assert answer.usage is not None and answer.usage.total_tokens == 23
    assert answer.usage.model_extra is not None
    cached = [answer.usage.model_extra[f"prompt_cache_{kind}_tokens"] for kind in ("hit", "miss")]
    assert cached == [15, 5]
    request, bare = completer.requests
    assert (request.infill, request.max_tokens, request.sampling.temperature) == (True, 4096, 1.0)
    assert (bare.infill, bare.max_tokens, bare.shape) == (False, 8, "raw")


def test_deepseeks_client_reads_a_stream_and_its_usage() -> None:
    completer = FakeCompleter(says("ra", "nge", finish=ended("eos")))
    with serving(completer) as url, deepseek(url) as client:
        stream = client.completions.create(
            model="deepseek-chat",
            prompt="a",
            suffix="b",
            stream=True,
            stream_options={"include_usage": True},
        )
        *chunks, last = list(stream)
    assert [chunk.choices[0].text for chunk in chunks] == ["ra", "nge", ""]
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert not last.choices and last.usage is not None and last.usage.prompt_tokens == 20


def test_deepseeks_client_reads_an_error() -> None:
    with serving(FakeCompleter([QueueFull("busy")])) as url, deepseek(url) as client:
        with pytest.raises(openai.BadRequestError, match="not supported yet") as raised:
            client.completions.create(model="m", prompt="a", echo=True)
        assert raised.value.param == "echo"
        with pytest.raises(openai.BadRequestError, match="at most 4096"):
            client.completions.create(model="m", prompt="a", max_tokens=4097)
        with pytest.raises(openai.InternalServerError) as busy:
            client.completions.create(model="m", prompt="a")
        assert busy.value.status_code == 503


def test_deepseeks_client_raises_what_a_stream_ends_with() -> None:
    said: list[CompletionChunk | Exception] = [
        CompletionChunk("ra", (5,)),
        EngineError("the engine failed"),
    ]
    with serving(FakeCompleter(said)) as url, deepseek(url) as client:
        stream = client.completions.create(model="m", prompt="a", stream=True)
        with pytest.raises(openai.APIError, match="the engine failed"):
            list(stream)
