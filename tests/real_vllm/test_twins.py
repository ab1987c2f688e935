"""vLLM and llama.cpp have the same model: else nothing that follows would say anything."""

from __future__ import annotations

import pytest

from e2e.conftest import Served
from support.cut_texts import cut_holes
from support.same_text import NOISE, Record
from support.twin_models import NAME, SEPARATOR
from support.vllm_servers import Backend


@pytest.mark.parametrize("name", ["library 3", "accents", "CJK", "tabs"])
def test_both_engines_say_the_same_of_a_token(
    name: str, embedded: Served, backend: Backend, record_property: Record
) -> None:
    text = cut_holes()[name][0]
    ids = embedded.post("/tokenize", {"content": text})["tokens"]
    body = {"prompt": text, "healing": "off", "temperature": 0, "n_predict": 1, "n_probs": 10}
    answer = embedded.post("/completion", body)
    assert answer["suture"]["prompt"]["tokens"] == 1 + len(ids)
    (ours,) = answer["completion_probabilities"]
    prompt = [SEPARATOR, *ids]
    asked = {"model": NAME, "prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 10}
    choice = backend.ask(asked | {"return_tokens_as_token_ids": True})["choices"][0]

    (theirs,) = choice["logprobs"]["top_logprobs"]
    local = {f"token_id:{entry['id']}": entry["logprob"] for entry in ours["top_logprobs"]}
    shared = local.keys() & theirs.keys()
    worst = max(abs(local[token] - theirs[token]) for token in shared)
    assert len(shared) >= 9
    assert worst < NOISE
    record_property("largest difference of a log probability", f"{worst:.4f}")
