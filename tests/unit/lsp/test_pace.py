"""Whether who has a first line waits for the rest."""

from __future__ import annotations

import pytest

from suture.lsp.pace import SOON_MS, Pace


def wrote(ms_a_piece: float, n_behind: int) -> Pace:
    """The pace of an engine that wrote some texts so."""
    pace = Pace()
    for _ in range(20):
        for _ in range(n_behind):
            pace.came(ms_a_piece)
        pace.ended(n_behind)
    return pace


@pytest.mark.parametrize(("ms_a_piece", "n_behind"), [(2.0, 50), (5.0, 30), (20.0, 8)])
def test_what_comes_soon_is_waited_for_until_one_would_notice(
    ms_a_piece: float, n_behind: int
) -> None:
    pace = wrote(ms_a_piece, n_behind)
    assert pace.patience_ms(50.0) == SOON_MS - 50.0


@pytest.mark.parametrize(("ms_a_piece", "n_behind"), [(20.0, 50), (100.0, 10)])
def test_what_takes_long_is_not_waited_for(ms_a_piece: float, n_behind: int) -> None:
    pace = wrote(ms_a_piece, n_behind)
    assert pace.patience_ms(50.0) < 20.0 and pace.patience_ms(2000.0) <= 300.0


def test_who_has_waited_long_waits_a_little_longer_for_all() -> None:
    pace = wrote(2.0, 50)
    assert pace.patience_ms(1000.0) == 150.0
    assert pace.patience_ms(400.0) < 20.0


def test_an_engine_is_taken_for_quick_and_known_to_be_slow_within_a_line() -> None:
    pace = Pace()
    assert pace.patience_ms(50.0) == SOON_MS - 50.0
    for _ in range(8):
        pace.came(40.0)
    assert pace.patience_ms(50.0) < 20.0
