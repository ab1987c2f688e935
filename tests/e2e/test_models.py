"""A real server of two models: loaded on demand, side by side, and given back to the system."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from e2e.conftest import TIMEOUT_S, Served, serving
from support.tiny_models import tiny_model

pytestmark = [pytest.mark.e2e, pytest.mark.model]

PROMPT = "def add(a, b):\n    retu"


@pytest.fixture(scope="module")
def tiny(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights and the small one's vocabulary."""
    return tiny_model(small_model, tmp_path_factory.mktemp("tiny") / "tiny.gguf")


def ask(served: Served, model: str) -> str:
    """A model's text, asked for again until it is loaded."""
    body = {"prompt": PROMPT, "max_tokens": 8, "temperature": 0, "model": model}
    give_up_at = time.monotonic() + TIMEOUT_S
    while True:
        response = httpx2.post(f"{served.url}/v1/completions", json=body, timeout=TIMEOUT_S)
        if response.status_code == 200:
            assert response.json()["model"] == model
            return str(response.json()["choices"][0]["text"])
        assert (response.status_code, response.json()["suture"]["reason"]) == (503, "LOADING")
        assert time.monotonic() < give_up_at
        time.sleep(0.05)


def states(served: Served) -> dict[str, Any]:
    return {model["name"]: model["state"] for model in served.status()["models"]}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def resident_mb(served: Served) -> float:
    """What the process that holds the models has in memory, the mapped files with it."""
    lines = Path(f"/proc/{served.status()['pid']}/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


def test_a_model_is_loaded_on_demand_and_its_memory_given_back(
    tiny: Path, small_model: Path
) -> None:
    small = small_model.stem
    with serving("--model", str(tiny), "--also-serve", str(small_model)) as served:
        ask(served, "tiny")
        before = resident_mb(served)
        assert states(served) == {"tiny": "ready", small: "unloaded"}
        first = ask(served, small)
        assert first.startswith("rn a + b")
        # The weights, and more for the context.
        weights_mb = small_model.stat().st_size / 2**20
        for _ in range(2):
            assert resident_mb(served) > before + weights_mb
            assert served.post("/models/unload", {"model": small}) == {"success": True}
            until(lambda: resident_mb(served) < before + weights_mb / 2)
            assert ask(served, "tiny")
            assert ask(served, small) == first


def shown_contexts(served: Served, name: str) -> list[int]:
    """What each list says of how many tokens a model has room for."""
    paths = (f"/v1/models/{name}", "/v1/caps", f"/props?model={name}")
    entry, caps, props = (httpx2.get(served.url + path).json() for path in paths)
    shown = served.post("/api/show", {"model": name})
    [in_modelfile] = re.findall(r"^num_ctx +(\d+)$", shown["parameters"], re.MULTILINE)
    return [
        entry["max_context_length"],
        entry["meta"]["n_ctx"],
        caps["completion_models"][f"suture/{name}"]["n_ctx"],
        props["default_generation_settings"]["n_ctx"],
        shown["model_info"]["llama.context_length"],
        int(in_modelfile),
    ]


@pytest.mark.parametrize(("flags", "n_ctx"), [((), 8192), (("--ctx", "300"), 512)])
def test_the_context_of_a_model_is_told_before_it_is_loaded(
    flags: tuple[str, ...], n_ctx: int, tiny: Path, small_model: Path
) -> None:
    """Clients size their prompts by it, and some take 0 for a model without room."""
    small = small_model.stem
    with serving("--model", str(tiny), "--also-serve", str(small_model), *flags) as served:
        ask(served, "tiny")
        # The file is read in a pause.
        until(lambda: all(one["bytes"] for one in served.status()["models"]))
        assert states(served)[small] == "unloaded"
        assert set(shown_contexts(served, small)) == {n_ctx}
        ask(served, small)
        assert set(shown_contexts(served, small)) == {n_ctx}


def test_within_a_budget_for_one_of_them_they_take_turns(tiny: Path, small_model: Path) -> None:
    small = small_model.stem
    budget = ["--ctx", "512", "--memory-mb", "120"]
    with serving("--model", str(tiny), "--also-serve", str(small_model), *budget) as served:
        until(lambda: all(one["bytes"] for one in served.status()["models"]))
        sizes = {model["name"]: model["bytes"] for model in served.status()["models"]}
        assert max(sizes.values()) <= 120_000_000 < sum(sizes.values())
        for name, other in (("tiny", small), (small, "tiny"), ("tiny", small)):
            ask(served, name)
            assert states(served) == {name: "ready", other: "unloaded"}


def test_idle_models_are_unloaded_and_the_server_stays_healthy(
    tiny: Path, small_model: Path
) -> None:
    with serving("--model", str(tiny), "--idle-minutes", "0.02") as served:
        until(lambda: states(served) == {"tiny": "unloaded"})
        assert httpx2.get(f"{served.url}/health", timeout=TIMEOUT_S).status_code == 200
        assert ask(served, "tiny")


def test_one_model_goes_on_while_another_is_loaded(tiny: Path, small_model: Path) -> None:
    small = small_model.stem
    body = {"prompt": "x", "max_tokens": 480, "ignore_eos": True, "model": "tiny", "temperature": 0}
    url, streamed = "/v1/completions", body | {"stream": True}
    with serving("--model", str(tiny), "--also-serve", str(small_model)) as served:
        alone = served.post(url, body)["choices"][0]["text"]
        with httpx2.stream("POST", served.url + url, json=streamed, timeout=TIMEOUT_S) as stream:
            events = (line for line in stream.iter_lines() if line)
            said = [next(events)]
            assert served.post("/models/load", {"model": small}) == {"success": True}
            while states(served)[small] == "loading" and said[-1] != "data: [DONE]":
                said.append(next(events))
            # Some of it came meanwhile, however soon the other one is there.
            assert len(said) > 3
            said.extend(events)
        assert said[-1] == "data: [DONE]"
        text = "".join(json.loads(line[6:])["choices"][0]["text"] for line in said[:-1])
        # What stands in the cache moves logits a little, and after a while the text.
        assert text[:50] == alone[:50] and text
        assert ask(served, small).startswith("rn a + b")
