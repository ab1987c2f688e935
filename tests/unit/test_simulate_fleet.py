"""The fleet that `benchmarks/simulate_fleet.py` simulates: caches, engines, policies, prompts."""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from harness.fleet.checks import MEASURED, ROUTERS, run_alone, two_replicas, typed_alone
from harness.fleet.developers import Chance, Habits, Trace, suggestion, traces
from harness.fleet.engines import EMBEDDED, ENGINES, Engine
from harness.fleet.kv_cache import BlockCache
from harness.fleet.prompts import SUFFIX, Planner, Prompt
from harness.fleet.replica import Job, Replica
from harness.fleet.routing import (
    Asked,
    Bound,
    CacheAware,
    Oracle,
    Rendezvous,
    by_file,
    by_user,
)
from harness.trace import type_lines
from hypothesis import given
from hypothesis import strategies as st

from suture.server.engine.remote.affinity import rendezvous

# A token takes a second, and each one more in the same step a tenth.
SLOW = Engine("slow", "", ((1, 1.0), (11, 2.0)), 0.0, 64, 4, 8, 3, covers=False)


def job(n_prompt: int, n_output: int, owner: str = "a") -> Job:
    prompt = Prompt(tuple(range(n_prompt)))
    return Job(prompt.blocks(SLOW.block, owner), n_prompt, n_output)


def asked(user: int, file: int = 0) -> Asked:
    return Asked(user, file, job(4, 1))


def fleet(n: int, n_open: Sequence[int] = ()) -> list[Replica]:
    replicas = [Replica(f"replica {at}", SLOW) for at in range(n)]
    for replica, open_ones in zip(replicas, n_open, strict=False):
        for _ in range(open_ones):
            replica.submit(job(4, 1))
    return replicas


# --- prompts


@given(st.lists(st.integers(0, 1), max_size=12), st.lists(st.integers(0, 1), max_size=12))
def test_p1_blocks_have_one_name_exactly_where_all_before_is_the_same(
    one: list[int], other: list[int]
) -> None:
    size = 2
    names = [Prompt(tuple(ids)).blocks(size, "owner") for ids in (one, other)]
    for n, (name, other_name) in enumerate(zip(*names, strict=False)):
        end = (n + 1) * size
        assert (name == other_name) == (one[:end] == other[:end])


def test_p1_owners_have_no_block_together() -> None:
    prompt = Prompt(tuple(range(32)))
    assert not set(prompt.blocks(16, "a")) & set(prompt.blocks(16, "b"))


TEXT = "def first():\n    return 1\n\n\ndef second():\n    return first()\n\n\nlast = 3\n"
KEYS = list(type_lines(TEXT, 4, 2))


def n_same(one: Prompt, other: Prompt) -> int:
    pairs = zip(one.ids, other.ids, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one.ids), len(other.ids)))


def test_what_is_typed_stands_at_an_anchored_prompts_end() -> None:
    planner = Planner("anchor")
    keys = [key for key in KEYS if key.action in ("type", "enter")]
    typed = [planner.plan("file", key) for key in keys]
    for before, after in itertools.pairwise(typed):
        # Of brackets that close themselves the suffix shows nothing, and jumps were left out.
        assert n_same(before, after) >= before.n_tokens - 2


def test_a_key_changes_a_psm_prompt_from_the_cursor_on() -> None:
    planner = Planner("psm")
    one, other = (planner.plan("file", key) for key in KEYS[:2])
    assert n_same(one, other) < one.n_tokens - 8


def test_an_anchor_that_is_forgotten_stands_at_the_next_line() -> None:
    enter = next(key for key in KEYS if key.action == "enter")
    remembering, forgetting = Planner("anchor", 64), Planner("anchor", 1)
    for planner in (remembering, forgetting):
        planner.plan("file", KEYS[0])
        planner.plan("another", KEYS[0])
    first = Planner("anchor").plan("file", KEYS[0])
    kept, moved = (one.plan("file", enter) for one in (remembering, forgetting))
    assert n_same(first, kept) >= first.n_tokens - 1
    # From where the suffix began on it is read again.
    assert n_same(first, moved) == first.ids.index(SUFFIX)


# --- caches


def test_k2_what_is_held_stays_and_what_is_idle_longest_goes() -> None:
    cache = BlockCache(4)
    for block in (1, 2, 3):
        assert cache.hold((), 1)
        assert cache.name(block)
    cache.release((2,), 0)
    cache.release((1,), 0)
    assert cache.hold((), 2)
    assert [cache.n_hits((block,)) for block in (1, 2, 3)] == [1, 0, 1]
    assert not cache.hold((), 2)
    assert (cache.n_used, cache.n_evicted) == (4, 1)


def test_of_a_prompt_that_is_given_up_the_end_goes_first() -> None:
    cache = BlockCache(3)
    cache.hold((), 3)
    for block in (1, 2, 3):
        cache.name(block)
    cache.release((1, 2, 3), 0)
    cache.hold((), 1)
    assert cache.n_hits((1, 2, 3)) == 2


def test_k3_content_that_is_there_is_not_named_twice() -> None:
    cache = BlockCache(2)
    cache.hold((), 2)
    assert cache.name(1) and not cache.name(1)
    cache.release((1,), 1)
    assert (cache.n_used, cache.n_held) == (1, 0)


# --- engines


def test_steps_are_linear_between_what_was_measured_and_beyond_it() -> None:
    engine = replace(SLOW, steps=((1, 1.0), (3, 2.0), (5, 4.0)), s_per_context=0.5)
    assert [engine.step_s(n, 0) for n in (1, 2, 3, 4, 5, 7)] == [1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    assert engine.step_s(1, 4) == 3.0


@pytest.mark.parametrize("engine", (EMBEDDED, *ENGINES.values()), ids=lambda one: one.name)
def test_no_step_of_a_preset_is_shorter_for_more_tokens(engine: Engine) -> None:
    times = [engine.step_s(n, 0) for n in range(1, 3000)]
    assert times == sorted(times)
    assert times[0] == engine.steps[0][1]


def test_a_request_that_is_alone_takes_what_its_steps_take() -> None:
    replica = Replica("replica", SLOW)
    # All of the prompt in one step of eight, its first token with it, and two tokens after.
    assert run_alone(replica, job(8, 3)) == pytest.approx(1.7 + 1.0 + 1.0)
    # Again: the first block is there, and the last token is evaluated whatever is there.
    again = job(8, 3)
    assert run_alone(replica, again) == pytest.approx(1.3 + 1.0 + 1.0)
    assert (again.n_cached, again.n_evaluated) == (4, 4)


def test_sequences_decode_together_and_prompts_get_what_is_left_of_a_step() -> None:
    replica = Replica("replica", SLOW)
    first, second = job(4, 9, "a"), job(10, 1, "b")
    replica.submit(first)
    assert replica.begin() == pytest.approx(1.3)
    replica.submit(second)
    replica.finish()
    # One token of the first and seven of the second, then one and its last three.
    assert replica.begin() == pytest.approx(1.7)
    assert replica.finish() == [first]
    assert replica.begin() == pytest.approx(1.3)
    assert replica.finish() == [first, second]
    assert second.outcome == "done"


def test_who_finds_no_room_waits() -> None:
    replica = Replica("replica", replace(SLOW, n_kv=16))
    first, second = job(8, 4, "a"), job(8, 4, "b")
    replica.submit(first)
    replica.submit(second)
    replica.begin()
    replica.finish()
    assert (first.n_written, second.n_read) == (1, 0)
    while not second.outcome:
        replica.begin()
        replica.finish()
    assert replica.cache.n_evicted == 1
    with pytest.raises(ValueError, match="never fit"):
        replica.submit(job(16, 4))


def test_r3_a_request_that_is_cancelled_gets_nothing_more() -> None:
    replica = Replica("replica", SLOW)
    running, waiting = job(8, 9, "a"), job(8, 9, "b")
    replica.submit(running)
    replica.begin()
    replica.submit(waiting)
    replica.cancel(running)
    replica.cancel(waiting)
    replica.finish()
    assert replica.begin() is None
    assert (running.n_written, waiting.n_read, replica.n_open) == (0, 0, 0)
    # What was read meanwhile is found by whoever asks next.
    assert (replica.cache.n_held, replica.n_hits(job(9, 1, "a"))) == (0, 8)


Work = list[tuple[int, int, int, int]]


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 12), st.integers(1, 4), st.integers(0, 9)),
        max_size=20,
    )
)
def test_r1_r2_all_that_is_submitted_ends_once_and_is_cached_or_evaluated(work: Work) -> None:
    """Of each request: whose it is, how long prompt and answer are, and in which step it is
    cancelled, if it has not ended."""
    replica = Replica("replica", replace(SLOW, n_kv=32))
    jobs = [job(n_prompt, n_output, str(owner)) for owner, n_prompt, n_output, _ in work]
    for one in jobs:
        replica.submit(one)
    for step in range(1000):
        for one, (*_, cancelled_at) in zip(jobs, work, strict=True):
            if cancelled_at == step:
                replica.cancel(one)
        busy = replica.begin() is not None
        assert replica.cache.n_used <= replica.cache.n_blocks
        ended = [one for one in jobs if one.outcome]
        changed = replica.finish()
        assert not [one for one in changed if one in ended and one.outcome == "done"]
        if not busy and step > 9:
            break
    assert all(one.outcome for one in jobs)
    assert (replica.n_open, replica.cache.n_held) == (0, 0)
    for one in jobs:
        assert one.n_cached < one.n_prompt and one.n_cached % SLOW.block == 0
        if one.is_read:
            assert one.n_cached + one.n_evaluated == one.n_prompt
        if one.outcome == "done":
            assert one.n_written == one.n_output


# --- policies


@given(st.lists(st.integers(0, 9), min_size=2, max_size=6), st.integers(0, 50))
def test_no_replica_is_given_more_than_the_bound_while_another_has_less(
    n_open: list[int], user: int
) -> None:
    replicas = fleet(len(n_open), n_open)
    bound = Bound().of(replicas)
    chosen = Rendezvous(by_user, Bound()).choose(asked(user), replicas)
    assert bound > sum(n_open) / len(n_open)
    assert chosen.n_open < bound
    order = rendezvous(by_user(asked(user)), [one.name for one in replicas])
    before = order[: order.index(chosen.name)]
    assert all(one.n_open >= bound for one in replicas if one.name in before)


def test_without_a_bound_a_key_has_one_replica_however_busy() -> None:
    idle, busy = fleet(3), fleet(3, (50, 50, 50))
    policy = Rendezvous(by_user)
    for user in range(20):
        assert policy.choose(asked(user), idle).name == policy.choose(asked(user), busy).name


def test_a_replica_that_comes_takes_its_share_and_no_other_key_moves() -> None:
    five, six = fleet(5), fleet(6)
    policy = Rendezvous(by_user)
    before = [policy.choose(asked(user), five).name for user in range(3000)]
    after = [policy.choose(asked(user), six).name for user in range(3000)]
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {"replica 5"}
    # A sixth, four standard errors of it at most beside.
    assert abs(len(moved) / 3000 - 1 / 6) < 4 * (1 / 6 * 5 / 6 / 3000) ** 0.5


def test_a_user_has_one_replica_and_each_file_its_own() -> None:
    replicas = fleet(8)
    for user in range(4):
        chosen = {Rendezvous(by_user).choose(asked(user, n), replicas).name for n in range(40)}
        assert len(chosen) == 1
    spread = {Rendezvous(by_file).choose(asked(0, n), replicas).name for n in range(40)}
    assert len(spread) > 4


def test_cache_aware_piles_on_one_replica_what_it_cannot_read() -> None:
    replicas, policy = fleet(3), CacheAware()
    assert {policy.choose(asked(n), replicas).name for n in range(20)} == {"replica 0"}
    busy = fleet(3, (70, 5, 0))
    assert policy.choose(asked(0), busy).name == "replica 2"


def test_the_oracle_goes_where_the_prompt_is_until_that_is_too_busy() -> None:
    replicas = fleet(3)
    run_alone(replicas[1], job(12, 1, "b"))
    wanted = Asked(0, 0, job(12, 1, "b"))
    assert Oracle(Bound(1.25, 4)).choose(wanted, replicas).name == "replica 1"
    for _ in range(4):
        replicas[1].submit(job(4, 1))
    assert Oracle(Bound(1.25, 4)).choose(wanted, replicas).name == "replica 0"


# --- beside what was measured


def test_two_replicas_find_what_the_real_ones_found() -> None:
    runs = {router: [two_replicas(router, seed) for seed in range(40)] for router in ROUTERS}
    round_robin, no_key, key, ids, _ = runs.values()
    measured = {one.policy: one for one in MEASURED}
    for run in round_robin:
        assert f"{run.n_hits}" == measured["round_robin"].hits
        assert run.found == pytest.approx(float(measured["round_robin"].found), abs=0.02)
    assert {run.n_hits for run in no_key} >= {13, 14, 15}
    assert {run.n_hits for run in key} == {run.n_hits for run in ids} == {18}
    assert statistics.mean(run.found for run in key) == pytest.approx(0.98, abs=0.01)
    assert {run.share_of_first for run in ids} == {1.0}


def test_typing_evaluates_about_what_the_real_server_evaluates() -> None:
    known = [Trace(trace.keys[:100]) for trace in traces()]
    typed = typed_alone(known, "anchor")
    assert abs(typed.mean_prompt / 1112 - 1) < 0.1
    assert sorted(typed.evaluated)[len(typed.evaluated) // 2] == 2
    assert abs(sum(typed.evaluated) / len(typed.evaluated) / 13.9 - 1) < 0.2


# --- developers


def test_answers_end_where_the_line_that_is_typed_ends() -> None:
    trace = Trace(KEYS)
    for n in range(len(KEYS)):
        end = trace.line_ends[n]
        assert end >= n
        assert end == len(KEYS) - 1 or KEYS[end + 1].action in ("enter", "jump")
        assert not any(one.action in ("enter", "jump") for one in KEYS[n + 1 : end + 1])
        assert 1 <= trace.n_answers[n] <= 64
    assert trace.n_answers[-1] == 1


def test_chances_do_not_depend_on_what_happened_before() -> None:
    trace, habits = Trace(KEYS), Habits()
    drawn = [suggestion(Chance(1, 2).of(0, n), habits, trace, n) for n in range(len(KEYS))]
    again = [suggestion(Chance(1, 2).of(0, n), habits, trace, n) for n in range(len(KEYS))]
    other = [suggestion(Chance(1, 3).of(0, n), habits, trace, n) for n in range(len(KEYS))]
    assert drawn == again != other
    assert all(one.n_right <= trace.line_ends[n] - n for n, one in enumerate(drawn))


def test_keys_come_as_fast_as_people_type() -> None:
    habits, rng = Habits(), random.Random(1)
    times = [habits.between_keys(rng, KEYS[0]) for _ in range(20_000)]
    assert sum(times) / len(times) == pytest.approx(habits.key_s, rel=0.02)


# --- the whole, which needs simpy


SMALL = {"n_replicas": 3, "n_developers": 8, "seconds": 60.0, "warm_s": 10.0}


def needs_simpy(name: str) -> Any:
    return pytest.importorskip(name, exc_type=ModuleNotFoundError)


def simulated(**setting: object) -> Any:
    simulation = needs_simpy("harness.fleet.simulation")
    whole = simulation.Setting(**{"engine": ENGINES["a100"], **SMALL, **setting})
    return simulation.simulate(whole, Rendezvous(by_file, Bound()), traces())


def test_every_request_is_answered_superseded_or_still_open() -> None:
    outcome = simulated()
    ends = {one.end for one in outcome.requests}
    assert ends <= {"answered", "superseded", "open"} and {"answered", "superseded"} <= ends
    for one in outcome.requests:
        assert one.job.n_cached <= one.job.n_prompt
        assert (one.end == "answered") == (one.job.outcome == "done")
    n_open = sum(one.end == "open" for one in outcome.requests)
    assert n_open == sum(replica.n_open for replica in outcome.replicas)


def test_a_seed_says_all_and_another_one_something_else() -> None:
    def numbers(seed: int) -> list[tuple[float, int]]:
        return [(one.at_s, one.job.n_evaluated) for one in simulated(seed=seed).requests]

    assert numbers(1) == numbers(1) != numbers(2)


def test_who_had_no_text_of_a_lost_replica_is_answered_by_another() -> None:
    change = needs_simpy("harness.fleet.simulation").Change(40.0, "goes")
    # So slow that many wait when it dies.
    slow = replace(ENGINES["a100"], steps=((1, 0.2), (2, 0.2)), max_running=2)
    outcome = simulated(engine=slow, change=change)
    before = [one for one in outcome.requests if one.at_s < 40.0]
    assert not [one for one in before if one.end == "open" and one.replica == "replica 0"]
    broken = [one for one in before if one.end == "broken"]
    assert all(one.first_s is not None for one in broken)
    left = [replica.name for replica in outcome.replicas]
    assert left == ["replica 1", "replica 2"]
    assert {one.replica for one in outcome.requests if one.at_s > 40.0} == set(left)


def test_a_replica_that_comes_is_used() -> None:
    change = needs_simpy("harness.fleet.simulation").Change(30.0, "comes")
    outcome = simulated(change=change)
    late = [one for one in outcome.requests if one.replica == "replica 3"]
    assert late and min(one.at_s for one in late) >= 30.0


def test_the_table_has_a_line_for_each_policy(capsys: pytest.CaptureFixture[str]) -> None:
    script = needs_simpy("simulate_fleet")
    few = ["--developers", "3", "--replicas", "2", "--minutes", "0.2"]
    args = script.parsed([*few, "--policies", "user", "oracle"])
    script.report_policies(args, traces())
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines[-2:]] == ["user", "oracle"]
