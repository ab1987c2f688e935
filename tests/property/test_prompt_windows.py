"""The windows against an oracle that drops one line, then one character, at a time."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from itertools import pairwise

from hypothesis import example, given
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
    """The most whole lines, or characters where those are less than three quarters of them."""
    lines, own = LINE.findall(text), text
    while lines and not fits("".join(lines)):
        del lines[0]
    while not fits(own):
        own = own[1:]
    if text.endswith("\r" + own) and own.startswith("\n"):
        own = own[1:]
    whole = "".join(lines)
    return whole if 4 * len(whole) >= 3 * len(own) else own


def slow_suffix(text: str, fits: Callable[[str], bool]) -> str:
    lines, own = LINE.findall(text), text
    while lines and not fits("".join(lines)):
        del lines[-1]
    while not fits(own):
        own = own[:-1]
    if text.startswith(own + "\n") and own.endswith("\r"):
        own = own[:-1]
    whole = "".join(lines)
    return whole if 4 * len(whole) >= 3 * len(own) else own


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


def n_twos(number: int) -> int:
    """How often two divides a number; 0 is the roundest of all."""
    return next((n for n in range(99) if number % 2 ** (n + 1)), 99)


def slow_edge(edges: Sequence[int], near: Callable[[int], str], first: int) -> int:
    """Of some edges one with the least hash: the next one from the roundest place on."""
    least = min(zlib.crc32(near(edge).encode()) for edge in edges)
    alike = [edge for edge in edges if zlib.crc32(near(edge).encode()) == least]
    roundest = max(range(alike[0], alike[-1] + 1), key=lambda at: n_twos(first + at))
    return min(edge for edge in alike if edge >= roundest)


def slow_trim(text: str, n_tokens: int, is_truncated: bool, is_top: bool) -> str:
    """W2 to W5 for a window whose tokens are its bytes, edge by edge."""
    first = 10 if is_top else 0

    def shown(edge: int) -> str:
        return text[edge:] if is_top else text[:edge]

    def n_shown(edge: int) -> int:
        return len(shown(edge).encode())

    if n_shown(0 if is_top else len(text)) <= n_tokens and not is_truncated:
        return text
    n_most = min(n_tokens, len(text.encode()))
    fitting = [edge for edge in range(len(text) + 1) if n_shown(edge) <= n_most]
    lines = [edge for edge in fitting if edge == 0 or text[edge - 1] == "\n"]
    if not is_top:
        lines = [edge for edge in lines if edge > 0]
    of_lines = [edge for edge in lines if 4 * n_shown(edge) >= 3 * n_most]
    if of_lines == [0]:
        of_lines = []  # it may begin inside a line
    inside = [edge for edge in fitting if 4 * n_shown(edge) >= 3 * n_most]
    inside = inside or [max(fitting, key=n_shown)]

    def near(edge: int) -> str:
        return text[edge : edge + 64] if is_top else text[max(edge - 64, 0) : edge]

    return shown(slow_edge(of_lines or inside, near, first))


@given(TEXTS, SIZES, st.booleans())
def test_w2_w3_w4_w5_trimmed_windows_are_those_of_the_oracle(
    text: str, n_tokens: int, truncated: bool
) -> None:
    toy = ToyTokenizer()
    text = lf(text)
    window = encode_window(Window(text, 10, truncated=truncated), toy.encode)
    prefix = trim_prefix(window, n_tokens, toy.encode, toy.vocabulary)
    suffix = trim_suffix(window, n_tokens, toy.encode, toy.vocabulary)
    assert prefix.window.text == slow_trim(text, n_tokens, truncated, is_top=True)
    assert suffix.window.text == slow_trim(text, n_tokens, truncated, is_top=False)


@given(TEXTS, TEXTS, SIZES, SIZES)
def test_w5_trimming_shows_of_what_clipping_does_three_quarters_with_offsets_and_all(
    prefix: str, suffix: str, n_prefix: int, n_suffix: int
) -> None:
    """For text without CR a byte is a token, so what is left must agree in every field."""
    toy = ToyTokenizer()
    prefix, suffix = prefix.replace("\r", ""), suffix.replace("\r", "")
    whole = cursor_windows(prefix, suffix, 1000)
    before = encode_window(whole.prefix, toy.encode)
    after = encode_window(whole.suffix, toy.encode)
    clipped_before = cursor_windows(prefix, "", n_prefix).prefix
    clipped_after = cursor_windows(prefix, suffix, n_suffix).suffix
    above = trim_prefix(before, n_prefix, toy.encode, toy.vocabulary).window
    below = trim_suffix(after, n_suffix, toy.encode, toy.vocabulary).window
    n_above = len(whole.prefix.text) - len(above.text)
    assert above == (whole.prefix.tail(n_above) if n_above else whole.prefix)
    assert below in (whole.suffix.head(len(below.text)), whole.suffix)
    # A character of the toy's has four tokens at most.
    assert 4 * len(above.text.encode()) >= 3 * len(clipped_before.text.encode()) - 12
    assert 4 * len(below.text.encode()) >= 3 * len(clipped_after.text.encode()) - 12


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
@example("a\naéé", 7)
def test_w3_w4_a_space_read_before_the_whole_text_costs_no_line_of_it(
    text: str, n_tokens: int
) -> None:
    toy = ToyTokenizer()
    text = lf(text)
    opening = EncodedWindow(Window(text, 10), tuple(toy.encode(b" " + text.encode())))
    trimmed = trim_prefix(opening, n_tokens, toy.encode, toy.vocabulary)
    n_first = len(opening.ids)

    def fits(tail: str) -> bool:
        return (n_first if tail == text != "" else len(tail.encode())) <= n_tokens

    most = slow_prefix(text, fits)
    # Where whole lines fill less than three quarters of the room, it is cut inside one.
    is_cut_inside = 4 * len(most.encode()) < 3 * n_tokens
    assert most.endswith(trimmed.window.text) or is_cut_inside
    assert 4 * len(trimmed.window.text.encode()) >= 3 * len(most.encode()) - 12
    assert (trimmed == opening) == (most == text)
