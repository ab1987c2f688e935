"""Reported faults where a step has several tokens: speculation, grouped steps, token budgets (T12).

A stop string ends the text inside the step, and what was not read does not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from support.vocab import of_pieces
from suture.healing import Detokenizer, TokenTransducer


@dataclass(frozen=True)
class Step:
    where: str
    tokens: list[str]
    text: str
    n_taken: int
    stops: list[str] = field(default_factory=list)
    stop_match: str | None = None
    min_tokens: int = 0


STEPS = [
    Step("transformers#48039", ["x ST", "OP y", "z"], "x ", 2, ["STOP"], "STOP"),
    Step("vllm#47616", ["x", "ST", "OP", "y"], "x", 3, ["STOP"], "STOP"),
    Step("vllm#23938 then end-of-text", ["a STOP", ""], "a ", 1, ["STOP"], "STOP"),
    Step("sglang#23802", ["STOP", *"abcdefg"], "", 1, ["STOP"], "STOP"),
    Step("sglang#27637 across the step", ["a", "S", "TO", "P", "b"], "a", 4, ["STOP"], "STOP"),
    Step("sglang#31599 before the cap", ["k", "l", "STOP", "m", "n"], "kl", 3, ["STOP"], "STOP"),
    Step("vllm#55483 one token too early", ["a", ";", "b"], "a;b", 3, [";"], min_tokens=3),
    Step("vllm#55483 at the least number", ["a", ";", "b"], "a", 2, [";"], ";", min_tokens=2),
    Step("vllm#22014 a match begun early", ["S", "T", "OP", "x"], "", 3, ["STOP"], "STOP", 3),
    Step("llama.cpp all of a step was held", ["foo\n", "bar\n"], "foo\nbar", 2, ["\n\n"]),
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.where)
def test_t12_a_step_ends_with_the_token_that_completes_the_stop_string(step: Step) -> None:
    pieces = [token.encode() for token in step.tokens]
    detokenizer = Detokenizer(
        TokenTransducer(of_pieces(pieces), step.stops), min_tokens=step.min_tokens
    )

    assert detokenizer.feed_all(range(len(pieces))) == (step.text, step.n_taken)
    assert detokenizer.stop_match == step.stop_match


def test_t12_the_offset_of_the_cut_is_known_in_every_unit() -> None:
    """ollama#7257 asks which stop string it was; editors ask where."""
    pieces = ["a😀é".encode(), b"ST", b"OPx"]
    detokenizer = Detokenizer(TokenTransducer(of_pieces(pieces), ["END", "STOP"]))

    detokenizer.feed_all(range(3))

    assert detokenizer.stop_match == "STOP"
    assert (detokenizer.text_chars, detokenizer.text_utf16, detokenizer.text_bytes) == (3, 4, 7)


def test_t12_a_step_after_the_end_takes_nothing() -> None:
    detokenizer = Detokenizer(TokenTransducer(of_pieces([b"a", b";"]), [";"]))

    assert detokenizer.feed_all([0, 1, 0]) == ("a", 2)
    assert detokenizer.feed_all([0, 0]) == ("", 0)


def test_t10_a_rejected_draft_leaves_no_trace() -> None:
    """Speculation takes tokens back; a decoder that keeps text cannot."""
    pieces = [b"a", b"\xe4\xbd", b"\xa0", b"ST", b"OP"]
    detokenizer = Detokenizer(TokenTransducer(of_pieces(pieces), ["STOP"]))
    detokenizer.feed_all([0, 1])
    accepted = detokenizer.snapshot()

    assert detokenizer.feed_all([0, 3, 4]) == ("\ufffda", 3)
    detokenizer.restore(accepted)

    assert not detokenizer.stopped
    assert detokenizer.feed_all([2, 0]) == ("你a", 2)
