from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from support.fake_completer import MODEL
from support.http_server import Json, settings
from suture.server.errors import InfillUnsupported, InvalidRequest
from suture.server.request import (
    CompletionRequest,
    CompletionResult,
    ExtraText,
    FinishReason,
    SamplingParams,
)
from suture.server.routes.candidates import Completed
from suture.server.routes.completer import ModelInfo
from suture.server.routes.delivery import Asked
from suture.server.routes.ollama import ModelNotFound, OllamaDialect

QWEN = replace(MODEL, family="qwen2.5-coder")


def ask(body: Json, model: ModelInfo = MODEL) -> Asked:
    return OllamaDialect().parse({"model": "toy", "prompt": "a"} | body, settings(), model)


def parse(body: Json, model: ModelInfo = MODEL) -> CompletionRequest:
    return ask(body, model).request


def refused(body: Json) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as raised:
        parse(body)
    return raised.value


def test_defaults_are_ollamas() -> None:
    asked = ask({})
    assert asked.streamed
    request = asked.request
    assert (request.prefix, request.suffix, request.infill) == ("a", "", False)
    assert (request.shape, request.on_incomplete) == ("raw", "replace")
    assert request.sampling == SamplingParams(temperature=0.8, top_k=40, top_p=0.9)
    assert request.max_tokens == MODEL.n_ctx and request.stop == () and request.n_probs is None


def test_a_suffix_makes_it_a_hole_also_behind_an_empty_prompt() -> None:
    for prompt in ("a", ""):
        request = parse({"prompt": prompt, "suffix": "b"})
        assert (request.prefix, request.suffix, request.infill) == (prompt, "b", True)
        assert (request.shape, request.on_incomplete) == ("auto", "drop")
        assert request.max_tokens == MODEL.n_ctx


def test_options_are_taken_over() -> None:
    options = {
        "num_predict": 32,
        "temperature": 0,
        "top_k": 3,
        "top_p": 0.5,
        "min_p": 0.1,
        "typical_p": 0.9,
        "repeat_penalty": 1.1,
        "repeat_last_n": -1,
        "presence_penalty": 1,
        "frequency_penalty": 0.5,
        "seed": 7,
        "stop": ["x", ""],
    }
    request = parse({"options": options, "logprobs": True, "top_logprobs": 2})
    assert request.sampling == SamplingParams(
        temperature=0,
        top_k=3,
        top_p=0.5,
        min_p=0.1,
        typical_p=0.9,
        repeat_penalty=1.1,
        repeat_last_n=MODEL.n_ctx,
        presence_penalty=1,
        frequency_penalty=0.5,
        seed=7,
    )
    assert (request.max_tokens, request.stop, request.n_probs) == (32, ("x",), 2)


@pytest.mark.parametrize(
    ("num_predict", "max_tokens"),
    [
        (-1, MODEL.n_ctx),
        (-2, MODEL.n_ctx),
        (-99, MODEL.n_ctx),
        (0, 0),
        (5, 5),
        (10**9, MODEL.n_ctx),
    ],
)
def test_a_negative_num_predict_is_all_that_fits(num_predict: int, max_tokens: int) -> None:
    assert parse({"options": {"num_predict": num_predict}}).max_tokens == max_tokens


def test_what_only_says_how_to_load_a_model_changes_nothing() -> None:
    loading: Json = {
        "keep_alive": "30m",
        "shift": False,
        "think": False,
        "unknown": {"x": 1},
        "images": [],
        "context": [],
        "template": "",
        "system": "",
        "truncate": True,
        "temperature": 0.1,  # only `options` have it
        "options": {
            "num_ctx": 2048,
            "num_batch": 512,
            "num_gpu": 99,
            "num_keep": 24,
            "num_thread": 8,
            "main_gpu": 0,
            "use_mmap": True,
            "draft_num_predict": 4,
            "mirostat": 2,
            "penalize_newline": True,
        },
    }
    assert parse(loading) == parse({})
    assert parse({"suffix": "b", "system": "Be brief."}) == parse({"suffix": "b"})
    assert parse(dict.fromkeys(("suffix", "options", "format", "keep_alive", "raw"))) == parse({})


@pytest.mark.parametrize("keep_alive", [-1, 300, 1.5, "5m", "1h30m", "-1s", "0", "1.5h", "300ms"])
def test_every_duration_of_ollamas_may_stand_beside_a_prompt(keep_alive: object) -> None:
    assert parse({"keep_alive": keep_alive}) == parse({})


@pytest.mark.parametrize("body", [{}, {"raw": True}, {"raw": True, "suffix": "ignored"}])
def test_with_no_text_at_all_nothing_is_generated(body: Json) -> None:
    request = parse({"prompt": ""} | body)
    assert (request.prefix, request.suffix, request.max_tokens) == ("", "", 0)


@pytest.mark.parametrize("keep_alive", [0, 0.0, "0", "0s", "0m"])
def test_no_text_and_no_time_to_be_kept_unload_a_model(keep_alive: object) -> None:
    assert ask({"prompt": "", "keep_alive": keep_alive}).wants == "unloaded"
    assert ask({"prompt": "", "keep_alive": "1s"}).wants == "loaded"
    assert ask({"keep_alive": keep_alive}).wants == "loaded"


def test_a_raw_prompt_with_the_models_sentinels_is_the_hole_that_it_is_of() -> None:
    prompt = "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>"
    request = parse({"prompt": prompt, "raw": True, "suffix": "ignored"}, QWEN)
    assert (request.prefix, request.suffix, request.infill) == ("a", "b", True)
    assert request.shape == "auto"
    # A template that is the prompt alone lets them through as well.
    assert parse({"prompt": prompt}, QWEN) == request
    with pytest.raises(InvalidRequest, match="no order that is read"):
        parse({"prompt": prompt + "c", "raw": True}, QWEN)
    assert parse({"prompt": prompt + "c"}, QWEN).prefix == prompt + "c"
    text = parse({"prompt": "a", "raw": True, "suffix": "ignored"}, QWEN)
    assert (text.prefix, text.suffix, text.infill) == ("a", "", False)


def test_a_format_is_a_grammar_and_says_so() -> None:
    any_object = parse({"format": "json"})
    assert any_object.grammar == parse({"format": {"type": "object"}}).grammar is not None
    assert any_object.grammar_field == "format"
    assert parse({"format": ""}).grammar is None
    assert parse({"grammar": "root ::= [a]"}).grammar_field == "grammar"
    assert refused({"format": "json", "grammar": "root ::= [a]"}).field == "format"
    assert refused({"format": {"pattern": "x", "type": "string"}}).field == "format"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("images", ["aGk="]),
        ("context", [1, 2]),
        ("template", "{{ .Prompt }}"),
        ("truncate", False),
        ("_debug_render_only", True),
        ("system", "Be brief."),
        ("think", True),
        ("think", "high"),
    ],
)
def test_what_would_change_the_result_and_cannot_be_done_is_refused_by_name(
    field: str, value: object
) -> None:
    error = refused({field: value})
    assert error.field == field and "not supported" in str(error)


def test_raw_and_system_contradict_each_other_as_with_ollama() -> None:
    assert refused({"raw": True, "system": "x"}).field == "system"


WRONG: list[tuple[str, Any]] = [
    ("model", 1),
    ("model", "\ud800"),
    ("prompt", 1),
    ("prompt", ["a"]),
    ("prompt", "\ud800"),
    ("suffix", {}),
    ("suffix", "\udfff"),
    ("system", []),
    ("stream", 1),
    ("stream", "true"),
    ("raw", "no"),
    ("shift", 0),
    ("format", "xml"),
    ("format", []),
    ("format", 1),
    ("keep_alive", True),
    ("keep_alive", []),
    ("keep_alive", "soon"),
    ("keep_alive", "5"),
    ("keep_alive", ""),
    ("keep_alive", "1" * 10_000),
    ("think", 1),
    ("think", "hard"),
    ("think", ["high"]),
    ("images", "x"),
    ("context", "x"),
    ("logprobs", 1),
    ("top_logprobs", -1),
    ("top_logprobs", 21),
    ("top_logprobs", True),
    ("options", []),
    ("options", "x"),
    ("options", 1),
    ("options", True),
    ("options.num_predict", "5"),
    ("options.num_predict", 1.5),
    ("options.num_predict", True),
    ("options.num_predict", 10**30),
    ("options.num_predict", -(10**400)),
    ("options.num_ctx", "4096"),
    ("options.num_ctx", 10**30),
    ("options.use_mmap", 1),
    ("options.temperature", "hot"),
    ("options.temperature", -1),
    ("options.temperature", 1e308),
    ("options.temperature", 10**400),
    ("options.top_k", 1.5),
    ("options.top_p", 2),
    ("options.min_p", -0.1),
    ("options.repeat_penalty", 0),
    ("options.repeat_last_n", -2),
    ("options.seed", 2**64),
    ("options.seed", "x"),
    ("options.stop", 1),
    ("options.stop", [1]),
    ("options.stop", ["x"] * 100),
    ("options.stop", ["x" * 5000]),
    ("options.stop", ["\ud800"]),
    ("shape", "round"),
    ("stop_token_ids", [MODEL.n_vocab]),
    ("min_tokens", 10**6),
]


@pytest.mark.parametrize(("path", "value"), WRONG)
def test_a_value_that_does_not_fit_is_refused_by_name(path: str, value: Any) -> None:
    field, _, option = path.partition(".")
    error = refused({field: {option: value} if option else value})
    assert error.field is not None and error.field.startswith(path)
    message = str(error)
    assert "\n" not in message and len(message) < 400


@pytest.mark.parametrize(
    "name",
    ["toy", "toy:latest", "TOY", "library/toy", "registry.ollama.ai/library/toy:latest", "", None],
)
def test_the_model_has_the_names_that_ollama_would_give_it(name: str | None) -> None:
    assert parse({"model": name}) == parse({})


def test_a_tag_is_a_part_of_the_name() -> None:
    model = replace(MODEL, name="qwen2.5-coder-1.5b")
    assert parse({"model": "qwen2.5-coder:1.5b"}, model).prefix == "a"


@pytest.mark.parametrize("name", ["other", "toy:7b", "toy\nx", "x" * 10_000])
def test_another_model_is_not_found(name: str) -> None:
    with pytest.raises(ModelNotFound, match="not found: GET /api/tags lists") as raised:
        parse({"model": name})
    assert raised.value.status == 404
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 400


def test_a_model_that_cannot_fill_in_refuses_a_suffix_with_ollamas_status() -> None:
    sentinels = {"prompt": "<fim_prefix>a<fim_suffix>b<fim_middle>"}
    for body in ({"suffix": "b"}, sentinels, sentinels | {"raw": True}):
        with pytest.raises(InfillUnsupported, match="does not support insert") as raised:
            parse(body, replace(MODEL, fim=False, family=None))
        assert raised.value.status == 400
    # What it can is not known before it is loaded.
    assert parse({"suffix": "b"}, replace(MODEL, fim=False, n_ctx=0)).infill


def test_our_own_fields_are_understood() -> None:
    request = parse({"suffix": "b", "session": "s", "seq": 3, "shape": "line", "healing": "off"})
    assert (request.session, request.seq, request.shape, request.healing) == ("s", 3, "line", "off")


def test_files_of_a_raw_prompt_are_files() -> None:
    hole = "<|file_sep|>a.py\n<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>"
    body = {"prompt": "<|repo_name|>r\n<|file_sep|>b.py\nx\n" + hole, "raw": True}
    request = parse(body, QWEN)
    assert (request.prefix, request.suffix, request.path) == ("a", "b", "a.py")
    assert request.extra == (ExtraText("x\n", "b.py"),)
    assert parse(body | {"path": "c.py"}, QWEN).path == "c.py"


STOPS = ["<|endoftext|>", "<|fim_pad|>", "<|fim_prefix|>", "<PRE>", "[SUFFIX]", "/src/", "```"]
# What editors send, each in the words of its own source.
RECORDED: dict[str, Json] = {
    "Continue, through its streamFim": {
        "model": "toy",
        "prompt": "a",
        "suffix": "b",
        "options": {
            "temperature": 0.01,
            "num_predict": 2048,
            "stop": STOPS,
            "num_ctx": 8096,
            "mirostat": 0,
        },
        "keep_alive": 1800,
        "stream": True,
    },
    "Continue, with a template of its own": {
        "model": "toy",
        "prompt": "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>",
        "raw": True,
        "options": {"temperature": 0.01, "num_predict": 2048, "stop": STOPS, "num_ctx": 8096},
        "keep_alive": 1800,
        "stream": True,
    },
    "Zed, which guesses by the model's name": {
        "model": "toy:latest",
        "prompt": "<fim_prefix>a<fim_suffix>b<fim_middle>",
        "raw": True,
        "stream": False,
        "options": {"num_predict": 64, "temperature": 0.2, "stop": STOPS},
    },
    "Twinny": {
        "model": "toy:latest",
        "prompt": "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>",
        "stream": True,
        "keep_alive": "5m",
        "options": {"temperature": 0.2, "num_predict": 512, "stop": STOPS},
    },
    "llm-ls": {
        "prompt": "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>",
        "model": "toy",
        "stream": False,
        "options": {"temperature": 0.2, "top_p": 0.95},
    },
    "lsp-ai": {
        "model": "toy",
        "prompt": "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>",
        "options": {"num_predict": 32},
        "keep_alive": None,
        "raw": True,
        "stream": False,
    },
}


@pytest.mark.parametrize("client", RECORDED)
def test_what_editors_send_is_the_hole_they_mean(client: str) -> None:
    body = RECORDED[client]
    asked = OllamaDialect().parse(body, settings(), QWEN)
    request = asked.request
    assert (request.prefix, request.suffix, request.infill) == ("a", "b", True)
    assert asked.streamed == body["stream"]
    assert request.sampling.temperature == body["options"].get("temperature", 0.8)
    assert request.max_tokens == body["options"].get("num_predict", MODEL.n_ctx)
    assert list(request.stop) == body["options"].get("stop", [])


@pytest.mark.parametrize("finish", get_args(FinishReason))
def test_every_end_has_a_reason_of_ollamas(finish: FinishReason) -> None:
    completed = Completed("x", [1], CompletionResult(finish))
    whole = ask({}).answer.whole([completed])
    assert isinstance(whole, dict)
    expected = "stop" if finish in ("stop", "eos", "suffix") else "length"
    assert whole["done_reason"] == expected and whole["suture"]["finish"] == finish
