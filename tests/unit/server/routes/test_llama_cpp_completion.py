from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.fake_completer import MODEL
from support.http_server import Json, settings
from support.toy import toy_vocabulary
from suture.server.errors import InvalidRequest
from suture.server.request import CompletionRequest
from suture.server.routes.llama_cpp import DEFAULTS, LlamaCppDialect
from suture.server.routes.llama_cpp_completion import LlamaCppCompletionDialect
from suture.server.token_texts import TokenTexts

VOCABULARY = toy_vocabulary()
TOY = replace(MODEL, tokens=TokenTexts(VOCABULARY, frozenset(VOCABULARY.silent_ids)))


def parse(body: Json) -> CompletionRequest:
    return LlamaCppCompletionDialect().parse(body, settings(), TOY).request


def refusal(body: Json) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as raised:
        parse(body)
    return raised.value


def test_text_goes_on_as_it_is() -> None:
    request = parse({"prompt": "a <|fim_prefix|>"})
    assert request == CompletionRequest(
        prefix="a <|fim_prefix|>",
        shape="raw",
        sampling=DEFAULTS,
        max_tokens=MODEL.n_ctx,
        on_incomplete="replace",
    )


def test_all_else_is_as_in_infill() -> None:
    body: Json = {
        "n_predict": 7,
        "stop": ["x", ""],
        "samplers": ["top_k", "infill"],
        "logit_bias": [[5, False]],
        "seed": 3,
        "t_max_predict_ms": 10,
        "n_cmpl": 2,
        "n_probs": 4,
        "grammar": 'root ::= "a"',
        "session": "s",
        "seq": 1,
        "healing": "off",
        "cache_prompt": False,
        "id_slot": 0,
    }
    hole = body | {"input_prefix": "a", "input_suffix": ""}
    infill = LlamaCppDialect().parse(hole, settings(), TOY).request
    same = replace(infill, infill=False, shape="raw", on_incomplete="replace")
    assert parse(body | {"prompt": "a"}) == same


def test_a_hole_in_the_form_of_a_family_is_a_hole_as_in_infill() -> None:
    files = "<|repo_name|>r\n<|file_sep|>b.py\ny = 1\n<|file_sep|>a.py\n"
    body: Json = {"n_predict": 7, "stop": ["<|file_sep|>"], "seed": 3}
    prompt = f"{files}<|fim_prefix|>def f(<|fim_suffix|>):\n<|fim_middle|>"
    extra = [{"filename": "b.py", "text": "y = 1\n"}]
    same = {"input_prefix": "def f(", "input_suffix": "):\n", "input_extra": extra, "path": "a.py"}
    infill = LlamaCppDialect().parse(body | same, settings(), TOY).request
    assert parse(body | {"prompt": prompt}) == infill
    asked = {"prompt": prompt, "shape": "line", "on_incomplete": "replace", "path": "c.py"}
    request = parse(asked)
    assert (request.shape, request.on_incomplete, request.path) == ("line", "replace", "c.py")


def test_several_prompts_are_a_request_each() -> None:
    asked = LlamaCppCompletionDialect().parse(
        {"prompt": ["a", [98], {"prompt_string": "<fim_prefix>c<fim_suffix>d<fim_middle>"}]},
        settings(),
        TOY,
    )
    assert [one.prefix for one in asked.requests] == ["a", "b", "c"]
    assert [one.infill for one in asked.requests] == [False, False, True]


def test_several_prompts_are_no_session() -> None:
    error = refusal({"prompt": ["a", "b"], "session": "s"})
    assert error.field == "session"
    assert parse({"prompt": ["a"], "session": "s"}).session == "s"


def test_a_prompt_is_required() -> None:
    assert str(refusal({})) == '"prompt" is required'


@pytest.mark.parametrize(
    ("field", "value"),
    [("n_predict", "5"), ("mirostat", 2), ("stream", 1), ("stop", 1), ("lora", [{}])],
)
def test_what_infill_refuses_is_refused(field: str, value: Any) -> None:
    assert refusal({"prompt": "a", field: value}).field == field
