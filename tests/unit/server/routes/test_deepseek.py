from __future__ import annotations

from typing import Any

import pytest

from support.fake_completer import MODEL
from support.http_server import Json, settings
from suture.server.errors import InvalidRequest
from suture.server.request import CompletionRequest
from suture.server.routes.deepseek import DeepSeekDialect
from suture.server.routes.openai import OpenAIDialect


def parse(body: Json) -> CompletionRequest:
    return DeepSeekDialect().parse({"prompt": "a"} | body, settings(), MODEL).request


@pytest.mark.parametrize(
    "body",
    [
        {"suffix": "b", "max_tokens": 9, "temperature": 0, "top_p": 0.5, "stop": ["x", "y"]},
        {"max_tokens": 16, "presence_penalty": 1, "frequency_penalty": -2, "logprobs": 20},
        {"max_tokens": 16, "logprobs": False, "echo": False, "stop": None, "suffix": None},
    ],
)
def test_what_it_shares_with_openai_means_the_same(body: Json) -> None:
    same = OpenAIDialect().parse({"prompt": "a"} | body, settings(), MODEL).request
    assert parse(body) == same


def test_an_answer_is_as_long_as_deepseek_lets_it_be() -> None:
    assert parse({}).max_tokens == parse({"max_tokens": 4096}).max_tokens == 4096


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt", None),
        ("prompt", [1, 2]),
        ("suffix", 1),
        ("max_tokens", 0),
        ("max_tokens", 4097),
        ("max_tokens", "9"),
        ("temperature", 2.1),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("logprobs", 21),
        ("logprobs", True),
        ("stop", ["x"] * 17),
        ("stop", 1),
        ("echo", True),
        ("stream_options", []),
    ],
)
def test_what_deepseek_would_refuse_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse({field: value})
    assert raised.value.field is not None and raised.value.field.startswith(field)
