"""The completer over a local model: what it learns while it serves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from support.driving import TIMEOUT_S
from support.toy import toy_codec, toy_encode, toy_vocabulary
from suture.server import local
from suture.server.completion import LoadedModel
from suture.server.engine.scripted import ScriptedEngine, random_model
from suture.server.errors import EngineError, ModelError
from suture.server.local import LocalCompleter, load_model
from suture.server.prompt.budget import PromptBudget
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
    assert speed() == 96.0 == completer.measured().prefill_tokens_per_s
    completer._observe_speed(prompt_took(192, 20000.0))
    completer._observe_speed(prompt_took(3, 1.0))  # too short to say anything
    assert speed() == 96.0
    completer._completions.close()


class Held:
    """Work beside the engine's thread that ends when it is let go."""

    def __init__(self) -> None:
        self.began, self.goes_on, self.ended = (threading.Event() for _ in range(3))

    def __call__(self, *_: object) -> None:
        self.began.set()
        assert self.goes_on.wait(TIMEOUT_S)
        self.ended.set()


class Freed:
    """An engine that notes what had ended when it was closed."""

    def __init__(self, work: Held) -> None:
        self._work = work
        self.ended_before: list[bool] = []

    def close(self) -> None:
        self.ended_before.append(self._work.ended.is_set())


def load(may_go_on: Callable[[], bool]) -> None:
    load_model(Path("toy.gguf"), "toy", load_settings(environ={}), may_go_on)


@pytest.fixture
def toy_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "read_vocabulary", lambda path, cache: toy_vocabulary())
    monkeypatch.setattr(local, "read_tiktoken", lambda wanted, vocabulary: None)
    monkeypatch.setattr(local, "_pairs_of", lambda vocabulary, encode: None)


@pytest.mark.usefixtures("toy_files")
def test_a_loading_that_failed_does_not_wait_for_the_tokenizer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading = Held()

    def fail(*_: object, **named: object) -> None:
        assert reading.began.wait(TIMEOUT_S)
        raise ModelError("not a GGUF file")

    monkeypatch.setattr(local, "read_tiktoken", reading)
    monkeypatch.setattr(local, "LlamaEngine", fail)
    later = threading.Timer(3.0, reading.goes_on.set)
    later.start()
    with pytest.raises(ModelError):
        load(lambda: True)
    assert not reading.ended.is_set()
    reading.goes_on.set()
    later.cancel()


@pytest.mark.usefixtures("toy_files")
def test_an_engine_is_freed_when_nobody_asks_it_any_more_and_others_have_turns_until_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choosing = Held()
    engine = Freed(choosing)
    n_turns = 0

    def may_go_on() -> bool:
        nonlocal n_turns
        n_turns += choosing.began.is_set()
        if n_turns == 3:
            choosing.goes_on.set()
        return not choosing.began.is_set()

    monkeypatch.setattr(local, "LlamaEngine", lambda *_, **named: engine)
    monkeypatch.setattr(local, "choose_codec", choosing)
    with pytest.raises(EngineError, match="given up"):
        load(may_go_on)
    assert engine.ended_before == [True] and n_turns >= 3
