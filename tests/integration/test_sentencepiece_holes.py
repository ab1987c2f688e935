"""Holes of CodeLlama and Codestral through llama.cpp, on models with random weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.driving import whole
from support.extended_vocabularies import CODELLAMA, MISTRAL, extended
from support.tiny_models import tiny_model
from support.vocabularies import pulled
from suture.healing import TokenTransducer
from suture.server.decoding.generation import Generation
from suture.server.decoding.output import special_tokens, stop_strings
from suture.server.decoding.text_stream import byte_stream
from suture.server.engine.llama import LlamaEngine
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.families import detect_family
from suture.server.prompt.plan import plan_prompt
from suture.server.request import CompletionRequest, CompletionResult, SamplingParams

pytestmark = pytest.mark.model

CONTROLS = {"CodeLlama 7B": CODELLAMA, "Codestral 22B v0.1": MISTRAL}


@pytest.fixture(scope="module", params=CONTROLS)
def model(
    request: pytest.FixtureRequest, model_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    source = pulled(["vocab-llama-spm"], model_store)["vocab-llama-spm"]
    folder = tmp_path_factory.mktemp("models")
    name = request.param
    vocabulary = extended(source, folder / "vocabulary.gguf", CONTROLS[name], name=name)
    return tiny_model(vocabulary, folder / "model.gguf")


@pytest.fixture
def loaded(model: Path) -> Iterator[LlamaEngine]:
    engine = LlamaEngine(model, n_threads=1, n_ctx=512)
    yield engine
    engine.close()


def complete(
    engine: LlamaEngine, model: Path, request: CompletionRequest
) -> tuple[str, CompletionResult]:
    family = detect_family(engine.vocabulary, model.stem)
    budget = PromptBudget(engine.n_ctx, prefill_tokens_per_s=1000)
    plan = plan_prompt(request, engine.vocabulary, family, engine.encode, budget)
    transducer = TokenTransducer(
        engine.vocabulary, stop_strings(request, plan), special_tokens(request)
    )
    generation = Generation(
        request, plan, engine.vocabulary, byte_stream(request, plan, transducer)
    )
    return whole(generation, engine)


@pytest.mark.parametrize("suffix", ["", ")\n", "\n    return a\n"])
def test_a_hole_is_filled_and_its_tail_healed(
    suffix: str, loaded: LlamaEngine, model: Path
) -> None:
    request = CompletionRequest(
        "def f(userNa",
        suffix,
        infill=True,
        layout="spm",
        max_tokens=12,
        ignore_eos=True,
        sampling=SamplingParams(temperature=0.0),
    )
    text, result = complete(loaded, model, request)
    assert result.prompt.layout == "spm" and result.finish == "length"
    assert result.healing.pending == b"Na" and result.healing.nodes > 0
    assert complete(loaded, model, request)[0] == text
