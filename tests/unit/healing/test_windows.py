"""The window decoder on small cases: the rule, its bounds, and reported faults of its peers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from support import decoders
from suture.healing import Decode, Decoding, OnStop, WindowDetokenizer, decode_batch, feed_batch
from suture.healing.windows import MAX_UNREAD

BYTES = decoders.byte_level([bytes([byte]) for byte in range(256)])
FALLBACK = decoders.byte_fallback([*range(256), "»", "▁x", "y"])


def windows(
    decode: Decode, prompt_ids: Sequence[int] = (), stops: Sequence[str] = ()
) -> WindowDetokenizer:
    return WindowDetokenizer(Decoding(decode, 1000), prompt_ids, stops=stops)


def deltas(detokenizer: WindowDetokenizer, ids: Sequence[int]) -> list[str]:
    return [*map(detokenizer.feed, ids), detokenizer.flush()]


@dataclass(frozen=True)
class Report:
    """A public report, the tokens as hex, and the deltas to see; the last is the flush's."""

    where: str
    pieces: str
    deltas: list[str]
    n_prompt: int = 0
    stops: list[str] = field(default_factory=list)


REPORTS = [
    Report("vllm#931 Chinese character in two tokens", "E4BD|A0", ["", "你", ""]),
    Report("TGI#333 characters split", "F09F|988A", ["", "😊", ""]),
    Report("TGI#1235 ends inside a character", "61|D8", ["a", "", "\ufffd"]),
    Report("vllm#48853 prompt ends inside a character", "61|F09F8C|B6", ["🌶", ""], n_prompt=2),
    Report("vllm#48853 prompt ends in bad bytes", "61|F0|78", ["x", ""], n_prompt=2),
    Report("tokenizers prompt ends in a literal U+FFFD", "23EFBFBD|61", ["a", ""], n_prompt=1),
    Report("tokenizers literal U+FFFD at the end", "61|EF|BF|BD", ["a", "", "", "", "\ufffd"]),
    Report("tokenizers literal U+FFFD, then text", "EF|BF|BD|61", ["", "", "", "\ufffda", ""]),
    Report("sglang#31598 printed text shrank", "4120E4B896|E7|958C", ["A 世", "", "界", ""]),
    Report("sglang#31598 half, letter", "E4B8|9661E4|B896|62", ["", "", "世a世", "b", ""]),
    Report("an inner U+FFFD is sent", "80|61", ["", "\ufffda", ""]),
    Report("mlx-lm nul", "6100|62", ["a\x00", "b", ""]),
    Report("llama.cpp#10914 released once", "20416C|21", [" ", "Al!", ""], stops=["Alice"]),
]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.where)
def test_w3_a_reported_fault_does_not_occur(report: Report) -> None:
    pieces = [bytes.fromhex(piece) for piece in report.pieces.split("|")]
    ids = range(len(pieces))
    detokenizer = windows(decoders.byte_level(pieces), ids[: report.n_prompt], report.stops)

    assert deltas(detokenizer, ids[report.n_prompt :]) == report.deltas
    assert detokenizer.resyncs == 0


def test_w1_an_editor_drops_what_is_unfinished() -> None:
    detokenizer = WindowDetokenizer(Decoding(BYTES, 256), on_incomplete="drop")

    assert deltas(detokenizer, b"a\xd8") == ["a", "", ""]


@pytest.mark.parametrize("n_blanks", [1, MAX_UNREAD, 4000])
def test_w2_tokens_without_text_do_not_freeze_the_window(n_blanks: int) -> None:
    """sglang#8031, sglang#13275: the window grew with every empty token."""
    longest = 0
    strip = decoders.first_space_stripped(["▁a", "", "▁b"])

    def watched(ids: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return strip(ids)

    detokenizer = windows(watched)
    text = "".join(deltas(detokenizer, [0, *[1] * n_blanks, 2]))

    assert text == "a b", "the context must survive: without it the space would be stripped"
    assert longest <= 2 * MAX_UNREAD
    assert detokenizer.held_max_tokens < MAX_UNREAD + 1


def test_w2_a_character_survives_any_number_of_tokens_without_text_inside() -> None:
    decode = decoders.byte_level([b"\xe4\xbd", b"", b"\xa0"])

    assert "".join(deltas(windows(decode), [0, *[1] * 100, 2])) == "你"


def test_w2_skipped_special_tokens_cost_nothing_and_split_nothing() -> None:
    """mistral-common decodes the runs between special tokens apart."""
    calls = 0

    def counted(ids: Sequence[int]) -> str:
        nonlocal calls
        calls += 1
        return BYTES(ids)

    detokenizer = WindowDetokenizer(Decoding(counted, 1000, special_ids=frozenset({999})))

    assert [detokenizer.feed(i) for i in (0xE4, 0xBD)] == ["", ""]
    before = calls
    assert [detokenizer.feed(999) for _ in range(1000)] == [""] * 1000
    assert calls == before
    assert detokenizer.feed(0xA0) == "你"


def test_w2_endless_bad_bytes_are_delivered_and_cost_the_same_each() -> None:
    """sglang#34740, stalls of tokenizers' DecodeStream: nothing came, and each step cost more."""
    n_decoded = 0

    def counted(ids: Sequence[int]) -> str:
        nonlocal n_decoded
        n_decoded += len(ids)
        return BYTES(ids)

    detokenizer = windows(counted)
    sent = ""
    for n_fed in range(1, 4001):
        sent += detokenizer.feed(0x80)
        assert n_fed - len(sent) < MAX_UNREAD + 3

    assert sent + detokenizer.flush() == "\ufffd" * 4000
    assert n_decoded < 4000 * 4 * MAX_UNREAD


def test_w2_characters_that_straddle_every_token_come_out() -> None:
    """No token ends where a character does, so every window ends in U+FFFD."""
    decode = decoders.byte_level([b"\xe3\x81", b"\x82\xe3\x81", b"\x82"])
    detokenizer = windows(decode)
    sent = "".join(map(detokenizer.feed, [0, *[1] * 40]))

    assert sent == "あ" * len(sent)
    assert len(sent) > 40 - MAX_UNREAD
    assert sent + detokenizer.feed(2) + detokenizer.flush() == "あ" * 41


def test_w5_a_run_that_turns_bad_late_is_neither_an_error_nor_sent_again() -> None:
    """vllm#17448: one bad byte makes U+FFFD of good ones that were sent."""
    detokenizer = windows(FALLBACK, [258])
    fed = [0x41, 0xE3, 0x28, 256]

    assert deltas(detokenizer, fed) == ["A", "", "", "\ufffd\ufffd»", ""]
    assert detokenizer.resyncs == 1


def test_w5_a_bad_byte_after_a_good_one_keeps_the_following_space() -> None:
    """A stream that is built anew at the bad token forgets that it is not at the start."""
    detokenizer = windows(FALLBACK, [258])

    assert deltas(detokenizer, [0x41, 0xE3, 257, 257]) == ["A", "", "\ufffd x", " x", ""]
    assert detokenizer.resyncs == 1


def test_w5_a_window_that_shrinks_waits_and_is_not_sent_again() -> None:
    """A clean-up of blanks takes back a space of the context."""
    decode = decoders.tidying(["don", "'", "t", "x"])
    detokenizer = windows(decode, [0, 1])

    assert deltas(detokenizer, [2, 3]) == ["", "t x", ""]
    assert detokenizer.resyncs == 1


def test_w5_what_waited_in_the_context_is_not_lost_when_it_is_left() -> None:
    """Literal U+FFFD by bytes: cut at the bound, they are bad bytes that turn good later."""
    detokenizer = windows(FALLBACK)
    fed = [*"\ufffd\ufffd\ufffd".encode(), 258, 258, 258]

    text = "".join(deltas(detokenizer, fed))

    assert text == "\ufffd" * 9 + "yyy"
    assert detokenizer.resyncs == 1


def test_w5_tokens_that_do_not_show_beside_others_are_shown_alone() -> None:
    def first_only(ids: Sequence[int]) -> str:
        return "ab"[ids[0]] if ids else ""

    at_bound, at_flush = windows(first_only, [0]), windows(first_only, [0])

    assert [at_bound.feed(1) for _ in range(MAX_UNREAD)] == [*[""] * (MAX_UNREAD - 1), "b"]
    assert deltas(at_flush, [1, 1]) == ["", "", "b"]
    assert (at_bound.resyncs, at_flush.resyncs) == (1, 1)


def test_w2_tokens_without_text_alone_stay_where_they_have_some_together() -> None:
    def marks(ids: Sequence[int]) -> str:
        return "\ufffd" * len(ids) if len(ids) > 1 else ""

    detokenizer = windows(marks)

    assert [detokenizer.feed(1) for _ in range(MAX_UNREAD)][-1] == "\ufffd" * (MAX_UNREAD - 3)


def test_w5_a_decoder_that_says_nothing_consistent_still_ends() -> None:
    texts = ["b", "aaa", "", "\ufffd", "cc\ufffd\ufffd", "a"]
    detokenizer = windows(decoders.erratic(texts), [1, 2, 3])

    for token_id in range(500):
        detokenizer.feed(token_id)
        assert detokenizer.held_tokens < MAX_UNREAD
    detokenizer.flush()
    assert detokenizer.resyncs > 0


def test_the_first_space_is_the_prompts_business() -> None:
    """transformers#22710: decoded alone, every word lost its space."""
    decode = decoders.first_space_stripped(["▁Hello", "▁world"])

    assert windows(decode).feed(0) == "Hello"
    assert windows(decode, [0]).feed(1) == " world"
    assert windows(decode, [0]).feed(0) == " Hello"


def test_of_the_prompt_the_last_five_tokens_that_count_are_context() -> None:
    seen: list[tuple[int, ...]] = []

    def watched(ids: Sequence[int]) -> str:
        seen.append(tuple(ids))
        return "x" * len(ids)

    decoding = Decoding(watched, 100, special_ids=frozenset({90, 91}))
    for prompt_ids in ([*range(9)], [0, 1, 2, 3, 90, 4, 91], [5, 90, 91, 90, 91, 90, 91, 90]):
        WindowDetokenizer(decoding, prompt_ids).feed(50)

    assert seen == [
        *((4, 5, 6, 7, 8), (4, 5, 6, 7, 8, 50)),
        *((0, 1, 2, 3, 4), (0, 1, 2, 3, 4, 50)),
        *((5,), (5, 50)),
    ]


@pytest.mark.parametrize("token_id", [-1, 1000, 2**31])
def test_w6_ids_outside_the_vocabulary_are_errors(token_id: int) -> None:
    """vllm#21951, vllm#24211: a negative id ended the loop, then gave silent empty text."""
    detokenizer = windows(BYTES)
    before = detokenizer.snapshot()

    with pytest.raises(IndexError, match="outside the vocabulary"):
        detokenizer.feed(token_id)
    assert detokenizer.snapshot() == before
    assert detokenizer.feed(0x61) == "a"


def test_w6_a_token_that_cannot_be_decoded_fails_its_own_text_only() -> None:
    def one(ids: Sequence[int]) -> str:
        if 7 in ids:
            raise OverflowError("no such token")
        return BYTES(ids)

    def many(spans: Sequence[Sequence[int]]) -> list[str]:
        return [one(span) for span in spans]

    decoding = Decoding(one, 256, decode_batch=many)
    rows = [WindowDetokenizer(decoding) for _ in range(4)]

    first = feed_batch(rows, [0x61, 7, 0xE4, 300])
    second = feed_batch(rows, [0x62, 0x63, 0x64, 0x65])

    assert [first[0], first[2]] == ["a", ""]
    assert (type(first[1]), type(first[3])) == (OverflowError, IndexError)
    assert second == ["b", "c", "\ufffdd", "e"]


def test_w7_rows_of_one_decoding_share_a_call_and_empty_ones_are_skipped() -> None:
    calls: list[list[tuple[int, ...]]] = []

    def many(spans: Sequence[Sequence[int]]) -> list[str]:
        calls.append([tuple(span) for span in spans])
        return [BYTES(span) for span in spans]

    shown = Decoding(BYTES, 256, decode_batch=many)
    skipped = Decoding(BYTES, 256, frozenset({0}), many)
    rows: list[tuple[Decoding, Sequence[int]]]
    rows = [(shown, b"a"), (skipped, b"b"), (shown, b""), (shown, b"cd"), (skipped, b"e")]

    assert decode_batch(rows) == ["a", "b", "", "cd", "e"]
    assert calls == [[(97,), (99, 100)], [(98,), (101,)]]


def test_w7_a_batch_call_that_loses_rows_is_an_error() -> None:
    decoding = Decoding(BYTES, 256, decode_batch=lambda spans: ["a"])

    with pytest.raises(ValueError, match="shorter"):
        decode_batch([(decoding, b"a"), (decoding, b"b")])


def test_w7_a_text_takes_one_token_in_a_batch() -> None:
    detokenizer = windows(BYTES)

    with pytest.raises(ValueError, match="one token"):
        feed_batch([detokenizer, detokenizer], [1, 2])


def test_w8_a_stop_string_ends_the_text() -> None:
    """TGI#1039: stops were found at the ends of tokens only."""
    decode = decoders.first_space_stripped(["▁Paris", "▁x"])
    detokenizer = windows(decode, [1], ["Pari"])

    assert deltas(detokenizer, [0, 1]) == [" ", "", ""]
    assert (detokenizer.stopped, detokenizer.stop_match) == (True, "Pari")
    assert detokenizer.held_tokens == 0


def test_w8_an_included_stop_is_sent() -> None:
    decoding = Decoding(BYTES, 256)
    detokenizer = WindowDetokenizer(decoding, stops=["END"], include_stop=OnStop.INCLUDE)

    assert deltas(detokenizer, b"aENDb") == ["a", "E", "N", "D", "", ""]


def healed(
    pieces: Sequence[bytes],
    skip: str,
    *,
    prompt_ids: Sequence[int] = (),
    stops: Sequence[str] = (),
    min_tokens: int = 0,
) -> WindowDetokenizer:
    """Windows over byte-level pieces, of which empty ones are special tokens."""
    special_ids = frozenset(i for i, piece in enumerate(pieces) if not piece)
    decoding = Decoding(decoders.byte_level(pieces), len(pieces), special_ids)
    return WindowDetokenizer(decoding, prompt_ids, skip=skip, stops=stops, min_tokens=min_tokens)


@pytest.mark.parametrize("piece", [b"\xa9", b"\xa9\xc3", b"\xa9a"])
def test_w10_a_prompt_that_ends_in_special_tokens_inside_a_character(piece: bytes) -> None:
    detokenizer = healed([b"\xc3", b"", piece], "é", prompt_ids=[0, *[1] * 8])

    assert "".join(deltas(detokenizer, [2])) == piece[1:].decode("utf-8", "replace")


def test_w10_an_unfinished_character_that_is_skipped_is_not_sent_after_a_special_token() -> None:
    assert deltas(healed([b"", b"\xc3"], "é"), [0, 1]) == ["", "", ""]


def test_w10_a_literal_mark_after_a_skipped_one_is_new() -> None:
    pieces = ["\ufffd\ufffd".encode(), b";"]

    assert deltas(healed(pieces, "\ufffd"), [0]) == ["", "\ufffd"]
    stopping = healed(pieces, "\ufffd", stops=[";"], min_tokens=2)
    assert deltas(stopping, [0, 1]) == ["", "\ufffd", ""]
    assert stopping.stop_match == ";"


def test_w10_a_literal_mark_of_an_early_token_is_no_stop() -> None:
    early = healed(["\ufffd".encode(), b"a"], "", stops=["\ufffd"], min_tokens=2)

    assert deltas(early, [0, 1]) == ["", "\ufffda", ""]
    assert early.stop_match is None


def test_w10_a_stop_that_a_later_token_finishes_inside_a_character_counts() -> None:
    late = healed([b"x\xc3", b"\xa9y"], "", stops=["é"], min_tokens=2)

    assert deltas(late, [0, 1]) == ["", "x", ""]
    assert late.stop_match == "é"


def test_w10_marks_for_one_skipped_character_are_not_new() -> None:
    """Byte fallback shows each byte of an unfinished character as one."""
    decoding = Decoding(FALLBACK, 259)
    detokenizer = WindowDetokenizer(decoding, [258], skip="😀", stops=["y"], min_tokens=2)

    assert [detokenizer.feed(byte) for byte in "😀".encode()] == [""] * 4
    assert [detokenizer.feed(258), detokenizer.feed(258)] == ["y", ""]
    assert detokenizer.stop_match == "y"


def test_after_the_end_nothing_more_comes() -> None:
    detokenizer = windows(BYTES)

    assert (detokenizer.feed(97), detokenizer.flush()) == ("a", "")
    assert (detokenizer.feed(97), detokenizer.flush()) == ("", "")


def test_counters_say_what_waited() -> None:
    detokenizer = windows(BYTES, stops=["ab"])

    for byte in "😀a".encode():
        detokenizer.feed(byte)

    assert (detokenizer.held_tokens, detokenizer.held_bytes) == (0, 1)
    assert (detokenizer.held_steps, detokenizer.held_max_tokens) == (4, 3)
    assert (detokenizer.text_bytes, detokenizer.text_utf16) == (4, 2)
