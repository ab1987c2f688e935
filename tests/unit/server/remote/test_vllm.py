import json
from dataclasses import replace

import pytest

from support.asking import BANNED, ENDS, asked
from support.toy import SPECIALS, special, toy_encode, toy_vocabulary
from suture.healing import TokenKind, Vocabulary
from suture.server.engine.remote.errors import (
    BackendBusy,
    BackendFailed,
    BackendRefused,
)
from suture.server.engine.remote.protocol import Affinity, Asked, Heard, Json, Scored, Usage
from suture.server.engine.remote.vllm import MAX_BIASES, Vllm, VllmStrict
from suture.server.errors import InvalidRequest
from suture.server.request import CompletionRequest, SamplingParams

VOCABULARY = toy_vocabulary()
UNNAMED = {"tokens": ["x"], "token_logprobs": [0]}


def body(wanted: Asked) -> Json:
    return Vllm().body(wanted, "tiny", VOCABULARY)


def test_the_prompt_goes_as_ids_and_ids_come_back() -> None:
    sent = body(asked())
    assert sent["prompt"] == toy_encode(b"const user")
    assert sent["model"] == "tiny"
    assert sent["return_token_ids"] and sent["stream"]
    assert sent["stream_options"] == {"include_usage": True}
    assert json.loads(json.dumps(sent)) == sent


def test_pending_bytes_are_a_regular_expression_and_no_stop_string_is_sent() -> None:
    sent = body(asked(pending=b"\n    x."))
    assert sent["structured_outputs"] == {"regex": r"\n    x\.[\s\S]*"}
    assert "stop" not in sent and "guided_regex" not in sent and "suffix" not in sent


def test_nothing_is_constrained_where_nothing_is_pending_or_nothing_can_be_forced() -> None:
    assert "structured_outputs" not in body(asked(pending=b""))
    assert "structured_outputs" not in body(asked(level="none"))
    for refused in (b"a\x00", "é".encode()[:1]):
        assert "structured_outputs" not in body(asked(pending=refused))
        assert Vllm().level(asked(pending=refused)) == "none"


def test_every_sampler_is_sent_because_the_model_has_defaults_of_its_own() -> None:
    sent = body(asked())
    off = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
    assert {name: sent[name] for name in off} == off
    assert sent["presence_penalty"] == sent["frequency_penalty"] == 0.0
    drawn = SamplingParams(temperature=0.8, top_k=40, top_p=0.9, min_p=0.05, seed=2**64 - 1)
    sent = body(asked(sampling=drawn))
    assert (sent["temperature"], sent["top_k"], sent["top_p"], sent["min_p"]) == (
        0.8,
        40,
        0.9,
        0.05,
    )
    assert sent["seed"] == -1


def test_a_sampler_that_is_not_named_is_off() -> None:
    drawn = SamplingParams(temperature=0.8, top_k=40, top_p=0.9, samplers=("top_p",))
    sent = body(asked(sampling=drawn))
    assert (sent["temperature"], sent["top_k"], sent["top_p"]) == (1.0, 0, 0.9)


def test_specials_are_banned_only_where_they_could_be_taken_for_pending_text() -> None:
    assert "logit_bias" not in body(asked(pending=b"Na"))
    for pending in (b"<", b"x <|fim", b"<|fim_prefix|> x"):
        sent = body(asked(pending=pending))
        assert set(sent["logit_bias"].values()) == {-100.0}
        assert str(special("<|fim_prefix|>")) in sent["logit_bias"]


def test_the_end_that_the_engine_knows_is_never_banned_and_others_are_where_taken_for_text() -> (
    None
):
    assert VOCABULARY.eos_id in ENDS
    banned = body(asked(pending=b"<"))["logit_bias"]
    assert str(VOCABULARY.eos_id) not in banned
    assert str(special("<|fim_pad|>")) in banned


def test_under_a_grammar_all_specials_are_banned() -> None:
    sent = body(asked(pending=b"", grammar='root ::= "<" [a-z]+'))
    assert set(sent["logit_bias"]) == {str(i) for i in (*BANNED, special("<|fim_pad|>"))}


def test_no_more_biases_than_a_gpu_takes_and_sentinels_first() -> None:
    n = 3000
    texts = [*(f"<unused{i}>".encode() for i in range(n)), b"<|fim_prefix|>", b"<"]
    kinds = [*[TokenKind.UNUSED] * n, TokenKind.CONTROL, TokenKind.NORMAL]
    vocabulary = Vocabulary(texts, kinds=kinds)
    biased = SamplingParams(logit_bias=((n + 1, 2.0), (5, -float("inf"))))
    wanted = asked(pending=b"<", banned_ids=tuple(range(n + 1)), sampling=biased)
    biases = Vllm().body(wanted, "m", vocabulary)["logit_bias"]
    assert len(biases) == MAX_BIASES
    assert biases[str(n + 1)] == 2.0
    assert biases["5"] == -100.0
    assert biases[str(n)] == -100.0


def test_ends_are_sent_by_id() -> None:
    assert body(asked())["stop_token_ids"] == sorted(ENDS)
    assert body(asked(ignore_eos=True))["ignore_eos"] is True


def test_enough_new_tokens_come_where_some_only_say_pending_bytes_again() -> None:
    assert "min_tokens" not in body(asked())
    assert body(asked(min_tokens=5))["min_tokens"] == 5 + len(b"Na")
    assert body(asked(pending=b"", min_tokens=5))["min_tokens"] == 5
    assert body(asked(min_tokens=19))["min_tokens"] == 20


def test_a_salt_keeps_tenants_apart_and_the_key_goes_as_a_header() -> None:
    salted = asked(affinity=Affinity("k", "salt"))
    assert body(salted)["cache_salt"] == "salt"
    assert "cache_salt" not in body(asked())
    assert Vllm().headers(salted.affinity) == {"X-Session-ID": "k", "X-SMG-Routing-Key": "k"}


def test_a_grammar_and_pending_bytes_are_one_constraint() -> None:
    wanted = asked(grammar='root ::= "me"')
    sent = body(wanted)["structured_outputs"]
    assert set(sent) == {"grammar"}
    assert sent["grammar"].startswith('root ::= "Na" client-root')
    assert Vllm().level(wanted) == "recursive"


def test_where_they_cannot_be_one_the_grammar_is_kept_and_nothing_healed() -> None:
    wanted = asked(pending=b"\x00", grammar='root ::= "me"')
    assert Vllm().level(wanted) == "none"
    sent = body(replace(wanted, pending=b"", level="none"))["structured_outputs"]["grammar"]
    assert sent.startswith("root ::= client-root")


def test_a_grammar_that_has_no_other_writing_is_never_dropped() -> None:
    grammar = "root ::= [] | [a]"
    assert Vllm().level(asked(grammar=grammar)) == "none"
    sent = body(asked(pending=b"", level="none", grammar=grammar))
    assert sent["structured_outputs"] == {"grammar": grammar}


def test_the_strict_variant_bans_nothing_because_it_knows_special_tokens() -> None:
    wanted = asked(pending=b"<")
    assert "logit_bias" in body(wanted)
    assert "logit_bias" not in VllmStrict().body(wanted, "tiny", VOCABULARY)
    with_grammar = replace(wanted, grammar='root ::= "a"')
    assert "logit_bias" in VllmStrict().body(with_grammar, "tiny", VOCABULARY)


def test_the_strict_variant_forces_any_bytes_by_their_hex() -> None:
    wanted = asked(pending=b"\x00\xc3")
    sent = VllmStrict().body(wanted, "tiny", VOCABULARY)
    assert sent["vllm_xargs"] == {"heal_hex": "00c3"}
    assert "structured_outputs" not in sent
    assert VllmStrict().level(wanted) == "recursive"


def test_log_probabilities_are_asked_for_by_token_id() -> None:
    sent = body(asked(n_probs=3))
    assert sent["logprobs"] == 3 and sent["return_tokens_as_token_ids"]


@pytest.mark.parametrize(
    ("field", "request_"),
    [
        ("typical_p", CompletionRequest("a", sampling=SamplingParams(1.0, typical_p=0.9))),
        ("xtc_probability", CompletionRequest("a", sampling=SamplingParams(xtc_probability=0.5))),
        ("dynatemp_range", CompletionRequest("a", sampling=SamplingParams(dynatemp_range=0.5))),
        ("dry_multiplier", CompletionRequest("a", sampling=SamplingParams(dry_multiplier=0.8))),
        ("top_n_sigma", CompletionRequest("a", sampling=SamplingParams(1.0, top_n_sigma=1.0))),
        ("n_probs", CompletionRequest("a", n_probs=21)),
        ("logit_bias", CompletionRequest("a", sampling=SamplingParams(logit_bias=((1, 101.0),)))),
        ("grammar_scope", CompletionRequest("a", grammar="root ::= [a]", grammar_scope="prefill")),
    ],
)
def test_what_vllm_cannot_do_is_refused_by_its_field(
    field: str, request_: CompletionRequest
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Vllm().check(request_)
    assert refused.value.field == field


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(),
        SamplingParams(top_n_sigma=1.0, top_k=40),  # greedy: they leave out worse tokens only
        SamplingParams(1.0, typical_p=0.9, samplers=("temperature",)),
        SamplingParams(1.0, xtc_probability=0.5, xtc_threshold=0.6),
        SamplingParams(logit_bias=((3, -float("inf")), (4, 100.0))),
    ],
)
def test_what_changes_nothing_is_not_refused(sampling: SamplingParams) -> None:
    Vllm().check(CompletionRequest("a", sampling=sampling))


def test_an_answer_is_heard_chunk_by_chunk() -> None:
    hear = Vllm().reader(VOCABULARY)
    first = {
        "id": "cmpl-1",
        "object": "text_completion",
        "model": "tiny",
        "choices": [
            {
                "index": 0,
                "text": "Na",
                "logprobs": None,
                "finish_reason": None,
                "stop_reason": None,
                "prompt_token_ids": [256, 257],
                "token_ids": [259],
            }
        ],
    }
    assert hear(first) == Heard((259,), "Na")
    last = {"choices": [{"index": 0, "text": "", "finish_reason": "stop", "token_ids": [276]}]}
    assert hear(last) == Heard((276,), finish="stop")
    usage = {
        "prompt_tokens": 90,
        "total_tokens": 93,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 64},
    }
    assert hear({"choices": [], "usage": usage}) == Heard((), usage=Usage(90, 3, 64))


@pytest.mark.parametrize(
    ("said", "meant"), [("length", "length"), ("abort", "abort"), ("repetition", "stop")]
)
def test_each_end_is_one_of_ours(said: str, meant: str) -> None:
    heard = Vllm().reader(VOCABULARY)(
        {"choices": [{"text": "", "finish_reason": said, "token_ids": []}]}
    )
    assert heard is not None and heard.finish == meant


def test_scores_are_of_the_ids_and_the_best_comes_first() -> None:
    logprobs = {
        "text_offset": [0],
        "tokens": ["token_id:259"],
        "token_logprobs": [-0.5],
        "top_logprobs": [{"token_id:7": -2.0, "token_id:259": -0.5}],
    }
    chunk = {"choices": [{"text": "Na", "token_ids": [259], "logprobs": logprobs}]}
    heard = Vllm().reader(VOCABULARY)(chunk)
    assert heard is not None
    assert heard.scores == (Scored(259, -0.5, ((259, -0.5), (7, -2.0))),)


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ({"error": {"message": "boom", "type": "InternalServerError", "code": 500}}, BackendFailed),
        ({"error": {"message": "a wrong regex", "code": 400}}, BackendRefused),
        ({"error": {"message": "too many", "code": 429}}, BackendBusy),
        ({"error": "gone"}, BackendFailed),
        (["no object"], BackendFailed),
        ({"choices": "none"}, BackendFailed),
        ({"choices": [{"text": "a"}]}, BackendFailed),
        ({"choices": [{"text": 3, "token_ids": [1]}]}, BackendFailed),
        ({"choices": [{"text": "a", "token_ids": [-1]}]}, BackendFailed),
        ({"choices": [{"text": "a", "token_ids": ["1"]}]}, BackendFailed),
        ({"choices": [{"token_ids": [1], "logprobs": UNNAMED}]}, BackendFailed),
    ],
)  # fmt: skip
def test_what_is_no_answer_of_vllm_is_an_error(event: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        Vllm().reader(VOCABULARY)(event)


def test_the_toy_vocabulary_has_the_specials_that_these_tests_are_about() -> None:
    assert "<|fim_prefix|>" in SPECIALS
