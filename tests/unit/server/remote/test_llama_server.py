import json

import pytest

from support.asking import BANNED, asked
from support.toy import special, toy_encode, toy_vocabulary
from suture.server.engine.remote.errors import BackendFailed
from suture.server.engine.remote.llama_server import LlamaServer
from suture.server.engine.remote.protocol import Asked, Heard, Json, Scored, Usage
from suture.server.errors import InvalidRequest
from suture.server.request import SAMPLERS, CompletionRequest, SamplingParams

VOCABULARY = toy_vocabulary()


def body(wanted: Asked) -> Json:
    return LlamaServer().body(wanted, "m", VOCABULARY)


def part(token_id: int, content: str, **fields: object) -> Json:
    return {"index": 0, "content": content, "tokens": [token_id], "stop": False, **fields}


def heard(event: object) -> Heard | None:
    return LlamaServer().reader(VOCABULARY)(event)


def test_the_prompt_goes_as_ids_and_the_pending_bytes_as_a_grammar() -> None:
    sent = body(asked(pending=b'"Na\n'))
    assert sent["prompt"] == toy_encode(b"const user")
    assert sent["grammar"] == 'root ::= "\\"Na\\n" [^\\x00]*'
    assert sent["n_predict"] == 20
    assert sent["stream"] and sent["return_tokens"] and sent["cache_prompt"]
    assert "stop" not in sent
    assert json.loads(json.dumps(sent)) == sent


def test_all_samplers_are_sent_because_the_server_has_defaults_of_its_own() -> None:
    sent = body(asked())
    assert sent["samplers"] == list(SAMPLERS)
    assert (sent["temperature"], sent["top_k"], sent["min_p"], sent["top_p"]) == (0.0, 0, 0.0, 1.0)
    assert sent["repeat_penalty"] == 1.0 and sent["seed"] == -1
    sent = body(asked(sampling=SamplingParams(dry_multiplier=0.8, seed=2**32 - 1)))
    assert sent["dry_multiplier"] == 0.8
    assert 0 <= sent["seed"] < 2**32 - 1


def test_the_whole_text_is_a_number_of_tokens_because_not_all_versions_take_minus_one() -> None:
    sent = body(asked(sampling=SamplingParams(repeat_last_n=-1, dry_penalty_last_n=-1)))
    n_tokens = len(sent["prompt"]) + 20
    assert sent["repeat_last_n"] == sent["dry_penalty_last_n"] == n_tokens
    sent = body(asked(sampling=SamplingParams(repeat_last_n=64, dry_penalty_last_n=0)))
    assert (sent["repeat_last_n"], sent["dry_penalty_last_n"]) == (64, 0)


def test_banned_tokens_are_banned_by_id_behind_the_biases_of_the_client() -> None:
    biased = SamplingParams(logit_bias=((7, 1.5), (8, -float("inf"))))
    sent = body(asked(sampling=biased))["logit_bias"]
    assert sent == [[7, 1.5], [8, False], *([i, False] for i in BANNED)]


def test_an_end_that_the_server_does_not_know_is_banned_where_it_is_taken_for_text() -> None:
    unknown = special("<|im_start|>")
    assert unknown not in VOCABULARY.eog_ids
    ends = frozenset({unknown, special("<|im_end|>")})
    assert [unknown, False] in body(asked(pending=b"<", end_ids=ends))["logit_bias"]
    assert [unknown, False] not in body(asked(end_ids=ends))["logit_bias"]
    assert [special("<|im_end|>"), False] not in body(asked(pending=b"<", end_ids=ends))[
        "logit_bias"
    ]


def test_a_grammar_of_the_client_goes_as_it_is_or_behind_the_pending_bytes() -> None:
    grammar = 'root ::= "me" | other\nother ::= [a-z]+'
    assert body(asked(pending=b"", grammar=grammar))["grammar"] == grammar
    both = body(asked(grammar=grammar))["grammar"]
    assert both.startswith('root ::= "Na" client-root\n')
    assert LlamaServer().level(asked(grammar=grammar)) == "recursive"
    assert LlamaServer().level(asked(pending=b"\x00", grammar=grammar)) == "none"


@pytest.mark.parametrize(
    ("field", "request_"),
    [
        ("min_tokens", CompletionRequest("a", min_tokens=3)),
        ("grammar_scope", CompletionRequest("a", grammar="root ::= [a]", grammar_scope="prefill")),
    ],
)
def test_what_llama_server_cannot_do_is_refused(field: str, request_: CompletionRequest) -> None:
    with pytest.raises(InvalidRequest) as refused:
        LlamaServer().check(request_)
    assert refused.value.field == field


def test_all_our_samplers_are_its_own() -> None:
    drawn = SamplingParams(
        1.0, typical_p=0.9, top_n_sigma=1.0, xtc_probability=0.5, dynatemp_range=0.2,
        dry_multiplier=0.8, repeat_penalty=1.1, logit_bias=((1, 500.0),),
    )  # fmt: skip
    LlamaServer().check(CompletionRequest("a", sampling=drawn, n_probs=100))


def test_a_token_is_heard_by_its_id() -> None:
    assert heard(part(259, "Na")) == Heard((259,), "Na")
    assert heard({"prompt_progress": {"total": 9}, "content": "", "tokens": []}) is None


def test_tokens_inside_a_character_that_were_not_sent_are_spelled_from_the_text() -> None:
    first, second, third = "€".encode()
    assert heard(part(third, "€")) == Heard((first, second, third), "€")
    assert heard(part(third, "é€")) == Heard((*"é".encode(), first, second, third), "é€")


def test_a_special_token_has_an_id_and_no_text() -> None:
    end = special("<|endoftext|>")
    assert heard(part(end, "")) == Heard((end,))
    assert heard(part(end, "<|endoftext|>")) == Heard((end,), "<|endoftext|>")


def test_text_that_is_not_that_of_the_token_is_of_another_tokenizer() -> None:
    with pytest.raises(BackendFailed, match="another"):
        heard(part(259, "xy"))
    with pytest.raises(BackendFailed, match="token 100000"):
        heard(part(100_000, "xy"))


def test_bytes_that_are_no_text_are_told_by_the_id() -> None:
    assert heard(part(0xFF, "\ufffd")) == Heard((0xFF,), "\ufffd")


@pytest.mark.parametrize(
    ("said", "meant"), [("eos", "stop"), ("word", "stop"), ("limit", "length"), ("none", "abort")]
)
def test_the_last_event_has_the_end_and_the_usage(said: str, meant: str) -> None:
    last = {
        "content": "",
        "tokens": [],
        "stop": True,
        "stop_type": said,
        "tokens_evaluated": 90,
        "tokens_predicted": 4,
        "timings": {"cache_n": 87, "prompt_n": 3, "predicted_n": 4},
    }
    assert heard(last) == Heard((), finish=meant, usage=Usage(90, 4, 87))  # type: ignore[arg-type]


def test_scores_come_with_their_tokens_and_not_with_spelled_ones() -> None:
    one = {"id": 259, "token": "Na", "bytes": [78, 97], "logprob": -0.25}
    top = [{"id": 7, "logprob": -3.0}, {"id": 259, "logprob": -0.25}]
    told = heard(part(259, "Na", completion_probabilities=[{**one, "top_logprobs": top}]))
    assert told is not None
    assert told.scores == (Scored(259, -0.25, ((259, -0.25), (7, -3.0))),)
    last = "é".encode()[1]
    scored: list[Json] = [{"id": last, "logprob": None, "top_logprobs": []}]
    told = heard(part(last, "é", completion_probabilities=scored))
    assert told is not None and told.scores == ()


def test_an_error_in_the_stream_is_raised() -> None:
    with pytest.raises(BackendFailed, match="context"):
        heard({"error": {"code": 500, "message": "context shift failed", "type": "server_error"}})
