from typing import Any, get_args

import pytest

from support.asking import asked
from support.toy import special, toy_encode, toy_vocabulary
from suture.server.engine.remote.adapters import adapter_of
from suture.server.engine.remote.openai_chat import OpenAIChat, Prefill
from suture.server.engine.remote.protocol import BackendKind, Heard, Json, Usage
from suture.server.errors import InvalidRequest, SetupError
from suture.server.request import CompletionRequest

VOCABULARY = toy_vocabulary()
PRE, SUF, MID = (special(f"<|fim_{role}|>") for role in ("prefix", "suffix", "middle"))


def body(prefill: Prefill = "none", **fields: Any) -> Json:
    wanted = asked(**{"level": "hygiene", **fields})
    return OpenAIChat(prefill).body(wanted, "toy", VOCABULARY)


def psm(prefix: bytes, suffix: bytes) -> tuple[int, ...]:
    return (PRE, *toy_encode(prefix), SUF, *toy_encode(suffix), MID)


def test_a_turn_is_begun_with_the_text_where_the_server_lets_one() -> None:
    sent = body("continue")
    assert sent["messages"][-1] == {"role": "assistant", "content": "const user"}
    assert sent["continue_final_message"] is True and sent["add_generation_prompt"] is False
    sent = body("prefix")
    assert sent["messages"][-1] == {"role": "assistant", "content": "const user", "prefix": True}
    assert "continue_final_message" not in sent


def test_elsewhere_the_text_stands_in_the_question() -> None:
    [message] = body()["messages"]
    assert message["role"] == "user"
    assert "const user" in message["content"]
    assert "Begin your answer with 'Na'" in message["content"]


@pytest.mark.parametrize("prefill", get_args(Prefill))
@pytest.mark.parametrize(
    "ids",
    [
        psm(b"def a", b"return"),
        (PRE, SUF, *toy_encode(b"return"), MID, *toy_encode(b"def a")),
        (SUF, *toy_encode(b"return"), PRE, *toy_encode(b"def a"), MID),
        (PRE, *toy_encode(b"de"), SUF, *toy_encode(b"return"), MID, *toy_encode(b"f a")),
    ],
)
def test_a_hole_is_a_question_for_what_is_missing(prefill: Prefill, ids: tuple[int, ...]) -> None:
    [message] = body(prefill, prompt_ids=ids)["messages"]
    assert "Before:\n<<<\ndef a\n>>>" in message["content"]
    assert "After:\n<<<\nreturn\n>>>" in message["content"]
    assert "<|fim" not in message["content"]


def test_an_empty_suffix_is_a_hole_too() -> None:
    [message] = body(prompt_ids=psm(b"def a", b""))["messages"]
    assert "After:\n<<<\n\n>>>" in message["content"]


def test_text_of_other_files_stands_before_it() -> None:
    ids = (*toy_encode(b"# other"), *psm(b"a", b"b"))
    [message] = body(prompt_ids=ids)["messages"]
    assert message["content"].startswith("# other")


def test_nothing_is_forced_and_what_a_chat_lacks_is_refused() -> None:
    assert OpenAIChat().level(asked(level="recursive")) == "none"
    assert OpenAIChat().level(asked(level="hygiene")) == "hygiene"
    with pytest.raises(InvalidRequest) as refused:
        OpenAIChat().check(CompletionRequest("a", min_tokens=2))
    assert refused.value.field == "min_tokens"


def test_an_answer_is_heard_from_its_deltas() -> None:
    hear = OpenAIChat().reader(VOCABULARY)
    assert hear({"choices": [{"delta": {"role": "assistant", "content": ""}}]}) is None
    assert hear({"choices": [{"delta": {"content": "Na"}, "finish_reason": None}]}) == Heard(
        text="Na"
    )
    assert hear({"choices": [{"delta": {}, "finish_reason": "stop"}]}) == Heard(finish="stop")
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    assert hear({"choices": [], "usage": usage}) == Heard(usage=Usage(5, 2))


def test_every_kind_has_its_adapter_or_a_reason_why_not() -> None:
    for kind in get_args(BackendKind):
        if kind == "tgi":
            with pytest.raises(SetupError, match="takes no token ids"):
                adapter_of(kind)
        else:
            assert adapter_of(kind).kind == kind


def test_whose_chats_let_a_turn_be_begun_is_known_by_whom_models_are_owned() -> None:
    def message(owner: str) -> Json:
        sent = adapter_of("openai-chat", owner).body(asked(level="hygiene"), "m", VOCABULARY)
        last: Json = sent["messages"][-1]
        return last

    assert message("vllm")["role"] == message("deepseek")["role"] == "assistant"
    assert message("mistralai")["prefix"] is True
    assert message("openai")["role"] == "user"
