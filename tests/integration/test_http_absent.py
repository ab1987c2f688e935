"""What is not here says so in the words of its dialect, and what to ask instead."""

from __future__ import annotations

import httpx2
import openai
import pytest
from starlette.testclient import TestClient

from support.fake_completer import FakeCompleter
from support.http_server import serving, settings
from suture.server.app import create_app


def http() -> TestClient:
    return TestClient(create_app(FakeCompleter(), settings()), base_url="http://127.0.0.1")


@pytest.mark.parametrize(
    ("path", "instead"),
    [
        ("/v1/chat/completions", "/v1/completions"),
        ("/chat/completions", "/v1/completions"),
        ("/v1/chat/completions/", "/v1/completions"),
        ("/beta/chat/completions", "/v1/completions"),
        ("/v1/messages", "/v1/completions"),
        ("/v1/responses", "/v1/completions"),
        ("/api/chat", "/api/generate"),
        ("/embedding", "no embeddings"),
        ("/v1/embeddings", "no embeddings"),
        ("/api/embed", "no embeddings"),
        ("/v1/rerank", "nothing is ranked"),
        ("/apply-template", "/completion"),
        ("/api/pull", "suture pull"),
        ("/slots/0", "slots are not saved"),
        ("/generate", "/v1/completions"),
        ("/v1/tools", "/v1/code-completion"),
    ],
)
def test_a_route_that_is_not_here_says_what_is(path: str, instead: str) -> None:
    response = http().post(path, json={})
    assert response.status_code == 404
    error = response.json()["error"]
    assert instead in (error if path.startswith("/api/") else error["message"])


def test_openais_client_does_not_try_again_where_there_is_no_chat() -> None:
    asked: list[httpx2.Request] = []
    hooks = {"request": [asked.append]}
    with serving(FakeCompleter()) as url, httpx2.Client(trust_env=False, event_hooks=hooks) as web:
        client = openai.OpenAI(api_key="k", base_url=f"{url}/v1", http_client=web)
        with pytest.raises(openai.NotFoundError, match="there is no chat here"):
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "a"}])
        with pytest.raises(openai.NotFoundError, match="there are no embeddings here"):
            client.embeddings.create(model="m", input="a")
    assert len(asked) == 2


def test_what_nobody_asks_for_is_no_route_as_ever() -> None:
    assert http().get("/v1/nothing").json()["error"]["message"] == "no such route"


def test_there_are_no_adapters() -> None:
    assert http().get("/lora-adapters").json() == []


def test_llama_servers_other_health_is_ok() -> None:
    assert http().get("/v1/health").json()["status"] == "ok"
