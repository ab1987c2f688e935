import json
from typing import Any

import pytest

from support.asking import asked
from support.toy import special, toy_encode, toy_vocabulary
from suture.healing import TokenKind, Vocabulary
from suture.server.engine.remote.errors import BackendFailed
from suture.server.engine.remote.openai import OpenAI
from suture.server.engine.remote.protocol import Heard, Json, Usage
from suture.server.engine.remote.shown_prompt import shown_prompt
from suture.server.errors import InvalidRequest
from suture.server.request import CompletionRequest, SamplingParams

VOCABULARY = toy_vocabulary()


def body(**fields: Any) -> Json:
    return OpenAI().body(asked(**{"level": "hygiene", **fields}), "m", VOCABULARY)


def test_the_prompt_is_text_with_control_tokens_by_their_text() -> None:
    ids = (special("<|fim_prefix|>"), *toy_encode(b"a\n"), special("<|fim_suffix|>"))
    assert body(prompt_ids=ids)["prompt"] == "<|fim_prefix|>a\n<|fim_suffix|>"


def test_f1_no_control_token_comes_out_of_the_users_text() -> None:
    ids = (special("<|fim_prefix|>"), *toy_encode(b"x <|fim_middle|> y"))
    shown = shown_prompt(ids, VOCABULARY)
    assert shown.startswith("<|fim_prefix|>x <")
    assert "<|fim_middle|>" not in shown
    assert shown.replace("\u200b", "") == "<|fim_prefix|>x <|fim_middle|> y"


def test_f2_the_first_token_is_left_to_the_server() -> None:
    vocabulary = Vocabulary(
        [b"<s>", b"a"], kinds=[TokenKind.CONTROL, TokenKind.NORMAL], bos_id=0, add_bos=True
    )
    assert shown_prompt((0, 1), vocabulary) == "a"
    assert shown_prompt((1, 0), vocabulary) == "a<s>"


def test_only_what_the_api_has_is_sent() -> None:
    sent = body()
    assert set(sent) == {
        "model", "prompt", "max_tokens", "stream", "stream_options", "temperature", "top_p", "stop",
    }  # fmt: skip
    assert sent["stop"] == ["<|endoftext|>", "<|fim_pad|>"]
    assert json.loads(json.dumps(sent)) == sent
    drawn = SamplingParams(0.8, presence_penalty=0.5, logit_bias=((3, -float("inf")),), seed=7)
    sent = body(sampling=drawn)
    assert sent["presence_penalty"] == 0.5
    assert sent["logit_bias"] == {"3": -100.0}
    assert sent["seed"] == 7
    assert "suffix" not in sent


def test_nothing_can_be_forced() -> None:
    assert OpenAI().level(asked(level="recursive")) == "none"
    assert OpenAI().level(asked(level="hygiene")) == "hygiene"
    assert OpenAI().level(asked(pending=b"")) == "none"


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("top_k", {"sampling": SamplingParams(1.0, top_k=20)}),
        ("min_p", {"sampling": SamplingParams(1.0, min_p=0.1)}),
        ("repeat_penalty", {"sampling": SamplingParams(repeat_penalty=1.3)}),
        ("json_schema", {"grammar": "root ::= [a]", "grammar_field": "json_schema"}),
        ("n_probs", {"n_probs": 1}),
        ("min_tokens", {"min_tokens": 1}),
        ("ignore_eos", {"ignore_eos": True}),
        ("stop_token_ids", {"stop_token_ids": (3,)}),
        ("return_tokens", {"return_tokens": True}),
        ("detokenize", {"detokenize": False}),
        ("skip_special_tokens", {"skip_special_tokens": False}),
    ],
)
def test_what_the_api_lacks_is_refused(field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        OpenAI().check(CompletionRequest("a", **fields))
    assert refused.value.field == field


def test_what_dialects_draw_with_for_those_who_say_nothing_is_not_refused() -> None:
    usual = SamplingParams(0.8, top_k=40, top_p=0.95, min_p=0.05, repeat_penalty=1.1)
    OpenAI().check(CompletionRequest("a", sampling=usual))
    assert not {"top_k", "min_p", "repetition_penalty"} & body(sampling=usual).keys()


def test_the_candidates_after_the_first_are_asked_for_too() -> None:
    others = SamplingParams(0.8, min_p=0.2)
    with pytest.raises(InvalidRequest, match="min_p"):
        OpenAI().check(CompletionRequest("a", n=2, sampling_of_others=others))


def test_an_answer_is_text() -> None:
    hear = OpenAI().reader(VOCABULARY)
    assert hear({"choices": [{"text": "Name", "index": 0, "finish_reason": None}]}) == Heard(
        text="Name"
    )
    assert hear({"choices": [{"text": "", "finish_reason": "length"}]}) == Heard(finish="length")
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    assert hear({"choices": [], "usage": usage}) == Heard(usage=Usage(5, 2))
    assert hear({"choices": [], "usage": None}) is None
    with pytest.raises(BackendFailed):
        hear({"choices": [{"text": {"a": 1}}]})


def test_half_a_character_is_no_failure_of_ours() -> None:
    """JSON may say one, and no bytes do."""
    told = json.loads(r'{"choices": [{"text": "x\ud83d", "finish_reason": null}]}')
    heard = OpenAI().reader(VOCABULARY)(told)
    assert heard is not None
    assert heard.text == "x?"
