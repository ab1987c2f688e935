from __future__ import annotations

import io
from dataclasses import replace

from rich.cells import cell_len

from suture.server.news import News
from suture.server.terminal import StatusLine

READY = News("ready", "toy", "cpu", "http://127.0.0.1:8012")


class Gone(io.StringIO):
    """A terminal that was closed."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def shown(news: News) -> str:
    stream = io.StringIO()
    StatusLine(stream).show(news)
    return stream.getvalue().rpartition("\x1b[K")[2]


def test_a_models_name_cannot_write_on_the_terminal() -> None:
    assert shown(replace(READY, model="a\x1b[2Jb\nc")).startswith("a?[2Jb?c on cpu, ")


def test_wide_characters_count_for_the_cells_that_they_take() -> None:
    line = shown(replace(READY, model="模型" * 40))
    assert cell_len(line) <= 79 and line.startswith("模型模型") and line.endswith("…")


def test_what_is_said_goes_above_the_line_that_is_shown() -> None:
    stream = io.StringIO()
    line = StatusLine(stream)
    line.show(READY)
    line.say("something")
    above, below = stream.getvalue().rsplit("\n", 1)
    assert above.endswith("\r\x1b[Ksomething") and below.startswith("toy on cpu, ")
    line.close()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_once_it_stops_news_are_no_longer_shown() -> None:
    stream = io.StringIO()
    line = StatusLine(stream)
    line.show_stopping()
    before = stream.getvalue()
    line.show(READY)
    assert stream.getvalue() == before and "stopping" in before


def test_a_terminal_that_is_gone_is_no_error() -> None:
    line = StatusLine(Gone())
    line.show(READY)
    line.say("something")
    line.close()
