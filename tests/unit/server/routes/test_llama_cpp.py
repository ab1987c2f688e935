from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from support.fake_completer import MODEL
from support.http_server import Json, settings
from suture.server.errors import InvalidRequest
from suture.server.request import CompletionRequest, SamplingParams
from suture.server.routes.llama_cpp import LlamaCppDialect

HOLE: Json = {"input_prefix": "a", "input_suffix": "b"}
DEFAULTS = SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)

# As the plugins send them, at their defaults.
LLAMA_VIM: Json = {
    "id_slot": 0,
    "input_prefix": "import os\n\n",
    "input_suffix": "\nprint(x)\n",
    "input_extra": [{"text": "def f():\n", "time": [1, 2], "filename": "f.py"}],
    "prompt": "x = ",
    "n_predict": 128,
    "stop": [],
    "n_indent": 4,
    "top_k": 40,
    "top_p": 0.90,
    "samplers": ["top_k", "top_p", "infill"],
    "stream": False,
    "cache_prompt": True,
    "t_max_prompt_ms": 500,
    "t_max_predict_ms": 250,
    "response_fields": ["content", "timings/prompt_n", "truncated", "tokens_cached"],
}
LLAMA_VIM_WARM_UP: Json = {
    "id_slot": 0,
    "input_prefix": "",
    "input_suffix": "",
    "input_extra": [{"text": "def f():\n", "time": [1, 2], "filename": "f.py"}],
    "prompt": "",
    "n_predict": 0,
    "temperature": 0.0,
    "samplers": [],
    "stream": False,
    "cache_prompt": True,
    "t_max_prompt_ms": 1,
    "t_max_predict_ms": 1,
    "response_fields": [""],
}
LLAMA_VSCODE: Json = {
    "input_prefix": "import os\n\n",
    "input_suffix": "\nprint(x)\n",
    "input_extra": [{"text": "def f():\n", "time": 1732900000000, "filename": "/home/f.py"}],
    "prompt": "x = ",
    "n_predict": 128,
    "top_k": 40,
    "top_p": 0.99,
    "stream": False,
    "samplers": ["top_k", "top_p", "infill"],
    "cache_prompt": True,
    "n_indent": 4,
    "t_max_prompt_ms": 500,
    "t_max_predict_ms": 500,
}


def parse(body: Json, **flags: object) -> CompletionRequest:
    return LlamaCppDialect().parse(body, settings(**flags), MODEL).request


def refusal(body: Json) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as raised:
        parse(HOLE | body)
    return raised.value


@pytest.mark.parametrize("body", [LLAMA_VIM, LLAMA_VSCODE])
def test_an_editors_body_is_understood(body: Json) -> None:
    request = parse(body)
    assert request.prefix == "import os\n\nx = "
    assert request.suffix == "\nprint(x)\n"
    assert request.extra[0].text == "def f():\n"
    assert request.max_tokens == 128
    assert request.deadline_ms == body["t_max_predict_ms"]


def test_a_warm_up_generates_nothing() -> None:
    assert parse(LLAMA_VIM_WARM_UP).max_tokens == 0


def test_defaults_are_llama_servers() -> None:
    request = parse(HOLE)
    assert request.sampling == DEFAULTS
    assert request.max_tokens == MODEL.n_ctx
    assert request.shape == "auto" and request.deadline_ms is None


@pytest.mark.parametrize(("asked", "tokens"), [(-1, 4096), (0, 0), (7, 7), (8.0, 8), (5000, 4096)])
def test_n_predict_is_at_most_the_context(asked: float, tokens: int) -> None:
    assert parse(HOLE | {"n_predict": asked}).max_tokens == tokens
    assert parse(HOLE | {"max_tokens": asked}).max_tokens == tokens


def test_sampling_fields_are_taken_over() -> None:
    body = {
        "temperature": 0.5,
        "top_k": -1,
        "top_p": 0.5,
        "min_p": 0.1,
        "repeat_penalty": 1.1,
        "repeat_last_n": -1,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "seed": 7,
        "logit_bias": [[3, -1.5], ["4", False]],
    }
    assert parse(HOLE | body).sampling == SamplingParams(
        temperature=0.5,
        top_k=0,
        top_p=0.5,
        min_p=0.1,
        repeat_penalty=1.1,
        repeat_last_n=4096,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        logit_bias=((3, -1.5), (4, -math.inf)),
        seed=7,
    )
    assert parse(HOLE | {"logit_bias": {"3": 1}}).sampling.logit_bias == ((3, 1.0),)


@pytest.mark.parametrize(
    ("field", "item"),
    [
        ("stop", 1),
        ("response_fields", 1),
        ("input_extra", {}),
        ("stop_token_ids", -1),
        ("dry_sequence_breakers", 1),
        ("logit_bias", 1),
    ],
)
def test_a_long_list_of_what_is_wrong_is_refused_at_its_beginning(field: str, item: Any) -> None:
    assert (refusal({field: [item] * 200_000}).field or "").startswith(field)


def test_lists_have_a_length() -> None:
    assert refusal({"input_extra": [{"text": "x"}] * 1025}).field == "input_extra"
    assert refusal({"logit_bias": [[1, 1.0]] * 1025}).field == "logit_bias"


def test_n_is_a_number_of_candidates() -> None:
    assert (parse(HOLE).n, parse(HOLE | {"n": 3}).n, parse(HOLE | {"n_cmpl": 4}).n) == (1, 3, 4)
    for wrong in (0, 17, True, "2"):
        assert refusal({"n_cmpl": wrong}).field == "n_cmpl"


@pytest.mark.parametrize("seed", [None, -1, 2**32 - 1])
def test_a_random_seed_is_none(seed: int | None) -> None:
    assert parse(HOLE | {"seed": seed}).sampling.seed is None


def test_only_samplers_that_are_listed_apply_and_in_that_order() -> None:
    asked = {"top_k": 5, "samplers": ["min-p", "nucleus", "top_k"]}
    assert parse(HOLE | asked).sampling == replace(
        DEFAULTS, top_k=5, samplers=("min_p", "top_p", "top_k")
    )
    assert parse(HOLE | {"samplers": "edskypmxt"}).sampling == DEFAULTS


def test_infill_in_the_list_is_greedy_unless_there_is_a_temperature() -> None:
    infill = parse(HOLE | {"samplers": ["top-k", "top_p", "infill"]}).sampling
    assert infill == replace(DEFAULTS, temperature=0.0, samplers=("top_k", "top_p", "temperature"))
    warm = parse(HOLE | {"samplers": ["infill", "temperature"]})
    assert warm.sampling == replace(DEFAULTS, samplers=("temperature",))
    assert warm.sampling_of_others is None
    assert parse(HOLE | {"samplers": ["top_p"]}).sampling_of_others is None
    assert parse(HOLE).sampling_of_others is None


@pytest.mark.parametrize(
    ("names", "drawn"),
    [
        (["top_k", "top_p", "infill"], ("top_k", "top_p", "min_p")),
        (["infill", "min_p", "top_k"], ("min_p", "top_k")),
        ("ki", ("top_k", "min_p")),
    ],
)
def test_behind_infill_other_candidates_are_drawn_among_what_is_near_certain(
    names: Any, drawn: tuple[str, ...]
) -> None:
    asked = parse(HOLE | {"samplers": names, "n_cmpl": 3, "seed": 5})
    assert asked.sampling_of_others == replace(DEFAULTS, min_p=0.2, samplers=drawn, seed=5)
    surer = parse(HOLE | {"samplers": names, "min_p": 0.5}).sampling_of_others
    assert surer is not None and surer.min_p == 0.5


def test_all_samplers_fields_are_taken_over() -> None:
    fields: Json = {
        "typical_p": 0.5,
        "top_n_sigma": 1.5,
        "xtc_probability": 0.25,
        "xtc_threshold": 0.2,
        "dynatemp_range": 0.5,
        "dynatemp_exponent": 2.0,
        "min_keep": 3,
        "dry_multiplier": 0.75,
        "dry_base": 2.0,
        "dry_allowed_length": 4,
        "dry_penalty_last_n": 100,
    }
    assert parse(HOLE | fields).sampling == replace(DEFAULTS, **fields)
    breakers = parse(HOLE | {"dry_sequence_breakers": ["\n", "ab"], "dry_base": 0.5}).sampling
    assert breakers == replace(DEFAULTS, dry_sequence_breakers=("\n", "ab"))


@pytest.mark.parametrize(
    ("field", "value", "neutral"),
    [
        ("grammar_lazy", True, False),
        ("lora", [{"id": 0, "scale": 1.0}], []),
        ("image_data", [{}], []),
        ("mirostat", 2, 0),
        ("adaptive_target", 0.5, -1.0),
        ("return_progress", True, False),
    ],
)
def test_what_cannot_be_done_yet_is_refused_unless_it_changes_nothing(
    field: str, value: Any, neutral: Any
) -> None:
    error = refusal({field: value})
    assert error.field == field and "not supported yet" in str(error)
    parse(HOLE | {field: neutral})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("input_prefix", None),
        ("input_suffix", 3),
        ("prompt", None),
        ("input_extra", None),
        ("input_extra", [{"text": "\ud800"}]),
        ("n_predict", True),
        ("n_predict", "5"),
        ("n_predict", 1.5),
        ("temperature", "0"),
        ("samplers", ["top_k", "adaptive_p"]),
        ("samplers", ["nonsense"]),
        ("samplers", ["top_k", "top-k"]),
        ("dry_sequence_breakers", []),
        ("dry_sequence_breakers", [""]),
        ("dry_sequence_breakers", ["a"] * 33),
        ("dry_allowed_length", -1),
        ("xtc_probability", 1.5),
        ("min_keep", -1),
        ("temperature", math.inf),
        ("top_p", 1.5),
        ("seed", -2),
        ("stop", [1]),
        ("stop", ["x"] * 200),
        ("stream", 1),
        ("samplers", ["magic"]),
        ("samplers", "z"),
        ("samplers", [1]),
        ("logit_bias", [[5000, 1]]),
        ("logit_bias", [["text", 1]]),
        ("logit_bias", [[1, True]]),
        ("logit_bias", [1]),
        ("stop_token_ids", [1000]),
        ("give_back", 9),
        ("give_back", True),
        ("stream_interval", 0),
        ("min_tokens", 9999),
        ("session", "x" * 300),
        ("path", 1),
        ("return_tokens", "yes"),
        ("on_incomplete", "keep"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(field: str, value: Any) -> None:
    error = refusal({field: value})
    assert error.field is not None and error.field.startswith(field)
    assert f'"{field}' in str(error) and "\n" not in str(error)


def test_a_boundary_that_is_asked_for_goes_before_the_servers_layout() -> None:
    served = settings(layout="anchor")

    def layout(**fields: str) -> str:
        return LlamaCppDialect().parse(HOLE | fields, served, MODEL).request.layout

    assert layout() == layout(fim_boundary="auto") == "anchor"
    assert layout(fim_boundary="keep") == "auto"
    assert layout(fim_boundary="keep", layout="spm") == "spm"


def test_extension_fields_are_taken_over() -> None:
    body = {
        "healing": "off",
        "give_back": 1,
        "layout": "spm",
        "fim_boundary": "move",
        "grammar_scope": "prefill",
        "shape": "line",
        "stream_interval": 4,
        "session": "s",
        "seq": 3,
        "path": "a.py",
        "language": "python",
        "min_tokens": 2,
        "n_predict": 9,
        "include_stop_str_in_output": True,
        "stop_token_ids": [5],
        "ignore_eos": True,
        "skip_special_tokens": False,
        "detokenize": False,
        "return_tokens": True,
        "on_incomplete": "drop",
    }
    assert parse(HOLE | body) == CompletionRequest(
        prefix="a",
        suffix="b",
        infill=True,
        path="a.py",
        language="python",
        healing="off",
        give_back=1,
        layout="spm",
        fim_boundary="move",
        grammar_scope="prefill",
        shape="line",
        sampling=DEFAULTS,
        max_tokens=9,
        min_tokens=2,
        stop_token_ids=(5,),
        include_stop=True,
        ignore_eos=True,
        skip_special_tokens=False,
        detokenize=False,
        return_tokens=True,
        on_incomplete="drop",
        stream_interval=4,
        session="s",
        seq=3,
    )


@pytest.mark.parametrize(
    ("fields", "deadline_ms"),
    [
        ({"t_max_prompt_ms": 500}, 800),
        ({"t_max_prompt_ms": 900.5}, 901),
        ({"t_max_prompt_ms": 0}, None),
        ({"t_max_prompt_ms": -1}, None),
        ({}, None),
        ({"t_max_prompt_ms": 1, "n_predict": 0}, None),
    ],
)
def test_a_prompt_has_at_least_the_time_that_it_is_sized_for(
    fields: Json, deadline_ms: int | None
) -> None:
    """llama.vim gives it 500 ms, and keeps an empty answer as the answer for good."""
    assert parse(HOLE | fields, first_text_ms=400).prompt_deadline_ms == deadline_ms
