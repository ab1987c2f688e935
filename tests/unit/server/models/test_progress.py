from __future__ import annotations

import io

import pytest

from suture.server.models.progress import Bar, PlainLines, progress_on
from suture.server.models.source import Meter, Stopped


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_come_at_most_every_few_seconds_and_at_the_end() -> None:
    now = 0.0
    stream = io.StringIO()
    progress = PlainLines(stream, every_s=5.0, clock=lambda: now)
    progress.message("tiny: pulling")
    progress.start(10_000_000)
    for _ in range(10):
        now += 1.0
        progress.advance(1_000_000)
    progress.finish()
    assert stream.getvalue().splitlines() == [
        "tiny: pulling",
        "5.0 MB of 10.0 MB (50 %)",
        "10.0 MB of 10.0 MB (100 %)",
    ]


def test_plain_lines_without_a_total_tell_the_amount() -> None:
    stream = io.StringIO()
    progress = PlainLines(stream)
    progress.start(None)
    progress.advance(2_500_000)
    progress.finish()
    progress.finish()
    assert stream.getvalue() == "2.5 MB\n"


def test_a_terminal_gets_a_bar_and_a_pipe_gets_lines() -> None:
    assert isinstance(progress_on(io.StringIO()), PlainLines)
    assert isinstance(progress_on(Terminal()), Bar)


def test_the_bar_shows_messages_and_amount() -> None:
    stream = Terminal()
    bar = Bar(stream)
    bar.message("tiny: pulling pypi:tiny[1]")
    bar.start(10_000_000)
    bar.start(20_000_000)
    bar.advance(20_000_000)
    bar.finish()
    bar.finish()
    assert "tiny: pulling pypi:tiny[1]" in stream.getvalue()
    assert "20.0/20.0 MB" in stream.getvalue()


def test_a_meter_never_counts_past_the_total() -> None:
    stream = io.StringIO()
    progress = PlainLines(stream, every_s=0.0)
    meter = Meter(progress, 1_000_000)
    meter.advance(900_000)
    meter.advance(900_000)
    assert stream.getvalue().splitlines()[-1] == "1.0 MB of 1.0 MB (100 %)"


def test_a_stopped_meter_stops_its_workers() -> None:
    meter = Meter(PlainLines(io.StringIO()), None)
    meter.stop()
    with pytest.raises(Stopped):
        meter.advance(1)
