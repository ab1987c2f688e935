"""What editors tell of suggestions, until it stands in the file that `suture stats` reads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.fake_completer import FakeCompleter, says
from support.http_server import serving
from support.lsp_client import (
    COPILOT_STYLE,
    GROWS,
    NEOVIM,
    URI,
    VSCODE,
    Editor,
    Json,
    editing_with_process,
    until,
)
from support.writing_completer import WritingCompleter
from suture.lsp.stats import stats_file
from suture.lsp.tally import Counts

BODY = "(a, b):\n    return a + b"
ALONE: Json = {"prefetch": False, "debounceMs": 0}


async def accepted(editor: Editor, item: Json) -> None:
    """Run the command of an item as editors do."""
    command = item["command"]
    params = {"command": command["command"], "arguments": command["arguments"]}
    await editor.request("workspace/executeCommand", params)


def kept(cache: Path) -> dict[str, Counts]:
    """What is kept of today, by language."""
    days = stats_file(cache).read()
    return next(iter(days.values())) if days else {}


async def edit(url: str, cache: Path, profile: Json, options: Json, names: tuple[str, str]) -> None:
    """See, type one character, accept one word and then all; and reject another one."""
    environ = {"SUTURE_CACHE": str(cache)}
    async with editing_with_process(url, profile, options, environ) as editor:
        editor.open("def add")
        (item,) = await editor.inline(0, 7)
        editor.notify(names[0], {"item": item})
        editor.type("(", 0, 7)
        (item,) = await editor.inline(0, 8)
        editor.notify(names[0], {"item": item})
        before = item["insertText"].index("a, b)")
        editor.notify(names[1], {"item": item, "acceptedLength": before + 2})
        editor.type("a,", 0, 8)
        (item,) = await editor.inline(0, 10)
        await accepted(editor, item)
        editor.open("x", "file:///b.py")
        (item,) = await editor.inline(0, 1, uri="file:///b.py")
        editor.notify("suture/didReject", {"item": item})
        await editor.command("status")


@pytest.mark.parametrize(
    ("profile", "names"),
    [
        (VSCODE, ("suture/didShow", "suture/didPartiallyAccept")),
        (NEOVIM, ("suture/didShow", "suture/didPartiallyAccept")),
        (
            COPILOT_STYLE,
            ("textDocument/didShowCompletion", "textDocument/didPartiallyAcceptCompletion"),
        ),
    ],
)
def test_each_client_has_each_suggestion_counted_once(
    profile: Json, names: tuple[str, str], tmp_path: Path
) -> None:
    with serving(FakeCompleter(says(BODY))) as url:
        asyncio.run(edit(url, tmp_path, profile, ALONE, names))
    # The bracket was typed.
    assert kept(tmp_path) == {"python": Counts(1, 1, 0, 1, len(BODY) - 1)}
    assert "add" not in (tmp_path / "stats.json").read_text()


@pytest.mark.parametrize("profile", [VSCODE, NEOVIM])
def test_a_text_on_an_empty_line_is_counted_as_it_is_shown(profile: Json, tmp_path: Path) -> None:
    async def edit(url: str) -> None:
        async with editing_with_process(url, profile, ALONE, {"SUTURE_CACHE": str(tmp_path)}) as ed:
            ed.open("\n")
            (item,) = await ed.inline(0, 0)
            ed.notify("suture/didShow", {"item": item})
            await accepted(ed, item)

    with serving(FakeCompleter(says("x = 1\n"))) as url:
        asyncio.run(edit(url))
    # VS Code would not show the line end.
    n_characters = 5 if profile is VSCODE else 6
    assert kept(tmp_path) == {"python": Counts(shown=1, accepted=1, characters=n_characters)}


def test_nothing_is_counted_where_the_user_wants_none(tmp_path: Path) -> None:
    names = ("suture/didShow", "suture/didPartiallyAccept")
    with serving(FakeCompleter(says(BODY))) as url:
        asyncio.run(edit(url, tmp_path, VSCODE, {**ALONE, "stats": False}, names))
    assert not (tmp_path / "stats.json").exists()


def test_what_was_counted_is_saved_while_the_editor_lives_and_events_may_be_anything(
    tmp_path: Path,
) -> None:
    async def tell(url: str) -> None:
        environ = {"SUTURE_CACHE": str(tmp_path)}
        async with editing_with_process(url, VSCODE, ALONE, environ) as editor:
            editor.open("def add")
            await editor.inline(0, 7)
            odd: list[Any] = [None, [], "x", {"item": 1}, {"item": {"command": []}}, {}]
            for params in odd:
                for event in ("didShow", "didPartiallyAccept", "didReject"):
                    editor.notify(f"suture/{event}", params)
            editor.notify("suture/didShow", {"textDocument": {"uri": URI, "version": 1}})
            for _ in range(600):
                if kept(tmp_path):
                    break
                await asyncio.sleep(0.05)
            assert kept(tmp_path) == {"python": Counts(shown=1)}
            assert await editor.command("accepted") is None
            assert await editor.command("accepted", {"number": 10**9}) is None

    with serving(FakeCompleter(says(BODY))) as url:
        asyncio.run(tell(url))


def test_a_text_whose_last_line_end_is_left_out_is_counted_too(tmp_path: Path) -> None:
    async def tell(url: str) -> None:
        environ = {"SUTURE_CACHE": str(tmp_path)}
        async with editing_with_process(url, VSCODE, ALONE, environ) as editor:
            editor.open("")
            (item,) = await editor.inline(0, 0)
            editor.notify("suture/didShow", {"item": item})
            await accepted(editor, item)
            assert item["insertText"] == "x = 1"

    with serving(FakeCompleter(says("x = 1\n"))) as url:
        asyncio.run(tell(url))
    assert kept(tmp_path) == {"python": Counts(shown=1, accepted=1, characters=5)}


@pytest.mark.parametrize("accepts_early", [True, False])
def test_a_text_that_has_grown_is_one_that_was_shown_and_all_of_it_counts(
    accepts_early: bool, tmp_path: Path
) -> None:
    completer = WritingCompleter(text=f"def add{BODY}", n_free=3)
    completer.may_go_on.clear()

    async def tell(url: str) -> None:
        environ = {"SUTURE_CACHE": str(tmp_path)}
        async with editing_with_process(url, {**VSCODE, **GROWS}, ALONE, environ) as editor:
            editor.open("def add")
            (item,) = await editor.inline(0, 7)
            assert item["insertText"] == "def add(a, b):"
            editor.notify("suture/didShow", {"item": item})
            if accepts_early:
                await accepted(editor, item)
                editor.type("(a, b):", 0, 7)
            completer.may_go_on.set()
            if not accepts_early:
                await until(lambda: any(one["method"] == "suture/didGrow" for one in editor.told))
            (item,) = await editor.inline(0, 14 if accepts_early else 7)
            assert item["insertText"] == f"def add{BODY}"
            editor.notify("suture/didShow", {"item": item})
            await accepted(editor, item)

    with serving(completer) as url:
        asyncio.run(tell(url))
    assert kept(tmp_path) == {"python": Counts(shown=1, accepted=1, characters=len(BODY))}
    assert len(completer.requests) == 1
