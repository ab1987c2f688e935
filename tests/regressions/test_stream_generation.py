"""Reported faults of the loop around a detokenizer: what ends a text, and what counts (T12)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.toy import special, toy_encode, toy_generation, toy_vocabulary
from suture.server.engine.scripted import Model, ScriptedEngine, speaking_model
from suture.server.request import CompletionRequest, CompletionResult

VOCABULARY = toy_vocabulary()
PROMPT = "def x ="


def complete(request: CompletionRequest, says: str) -> tuple[list[str], CompletionResult]:
    """The chunks' texts, and the result, of a model that says this after the prompt."""
    model: Model = speaking_model(VOCABULARY, (request.prefix + says).encode())
    engine = ScriptedEngine(VOCABULARY, toy_encode, model)
    generation = toy_generation(request, engine)
    sequence = engine.open()
    texts = []
    while True:
        tree = generation.tree(len(engine.tokens(sequence)))
        [rows] = engine.evaluate([(sequence, tree)])
        engine.commit(sequence, len(tree) - 1)
        chunk = generation.feed(rows)
        if chunk is not None:
            texts.append(chunk.text)
            if chunk.result is not None:
                return texts, chunk.result


def test_t12_a_stop_string_comes_before_the_end_of_text_after_it() -> None:
    """vllm#23938: the end-of-text token of the same step hid the stop string."""
    texts, result = complete(CompletionRequest(PROMPT, stop=("STOP",)), " a STOP")

    assert ("".join(texts), result.finish, result.stop_match) == (" a ", "stop", "STOP")


def test_t12_a_stop_string_in_the_last_token_that_fits_is_a_stop() -> None:
    """sglang#31599: the limit hid the stop string before it."""
    request = CompletionRequest(PROMPT, stop=("\n",), max_tokens=2)

    texts, result = complete(request, "1\n")

    assert ("".join(texts), result.finish, result.completion_tokens) == ("1", "stop", 2)


@pytest.mark.parametrize(("n_tokens", "text"), [(2, "1\ufffd"), (4, "1\ufffd"), (5, "1😀")])
def test_t12_tokens_of_an_unfinished_character_count(n_tokens: int, text: str) -> None:
    """llama-cpp-python: while a character was unfinished, the limit was not looked at."""
    request = CompletionRequest(PROMPT, max_tokens=n_tokens)

    texts, result = complete(request, "1😀😀")

    assert ("".join(texts), result.completion_tokens) == (text, n_tokens)


def test_t12_a_prompt_that_ends_in_a_replacement_character_is_not_sent() -> None:
    """tokenizers' DecodeStream took the whole prompt for unsent text."""
    texts, _ = complete(CompletionRequest("# \ufffd"), "a")

    assert "".join(texts) == "a"


def test_t12_a_stop_id_may_be_kept_and_counts_only_late_enough() -> None:
    """vllm#55483: the flag was ignored for stop ids, and the least number was asked per step."""
    [x] = VOCABULARY.ids_of(b"x")
    request = CompletionRequest(PROMPT, stop_token_ids=(x,), include_stop=True, min_tokens=2)

    kept, result = complete(request, "12x3")
    assert ("".join(kept), result.finish, result.completion_tokens) == ("12x", "stop", 3)
    dropped, _ = complete(replace(request, include_stop=False), "12x3")
    assert "".join(dropped) == "12"
    early, _ = complete(request, "1x3")
    assert not "".join(early).startswith("1x")


def test_t12_a_stop_string_that_is_a_special_token_ends_the_text() -> None:
    """llama.cpp#6772: the token has no text, so its text as stop string never matched."""
    request = CompletionRequest(PROMPT, stop=("<|endoftext|>",))

    texts, result = complete(request, "1")

    assert special("<|endoftext|>") == VOCABULARY.eos_id
    assert ("".join(texts), result.stop_match) == ("1", "<|endoftext|>")


def test_t12_no_chunk_is_empty_but_the_last() -> None:
    """vllm#13087: empty first chunks were taken for failures."""
    texts, _ = complete(CompletionRequest(PROMPT, stop=("1234567x",)), "1234567890")

    assert all(texts[:-1])
    assert "".join(texts) == "1234567890"
