"""A real vLLM, twice, its router, Suture before them, and Suture with the same model itself.

All of it lasts for the run: a server is half a minute in starting. Without VLLM_DIR, which
`make test-vllm` sets, these tests are deselected.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import Served, serving
from support.remote_serving import remote_serving
from support.run_report import RunReport
from support.twin_models import CONTEXT, Twin, write_twin
from support.vllm_servers import PLUGIN, Backend, vllm_router, vllm_servers
from support.vocabularies import pulled

_VOCABULARY = "vocab-starcoder"


def pytest_configure(config: pytest.Config) -> None:
    folder, target = os.environ.get("VLLM_DIR"), os.environ.get("VLLM_REPORT")
    if folder and target:
        config.pluginmanager.register(RunReport(Path(target), Path(folder)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    ours = [item for item in items if here in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.vllm)
    if ours and not os.environ.get("VLLM_DIR"):
        items[:] = [item for item in items if here not in item.path.parents]
        config.hook.pytest_deselected(items=ours)


@pytest.fixture(scope="session")
def vllm_folder() -> Path:
    """Where vLLM and its router are installed."""
    return Path(os.environ["VLLM_DIR"])


@pytest.fixture(scope="session")
def twin(vllm_folder: Path, model_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Twin:
    vocabulary = pulled([_VOCABULARY], model_store)[_VOCABULARY]
    return write_twin(vocabulary, tmp_path_factory.mktemp("twin"))


@pytest.fixture(scope="session")
def replicas(
    vllm_folder: Path, twin: Twin, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Backend]]:
    """Two servers of the model; the second one has our logits processor."""
    flags = ((), ("--logits-processors", f"{PLUGIN}.v1:Healing"))
    logs = tmp_path_factory.mktemp("vllm")
    with vllm_servers(vllm_folder, twin.folder, logs, flags) as backends:
        yield backends


@pytest.fixture(scope="session")
def backend(replicas: list[Backend]) -> Backend:
    """vLLM as it comes."""
    return replicas[0]


@pytest.fixture(scope="session")
def strict_backend(replicas: list[Backend]) -> Backend:
    """vLLM with our logits processor."""
    return replicas[1]


@pytest.fixture(scope="session")
def router(
    vllm_folder: Path, replicas: list[Backend], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The URL of vLLM's router, which sends what has one key to one replica."""
    log = tmp_path_factory.mktemp("router") / "log"
    with vllm_router(vllm_folder, replicas, "consistent_hash", log) as url:
        yield url


@pytest.fixture(scope="session")
def embedded(twin: Twin) -> Iterator[Served]:
    """Suture with the model in its own engine."""
    with serving("--model", str(twin.gguf), "--ctx", str(CONTEXT)) as served:
        yield served


@pytest.fixture(scope="session")
def remote(backend: Backend, twin: Twin) -> Iterator[Served]:
    """Suture before vLLM."""
    with remote_serving(backend.url, twin.tokenizer) as served:
        yield served


@pytest.fixture(scope="session")
def strict(strict_backend: Backend, twin: Twin) -> Iterator[Served]:
    """Suture before a vLLM that has its logits processor."""
    with remote_serving(
        strict_backend.url, twin.tokenizer, "--engine-kind", "vllm-strict"
    ) as served:
        yield served


@pytest.fixture(scope="session")
def routed(router: str, twin: Twin) -> Iterator[Served]:
    """Suture before the router."""
    with remote_serving(router, twin.tokenizer) as served:
        yield served
