"""Options as editors send them: what does not fit is told, and changes nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from support.json_values import JSON
from suture.lsp.settings import Options, read_options


def test_all_options_are_read_by_the_names_that_editors_use() -> None:
    options, complaints = read_options(
        {
            "healing": "recursive",
            "giveBack": 2,
            "layout": "anchor",
            "server": {"url": "http://box:1/", "autostart": False, "idleMinutes": 5},
            "enable": False,
            "languages": {"markdown": False},
            "debounceMs": 20,
            "multiline": False,
            "maxTokens": 8,
            "context": {"openFiles": False, "maxChunks": 3},
            "exclude": ["*.csv"],
            "anotherEditors": 1,
        }
    )
    assert complaints == []
    assert (options.healing, options.give_back, options.layout) == ("recursive", 2, "anchor")
    assert options.server.url == "http://box:1" and not options.server.autostart
    assert (options.server.idle_minutes, options.enable) == (5, False)
    assert (options.debounce_ms, options.multiline, options.max_tokens) == (20, False, 8)
    assert (options.context.open_files, options.context.max_chunks) == (False, 3)
    assert options.exclude == ("*.csv",) and options.languages == {"markdown": False}


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        ({"maxTokens": "many"}, "suture.maxTokens: must be a whole number"),
        ({"maxTokens": True}, "suture.maxTokens: must be a whole number"),
        ({"server": {"url": "box"}}, "suture.server.url: must begin with http:// or https://"),
        ({"server": 3}, "suture.server: must be an object"),
        ({"languages": {"a": 1}}, "suture.languages: must be true or false"),
        ({"exclude": [1]}, "suture.exclude: must be a string"),
    ],
)
def test_a_value_that_does_not_fit_is_told_and_left_out(
    raw: dict[str, Any], complaint: str
) -> None:
    options, complaints = read_options({"multiline": False} | raw)
    assert complaints == [complaint]
    assert options == Options(multiline=False)


@pytest.mark.parametrize("raw", [None, {}, {"maxTokens": None, "server": {"url": None}}])
def test_nothing_and_null_are_the_defaults(raw: object) -> None:
    assert read_options(raw) == (Options(), [])


@given(JSON)
def test_any_json_gives_options(raw: object) -> None:
    read_options(raw)
    read_options({"debounceMs": raw, "server": {"url": raw, "apiKeyFile": raw}, "giveBack": raw})
