"""K1, K3, K4: what is reused, and what may be kept, against a plain search."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.toy import toy_encode, toy_vocabulary
from suture.server.engine.kv import MAX_SAVED, WORTH_KEEPING, KvCache, common_length, longer_common
from suture.server.engine.protocol import Memory, SavedSequence, SequenceId
from suture.server.engine.scripted import WINDOW, ScriptedEngine, random_model
from suture.server.engine.tree import TokenTree
from suture.server.errors import EngineError

VOCABULARY = toy_vocabulary()


MEMORIES: list[Memory] = ["full", "sliding", "recurrent", "hybrid"]


def engine(n_ctx: int = 4096, n_sequences: int = 64, *, memory: Memory = "full") -> ScriptedEngine:
    model = random_model(VOCABULARY.n_vocab)
    return ScriptedEngine(
        VOCABULARY,
        toy_encode,
        model,
        n_ctx=n_ctx,
        n_batch=4096,
        n_sequences=n_sequences,
        memory=memory,
    )


def request(
    cache: KvCache, made: ScriptedEngine, prompt: Sequence[int], salt: str | None = None
) -> int:
    """A prompt read and its sequence left idle; how many of its tokens were reused."""
    sequence = cache.start(prompt, salt)
    n_reused = read(made, sequence, prompt)
    cache.finish(sequence)
    return n_reused


def read(made: ScriptedEngine, sequence: SequenceId, prompt: Sequence[int]) -> int:
    n_reused = len(made.tokens(sequence))
    assert list(made.tokens(sequence)) == list(prompt[:n_reused])
    tree = TokenTree.chain(prompt[n_reused:])
    made.evaluate([(sequence, tree)])
    made.commit(sequence, len(tree) - 1)
    return n_reused


tokens = st.integers(0, 3)
sequences = st.lists(tokens, max_size=60)


@given(sequences, sequences, sequences)
def test_the_common_length_is_that_of_a_loop(
    head: list[int], left: list[int], right: list[int]
) -> None:
    head = head * 7
    expected = 0
    for a, b in zip(head + left, head + right, strict=False):
        if a != b:
            break
        expected += 1

    assert common_length(head + left, head + right) == expected
    for n in range(len(head) + 2):
        longer = longer_common(head + left, head + right, n)
        assert longer == (expected if expected > n else min(longer, n))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(tokens, min_size=1, max_size=12), min_size=1, max_size=12))
def test_k1_the_longest_prefix_of_all_that_are_kept_is_reused(prompts: list[list[int]]) -> None:
    made = engine()
    cache = KvCache(made, max_idle=100, worth_keeping=1)
    seen: list[list[int]] = []

    for prompt in prompts:
        longest = max((common_length(other, prompt[:-1]) for other in seen), default=0)
        assert request(cache, made, prompt) == longest
        seen.append(prompt)


SALTS = [None, "blue", "red"]
salted = st.tuples(st.sampled_from(SALTS), st.lists(tokens, min_size=1, max_size=12))


@settings(max_examples=60, deadline=None)
@given(st.lists(salted, min_size=1, max_size=16), st.integers(1, 100))
def test_k4_only_what_was_read_under_the_same_salt_is_reused(
    prompts: list[tuple[str | None, list[int]]], max_idle: int
) -> None:
    """In the cache, and saved outside it, where one may be kept there."""
    made = engine()
    cache = KvCache(made, max_idle=max_idle, worth_keeping=1)
    seen: list[tuple[str | None, list[int]]] = []

    for salt, prompt in prompts:
        own = [other for of, other in seen if of == salt]
        longest = max((common_length(other, prompt[:-1]) for other in own), default=0)
        assert request(cache, made, prompt, salt) == longest
        seen.append((salt, prompt))
    assert len(cache._salts) == cache.n_idle


def test_k4_a_prompt_of_another_salt_needs_room_of_its_own() -> None:
    made = engine(n_ctx=20)
    cache = KvCache(made)
    running = [0] * 12
    read(made, cache.start(running, "blue"), running)

    assert cache.has_room_for([*running, 1, 2], "blue")
    assert not cache.has_room_for([*running, 1, 2], "red")
    assert not cache.has_room_for([*running, 1, 2])


def test_k4_what_failed_under_a_salt_leaves_nothing() -> None:
    made = engine()
    cache = KvCache(made)
    cache.discard(cache.start([0, 1, 2], "blue"))

    assert request(cache, made, [0, 1, 2], "red") == 0
    assert len(cache._salts) == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(tokens, min_size=1, max_size=30), min_size=1, max_size=30), st.data())
def test_k3_what_is_kept_is_bounded_and_what_runs_is_safe(
    prompts: list[list[int]], data: st.DataObject
) -> None:
    made = engine(n_ctx=200, n_sequences=9)
    cache = KvCache(made, idle_tokens=60, max_idle=4)
    running: list[tuple[SequenceId, list[int]]] = []

    for prompt in prompts:
        if cache.make_room(len(prompt)) and len(running) < 5:
            sequence = cache.start(prompt)
            read(made, sequence, prompt)
            running.append((sequence, prompt))
        else:
            sequence, _ = running.pop(data.draw(st.integers(0, len(running) - 1)))
            cache.finish(sequence)
        assert all(list(made.tokens(seq)) == kept for seq, kept in running)
        assert made.n_free >= 0

    for sequence, _ in running:
        cache.finish(sequence)
    assert made.n_free >= 200 - 60 - 30


def test_a_prompt_that_comes_again_after_another_is_still_known() -> None:
    """A, B, A: of the second A only its last token is evaluated."""
    made = engine()
    cache = KvCache(made)
    a, b = [0] * 100, [1] * 100

    assert [request(cache, made, prompt) for prompt in (a, b, a)] == [0, 0, 99]


@pytest.mark.parametrize("n_others", [3, 12])
def test_an_old_prompt_comes_back_from_memory(n_others: int) -> None:
    made = engine()
    cache = KvCache(made, idle_tokens=250)
    first = [0] * 200
    request(cache, made, first)
    for token in range(1, n_others + 1):
        request(cache, made, [token] * 200)

    assert made.n_free > 4096 - 500
    assert request(cache, made, first) == 199


def test_saved_sequences_are_bounded_and_short_ones_are_not_saved() -> None:
    made = engine()
    n_bytes = 4 * 200
    cache = KvCache(made, idle_tokens=1, saved_bytes=2 * n_bytes)
    for token in range(5):
        request(cache, made, [token] * 200)

    assert [request(cache, made, [token] * 200) for token in (0, 1)] == [0, 0]
    short = [6] * (WORTH_KEEPING - 1)
    request(cache, made, short)
    request(cache, made, [7] * 200)
    assert request(cache, made, short) == 0


def test_small_states_are_bounded_by_their_number() -> None:
    made = engine()
    cache = KvCache(made, idle_tokens=1, worth_keeping=4)
    for token in range(MAX_SAVED + 20):
        request(cache, made, [token % 100, token // 100, 1, 2, 3, 4])

    assert cache.n_saved == MAX_SAVED


def test_the_same_prompt_again_takes_its_own_cells() -> None:
    """What a request generated is no loss: its cells are used again, in the same order."""
    made = engine()
    cache = KvCache(made)
    for answer in ([7, 7], [8, 8, 8]):
        sequence = cache.start([0, 1, 2])
        read(made, sequence, [0, 1, 2, *answer])
        cache.finish(sequence)

    assert made.n_free == 4096 - 6
    assert len(cache._idle) == 1


def test_forks_share_their_cells() -> None:
    made = engine(n_ctx=150)
    cache = KvCache(made)
    head = [0] * 100
    first, second = cache.start([*head, 1]), None
    read(made, first, [*head, 1])
    second = cache.start([*head, 2])

    assert read(made, second, [*head, 2]) == 100
    assert made.n_free == 150 - 102


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(tokens, min_size=1, max_size=40), min_size=1, max_size=12),
    st.sampled_from(MEMORIES),
)
def test_k1_what_a_memory_no_longer_holds_is_not_reused(
    prompts: list[list[int]], memory: Memory
) -> None:
    """The scripted engine refuses to fork where its memory could not."""
    made = engine(n_ctx=200, memory=memory)
    cache = KvCache(made, idle_tokens=60, max_idle=3, worth_keeping=1)
    for prompt in prompts:
        n_reused = request(cache, made, prompt)
        assert n_reused < len(prompt)


@pytest.mark.parametrize("memory", ["recurrent", "hybrid"])
def test_a_state_is_gone_on_with_only_where_it_stands(memory: Memory) -> None:
    made = engine(memory=memory)
    cache = KvCache(made)
    request(cache, made, [1, 2, 3])

    assert request(cache, made, [1, 2, 3, 4]) == 3
    assert request(cache, made, [1, 2, 9]) == 0


def test_a_window_that_has_slid_on_is_not_gone_back_to() -> None:
    made = engine(memory="sliding")
    cache = KvCache(made)
    text = [n % 4 for n in range(50)]
    request(cache, made, text)

    assert request(cache, made, [*text[: 50 - WINDOW], 9]) == 50 - WINDOW
    assert request(cache, made, [*text[: 42 - WINDOW - 1], 9]) == 0


@pytest.mark.parametrize(("n_tokens", "n_reused"), [(80, 0), (101, 100)])
def test_of_a_saved_window_only_the_end_is_reused(n_tokens: int, n_reused: int) -> None:
    made = engine(memory="sliding")
    cache = KvCache(made, idle_tokens=1, max_idle=1)
    for token in (1, 2):
        request(cache, made, [token] * 100)

    assert request(cache, made, [1] * n_tokens) == n_reused


def test_all_sequences_running_is_an_error() -> None:
    made = engine(n_sequences=2)
    cache = KvCache(made)
    for prompt in ([1, 2], [3, 4]):
        cache.start(prompt)

    with pytest.raises(EngineError, match="in use"):
        cache.start([5])


def test_what_cannot_be_saved_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine()
    cache = KvCache(made, max_idle=1, worth_keeping=1)

    def no_memory(sequence: SequenceId) -> SavedSequence:
        raise MemoryError

    monkeypatch.setattr(made, "save", no_memory)
    for prompt in ([0, 1, 2], [1, 2, 3], [2, 3, 0]):
        assert request(cache, made, prompt) == 0

    assert (cache.n_idle, cache.n_saved) == (1, 0)
    assert made.n_free == made.n_ctx - 3


def test_an_idle_sequence_is_taken_over_where_no_other_is_left() -> None:
    made = engine(n_sequences=1)
    cache = KvCache(made, worth_keeping=1)
    request(cache, made, [0, 1, 2, 3])

    assert request(cache, made, [0, 1, 3, 3]) == 2


def test_a_prompt_needs_no_room_for_what_it_shares_with_one_that_runs() -> None:
    made = engine(n_ctx=20)
    cache = KvCache(made)
    running = [0] * 12
    read(made, cache.start(running), running)

    assert cache.has_room_for([*running, 1, 2])
    assert not cache.has_room_for([1, *running])
