"""Scripted models that answer a request with a given text, whatever its layout."""

from __future__ import annotations

from support.driving import whole
from support.toy import toy_budget, toy_encode, toy_generation, toy_vocabulary
from suture.server.codec import DetokenizerName
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
