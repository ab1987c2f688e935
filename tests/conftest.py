"""Fixtures that several kinds of test share. Models come through the product's own code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from suture.healing import Vocabulary
from suture.healing.boundary import Encode
from suture.server.engine.llama import LlamaEngine
from suture.server.engine.tokenizer import LlamaTokenizer
from suture.server.models.catalog import Catalog
from suture.server.models.progress import progress_on
from suture.server.models.resolve import resolve_model
from suture.server.settings import load_settings

# These machines are shared: an example's time says nothing.
hypothesis.settings.register_profile("suture", deadline=None)
hypothesis.settings.load_profile("suture")

SMALL = "smollm2-135m"
CODER = "qwen2.5-coder-1.5b"


@pytest.fixture(scope="session")
def model_store() -> Path:
    """Where models are kept between runs; pulled there once."""
    return load_settings().model_store


@pytest.fixture(scope="session")
def small_model(model_store: Path) -> Path:
    """A 135M model without FIM sentinels."""
    return resolve_model(SMALL, Catalog.packaged(), model_store, progress_on(sys.stderr))


@pytest.fixture(scope="session")
def coder_model(model_store: Path) -> Path:
    """The default model: 1.5B, trained to fill in the middle."""
    return resolve_model(CODER, Catalog.packaged(), model_store, progress_on(sys.stderr))


@pytest.fixture
def engine(small_model: Path) -> Iterator[LlamaEngine]:
    """The small model, loaded on this test's thread."""
    loaded = LlamaEngine(small_model, n_threads=2, n_ctx=2048)
    yield loaded
    loaded.close()


@pytest.fixture(scope="session")
def qwen_vocabulary(coder_model: Path) -> tuple[Vocabulary, Encode]:
    """The default model's vocabulary and tokenizer, without its weights."""
    return vocabulary_of(coder_model)


@pytest.fixture(scope="session", params=[SMALL, CODER])
def real_vocabulary(request: pytest.FixtureRequest, model_store: Path) -> tuple[Vocabulary, Encode]:
    """Each model's vocabulary and tokenizer in turn."""
    return vocabulary_of(
        resolve_model(request.param, Catalog.packaged(), model_store, progress_on(sys.stderr))
    )


def vocabulary_of(path: Path) -> tuple[Vocabulary, Encode]:
    return Vocabulary.from_gguf(path), LlamaTokenizer(path).encode
