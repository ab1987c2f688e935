"""One backend over real sockets: what it says, how it fails, and that it hears when we leave."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from support.fake_backend import FakeBackend, Fault, playing
from support.toy import toy_encode, toy_vocabulary
from suture.server.engine.remote import backend as backend_module
from suture.server.engine.remote.backend import Backend
from suture.server.engine.remote.errors import (
    BackendBusy,
    BackendFailed,
    BackendRefused,
    BackendUnreachable,
)
from suture.server.engine.scripted import speaking_model
from suture.server.errors import SetupError
from suture.server.tls import trust_in_others

T = TypeVar("T")

TLS = Path(__file__).parents[1] / "support" / "tls"
VOCABULARY = toy_vocabulary()
TEXT = b"def add(x): return x\n    return user"
START = b"def "
BODY = {
    "model": "toy",
    "prompt": list(toy_encode(START)),
    "max_tokens": 64,
    "stream": True,
    "return_token_ids": True,
}


def run(work: Coroutine[Any, Any, T]) -> T:
    """What comes of it; nothing here takes long."""

    async def bounded() -> T:
        async with asyncio.timeout(20):
            return await work

    return asyncio.run(bounded())


def speaking(**settings: Any) -> FakeBackend:
    return FakeBackend(speaking_model(VOCABULARY, TEXT), **settings)


async def events(url: str, stall_s: float = 5, **body: Any) -> list[Any]:
    backend = Backend(url, stall_s=stall_s)
    try:
        async with aclosing(backend.stream("/v1/completions", BODY | body, {})) as stream:
            return [event async for event in stream]
    finally:
        await backend.close()


def ids_in(told: list[Any]) -> list[int]:
    return [i for event in told for choice in event["choices"] for i in choice["token_ids"]]


def test_an_answer_is_its_events_to_the_end() -> None:
    with playing(speaking()) as url:
        told = run(events(url))
    assert VOCABULARY.eos_id == ids_in(told)[-1]
    assert b"".join(map(VOCABULARY.bytes_of, ids_in(told))) == TEXT[len(START) :]


def test_what_is_sent_is_what_was_given() -> None:
    fake = speaking(api_key="sesame")

    async def ask(url: str) -> None:
        backend = Backend(f"{url}/v1/", api_key="sesame")
        async with aclosing(backend.stream("/v1/completions", BODY, {"X-Session-ID": "k"})) as said:
            assert [event async for event in said]
        await backend.close()

    with playing(fake) as url:
        run(ask(url))
    asked = fake.asked[0]
    assert (asked.method, asked.path, asked.body) == ("POST", "/v1/completions", BODY)
    assert asked.headers["x-session-id"] == "k"
    assert asked.headers["authorization"] == "Bearer sesame"
    assert asked.headers["accept-encoding"] == "identity"


def test_a_connection_serves_one_request_after_the_other() -> None:
    with playing(speaking()) as url:

        async def ask() -> int:
            backend = Backend(url)
            ports = set()
            for _ in range(3):
                async with aclosing(backend.stream("/v1/completions", BODY, {})) as said:
                    assert [event async for event in said]
                pool = backend._http._transport._pool  # type: ignore[attr-defined]
                ports |= {id(connection) for connection in pool.connections}
            await backend.close()
            return len(ports)

        assert run(ask()) == 1


def test_cookies_are_not_kept_as_all_users_would_share_them() -> None:
    fake = speaking(cookie="session=engine-7; Path=/")

    async def ask(url: str) -> None:
        backend = Backend(url)
        for _ in range(2):
            async with aclosing(backend.stream("/v1/completions", BODY, {})) as said:
                assert [event async for event in said]
        await backend.close()

    with playing(fake) as url:
        run(ask(url))
    assert len(fake.asked) == 2 and not any("cookie" in one.headers for one in fake.asked)


FAILURES: list[tuple[Fault, type[Exception], str]] = [
    ("400", BackendRefused, "a 400 to order"),
    ("429", BackendBusy, "a 429 to order"),
    ("503", BackendBusy, "a 503 to order"),
    ("500", BackendFailed, "a 500 to order"),
    ("dies", BackendFailed, "broke off"),
    ("dies in the middle", BackendFailed, "broke off"),
    ("stalls", BackendFailed, "nothing came from the server for 0.3 s"),
    ("stalls in the middle", BackendFailed, "nothing came from the server for 0.3 s"),
    ("error in the middle", BackendFailed, "the engine died"),
    ("half JSON", BackendFailed, "no JSON"),
    ("garbage", BackendFailed, "is no HTTP"),
    ("no events", BackendFailed, "no events"),
    ("endless head", BackendFailed, "is no HTTP"),
    ("endless event", BackendFailed, "more than"),
    ("endless error", BackendFailed, "status 500"),
]


@pytest.mark.parametrize(("fault", "kind", "words"), FAILURES)
def test_e3_each_failure_ends_in_the_right_error(
    fault: Fault, kind: type[Exception], words: str
) -> None:
    fake = speaking(fault=fault)
    with playing(fake) as url, pytest.raises(kind, match=words) as caught:
        run(events(url, stall_s=0.3 if fault.startswith("stalls") else 15))
    # Whose it is, is for the log.
    assert url.partition("//")[2] not in str(caught.value)


def test_how_long_a_busy_one_wants_to_be_left_alone_is_known() -> None:
    with playing(speaking(fault="429")) as url, pytest.raises(BackendBusy) as caught:
        run(events(url))
    assert caught.value.retry_after == 2


def test_a_model_that_it_does_not_have_is_its_own_words() -> None:
    with playing(speaking()) as url, pytest.raises(BackendFailed, match="`other` does not exist"):
        run(events(url, model="other"))


def test_a_wrong_key_is_said_to_be() -> None:
    fake = speaking(api_key="sesame")
    with playing(fake) as url, pytest.raises(BackendFailed, match="another API key"):
        run(events(url))


def test_e2_an_answer_that_goes_on_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend_module, "MAX_STREAM_BYTES", 20_000)
    fake = speaking(fault="endless")
    with playing(fake) as url, pytest.raises(BackendFailed, match="does not end"):
        run(events(url))


def test_e2_an_event_has_its_time_and_not_each_of_its_bytes() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n: ")
        while not reader.at_eof():
            writer.write(b"\n: still here")
            await asyncio.sleep(0.02)
        writer.close()

    async def ask() -> None:
        server = await asyncio.start_server(drip, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            with pytest.raises(BackendFailed, match=r"nothing came from the server for 0\.3 s"):
                await events(f"http://127.0.0.1:{port}", stall_s=0.3)
            await asyncio.sleep(0.1)

    run(ask())


@pytest.mark.parametrize("drips", [False, True])
def test_e2_what_is_at_a_path_is_read_in_bounds(
    monkeypatch: pytest.MonkeyPatch, drips: bool
) -> None:
    monkeypatch.setattr(backend_module, "MAX_ANSWER_BYTES", 100_000)
    monkeypatch.setattr(backend_module, "LOOK_S", 0.5 if drips else 15)

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not reader.at_eof() and not writer.is_closing():
            writer.write(b" " if drips else bytes(10_000))
            await asyncio.sleep(0.02)
        writer.close()

    async def ask() -> None:
        server = await asyncio.start_server(pour, "127.0.0.1", 0)
        async with server:
            backend = Backend(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            words = "nothing came from the server for" if drips else "more than 100000 bytes"
            with pytest.raises(BackendFailed, match=words):
                await backend.get("/v1/models")
            await backend.close()
            await asyncio.sleep(0.1)

    run(ask())


async def _leave_after(url: str, n: int, fake: FakeBackend) -> Backend:
    backend = Backend(url)
    stream = backend.stream("/v1/completions", BODY, {})
    for _ in range(n):
        await anext(stream)
    await stream.aclose()
    await _until(lambda: fake.n_left == 1)
    return backend


async def _until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_e1_closing_a_stream_is_heard_by_the_backend() -> None:
    fake = speaking(fault="endless", step_s=0.005)

    async def ask(url: str) -> None:
        backend = await _leave_after(url, 3, fake)
        assert (backend.counters.running, backend.counters.failures) == (0, {})
        await backend.close()

    with playing(fake) as url:
        run(ask(url))
    assert fake.n_running == 0 and fake.n_said < 100


@pytest.mark.parametrize("fault", ["stalls", "stalls in the middle"])
def test_e1_a_cancelled_one_is_heard_of_too(fault: Fault) -> None:
    fake = speaking(fault=fault)

    async def ask(url: str) -> None:
        asking = asyncio.create_task(events(url, stall_s=60))
        await _until(lambda: fake.n_running == 1)
        await asyncio.sleep(0.05)
        asking.cancel()
        await _until(lambda: fake.n_left == 1)
        await asyncio.gather(asking, return_exceptions=True)
        assert asking.cancelled()

    with playing(fake) as url:
        run(ask(url))


def test_nobody_listening_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(BackendUnreachable, match="no server answers there"):
        run(events(f"http://127.0.0.1:{port}"))


def test_a_host_without_an_address_is_unreachable() -> None:
    with pytest.raises(BackendUnreachable, match="no address is known of the server's host"):
        run(events("http://nobody.invalid:8000"))


def serving_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    return context


def test_a_certificate_that_is_not_trusted_is_called_that() -> None:
    with (
        playing(speaking(), tls=serving_tls()) as url,
        pytest.raises(BackendUnreachable, match=r"certificate is not trusted.*SSL_CERT_FILE"),
    ):
        run(events(url))


def test_a_certificate_of_another_host_is_called_that() -> None:
    trusted = ssl.create_default_context(cafile=TLS / "cert.pem")

    async def ask(url: str) -> None:
        backend = Backend(url, trust=trusted)
        with pytest.raises(BackendUnreachable, match="not trusted: it is another host's"):
            await backend.get("/v1/models")
        await backend.close()

    with playing(speaking(), tls=serving_tls(), host="127.0.0.2") as url:
        run(ask(url))


def test_tls_asked_of_one_that_speaks_none_is_called_that() -> None:
    with (
        playing(speaking()) as url,
        pytest.raises(BackendUnreachable, match="no TLS with the server"),
    ):
        run(events(url.replace("http:", "https:")))


def test_the_certificates_named_in_the_environment_are_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "cert.pem"))

    async def ask(url: str) -> object:
        url = url.replace("127.0.0.1", "localhost")
        backend = Backend(url, trust=trust_in_others(url))
        told = await backend.get("/version")
        await backend.close()
        return told

    with playing(speaking(), tls=serving_tls()) as url:
        assert run(ask(url)) == {"version": "0.32.0"}


def test_what_is_at_a_path_is_its_json() -> None:
    async def ask(url: str) -> None:
        backend = Backend(url)
        models: Any = await backend.get("/v1/models")
        assert models["data"][0]["id"] == "toy"
        with pytest.raises(BackendFailed, match="Not Found"):
            await backend.get("/nothing")
        await backend.close()

    with playing(speaking()) as url:
        run(ask(url))


@pytest.mark.parametrize("kind", ["vllm", "llama-server", "openai"])
def test_any_of_them_is_found_well(kind: Any) -> None:
    async def ask(url: str) -> None:
        backend = Backend(url)
        await backend.check()
        await backend.close()

    fake = speaking(kind=kind)
    with playing(fake) as url:
        run(ask(url))
    assert [one.path for one in fake.asked][-1] == ("/v1/models" if kind == "openai" else "/health")


@pytest.mark.parametrize("status", [302, 401, 403, 404, 400])
def test_where_health_is_not_told_the_models_say_that_it_is_well(status: int) -> None:
    async def ask(url: str) -> None:
        backend = Backend(url)
        await backend.check()
        await backend.close()

    fake = speaking(health=status)
    with playing(fake) as url:
        run(ask(url))
    assert [one.path for one in fake.asked] == ["/health", "/v1/models"]


@pytest.mark.parametrize(("status", "kind"), [(503, BackendBusy), (500, BackendFailed)])
def test_one_that_says_it_is_not_well_is_not_asked_in_another_way(
    status: int, kind: type[Exception]
) -> None:
    async def ask(url: str) -> None:
        backend = Backend(url)
        with pytest.raises(kind):
            await backend.check()
        await backend.close()

    fake = speaking(health=status)
    with playing(fake) as url:
        run(ask(url))
    assert [one.path for one in fake.asked] == ["/health"]


def test_what_is_asked_is_counted() -> None:
    # On a kept connection a death is tried again, over a new one.
    fake = speaking(faults=deque(["500", "429", "400", "dies", "dies", None]))

    async def ask(url: str) -> None:
        backend = Backend(url)
        for _ in range(4):
            with pytest.raises((BackendFailed, BackendBusy, BackendRefused)):
                await anext(backend.stream("/v1/completions", BODY, {}))
        assert backend.counters.first_event_s is None
        stream = backend.stream("/v1/completions", BODY, {})
        await anext(stream)
        assert backend.counters.running == 1
        await stream.aclose()
        counters = backend.counters
        assert (counters.requests, counters.running) == (5, 0)
        assert counters.failures == {"failed": 2, "busy": 1, "refused": 1}
        assert counters.first_event_s is not None and 0 < counters.first_event_s < 5
        await backend.close()

    with playing(fake) as url:
        run(ask(url))


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://x", "http://", "http://x:99999", "http://a b"]
)
def test_what_is_no_url_of_http_is_a_wrong_setting(url: str) -> None:
    with pytest.raises(SetupError):
        Backend(url)


def test_a_password_in_a_url_is_not_in_its_name() -> None:
    assert Backend("http://me:secret@localhost:8000/v1").name == "http://localhost:8000"
    with pytest.raises(SetupError) as caught:
        Backend("http://me:secret@localhost:99999")
    assert "secret" not in str(caught.value)


def test_a_kept_connection_that_the_backend_has_closed_is_no_failure() -> None:
    n_heads: list[int] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request of each connection; the next one finds it closed."""
        n_heads.append(0)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                n_heads[-1] += 1
                if n_heads[-1] > 1:
                    return
                body = b'data: {"n": 1}\n\ndata: [DONE]\n\n'
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()
            await writer.wait_closed()

    async def ask_twice() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1")
        backend = Backend(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", stall_s=5)
        for _ in range(2):
            said = [event async for event in backend.stream("/v1/completions", {}, {})]
            assert said == [{"n": 1}]
        await backend.close()
        server.close()
        await asyncio.sleep(0.05)

    run(ask_twice())
    assert n_heads == [2, 1]
