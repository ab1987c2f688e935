"""Rendezvous hashing: orders that every process agrees on, and that a backend more hardly moves."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from suture.server.engine.remote.affinity import affinity_key, rendezvous

NAMES = st.lists(st.from_regex(r"https?://[a-z0-9.]{1,8}:[0-9]{2,4}", fullmatch=True), unique=True)
A_KEY = st.builds(affinity_key, st.text(), st.text(), st.text())
KEYS = [affinity_key("team", f"user {n}", f"src/{n % 7}.py") for n in range(2000)]


def fleet(n: int) -> list[str]:
    return [f"http://10.0.0.{i}:8000" for i in range(n)]


@given(key=A_KEY, names=NAMES)
def test_r1_an_order_is_a_permutation_whatever_order_the_names_come_in(
    key: str, names: list[str]
) -> None:
    order = rendezvous(key, names)
    assert sorted(order) == sorted(names)
    assert rendezvous(key, reversed(names)) == order


def test_r1_every_process_has_the_same_order() -> None:
    script = (
        "from suture.server.engine.remote.affinity import *;"
        "print(*rendezvous(affinity_key('t', 'u', 'f'), [f'b{n}' for n in range(9)]))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    here = rendezvous(affinity_key("t", "u", "f"), [f"b{n}" for n in range(9)])
    assert said == {" ".join(here) + "\n"}


def test_r1_orders_are_these_from_one_release_to_the_next() -> None:
    assert affinity_key("t", "u", "f") == hashlib.sha256(b'["t", "u", "f"]').hexdigest()[:16]
    assert rendezvous("0123456789abcdef", ["a", "b", "c"]) == ["c", "a", "b"]


@given(key=A_KEY, names=NAMES, another=st.sampled_from(["http://a:80", "http://z:9000", "x"]))
def test_r2_another_name_leaves_the_order_of_the_others(
    key: str, names: list[str], another: str
) -> None:
    names = [name for name in names if name != another]
    with_another = rendezvous(key, [*names, another])
    assert [name for name in with_another if name != another] == rendezvous(key, names)


def test_r2_a_backend_more_takes_its_share_and_moves_no_other_key() -> None:
    before, after = fleet(7), fleet(8)
    firsts = [(rendezvous(key, before)[0], rendezvous(key, after)[0]) for key in KEYS]
    moved = [new for old, new in firsts if old != new]
    assert set(moved) == {after[-1]}
    # An eighth of 2000 keys, give or take five standard deviations of it.
    assert abs(len(moved) - 250) < 75


def test_keys_spread_evenly() -> None:
    counts = Counter(rendezvous(key, fleet(5))[0] for key in KEYS)
    assert len(counts) == 5 and all(abs(n - 400) < 90 for n in counts.values())


def test_those_of_one_backend_that_goes_spread_over_all_others() -> None:
    whole = fleet(5)
    seconds = Counter(
        rendezvous(key, whole)[1] for key in KEYS if rendezvous(key, whole)[0] == whole[0]
    )
    assert set(seconds) == set(whole[1:]) and max(seconds.values()) < 2 * min(seconds.values())


@given(st.tuples(st.text(), st.text(), st.text()), st.tuples(st.text(), st.text(), st.text()))
def test_who_asks_and_for_what_is_all_of_a_key(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    assert (affinity_key(*one) == affinity_key(*other)) == (one == other)


def test_names_cannot_reach_into_each_other() -> None:
    assert affinity_key("a|b", "c", "d") != affinity_key("a", "b|c", "d")
    assert affinity_key('a", "b', "", "c") != affinity_key("a", 'b", "', "c")


def test_a_file_name_that_is_no_unicode_has_a_key() -> None:
    assert len(affinity_key("t", "u", "caf\udce9.py")) == 16
