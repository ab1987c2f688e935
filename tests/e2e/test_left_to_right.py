"""Healing at the end of a text, on a small model without FIM sentinels, greedy."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from e2e.conftest import TIMEOUT_S, Served, run_suture

pytestmark = [pytest.mark.e2e, pytest.mark.model]


def complete(server: Served, prompt: str, **fields: object) -> tuple[str, Any]:
    """The text and the healing report."""
    body = {"prompt": prompt, "temperature": 0, "max_tokens": 8} | fields
    answer = server.post("/v1/completions", body)
    return answer["choices"][0]["text"], answer["suture"]["healing"]


@pytest.mark.parametrize(
    ("typed", "rest"),
    [
        ("const userNa", "me"),
        ("    retu", "rn"),
        ("import nump", "y"),
        ("np.linal", "g"),
        ("def is_palindro", "me"),
        ("print('Hello, wo", "rld"),
        ("for i in rang", "e"),
        ("from collections impor", "t"),
    ],
)
def test_healed_the_word_is_finished(small_server: Served, typed: str, rest: str) -> None:
    """As in llama.cpp#5765, open since 2024."""
    healed, report = complete(small_server, typed)
    assert healed.startswith(rest)
    assert report["level"] == "exact"
    assert typed.endswith(report["pending"]) and report["dropped_tokens"] >= 1
    assert bytes(report["pending_bytes"]).decode() == report["pending"]


@pytest.mark.parametrize(
    "typed", ["const userNa", "    retu", "import nump", "np.linal", "def is_palindro"]
)
def test_unhealed_the_word_derails(small_server: Served, typed: str) -> None:
    unhealed, report = complete(small_server, typed, healing="off")
    healed, _ = complete(small_server, typed)
    assert report["level"] == "none" and report["pending"] == ""
    assert unhealed[:1] != healed[:1]


@pytest.mark.parametrize("typed", ["    retu", "import nump", "np.linal"])
def test_a_fixed_number_of_tokens_is_given_back(small_server: Served, typed: str) -> None:
    _, fixed = complete(small_server, typed, healing="recursive", give_back=1)
    _, stable = complete(small_server, typed)
    assert fixed["dropped_tokens"] == 1 < stable["dropped_tokens"]
    assert stable["pending"].endswith(fixed["pending"])


@pytest.mark.parametrize("typed", ["x = a:", "def f(x):\n", "é", "我很感", "0x1f"])
def test_what_is_given_back_is_not_said_again(small_server: Served, typed: str) -> None:
    text, report = complete(small_server, typed, on_incomplete="drop")
    assert bytes(report["pending_bytes"]) and typed.encode().endswith(
        bytes(report["pending_bytes"])
    )
    assert "\ufffd" not in text and not text.startswith(report["pending"])


@pytest.mark.parametrize("typed", ["print(x1", "price = £", "n = 42"])
def test_c3_at_a_clean_boundary_the_text_is_that_of_off(small_server: Served, typed: str) -> None:
    healed, report = complete(small_server, typed)
    assert (report["level"], report["pending_bytes"]) == ("none", [])
    assert healed == complete(small_server, typed, healing="off")[0]


def test_a_hole_needs_a_model_that_fills_holes(small_server: Served) -> None:
    body = {"input_prefix": "a", "input_suffix": "b"}
    response = httpx2.post(small_server.url + "/infill", json=body, timeout=TIMEOUT_S)
    error = response.json()["error"]
    assert response.status_code == 501 == error["code"]
    assert error["message"].startswith("Infill is not supported by this model: ")
    assert error["type"] == "not_supported_error" and "suture models" in error["message"]


def test_without_a_suffix_any_model_completes(small_server: Served) -> None:
    body = {"input_prefix": "def is_palindro", "input_suffix": "", "temperature": 0, "n_predict": 4}
    answer = small_server.post("/infill", body)
    assert answer["content"].startswith("me(")
    assert answer["suture"]["prompt"]["layout"] == "plain"
    command = run_suture("complete", "-", "--server", small_server.url, stdin=b"def is_palindro\0")
    assert command.stdout.startswith(b"me(")


def test_a_request_does_not_change_the_next_one(small_server: Served) -> None:
    """As in llama.vim#113, where answers got worse with each request."""
    first = complete(small_server, "import nump")[0]
    for prompt in ("<?php echo", "```", "import nu", "import numpy"):
        complete(small_server, prompt, temperature=1.5, seed=1)
    assert complete(small_server, "import nump")[0] == first


def test_n1_a_seed_fixes_what_is_drawn(small_server: Served) -> None:
    draws = {complete(small_server, "x = ", temperature=1.0, seed=seed)[0] for seed in (1, 1, 1)}
    more = {complete(small_server, "x = ", temperature=1.0, seed=seed)[0] for seed in range(8)}
    assert len(draws) == 1 and len(more) > 1
