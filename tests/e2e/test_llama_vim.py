"""The real llama.vim, unmodified, in a real Neovim against our server.

Runs where LLAMA_VIM_DIR names a checkout of ggml-org/llama.vim and there are Neovim and curl; it
says so where it does not. What it sends is compared with the recording that
`tests/integration/test_client_requests.py` replays everywhere.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.client_requests import recorded_body
from support.fake_completer import FakeCompleter, says
from support.http_server import serving_app, settings
from support.neovim import HAS_NEOVIM, Editor, editing
from support.recorded import Recorded
from suture.server.app import create_app
from suture.server.request import (
    CompletionChunk,
    CompletionResult,
    ExtraText,
    PromptReport,
    Timings,
)

PLUGIN = os.environ.get("LLAMA_VIM_DIR", "")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        not (PLUGIN and HAS_NEOVIM), reason="LLAMA_VIM_DIR is not set, or no nvim, pynvim or curl"
    ),
]

TEXT = "def area(width, height):\n    return \n\n\nprint(area(2, 3))\n"
OTHER = "class Unit:\n    metre = 1.0\n    inch = 0.0254\n    yard = 0.9144\n"


def vim(folder: Path, **config: object) -> AbstractContextManager[Editor]:
    """An editor with the plugin, set up as it is by itself but for `config`."""
    given = [f"let g:llama_config = json_decode('{json.dumps(config)}')"] if config else []
    return editing(folder, PLUGIN, "vt_fim", given)


@contextmanager
def session(
    folder: Path, completer: FakeCompleter, flags: dict[str, object] | None = None, **config: object
) -> Iterator[tuple[Editor, Recorded]]:
    """A file in an editor whose plugin asks our server, and what it sends."""
    (folder / "shapes.py").write_text(TEXT)
    at = settings(**flags or {})
    served = Recorded(create_app(completer, at))
    with (
        serving_app(served, at) as url,
        vim(folder, endpoint_fim=f"{url}/infill", **config) as editor,
    ):
        yield editor, served


def test_our_address_is_where_it_asks_by_itself(tmp_path: Path) -> None:
    ours = settings()
    with vim(tmp_path) as editor:
        endpoint = editor.nvim.eval("g:llama_config.endpoint_fim")
    assert endpoint == f"http://{ours.host}:{ours.port}/infill"


@pytest.mark.parametrize(
    ("keys", "lines"),
    [
        ("<Tab>", ["    return width * height", "    # done"]),
        ("<S-Tab>", ["    return width * height", ""]),
        ("\\ll]", ["    return width", ""]),
    ],
)
def test_the_answer_is_shown_and_taken_whole_or_by_line_or_word(
    tmp_path: Path, keys: str, lines: list[str]
) -> None:
    completer = FakeCompleter(says("width * ", "height\n    # done"))
    with session(tmp_path, completer) as (editor, _):
        editor.nvim.command("edit shapes.py")
        editor.type("jA")
        editor.until(lambda: bool(editor.ghost["shown"]))
        assert editor.ghost["shown"] == "width * height"
        assert editor.ghost["below"] == ["    # done"]
        editor.type(keys)
        editor.until(lambda: editor.lines[1:3] == lines)
        assert "failed" not in editor.messages and "Error" not in editor.messages
    request = next(one for one in completer.requests if one.max_tokens)  # not the warming
    assert request.prefix + request.suffix == TEXT
    assert (request.infill, request.max_tokens, request.deadline_ms) == (True, 128, 250)


def test_what_is_typed_of_it_leaves_the_rest_shown(tmp_path: Path) -> None:
    with session(tmp_path, FakeCompleter(says("width * height"))) as (editor, _):
        editor.nvim.command("edit shapes.py")
        editor.type("jA")
        editor.until(lambda: editor.ghost["shown"] == "width * height")
        editor.type("wi")
        editor.until(lambda: editor.ghost["shown"] == "dth * height")


def test_it_asks_ahead_for_what_follows_the_text_that_is_shown(tmp_path: Path) -> None:
    completer = FakeCompleter(says("width * height"))
    with session(tmp_path, completer) as (editor, served):
        editor.nvim.command("edit shapes.py")
        editor.type("jA")
        ahead = served.wait_for(lambda body: "height" in body["prompt"])
    assert ahead["prompt"] == "    return width * height"
    assert (ahead["t_max_predict_ms"], ahead["n_predict"]) == (1000, 128)
    prefixes = [one.prefix for one in completer.requests]
    assert "def area(width, height):\n    return width * height" in prefixes
    assert_as_recorded("a key", served.wait_for(lambda body: body["n_predict"] > 0))
    assert_as_recorded("ahead", ahead)


def test_it_shows_the_tokens_and_times_that_we_say(tmp_path: Path) -> None:
    end = CompletionResult(
        "eos",
        completion_tokens=8,
        prompt=PromptReport(60, 40, 20, "anchor"),
        timings=Timings(prompt_ms=50.0, predicted_ms=160.5),
    )
    said = says("width", finish=CompletionChunk("", result=end))
    with session(tmp_path, FakeCompleter(said)) as (editor, _):
        editor.nvim.command("edit shapes.py")
        editor.type("jA")
        editor.until(lambda: bool(editor.ghost["info"]))
        info = editor.ghost["info"]
    assert re.search(r"\| c: 68, r: 0/16", info), info
    assert "p: 20 (50.00 ms, 400.00 t/s)" in info
    assert "g: 8 (160.50 ms, 49.84 t/s)" in info


def test_chunks_of_other_files_are_warmed_and_come_along(tmp_path: Path) -> None:
    completer = FakeCompleter(says("width"))
    (tmp_path / "units.py").write_text(OTHER)
    with session(tmp_path, completer, ring_update_ms=200) as (editor, served):
        editor.nvim.command("edit units.py")
        editor.nvim.command("sleep 300m")  # it looks at a file a while after it was entered
        editor.nvim.command("edit shapes.py")
        warming = served.wait_for(lambda body: body["n_predict"] == 0)
        editor.type("jA")
        asked = served.wait_for(lambda body: body["n_predict"] > 0)
        editor.until(lambda: editor.ghost["shown"] == "width")
    assert [chunk["text"] for chunk in asked["input_extra"]] == [OTHER]
    extra = (ExtraText(OTHER, "units.py"),)
    by_length = {request.max_tokens: request for request in completer.requests}
    assert by_length[0].extra == by_length[128].extra == extra
    # The plugin says 1 ms, and means that it does not wait.
    assert by_length[0].prompt_deadline_ms is None
    assert_as_recorded("warming", warming)
    assert_as_recorded("with another file", asked)


def test_it_sends_its_key(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    completer = FakeCompleter(says("width"))
    flags: dict[str, object] = {"api_key_file": str(keys)}
    with session(tmp_path, completer, flags, api_key="secret") as (editor, _):
        editor.nvim.command("edit shapes.py")
        editor.type("jA")
        editor.until(lambda: editor.ghost["shown"] == "width")


def assert_as_recorded(name: str, body: Any) -> None:
    """The recording is of this plugin: all is the same but the times of its chunks."""
    assert _timeless(body) == _timeless(recorded_body("llama_vim", name))


def _timeless(body: Any) -> Any:
    return body | {"input_extra": [chunk | {"time": None} for chunk in body["input_extra"]]}
