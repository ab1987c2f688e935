"""Exact healing in whole generations: what is drawn, what is reported, what is evaluated."""

from __future__ import annotations

import math
import queue
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.driving import TIMEOUT_S, chunks_of, collect, whole
from support.toy import special, toy_budget, toy_encode, toy_generation, toy_vocabulary
from support.vocab import byte_level
from suture.healing import CanonicalPairs, TokenTransducer, log_softmax_row, reference
from suture.server.decoding import covering
from suture.server.decoding.covering import Coverings
from suture.server.decoding.generation import Generation
from suture.server.decoding.output import special_tokens, stop_strings
from suture.server.decoding.text_stream import byte_stream
from suture.server.engine.abort import AbortFlag
from suture.server.engine.job import Job
from suture.server.engine.protocol import Batch, Logits, Memory
from suture.server.engine.scheduler import Scheduler
from suture.server.engine.scripted import Model, ScriptedEngine, random_model, speaking_model
from suture.server.errors import EngineError
from suture.server.prompt.families import detect_family
from suture.server.prompt.plan import plan_prompt
from suture.server.request import CompletionRequest, CompletionResult, SamplingParams

VOCABULARY = toy_vocabulary()
NOISE = random_model(VOCABULARY.n_vocab)
END = special("<|endoftext|>")
Path = tuple[int, ...]


def complete(request: CompletionRequest, model: Model = NOISE) -> tuple[str, CompletionResult]:
    engine = ScriptedEngine(VOCABULARY, toy_encode, model)
    return whole(toy_generation(request, engine), engine)


def generation_with(
    coverings: Coverings | None, request: CompletionRequest, engine: ScriptedEngine
) -> Generation:
    """One whose covers share their rows with those of others."""
    vocabulary = engine.vocabulary
    family = detect_family(vocabulary, "toy")
    plan = plan_prompt(request, vocabulary, family, engine.encode, toy_budget(engine.n_ctx))
    transducer = TokenTransducer(vocabulary, stop_strings(request, plan), special_tokens(request))
    stream = byte_stream(request, plan, transducer)
    return Generation(request, plan, vocabulary, stream, engine, coverings=coverings)


def coverings_of(engine: ScriptedEngine) -> Coverings:
    return Coverings(engine.vocabulary, CanonicalPairs(engine.vocabulary, engine.encode))


def counting(model: Model, asked: Counter[Path]) -> Model:
    def logits(tokens: Sequence[int]) -> Logits:
        asked[tuple(tokens)] += 1
        return model(tokens)

    return logits


def test_without_coverings_it_is_the_recursive_rule() -> None:
    engine = ScriptedEngine(VOCABULARY, toy_encode, NOISE)
    request = CompletionRequest("const userNa", max_tokens=6, shape="raw")
    told: queue.Queue[object] = queue.Queue()
    with running(engine) as scheduler:
        scheduler.submit(Job(generation_with(None, request, engine), told.put))
        text, result = collect(told)
    assert result.healing.level == "recursive" and result.healing.tv_bound == 1.0
    assert text == complete(replace(request, healing="recursive"))[0]


# Level exact_seq


def complete_on_a_state(request: CompletionRequest, model: Model) -> tuple[str, CompletionResult]:
    engine = ScriptedEngine(VOCABULARY, toy_encode, model, memory="recurrent")
    told: queue.Queue[object] = queue.Queue()
    with running(engine) as scheduler:
        scheduler.submit(Job(toy_generation(request, engine), told.put))
        return collect(told)


@pytest.mark.parametrize("prefix", ["const userNa", "def x;\n    ret", "x = us", "a ", "def x;"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_k2_path_by_path_is_what_a_tree_at_once_is(prefix: str, temperature: float) -> None:
    for seed in range(5):
        model = random_model(VOCABULARY.n_vocab, seed)
        sampling = SamplingParams(temperature=temperature, seed=seed)
        request = CompletionRequest(prefix, max_tokens=6, shape="raw", sampling=sampling)
        text, result = complete_on_a_state(request, model)
        expected_text, expected = complete(request, model)
        assert text == expected_text
        assert result.healing.level == {"exact": "exact_seq"}.get(
            expected.healing.level, expected.healing.level
        )
        assert replace(result.healing, level="exact") == replace(expected.healing, level="exact")


def test_c2_a_tree_of_too_many_paths_is_made_again_of_few_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = CompletionRequest("const userNa", max_tokens=1, shape="raw")
    _, all_of_it = complete(request)
    monkeypatch.setattr(covering, "MAX_PATHS", 1)
    _, result = complete_on_a_state(request, NOISE)
    assert result.healing.level == "exact_seq"
    assert result.healing.nodes < all_of_it.healing.nodes
    assert all_of_it.healing.tv_bound < result.healing.tv_bound < 1.0


@pytest.mark.parametrize("prefix", [";\n    ret", "const userNa", "def return   ", "import nump"])
def test_c1_the_evidence_is_that_of_all_covers(prefix: str) -> None:
    """Of the model's own rows, in which what may never be drawn has its probability too."""
    model = flat_model(VOCABULARY.n_vocab, 3)
    request = CompletionRequest(prefix, max_tokens=1, n_probs=0)
    engine = ScriptedEngine(VOCABULARY, toy_encode, model)
    generation = toy_generation(request, engine)
    plan = generation.plan
    ends = VOCABULARY.eog_ids | plan.stop_ids
    masses = masses_of(plan.kept_ids, plan.pending, model, ends, bans=False)
    healing = whole(generation, engine)[1].healing
    assert healing.level == "exact" and healing.log_evidence is not None
    assert math.isclose(healing.log_evidence, math.log(sum(masses.values())), abs_tol=1e-6)


def test_the_evidence_is_not_computed_where_nobody_asks() -> None:
    result = complete(CompletionRequest("const userNa", max_tokens=1))[1]
    assert result.healing.level == "exact"
    assert result.healing.log_evidence is None and result.confidence is None


# Level none


@pytest.mark.parametrize(
    "request_",
    [
        CompletionRequest("def x;", max_tokens=12),
        CompletionRequest("def x;", max_tokens=12, give_back=1),
        CompletionRequest(";\nx", "y", infill=True, layout="psm", fim_boundary="keep"),
        CompletionRequest("", max_tokens=12),
    ],
)
def test_c3_at_a_clean_boundary_the_text_is_that_of_off(request_: CompletionRequest) -> None:
    for seed in range(5):
        model = random_model(VOCABULARY.n_vocab, seed)
        for temperature in (0.0, 1.0):
            sampling = SamplingParams(temperature=temperature, seed=seed)
            sampled = replace(request_, sampling=sampling)
            text, result = complete(sampled, model)
            assert text == complete(replace(sampled, healing="off", give_back=None), model)[0]
            healing = result.healing
            assert (healing.level, healing.tv_bound, healing.logprob) == ("none", 0.0, 0.0)


def test_c3_a_final_newline_is_clean_where_no_token_begins_with_it() -> None:
    request = CompletionRequest("\n", max_tokens=0)
    assert complete(request)[1].healing.pending == b"\n"
    vocabulary, encode = byte_level()
    # There some tokens do.
    assert not vocabulary.extends_strictly(b";\n") and vocabulary.extends_strictly(b"\n")
    engine = ScriptedEngine(vocabulary, encode, random_model(vocabulary.n_vocab))
    generation = toy_generation(CompletionRequest("x;\n", max_tokens=3), engine)
    healing = whole(generation, engine)[1].healing
    assert (healing.level, healing.pending) == ("exact", b"\n")


def test_a_prompt_for_which_nothing_is_generated_has_no_covers() -> None:
    asked: Counter[Path] = Counter()
    request = CompletionRequest("const userNa", max_tokens=0)
    text, result = complete(request, counting(NOISE, asked))
    assert (text, result.healing.level, result.healing.nodes) == ("", "none", 0)
    assert asked.total() == 1


def test_c2_dropped_healing_claims_nothing() -> None:
    bans = tuple((i, -np.inf) for i in range(256 + 20))
    request = CompletionRequest("const userNa", sampling=SamplingParams(logit_bias=bans))
    text, result = complete(request)
    assert (text, result.finish) == ("", "eos")
    healing = result.healing
    assert (healing.level, healing.tv_bound, healing.logprob) == ("none", 1.0, 0.0)
    assert healing.pending == b" userNa"


# Sampling


def test_no_end_before_min_tokens_at_an_exact_end_either() -> None:
    def ends(tokens: Sequence[int]) -> Logits:
        row = NOISE(tokens).copy()
        row[END] = 30.0
        return row

    for temperature in (0.0, 1.0):
        request = CompletionRequest(
            "const userNa",
            min_tokens=3,
            max_tokens=9,
            sampling=SamplingParams(temperature=temperature, seed=1),
        )
        assert complete(request, ends)[1].completion_tokens == 4
        assert complete(replace(request, min_tokens=0), ends)[1].completion_tokens <= 2
        everlasting = complete(replace(request, ignore_eos=True), ends)[1]
        assert (everlasting.finish, everlasting.completion_tokens) == ("length", 9)


def test_h4_a_stop_id_may_spell_pending_bytes_but_not_run_over_while_it_is_early() -> None:
    model = speaking_model(VOCABULARY, b"const userName = x")
    [name] = VOCABULARY.ids_of(b" userName")
    request = CompletionRequest("const userNa", stop_token_ids=(name,), max_tokens=9)
    text, result = complete(request, model)
    assert (text, result.finish) == ("", "stop")
    engine = ScriptedEngine(VOCABULARY, toy_encode, model)
    early = replace(request, min_tokens=1, return_tokens=True)
    chunks = list(chunks_of(toy_generation(early, engine), engine))
    assert name not in chunks[0].token_ids and not chunks[0].text.startswith("Name")
    typed = replace(early, prefix="const userName(")
    assert complete(typed, model)[1].completion_tokens > 0


def test_n1_a_seed_draws_the_same_cover() -> None:
    for seed in range(10):
        sampling = SamplingParams(temperature=1.0, seed=seed)
        request = CompletionRequest("const us", sampling=sampling, max_tokens=6)
        assert complete(request) == complete(request)


def flat_model(n_vocab: int, seed: int) -> Model:
    """Random rows that leave many tokens likely."""

    def logits(tokens: Sequence[int]) -> Logits:
        key = zlib.crc32(np.asarray(tokens, np.int64).tobytes(), seed)
        row = np.random.default_rng(key).standard_normal(n_vocab).astype(np.float32)
        row[:256] -= 3
        return row

    return logits


def masses_of(
    prompt_ids: Path,
    pending: bytes,
    model: Model,
    end_ids: Collection[int],
    bans: bool = True,
) -> dict[Path, float]:
    """All covers of toy text, by enumeration; what longest match makes of their bytes counts.

    With `bans` among what may be drawn, else among all tokens.
    """

    never = [i for i in VOCABULARY.silent_ids if i not in end_ids and bans]

    def log_prob(path: Path, token_id: int) -> float:
        row = model([*prompt_ids, *path])
        row[never] = -np.inf
        return float(log_softmax_row(row)[token_id])

    def may_begin(path: Path) -> bool:
        pairs = CanonicalPairs(VOCABULARY, toy_encode)
        return all(pairs.extends(path[:n], path[n]) for n in range(len(path)))

    return reference.cover_masses(pending, VOCABULARY, may_begin, log_prob, end_ids)


def with_followers(
    masses: dict[Path, float],
    prompt_ids: Path,
    pending: bytes,
    model: Model,
    end_ids: Collection[int],
) -> dict[Path, float]:
    """The same, an exact end parted by what follows it."""
    parted: dict[Path, float] = {}
    pairs = CanonicalPairs(VOCABULARY, toy_encode)
    for path, mass in masses.items():
        if b"".join(map(VOCABULARY.bytes_of, path)) != pending:
            parted[path] = mass
            continue
        probs = np.exp(log_softmax_row(model([*prompt_ids, *path])).astype(np.float64))
        followers = [
            i
            for i in range(VOCABULARY.n_vocab)
            if i in end_ids or (i not in VOCABULARY.silent_ids and pairs.extends(path, i))
        ]
        total = sum(float(probs[i]) for i in followers)
        parted.update({(*path, i): mass * float(probs[i]) / total for i in followers})
    return parted


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.7),
        SamplingParams(temperature=1.0, top_k=2),
        SamplingParams(temperature=1.0, top_p=0.95),
    ],
)
def test_c1_covers_are_drawn_as_often_as_enumeration_says(params: SamplingParams) -> None:
    """Candidates of one prompt share the rows of its tree, and differ in their seeds."""
    model = flat_model(VOCABULARY.n_vocab, 3)
    request = CompletionRequest(";\n    ret", max_tokens=1, return_tokens=True)
    engine = ScriptedEngine(VOCABULARY, toy_encode, model)
    coverings = coverings_of(engine)
    drawn: Counter[Path] = Counter()
    n_draws = 500
    masses: dict[Path, float] = {}
    for seed in range(n_draws):
        sampled = replace(request, sampling=replace(params, seed=seed))
        generation = generation_with(coverings, sampled, engine)
        plan = generation.plan
        known = plan.kept_ids, plan.pending, model, VOCABULARY.eog_ids | plan.stop_ids
        masses = masses or with_followers(masses_of(*known), *known)
        ids = tuple(i for chunk in chunks_of(generation, engine) for i in chunk.token_ids)
        [path] = [path for path in masses if ids[: len(path)] == path]
        drawn[path] += 1
    expected = truncated(masses, params)
    assert set(drawn) <= set(expected) and len(expected) > 1
    chi_square = sum(
        (drawn[path] - n_draws * share) ** 2 / (n_draws * share)
        for path, share in expected.items()
        if n_draws * share >= 5
    )
    n_free = sum(n_draws * share >= 5 for share in expected.values())
    # Five standard deviations of what chance does.
    assert chi_square < n_free + 5 * math.sqrt(2 * n_free)


def truncated(masses: dict[Path, float], params: SamplingParams) -> dict[Path, float]:
    """The posterior as the samplers leave it."""
    total = sum(masses.values())
    best_first = sorted(masses.items(), key=lambda item: -item[1])
    if params.top_k:
        best_first = best_first[: params.top_k]
    if params.top_p < 1.0:
        sums = np.cumsum([mass / total for _, mass in best_first])
        best_first = best_first[: int(np.searchsorted(sums, params.top_p)) + 1]
    powers = {path: (mass / total) ** (1 / params.temperature) for path, mass in best_first}
    return {path: power / sum(powers.values()) for path, power in powers.items() if power}


# What is evaluated


@contextmanager
def running(engine: ScriptedEngine, parallel: int = 4) -> Iterator[Scheduler]:
    scheduler = Scheduler(lambda: engine, parallel=parallel)
    scheduler.start()
    scheduler.wait_ready(TIMEOUT_S)
    try:
        yield scheduler
    finally:
        scheduler.close()


def test_the_covers_of_all_candidates_are_evaluated_once() -> None:
    asked: Counter[Path] = Counter()
    engine = ScriptedEngine(VOCABULARY, toy_encode, counting(NOISE, asked))
    coverings = coverings_of(engine)
    answers: list[queue.Queue[object]] = [queue.Queue() for _ in range(5)]
    with running(engine) as scheduler:
        for seed, told in enumerate(answers):
            request = CompletionRequest(
                "const userNa",
                max_tokens=1,
                n=5,
                sampling=SamplingParams(temperature=1.0, seed=seed),
            )
            generation = generation_with(coverings, request, engine)
            scheduler.submit(Job(generation, told.put))
        results = [collect(told) for told in answers]
    prompt = generation.prompt_ids
    behind = {path: n for path, n in asked.items() if len(path) > len(prompt)}
    assert behind and set(behind.values()) == {1}
    assert sum(result.healing.nodes > 0 for _, result in results) == 1
    alone = [
        complete(CompletionRequest(
            "const userNa", max_tokens=1, sampling=SamplingParams(temperature=1.0, seed=seed)
        ))[0]
        for seed in range(5)
    ]  # fmt: skip
    assert [text for text, _ in results] == alone


@settings(max_examples=10)
@given(
    st.sampled_from(["const userName = x", "def return    x", "import nump()\n\n    ret"]),
    st.integers(0, 99),
    st.sampled_from([0.0, 1.0]),
)
def test_k2_typed_key_by_key_the_text_is_that_of_a_cold_start(
    text: str, seed: int, temperature: float
) -> None:
    engine = ScriptedEngine(VOCABULARY, toy_encode, random_model(VOCABULARY.n_vocab, seed))
    coverings = coverings_of(engine)
    for end in range(1, len(text)):
        request = CompletionRequest(
            text[:end],
            max_tokens=4,
            sampling=SamplingParams(temperature=temperature, seed=seed),
        )
        typed, warm = whole(generation_with(coverings, request, engine), engine)
        cold_text, cold = whole(generation_with(coverings_of(engine), request, engine), engine)
        assert typed == cold_text
        assert replace(warm.healing, nodes=cold.healing.nodes) == cold.healing
        assert warm.healing.nodes <= cold.healing.nodes


def test_k2_a_key_inside_a_word_needs_one_row_more_at_most() -> None:
    vocabulary, encode = byte_level()
    asked: Counter[Path] = Counter()
    engine = ScriptedEngine(vocabulary, encode, counting(random_model(vocabulary.n_vocab), asked))
    coverings = coverings_of(engine)
    for text in ("return userN", "return userNa", "return userNam"):
        asked.clear()
        request = CompletionRequest("import numpy\n    " + text, max_tokens=1)
        generation = generation_with(coverings, request, engine)
        whole(generation, engine)
        if text != "return userN":
            assert sum(len(path) > len(generation.prompt_ids) for path in asked) <= 1


def test_k1_no_cover_is_committed_where_its_rows_are_known_and_its_prompt_is_read_again() -> None:
    """A long prompt that fell out of the cache is read in chunks, which end where it ends."""
    engine = ScriptedEngine(VOCABULARY, toy_encode, NOISE)
    coverings = coverings_of(engine)
    request = CompletionRequest("def x = me + " * 30 + "const user", max_tokens=4)
    first = whole(generation_with(coverings, request, engine), engine)[0]
    for end in ("N", "Na"):
        longer = replace(request, prefix=request.prefix + end)
        cold = whole(generation_with(coverings_of(engine), longer, engine), engine)[0]
        told: queue.Queue[object] = queue.Queue()
        with running(ScriptedEngine(VOCABULARY, toy_encode, NOISE)) as scheduler:
            scheduler.submit(Job(generation_with(coverings, longer, engine), told.put))
            assert collect(told)[0] == cold
    assert first


@settings(max_examples=15)
@given(st.integers(0, 999), st.integers(64, 200))
def test_k3_where_the_cache_is_full_covers_are_drawn_as_where_it_is_not(
    seed: int, n_ctx: int
) -> None:
    model = random_model(VOCABULARY.n_vocab, seed)
    prefixes = ("const userNa", "def return    x us", "import nump", "    ret")
    requests = [
        CompletionRequest(prefix, max_tokens=12, ignore_eos=True, shape="raw")
        for prefix in prefixes
    ]
    alone = [complete(request, model)[0] for request in requests]
    engine = ScriptedEngine(VOCABULARY, toy_encode, model, n_ctx=n_ctx)
    answers: list[queue.Queue[object]] = [queue.Queue() for _ in requests]
    with running(engine) as scheduler:
        for request, told in zip(requests, answers, strict=True):
            scheduler.submit(Job(toy_generation(request, engine), told.put))
        assert [collect(told)[0] for told in answers] == alone


class FewRows(ScriptedEngine):
    """Returns no more rows than one tree of covers has."""

    n_most = 0

    def evaluate(self, batch: Batch, abort: AbortFlag | None = None) -> list[Logits]:
        n_rows = sum(len(set(tree.wants)) for _, tree in batch)
        self.n_most = max(self.n_most, n_rows)
        assert n_rows <= self.n_rows and sum(len(tree) for _, tree in batch) <= self.n_batch
        return super().evaluate(batch, abort)


def test_no_batch_has_more_rows_than_the_engine_gives() -> None:
    """A tree of more nodes than a slice is read as prompts are, beside those that draw."""
    engine = FewRows(VOCABULARY, toy_encode, NOISE, n_batch=64)
    engine.n_rows = 20
    requests = [
        CompletionRequest(prefix, max_tokens=8, ignore_eos=True, shape="raw")
        for prefix in ("const userNam", "def return   ", "x" * 40 + " userN", "import nump")
    ]
    answers: list[queue.Queue[object]] = [queue.Queue() for _ in requests]
    with running(engine) as scheduler:
        for request, told in zip(requests, answers, strict=True):
            scheduler.submit(Job(toy_generation(request, engine), told.put))
        texts = [collect(told)[0] for told in answers]
    assert texts == [complete(request)[0] for request in requests]
    assert 8 < engine.n_most


class FailsOnce(ScriptedEngine):
    """Cannot decode the first batch with more than one part."""

    has_failed = False

    def evaluate(self, batch: Batch, abort: AbortFlag | None = None) -> list[Logits]:
        if len(batch) > 1 and not self.has_failed:
            self.has_failed = True
            raise EngineError("broken on purpose")
        return super().evaluate(batch, abort)


def test_a_batch_with_covers_that_fails_is_tried_one_by_one() -> None:
    requests = [
        CompletionRequest(prefix, max_tokens=6, shape="raw") for prefix in ("const userNa", "def x")
    ]
    engine = FailsOnce(VOCABULARY, toy_encode, NOISE)
    answers: list[queue.Queue[object]] = [queue.Queue() for _ in requests]
    jobs = [
        Job(toy_generation(request, engine), told.put)
        for request, told in zip(requests, answers, strict=True)
    ]
    with running(engine) as scheduler:
        for job in jobs:
            scheduler.submit(job)
        texts = [collect(told)[0] for told in answers]
    assert texts == [complete(request)[0] for request in requests]


@pytest.mark.parametrize("memory", ["full", "recurrent"])
def test_x1_a_job_that_is_cancelled_under_its_covers_keeps_its_prompt_and_no_more(
    memory: Memory,
) -> None:
    job: Job | None = None

    class Cancelling(ScriptedEngine):
        def evaluate(self, batch: Batch, abort: AbortFlag | None = None) -> list[Logits]:
            rows = super().evaluate(batch, abort)
            if job is not None and job.generation.n_covers:
                job.end_early = "cancelled"
            return rows

    engine = Cancelling(VOCABULARY, toy_encode, NOISE, memory=memory)
    told: queue.Queue[object] = queue.Queue()
    generation = toy_generation(CompletionRequest("const us", max_tokens=6), engine)
    job = Job(generation, told.put)
    with running(engine) as scheduler:
        scheduler.submit(job)
        text, result = collect(told)
        held = [list(engine.tokens(sequence)) for sequence in list(engine._tokens)]
    assert (text, result.finish, result.healing.level) == ("", "cancelled", "none")
    assert held == [list(generation.prompt_ids)]


def after_user(behind: dict[str, float]) -> Model:
    """` user` and ` userName` are as likely as each other; ` user` goes on as `behind` says."""
    row_of: dict[bool, Logits] = {}
    for is_behind in (True, False):
        row = np.full(VOCABULARY.n_vocab, -30.0, np.float32)
        if is_behind:
            for text, log_prob in behind.items():
                row[toy_encode(text.encode())[0]] = log_prob
        else:
            row[[toy_encode(b" user")[0], toy_encode(b" userName")[0]]] = 0.0
        row_of[is_behind] = row
    user = toy_encode(b" user")[0]
    return lambda tokens: row_of[bool(tokens) and tokens[-1] == user].copy()


def test_c4_a_grammar_leaves_the_shares_of_what_it_permits() -> None:
    """What follows an exact end is drawn with it: where it is refused, the other covers gain."""
    model = after_user({"Z": 0.0, "Q": -5.0})
    grammar = 'root ::= "Name" | "Q"'
    engine = ScriptedEngine(VOCABULARY, toy_encode, model)
    coverings = coverings_of(engine)
    n_refused = 0
    for seed in range(100):
        params = SamplingParams(temperature=1.0, seed=seed)
        request = CompletionRequest(
            "const user", max_tokens=1, give_back=1, grammar=grammar, sampling=params
        )
        generation = generation_with(coverings, request, engine)
        text = "".join(chunk.text for chunk in chunks_of(generation, engine))
        assert text in ("Name", "Q")
        n_refused += text == "Q"
    # 0.7 % of the draws, in expectation.
    assert n_refused <= 5


@pytest.mark.parametrize("temperature", [0.0, 1e-5, 0.05])
def test_c3_a_low_temperature_tends_to_greedy(temperature: float) -> None:
    model = after_user({letter: 0.0 for letter in "BCDGHIJKLOPQRSTVWXYZ"})
    engine = ScriptedEngine(VOCABULARY, toy_encode, model)
    coverings = coverings_of(engine)
    for seed in range(10):
        params = SamplingParams(temperature=temperature, seed=seed)
        request = CompletionRequest("const user", max_tokens=1, give_back=1, sampling=params)
        generation = generation_with(coverings, request, engine)
        assert "".join(chunk.text for chunk in chunks_of(generation, engine)) == "Name"
