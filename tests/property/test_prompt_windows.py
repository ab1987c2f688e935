"""The windows against an oracle that drops one line, then one character, at a time."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from support.toy_tokenizer import ToyTokenizer
from suture.server.prompt.windows import (
    EncodedWindow,
    Window,
    cursor_windows,
    encode_window,
    trim_prefix,
    trim_suffix,
)

TEXTS = st.text(st.sampled_from("ab\n\n\r\té🎉\u2028"), max_size=40)
SIZES = st.integers(0, 60)
LINE = re.compile("[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def lf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def slow_prefix(text: str, fits: Callable[[str], bool]) -> str:
    lines = LINE.findall(text)
    if not lines or lines[-1][-1] in "\r\n":
        lines.append("")
    while len(lines) > 1 and not fits("".join(lines)):
        del lines[0]
    own = "".join(lines)
    while not fits(own):
        own = own[1:]
    return own


def slow_suffix(text: str, fits: Callable[[str], bool]) -> str:
    lines = LINE.findall(text)
    while len(lines) > 1 and not fits("".join(lines)):
        del lines[-1]
    own = "".join(lines)
    while not fits(own):
        own = own[:-2] if own.endswith("\r\n") else own[:-1]
    return own


def n_bytes_at_most(limit: int) -> Callable[[str], bool]:
    return lambda text: len(text.encode()) <= limit


@given(TEXTS, TEXTS, SIZES)
def test_w1_w2_w3_clipped_windows_are_those_of_the_oracle(
    prefix: str, suffix: str, limit: int
) -> None:
    windows = cursor_windows(prefix, suffix, limit)
    if prefix.endswith("\r") and suffix.startswith("\n"):
        prefix, suffix = prefix[:-1], "\r" + suffix
    before = slow_prefix(prefix, n_bytes_at_most(limit))
    after = slow_suffix(suffix, n_bytes_at_most(limit))
    assert (windows.prefix.text, windows.suffix.text) == (lf(before), lf(after))
    assert windows.prefix.truncated == (before != prefix)
    assert windows.suffix.truncated == (after != suffix)


@given(TEXTS, TEXTS, SIZES, SIZES)
def test_w1_every_character_is_found_again_in_the_document(
    prefix: str, suffix: str, limit: int, n_tokens: int
) -> None:
    toy = ToyTokenizer()
    document = prefix + suffix
    windows = cursor_windows(prefix, suffix, limit)
    before = encode_window(windows.prefix, toy.encode)
    after = encode_window(windows.suffix, toy.encode)
    for window in (
        windows.prefix,
        windows.suffix,
        trim_prefix(before, n_tokens, toy.encode, toy.vocabulary).window,
        trim_suffix(after, n_tokens, toy.encode, toy.vocabulary).window,
    ):
        offsets = [window.document_offset(at) for at in range(len(window.text) + 1)]
        found = [document[start:end] for start, end in pairwise(offsets)]
        assert [lf(part) for part in found] == list(window.text)
        assert all(part in ("\r\n", part[0]) for part in found)


@given(TEXTS, SIZES)
def test_w2_w3_w4_trimmed_windows_are_those_of_the_oracle(text: str, n_tokens: int) -> None:
    toy = ToyTokenizer()
    text = lf(text)
    window = encode_window(Window(text, 0), toy.encode)
    prefix = trim_prefix(window, n_tokens, toy.encode, toy.vocabulary)
    suffix = trim_suffix(window, n_tokens, toy.encode, toy.vocabulary)
    assert prefix.window.text == slow_prefix(text, n_bytes_at_most(n_tokens))
    assert suffix.window.text == slow_suffix(text, n_bytes_at_most(n_tokens))


@given(TEXTS, TEXTS, SIZES, SIZES)
def test_trimming_equals_clipping_with_offsets_and_all(
    prefix: str, suffix: str, n_prefix: int, n_suffix: int
) -> None:
    """For text without CR a byte is a token, so both must agree in every field."""
    toy = ToyTokenizer()
    prefix, suffix = prefix.replace("\r", ""), suffix.replace("\r", "")
    whole = cursor_windows(prefix, suffix, 1000)
    before = encode_window(whole.prefix, toy.encode)
    after = encode_window(whole.suffix, toy.encode)
    clipped_before = cursor_windows(prefix, "", n_prefix).prefix
    clipped_after = cursor_windows(prefix, suffix, n_suffix).suffix
    assert trim_prefix(before, n_prefix, toy.encode, toy.vocabulary).window == clipped_before
    assert trim_suffix(after, n_suffix, toy.encode, toy.vocabulary).window == clipped_after


@given(TEXTS, SIZES)
def test_w4_no_window_is_over_its_tokens_whatever_the_words(text: str, n_tokens: int) -> None:
    toy = ToyTokenizer(words=("a\nb", "b\n\na", "\n\n", "é\n", "aa"))
    text = lf(text)
    window = encode_window(Window(text, 0), toy.encode)
    prefix = trim_prefix(window, n_tokens, toy.encode, toy.vocabulary)
    suffix = trim_suffix(window, n_tokens, toy.encode, toy.vocabulary)
    assert text.endswith(prefix.window.text) and text.startswith(suffix.window.text)
    for trimmed in (prefix, suffix):
        assert len(trimmed.ids) <= n_tokens
        assert list(trimmed.ids) == toy.encode(trimmed.window.text.encode())


@given(TEXTS, SIZES)
def test_w3_w4_a_space_read_before_the_whole_text_costs_no_line_of_it(
    text: str, n_tokens: int
) -> None:
    toy = ToyTokenizer()
    text = lf(text)
    opening = EncodedWindow(Window(text, 0), tuple(toy.encode(b" " + text.encode())))
    trimmed = trim_prefix(opening, n_tokens, toy.encode, toy.vocabulary)
    n_first = len(opening.ids)

    def fits(tail: str) -> bool:
        return (n_first if tail == text != "" else len(tail.encode())) <= n_tokens

    expected = slow_prefix(text, fits)
    assert trimmed.window.text == expected
