import json
from typing import Any

import pytest

from support.asking import ENDS, asked
from support.toy import special, toy_encode, toy_vocabulary
from suture.server.engine.remote.errors import BackendBusy, BackendFailed, BackendRefused
from suture.server.engine.remote.protocol import Affinity, Heard, Json, Scored, Usage
from suture.server.engine.remote.sglang import SGLang
from suture.server.errors import InvalidRequest
from suture.server.request import CompletionRequest, SamplingParams

VOCABULARY = toy_vocabulary()
ABORT = {"type": "abort", "message": "no"}


def body(**fields: Any) -> Json:
    return SGLang().body(asked(**fields), "m", VOCABULARY)


def event(ids: list[int], n_all: int, text: str = "", **meta: Any) -> Json:
    told = {"prompt_tokens": 9, "completion_tokens": n_all, "cached_tokens": 8, **meta}
    told.setdefault("finish_reason", None)
    return {"text": text, "output_ids": ids, "meta_info": told}


def test_the_prompt_goes_as_ids_and_the_pending_bytes_as_a_regular_expression() -> None:
    sent = body(pending=b"\nx.")
    assert sent["input_ids"] == toy_encode(b"const user")
    params = sent["sampling_params"]
    assert params["regex"] == r"\nx\.[\s\S]*"
    assert params["max_new_tokens"] == 20
    assert params["stop_token_ids"] == sorted(ENDS)
    assert "stop" not in params and "ebnf" not in params
    assert json.loads(json.dumps(sent)) == sent


def test_all_samplers_are_sent() -> None:
    params = body()["sampling_params"]
    assert (params["temperature"], params["top_k"], params["top_p"]) == (0.0, -1, 1.0)
    drawn = SamplingParams(0.8, top_k=40, seed=2**64 - 1)
    params = body(sampling=drawn)["sampling_params"]
    assert (params["temperature"], params["top_k"]) == (0.8, 40)
    assert 0 <= params["sampling_seed"] < 2**63


def test_a_grammar_is_the_only_constraint() -> None:
    params = body(grammar='root ::= "me"')["sampling_params"]
    assert params["ebnf"].startswith('root ::= "Na" client-root')
    assert "regex" not in params
    assert SGLang().level(asked(pending=b"\0")) == "none"
    plain = "root ::= [] | [a]"
    assert body(pending=b"", grammar=plain)["sampling_params"]["ebnf"] == plain


def test_specials_are_banned_where_they_could_be_taken_for_pending_text() -> None:
    assert "logit_bias" not in body()["sampling_params"]
    biases = body(pending=b"<")["sampling_params"]["logit_bias"]
    assert str(special("<|fim_prefix|>")) in biases
    assert str(VOCABULARY.eos_id) not in biases


def test_enough_new_tokens_come() -> None:
    assert body(min_tokens=5)["sampling_params"]["min_new_tokens"] == 7
    assert body(min_tokens=19)["sampling_params"]["min_new_tokens"] == 20


def test_tenants_are_kept_apart_and_gateways_told_the_key() -> None:
    sent = body(affinity=Affinity("k", "salt"))
    assert sent["cache_salt"] == sent["extra_key"] == "salt"
    assert SGLang().headers(Affinity("k"))["X-SMG-Routing-Key"] == "k"


def test_what_it_cannot_do_is_refused() -> None:
    with pytest.raises(InvalidRequest) as refused:
        SGLang().check(CompletionRequest("a", sampling=SamplingParams(dry_multiplier=0.8)))
    assert refused.value.field == "dry_multiplier"


def test_of_events_that_tell_all_tokens_the_new_ones_are_heard() -> None:
    hear = SGLang().reader(VOCABULARY)
    assert hear(event([259], 1, "Na")) == Heard((259,), "Na")
    assert hear(event([259], 1, "Na")) is None
    assert hear(event([259, 260, 261], 3, "Name()")) == Heard((260, 261), "me()")
    last = hear(event([259, 260, 261, 276], 4, "Name()", finish_reason={"type": "stop"}))
    assert last == Heard((276,), finish="stop", usage=Usage(9, 4, 8))


def test_events_that_tell_new_tokens_only_are_heard_as_they_are() -> None:
    hear = SGLang().reader(VOCABULARY)
    assert hear(event([259], 1, "Na")) == Heard((259,), "Na")
    assert hear(event([260, 260], 3, "meme")) == Heard((260, 260), "meme")
    assert hear(event([260], 4, "me", finish_reason={"type": "length", "length": 4})) == Heard(
        (260,), "me", finish="length", usage=Usage(9, 4, 8)
    )


def test_two_answers_are_told_apart() -> None:
    one, other = SGLang().reader(VOCABULARY), SGLang().reader(VOCABULARY)
    one(event([259], 1))
    assert other(event([7], 1)) == Heard((7,))
    assert one(event([259, 260], 2)) == Heard((260,))


@pytest.mark.parametrize("is_whole", [True, False])
def test_scores_are_of_the_new_tokens(is_whole: bool) -> None:
    rows = [[-0.5, 259, None], [-0.25, 260, None]]
    tops = [[[-0.5, 259, None]], [[-3.0, 7, None], [-0.25, 260, None]]]
    hear = SGLang().reader(VOCABULARY)
    first = event([259], 1, output_token_logprobs=rows[:1], output_top_logprobs=tops[:1])
    heard = hear(first)
    assert heard is not None and heard.scores == (Scored(259, -0.5, ((259, -0.5),)),)
    start = 0 if is_whole else 1
    second = event(
        [259, 260][start:], 2,
        output_token_logprobs=rows[start:], output_top_logprobs=tops[start:],
    )  # fmt: skip
    heard = hear(second)
    assert heard is not None
    assert heard.scores == (Scored(260, -0.25, ((260, -0.25), (7, -3.0))),)


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ({"text": "a", "meta_info": {"completion_tokens": 1}}, BackendFailed),
        ({"output_ids": [1], "meta_info": {}}, BackendFailed),
        ({"error": {"message": "boom"}}, BackendFailed),
        (event([], 0, finish_reason={**ABORT, "status_code": 400}), BackendRefused),
        (event([], 0, finish_reason={**ABORT, "status_code": 503}), BackendBusy),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_an_error(told: Json, error: type[Exception]) -> None:
    with pytest.raises(error):
        SGLang().reader(VOCABULARY)(told)


def test_an_abort_without_a_reason_is_an_end() -> None:
    heard = SGLang().reader(VOCABULARY)(event([], 0, finish_reason={"type": "abort"}))
    assert heard is not None and heard.finish == "abort"
