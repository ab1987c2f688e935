from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.fake_completer import MODEL
from support.http_server import Json, settings
from support.toy import special, toy_encode, toy_vocabulary
from suture.server.errors import InvalidRequest, Loading
from suture.server.request import CompletionRequest
from suture.server.routes.llama_cpp import DEFAULTS, LlamaCppDialect
from suture.server.routes.llama_cpp_completion import MAX_PARTS, LlamaCppCompletionDialect
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


@pytest.mark.parametrize(
    "prompt",
    [
        "const userName",
        ["const userName"],
        [["const userName"]],
        {"prompt_string": "const userName"},
        [{"prompt_string": "const userName", "multimodal_data": []}],
        list(toy_encode(b"const userName")),
        [list(toy_encode(b"const userName"))],
        ["const", *toy_encode(b" user"), "Name"],
    ],
)
def test_a_prompt_may_be_written_in_each_of_llama_servers_ways(prompt: Any) -> None:
    assert parse({"prompt": prompt}).prefix == "const userName"


def test_an_empty_text_is_a_prompt() -> None:
    assert parse({"prompt": ""}).prefix == ""


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        (None, "must be text, or an array"),
        (7, "must be text, or an array"),
        (True, "must be text, or an array"),
        ({}, "must be text, or an array"),
        ([], "must have 1 to"),
        ([[]], "must have 1 to"),
        ([97] * (MAX_PARTS + 1), "must have 1 to"),
        (["a", "b"], "several prompts is not supported yet"),
        ([[97], [98]], "several prompts is not supported yet"),
        (["a", {"prompt_string": "b"}], "several prompts is not supported yet"),
        ([[[97]]], "several prompts is not supported yet"),
        ({"prompt_string": "a", "multimodal_data": ["AAAA"]}, "multimodal_data is not supported"),
        ([97, 1.5], "must be text, or an array"),
        ([97, True], "must be text, or an array"),
        ([97, None], "must be text, or an array"),
        ("\ud800", "lone surrogate"),
        ([97, "\ud800"], "lone surrogate"),
        ([97, special("<|fim_middle|>")], "item 1 is a token that no text has"),
        ([-1], "item 0 is none"),
        ([10**30], "item 0 is none"),
        ([97, 0xC3], "ends inside a character"),
        ([0xFF, 97], "not UTF-8"),
    ],
)
def test_a_prompt_that_is_no_text_is_refused(prompt: Any, why: str) -> None:
    error = refusal({"prompt": prompt})
    assert error.field == "prompt" and str(error).startswith('"prompt" ') and why in str(error)


def test_a_prompt_is_required() -> None:
    assert str(refusal({})) == '"prompt" is required'


def test_ids_wait_for_the_model_that_they_are_of() -> None:
    dialect = LlamaCppCompletionDialect()
    assert dialect.parse({"prompt": ["a"]}, settings(), MODEL).request.prefix == "a"
    with pytest.raises(Loading):
        dialect.parse({"prompt": [97]}, settings(), MODEL)


@pytest.mark.parametrize(
    ("field", "value"),
    [("n_predict", "5"), ("mirostat", 2), ("stream", 1), ("stop", 1), ("lora", [{}])],
)
def test_what_infill_refuses_is_refused(field: str, value: Any) -> None:
    assert refusal({"prompt": "a", field: value}).field == field
