from __future__ import annotations

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
