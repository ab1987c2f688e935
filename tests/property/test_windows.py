"""W1 to W10: the window decoder against its slow twin, the byte path, and whole decoding."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Literal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from support import decoders
from support.text import ILL_FORMED, TRICKY_TEXTS, byte_strings, partitions
from support.vocab import byte_level, of_pieces
from suture.healing import (
    Decode,
    Decoding,
    Detokenizer,
    OnStop,
    TokenTransducer,
    WindowDetokenizer,
    decode_batch,
    feed_batch,
    reference,
)
from suture.healing.utf8 import incomplete_tail
from suture.healing.windows import MAX_UNREAD

EDGES = [bytes([byte]) for byte in bytes.fromhex("00204180A0BDBFC3E3EFF0F5")]
BYTE_PIECES = [
    *EDGES,
    b"",
    b"\xe3\x81",
    b"\x82\xe3\x81",
    b" \xf0\x9f",
    b"\x98\x80",
    b"x\xc3",
    b"\xef\xbf\xbd",
]
WORDS = ["a", "##b", "do", "n't", "'", "not", ".", "t", "\ufffd", ""]
PIECES = ["▁", "▁a", "b", "▁▁", ".", "é", "\ufffd"]
MIXED: list[str | int] = [
    "▁",
    "▁a",
    "x",
    "",
    "\ufffd",
    *b"A\xe3\x81\x82\xf0\x9f\x98\x80\xef\xbf\xbd",
]

DECODERS: dict[str, tuple[Decode, int]] = {
    "byte level": (decoders.byte_level(BYTE_PIECES), len(BYTE_PIECES)),
    "wordpiece": (decoders.wordpiece(WORDS), len(WORDS)),
    "tidying": (decoders.tidying(WORDS), len(WORDS)),
    "strips the first space": (decoders.first_space_stripped(PIECES), len(PIECES)),
    "erratic": (decoders.erratic(["b", "aaa", "", "\ufffd", "cc\ufffd\ufffd", "a", "b"]), 5),
    "byte fallback": (decoders.byte_fallback(MIXED), len(MIXED)),
}
STOPS = st.lists(
    st.sampled_from(["a", "ab", " a", "b", "A", "あ", "😀", " ", "x\u00e9"]), max_size=3
)


def id_lists(n_vocab: int, max_size: int = 30) -> st.SearchStrategy[list[int]]:
    """Ids, often the same one many times over, so that bounds are reached."""
    runs = st.tuples(st.integers(0, n_vocab - 1), st.sampled_from([1, 1, 1, 2, 7, 8, 9]))
    return st.lists(runs, max_size=max_size // 2).map(
        lambda pairs: [token_id for token_id, n in pairs for _ in range(n)][: 2 * max_size]
    )


def deltas(detokenizer: WindowDetokenizer, ids: Sequence[int]) -> list[str]:
    return [*map(detokenizer.feed, ids), detokenizer.flush()]


@pytest.mark.parametrize("name", DECODERS)
@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_w1_w2_w5_deltas_are_those_of_the_slow_twin_and_windows_stay_short(
    name: str, data: st.DataObject
) -> None:
    decode, n_vocab = DECODERS[name]
    prompt_ids, ids = data.draw(id_lists(n_vocab, 6)), data.draw(id_lists(n_vocab))
    longest = 0

    def watched(span: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(span))
        return decode(span)

    sent = deltas(WindowDetokenizer(Decoding(watched, n_vocab), prompt_ids), ids)

    assert sent == reference.window_deltas(decode, prompt_ids, ids)
    assert longest <= 2 * MAX_UNREAD


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_w3_bytes_give_the_text_of_the_byte_path(data: st.DataObject) -> None:
    pieces = data.draw(partitions(data.draw(byte_strings(40))))
    by_bytes = Detokenizer(TokenTransducer(of_pieces(pieces)))
    windows = WindowDetokenizer(Decoding(decoders.byte_level(pieces), len(pieces)))
    read = sent = ""

    for token_id in range(len(pieces)):
        read += by_bytes.feed(token_id)
        sent += windows.feed(token_id)
        assert read.startswith(sent)

    assert sent + windows.flush() == read + by_bytes.flush()
    assert (windows.text_bytes, windows.text_utf16) == (by_bytes.text_bytes, by_bytes.text_utf16)
    assert windows.resyncs == 0


@settings(deadline=None, max_examples=150)
@given(ids=id_lists(len(BYTE_PIECES), 60))
def test_w3_endless_ill_formed_bytes_give_the_text_of_the_byte_path(ids: list[int]) -> None:
    by_bytes = Detokenizer(TokenTransducer(of_pieces(BYTE_PIECES)))
    decode, n_vocab = DECODERS["byte level"]

    text = "".join(deltas(WindowDetokenizer(Decoding(decode, n_vocab)), ids))

    assert text == "".join(map(by_bytes.feed, ids)) + by_bytes.flush()


@pytest.mark.parametrize("text", TRICKY_TEXTS.values(), ids=TRICKY_TEXTS.keys())
def test_w3_tokens_of_a_byte_level_tokenizer_give_the_text_back(text: str) -> None:
    vocabulary, encode = byte_level()
    pieces = [vocabulary.bytes_of(token_id) for token_id in range(vocabulary.n_vocab)]
    decoding = Decoding(decoders.byte_level(pieces), vocabulary.n_vocab)
    prompt_ids = encode(b"# one two three\n")

    windows = WindowDetokenizer(decoding, prompt_ids)

    assert "".join(deltas(windows, encode(text.encode()))) == text
    assert windows.resyncs == 0


@pytest.mark.parametrize("data", ILL_FORMED, ids=lambda data: data.hex())
def test_w3_ill_formed_bytes_before_and_after_text(data: bytes) -> None:
    whole = data + b"A" + data + "😀".encode() + data
    windows = WindowDetokenizer(Decoding(decoders.byte_level(BYTES), 256))

    assert "".join(deltas(windows, list(whole))) == whole.decode("utf-8", "replace")


BYTES = [bytes([byte]) for byte in range(256)]


@pytest.mark.parametrize("name", ["wordpiece", "strips the first space"])
@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_w4_the_text_is_that_of_all_tokens_at_once(name: str, data: st.DataObject) -> None:
    decode, n_vocab = DECODERS[name]
    prompt_ids, ids = data.draw(id_lists(n_vocab, 6)), data.draw(id_lists(n_vocab))
    if not prompt_ids and not ids:
        return

    windows = WindowDetokenizer(Decoding(decode, n_vocab), prompt_ids)

    assert "".join(deltas(windows, ids)) == decode(prompt_ids + ids)[len(decode(prompt_ids)) :]
    assert windows.resyncs == 0


@settings(deadline=None)
@given(text=st.sampled_from(list(TRICKY_TEXTS.values())))
def test_w4_byte_fallback_of_text_without_literal_marks_is_exact(text: str) -> None:
    text = text.replace("\ufffd", "?")
    pieces: list[str | int] = list(range(256))
    windows = WindowDetokenizer(Decoding(decoders.byte_fallback(pieces), 256), [ord(":")])

    assert "".join(deltas(windows, list(text.encode()))) == text
    assert windows.resyncs == 0


Batch = Callable[[Sequence[Sequence[int]]], Sequence[str]]


def batching(decode: Decode) -> Batch:
    def decode_many(spans: Sequence[Sequence[int]]) -> list[str]:
        assert all(spans), "an empty span was decoded"
        return [decode(span) for span in spans]

    return decode_many


def decodings() -> list[Decoding]:
    """Each with a batch call and a hole in the vocabulary: its last id cannot be decoded."""

    def with_hole(decode: Decode, n_vocab: int) -> Decode:
        def decode_known(ids: Sequence[int]) -> str:
            if n_vocab in ids:
                raise KeyError(n_vocab)
            return decode(ids)

        return decode_known

    made = []
    for decode, n_vocab in DECODERS.values():
        known = with_hole(decode, n_vocab)
        made.append(Decoding(known, n_vocab + 1, frozenset({0}), batching(known)))
        made.append(Decoding(known, n_vocab + 1))
    return made


def feed_or_name(windows: WindowDetokenizer, token_id: int) -> str:
    try:
        return windows.feed(token_id)
    except (IndexError, KeyError) as error:
        return repr(error)


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_w6_w7_a_batch_is_what_its_rows_are_alone(data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.sampled_from(decodings()), min_size=1, max_size=6))
    prompts = [data.draw(id_lists(5, 3)) for _ in rows]
    alone, batched = (
        [WindowDetokenizer(row, ids) for row, ids in zip(rows, prompts, strict=True)]
        for _ in range(2)
    )

    for _ in range(data.draw(st.integers(1, 12))):
        ids = [data.draw(st.integers(-1, row.n_vocab)) for row in rows]
        outcomes = feed_batch(batched, ids)
        texts = [out if isinstance(out, str) else repr(out) for out in outcomes]
        assert texts == [feed_or_name(w, i) for w, i in zip(alone, ids, strict=True)]

    assert [w.snapshot() for w in batched] == [w.snapshot() for w in alone]


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_w7_decoding_a_batch_equals_row_by_row(data: st.DataObject) -> None:
    made = decodings()
    rows = data.draw(
        st.lists(st.tuples(st.sampled_from(made), st.lists(st.integers(0, 7), max_size=4)))
    )

    outcomes = decode_batch(rows)

    for (decoding, ids), outcome in zip(rows, outcomes, strict=True):
        try:
            assert outcome == (decoding.decode(ids) if ids else "")
        except KeyError as error:
            assert repr(outcome) == repr(error)


@pytest.mark.parametrize("name", DECODERS)
@settings(deadline=None, max_examples=100)
@given(data=st.data(), stops=STOPS, on_stop=st.sampled_from(OnStop))
def test_w8_stops_end_the_text_and_hold_the_least(
    name: str, data: st.DataObject, stops: list[str], on_stop: OnStop
) -> None:
    decode, n_vocab = DECODERS[name]
    ids = data.draw(id_lists(n_vocab))
    free = WindowDetokenizer(Decoding(decode, n_vocab))
    stopping = WindowDetokenizer(Decoding(decode, n_vocab), stops=stops, include_stop=on_stop)
    released = sent = ""

    for token_id in ids:
        released += free.feed(token_id)
        sent += stopping.feed(token_id)
        if stopping.stopped:
            break
        held = reference.held_bytes(released.encode(), stops, on_stop)
        assert stopping.held_bytes == held
        assert len(sent) + stopping.held_chars == len(released) + free.held_chars
        assert sent.encode() == released.encode()[: len(released.encode()) - held]

    released += free.flush()
    sent += stopping.flush()
    expected = reference.final_text([released.encode()], stops, on_stop=on_stop)
    assert (sent, stopping.stop_match) == expected
    assert stopping.text_bytes == len(sent.encode())
    assert stopping.text_utf16 == len(sent.encode("utf-16-le")) // 2


@pytest.mark.parametrize("name", DECODERS)
@settings(deadline=None, max_examples=50)
@given(data=st.data(), stops=STOPS)
def test_w9_restoring_equals_never_having_gone_on(
    name: str, data: st.DataObject, stops: list[str]
) -> None:
    decode, n_vocab = DECODERS[name]
    ids = data.draw(id_lists(n_vocab))
    at = data.draw(st.integers(0, len(ids)))
    straight, detour = (WindowDetokenizer(Decoding(decode, n_vocab), stops=stops) for _ in range(2))

    assert [straight.feed(i) for i in ids[:at]] == [detour.feed(i) for i in ids[:at]]
    snapshot = detour.snapshot()
    deltas(detour, ids)
    detour.restore(snapshot)

    assert deltas(detour, ids[at:]) == deltas(straight, ids[at:])
    assert detour.snapshot() == straight.snapshot()


WELL_FORMED = st.lists(
    st.sampled_from(["a", "b", "ab", " a", "A", "é", "あ", "😀", "👩‍👩", "\n", " ", "\ufffd"]),
    max_size=12,
).map("".join)


@settings(deadline=None, max_examples=400)
@given(
    data=st.data(),
    kept=WELL_FORMED,
    pending=WELL_FORMED,
    new=WELL_FORMED,
    stops=STOPS,
    min_tokens=st.integers(0, 6),
    on_stop=st.sampled_from(OnStop),
    on_incomplete=st.sampled_from(["replace", "drop"]),
)
def test_w10_healed_text_and_early_stops_are_passed_over_as_in_the_byte_path(
    data: st.DataObject,
    kept: str,
    pending: str,
    new: str,
    stops: list[str],
    min_tokens: int,
    on_stop: OnStop,
    on_incomplete: Literal["replace", "drop"],
) -> None:
    if on_incomplete == "drop":  # Windows drop a literal U+FFFD at the end too.
        new = new.replace("\ufffd", "?")
    whole = (kept + pending).encode()
    n_pending = data.draw(st.integers(0, len(whole))) if pending else 0
    prompt = whole[: len(whole) - n_pending]
    assume(not prompt.endswith((b"\xef", b"\xef\xbf")))  # A U+FFFD that is cut is excepted.
    n_read = data.draw(st.integers(0, len(new.encode())))
    prompt_pieces = data.draw(partitions(prompt))
    pieces = prompt_pieces + data.draw(partitions(whole[len(prompt) :] + new.encode()[:n_read]))
    empty = frozenset(i for i, piece in enumerate(pieces) if not piece)
    by_bytes = Detokenizer(
        TokenTransducer(of_pieces(pieces), stops),
        skip_bytes=n_pending,
        min_tokens=min_tokens,
        include_stop=on_stop,
        on_incomplete=on_incomplete,
    )
    windows = WindowDetokenizer(
        Decoding(decoders.byte_level(pieces), len(pieces), empty),
        range(len(prompt_pieces)),
        stops=stops,
        skip=whole[len(prompt) - incomplete_tail(prompt) :].decode() if n_pending else "",
        min_tokens=min_tokens,
        include_stop=on_stop,
        on_incomplete=on_incomplete,
    )
    ids = range(len(prompt_pieces), len(pieces))
    read = list(accumulate(map(by_bytes.feed, ids), initial=""))
    sent = list(accumulate(map(windows.feed, ids), initial=""))

    assert all(a.startswith(b) for a, b in zip(read, sent, strict=True))
    assert sent[-1] + windows.flush() == read[-1] + by_bytes.flush()
    assert windows.stop_match == by_bytes.stop_match
    assert windows.text_bytes == by_bytes.text_bytes
    assert windows.resyncs == 0
