"""Healing by vLLM's constraint is the recursive rule: the texts are those of our own engine."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.conftest import Served
from support.cut_texts import cut_holes
from support.same_text import Record, assert_same_text

N_TOKENS = 8
HOLES = cut_holes()
ASKED = {"healing": "recursive", "temperature": 0, "n_predict": N_TOKENS, "shape": "raw"}


@pytest.mark.parametrize("name", HOLES)
def test_a_text_goes_on_as_our_own_engine_lets_it(
    name: str, embedded: Served, remote: Served, record_property: Record
) -> None:
    assert_same("/completion", {"prompt": HOLES[name][0]}, embedded, remote, record_property)


@pytest.mark.parametrize("layout", ["psm", "spm", "anchor"])
@pytest.mark.parametrize("name", HOLES)
def test_a_hole_is_filled_as_our_own_engine_fills_it(
    name: str, layout: str, embedded: Served, remote: Served, record_property: Record
) -> None:
    prefix, suffix = HOLES[name]
    body = {"input_prefix": prefix, "input_suffix": suffix, "layout": layout}
    if layout == "psm":
        body["fim_boundary"] = "move"
    assert_same("/infill", body, embedded, remote, record_property)


@pytest.mark.parametrize("give_back", [1, 2, 4])
def test_so_many_tokens_are_given_back_as_are_asked_for(
    give_back: int, embedded: Served, remote: Served, record_property: Record
) -> None:
    body = {"prompt": HOLES["library 5"][0], "give_back": give_back}
    assert_same("/completion", body, embedded, remote, record_property)


def test_unhealed_texts_are_the_same_too(
    embedded: Served, remote: Served, record_property: Record
) -> None:
    body = {"prompt": HOLES["library 5"][0], "healing": "off"}
    assert_same("/completion", body, embedded, remote, record_property)


def assert_same(
    path: str, body: dict[str, Any], embedded: Served, remote: Served, record: Record
) -> None:
    """Same text, same bytes given back, the level told; but where the engines are at a tie."""
    body = ASKED | body
    ours = embedded.post(path, body | {"n_probs": 2})
    theirs = remote.post(path, body)
    healing, own_healing = theirs["suture"]["healing"], ours["suture"]["healing"]
    for field in ("level", "pending_bytes", "dropped_tokens"):
        assert healing[field] == own_healing[field], field
    assert theirs["tokens_predicted"] == ours["tokens_predicted"]
    assert_same_text(theirs["content"].encode(), ours, record)
