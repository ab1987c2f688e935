"""Text of other files, from what an editor tells to what the server is asked."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.fake_completer import FakeCompleter, says
from support.http_server import serving, settings
from support.lsp_client import NEOVIM, VSCODE, Editor, Json, editing, until
from support.scripted_completer import VOCABULARY, scripted
from suture.lsp.context import other_files
from suture.server.engine.scripted import random_model
from suture.server.errors import QueueFull
from suture.server.request import CompletionChunk, CompletionRequest

ALONE: Json = {"prefetch": False, "debounceMs": 0}
SHAPES = "def area(w, h):\n    return w * h\n"
MAIN = "from shapes import area\nprint(area\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause is over soon."""
    monkeypatch.setattr(other_files, "QUIET_S", 0.05)
    monkeypatch.setattr(other_files, "PAUSE_S", 0.1)
    monkeypatch.setattr(other_files, "POLL_S", 0.01)


@dataclass
class Reader(FakeCompleter):
    """Reads ahead once it may; tells what was read and what was asked. One that is full refuses."""

    may_read: threading.Event = field(default_factory=threading.Event)
    n_left: int = 0
    is_full: bool = False

    @property
    def read(self) -> list[CompletionRequest]:
        return [
            one for one in self.requests if one.sampling.temperature == 0 and not one.max_tokens
        ]

    @property
    def asked(self) -> list[CompletionRequest]:
        return [one for one in self.requests if one.max_tokens]

    async def complete(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        if self.is_full:
            self.requests.append(request)
            raise QueueFull("full")
        if request.max_tokens:
            async for chunk in super().complete(request):
                yield chunk
            return
        self.requests.append(request)
        try:
            while not self.may_read.is_set():
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            self.n_left += 1
            raise
        yield self.script[-1]  # type: ignore[misc]


def free() -> Reader:
    reader = Reader(says("(1, 2))"))
    reader.may_read.set()
    return reader


def at(root: Path, profile: Json = VSCODE) -> Json:
    """An editor with this folder open."""
    return {**profile, "workspaceFolders": [{"uri": root.as_uri(), "name": root.name}]}


def names(request: CompletionRequest) -> list[str | None]:
    return [chunk.path for chunk in request.extra]


@pytest.mark.parametrize("profile", [VSCODE, NEOVIM])
def test_imported_and_open_files_are_read_ahead_and_then_sent(
    tmp_path: Path, profile: Json
) -> None:
    completer = free()
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "shapes.py").write_text(SHAPES)
    main, tools = (tmp_path / "app" / name for name in ("main.py", "tools.py"))

    async def edit(url: str) -> None:
        async with editing(url, at(tmp_path, profile), ALONE) as editor:
            editor.open("def tool(x):\r\n    return x\r\n", tools.as_uri())
            editor.open(MAIN, main.as_uri())
            await until(lambda: bool(completer.read))
            await until_sent(editor, main.as_uri(), completer)
            told = await editor.command("explainLast")
            assert told["files"] == ["app/tools.py", "app/shapes.py"]
            assert json.dumps(SHAPES)[1:-1] not in json.dumps(told)

    with serving(completer) as url:
        asyncio.run(edit(url))
    asked, read = completer.asked[-1], completer.read[-1]
    assert names(asked) == ["app/tools.py", "app/shapes.py"]
    assert [chunk.text for chunk in asked.extra] == ["def tool(x):\n", SHAPES]
    assert asked.path == "app/main.py"
    assert read.extra == asked.extra and read.session != asked.session


def test_nothing_goes_out_before_the_configuration_that_may_exclude_it(tmp_path: Path) -> None:
    completer = free()
    private, main = (tmp_path / name for name in ("priv.py", "main.py"))
    method = "workspace/configuration"
    workspace = {**VSCODE["capabilities"]["workspace"], "configuration": True}
    asked = {**VSCODE, "capabilities": {**VSCODE["capabilities"], "workspace": workspace}}
    answers: dict[str, object] = {method: [{"exclude": ["priv.*"]}]}

    async def edit(url: str) -> None:
        async with editing(url, at(tmp_path, asked), ALONE, answers, {method}) as editor:
            editor.open(SHAPES, private.as_uri())
            editor.open("from priv import area\n" + MAIN, main.as_uri())
            await until(lambda: any(one["method"] == method for one in editor.told))
            await asyncio.sleep(0.5)
            assert completer.requests == []
            (tmp_path / "shapes.py").write_text(SHAPES.replace("area", "shape"))
            editor.answer(next(one for one in editor.told if one["method"] == method))
            await until(lambda: bool(completer.read))

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert {*map(str, names(completer.read[-1]))} == {"shapes.py"}


async def until_sent(editor: Editor, uri: str, completer: Reader, line: int = 1) -> None:
    """Ask until text of other files comes with it; who asks is in nobody's way."""
    for _ in range(200):
        await editor.inline(line, 10, uri=uri)
        await editor.command("clearCache")
        if completer.asked[-1].extra:
            return
        await asyncio.sleep(0.2)
    raise AssertionError("nothing of other files was sent")


def test_a_secret_file_that_is_open_is_never_sent(tmp_path: Path) -> None:
    """positron#7724: `.env` as context."""
    completer = free()
    (tmp_path / "shapes.py").write_text(SHAPES)

    async def edit(url: str) -> None:
        async with editing(url, at(tmp_path), ALONE) as editor:
            editor.open("AREA=hunter2\n", (tmp_path / ".env").as_uri(), "dotenv")
            assert await editor.inline(0, 5, uri=(tmp_path / ".env").as_uri()) == []
            editor.open(MAIN, (tmp_path / "main.py").as_uri())
            await until_sent(editor, (tmp_path / "main.py").as_uri(), completer)

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert completer.requests and "hunter2" not in str(completer.requests)
    assert all(names(request) in ([], ["shapes.py"]) for request in completer.requests)


def test_while_one_types_what_is_sent_stays_and_reading_ends(tmp_path: Path) -> None:
    completer = Reader(says("x"))
    (tmp_path / "shapes.py").write_text(SHAPES)
    uri = (tmp_path / "main.py").as_uri()

    async def edit(url: str) -> None:
        async with editing(url, at(tmp_path), ALONE) as editor:
            editor.open(MAIN, uri)
            await until(lambda: len(completer.read) == 1)
            # A key ends it, and has its answer.
            editor.type("(", 1, 10, uri=uri)
            assert await editor.inline(1, 11, uri=uri)
            await until(lambda: completer.n_left == 1)
            completer.may_read.set()
            await until_sent(editor, uri, completer)
            before = len(completer.asked)
            for n in range(20):
                editor.type(" ", 1, 10 + n, uri=uri)
                await editor.inline(1, 11 + n, uri=uri)
                await editor.command("clearCache")
            sent = {request.extra for request in completer.asked[before:]}
            assert len(sent) == 1 and len(completer.asked) == before + 20

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert names(completer.asked[0]) == []
    assert names(completer.asked[-1]) == ["shapes.py"]


def test_a_server_that_was_busy_has_lost_nothing_of_what_it_read(tmp_path: Path) -> None:
    completer = free()
    (tmp_path / "shapes.py").write_text(SHAPES)
    uri = (tmp_path / "main.py").as_uri()

    async def edit(url: str) -> None:
        async with editing(url, at(tmp_path), ALONE) as editor:
            editor.open(MAIN, uri)
            await until_sent(editor, uri, completer)
            n_read = len(completer.read)
            completer.is_full = True
            assert await editor.inline(1, 10, uri=uri) == []
            await editor.status_with("BUSY")
            completer.is_full = False
            assert await editor.inline(1, 10, uri=uri)
            await editor.status_with(None)
            await asyncio.sleep(0.5)
            assert len(completer.read) == n_read

    with serving(completer) as url:
        asyncio.run(edit(url))


def test_a_server_that_is_too_busy_to_read_ahead_is_no_state_of_it(tmp_path: Path) -> None:
    completer = free()
    completer.is_full = True
    (tmp_path / "shapes.py").write_text(SHAPES)
    uri = (tmp_path / "main.py").as_uri()

    async def edit(url: str) -> None:
        async with editing(url, at(tmp_path), ALONE) as editor:
            editor.open(MAIN, uri)
            await until(lambda: bool(completer.requests))
            completer.is_full = False
            await until_sent(editor, uri, completer)
            assert {one["reason"] for one in editor.statuses()} == {None}

    with serving(completer) as url:
        asyncio.run(edit(url))


def test_what_is_excluded_later_is_not_sent_any_more(tmp_path: Path) -> None:
    completer = free()
    (tmp_path / "shapes.py").write_text(SHAPES)
    uri = (tmp_path / "main.py").as_uri()

    async def edit(url: str) -> None:
        async with editing(url, at(tmp_path), ALONE) as editor:
            editor.open(MAIN, uri)
            await until_sent(editor, uri, completer)
            options = {"suture": {"exclude": ["shapes.*"]}}
            editor.notify("workspace/didChangeConfiguration", {"settings": options})
            await editor.inline(1, 10, uri=uri)

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert names(completer.asked[-1]) == [] != names(completer.asked[-2])


def test_folders_come_and_go(tmp_path: Path) -> None:
    completer = free()
    (tmp_path / "shapes.py").write_text(SHAPES)
    uri = (tmp_path / "main.py").as_uri()

    async def edit(url: str) -> None:
        async with editing(url, {**VSCODE, "workspaceFolders": []}, ALONE) as editor:
            editor.open(MAIN, uri)
            await editor.inline(1, 10, uri=uri)
            folder = {"uri": tmp_path.as_uri(), "name": "w"}
            for event in ({"added": [folder], "removed": []}, {"added": [], "removed": [folder]}):
                editor.notify("workspace/didChangeWorkspaceFolders", {"event": event})
                if event["added"]:
                    await until_sent(editor, uri, completer)
            await editor.command("clearCache")
            await editor.inline(1, 10, uri=uri)

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert names(completer.asked[0]) == names(completer.asked[-1]) == []
    assert completer.asked[-1].path == str(tmp_path / "main.py")


def test_a_root_is_a_folder_where_a_client_knows_no_folders(tmp_path: Path) -> None:
    completer = free()
    (tmp_path / "shapes.py").write_text(SHAPES)

    async def edit(url: str) -> None:
        async with editing(url, {**NEOVIM, "rootUri": tmp_path.as_uri()}, ALONE) as editor:
            editor.open(MAIN, (tmp_path / "main.py").as_uri())
            await until_sent(editor, (tmp_path / "main.py").as_uri(), completer)

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert names(completer.asked[-1]) == ["shapes.py"]


def test_saving_and_focus_are_reasons_to_look_again(tmp_path: Path) -> None:
    completer = free()
    uri = (tmp_path / "main.py").as_uri()

    async def edit(url: str) -> None:
        async with editing(url, at(tmp_path), ALONE) as editor:
            editor.open(MAIN, uri)
            await editor.inline(1, 10, uri=uri)
            await asyncio.sleep(0.3)
            (tmp_path / "shapes.py").write_text(SHAPES)
            editor.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
            await until(lambda: bool(completer.read))
            other = (tmp_path / "other.py").as_uri()
            editor.open("from shapes import area\n\n\ndef other(x):\n    return x\n", other)
            await until(lambda: len(completer.read) == 2)
            # Without a request at a cursor: the one that is left is shown beside the other.
            editor.notify("textDocument/didFocus", {"textDocument": {"uri": uri}})
            await until(lambda: len(completer.read) == 3)
            wrong: list[object] = [None, [], {"textDocument": 1}, {"textDocument": {"uri": 1}}]
            for nonsense in wrong:
                editor.notify("textDocument/didFocus", nonsense)
            await until_sent(editor, uri, completer)

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert [one.path for one in completer.read] == ["main.py", "other.py", "main.py"]
    assert names(completer.read[-1]) == ["other.py", "shapes.py"]


def test_c1_with_a_key_nothing_of_other_files_is_evaluated_again(tmp_path: Path) -> None:
    """llama.cpp evaluates a prompt anew from where it differs: its head must not."""
    (tmp_path / "shapes.py").write_text(SHAPES)
    uri = (tmp_path / "main.py").as_uri()
    prompts: list[Json] = []

    async def edit(url: str) -> None:
        async with editing(url, at(tmp_path), ALONE) as editor:
            editor.open(MAIN, uri)
            told: Json = {"files": []}
            while not told["files"]:
                await asyncio.sleep(0.2)
                await editor.inline(1, 10, uri=uri)
                await editor.command("clearCache")
                told = await editor.command("explainLast")
            prompts.append(told["report"]["prompt"])
            for n, key in enumerate("(1, 2)"):
                editor.type(key, 1, 10 + n, uri=uri)
                await editor.inline(1, 11 + n, uri=uri)
                await editor.command("clearCache")
                told = await editor.command("explainLast")
                assert told["files"] == ["shapes.py"]
                prompts.append(told["report"]["prompt"])
                await asyncio.sleep(0.2)

    with scripted(random_model(VOCABULARY.n_vocab), settings()) as completer:
        with serving(completer) as url:
            asyncio.run(edit(url))
    # It was in the cache from the first request on, which was sent what had been read.
    assert all(prompt["reused"] > len(SHAPES) // 4 for prompt in prompts)
    assert all(prompt["evaluated"] < 10 for prompt in prompts[1:])
