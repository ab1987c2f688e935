"""Windows whose far edges move in steps, so that what stands behind them stays in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.toy_tokenizer import QWEN_CONTROLS, ToyTokenizer
from suture.server.prompt import plan as planning
from suture.server.prompt.anchors import Anchors
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.families import detect_family
from suture.server.prompt.plan import PromptPlan, plan_prompt
from suture.server.prompt.sent_texts import MAX_REMEMBERED, SentTexts
from suture.server.prompt.windows import Window, encode_window, trim_prefix, trim_suffix
from suture.server.request import CompletionRequest

TOY = ToyTokenizer((), QWEN_CONTROLS)
FAMILY = detect_family(TOY.vocabulary, "")
CODE = Path(planning.__file__).read_text(encoding="utf-8")
LINES = CODE.splitlines(keepends=True)
N_LINES, N_TOKENS = 200, 2400
MINIFIED = "".join(f"var a{n}=f({n * 7919 % 1000});" for n in range(2000))


def n_moves(edges: list[int]) -> int:
    return sum(a != b for a, b in pairwise(edges))


def top(text: str, n_tokens: int = N_TOKENS) -> int:
    """Where the prefix window of a text begins in it."""
    window = encode_window(Window(text, 0), TOY.encode)
    return len(text) - len(trim_prefix(window, n_tokens, TOY.encode, TOY.vocabulary).window.text)


def test_w5_the_edge_moves_seldom_while_one_types_200_lines() -> None:
    starts = range(80, 80 + N_LINES)
    edges = [top("".join(LINES[:n])) for n in starts]
    shown = [len("".join(LINES[:n])) - edge for n, edge in zip(starts, edges, strict=True)]

    assert all(3 * N_TOKENS // 4 <= n <= N_TOKENS for n in shown)
    n_chars = len("".join(LINES[80 : 80 + N_LINES]))
    # Of the lines in a quarter of the window, each that comes may be the one of the least hash.
    assert n_moves(edges) <= 2 * n_chars / (N_TOKENS / 4) + 5


def test_w5_the_edge_is_the_same_wherever_the_sent_text_begins() -> None:
    whole = "".join(LINES[:200])
    edge = top(whole)
    for first in range(200):
        sent = "".join(LINES[first:200])
        n_cut = len(whole) - len(sent)
        if n_cut <= len(whole) - N_TOKENS:
            assert n_cut + top(sent) == edge


@pytest.mark.parametrize("line", [MINIFIED, "0," * 10_000, "é🎉" * 4_000])
def test_w5_the_edge_in_one_long_line_moves_in_steps(line: str) -> None:
    ends = range(5000, 5000 + N_TOKENS, 41)
    edges = [top(line[:n]) for n in ends]

    assert all(len(line[edge:n].encode()) <= N_TOKENS for edge, n in zip(edges, ends, strict=True))
    n_bytes = len(line[ends[0] : ends[-1]].encode())
    assert n_moves(edges) <= 2 * n_bytes / (N_TOKENS / 4) + 5


def test_w5_the_edge_of_lines_that_are_alike_moves_in_steps() -> None:
    edges = [top("0, 0, 0,\n" * n) for n in range(300, 300 + N_LINES)]

    assert n_moves(edges) <= 2 * N_LINES * 9 / (N_TOKENS / 4) + 5


def test_w5_the_end_of_the_suffix_stays_while_its_room_shrinks() -> None:
    window = encode_window(Window(CODE, 0), TOY.encode)
    rooms = range(N_TOKENS, 3 * N_TOKENS // 4, -16)
    ends = [
        len(trim_suffix(window, room, TOY.encode, TOY.vocabulary).window.text) for room in rooms
    ]

    assert all(3 * room // 4 <= end <= room for room, end in zip(rooms, ends, strict=True))
    assert n_moves(ends) <= 8


def planned(
    prefix: str, suffix: str, anchors: Anchors, layout: Literal["psm", "spm", "anchor"]
) -> PromptPlan:
    request = CompletionRequest(prefix, suffix, infill=True, layout=layout, max_tokens=16)
    budget = PromptBudget(16_000, prefill_tokens_per_s=1000, first_text_ms=8000)
    return plan_prompt(request, TOY.vocabulary, FAMILY, TOY.encode, budget, anchors)


def typed_down(n_above: int) -> Iterator[str]:
    """What a client sends that shows so many lines above the cursor, at the end of each line."""
    for n in range(80, 80 + N_LINES):
        yield "".join(LINES[max(n - n_above, 0) : n]) + LINES[n].rstrip("\n")


def new_tokens(plans: list[PromptPlan]) -> float:
    """Of all tokens the share that does not stand at the same place in the prompt before."""
    n_new = n_all = 0
    for before, after in pairwise(plans):
        n_all += len(after.kept_ids)
        pairs = zip(before.kept_ids, after.kept_ids, strict=False)
        n_same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        n_new += len(after.kept_ids) - n_same
    return n_new / n_all


@pytest.mark.parametrize("layout", ["spm", "anchor"])
@pytest.mark.parametrize("n_above", [60, 10_000])
def test_w5_most_of_a_prompt_stays_from_line_to_line(
    layout: Literal["spm", "anchor"], n_above: int
) -> None:
    """Also where the client shows some lines only, as llama.vim does."""
    anchors = Anchors()
    plans = [
        planned(prefix, "\n" + "".join(LINES[-60:]), anchors, layout)
        for prefix in typed_down(n_above)
    ]

    assert new_tokens(plans) <= 0.2


def test_a_document_that_fits_is_shown_whole() -> None:
    anchors = Anchors()
    for n in range(1, 80):
        prefix = "".join(LINES[:n])
        plan = planned(prefix, "\n", anchors, "spm")
        assert plan.windows.prefix.text == prefix
        assert not plan.truncated


def test_a_text_that_lost_its_first_lines_is_known_to_be_clipped() -> None:
    sent = SentTexts()

    assert not sent.is_clipped("".join(LINES[10:60]))
    assert not sent.is_clipped("".join(LINES[10:60]) + "x = ")
    assert not sent.is_clipped("".join(LINES[11:61]))
    assert sent.is_clipped("".join(LINES[12:62]))
    assert sent.is_clipped("".join(LINES[12:62]) + "y")
    assert not sent.is_clipped(CODE)
    assert sent.is_clipped("".join(LINES[14:65]))


def test_one_deleted_line_is_no_clip_and_neither_are_two_where_the_text_then_grows() -> None:
    sent = SentTexts()
    for first in (0, 1, 1, 0, 1):
        # The line is deleted, and comes back, and is deleted again.
        assert not sent.is_clipped("".join(LINES[first:60]))
    assert sent.is_clipped("".join(LINES[2:60]))
    assert sent.is_clipped("".join(LINES[2:64]))
    assert not sent.is_clipped("".join(LINES[2:77]))
    assert not sent.is_clipped("".join(LINES[2:78]))


def test_a_clip_is_forgotten_where_the_text_begins_as_it_did_before() -> None:
    sent = SentTexts()
    assert [sent.is_clipped("".join(LINES[n : n + 50])) for n in (10, 11, 12, 13, 11, 12, 13)] == [
        False, False, True, True, False, False, True,
    ]  # fmt: skip


def test_what_one_client_clips_says_nothing_about_the_texts_of_another() -> None:
    sent = SentTexts()
    for n in range(10, 14):
        sent.is_clipped("".join(LINES[n : n + 50]), "one")

    assert not sent.is_clipped("".join(LINES[14:64]), "another")
    assert sent.is_clipped("".join(LINES[14:64]), "one")


def test_text_that_goes_on_left_to_right_is_what_the_client_says_it_is() -> None:
    anchors = Anchors()
    budget = PromptBudget(16_000, prefill_tokens_per_s=1000)
    for first in range(4):
        request = CompletionRequest("".join(LINES[first:40]))
        plan = plan_prompt(request, TOY.vocabulary, FAMILY, TOY.encode, budget, anchors)
        alone = plan_prompt(request, TOY.vocabulary, FAMILY, TOY.encode, budget, Anchors())
        assert plan == alone
        assert not plan.truncated


def test_another_text_or_a_short_one_is_not_known_to_be_clipped() -> None:
    sent = SentTexts()
    sent.is_clipped("".join(LINES[:60]))

    assert not sent.is_clipped("".join(LINES[1:3]))
    assert not sent.is_clipped("".join(LINES[100:160]))
    assert not sent.is_clipped("x = 1\n")


def test_a_file_that_begins_as_another_ones_middle_is_not_known_to_be_clipped() -> None:
    sent = SentTexts()
    sent.is_clipped("#!/usr/bin/python\n" + CODE)

    assert not sent.is_clipped("".join(LINES[:30]))


def test_the_texts_kept_are_bounded() -> None:
    sent = SentTexts()
    for n in range(2 * MAX_REMEMBERED):
        sent.is_clipped(f"{n}\n" * 100)

    assert len(sent._sent) == MAX_REMEMBERED


@given(st.text("ab \n", max_size=200), st.integers(0, 100))
def test_w5_at_least_three_quarters_of_what_fits_are_shown(text: str, n_tokens: int) -> None:
    edge = top(text, n_tokens)
    line_starts = [at for at in range(len(text) + 1) if at == 0 or text[at - 1] == "\n"]
    most = min((at for at in line_starts if len(text) - at <= n_tokens), default=len(text))
    assert len(text) - edge <= n_tokens
    assert 4 * (len(text) - edge) >= 3 * (len(text) - most)
