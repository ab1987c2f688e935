"""Each kind of memory that a model can have: what is reused of it never changes a text.

Guards against what llama.cpp#13194, #19794, #20153 and #21831 are about: sliding windows and states
that a cache is cut back behind, or that are read again at every request.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.driving import whole
from support.http_server import client, serving, settings
from support.tiny_models import WINDOW, Architecture, tiny_model
from support.toy import toy_budget
from support.vocabularies import pulled
from suture.healing import (
    CanonicalPairs,
    Posterior,
    TokenTransducer,
    Vocabulary,
    log_softmax_row,
)
from suture.server.commands.doctor import examine
from suture.server.decoding.covering import Coverings
from suture.server.decoding.generation import Generation
from suture.server.decoding.text_stream import byte_stream
from suture.server.engine.abort import AbortFlag
from suture.server.engine.kv import KvCache
from suture.server.engine.llama import LlamaEngine
from suture.server.engine.protocol import Logits, Memory, SequenceId
from suture.server.engine.tree import TokenTree
from suture.server.errors import EngineError
from suture.server.local import local_completer
from suture.server.prompt.plan import plan_prompt
from suture.server.request import CompletionRequest, SamplingParams

pytestmark = pytest.mark.model

MEMORIES: dict[Architecture, Memory] = {
    "llama": "full",
    "gemma2": "sliding",
    "mamba": "recurrent",
    "jamba": "hybrid",
}
STATES: list[Architecture] = ["mamba", "jamba"]


@pytest.fixture(scope="session")
def tiny(model_store: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Architecture, Path]:
    [vocabulary] = pulled(["vocab-llama-spm"], model_store).values()
    folder = tmp_path_factory.mktemp("tiny")
    return {name: tiny_model(vocabulary, folder / f"{name}.gguf", name) for name in MEMORIES}


@contextmanager
def loaded(path: Path, n_ctx: int = 1024) -> Iterator[LlamaEngine]:
    engine = LlamaEngine(path, n_threads=1, n_ctx=n_ctx)
    try:
        yield engine
    finally:
        engine.close()


def read(engine: LlamaEngine, sequence: SequenceId, tokens: Sequence[int]) -> Logits:
    """The row after `tokens` on top of what the sequence holds; they are committed."""
    [rows] = engine.evaluate([(sequence, TokenTree.chain(tokens))])
    row: Logits = rows[0].copy()
    engine.commit(sequence, len(tokens) - 1)
    return row


def cold(engine: LlamaEngine, tokens: Sequence[int]) -> Logits:
    """The row after `tokens` on an engine that holds nothing else."""
    sequence = engine.open()
    row = read(engine, sequence, tokens)
    engine.release(sequence)
    return row


def same(row: Logits, expected: Logits) -> bool:
    # Half floats in the cache move logits by some thousandths; half a window missing, by tenths.
    return bool(np.abs(row - expected).mean() < 0.03)


def words(rng: random.Random, n: int) -> list[int]:
    return [rng.randrange(300, 30_000) for _ in range(n)]


@pytest.mark.parametrize("name", MEMORIES)
def test_the_memory_is_known(name: Architecture, tiny: dict[Architecture, Path]) -> None:
    with loaded(tiny[name]) as engine:
        assert engine.memory == MEMORIES[name]
        assert engine.can_branch == (name not in STATES)
    told = "\n".join(str(found) for found in examine(settings(model=str(tiny[name]), port=1)))
    assert f"memory: {MEMORIES[name]}: " in told


@dataclass
class Walk:
    """Random requests through a cache, each of whose rows is compared with a cold engine's."""

    engine: LlamaEngine
    cold: LlamaEngine
    rng: random.Random
    n_reused: int = 0
    texts: list[list[int]] = field(default_factory=list)
    running: list[SequenceId] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cache = KvCache(self.engine, idle_tokens=150, max_idle=4, worth_keeping=8)

    def prompt(self) -> list[int]:
        """Something new, or something that was said before: gone on with, or cut back and so."""
        if not self.texts or self.rng.random() < 0.15:
            return words(self.rng, self.rng.randint(1, 150))
        known = self.rng.choice(self.texts[-6:])
        n_kept = self.rng.choice([len(known), len(known) - 1, self.rng.randint(0, len(known))])
        return known[:n_kept] + words(self.rng, self.rng.randint(1, 8))

    def begin(self) -> None:
        prompt = self.prompt()[:300]
        self.cache.make_room(len(prompt) + 20)
        sequence = self.cache.start(prompt)
        self.running.append(sequence)
        n_known = len(self.engine.tokens(sequence))
        self.n_reused += n_known
        self.say(sequence, prompt[n_known:])

    def say(self, sequence: SequenceId, tokens: Sequence[int]) -> None:
        row = read(self.engine, sequence, tokens)
        expected = cold(self.cold, self.engine.tokens(sequence))
        assert same(row, expected)

    def go_on(self) -> None:
        self.say(self.rng.choice(self.running), words(self.rng, self.rng.randint(1, 3)))

    def end(self) -> None:
        sequence = self.running.pop(self.rng.randrange(len(self.running)))
        self.texts.append(list(self.engine.tokens(sequence)))
        self.cache.finish(sequence)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", MEMORIES)
def test_k2_rows_are_those_of_a_cold_engine(
    name: Architecture, seed: int, tiny: dict[Architecture, Path]
) -> None:
    with loaded(tiny[name]) as engine, loaded(tiny[name], 2048) as other:
        walk = Walk(engine, other, random.Random(seed))
        for _ in range(80):
            if len(walk.running) < 2 or (len(walk.running) < 4 and walk.rng.random() < 0.4):
                walk.begin()
            elif walk.rng.random() < 0.4:
                walk.end()
            else:
                walk.go_on()
        assert walk.n_reused > 0


def test_a_window_whose_cells_were_taken_is_not_cut_back_into(
    tiny: dict[Architecture, Path],
) -> None:
    """The library takes a cell outside of a window for a free one, however large its cache."""
    rng = random.Random(0)
    first, second, third = words(rng, 40), words(rng, 300), words(rng, 200)
    with loaded(tiny["gemma2"]) as engine:
        old, long = engine.open(), engine.open()
        read(engine, old, first)
        read(engine, long, second)
        assert engine.shortest(long) == 0
        engine.release(old)
        read(engine, engine.open(), third)

        shortest = engine.shortest(long)
        assert 100 < shortest <= 300
        with pytest.raises(ValueError, match="cannot be forked"):
            engine.fork(long, shortest - 1)
        fork = engine.fork(long, shortest)
        row = read(engine, fork, [5])
        assert engine.truncate(long, shortest - 1) == 0
        engine.release(fork)
        with loaded(tiny["gemma2"]) as other:
            assert same(row, cold(other, [*second[:shortest], 5]))


def test_of_a_saved_window_only_the_end_is_there(tiny: dict[Architecture, Path]) -> None:
    text = words(random.Random(1), 200)
    with loaded(tiny["gemma2"]) as engine:
        sequence = engine.open()
        read(engine, sequence, text)
        saved = engine.save(sequence)
        again = engine.load(saved)

        assert 200 - WINDOW < engine.shortest(again) <= saved.shortest == 200
        assert same(read(engine, again, [5]), read(engine, sequence, [5]))
        assert engine.truncate(again, 100) == 0


@pytest.mark.parametrize("name", STATES)
def test_a_state_is_forked_where_it_stands_and_nowhere_else(
    name: Architecture, tiny: dict[Architecture, Path]
) -> None:
    text = words(random.Random(2), 60)
    with loaded(tiny[name]) as engine, loaded(tiny[name]) as other:
        sequence = engine.open()
        read(engine, sequence, text)
        with pytest.raises(ValueError, match="cannot be forked"):
            engine.fork(sequence, 59)
        with pytest.raises(ValueError, match="one first token only"):
            engine.evaluate([(sequence, TokenTree((1, 2), (-1, -1), (0, 1)))])
        forks = [engine.fork(sequence, 60) for _ in range(3)]
        rows = [read(engine, fork, [token]) for token, fork in enumerate(forks, 500)]
        rows.append(read(engine, sequence, [503]))
        for token, row in enumerate(rows, 500):
            assert same(row, cold(other, [*text, token]))
        assert engine.truncate(sequence, 60) == 0


@pytest.mark.parametrize("name", STATES)
def test_a_failure_empties_every_state(name: Architecture, tiny: dict[Architecture, Path]) -> None:
    """The library moves other sequences' states to make room, and a failure leaves them there."""
    text = words(random.Random(3), 60)
    with loaded(tiny[name]) as engine:
        failing, beside = engine.open(), engine.open()
        read(engine, failing, text)
        expected = read(engine, beside, text)
        decode, engine._lib.llama_decode = engine._lib.llama_decode, lambda *_: -3
        try:
            with pytest.raises(EngineError, match="code -3"):
                engine.evaluate([(failing, TokenTree.chain([5]))])
        finally:
            engine._lib.llama_decode = decode
        assert [list(engine.tokens(one)) for one in (failing, beside)] == [[], []]
        assert same(read(engine, beside, text), expected)
        abort = AbortFlag()
        abort.set()
        engine.evaluate([(failing, TokenTree.chain([5, 6]))], abort)


# Where paths part, where one is inside another, and where a chain's inner row is wanted.
TREES = [
    TokenTree((5, 600, 601, 602, 603), (-1, 0, 1, 1, 0), (0, 1, 2, 3, 4)),
    TokenTree((5, 6, 600, 601, 602), (-1, 0, 1, 2, 1), (1, 4, 2)),
    TokenTree((5, 600, 601), (-1, 0, 1), (0, 2)),
]


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("tree", TREES)
def test_paths_of_a_tree_have_the_rows_of_a_cold_engine(
    name: Architecture, tree: TokenTree, tiny: dict[Architecture, Path]
) -> None:
    """Beside other sequences, in one batch with one that draws; and all go on from where they were.

    A state that is rolled back must be the one before: as in llama.cpp#19794 and #21831.
    """
    text, beside = words(random.Random(4), 60), words(random.Random(5), 40)
    with loaded(tiny[name]) as engine, loaded(tiny[name]) as other:
        first, second = engine.open(), engine.open()
        read(engine, first, text)
        read(engine, second, beside)
        rows, drawn = engine.evaluate([(first, tree), (second, TokenTree.chain([7]))])
        for node, row in zip(tree.wants, rows, strict=True):
            path = [tree.tokens[at] for at in tree.path(node)]
            assert same(row, cold(other, [*text, *path]))
        assert same(drawn[0], cold(other, [*beside, 7]))
        engine.commit(first, len(tree) - 1)
        engine.commit(second, 0)
        stem = list(tree.tokens[: tree.stem_length()])
        assert list(engine.tokens(first)) == [*text, *stem]
        assert same(read(engine, first, [8]), cold(other, [*text, *stem, 8]))
        assert same(read(engine, second, [8]), cold(other, [*beside, 7, 8]))


@pytest.mark.parametrize("name", STATES)
def test_paths_need_no_sequence_of_those_that_requests_have(
    name: Architecture, tiny: dict[Architecture, Path]
) -> None:
    text = words(random.Random(6), 20)
    with loaded(tiny[name]) as engine, loaded(tiny[name]) as other:
        sequences = [engine.open() for _ in range(engine.n_sequences)]
        for token, sequence in enumerate(sequences, 700):
            read(engine, sequence, [*text, token])
        for token, sequence in enumerate(sequences, 700):
            [rows] = engine.evaluate([(sequence, TREES[0])])
            assert same(rows[2], cold(other, [*text, token, 5, 600, 601]))
            engine.commit(sequence, 0)
        for token, sequence in enumerate(sequences, 700):
            assert same(read(engine, sequence, [9]), cold(other, [*text, token, 5, 9]))


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("n_decoded", [1, 2])
def test_a_failure_under_a_path_empties_every_state(
    name: Architecture, n_decoded: int, tiny: dict[Architecture, Path]
) -> None:
    text = words(random.Random(7), 60)
    with loaded(tiny[name]) as engine, loaded(tiny[name]) as other:
        failing, beside = engine.open(), engine.open()
        read(engine, failing, text)
        read(engine, beside, text)
        decode, n_left = engine._lib.llama_decode, n_decoded

        def fails_later(*arguments: Any) -> int:
            nonlocal n_left
            n_left -= 1
            return -3 if n_left < 0 else int(decode(*arguments))

        engine._lib.llama_decode = fails_later
        try:
            with pytest.raises(EngineError, match="code -3"):
                engine.evaluate([(failing, TREES[0])])
        finally:
            engine._lib.llama_decode = decode
        assert [list(engine.tokens(one)) for one in (failing, beside)] == [[], []]
        read(engine, failing, text)
        [rows] = engine.evaluate([(failing, TREES[0])])
        assert same(rows[2], cold(other, [*text, 5, 600, 601]))
        engine.commit(failing, 0)
        assert same(read(engine, failing, [9]), cold(other, [*text, 5, 9]))


def generation_of(
    prefix: str, temperature: float, engine: LlamaEngine, coverings: Coverings
) -> Generation:
    sampling = SamplingParams(temperature=temperature, seed=1)
    request = CompletionRequest(prefix, max_tokens=4, shape="raw", sampling=sampling)
    vocabulary = engine.vocabulary
    plan = plan_prompt(request, vocabulary, None, engine.encode, toy_budget(engine.n_ctx))
    stream = byte_stream(request, plan, TokenTransducer(vocabulary))
    return Generation(request, plan, vocabulary, stream, engine, coverings=coverings)


def scored(row: Logits, vocabulary: Vocabulary) -> Logits:
    """Log probabilities of what may be drawn."""
    banned = set(vocabulary.silent_ids) - vocabulary.eog_ids
    row[list(banned)] = -np.inf
    return log_softmax_row(row)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", MEMORIES)
def test_c1_what_is_drawn_from_is_the_posterior_of_rows_evaluated_apart(
    name: Architecture, temperature: float, tiny: dict[Architecture, Path]
) -> None:
    with loaded(tiny[name]) as engine, loaded(tiny[name]) as other:
        pairs = CanonicalPairs(engine.vocabulary, engine.encode)
        seen: list[Posterior] = []
        coverings = Coverings(
            engine.vocabulary, pairs, observe=seen.append, can_branch=engine.can_branch
        )
        for prefix in (FILE, OTHER, FILE[:60], OTHER + "m"):
            generation = generation_of(prefix, temperature, engine, coverings)
            text, result = whole(generation, engine)
            posterior = seen.pop()
            assert result.healing.level == ("exact" if engine.can_branch else "exact_seq")
            kept, tree, vocabulary = generation.prompt_ids, posterior.tree, engine.vocabulary
            rows = {
                node: scored(cold(other, [*kept, *tree.path(node)]), vocabulary)
                for node in tree.wants
            }
            expected = Posterior(tree, rows, vocabulary, pairs, vocabulary.eog_ids)
            expected.ask_best(64)
            assert set(posterior.rows) == set(rows)
            for node, row in rows.items():
                may_be = np.isfinite(row)
                assert same(posterior.rows[node][may_be], row[may_be])
            posterior.ask_best(64)
            assert abs(posterior.log_evidence - expected.log_evidence) < 0.1
            if temperature == 0.0:
                best = next(expected.best_groups())
                said = text.encode()
                assert said.startswith(best.overhang) or best.overhang.startswith(said)


def ask(url: str, prompt: str, **more: object) -> Any:
    body = {"prompt": prompt, "max_tokens": 10, "ignore_eos": True, "temperature": 0} | more
    with client(url) as http:
        response = http.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()


FILE = (
    "def count(path):\n    with open(path) as file:\n        return sum(len(line) for line in fil"
)
OTHER = "class Reader:\n    def __init__(self, url):\n        self.url = url\n        self.userNa"
PROMPTS = [FILE, OTHER, FILE, FILE + "e", FILE[:60], FILE + "e)\n\nde"]


@pytest.mark.parametrize("name", MEMORIES)
def test_k2_a_server_that_has_served_says_what_a_new_one_says(
    name: Architecture, tiny: dict[Architecture, Path]
) -> None:
    """Typed on, cut back, another file and back, with healing and drafts."""
    level = "exact_seq" if name in STATES else "exact"
    at = settings(model=str(tiny[name]), threads=1)
    with ExitStack() as stack:
        warm = stack.enter_context(serving(stack.enter_context(local_completer(at))))
        answers = [ask(warm, prompt) for prompt in PROMPTS]
        with client(warm) as http:
            assert http.get("/v1/status").json()["model"]["memory"] == MEMORIES[name]
            told = http.post("/v1/explain", json={"input_prefix": FILE, "input_suffix": ""}).json()
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        with local_completer(at) as completer, serving(completer) as url:
            assert ask(url, prompt)["choices"] == answer["choices"]
    reused = [answer["suture"]["prompt"]["reused"] for answer in answers]
    levels = {answer["suture"]["healing"]["level"] for answer in answers}
    assert levels == {level}
    assert [method["level"] for method in told["methods"] if method["name"] == "exact"] == [level]
    assert told["covers"]["nodes"]
    assert "NOT_EXACT" not in [found["code"] for found in told["diagnoses"]]
    if name in STATES:
        assert max(reused) == 0, "a text that was typed on is not where the generation ended"
    else:
        assert reused[0] == 0 < min(reused[2:])
