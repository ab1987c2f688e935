"""Errors as servers tell them: whom else to ask, and what is shown of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from suture.server.engine.remote.errors import BackendBusy, BackendFailed, BackendRefused
from suture.server.engine.remote.refusals import MAX_MESSAGE, error_told, told_in_event

OPENAI = {"error": {"message": "no such field", "type": "invalid_request_error", "code": None}}
LLAMA_SERVER = {"error": {"code": 400, "message": "no such field", "type": "x"}}
OLDER_VLLM = {"object": "error", "message": "no such field", "code": 400}
TGI = {"error": "no such field", "error_type": "validation"}
FASTAPI = {"detail": "no such field"}


def told(status: int, body: object, **headers: str) -> Exception:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return error_told(status, named, content)


@pytest.mark.parametrize("body", [OPENAI, LLAMA_SERVER, OLDER_VLLM, TGI, FASTAPI, b"no such field"])
def test_what_a_server_says_is_found_in_its_shape(body: object) -> None:
    error = told(400, body)
    assert isinstance(error, BackendRefused)
    assert str(error) == "the server says: no such field (status 400)"


def test_of_a_wrong_field_its_name_is_told_and_not_what_stood_in_it() -> None:
    detail = [{"loc": ["body", "prompt"], "msg": "should be a string", "input": "password = 1"}]
    assert str(told(422, {"detail": detail})) == (
        "the server says: body.prompt: should be a string (status 422)"
    )


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BackendRefused),
        (413, BackendRefused),
        (422, BackendRefused),
        (429, BackendBusy),
        (503, BackendBusy),
        (500, BackendFailed),
        (502, BackendFailed),
        (307, BackendFailed),
        (408, BackendFailed),
        # How we are set up: the key, and the model's name or the path.
        (401, BackendFailed),
        (403, BackendFailed),
        (404, BackendFailed),
    ],
)
def test_statuses_say_whether_another_backend_would_do_better(
    status: int, kind: type[Exception]
) -> None:
    assert isinstance(told(status, OPENAI), kind)


def test_a_key_that_is_refused_is_said_to_be() -> None:
    assert str(told(401, OPENAI)) == "the server wants another API key than ours (status 401)"


@pytest.mark.parametrize(
    "body", [b"", b"<html><h1>Bad</h1>", b"\xff\xfe", [], {}, {"error": {}}, 7]
)
def test_what_says_nothing_leaves_the_status(body: object) -> None:
    assert "status 502" in str(told(502, body))
    assert "<" not in str(told(502, body))


def test_long_messages_are_cut_and_one_line() -> None:
    message = str(told(400, {"error": {"message": "a\r\n\tb\x1b[31m" + "x" * 10**6}}))
    assert message.startswith("the server says: a b[31mxxx")
    assert len(message) < MAX_MESSAGE + 40 and "\n" not in message


def test_nested_errors_end() -> None:
    nested: Any = "deep"
    for _ in range(500):
        nested = {"error": nested}
    assert str(told(400, nested)) == "the server answers with status 400"
    assert str(told(400, b"[" * 100_000)) == "the server answers with status 400"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7), ("0", 1), ("", 1), ("soon", 1), ("-3", 1), ("99999999999999", 60), ("²", 1)],
)
def test_how_long_to_wait_is_told_in_bounds(header: str, seconds: int) -> None:
    error = told(429, OPENAI, retry_after=header)
    assert isinstance(error, BackendBusy) and error.retry_after == seconds


def test_how_long_to_wait_may_be_a_date() -> None:
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    error = told(503, OPENAI, retry_after=at)
    assert isinstance(error, BackendBusy) and 18 <= error.retry_after <= 21


@pytest.mark.parametrize("event", [{"choices": []}, {"error": None, "id": 1}, [], 7, None])
def test_an_event_without_an_error_tells_of_none(event: object) -> None:
    assert told_in_event(event) is None


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (LLAMA_SERVER, BackendRefused),
        (OLDER_VLLM, BackendRefused),
        ({"error": {"message": "the engine died", "code": 500}}, BackendFailed),
        ({"error": {"message": "too many", "code": 429}}, BackendBusy),
        (OPENAI, BackendFailed),
        (TGI, BackendFailed),
        ({"error": True}, BackendFailed),
    ],
)
def test_an_error_in_a_stream_has_its_kind(event: object, kind: type[Exception]) -> None:
    assert isinstance(told_in_event(event), kind)
