"""Who asks: what of a request says it, and what a client can not say."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from support.fake_completer import FakeCompleter
from support.http_server import Json, settings
from support.route_bodies import POSTS, bodies
from suture.server.app import create_app
from suture.server.request import CompletionRequest
from suture.server.routes.asker import (
    CALLER,
    CLIENT,
    MAX_USER_CHARS,
    TENANT,
    USER_HEADER,
    asked_by,
    user_of,
)
from suture.server.tenants import Tenant

BLUE = Tenant("blue", cache_salt="salt")


def scope(header: str | None = None) -> Json:
    headers = [] if header is None else [(USER_HEADER.encode(), header.encode())]
    return {"type": "http", "headers": headers, CLIENT: "digest"}


@pytest.mark.parametrize(
    ("named", "header", "session", "user"),
    [
        ("ann", "bob", "s", "ann"),
        (None, " bob ", "s", "bob"),
        ("", "bob", "s", "bob"),
        (None, None, "s", "/s"),
        (None, "", "s", "/s"),
        (None, None, None, "digest"),
    ],
)
def test_the_user_is_the_first_that_is_said(
    named: str | None, header: str | None, session: str | None, user: str
) -> None:
    request = CompletionRequest("x", user=named, session=session)
    assert asked_by(request, scope(header)).user == user


def test_nobody_is_known_where_nothing_is_said() -> None:
    assert user_of({"type": "http", "headers": []}) is None


@given(st.text(min_size=MAX_USER_CHARS))
def test_a_long_name_is_as_good_as_its_beginning(name: str) -> None:
    assert user_of(scope(), name) == name[:MAX_USER_CHARS]


def test_the_tenant_and_its_salt_follow_from_the_key_alone() -> None:
    asked = CompletionRequest("x", tenant="red", cache_salt="mine", session="s")
    told = asked_by(asked, scope() | {TENANT: BLUE, CALLER: "digest"})
    assert (told.tenant, told.cache_salt, told.session) == ("blue", "salt", "digest/s")
    told = asked_by(asked, scope())
    assert (told.tenant, told.cache_salt) == (None, None)


TENANTS = """
[tenants.blue]
keys = ["b1", "b2"]
cache_salt = "salt"
[tenants.red]
keys = ["r"]
"""


@pytest.fixture
def tenants(tmp_path: Path) -> Path:
    file = tmp_path / "tenants.toml"
    file.write_text(TENANTS)
    return file


COMPLETIONS = [path for path in POSTS if "complet" in path or path in ("/infill", "/api/generate")]


@pytest.mark.parametrize("path", COMPLETIONS)
def test_every_dialect_says_who_asks(path: str, tenants: Path) -> None:
    completer = FakeCompleter()
    http = TestClient(create_app(completer, settings(tenants=tenants)), "http://localhost")
    body = bodies("a\nb\n")[path] | {"user": "ann", "cache_salt": "mine", "tenant": "red"}
    for key, expected in (("b1", ("blue", "ann", "salt")), ("r", ("red", "ann", None))):
        completer.requests.clear()
        answer = http.post(path, json=body, headers={"X-Api-Key": key})
        assert answer.status_code == 200
        assert completer.requests
        assert {(one.tenant, one.user, one.cache_salt) for one in completer.requests} == {expected}


def test_each_of_several_prompts_is_its_askers(tenants: Path) -> None:
    completer = FakeCompleter()
    http = TestClient(create_app(completer, settings(tenants=tenants)), "http://localhost")
    body = {"prompt": ["a", "b"], "user": "ann"}
    assert http.post("/v1/completions", json=body, headers={"X-Api-Key": "b2"}).status_code == 200
    asked = [(one.prefix, one.tenant, one.user, one.cache_salt) for one in completer.requests]
    assert asked == [("a", "blue", "ann", "salt"), ("b", "blue", "ann", "salt")]


def test_users_of_one_key_have_its_sessions_and_keys_of_one_tenant_have_their_own(
    tenants: Path,
) -> None:
    completer = FakeCompleter()
    http = TestClient(create_app(completer, settings(tenants=tenants)), "http://localhost")
    body = {"input_prefix": "a", "input_suffix": "b", "session": "s"}
    for headers in ({"X-Api-Key": "b1"}, {"X-Api-Key": "b1", "X-User-ID": "ann"}):
        assert http.post("/infill", json=body, headers=headers).status_code == 200
    assert http.post("/infill", json=body, headers={"X-Api-Key": "b2"}).status_code == 200
    first, named, other = completer.requests
    assert first.session == named.session != other.session
    assert (first.user, named.user) == (first.session, "ann")


def test_without_keys_there_is_no_tenant_and_an_address_is_a_user() -> None:
    completer = FakeCompleter()
    http = TestClient(create_app(completer, settings()), "http://localhost")
    assert http.post("/infill", json={"input_prefix": "a", "input_suffix": "b"}).status_code == 200
    [request] = completer.requests
    assert (request.tenant, request.user, request.cache_salt) == (None, "testclient", None)
