"""The logits processor of ours in a vLLM server: the recursive rule, whatever the bytes are."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest

from e2e.conftest import Served
from support.cut_texts import cut_holes
from support.same_text import Record, assert_same_text
from support.twin_models import NAME, SEPARATOR, Twin
from support.vllm_servers import ROOT, Backend, program
from suture.healing import Vocabulary

HOLES = cut_holes()
N_TOKENS = 12


@pytest.fixture(scope="module")
def vocabulary(twin: Twin) -> Vocabulary:
    return Vocabulary.from_gguf(twin.gguf)


def asked(ids: list[int], pending: bytes) -> dict[str, Any]:
    prompt = [SEPARATOR, *ids]
    body = {"model": NAME, "prompt": prompt, "max_tokens": N_TOKENS, "temperature": 0}
    return body | {"return_token_ids": True, "vllm_xargs": {"heal_hex": pending.hex()}}


def answered(backend: Backend, body: dict[str, Any], vocabulary: Vocabulary) -> bytes:
    ids = backend.ask(body)["choices"][0]["token_ids"]
    return b"".join(map(vocabulary.bytes_of, ids))


@pytest.mark.parametrize("name", HOLES)
def test_the_rule_in_vllm_is_the_rule_of_our_own_engine(
    name: str,
    embedded: Served,
    strict_backend: Backend,
    vocabulary: Vocabulary,
    record_property: Record,
) -> None:
    text = HOLES[name][0]
    body = {"prompt": text, "healing": "recursive", "give_back": 1, "shape": "raw"}
    body |= {"temperature": 0, "n_predict": 4, "n_probs": 2}
    ours = embedded.post("/completion", body)
    healing = ours["suture"]["healing"]
    pending = bytes(healing["pending_bytes"])
    assert healing["dropped_tokens"] == 1
    ids = embedded.post("/tokenize", {"content": text})["tokens"][:-1]

    said = answered(strict_backend, asked(ids, pending), vocabulary)
    assert said.startswith(pending)
    assert_same_text(said[len(pending) :], ours, record_property)


@pytest.mark.parametrize("n_left_out", [1, 2, 3])
def test_half_a_character_may_be_pending(
    n_left_out: int, embedded: Served, strict_backend: Backend, vocabulary: Vocabulary
) -> None:
    pending = ' = "🎉'.encode()[:-n_left_out]
    ids = embedded.post("/tokenize", {"content": "title"})["tokens"]

    said = answered(strict_backend, asked(ids, pending), vocabulary)
    assert said.startswith(pending)


def test_requests_that_name_nothing_are_not_touched(
    backend: Backend, strict_backend: Backend, embedded: Served
) -> None:
    ids = embedded.post("/tokenize", {"content": HOLES["library 3"][0]})["tokens"]
    body = {"model": NAME, "prompt": ids, "max_tokens": N_TOKENS, "temperature": 0}
    texts = [one.ask(body)["choices"][0]["text"] for one in (backend, strict_backend)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("value", ["2", "zz", 7, "00" * 5000])
def test_what_is_no_hexadecimal_is_refused(value: object, strict_backend: Backend) -> None:
    body = {"model": NAME, "prompt": "def", "max_tokens": 2, "vllm_xargs": {"heal_hex": value}}
    url = strict_backend.url + "/v1/completions"
    assert httpx2.post(url, json=body, timeout=60).status_code == 400
    assert strict_backend.ask({"model": NAME, "prompt": "def", "max_tokens": 2})["choices"]


def test_the_class_for_the_other_runner_masks_the_same(vllm_folder: Path, twin: Twin) -> None:
    """In vLLM's own Python on tensors that a test has made: that runner itself wants a GPU."""
    script = ROOT / "tests" / "support" / "vllm_v2_plugin.py"
    python = program(vllm_folder, "server", "python")
    environ = {"PYTHONPATH": str(ROOT / ".dev"), "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [python, script, str(twin.folder)], env=environ, capture_output=True, text=True
    )
    assert done.stdout.endswith("as V1\n"), done.stderr[-4000:]
