"""The conformance kit against our own server, and against llama.cpp's where its wheel is there.

Ours must pass whatever applies. Of a peer nothing is asked but that the kit comes to its end.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.suite import CHECKS, Score, score
from e2e.conftest import serving
from support.llama_server import llama_cpp_server
from support.tiny_models import tiny_model
from support.vocabularies import pulled

pytestmark = [pytest.mark.e2e, pytest.mark.model]

TESTS = Path(__file__).parents[1]
# What a model with random weights, which fills holes, can tell of any server on any machine.
TOLD_BY_RANDOM = {
    "A1", "A5", "A7", "A8", "A9", "A10", "A11", "A15", "A16", "A18", "B9, B18", "B10, B11", "B13",
    "B-stop", "B15", "C1, C2", "C7", "C10", "D4", "D8", "D10, D11", "D12", "D15", "D19",
}  # fmt: skip
# What a small model without sentinels tells besides, and the default one in holes.
TOLD_BY_SMALL = {"A2", "A3", "A13", "B12", "C6, C9"}
TOLD_BY_CODER = {"A12, A14", "D14"}
# Checks of how long something takes: a busy machine may have a bad moment, hardly two.
TIMED = {"D1", "D2, D3", "D5", "D8"}


@pytest.fixture(scope="module")
def tiny_starcoder(model_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """StarCoder's vocabulary, sentinels included, with random weights."""
    [vocabulary] = pulled(["vocab-starcoder"], model_store).values()
    return tiny_model(vocabulary, tmp_path_factory.mktemp("tiny") / "starcoder-tiny.gguf")


def scored(url: str, names: set[str]) -> Score:
    return asyncio.run(score(url, [one for one in CHECKS if one.id in names], limit_s=300))


def patiently_scored(url: str) -> Score:
    """All checks; those that time made fail are asked once more."""
    found = asyncio.run(score(url, limit_s=300))
    failed = {one.check.id for one in found.results if one.outcome in ("fail", "error")}
    again = {one.check.id: one for one in scored(url, failed & TIMED).results}
    return replace(found, results=tuple(again.get(one.check.id, one) for one in found.results))


def failures(found: Score) -> list[str]:
    return [
        f"{result.outcome} {result.check.id} {result.check.title}: {result.detail}"
        for result in found.results
        if result.outcome != "pass"
    ]


def test_with_random_weights_every_check_that_applies_is_passed(tiny_starcoder: Path) -> None:
    with serving("--model", str(tiny_starcoder), "--ctx", "4096", "--threads", "1") as served:
        found = patiently_scored(served.url)
    passed = {result.check.id for result in found.results if result.outcome == "pass"}
    assert [line for line in failures(found) if not line.startswith("n/a ")] == []
    assert passed >= TOLD_BY_RANDOM
    assert found.fills and not found.has_sense


def test_a_small_model_that_fills_no_holes_says_so_and_finishes_words(small_model: Path) -> None:
    with serving("--model", str(small_model), "--threads", "1") as served:
        found = scored(served.url, TOLD_BY_SMALL)
    assert failures(found) == []
    assert found.has_sense and not found.fills


def test_the_default_model_fills_holes_as_the_checks_ask(coder_model: Path) -> None:
    """In a small context: a huge file is cut to it, and reading a large one takes minutes."""
    with serving("--model", str(coder_model), "--ctx", "1024") as served:
        found = scored(served.url, TOLD_BY_CODER)
    assert failures(found) == []
    assert found.has_sense and found.fills


@pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="pip install xllamacpp, for the peer"
)
def test_llama_cpps_own_server_is_scored_to_the_end(tiny_starcoder: Path) -> None:
    with llama_cpp_server(tiny_starcoder) as url:
        command = [sys.executable, "-m", "conformance", "--url", url, "--json"]
        done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=600)
    found = json.loads(done.stdout)
    assert [result["id"] for result in found["results"]] == [one.id for one in CHECKS]
    print(f"{found['server']}: {found['passed']} of {found['applied']}")


def test_every_check_says_what_it_is() -> None:
    assert len({one.id for one in CHECKS}) == len(CHECKS)
    for one in CHECKS:
        assert all((one.title, one.sends, one.passes, one.why, *one.sources)), one.id


def test_the_kit_imports_nothing_of_ours() -> None:
    code = "import sys, conformance.__main__; print([n for n in sys.modules if 'suture' in n])"
    done = subprocess.run([sys.executable, "-c", code], cwd=TESTS, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
