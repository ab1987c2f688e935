from __future__ import annotations

import pytest

from support.toy_tokenizer import ToyTokenizer
from suture.server.prompt.windows import (
    Window,
    cursor_windows,
    encode_window,
    head_window,
    trim_prefix,
    trim_suffix,
)

LARGE = 1 << 20


def trimmed_prefix(text: str, n_tokens: int, toy: ToyTokenizer | None = None) -> str:
    toy = toy or ToyTokenizer()
    window = encode_window(Window(text, 0), toy.encode)
    return trim_prefix(window, n_tokens, toy.encode, toy.vocabulary).window.text


def trimmed_suffix(text: str, n_tokens: int, toy: ToyTokenizer | None = None) -> str:
    toy = toy or ToyTokenizer()
    window = encode_window(Window(text, 0), toy.encode)
    return trim_suffix(window, n_tokens, toy.encode, toy.vocabulary).window.text


def test_w1_crlf_and_lone_cr_become_lf() -> None:
    windows = cursor_windows("a\r\nb\rc\n", "\r\n\rd", LARGE)
    assert windows.prefix.text == "a\nb\nc\n"
    assert windows.suffix.text == "\n\nd"
    assert not windows.truncated


def test_w1_offsets_lead_back_to_the_document() -> None:
    document = "a\r\nb\rc\n" + "x\r\n\ry"
    windows = cursor_windows(document[:7], document[7:], LARGE)
    for window in (windows.prefix, windows.suffix):
        for offset, character in enumerate(window.text):
            original = document[window.document_offset(offset)]
            assert character == original or (character == "\n" and original == "\r")
    assert windows.prefix.document_offset(2) == 3
    assert windows.suffix.document_offset(2) == 10


def test_w1_a_cursor_between_cr_and_lf_stands_before_the_cr() -> None:
    windows = cursor_windows("a\r", "\nb", LARGE)
    assert (windows.prefix.text, windows.suffix.text) == ("a", "\nb")
    assert windows.suffix.start == 1
    assert windows.suffix.document_offset(1) == 3


def test_a_lone_cr_before_the_cursor_stays_there() -> None:
    windows = cursor_windows("a\r", "b", LARGE)
    assert (windows.prefix.text, windows.suffix.text) == ("a\n", "b")


@pytest.mark.parametrize(
    ("prefix", "suffix", "line_end"),
    [
        ("", "", "\n"),
        ("a\nb\r\n", "c", "\n"),
        ("a\r\n", "b\r\nc\n", "\r\n"),
        ("a\rb\r", "", "\r"),
        ("a\r", "\nb", "\r\n"),
    ],
)
def test_the_line_end_is_the_one_that_most_lines_have(
    prefix: str, suffix: str, line_end: str
) -> None:
    assert cursor_windows(prefix, suffix, LARGE).line_end == line_end


def test_only_lf_and_cr_end_lines() -> None:
    text = "a\u2028b\x0bc\x0cd\x85e"
    assert cursor_windows(text, text, LARGE).prefix.text == text
    assert trimmed_prefix("x\n" + text, len(text.encode())) == text


def test_w3_clipping_keeps_whole_lines() -> None:
    windows = cursor_windows("one\ntwo\nthree", "four\nfive\nsix", 11)
    assert (windows.prefix.text, windows.suffix.text) == ("two\nthree", "four\nfive\n")
    assert windows.prefix.start == 4
    assert windows.truncated


def test_clipping_at_a_line_end_loses_no_line() -> None:
    assert cursor_windows("one\ntwo", "", 3).prefix.text == "two"
    assert cursor_windows("one\r\ntwo", "", 3).prefix.text == "two"
    assert cursor_windows("", "one\ntwo", 4).suffix.text == "one\n"
    assert cursor_windows("", "one\r\ntwo", 5).suffix.text == "one\n"


def test_clipping_never_splits_a_crlf() -> None:
    assert cursor_windows("ab\r\n", "", 1).prefix == Window("", 4, (), truncated=True)
    assert cursor_windows("", "ab\r\ncd", 3).suffix == Window("ab", 0, (), truncated=True)
    assert cursor_windows("", "a\r\nbc\r\nd", 6).suffix == Window("a\nbc", 0, (1,), truncated=True)


def test_clipping_never_splits_a_character() -> None:
    assert cursor_windows("é🎉", "🎉é", 5).prefix.text == "🎉"
    assert cursor_windows("é🎉", "🎉é", 5).suffix.text == "🎉"
    assert cursor_windows("é🎉", "🎉é", 3).prefix.text == ""
    assert cursor_windows("é🎉", "🎉é", 0).suffix.text == ""


def test_w3_a_line_is_cut_inside_where_little_would_be_left_without_it() -> None:
    minified = "var a=1;" * 100
    windows = cursor_windows("x\n" + minified, minified + "\nx", 20)
    assert windows.prefix.text == minified[-20:]
    assert windows.suffix.text == minified[:20]
    windows = cursor_windows(minified + "\nT", "\n" + minified, 20)
    assert windows.prefix.text == minified[-18:] + "\nT"
    assert windows.suffix.text == "\n" + minified[:19]


@pytest.mark.parametrize("n_tokens", [300, 2000])
def test_w3_a_long_line_above_or_below_the_cursor_does_not_cost_all_context(n_tokens: int) -> None:
    toy = ToyTokenizer()
    paragraph = "a " * 10_000
    for n_bytes in (8 * n_tokens, LARGE):
        windows = cursor_windows(f"intro\n{paragraph}\nT", f"\n{paragraph}\nend", n_bytes)
        above = encode_window(windows.prefix, toy.encode)
        below = encode_window(windows.suffix, toy.encode)
        above = trim_prefix(above, n_tokens, toy.encode, toy.vocabulary)
        below = trim_suffix(below, n_tokens, toy.encode, toy.vocabulary)
        assert above.window.text.endswith("a \nT") and below.window.text.startswith("\na ")
        assert 3 * n_tokens // 4 <= len(above.ids) <= n_tokens
        assert 3 * n_tokens // 4 <= len(below.ids) <= n_tokens


def test_a_window_over_nothing_is_whole() -> None:
    windows = cursor_windows("", "", LARGE)
    assert (windows.text, windows.truncated) == ("", False)


def test_w2_a_trimmed_prefix_is_its_last_lines() -> None:
    assert trimmed_prefix("one\ntwo\nthree", 13) == "one\ntwo\nthree"
    assert trimmed_prefix("one\ntwo\nthree", 12) == "two\nthree"
    assert trimmed_prefix("one\ntwo\nthree", 9) == "two\nthree"
    assert trimmed_prefix("one\ntwo\nthree", 8) in ("wo\nthree", "o\nthree", "\nthree")
    assert trimmed_prefix("one\ntwo\nthree", 6) == "three"
    assert trimmed_prefix("one\ntwo\nthree", 4) in ("hree", "ree")
    assert trimmed_prefix("one\ntwo\nthree", 0) == ""
    assert trimmed_prefix("one\ntwo\n", 3) == "wo\n"


def test_w2_a_trimmed_suffix_is_its_first_lines() -> None:
    assert trimmed_suffix("three\ntwo\none", 13) == "three\ntwo\none"
    assert trimmed_suffix("three\ntwo\none", 12) == "three\ntwo\n"
    assert trimmed_suffix("three\ntwo\none", 9) in ("three\nt", "three\ntw", "three\ntwo")
    assert trimmed_suffix("three\ntwo\none", 8) == "three\n"
    assert trimmed_suffix("three\ntwo\none", 5) == "three"
    assert trimmed_suffix("three\ntwo\none", 2) == "th"
    assert trimmed_suffix("three\ntwo\none", 0) == ""
    assert trimmed_suffix("\none", 1) == "\n"


def test_a_line_is_cut_between_characters() -> None:
    assert trimmed_prefix("é🎉🎉", 7) == "🎉"
    assert trimmed_suffix("🎉🎉é", 7) == "🎉"
    assert trimmed_suffix("🎉", 3) == ""


def test_w4_half_a_token_that_is_several_is_measured_again() -> None:
    toy = ToyTokenizer(words=("p\nqq", "qq\np"))
    assert trimmed_prefix("xyzp\nqqr", 2, toy) == "p\nqqr"
    assert trimmed_prefix("xyzpp\nqqqr", 3, toy) == "p\nqqqr"
    assert trimmed_suffix("rqq\npxyz", 2, toy) == "rqq\np"
    assert trimmed_suffix("rqqq\nppxyz", 3, toy) == "rqqq\np"
    assert trimmed_suffix("rqq\npxyz", 4, toy) in ("rqq\npx", "rqq\npxy")


def test_a_line_alone_is_measured_without_its_neighbours() -> None:
    toy = ToyTokenizer(words=("a\n\n",))
    assert trimmed_prefix("a\n\nb", 2, toy) == "a\n\nb"
    assert trimmed_prefix("xa\n\nb", 2, toy) == "a\n\nb"


def test_trimming_keeps_the_way_back() -> None:
    document = "one\r\ntwo\r\nthree"
    toy = ToyTokenizer()
    window = encode_window(cursor_windows(document, "", LARGE).prefix, toy.encode)
    trimmed = trim_prefix(window, 9, toy.encode, toy.vocabulary).window
    assert trimmed == Window("two\nthree", 5, (3,), truncated=True)
    assert document[trimmed.document_offset(4)] == "t"
    after = encode_window(cursor_windows("", document, LARGE).suffix, toy.encode)
    trimmed = trim_suffix(after, 5, toy.encode, toy.vocabulary).window
    assert trimmed == Window("one\n", 0, (3,), truncated=True)


def test_head_window_is_the_first_whole_lines() -> None:
    assert head_window("one\r\ntwo\r\n", 6) == Window("one\n", 0, (3,), truncated=True)
