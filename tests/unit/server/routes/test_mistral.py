from __future__ import annotations

from typing import Any

import pytest

from support.fake_completer import MODEL
from support.http_server import Json, settings
from suture.server.errors import InvalidRequest
from suture.server.request import CompletionRequest, SamplingParams
from suture.server.routes.mistral import MistralDialect


def parse(body: Json) -> CompletionRequest:
    return MistralDialect().parse({"prompt": "a"} | body, settings(), MODEL).request


def test_fields_are_taken_over() -> None:
    request = parse(
        {
            "suffix": "b",
            "model": "codestral-latest",
            "max_tokens": 9,
            "min_tokens": 2,
            "temperature": 0,
            "top_p": 0.5,
            "stop": "x",
            "random_seed": 5,
            "seed": 4,
            "top_k": 3,
            "healing": "off",
            "session": "s",
            "seq": 1,
        }
    )
    assert (request.prefix, request.suffix, request.infill) == ("a", "b", True)
    assert (request.max_tokens, request.min_tokens, request.stop) == (9, 2, ("x",))
    assert request.sampling == SamplingParams(top_p=0.5, top_k=3, seed=5)
    assert (request.healing, request.session, request.seq) == ("off", "s", 1)
    assert (request.shape, request.on_incomplete) == ("auto", "drop")


def test_what_is_absent_or_null_is_the_default() -> None:
    nothing = dict.fromkeys(
        ["suffix", "temperature", "top_p", "max_tokens", "min_tokens", "stop", "random_seed"]
    )
    assert parse(nothing) == parse({})
    request = parse({})
    assert request.max_tokens == MODEL.n_ctx and not request.infill
    assert request.sampling == SamplingParams(temperature=0.3)
    assert (request.shape, request.on_incomplete) == ("raw", "replace")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt", None),
        ("prompt", 1),
        ("prompt", ["a"]),
        ("prompt", "\ud800"),
        ("suffix", []),
        ("model", 1),
        ("temperature", -0.1),
        ("temperature", "0"),
        ("top_p", 1.5),
        ("max_tokens", -1),
        ("max_tokens", True),
        ("max_tokens", 1.5),
        ("min_tokens", -1),
        ("min_tokens", 5000),
        ("stream", 1),
        ("stop", {}),
        ("stop", [1]),
        ("stop", ["x"] * 65),
        ("random_seed", -1),
        ("random_seed", "1"),
        ("metadata", []),
        ("prompt_cache_key", 1),
        ("n", 2),
        ("n", True),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse({field: value})
    assert raised.value.field is not None and raised.value.field.startswith(field)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "unauthorized"),
        (413, "invalid_request_error"),
        (500, "internal_server_error"),
        (503, "service_unavailable"),
    ],
)
def test_an_error_is_told_as_mistral_does(status: int, kind: str) -> None:
    assert MistralDialect().error_body(status, "no", "stop") == {
        "object": "error",
        "message": "no",
        "type": kind,
        "param": "stop",
        "code": None,
    }
