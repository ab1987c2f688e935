"""Scripted models that answer a request with a given text, whatever its layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from support.driving import whole
from support.toy import toy_budget, toy_encode, toy_generation, toy_vocabulary
from suture.server.codec import DetokenizerName
from suture.server.engine.protocol import Logits
from suture.server.engine.scripted import Model, ScriptedEngine, speaking_model
from suture.server.prompt.families import detect_family
from suture.server.prompt.plan import plan_prompt
from suture.server.request import CompletionRequest, CompletionResult

VOCABULARY = toy_vocabulary()


def answering_model(request: CompletionRequest, answer: str) -> Model:
    """A model that is shown the prompt of a request and goes on with `answer`."""
    family = detect_family(VOCABULARY, "toy")
    plan = plan_prompt(request, VOCABULARY, family, toy_encode, toy_budget())
    shown = b"".join(map(VOCABULARY.bytes_of, plan.kept_ids)) + plan.pending
    return speaking_model(VOCABULARY, shown + answer.encode())


def answered(
    request: CompletionRequest, answer: str, detokenizer: DetokenizerName = "bytes"
) -> tuple[str, CompletionResult]:
    """What becomes of `answer`: the text, and how it ended."""
    engine = ScriptedEngine(VOCABULARY, toy_encode, answering_model(request, answer))
    return whole(toy_generation(request, engine, detokenizer), engine)


def hesitating_model(model: Model, probability: Callable[[bytes], float]) -> Model:
    """The same likeliest token, of the probability that the text so far says it has.

    The rest is shared by single bytes, so that it stays the likeliest from 1/50 on.
    """

    def logits(tokens: Sequence[int]) -> Logits:
        best = int(model(tokens).argmax())
        so_far = b"".join(map(VOCABULARY.bytes_of, tokens))
        row = np.full(VOCABULARY.n_vocab, -40.0, np.float32)
        others = [i for i in range(64) if i != best][:50]
        row[others] = math.log((1.0 - probability(so_far)) / len(others))
        row[best] = math.log(probability(so_far))
        return row

    return logits
