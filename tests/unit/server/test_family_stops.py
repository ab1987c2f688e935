"""Text with which a family goes on to another file ends a middle as an end token does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.driving import whole
from support.toy import toy_budget, toy_encode, toy_vocabulary
from suture.healing import TokenTransducer
from suture.server.decoding.generation import Generation
from suture.server.decoding.output import special_tokens, stop_strings
from suture.server.decoding.text_stream import byte_stream
from suture.server.engine.scripted import ScriptedEngine, speaking_model
from suture.server.prompt.plan import plan_prompt
from suture.server.request import CompletionRequest, CompletionResult

VOCABULARY = toy_vocabulary()
NEXT_FILE = "\n+++++ "
PLAIN = CompletionRequest("def x =", max_tokens=60)
SAID = b"def x = (me)\nme\n+++++ b.py\nme\n"


def complete(request: CompletionRequest, said: bytes = SAID) -> tuple[str, CompletionResult]:
    plan = plan_prompt(request, VOCABULARY, None, toy_encode, toy_budget())
    plan = replace(plan, stop_strings=(NEXT_FILE,))
    stops = stop_strings(request, plan)
    transducer = TokenTransducer(VOCABULARY, stops, special_tokens(request))
    generation = Generation(request, plan, VOCABULARY, byte_stream(request, plan, transducer))
    engine = ScriptedEngine(VOCABULARY, toy_encode, speaking_model(VOCABULARY, said))
    return whole(generation, engine)


@pytest.mark.parametrize("stop", [(), ("return",)])
def test_the_model_has_ended_where_it_begins_another_file(stop: tuple[str, ...]) -> None:
    text, result = complete(replace(PLAIN, stop=stop))
    assert (text, result.finish, result.stop_match) == (" (me)\nme", "eos", None)


def test_what_was_asked_for_is_the_callers_stop() -> None:
    text, result = complete(replace(PLAIN, stop=("x", NEXT_FILE)))
    assert (text, result.finish, result.stop_match) == (" (me)\nme", "stop", NEXT_FILE)


def test_one_line_ends_before_any_other_file() -> None:
    text, result = complete(replace(PLAIN, shape="line"))
    assert (text, result.finish, result.stop_match) == (" (me)", "stop", None)


def test_no_end_in_text_before_min_tokens_nor_where_ends_are_ignored() -> None:
    for request in (replace(PLAIN, min_tokens=40), replace(PLAIN, ignore_eos=True)):
        assert complete(request)[0].startswith(" (me)\nme\n+++++ b.py\nme\n")


def test_given_back_bytes_are_no_part_of_an_end_in_text() -> None:
    request = CompletionRequest("def x =\n", max_tokens=9)
    text, result = complete(request, b"def x =\n+++++ b.py")
    assert result.healing.pending == b"\n"
    assert text.startswith("+++++ b")


def test_a_document_with_crlf_ends_there_too() -> None:
    request = replace(PLAIN, prefix="def a =\r\ndef x =")
    text, result = complete(request, SAID.replace(b"def x", b"def a =\ndef x"))
    assert (text, result.finish, result.stop_match) == (" (me)\r\nme", "eos", None)
