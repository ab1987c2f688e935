from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.fake_completer import MODEL
from support.toy import special, toy_encode, toy_vocabulary
from suture.server.errors import InvalidRequest, Loading
from suture.server.routes.body import validate
from suture.server.routes.completer import ModelInfo
from suture.server.routes.fields import RequestBody
from suture.server.routes.prompts import MAX_PARTS, MAX_PROMPTS, Prompt, Prompts, read_prompt
from suture.server.routes.prompts import prompt_text as text_of
from suture.server.routes.raw_prompts import Hole
from suture.server.token_texts import TokenTexts

VOCABULARY = toy_vocabulary()
SILENT = frozenset(VOCABULARY.silent_ids)
TOY = replace(MODEL, family="qwen2.5-coder", tokens=TokenTexts(VOCABULARY, SILENT))
PRE, SUF, MID = "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"


class Body(RequestBody):
    prompt: Prompts


def read(value: Any, model: ModelInfo = TOY) -> Prompt:
    [parts] = validate(Body, {"prompt": value}).prompt
    return read_prompt(parts, model)


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
    assert read(prompt) == Prompt("const userName")


def test_an_empty_text_is_a_prompt() -> None:
    assert read("") == read([""]) == Prompt("")


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        (None, "is required"),
        (7, "must be text, or an array"),
        (True, "must be text, or an array"),
        ({}, "must be text, or an array"),
        ([], "must have 1 to"),
        ([[]], "must have 1 to"),
        ([97] * (MAX_PARTS + 1), "must have 1 to"),
        (["a"] * (MAX_PROMPTS + 1), f"must have 1 to {MAX_PROMPTS} prompts"),
        ([[[97]]], "must be text, or an array"),
        (["a", None], "must be text, or an array"),
        ({"prompt_string": "a", "multimodal_data": ["AAAA"]}, "multimodal_data is not supported"),
        ([97, 1.5], "must be text, or an array"),
        ([97, True], "must be text, or an array"),
        ([97, None], "must be text, or an array"),
        ("\ud800", "lone surrogate"),
        ([97, "\ud800"], "lone surrogate"),
        ([97, special("<|im_end|>")], "item 1 is a token that no text has"),
        ([97, special(MID)], "no order that is read"),
        ([special(PRE), 97], "no order that is read"),
        ([f"{PRE}a", 97], "no order that is read"),
        ([-1], "item 0 is none"),
        ([10**30], "item 0 is none"),
        ([97, 0xC3], "ends inside a character"),
        ([0xFF, 97], "not UTF-8"),
    ],
)
def test_a_prompt_that_is_no_text_is_refused(prompt: Any, why: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        read(prompt)
    error = raised.value
    assert error.field is not None and error.field.startswith("prompt")
    assert str(error).startswith('"prompt" ') and why in str(error)


@pytest.mark.parametrize(
    "prompt",
    [
        f"{PRE}def f({SUF}):{MID}",
        [special(PRE), *toy_encode(b"def f("), special(SUF), *toy_encode(b"):"), special(MID)],
        [special(PRE), special(SUF), "):", special(MID), "def f("],
        [f"{SUF}):", *toy_encode(PRE.encode()), "def f(", MID],
        [[special(SUF), *toy_encode(b"):"), special(PRE), *toy_encode(b"def f(")]],
    ],
)
def test_a_hole_may_be_of_text_or_of_ids(prompt: Any) -> None:
    assert read(prompt).hole == Hole("def f(", "):")


def test_ids_that_spell_a_sentinel_are_the_text() -> None:
    text = f"{PRE}a{SUF}b{MID}"
    assert read(list(toy_encode(text.encode()))) == Prompt(text)


def test_a_sentinel_further_on_in_a_text_is_text() -> None:
    assert read(f"x{PRE}a{SUF}b{MID}") == Prompt(f"x{PRE}a{SUF}b{MID}")


def test_a_prompt_beside_a_suffix_is_text_alone() -> None:
    assert text_of([f"{PRE}a{SUF}b{MID}"], TOY) == f"{PRE}a{SUF}b{MID}"
    with pytest.raises(InvalidRequest, match="item 0 is a token that no text has"):
        text_of([special(PRE), 97], TOY)


def test_several_prompts_may_each_be_of_any_kind() -> None:
    several = validate(Body, {"prompt": ["a", [97, "b"], {"prompt_string": "c"}]})
    assert several.prompt == [["a"], [97, "b"], ["c"]]
    assert validate(Body, {"prompt": ["a", 97]}).prompt == [["a", 97]]


def test_ids_wait_for_the_model_that_they_are_of() -> None:
    assert read(["a"], MODEL) == Prompt("a")
    with pytest.raises(Loading):
        read([97], MODEL)
