"""The file of counts: several writers, a bound, and nothing that is no number."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings

from support.json_values import JSON
from suture.lsp.counting import Counting
from suture.lsp.stats import MAX_DAYS, MAX_LANGUAGES, OTHER, Stats, stats_file
from suture.lsp.tally import Counts
from suture.server import cli

DAY = "2026-05-01"
ADDS = """
import sys
from pathlib import Path
from suture.lsp.stats import Stats
from suture.lsp.tally import Counts
for n in range(25):
    Stats(Path(sys.argv[1])).add({("2026-05-01", "python"): Counts(shown=1)})
"""


@pytest.fixture
def stats(tmp_path: Path) -> Stats:
    return Stats(tmp_path / "made" / "stats.json")


def test_what_is_added_is_read(stats: Stats) -> None:
    assert stats.read() == {}
    stats.add({(DAY, "python"): Counts(2, 1, 0, 1, 40), (DAY, "go"): Counts(1)})
    stats.add({(DAY, "python"): Counts(shown=1)})
    assert stats.read() == {DAY: {"python": Counts(3, 1, 0, 1, 40), "go": Counts(1)}}
    mode = stat.S_IMODE(os.stat(stats.path).st_mode)
    assert mode == 0o600
    stats.forget()
    assert stats.read() == {} and not stats.path.exists()
    stats.forget()


def test_f1_several_processes_lose_nothing(stats: Stats) -> None:
    command = [sys.executable, "-c", ADDS, str(stats.path)]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert stats.read() == {DAY: {"python": Counts(shown=75)}}
    # Nothing is left of what was written beside it.
    assert {path.name for path in stats.path.parent.iterdir()} <= {"stats.json", "stats.lock"}


def test_f2_what_makes_no_sense_counts_as_none(stats: Stats) -> None:
    stats.path.parent.mkdir()
    for content in (b"", b"{", b"[]", b'{"days": []}', b"\xff", b'{"days": {"x": {}}}'):
        stats.path.write_bytes(content)
        assert stats.read() == {}
    stats.add({(DAY, "python"): Counts(shown=1)})
    assert stats.read() == {DAY: {"python": Counts(shown=1)}}


def test_f2_a_file_that_cannot_be_read_now_is_left_as_it_is_and_its_command_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stats = stats_file(tmp_path / "cache")
    stats.add({(DAY, "python"): Counts(shown=1)})
    counting = Counting(lambda: stats)
    counting.tally.give_back({(DAY, "go"): Counts(shown=2)})
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", _fail)
        with pytest.raises(OSError, match="Input/output error"):
            stats.add({(DAY, "python"): Counts(shown=1)})
        counting.save()
        assert cli.main(["stats"]) == 2
        assert "Input/output error" in capsys.readouterr().err
    assert stats.read() == {DAY: {"python": Counts(shown=1)}}
    # What was counted meanwhile is not lost, either.
    counting.save()
    assert stats.read() == {DAY: {"python": Counts(shown=1), "go": Counts(shown=2)}}


def _fail(path: Path, encoding: str) -> str:
    raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))


def test_a_part_that_was_forgotten_before_it_became_a_whole_is_not_taken_back(stats: Stats) -> None:
    stats.add({(DAY, "python"): Counts(partly_accepted=1, characters=2)})
    stats.forget()
    stats.add({(DAY, "python"): Counts(accepted=1, partly_accepted=-1, characters=5)})
    assert stats.read() == {DAY: {"python": Counts(accepted=1, characters=5)}}


@given(JSON)
@hypothesis_settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_f2_nothing_that_stands_there_raises(stats: Stats, value: Any) -> None:
    stats.path.parent.mkdir(exist_ok=True)
    for told in (value, {"days": {DAY: value}}, {"days": {DAY: {"go": value}}}):
        stats.path.write_text(json.dumps(told))
        stats.read()


def test_f3_old_days_and_languages_without_number_are_left_out(stats: Stats) -> None:
    start = date(2024, 1, 1)
    days = [(start + timedelta(days=n)).isoformat() for n in range(MAX_DAYS + 5)]
    stats.add({(day, "python"): Counts(shown=1) for day in days})
    assert list(stats.read()) == days[5:]
    stats.add({(days[-1], f"language-{n}"): Counts(shown=1) for n in range(MAX_LANGUAGES + 5)})
    languages = stats.read()[days[-1]]
    assert len(languages) <= MAX_LANGUAGES + 1
    assert languages[OTHER].shown == 6
    full = stats.path.stat().st_size
    assert full < 2**18


def test_f3_what_is_no_name_of_a_language_is_not_written(stats: Stats) -> None:
    stats.add({(DAY, "/home/me/secret plan.txt"): Counts(shown=1), (DAY, ""): Counts(shown=1)})
    assert stats.read() == {DAY: {OTHER: Counts(shown=2)}}
    assert "secret" not in stats.path.read_text()


def test_the_command_says_what_came_of_suggestions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stats = stats_file(tmp_path / "cache")
    today, before = date.today().isoformat(), (date.today() - timedelta(days=1)).isoformat()
    long_ago = (date.today() - timedelta(days=40)).isoformat()
    stats.add(
        {
            (today, "python"): Counts(8, 2, 1, 3, 120),
            (before, "go"): Counts(accepted=1, characters=7),
            (long_ago, "rust"): Counts(shown=9),
        }
    )
    assert cli.main(["stats"]) == 0
    told = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert told[0] == ["shown", "accepted", "in", "part", "rejected", "characters", "rate"]
    assert told[1:] == [
        ["python", "8", "2", "1", "3", "120", "38%"],
        ["go", "0", "1", "0", "0", "7", "-"],
        ["all", "8", "3", "1", "3", "127", "50%"],
    ]
    assert cli.main(["stats", "--days", "1", "--json"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["total"] == read["languages"]["python"] == read["days"][today]
    assert read["total"]["rate"] == 0.375 and list(read["days"]) == [today]


def test_the_command_forgets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stats = stats_file(tmp_path / "cache")
    assert cli.main(["stats", "--forget"]) == 0
    stats.add({(DAY, "python"): Counts(shown=1)})
    assert cli.main(["stats", "--forget"]) == 0
    assert stats.read() == {}
    assert cli.main(["stats"]) == 0
    assert capsys.readouterr().out == "Nothing was counted in the last 30 days.\n"


@pytest.mark.parametrize("days", ["0", "x", "401", "1.5", "-1"])
def test_days_that_are_none_are_refused(days: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["stats", "--days", days]) == 2
    told = capsys.readouterr().err
    assert "argument --days: must be" in told and "_days" not in told
