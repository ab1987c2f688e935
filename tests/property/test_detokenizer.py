"""T1 to T11: the transducer against definitions by enumeration."""

from collections.abc import Sequence
from itertools import combinations, pairwise, product
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.text import ILL_FORMED, TRICKY_TEXTS, byte_strings, partitions
from support.vocab import byte_level, of_pieces
from suture.healing import Detokenizer, OnStop, TokenTransducer, reference

STOPS = st.lists(
    st.sampled_from(
        ["a", "ab", "b", "aab", "\n", "\n\n", "é", "👩", "e\u0301", "\ufffd", "我很", " "]
    ),
    max_size=3,
)
ON_STOP = st.sampled_from(OnStop)
ON_INCOMPLETE: list[Literal["replace", "drop"]] = ["replace", "drop"]


def feed_all(
    pieces: Sequence[bytes],
    stops: Sequence[str] = (),
    *,
    skip_bytes: int = 0,
    min_tokens: int = 0,
    on_stop: OnStop = OnStop.EXCLUDE,
    on_incomplete: Literal["replace", "drop"] = "replace",
) -> tuple[str, str | None]:
    """The whole text and the stop string of a stream in which every piece is a token."""
    detokenizer = Detokenizer(
        TokenTransducer(of_pieces(pieces), stops),
        skip_bytes=skip_bytes,
        min_tokens=min_tokens,
        include_stop=on_stop,
        on_incomplete=on_incomplete,
    )
    text = "".join(detokenizer.feed(token_id) for token_id in range(len(pieces)))
    return text + detokenizer.flush(), detokenizer.stop_match


@settings(deadline=None, max_examples=300)
@given(data=st.data(), stops=STOPS, on_stop=ON_STOP, rest=st.sampled_from(ON_INCOMPLETE))
def test_t1_t2_text_is_that_of_the_bytes_however_they_are_cut(
    data: st.DataObject, stops: list[str], on_stop: OnStop, rest: Literal["replace", "drop"]
) -> None:
    whole = data.draw(byte_strings())
    pieces = data.draw(partitions(whole))

    text = feed_all(pieces, stops, on_stop=on_stop, on_incomplete=rest)

    assert text == reference.final_text([whole], stops, on_stop=on_stop, on_incomplete=rest)


@settings(deadline=None, max_examples=300)
@given(data=st.data(), stops=STOPS, on_stop=ON_STOP)
def test_t3_t4_t6_t11_exactly_the_least_is_held_at_every_step(
    data: st.DataObject, stops: list[str], on_stop: OnStop
) -> None:
    pieces = data.draw(partitions(data.draw(byte_strings())))
    detokenizer = Detokenizer(TokenTransducer(of_pieces(pieces), stops), include_stop=on_stop)
    sent, n_held, most = "", 0, 0

    for token_id, piece in enumerate(pieces):
        sent += detokenizer.feed(token_id)
        read = b"".join(pieces[: token_id + 1])
        if detokenizer.stopped:
            break
        held = reference.held_bytes(read, stops, on_stop)
        assert detokenizer.held_bytes == held, piece
        assert sent == read[: len(read) - held].decode("utf-8", "replace")
        whole = read[: len(read) - reference.incomplete_tail(read)].decode("utf-8", "replace")
        assert len(sent) + detokenizer.held_chars == len(whole)
        n_held, most = n_held + bool(held), max(most, held)

    sent.encode()
    assert detokenizer.held_steps == n_held
    assert detokenizer.held_max_bytes == most
    assert most < max(4, *(len(stop.encode()) for stop in stops), 4)
    sent += detokenizer.flush()
    assert detokenizer.text_bytes == len(sent.encode())
    assert detokenizer.text_utf16 == len(sent.encode("utf-16-le")) // 2
    assert detokenizer.text_chars == len(sent)
    assert detokenizer.ended and detokenizer.held_bytes == 0


@settings(deadline=None, max_examples=200)
@given(
    data=st.data(), stops=STOPS, on_stop=ON_STOP, skip=st.integers(0, 3), early=st.integers(0, 4)
)
def test_t1_several_tokens_a_step_are_the_same_as_one(
    data: st.DataObject, stops: list[str], on_stop: OnStop, skip: int, early: int
) -> None:
    pieces = data.draw(partitions(data.draw(byte_strings())))
    transducer = TokenTransducer(of_pieces(pieces), stops)
    single, several = (
        Detokenizer(transducer, skip_bytes=skip, min_tokens=early, include_stop=on_stop)
        for _ in range(2)
    )

    for step in data.draw(partitions(bytes(range(len(pieces))))):
        text, n_tokens = several.feed_all(step)
        one_by_one = ""
        n_single = 0
        while n_single < len(step) and not single.ended:
            one_by_one += single.feed(step[n_single])
            n_single += 1
        assert (text, n_tokens) == (one_by_one, n_single)
        assert counters(several) == counters(single)
        assert several.stop_match == single.stop_match

    assert several.flush() == single.flush()
    assert counters(several) == counters(single)


def counters(detokenizer: Detokenizer) -> tuple[int, ...]:
    held = (detokenizer.held_bytes, detokenizer.held_steps, detokenizer.held_max_bytes)
    return (*held, detokenizer.text_chars, detokenizer.text_bytes, detokenizer.text_utf16)


def test_t10_a_run_with_a_bad_token_is_not_taken_at_all() -> None:
    detokenizer = Detokenizer(TokenTransducer(of_pieces([b"a", b"\xe4"])))
    detokenizer.feed_all([0, 1])
    before = detokenizer.snapshot()

    with pytest.raises(IndexError):
        detokenizer.feed_all([0, 1, 2])

    assert detokenizer.snapshot() == before


@settings(deadline=None)
@given(text=st.sampled_from(list(TRICKY_TEXTS.values())), data=st.data())
def test_t5_well_formed_text_never_shows_a_replacement_character_early(
    text: str, data: st.DataObject
) -> None:
    whole = text.encode()[: data.draw(st.integers(0, len(text.encode())))]
    pieces = data.draw(partitions(whole))
    detokenizer = Detokenizer(TokenTransducer(of_pieces(pieces)))

    sent = "".join(detokenizer.feed(token_id) for token_id in range(len(pieces)))

    assert text.startswith(sent)
    assert detokenizer.incomplete == (sent.encode() != whole)


@pytest.mark.parametrize("text", TRICKY_TEXTS.values(), ids=TRICKY_TEXTS.keys())
def test_t7_tokens_of_a_byte_level_tokenizer_give_the_text_back(text: str) -> None:
    vocabulary, encode = byte_level()
    detokenizer = Detokenizer(TokenTransducer(vocabulary))

    assert "".join(map(detokenizer.feed, encode(text.encode()))) == text
    assert detokenizer.flush() == ""


@settings(deadline=None, max_examples=200)
@given(data=st.data(), stops=STOPS, min_tokens=st.integers(0, 3))
def test_t8_healing_changes_neither_text_nor_stop(
    data: st.DataObject, stops: list[str], min_tokens: int
) -> None:
    healed = data.draw(byte_strings(5))
    repeating = [piece for piece in data.draw(partitions(healed)) if piece]
    new = data.draw(partitions(data.draw(byte_strings())))
    plain = feed_all(new, stops, min_tokens=min_tokens)

    apart = feed_all([*repeating, *new], stops, skip_bytes=len(healed), min_tokens=min_tokens)
    assert apart == plain
    if new and new[0]:
        crossing = [healed + new[0], *new[1:]]
        assert plain == feed_all(crossing, stops, skip_bytes=len(healed), min_tokens=min_tokens)


@settings(deadline=None, max_examples=200)
@given(data=st.data(), stops=STOPS, min_tokens=st.integers(0, 5), on_stop=ON_STOP)
def test_min_tokens_lets_earlier_stops_pass(
    data: st.DataObject, stops: list[str], min_tokens: int, on_stop: OnStop
) -> None:
    pieces = data.draw(partitions(data.draw(byte_strings())))

    text = feed_all(pieces, stops, min_tokens=min_tokens, on_stop=on_stop)

    assert text == reference.final_text(pieces, stops, min_tokens=min_tokens, on_stop=on_stop)


@settings(deadline=None, max_examples=100)
@given(data=st.data(), stops=STOPS, skip_bytes=st.integers(0, 3), min_tokens=st.integers(0, 3))
def test_t10_restoring_equals_never_having_gone_on(
    data: st.DataObject, stops: list[str], skip_bytes: int, min_tokens: int
) -> None:
    pieces = data.draw(partitions(data.draw(byte_strings())))
    at = data.draw(st.integers(0, len(pieces)))
    transducer = TokenTransducer(of_pieces(pieces), stops)
    straight = Detokenizer(transducer, skip_bytes=skip_bytes, min_tokens=min_tokens)
    detour = Detokenizer(transducer, skip_bytes=skip_bytes, min_tokens=min_tokens)

    for token_id in range(at):
        assert straight.feed(token_id) == detour.feed(token_id)
    snapshot = detour.snapshot()
    for token_id in reversed(range(len(pieces))):
        detour.feed(token_id)
    detour.flush()
    detour.restore(snapshot)

    rest = range(at, len(pieces))
    assert [detour.feed(i) for i in rest] == [straight.feed(i) for i in rest]
    assert detour.flush() == straight.flush()
    assert detour.snapshot() == straight.snapshot()


EDGES = bytes.fromhex("00 41 7F 80 8F 90 9F A0 BF C0 C2 DF E0 E1 ED EF F0 F1 F4 F5 FF")


def test_t1_t3_all_short_strings_of_edge_bytes_in_every_split() -> None:
    strings = [bytes(word) for n in range(1, 4) for word in product(EDGES, repeat=n)]
    id_of = {piece: token_id for token_id, piece in enumerate(strings)}
    # Not remembered: each of these steps is taken once.
    transducer = TokenTransducer(of_pieces(strings), memo_entries=1)

    for data in strings:
        held = reference.incomplete_tail(data)
        expected = data.decode("utf-8", "replace")
        for cuts in product((False, True), repeat=len(data) - 1):
            at = [0, *(n for n, cut in enumerate(cuts, 1) if cut), len(data)]
            detokenizer = Detokenizer(transducer)
            text = "".join(detokenizer.feed(id_of[data[a:b]]) for a, b in pairwise(at))
            assert detokenizer.held_bytes == held, (data, at)
            assert text + detokenizer.flush() == expected, (data, at)


def test_t2_t3_all_pairs_of_short_stops_against_all_short_texts() -> None:
    letters = of_pieces([b"a", b"b"])
    words = ["".join(word) for n in (1, 2, 3) for word in product("ab", repeat=n)]
    texts = [bytes(word) for n in range(9) for word in product(b"ab", repeat=n)]

    for stops in [(), *((word,) for word in words), *combinations(words, 2)]:
        transducer = TokenTransducer(letters, stops)
        for data in texts:
            detokenizer = Detokenizer(transducer)
            text = "".join(detokenizer.feed(byte - 97) for byte in data)
            if not detokenizer.stopped:
                assert detokenizer.held_bytes == longest_start(data.decode(), stops)
            text += detokenizer.flush()
            assert (text, detokenizer.stop_match) == cut_at_first(data.decode(), stops)


def cut_at_first(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """The text up to the stop string that ends first, the longest of those that end there."""
    found = [(text.index(stop) + len(stop), -len(stop), stop) for stop in stops if stop in text]
    if not found:
        return text, None
    end, _, stop = min(found)
    return text[: end - len(stop)], stop


def longest_start(text: str, stops: Sequence[str]) -> int:
    """The longest end of the text that begins a stop string and is none itself."""
    starts = [n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])]
    return max(starts, default=0)


@pytest.mark.parametrize("data", ILL_FORMED, ids=lambda data: data.hex())
@pytest.mark.parametrize("after", [b"", b"A", "😀".encode()], ids=["end", "letter", "emoji"])
def test_ill_formed_bytes_become_one_mark_for_each_maximal_part(data: bytes, after: bytes) -> None:
    whole = data + after

    text, _ = feed_all([bytes([byte]) for byte in whole])

    assert text == whole.decode("utf-8", "replace")


@settings(deadline=None, max_examples=50)
@given(data=st.data(), stops=STOPS)
def test_a_memo_that_overflows_changes_nothing(data: st.DataObject, stops: list[str]) -> None:
    pieces = data.draw(partitions(data.draw(byte_strings())))
    transducer = TokenTransducer(of_pieces(pieces), stops, memo_entries=1)
    small, large = Detokenizer(transducer), Detokenizer(TokenTransducer(of_pieces(pieces), stops))

    order = [*range(len(pieces)), *range(len(pieces))]
    assert [small.feed(i) for i in order] == [large.feed(i) for i in order]
    assert small.flush() == large.flush()
