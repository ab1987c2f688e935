from __future__ import annotations

import io
from dataclasses import replace

import pytest
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
    assert cell_len(line) <= 79 and line.startswith("0 running, 模型模型")
    assert line.endswith("…")


BUSY = replace(
    READY, model="qwen2.5-coder-1.5b", running=2, waiting=3, served=1234, tokens_per_s=41.2
)

ALL = (
    "qwen2.5-coder-1.5b on cpu, http://127.0.0.1:8012, "
    "2 running, 3 waiting, 41.2 tokens/s, 1234 served"
)


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (120, f"{ALL}; Ctrl-C stops"),
        (100, ALL),
        (80, "qwen2.5-coder-1.5b, http://127.0.0.1:8012, 2 running, 3 waiting, 41.2 tokens/s"),
        (60, "qwen2.5-coder-1.5b, 2 running, 3 waiting, 41.2 tokens/s"),
        (50, "2 running, 3 waiting, 41.2 tokens/s, qwen2.5-cod…"),
    ],
)
def test_what_changes_stays_in_a_narrow_terminal(
    columns: int, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StatusLine, "_columns", lambda self: columns)
    assert shown(BUSY) == line and len(line) < columns


def test_a_terminal_of_80_columns_shows_all_of_an_idle_server() -> None:
    line = shown(replace(BUSY, running=0, waiting=0))
    assert line == "qwen2.5-coder-1.5b on cpu, http://127.0.0.1:8012, 0 running, 41.2 tokens/s"


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
