"""The loop of one request, driven by hand over the scripted engine: no thread, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.driving import chunks_of, whole
from support.toy import (
    SPECIALS,
    special,
    toy_budget,
    toy_encode,
    toy_generation,
    toy_vocabulary,
)
from suture.healing import Decoding, Vocabulary
from suture.server.codec import DetokenizerName
from suture.server.decoding.generation import Generation
from suture.server.decoding.text_stream import window_stream
from suture.server.engine.protocol import Logits
from suture.server.engine.scripted import Model, ScriptedEngine, random_model, speaking_model
from suture.server.prompt.families import detect_family
from suture.server.prompt.plan import plan_prompt
from suture.server.request import (
    CompletionChunk,
    CompletionRequest,
    CompletionResult,
    Edit,
    SamplingParams,
    StreamReport,
)

VOCABULARY = toy_vocabulary()
NOISE = random_model(VOCABULARY.n_vocab)


def run(
    model: Model, request: CompletionRequest, detokenizer: DetokenizerName = "bytes"
) -> list[CompletionChunk]:
    """All chunks of a request, evaluated as the scheduler would."""
    engine = ScriptedEngine(VOCABULARY, toy_encode, model)
    generation = toy_generation(request, engine, detokenizer)
    return list(chunks_of(generation, engine))


def complete(
    model: Model, request: CompletionRequest, detokenizer: DetokenizerName = "bytes"
) -> tuple[str, CompletionResult]:
    engine = ScriptedEngine(VOCABULARY, toy_encode, model)
    return whole(toy_generation(request, engine, detokenizer), engine)


def says(text: bytes) -> Model:
    return speaking_model(VOCABULARY, text)


def insists_on(token_id: int, otherwise: Model) -> Model:
    """A model that wants nothing as much as one token."""

    def logits(tokens: Sequence[int]) -> Logits:
        row = otherwise(tokens).copy()
        row[token_id] = 100.0
        return row

    return logits


PLAIN = CompletionRequest("def x =", max_tokens=50)
TEXT = b"def x = (me)\n\nreturn x\n"


def test_a_stop_string_ends_the_text_before_it() -> None:
    text, result = complete(says(TEXT), replace(PLAIN, stop=("return",)))
    assert (text, result.finish, result.stop_match) == (" (me)\n\n", "stop", "return")


def test_a_stop_string_may_be_kept() -> None:
    text, _ = complete(says(TEXT), replace(PLAIN, stop=("return",), include_stop=True))
    assert text == " (me)\n\nreturn"


def test_no_stop_before_min_tokens() -> None:
    request = replace(PLAIN, stop=("m", "x"), min_tokens=4)
    text, result = complete(says(TEXT), request)
    assert text == " (me)\n\nreturn " and result.stop_match == "x"


def test_no_end_before_min_tokens() -> None:
    request = replace(PLAIN, min_tokens=5, max_tokens=9)
    _, early = complete(insists_on(special("<|endoftext|>"), NOISE), request)
    assert (early.finish, early.completion_tokens) == ("eos", 6)


def test_ignore_eos_goes_on_to_the_limit() -> None:
    request = replace(PLAIN, ignore_eos=True, max_tokens=9)
    model = insists_on(special("<|endoftext|>"), NOISE)
    text, result = complete(model, request)
    assert (result.finish, result.completion_tokens) == ("length", 9) and text


@pytest.mark.parametrize("name", SPECIALS[:-1])
def test_what_ends_the_text_is_not_shown(name: str) -> None:
    """As in llama.cpp#9606 and llama.vim#90, where sentinels reached the editor."""
    for request in (PLAIN, replace(PLAIN, infill=True, suffix="\n")):
        text, result = complete(insists_on(special(name), NOISE), request)
        assert (text, result.finish, result.reason) == ("", "eos", "EMPTY")


def test_a_special_token_named_as_stop_string_ends_the_text() -> None:
    """As in llama.cpp#6772: its text alone never shows, so it never matched."""
    request = replace(PLAIN, stop=("<|im_start|>",))
    model = insists_on(special("<|im_start|>"), NOISE)
    text, result = complete(model, request)
    assert (text, result.finish, result.stop_match) == ("", "stop", "<|im_start|>")
    assert complete(model, replace(request, include_stop=True))[0] == "<|im_start|>"


def test_h4_a_stop_id_that_only_says_given_back_bytes_again_stops_nothing() -> None:
    request = CompletionRequest("const x\n", stop_token_ids=(ord("\n"),), max_tokens=9)
    said = says(b"const x\nreturn me\n")
    text, result = complete(said, request)
    assert (text, result.finish) == ("return me", "stop")
    assert result.healing.pending == b"\n"
    assert complete(said, replace(request, min_tokens=3))[0].startswith("return me")


@pytest.mark.parametrize("line_end", ["\r\n", "\r"])
def test_a_documents_line_ends_are_kept(line_end: str) -> None:
    prefix = f"def x ={line_end}# y{line_end}"
    said = says(b"def x =\n# y\nreturn\n\nme\n")
    text, _ = complete(said, CompletionRequest(prefix, max_tokens=20))
    assert text == f"return{line_end}{line_end}me{line_end}"
    stopped, result = complete(said, CompletionRequest(prefix, stop=(line_end * 2,)))
    assert (stopped, result.finish, result.stop_match) == ("return", "stop", line_end * 2)
    assert complete(said, CompletionRequest(prefix, shape="line"))[1].stop_match is None


def in_hole(request: CompletionRequest, answer: str) -> tuple[str, CompletionResult]:
    """What a model answers that is shown its prompt and knows how it goes on."""
    plan = plan_prompt(request, VOCABULARY, detect_family(VOCABULARY, ""), toy_encode, toy_budget())
    shown = b"".join(map(VOCABULARY.bytes_of, plan.kept_ids)) + plan.pending
    return complete(says(shown + answer.encode()), request)


CALL = CompletionRequest("x\nfoo(", ")\nbar()\n", infill=True, layout="anchor", max_tokens=50)


def test_an_answer_over_closers_ends_before_them_and_is_an_edit() -> None:
    text, result = in_hole(CALL, "a, (b))\nbaz()\n")
    assert (text, result.edit) == ("a, (b)", Edit(1, "a, (b))\nbaz()"))
    assert (result.finish, result.reason) == ("eos", None)


def test_an_answer_that_writes_no_closer_is_inserted_before_them() -> None:
    text, result = in_hole(CALL, "a, (b)")
    assert (text, result.edit) == ("a, (b)", Edit(0, "a, (b)"))


def test_a_raw_answer_is_its_text() -> None:
    text, result = in_hole(replace(CALL, shape="raw"), "a, b)\nbaz()\n")
    assert (text, result.edit) == ("a, b)\nbaz()\n", None)


def test_before_more_than_closers_an_answer_ends_before_them() -> None:
    text, result = in_hole(replace(CALL, suffix=");"), "a, b)\nbaz()\n")
    assert (text, result.edit, result.rules) == ("a, b", None, ("brackets",))


def test_an_edit_has_the_documents_line_ends_and_stops() -> None:
    crlf = replace(CALL, prefix="x\r\nfoo(", suffix=") \r\nbar()\r\n", stop=("\r\n\r\n",))
    text, result = in_hole(crlf, "a)\nbaz()\n\nend")
    assert (text, result.edit) == ("a", Edit(2, "a)\r\nbaz()"))
    assert (result.finish, result.stop_match) == ("stop", "\r\n\r\n")
    cut_off = in_hole(replace(crlf, max_tokens=3), "a)\nbaz()\n\nend")[1]
    assert (cut_off.finish, cut_off.edit) == ("length", Edit(1, "a)"))
    one_line = in_hole(replace(crlf, shape="line"), "a)\nbaz()\n\nend")[1]
    assert one_line.edit == Edit(1, "a)")


@given(st.integers(1, 9), st.text('a()[]\n"', max_size=20))
def test_e3_the_interval_changes_no_edit(interval: int, answer: str) -> None:
    every = in_hole(CALL, answer)
    spaced = in_hole(replace(CALL, stream_interval=interval), answer)
    assert comparable(spaced) == comparable(every)


def test_special_tokens_are_shown_on_request() -> None:
    request = replace(PLAIN, skip_special_tokens=False, max_tokens=2)
    text, _ = complete(insists_on(special("<|im_start|>"), NOISE), request)
    assert text == "<|im_start|>" * 2


def test_a_stop_token_id_ends_the_text() -> None:
    request = replace(PLAIN, stop_token_ids=(ord("m"),))
    assert complete(says(b"def x = (m!)"), request)[0] == " ("
    assert complete(says(b"def x = (m!)"), request)[1].finish == "stop"
    kept = replace(request, include_stop=True)
    assert complete(says(b"def x = (m!)"), kept)[0] == " (m"


def test_one_line_ends_before_its_line_end() -> None:
    text, result = complete(says(TEXT), replace(PLAIN, shape="line"))
    assert (text, result.finish) == (" (me)", "stop")


def test_without_detokenizing_there_are_only_ids() -> None:
    chunks = run(says(TEXT), replace(PLAIN, detokenize=False, stop=("return",)))
    assert all(chunk.text == "" for chunk in chunks)
    ids = [token_id for chunk in chunks for token_id in chunk.token_ids]
    said = b"".join(VOCABULARY.bytes_of(token_id) for token_id in ids)
    assert said == TEXT.removeprefix(b"def x =")


def test_ids_are_all_tokens_and_the_healed_ones_too() -> None:
    chunks = run(says(b"const userName = x"), CompletionRequest("const userNa", max_tokens=3))
    ids = [token_id for chunk in chunks for token_id in chunk.token_ids]
    assert b"".join(map(VOCABULARY.bytes_of, ids)).startswith(b" userName")


def test_the_first_text_does_not_wait_for_the_interval() -> None:
    chunks = run(says(b"def x" + b"y" * 20), CompletionRequest("def x", stream_interval=6))
    assert [len(chunk.text) for chunk in chunks if chunk.text] == [1, 6, 6, 6, 1]


@given(st.integers(1, 9), st.integers(0, 5), st.booleans())
def test_the_interval_changes_no_text(interval: int, seed: int, sampled: bool) -> None:
    sampling = SamplingParams(temperature=1.0 if sampled else 0.0, seed=seed)
    request = CompletionRequest("def x", max_tokens=12, sampling=sampling, stop=("zz", "\n"))
    model = random_model(VOCABULARY.n_vocab, seed)
    every = complete(model, request)
    spaced = complete(model, replace(request, stream_interval=interval))
    assert every == spaced


@given(
    st.text("constuserName =()\né🎉", max_size=20),
    st.integers(0, 50),
    st.floats(0, 2),
    st.sampled_from([None, 1, 2, 8]),
)
def test_h1_h2_whatever_the_model_wants_the_given_back_bytes_come_again(
    prefix: str, seed: int, temperature: float, give_back: int | None
) -> None:
    sampling = SamplingParams(temperature=temperature, top_k=1, min_p=0.9, seed=seed)
    request = CompletionRequest(prefix, max_tokens=4, sampling=sampling, give_back=give_back)
    engine = ScriptedEngine(VOCABULARY, toy_encode, NOISE)
    kept = b"".join(map(VOCABULARY.bytes_of, toy_generation(request, engine).prompt_ids))
    wants_to_end = insists_on(special("<|im_end|>"), random_model(VOCABULARY.n_vocab, seed))
    chunks = run(wants_to_end, request)
    ids = [token_id for chunk in chunks for token_id in chunk.token_ids]
    whole = kept + b"".join(map(VOCABULARY.bytes_of, ids))
    assert whole.startswith(prefix.encode())
    text = "".join(chunk.text for chunk in chunks)
    assert whole.removeprefix(prefix.encode()).decode("utf-8", "replace") == text


def test_the_healing_report_scores_what_the_model_believed() -> None:
    row = np.zeros(VOCABULARY.n_vocab, np.float32)
    row[toy_encode(b" userName")[0]] = 5.0
    request = CompletionRequest("const userNa", max_tokens=1)
    engine = ScriptedEngine(VOCABULARY, toy_encode, lambda tokens: row.copy())
    generation = toy_generation(request, engine)
    _, result = whole(generation, engine)
    n_drawable = VOCABULARY.n_vocab - len(set(VOCABULARY.silent_ids) - generation.plan.stop_ids)
    expected = 5.0 - np.log(np.exp(5.0) + n_drawable - 1)
    assert result.healing.logprob == pytest.approx(expected)


def test_a_logit_bias_bans_a_token() -> None:
    sampling = SamplingParams(logit_bias=((toy_encode(b"(")[0], -np.inf),))
    text, _ = complete(says(TEXT), replace(PLAIN, max_tokens=3, sampling=sampling))
    assert "(" not in text


def test_the_seed_in_use_is_told() -> None:
    sampling = SamplingParams(temperature=1.0)
    drawn, result = complete(NOISE, replace(PLAIN, sampling=sampling, max_tokens=12))
    assert result.seed is not None
    again = replace(PLAIN, sampling=replace(sampling, seed=result.seed), max_tokens=12)
    assert complete(NOISE, again) == (drawn, result)


def comparable(answer: tuple[str, CompletionResult]) -> tuple[str, CompletionResult]:
    """Without what waits how long, and the seed, which is a fresh one each time."""
    text, result = answer
    return text, replace(result, stream=StreamReport(), seed=0)


STORY = "def x = (é, 我很, 👩‍👩‍👧) # return\n\nreturn x userName\n"


@given(
    at=st.integers(6, len(STORY) - 1),
    stops=st.lists(
        st.sampled_from(["return", "\n\n", "我", " user", "#", "<|im_end|>"]), max_size=3
    ),
    give_back=st.sampled_from([None, 1, 3, 8]),
    min_tokens=st.integers(0, 9),
    include_stop=st.booleans(),
    max_tokens=st.integers(1, 60),
    shape=st.sampled_from(["raw", "line"]),
)
def test_w10_windows_answer_as_bytes_do(
    at: int,
    stops: list[str],
    give_back: int | None,
    min_tokens: int,
    include_stop: bool,
    max_tokens: int,
    shape: Literal["raw", "line"],
) -> None:
    request = CompletionRequest(
        STORY[:at],
        stop=tuple(stops),
        give_back=give_back,
        min_tokens=min_tokens,
        include_stop=include_stop,
        max_tokens=max_tokens,
        shape=shape,
    )
    model = says(STORY.encode())

    assert comparable(complete(model, request, "window")) == comparable(complete(model, request))


@given(seed=st.integers(0, 1000), special=st.booleans(), max_tokens=st.integers(1, 40))
def test_w3_windows_answer_as_bytes_do_where_the_bytes_are_no_text(
    seed: int, special: bool, max_tokens: int
) -> None:
    model = random_model(VOCABULARY.n_vocab, seed)
    request = replace(PLAIN, max_tokens=max_tokens, skip_special_tokens=special)

    assert comparable(complete(model, request, "window")) == comparable(complete(model, request))


def test_a_stop_string_that_windows_find_at_the_end_is_the_reason() -> None:
    """A token that completes it and begins a character is read with the next one."""
    piece = b"xSTOP\xe4"
    vocabulary = Vocabulary([b"a", piece])
    plan = plan_prompt(PLAIN, VOCABULARY, None, toy_encode, toy_budget())
    plan = replace(plan, kept_ids=(0,), pending=b"", max_tokens=1)
    request = CompletionRequest("a", stop=("STOP",), max_tokens=1)
    decoding = Decoding(
        lambda ids: b"".join(map(vocabulary.bytes_of, ids)).decode("utf-8", "replace"), 2
    )
    stream = window_stream(request, plan, vocabulary, decoding, ["STOP"])
    generation = Generation(request, plan, vocabulary, stream)

    chunk = generation.feed(np.array([[0.0, 1.0]], np.float32))

    assert chunk is not None and chunk.result is not None
    assert (chunk.text, chunk.result.finish, chunk.result.stop_match) == ("x", "stop", "STOP")
