from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from support.fake_completer import FakeCompleter
from suture.server.counters import Counters, Measured, RequestCounters
from suture.server.news import News, read_news
from suture.server.one_model import OneModel
from suture.server.reporter import Reporter
from suture.server.terminal import describe

URL = "http://127.0.0.1:8012"
READY = News("ready", "toy", "cpu", URL)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def told(read_end: int) -> list[News]:
    """What stands in the pipe, of which the other end is open still."""
    os.set_blocking(read_end, False)
    with open(read_end, "rb", closefd=False) as lines:
        return list(read_news(lines))


def test_only_what_is_new_is_told(pipe: tuple[int, int]) -> None:
    completer = FakeCompleter()
    reporter = Reporter(pipe[1], OneModel(completer), URL)
    reporter.tell_loading(0.2)
    reporter.tell_loading(0.9)
    reporter.tell_loading(1.1)
    reporter.tell_ready()
    reporter.tell_ready()
    completer.counted = Measured(running=2, waiting=1, preparing=1)
    reporter.tell_ready()
    loading = replace(READY, state="loading")
    busy = replace(READY, running=2, waiting=2)
    assert told(pipe[0]) == [loading, replace(loading, loading_s=1), READY, busy]


def test_the_speed_is_that_of_the_texts_that_ended_last(pipe: tuple[int, int]) -> None:
    counters = Counters()
    completer = FakeCompleter(counted=Measured(counters, RequestCounters(continued=2)))
    reporter = Reporter(pipe[1], OneModel(completer), URL)
    for tokens, seconds, n_ended in ((0, 0.0, 0), (30, 1.5, 1), (30, 1.5, 1), (35, 2.0, 2)):
        counters.generated_tokens, counters.predicted_seconds = tokens, seconds
        counters.finishes["eos"] = n_ended
        reporter.tell_ready()
    assert [(news.served, news.tokens_per_s) for news in told(pipe[0])] == [
        (2, 0.0),
        (3, 20.0),
        (4, 10.0),
    ]


def test_a_parent_that_does_not_read_is_not_waited_for(pipe: tuple[int, int]) -> None:
    completer = FakeCompleter()
    reporter = Reporter(pipe[1], OneModel(completer), URL)
    for waiting in range(2000):
        completer.counted = Measured(waiting=waiting)
        reporter.tell_ready()
    assert [news.waiting for news in told(pipe[0])[:3]] == [0, 1, 2]


def test_a_parent_that_is_gone_is_no_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    Reporter(write_end, OneModel(FakeCompleter()), URL).tell_ready()
    os.close(write_end)


def test_the_line_says_what_there_is() -> None:
    assert describe(replace(READY, state="loading", loading_s=3))[0] == "loading toy, 3 s"
    busy = replace(READY, running=3, waiting=2, served=210, tokens_per_s=12.1)
    assert describe(busy)[0] == (
        f"toy on cpu, {URL}, 3 running, 2 waiting, 12.1 tokens/s, 210 served; Ctrl-C stops"
    )
