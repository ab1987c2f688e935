"""The completer over a local model: what it learns while it serves."""

from __future__ import annotations

from pathlib import Path

from support.toy import toy_codec, toy_encode, toy_vocabulary
from suture.server.completion import LoadedModel
from suture.server.engine.scripted import ScriptedEngine, random_model
from suture.server.local import LocalCompleter
from suture.server.prompt import PromptBudget
from suture.server.request import CompletionResult, PromptReport, Timings
from suture.server.settings import load_settings


def prompt_took(n_evaluated: int, prompt_ms: float) -> CompletionResult:
    report = PromptReport(tokens=n_evaluated, evaluated=n_evaluated)
    return CompletionResult("eos", prompt=report, timings=Timings(prompt_ms))


def test_a_faster_prompt_is_believed_and_a_slower_one_is_not() -> None:
    vocabulary = toy_vocabulary()
    engine = ScriptedEngine(vocabulary, toy_encode, random_model(vocabulary.n_vocab))
    completer = LocalCompleter(Path("toy.gguf"), "toy", load_settings(environ={}))
    completer._loaded = LoadedModel(engine, None, PromptBudget(4096, 20.0), toy_codec(toy_encode))

    def speed() -> float:
        assert completer._loaded is not None
        return completer._loaded.budget.prefill_tokens_per_s

    completer._observe_speed(prompt_took(192, 2000.0))
    assert speed() == 96.0 == completer.status()["prefill_tokens_per_s"]
    completer._observe_speed(prompt_took(192, 20000.0))
    completer._observe_speed(prompt_took(3, 1.0))  # too short to say anything
    assert speed() == 96.0
    completer._completions.close()
