"""docs/deploy/nginx.conf and Caddyfile, run by nginx and Caddy before `suture serve`.

Skipped where the program is not installed, which is said.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from e2e.test_faults import Served, serving
from support.fake_completer import FakeCompleter, says
from support.http_server import serving as serving_script
from support.proxies import NAME, PROXIES, Proxying, client, proxying
from support.raw_http import until
from support.tiny_models import tiny_model
from support.vocabularies import pulled
from suture.server.errors import Loading
from suture.server.request import CompletionChunk, CompletionRequest

pytestmark = [pytest.mark.e2e, pytest.mark.model]

KEYS = ("first-key", "second-key")
SHORT = {"prompt": "import os", "max_tokens": 4}
ENDLESS = {"prompt": "import os", "max_tokens": 60_000, "ignore_eos": True}
# In each way that a stream is written here.
STREAMS = {
    "/v1/completions": {"prompt": "x", "stream": True},
    "/infill": {"input_prefix": "x", "input_suffix": "", "stream": True},
    "/api/generate": {"prompt": "x"},
}


@pytest.fixture(scope="module", params=PROXIES)
def proxy(request: pytest.FixtureRequest) -> Proxying:
    return proxying(request.param)


@pytest.fixture(scope="module")
def tiny(model_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    [vocabulary] = pulled(["vocab-llama-spm"], model_store).values()
    return tiny_model(vocabulary, tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="module")
def named(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Suture as the files have it without keys: with the name."""
    folder = tmp_path_factory.mktemp("named")
    with serving(tiny, folder, "--ctx", "65536", "--allow-host", NAME) as served:
        yield served


@pytest.fixture
def http(proxy: Proxying, named: Served, tmp_path: Path) -> Iterator[httpx2.Client]:
    """A client of that server, over the proxy."""
    with proxy([named.url], tmp_path) as url, client(url) as http:
        yield http


def test_what_is_asked_over_a_proxy_is_answered(http: httpx2.Client) -> None:
    assert http.get("/health").json() == {"status": "ok"}
    for path, body in (
        ("/v1/completions", SHORT),
        ("/infill", {"input_prefix": "import os", "input_suffix": "", "n_predict": 4}),
        ("/api/generate", {"prompt": "import os", "stream": False, "options": {"num_predict": 4}}),
    ):
        response = http.post(path, json=body)
        assert response.status_code == 200 and "suture" in response.json(), path


def test_the_page_of_the_name_may_ask_and_other_names_and_pages_may_not(
    http: httpx2.Client,
) -> None:
    page = str(http.base_url)
    assert http.get("/").text.startswith("<!doctype html>")
    own = http.post("/v1/completions", json=SHORT, headers={"Origin": page.rstrip("/")})
    assert own.status_code == 200
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert http.post("/v1/completions", json=SHORT, headers=headers).status_code == 403
    # What is made to resolve to the proxy: nginx passes it on, Caddy has nothing for it.
    rebound = http.get("/v1/models", headers={"Host": "evil.example"})
    assert rebound.status_code == 403 or not rebound.content
    # Who says that somebody else has asked is not believed.
    forwarded = {"X-Forwarded-Host": NAME, "X-Forwarded-For": "127.0.0.1", "Host": "evil.example"}
    assert "data" not in http.get("/v1/models", headers=forwarded).text


@dataclass
class OnDemand(FakeCompleter):
    """Plays its script one step for each time that `wanted` is released."""

    wanted: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    async def complete(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        async with aclosing(super().complete(request)) as chunks:
            async for chunk in chunks:
                while not self.wanted.acquire(blocking=False):
                    await asyncio.sleep(0.002)
                yield chunk


@pytest.mark.parametrize("path", STREAMS)
def test_a_text_is_there_before_the_next_one_is_made(
    path: str, proxy: Proxying, tmp_path: Path
) -> None:
    completer = OnDemand(says("a", "b", "c"))
    completer.wanted.release()  # an answer begins with its first text
    with (
        serving_script(completer, allow_host=[NAME]) as server,
        proxy([server], tmp_path) as url,
        client(url) as http,
        http.stream("POST", path, json=STREAMS[path]) as stream,
    ):
        lines = (line for line in stream.iter_lines() if line)
        for text in ("a", "b", "c"):
            assert f'"{text}"' in next(lines)
            completer.wanted.release()
        assert [*lines]


def cancelled(served: Served) -> int:
    """How many texts were given up, whatever they were at."""
    lines = httpx2.get(served.url + "/metrics", timeout=30).text.splitlines()
    early = (line.split() for line in lines if line.startswith("suture_ended_early_total{"))
    return sum(int(float(n)) for name, n in early if 'reason="cancelled"' in name)


def leave_stream(http: httpx2.Client) -> None:
    with http.stream("POST", "/v1/completions", json=ENDLESS | {"stream": True}) as stream:
        assert next(stream.iter_lines()).startswith("data: ")


def leave_answer(http: httpx2.Client) -> None:
    """Nothing comes before the end, so that the proxy has nothing to send when one leaves.

    Caddy goes on asking with flush_interval -1 (caddyserver/caddy#4952).
    """
    with pytest.raises(httpx2.ReadTimeout):
        http.post("/v1/completions", json=ENDLESS, timeout=httpx2.Timeout(30, read=0.5))


@pytest.mark.parametrize("leave", [leave_stream, leave_answer])
def test_a_text_ends_with_the_client_that_wanted_it(
    leave: Callable[[httpx2.Client], None], http: httpx2.Client, named: Served
) -> None:
    before = cancelled(named)

    def is_told() -> bool:
        leave(http)
        return until(lambda: cancelled(named) > before)

    # On a busy machine one may leave before anything was begun.
    assert is_told() or is_told()


def test_a_body_may_be_as_long_as_suture_takes(http: httpx2.Client) -> None:
    for n_bytes, status in ((31 << 20, 200), (33 << 20, 413)):
        body = json.dumps(SHORT | {"ignored": "x" * n_bytes}).encode()
        assert http.post("/v1/completions", content=body).status_code == status


@pytest.fixture(scope="module")
def keyed(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Suture as the files have it with keys; a client may have one request at a time."""
    folder = tmp_path_factory.mktemp("keyed")
    keys = folder / "keys"
    keys.touch(0o600)
    keys.write_text("".join(f"{key}\n" for key in KEYS))
    flags = ("--ctx", "65536", "--api-key-file", str(keys), "--client-limit", "1")
    with serving(tiny, folder, *flags) as served:
        yield served


def test_who_asks_is_known_by_the_key_and_by_nothing_else(
    proxy: Proxying, keyed: Served, tmp_path: Path
) -> None:
    first, second = ({"Authorization": f"Bearer {key}"} for key in KEYS)
    with proxy([keyed.url], tmp_path) as url, client(url) as http:

        def status(headers: dict[str, str]) -> tuple[int, Any]:
            response = http.post("/v1/completions", json=SHORT, headers=headers)
            return response.status_code, response.headers.get("retry-after")

        assert http.get("/health").status_code == 200
        assert status({}) == (401, None) and status({"X-Api-Key": "none"}) == (401, None)
        body = ENDLESS | {"stream": True}
        with http.stream("POST", "/v1/completions", json=body, headers=first) as stream:
            lines = stream.iter_lines()  # that is kept: the stream ends with it
            assert next(lines).startswith("data: ")
            code, retry_after = status(first | {"X-Forwarded-For": "10.1.2.3"})
            assert code == 429 and int(retry_after) > 0
            assert status(second) == (200, None)
            assert next(lines) == ""


@contextmanager
def loading() -> Iterator[str]:
    """The URL of a server that is there and answers nobody yet."""
    script = [Loading("Loading model", retry_after=2)]
    with serving_script(FakeCompleter(script), allow_host=[NAME]) as url:
        yield url


def test_nginx_asks_another_server_where_one_has_no_answer_yet(
    named: Served, tmp_path: Path
) -> None:
    nginx = proxying("nginx")
    with loading() as server, nginx([server, named.url], tmp_path) as url, client(url) as http:
        for _ in range(4):
            assert http.post("/v1/completions", json=SHORT).status_code == 200


@pytest.mark.parametrize("n_servers", [1, 2])
def test_why_nobody_answers_is_told_by_suture_and_not_by_the_proxy(
    n_servers: int, proxy: Proxying, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(loading()) for _ in range(n_servers)]
        url = stack.enter_context(proxy(servers, tmp_path))
        http = stack.enter_context(client(url))
        for _ in range(4):
            response = http.post("/v1/completions", json=SHORT)
            assert (response.status_code, response.headers["retry-after"]) == (503, "2")
            assert response.json()["suture"]["reason"] == "LOADING"
