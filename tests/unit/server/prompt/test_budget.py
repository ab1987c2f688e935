from __future__ import annotations

import math

import pytest

from suture.server.errors import SetupError
from suture.server.prompt.budget import PromptBudget, extra_room, share_room


@pytest.mark.parametrize(
    ("speed", "room"),
    [(1, 192), (65, 192), (135, 192), (136, 271), (192, 384), (271, 384), (272, 543), (768, 1536)],
)
def test_latency_room_goes_in_steps_of_the_root_of_two(speed: float, room: int) -> None:
    assert PromptBudget(32768, speed).prompt_room(128, "latency") == room


def test_g2_noise_in_the_measured_speed_does_not_change_the_room() -> None:
    rooms = {PromptBudget(8192, speed).prompt_room(128, "latency") for speed in range(272, 384)}
    assert rooms == {543}


def test_a_shorter_wait_gives_a_smaller_room() -> None:
    assert PromptBudget(8192, 1000, first_text_ms=500).prompt_room(64, "latency") == 384


def test_latency_room_is_bounded_by_the_context() -> None:
    assert PromptBudget(512, 1e6).prompt_room(128, "latency") == 512 - 128 - 64


def test_context_room_is_what_output_and_healing_leave() -> None:
    assert PromptBudget(4096, 65).prompt_room(1000, "context") == 4096 - 1000 - 64


def test_g1_a_huge_output_leaves_the_prompt_half_of_the_context() -> None:
    assert PromptBudget(4096, 65).prompt_room(10_000_000, "context") == 2048


def test_g1_output_is_cut_to_what_fits() -> None:
    budget = PromptBudget(4096, 65)
    assert budget.output_room(10_000_000, 96, 0) == 4000
    assert budget.output_room(10_000_000, 96, 10) == 3990
    assert budget.output_room(128, 96, 10) == 128
    assert budget.output_room(0, 96, 10) == 0


def test_a_long_tail_to_heal_leaves_a_token_of_output() -> None:
    assert PromptBudget(64, 65).output_room(16, 40, 60) == 1


@pytest.mark.parametrize("n_ctx", [0, -1, 63])
def test_a_context_too_small_for_a_prompt_is_a_setup_error(n_ctx: int) -> None:
    with pytest.raises(SetupError, match=f"a context of {n_ctx} tokens is too small"):
        PromptBudget(n_ctx, 65)


@pytest.mark.parametrize("speed", [0.0, -1.0, math.inf, math.nan])
def test_what_is_no_speed_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="not a speed"):
        PromptBudget(4096, speed)


def test_prefix_and_suffix_share_three_to_one() -> None:
    assert share_room(128, 1000, 1000) == (96, 32)


def test_what_fits_is_left_whole() -> None:
    assert share_room(128, 120, 8) == (120, 8)
    assert share_room(128, 8, 120) == (8, 120)


def test_what_one_side_does_not_need_goes_to_the_other_in_whole_grains() -> None:
    assert share_room(128, 1000, 0) == (128, 0)
    assert share_room(128, 1000, 10) == (112, 10)
    assert share_room(128, 10, 1000) == (10, 112)
    assert share_room(128, 15, 1000) == (15, 112)
    assert share_room(128, 17, 1000) == (17, 96)


def test_extra_gets_a_quarter_at_most_and_nothing_where_nothing_is_left() -> None:
    assert extra_room(128, 20) == 32
    assert extra_room(128, 110) == 16
    assert extra_room(128, 120) == 0
    assert extra_room(128, 128) == 0
