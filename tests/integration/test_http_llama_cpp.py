"""llama-server's other routes over a real socket: `/completion`, `/tokenize`, `/props`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from support.answering import answering_model
from support.fake_completer import FakeCompleter, says
from support.http_server import Json, client, events, serving, settings
from support.scripted_completer import VOCABULARY, scripted
from support.toy import special, toy_encode
from suture.server.engine.scripted import speaking_model
from suture.server.errors import EngineError, Loading, ModelError
from suture.server.request import CompletionRequest
from suture.server.version import VERSION

SPEAKS = speaking_model(VOCABULARY, b"const userName = ret;\n")
GREEDY: Json = {"temperature": 0, "n_predict": 20}


@contextmanager
def served() -> Iterator[httpx2.Client]:
    at = settings(parallel=2)
    with (
        scripted(SPEAKS, at) as completer,
        serving(completer, parallel=2) as url,
        client(url) as http,
    ):
        yield http


def refused(response: httpx2.Response, status: int = 400) -> str:
    """The message of a refusal in llama-server's shape."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error.keys() == {"code", "message", "type"} and error["code"] == status
    assert isinstance(error["message"], str)
    return error["message"]


@pytest.mark.parametrize("path", ["/completion", "/completions"])
@pytest.mark.parametrize(
    "prompt",
    ["const userNa", list(toy_encode(b"const userNa")), ["const", *toy_encode(b" userNa")]],
)
def test_a_completion_goes_on_with_text_or_tokens_and_is_healed(path: str, prompt: Any) -> None:
    body = GREEDY | {"prompt": prompt, "stop": [";"]}
    with served() as http:
        answer = http.post(path, json=body).json()
        stream = [
            json.loads(event) for event in events(http.post(path, json=body | {"stream": True}))
        ]
    assert answer["content"] == "me = ret"
    assert (answer["stop"], answer["stop_type"], answer["stopping_word"]) == (True, "word", ";")
    assert answer["suture"]["healing"]["pending"] == " userNa"
    assert answer["suture"]["prompt"]["layout"] == "plain"
    assert answer["generation_settings"]["n_predict"] == 20
    assert "".join(event["content"] for event in stream) == "me = ret"
    assert [event["stop"] for event in stream] == [False] * (len(stream) - 1) + [True]


@pytest.mark.parametrize("path", ["/completion", "/v1/completions"])
def test_a_hole_in_the_form_of_a_family_is_filled_as_infill_fills_it(path: str) -> None:
    prefix, suffix = "const userNa", "return\n"
    sentinels = [special(f"<|fim_{role}|>") for role in ("prefix", "suffix", "middle")]
    texts = [*map(toy_encode, (prefix.encode(), suffix.encode(), b""))]
    as_ids = [i for pair in zip(sentinels, texts, strict=True) for i in (pair[0], *pair[1])]
    prompts = [
        f"<|fim_prefix|>{prefix}<|fim_suffix|>{suffix}<|fim_middle|>",
        f"<PRE> {prefix} <SUF>{suffix} <MID>",
        f"[SUFFIX]{suffix}[PREFIX]{prefix}",
        as_ids,
    ]
    asked = CompletionRequest(prefix=prefix, suffix=suffix, infill=True, layout="psm")
    with (
        scripted(answering_model(asked, "me = ret;\n"), settings(layout="psm")) as completer,
        serving(completer, layout="psm") as url,
        client(url) as http,
    ):
        hole = {"input_prefix": prefix, "input_suffix": suffix}
        infill = http.post("/infill", json=GREEDY | hole).json()
        for prompt in prompts:
            body = {"prompt": prompt, "temperature": 0, "max_tokens": 20}
            answer = http.post(path, json=body).json()
            text = answer["content"] if path == "/completion" else answer["choices"][0]["text"]
            assert text == infill["content"]
            assert answer["suture"]["prompt"]["layout"] == "psm"
            assert answer["suture"]["healing"] == infill["suture"]["healing"]
    assert infill["content"] == "me = ret;\n"


def test_several_prompts_have_answers_that_count_on() -> None:
    body = {"prompt": ["const userNa", [*toy_encode(b"const")]], "stop": [";"], "temperature": 0}
    with served() as http:
        arrayed = http.post("/completion", json=body | {"n_predict": 20}).json()
        whole = http.post("/v1/completions", json=body | {"max_tokens": 20, "n": 2}).json()
        asked = body | {"max_tokens": 20, "n": 2, "stream": True}
        asked["stream_options"] = {"include_usage": True}
        *stream, done = events(http.post("/v1/completions", json=asked))
    assert [(one["index"], one["content"]) for one in arrayed] == [
        (0, "me = ret"),
        (1, " userName = ret"),
    ]
    texts = ["me = ret", "me = ret", " userName = ret", " userName = ret"]
    assert [choice["text"] for choice in whole["choices"]] == texts
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3]
    reports = [choice["suture"]["prompt"] for choice in whole["choices"]]
    assert whole["usage"]["prompt_tokens"] == reports[0]["tokens"] + reports[2]["tokens"]
    *chunks, last = [json.loads(event) for event in stream]
    streamed = [""] * 4
    for chunk in chunks:
        streamed[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
    assert (streamed, done) == (texts, "[DONE]")
    assert last["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]


def test_a_client_that_leaves_ends_the_prompts_that_are_left() -> None:
    completer = FakeCompleter(says(*"abc"), delay_s=0.05)
    with serving(completer) as url, client(url) as http:
        body = {"prompt": ["a"] * 8, "stream": True}
        with http.stream("POST", "/completion", json=body) as response:
            next(response.iter_bytes())
        deadline = time.monotonic() + 10
        while not completer.cancelled and time.monotonic() < deadline:
            time.sleep(0.02)
    assert completer.cancelled == 1 and len(completer.requests) < 8


def test_what_is_no_prompt_is_a_400_in_llama_servers_shape() -> None:
    with served() as http:
        for path in ("/completion", "/completions"):
            assert "inside a character" in refused(http.post(path, json={"prompt": [97, 0xC3]}))
            assert "is required" in refused(http.post(path, json={}))
        assert "must be JSON" in refused(http.post("/completion", content=b"{"))


def test_an_error_in_a_stream_is_its_last_event() -> None:
    completer = FakeCompleter([*says("a")[:1], EngineError("the engine failed")])
    with serving(completer) as url, client(url) as http:
        stream = events(http.post("/completion", json={"prompt": "a", "stream": True}))
    assert json.loads(stream[-1])["error"]["code"] == 500


def test_text_becomes_tokens_and_tokens_text() -> None:
    text = "const userName = <|fim_middle|>é"
    with served() as http:
        parsed = http.post("/tokenize", json={"content": text}).json()["tokens"]
        asked = {"content": text, "parse_special": False}
        spelled = http.post("/tokenize", json=asked).json()["tokens"]
        shown = [http.post("/detokenize", json={"tokens": ids}).json() for ids in (parsed, spelled)]
        empty = http.post("/tokenize", json={"content": "", "add_special": True}).json()
    assert spelled == list(toy_encode(text.encode()))
    assert special("<|fim_middle|>") in parsed and special("<|fim_middle|>") not in spelled
    assert shown == [{"content": text}] * 2
    assert empty == {"tokens": []}


def test_a_piece_that_is_half_a_character_is_its_bytes() -> None:
    asked = {"content": "def é<|fim_pad|>", "with_pieces": True}
    with served() as http:
        pieces = http.post("/tokenize", json=asked).json()["tokens"]
        half = http.post("/detokenize", json={"tokens": [pieces[-3]["id"]]}).json()
    assert [piece["piece"] for piece in pieces] == ["def", " ", [0xC3], [0xA9], "<|fim_pad|>"]
    assert half == {"content": "\ufffd"}


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        ("/tokenize", {}, '"content" is required'),
        ("/tokenize", {"content": None}, '"content" is required'),
        ("/tokenize", {"content": ["a"]}, "must be a string"),
        ("/tokenize", {"content": "\ud800"}, "lone surrogate"),
        ("/tokenize", {"content": "é" * 2**20}, "at most 1048576 bytes, not 2097152"),
        ("/tokenize", {"content": "a", "with_pieces": 1}, "must be true or false"),
        ("/tokenize", {"content": "a", "parse_special": "no"}, "must be true or false"),
        ("/tokenize", [], "must be a JSON object"),
        ("/detokenize", {}, '"tokens" is required'),
        ("/detokenize", {"tokens": "a"}, "must be an array"),
        ("/detokenize", {"tokens": [97, "a"]}, '"tokens[1]" must be a whole number'),
        ("/detokenize", {"tokens": [True]}, '"tokens[0]" must be a whole number'),
        ("/detokenize", {"tokens": [-1]}, '"tokens[0]" must be at least 0'),
        ("/detokenize", {"tokens": [VOCABULARY.n_vocab]}, "token ids from 0 to"),
        ("/detokenize", {"tokens": [97] * (2**18 + 1)}, "at most 262144 items"),
    ],
)
def test_what_cannot_be_tokens_or_text_is_refused(path: str, body: Any, why: str) -> None:
    with served() as http:
        content = json.dumps(body)
        assert why in refused(http.post(path, content=content))


def test_props_say_what_is_served_but_not_where_it_lies() -> None:
    with served() as http:
        props = http.get("/props").json()
        assert refused(http.post("/props", json={}), 405)
    assert (props["total_slots"], props["model_path"], props["model_alias"]) == (
        *(2, "toy.gguf"),
        "toy",
    )
    assert (props["chat_template"], props["build_info"]) == ("", f"suture-{VERSION}")
    assert (props["bos_token"], props["eos_token"]) == ("<|endoftext|>",) * 2
    slot = props["default_generation_settings"]
    assert slot["n_ctx"] == 4096 and not slot["is_processing"]
    params = slot["params"]
    assert (params["temperature"], params["top_k"], params["n_predict"]) == (0.8, 40, -1)
    assert params["samplers"][0] == "penalties" and "/models" not in json.dumps(props)


def test_nothing_is_told_of_a_model_that_is_not_there_yet() -> None:
    loading = FakeCompleter([Loading("Loading model")], loading="loading")
    with serving(loading) as url, client(url) as http:
        assert refused(http.get("/props"), 503) == "Loading model"
        for path, body in [
            ("/tokenize", {"content": "a"}),
            ("/detokenize", {"tokens": [1]}),
            ("/completion", {"prompt": [1]}),
            ("/completion", {"prompt": "a"}),
        ]:
            assert refused(http.post(path, json=body), 503) == "Loading model"
    with (
        serving(FakeCompleter(loading=ModelError("no GGUF file"))) as url,
        client(url) as http,
    ):
        assert refused(http.get("/props"), 500) == "no GGUF file"
