from __future__ import annotations

import hmac
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from support.fake_completer import FakeCompleter
from support.http_server import Json, settings
from suture.server.app import create_app
from suture.server.errors import SetupError


def status_for(name: str, path: str = "/v1/models", key: str | None = None, **flags: object) -> int:
    client = TestClient(create_app(FakeCompleter(), settings(**flags)))
    headers = {b"Host": name.encode()}
    if key is not None:
        headers[b"Authorization"] = key.encode("latin-1")
    return client.get(path, headers=headers).status_code


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8012", "localhost:1", "a.LOCALHOST", "[::1]:80", "10.0.0.7"]
)
def test_loopback_names_and_addresses_are_served(host: str) -> None:
    assert status_for(host) == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8012", "localhost.evil.example"])
def test_a_name_made_to_resolve_to_us_is_refused(host: str) -> None:
    assert status_for(host) == 403
    assert status_for(host, "/health") == 403


def test_allowed_names_are_served_and_no_others() -> None:
    flags: Json = {"host": "0.0.0.0", "allow_host": ["Box", "box.lan"]}
    assert status_for("box:8012", **flags) == 200
    assert status_for("box.lan", **flags) == 200
    assert status_for("other.lan", **flags) == 403


def test_a_key_is_asked_for_everywhere_but_at_health(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("one\ntwo\n")
    for known in ("Bearer one", "bearer two"):
        assert status_for("localhost", key=known, api_key_file=keys) == 200
    for key in (None, "Bearer", "Bearer on", "Basic one", "one", "Bearer \xe9"):
        assert status_for("localhost", key=key, api_key_file=keys) == 401
    assert status_for("localhost", "/health", api_key_file=keys) == 200
    assert status_for("box.lan", key="Bearer one", api_key_file=keys) == 200


def test_refusals_have_the_dialects_shape(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("one\n")
    client = TestClient(
        create_app(FakeCompleter(), settings(api_key_file=keys)), base_url="http://localhost"
    )
    assert client.post("/infill").json()["error"]["type"] == "authentication_error"
    assert "param" in client.post("/v1/completions").json()["error"]


def test_a_key_file_that_is_missing_is_a_setup_error() -> None:
    with pytest.raises(SetupError, match="--api-key-file"):
        client = TestClient(create_app(FakeCompleter(), settings(api_key_file="/nonexistent")))
        client.get("/health")


def access(
    headers: dict[str, str], method: str = "GET", path: str = "/health", **flags: object
) -> int:
    client = TestClient(create_app(FakeCompleter(), settings(**flags)), "http://localhost")
    return client.request(method, path, headers=headers).status_code


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "http://evil.example:8012", "null", "http://10.0.0.7", "file://"],
)
def test_pages_of_other_sites_are_refused_whatever_they_send(origin: str) -> None:
    simple = {"Origin": origin, "Content-Type": "text/plain", "Sec-Fetch-Site": "cross-site"}
    for method, path in [("POST", "/infill"), ("GET", "/v1/models"), ("OPTIONS", "/infill")]:
        assert access(simple, method, path) == 403


@pytest.mark.parametrize(
    ("fetch", "status"),
    [
        ({"Site": "cross-site", "Mode": "no-cors", "Dest": "image"}, 403),
        ({"Site": "cross-site", "Mode": "no-cors", "Dest": "script"}, 403),
        ({"Site": "cross-site", "Mode": "navigate", "Dest": "iframe"}, 403),
        ({"Site": "cross-site"}, 403),
        ({"Site": "cross-site", "Mode": "navigate", "Dest": "document"}, 200),
        ({"Site": "none", "Mode": "navigate", "Dest": "document"}, 200),
        ({"Site": "same-origin", "Mode": "cors", "Dest": "empty"}, 200),
        ({"Site": "same-site", "Mode": "cors", "Dest": "empty"}, 200),
    ],
)
def test_what_browsers_say_of_other_sites_is_believed_without_an_origin(
    fetch: dict[str, str], status: int
) -> None:
    headers = {f"Sec-Fetch-{name}": value for name, value in fetch.items()}
    assert access(headers, path="/explain") == status


def test_a_form_of_another_site_is_no_visit() -> None:
    visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}
    assert access(visit, "POST", "/infill") == 403


def test_a_page_of_this_machine_is_served_though_it_is_another_site() -> None:
    headers = {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "cross-site"}
    assert access(headers) == 200
    assert access({"Origin": "https://box.lan"}, allow_host=["box.lan", "localhost"]) == 200


def test_no_answer_lets_another_page_read_it() -> None:
    client = TestClient(create_app(FakeCompleter(), settings()), "http://localhost")
    asking = {
        "Origin": "http://localhost:3000",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type, authorization",
        "Access-Control-Request-Private-Network": "true",
    }
    for method in ("OPTIONS", "GET", "POST"):
        for path in ("/infill", "/v1/models", "/nowhere", "/api/generate"):
            answer = client.request(method, path, headers=asking)
            assert not [name for name in answer.headers if name.startswith("access-control-")]
            assert method != "OPTIONS" or answer.status_code in (404, 405)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    file = tmp_path / "keys"
    file.write_text("one\ntwo\n")
    return file


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"X-Api-Key": "one"}, 200),
        ({"x-api-key": " two "}, 200),
        # Continue's, which sends both; and where it has none.
        ({"X-Api-Key": "two", "Authorization": "Bearer two"}, 200),
        ({"X-Api-Key": "", "Authorization": "Bearer undefined"}, 401),
        ({"X-Api-Key": "one", "Authorization": "Bearer undefined"}, 200),
        ({"X-Api-Key": "Bearer one"}, 401),
        ({"X-Api-Key": "on"}, 401),
        ({"X-Api-Key": ""}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": "Basic b25lOm9uZQ=="}, 401),
        ({"Api-Key": "one"}, 401),
        ({"Cookie": "api_key=one"}, 401),
    ],
)
def test_a_key_may_come_in_either_header(keys: Path, headers: dict[str, str], status: int) -> None:
    assert access(headers, path="/v1/models", api_key_file=keys) == status


def test_a_key_in_a_url_is_none(keys: Path) -> None:
    assert access({}, path="/v1/models?api_key=one&key=one", api_key_file=keys) == 401


def test_one_key_is_one_caller_in_either_header(keys: Path) -> None:
    """Of two requests of a session the second supersedes the first only if it is its caller's."""
    completer = FakeCompleter()
    client = TestClient(create_app(completer, settings(api_key_file=keys)), "http://localhost")
    body = {"input_prefix": "a", "input_suffix": "b", "session": "s"}
    for headers in (
        {"Authorization": "Bearer one"},
        {"authorization": "bearer  one"},
        {"X-Api-Key": "one"},
        {"X-Api-Key": "two", "Authorization": "Bearer one"},
        {"Authorization": "Bearer two"},
    ):
        assert client.post("/infill", json=body, headers=headers).status_code == 200
    *ones, two = [request.session for request in completer.requests]
    assert len(set(ones)) == 1 and two not in ones
    assert not any("one" in (session or "") for session in ones)


def test_every_key_is_compared_whichever_matches(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[bytes] = []

    def compare(sent: bytes, expected: bytes) -> bool:
        compared.append(expected)
        return sent == expected

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for key in ("one", "two", "three"):
        compared.clear()
        access({"Authorization": f"Bearer {key}"}, path="/v1/models", api_key_file=keys)
        assert len(set(compared)) == 2 and {len(digest) for digest in compared} == {32}
