"""When what is sent of other files changes, and when it does not."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from suture.lsp.context import other_files
from suture.lsp.context.chunks import Chunk
from suture.lsp.context.disk import MAX_FILES, MAX_LOOKUPS, Disk
from suture.lsp.context.exclusions import is_left_out
from suture.lsp.context.look import Found, Look, Memory
from suture.lsp.context.other_files import FAR, OtherFiles
from suture.lsp.context.workspace import Workspace, workspace_of
from suture.lsp.documents import Change, Cursor, Documents, Position
from suture.lsp.settings import ContextOptions, Options

MAIN = "from shapes import area\n\nprint(area(1, 2))\n"
SHAPES = "def area(w, h):\n    return w * h\n\n\ndef name():\n    return 'shape'\n"
TOOLS = "def tool(x):\n    return x\n"


@dataclass
class Server:
    """Reads what it is given; one that is `held` reads until it may go on."""

    is_busy: bool = False
    may: bool = True
    reads: bool = True
    given: list[tuple[Cursor, tuple[Chunk, ...]]] = field(default_factory=list)
    n_ended: int = 0
    held: asyncio.Event | None = None

    def may_read(self, uri: str, language: str) -> bool:
        return self.may

    async def read_ahead(self, cursor: Cursor, chunks: Sequence[Chunk]) -> bool:
        self.given.append((cursor, tuple(chunks)))
        if self.held is not None:
            try:
                await self.held.wait()
            except asyncio.CancelledError:
                self.n_ended += 1
                raise
        return self.reads


class Editor:
    """Documents in a folder, with a clock that goes when it is told to."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.documents = Documents()
        self.server = Server()
        self.configured = asyncio.Event()
        self.configured.set()
        self.others = OtherFiles(self.documents, self.server, self.configured)
        self.take()
        self._patch = patch
        self._is_paused = False
        patch.setattr(other_files, "POLL_S", 0.001)
        patch.setattr(OtherFiles, "_has_paused", self._has_paused)

    def _has_paused(self, seconds: float) -> bool:
        return self._is_paused and not self.server.is_busy

    def take(self, options: Options | None = None, workspace: Workspace | None = None) -> None:
        here = workspace_of([(f"file://{self.root}", "w")])
        self.others.take(options or Options(), here if workspace is None else workspace)

    def uri(self, name: str) -> str:
        return name if ":" in name else f"file://{self.root}/{name}"

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def open(self, name: str, text: str, language: str = "python") -> None:
        self.documents.open(self.uri(name), language, 1, text)
        self.others.opened(self.uri(name))

    def close(self, name: str) -> None:
        self.documents.close(self.uri(name))
        self.others.closed(self.uri(name))

    def type(self, name: str, text: str, line: int = 0) -> None:
        """Insert text at the start of a line, and ask behind it."""
        self.edit(name, text, line)
        self.ask(name, line)

    def edit(self, name: str, text: str, line: int = 0) -> None:
        place = Position(line, 0)
        self.documents.change(self.uri(name), 2, [Change(text, place, place)])
        self.others.changed(self.uri(name))

    def ask(self, name: str, line: int = 0) -> tuple[Chunk, ...]:
        """What a request is sent."""
        cursor = self.documents.cursor(self.uri(name), Position(line, 0))
        assert cursor is not None
        self.others.asked(cursor)
        return self.sent(name)

    def sent(self, name: str) -> tuple[Chunk, ...]:
        return self.others.sent_with(self.uri(name))

    def names(self, name: str) -> list[str]:
        return [chunk.name for chunk in self.sent(name)]

    async def pause(self) -> None:
        """Nobody types until nothing is to be done any more."""
        self._is_paused = True
        for _ in range(20_000):
            working = self.others._working
            if working is None or working.done() or self.server.held is not None:
                break
            await asyncio.sleep(0.001)
        else:
            raise AssertionError("it never ended")
        self._is_paused = self.server.held is not None


@asynccontextmanager
async def editing(root: Path) -> AsyncIterator[Editor]:
    with pytest.MonkeyPatch.context() as patch:
        editor = Editor(root, patch)
        yield editor
        editor.others.end()
        await asyncio.sleep(0)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def test_what_a_document_imports_is_sent_after_a_pause(tmp_path: Path) -> None:
    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.write("shapes.py", SHAPES)
            editor.open("main.py", MAIN)
            assert editor.ask("main.py", 2) == ()
            await editor.pause()
            (chunk,) = editor.ask("main.py", 2)
            assert chunk.name == "shapes.py"
            assert chunk.text == "def area(w, h):\n    return w * h\ndef name():\n"
            # It was read with the text at the cursor before it was sent.
            ((cursor, given),) = editor.server.given
            assert given == (chunk,) and cursor.line == 2

    run(edit())


def test_c1_typing_changes_nothing_and_neither_does_an_edit_elsewhere(tmp_path: Path) -> None:
    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.open("shapes.py", SHAPES)
            editor.open("main.py", MAIN)
            editor.ask("main.py", 2)
            await editor.pause()
            before = editor.sent("main.py")
            assert before
            for n in range(200):
                editor.type("main.py", f"area(name(), {n})\n", 2)
                if n == 100:
                    editor.edit("shapes.py", "def volume(a): pass\n")
                await asyncio.sleep(0)
                assert editor.sent("main.py") is before
            assert len(editor.server.given) == 1
            await editor.pause()
            after = editor.sent("main.py")
            assert after is not before and "def volume(a): pass" in after[0].text

    run(edit())


def test_c1_a_pause_without_a_cause_changes_nothing(tmp_path: Path) -> None:
    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.write("shapes.py", SHAPES)
            editor.open("main.py", MAIN)
            editor.ask("main.py")
            await editor.pause()
            before = editor.sent("main.py")
            for _ in range(3):
                editor.type("main.py", "x = 1\n", 3)
                await editor.pause()
                assert editor.sent("main.py") == before
            assert len(editor.server.given) == 1

    run(edit())


def test_c2_a_file_that_is_left_stands_last_of_the_files_that_were(tmp_path: Path) -> None:
    async def edit() -> None:
        async with editing(tmp_path) as editor:
            for name in "abc":
                editor.open(f"{name}.py", f"def only_{name}(x):\n    return x\n")
                editor.ask(f"{name}.py")
                await editor.pause()
            assert editor.names("c.py") == ["a.py", "b.py"]
            first = editor.sent("c.py")
            editor.open("d.py", "d = 1\n")
            assert editor.ask("d.py") == first
            await editor.pause()
            assert editor.sent("d.py")[:2] == first and editor.names("d.py")[2:] == ["c.py"]
            # Who comes back has the list that the server has read for that document.
            assert editor.ask("c.py") is first

    run(edit())


def test_c8_a_key_ends_reading_and_the_next_pause_begins_it_anew(tmp_path: Path) -> None:
    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.write("shapes.py", SHAPES)
            editor.server.held = asyncio.Event()
            editor.open("main.py", MAIN)
            await editor.pause()
            while not editor.server.given:
                await asyncio.sleep(0.001)
            editor._is_paused = False
            assert editor.ask("main.py", 2) == ()
            while not editor.server.n_ended:
                await asyncio.sleep(0.001)
            assert editor.sent("main.py") == ()
            editor.server.held = None
            await editor.pause()
            assert editor.names("main.py") == ["shapes.py"]
            assert len(editor.server.given) == 2

    run(edit())


def test_c8_what_the_server_could_not_read_is_not_sent_and_tried_again(tmp_path: Path) -> None:
    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.write("shapes.py", SHAPES)
            editor.server.reads = False
            editor.open("main.py", MAIN)
            await editor.pause()
            assert editor.sent("main.py") == () and len(editor.server.given) == 1
            editor.server.reads = True
            editor.ask("main.py")
            await editor.pause()
            assert editor.names("main.py") == ["shapes.py"]

    run(edit())


def test_c8_a_server_that_was_started_anew_reads_the_list_again(tmp_path: Path) -> None:
    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.write("shapes.py", SHAPES)
            editor.open("main.py", MAIN)
            await editor.pause()
            before = editor.sent("main.py")
            editor.others.server_came()
            assert editor.sent("main.py") is before
            await editor.pause()
            assert editor.sent("main.py") == before and len(editor.server.given) == 2
            editor.others.saved(editor.uri("main.py"))
            await editor.pause()
            assert len(editor.server.given) == 2

    run(edit())


def test_c8_nothing_is_read_while_somebody_waits(tmp_path: Path) -> None:
    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.write("shapes.py", SHAPES)
            editor.server.is_busy = True
            editor.open("main.py", MAIN)
            editor._is_paused = True
            await asyncio.sleep(0.1)
            assert editor.server.given == []
            editor.server.is_busy = False
            await editor.pause()
            assert len(editor.server.given) == 1

    run(edit())


def test_c5_a_request_does_not_wait_for_a_slow_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = threading.Event()

    def slow(look: Look, memory: Memory) -> Found:
        may_go_on.wait(30)
        return Found(Chunk(look.at_hand, "", ""))

    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.open("main.py", MAIN)
            editor.ask("main.py")
            editor._is_paused = True
            for _ in range(20):
                await asyncio.sleep(0.001)
                editor.type("main.py", "x")
                assert editor.sent("main.py") == ()
            may_go_on.set()
            await editor.pause()

    monkeypatch.setattr(Look, "take", slow)
    run(edit())


def test_c5_in_a_workspace_of_ten_thousand_files_a_step_looks_at_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(10_000):
        (tmp_path / f"file{n}.go").write_text(f"package w\n\nfunc F{n}() {{}}\n")
    disks: list[Disk] = []

    class Noted(Disk):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            disks.append(self)

    monkeypatch.setattr("suture.lsp.context.look.Disk", Noted)

    async def edit() -> None:
        async with editing(tmp_path) as editor:
            text = 'package w\n\nimport "x.org/w/sub"\n\nfunc main() {\n' + "".join(
                f"\tF{n}()\n" for n in range(3000)
            )
            editor.open("main.go", text + "}\n", "go")
            editor.ask("main.go", 10)
            assert disks == []
            await editor.pause()

    run(edit())
    (disk,) = disks
    assert 0 < disk.n_lookups <= MAX_LOOKUPS and 0 < disk.n_files <= MAX_FILES


SECRET = "key = 'ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8'\n"


def test_c4_nothing_of_an_excluded_file_is_sent(tmp_path: Path) -> None:
    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.take(Options(exclude=("private/*",)))
            editor.write(".gitignore", "built.py\n")
            open_ones = {
                ".env": "AREA=1\narea = 2\n",
                "private/area.py": SHAPES,
                "built.py": SHAPES,
                "keys.py": SHAPES + SECRET,
                "made.py": "# @generated\n" + SHAPES,
                "git:/shapes.py": SHAPES,
            }
            for name, text in open_ones.items():
                editor.open(name, text)
                editor.ask(name)
                await editor.pause()
            editor.open("COMMIT_EDITMSG", "area", "git-commit")
            named = ("built", "keys", "made", "private.area")
            for name in named:
                editor.write(f"{name.replace('.', '/')}.py", open_ones.get(f"{name}.py", SHAPES))
            text = "".join(f"from {name} import area\n" for name in named) + "area(\n"
            editor.open("main.py", text)
            editor.ask("main.py", 4)
            await editor.pause()
            assert editor.sent("main.py") == ()
            assert not any(chunks for _, chunks in editor.server.given)

    run(edit())


def test_c4_what_is_excluded_later_goes_at_once(tmp_path: Path) -> None:
    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.write("shapes.py", SHAPES)
            editor.open("tools.py", TOOLS)
            editor.ask("tools.py")
            editor.open("main.py", MAIN)
            await editor.pause()
            assert editor.names("main.py") == ["tools.py", "shapes.py"]
            editor.take(Options(exclude=("shapes.py",)))
            assert editor.names("main.py") == ["tools.py"]
            editor.take(Options(context=ContextOptions(max_chunks=0)))
            assert editor.sent("main.py") == ()
            n_given = len(editor.server.given)
            editor.ask("main.py")
            await editor.pause()
            assert editor.sent("main.py") == () and len(editor.server.given) == n_given

    run(edit())


def test_c4_before_the_configuration_that_may_exclude_a_file_nothing_is_looked_at(
    tmp_path: Path,
) -> None:
    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.write("shapes.py", SHAPES)
            editor.configured.clear()
            editor.open("tools.py", TOOLS)
            editor.open("main.py", MAIN)
            editor._is_paused = True
            await asyncio.sleep(0.1)
            assert editor.server.given == []
            editor.take(Options(exclude=("tools.py",)))
            editor.configured.set()
            await editor.pause()
            assert editor.names("main.py") == ["shapes.py"]

    run(edit())


@pytest.mark.parametrize("event", ["ignored", "deleted", "secret"])
def test_c4_what_must_not_be_sent_any_more_goes_with_the_next_step(
    tmp_path: Path, event: str
) -> None:
    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.write("tools.py", TOOLS)
            editor.write("shapes.py", SHAPES)
            editor.open("tools.py", TOOLS)
            editor.ask("tools.py")
            editor.open("main.py", MAIN)
            editor.ask("main.py")
            await editor.pause()
            editor.open("other.py", "x = 1\n")
            editor.ask("other.py")
            await editor.pause()
            assert editor.names("main.py") == ["tools.py", "shapes.py"]
            assert "tools.py" in editor.names("other.py")
            if event == "ignored":
                editor.write(".gitignore", "tools.py\nshapes.py\n")
            elif event == "deleted":
                editor.close("tools.py")
                (tmp_path / "tools.py").unlink()
                (tmp_path / "shapes.py").unlink()
            else:
                editor.edit("tools.py", SECRET)
                editor.write("shapes.py", SECRET)
            # Also what a list has that is not read again, and where the server reads none.
            editor.server.reads = False
            editor.others.saved(editor.uri("other.py"))
            await editor.pause()
            assert editor.names("main.py") == []
            assert {"tools.py", "shapes.py"}.isdisjoint(editor.names("other.py"))

    run(edit())


def test_c4_with_no_disk_to_read_a_closed_file_goes_by_what_git_ignores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*args: object) -> None:
        raise AssertionError("the disk was looked at")

    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.take(Options(context=ContextOptions(neighbours=False)))
            editor.open("tools.py", TOOLS)
            editor.ask("tools.py")
            editor.close("tools.py")
            with monkeypatch.context() as patch:
                patch.setattr(Disk, "_stat", never)
                patch.setattr(Disk, "read", never)
                editor.open("main.py", MAIN)
                await editor.pause()
                editor.others.saved(editor.uri("main.py"))
                await editor.pause()
                assert editor.names("main.py") == ["tools.py"]
                editor.write(".gitignore", "tools.py\n")
                editor.others.saved(editor.uri("main.py"))
                await editor.pause()
                assert editor.names("main.py") == []

    run(edit())


def test_c4_an_open_document_is_excluded_by_what_it_is_called_behind_a_link(
    tmp_path: Path,
) -> None:
    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.write(".env", "tool = 1\n")
            editor.write("built.py", TOOLS)
            editor.write(".gitignore", "built.py\n")
            for name, real in (("tools.py", ".env"), ("more.py", "built.py")):
                (tmp_path / name).symlink_to(real)
                editor.open(name, TOOLS)
                editor.ask(name)
            editor.open("main.py", "tool(\n")
            editor.ask("main.py")
            await editor.pause()
            assert editor.sent("main.py") == () and not any(c for _, c in editor.server.given)

    run(edit())


@pytest.mark.parametrize("is_left", [False, True])
def test_a_document_that_is_closed_is_kept_as_it_was(tmp_path: Path, is_left: bool) -> None:
    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.write("tools.py", TOOLS)
            editor.open("untitled:a", TOOLS.replace("tool", "other"))
            editor.ask("untitled:a")
            editor.open("tools.py", TOOLS)
            editor.type("tools.py", "y = 1\n")
            if is_left:
                editor.open("main.py", "z = 2\n")
            editor.close("untitled:a")
            editor.close("tools.py")
            if not is_left:
                editor.open("main.py", "z = 2\n")
            await editor.pause()
            (chunk,) = editor.sent("main.py")
            assert (chunk.name, chunk.text) == ("tools.py", "y = 1\n" + TOOLS)

    run(edit())


def test_c8_a_document_that_changes_all_the_time_keeps_no_other_from_its_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_paused = OtherFiles._has_paused
    monkeypatch.setattr(other_files, "QUIET_S", 0.1)
    monkeypatch.setattr(other_files, "PAUSE_S", 0.3)

    async def edit() -> None:
        async with editing(tmp_path) as editor:
            # Undone before what it stands over is.
            with monkeypatch.context() as patch:
                patch.setattr(OtherFiles, "_has_paused", has_paused)
                editor.write("shapes.py", SHAPES)
                editor.open("build.log", "", "log")
                editor.open("made.py", "")
                editor.open("main.py", MAIN)
                editor.ask("main.py", 2)
                for n in range(200):
                    editor.edit("build.log", f"line {n}\n")
                    editor.edit("made.py", f"line_{n} = 1\n")
                    await asyncio.sleep(0.01)
                assert "shapes.py" in editor.names("main.py")
                # And none of its changes is one that the server reads at once.
                assert 2 <= len(editor.server.given) < 9

    run(edit())


def test_c4_a_document_outside_the_workspace_is_sent_while_it_is_open(tmp_path: Path) -> None:
    async def edit() -> None:
        async with editing(tmp_path) as editor:
            names = ("file:///elsewhere/own/notes.py", "untitled:Untitled-1", "tools.py")
            for name, letter in zip(names, "abc", strict=True):
                editor.open(name, TOOLS.replace("x", letter))
                editor.ask(name)
            editor.open("main.py", "tool(\n")
            editor.ask("main.py")
            await editor.pause()
            assert sorted(editor.names("main.py")) == ["Untitled-1", "notes.py", "tools.py"]
            for name in names:
                editor.close(name)
            assert editor.names("main.py") == ["tools.py"]
            editor.take(workspace=Workspace())
            assert editor.sent("main.py") == ()

    run(edit())


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (ContextOptions(), ["tools.py", "shapes.py"]),
        (ContextOptions(neighbours=False), ["tools.py"]),
        (ContextOptions(open_files=False), ["shapes.py"]),
        (ContextOptions(open_files=False, neighbours=False), []),
        (ContextOptions(max_chunks=1), ["shapes.py"]),
    ],
)
def test_options_say_which_files_are_sent(
    tmp_path: Path, options: ContextOptions, names: list[str]
) -> None:
    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.take(Options(context=options))
            editor.write("shapes.py", SHAPES)
            editor.open("tools.py", TOOLS)
            editor.ask("tools.py")
            editor.open("main.py", MAIN)
            editor.ask("main.py", 2)
            await editor.pause()
            assert editor.names("main.py") == names

    run(edit())


def test_without_a_workspace_nothing_is_looked_for_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*args: object) -> None:
        raise AssertionError("the disk was looked at")

    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.take(workspace=Workspace())
            editor.write("shapes.py", SHAPES)
            editor.open("tools.py", TOOLS)
            editor.open("main.py", MAIN + "tool(\n")
            editor.ask("main.py", 3)
            with monkeypatch.context() as patch:
                patch.setattr(Disk, "_stat", never)
                patch.setattr(Disk, "_files_in", never)
                patch.setattr(Disk, "read", never)
                await editor.pause()
            assert editor.names("main.py") == ["tools.py"]

    run(edit())


def test_nothing_is_looked_for_where_nothing_is_asked(tmp_path: Path) -> None:
    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.write("shapes.py", SHAPES)
            editor.server.may = False
            editor.open("main.py", MAIN)
            editor.ask("main.py")
            await editor.pause()
            assert editor.server.given == [] and editor.sent("main.py") == ()

    run(edit())


def test_definitions_near_the_cursor_follow_it_when_it_goes_far(tmp_path: Path) -> None:
    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.write("shapes.py", SHAPES)
            lines = ["import shapes", "shapes.area(1)", *["x = 1"] * 200, "shapes.name()"]
            editor.open("main.py", "\n".join(lines))
            editor.ask("main.py", 1)
            await editor.pause()
            (before,) = editor.sent("main.py")
            assert "w * h" in before.text and "'shape'" not in before.text
            editor.ask("main.py", FAR)
            await editor.pause()
            assert editor.sent("main.py") == (before,)
            editor.ask("main.py", 202)
            await editor.pause()
            (after,) = editor.sent("main.py")
            assert "w * h" not in after.text and "'shape'" in after.text

    run(edit())


def test_of_a_long_document_the_imports_are_seen_from_its_end(tmp_path: Path) -> None:
    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.write("shapes.py", SHAPES)
            lines = ["from shapes import area", *["x = '" + "y" * 90 + "'"] * 2000, "area(\n"]
            editor.open("main.py", "\n".join(lines))
            editor.ask("main.py", 2001)
            await editor.pause()
            (chunk,) = editor.sent("main.py")
            assert chunk.name == "shapes.py" and "w * h" in chunk.text

    run(edit())


def test_an_open_document_is_shown_as_it_is_in_the_editor(tmp_path: Path) -> None:
    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.write("shapes.py", SHAPES)
            editor.open("shapes.py", SHAPES.replace("(w, h)", "(width, height)"))
            editor.open("main.py", MAIN)
            editor.ask("main.py", 2)
            await editor.pause()
            assert "def area(width, height)" in editor.sent("main.py")[0].text

    run(edit())


def test_what_any_cell_of_a_notebook_imports_is_sent_and_no_cell(tmp_path: Path) -> None:
    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.write("shapes.py", SHAPES)
            uris = [f"vscode-notebook-cell:{tmp_path}/a.ipynb#W{n}" for n in range(2)]
            editor.open(uris[0], MAIN)
            editor.open(uris[1], "area(\n")
            cursor = editor.documents.cursor(uris[1], Position(0, 5))
            assert cursor is not None
            editor.others.asked(replace(cursor, prefix=f"{MAIN}area("))
            await editor.pause()
            assert editor.names(uris[1]) == ["shapes.py"]
            assert editor.others.path_in(uris[1]) == "a.ipynb"

    run(edit())


def test_a_copy_of_the_cursors_place_is_not_sent(tmp_path: Path) -> None:
    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.open("copy.py", MAIN + SHAPES)
            editor.open("main.py", MAIN + SHAPES)
            editor.ask("main.py", 2)
            await editor.pause()
            assert "copy.py" not in editor.names("main.py")

    run(edit())


def test_what_a_look_fails_at_is_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(look: Look, memory: Memory) -> Found:
        raise OSError("the disk is gone")

    async def edit() -> None:
        async with editing(tmp_path) as editor:
            editor.write("shapes.py", SHAPES)
            editor.open("main.py", MAIN)
            with monkeypatch.context() as patch:
                patch.setattr(Look, "take", fails)
                await editor.pause()
            editor.ask("main.py")
            await editor.pause()
            assert editor.names("main.py") == ["shapes.py"]

    run(edit())


def test_parsers_are_not_loaded_before_they_are_needed() -> None:
    code = (
        "import sys, suture.lsp.server; "
        "print({'tree_sitter', 'tree_sitter_language_pack', 'pathspec'} & set(sys.modules))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "set()"


NAMES = ("a.py", "b.py", "c.py", "private.py", "file:///elsewhere/d.py", "untitled:e")


def source_of(n: int) -> str:
    imported = "".join(f"from {name} import f{m}\n" for m, name in enumerate("abc") if m != n)
    return f"{imported}def f{n}(x):\n    return f{(n + 1) % 3}(x)\n"


@pytest.mark.parametrize("seed", range(12))
def test_c1_c4_whatever_happens_lists_change_in_steps_and_hold_nothing_forbidden(
    tmp_path: Path, seed: int
) -> None:
    choose = random.Random(seed)

    async def edit() -> None:
        async with editing(tmp_path) as editor:
            options = Options()
            for n, name in enumerate(NAMES[:4]):
                editor.write(name, source_of(n))
            n_changes = 0
            for _ in range(120):
                before = {name: editor.sent(name) for name in NAMES}
                n, name = choose.choice(list(enumerate(NAMES)))
                is_open = editor.documents.find(editor.uri(name)) is not None
                event = choose.choice("open type ask close save pause pause exclude".split())
                if event == "open":
                    editor.open(name, source_of(n))
                elif event == "exclude":
                    options = Options(exclude=choose.choice([(), ("private.py",), ("b.py",)]))
                    editor.take(options)
                elif event == "pause":
                    await editor.pause()
                    editor._is_paused = False
                elif is_open and event == "type":
                    editor.type(name, choose.choice(["f0(\n", "x = 1\n", "f2\n"]))
                elif is_open and event == "ask":
                    editor.ask(name, choose.randrange(4))
                elif is_open and event == "close":
                    editor.close(name)
                elif is_open:
                    editor.others.saved(editor.uri(name))
                await asyncio.sleep(0)
                for other in NAMES:
                    sent = editor.sent(other)
                    n_changes += sent != before[other]
                    has_own_list = editor.uri(other) in editor.others._lists
                    if event not in ("pause", "close", "exclude") and has_own_list:
                        assert sent == before[other]
                    for chunk in sent:
                        assert not is_left_out(chunk.path, options)
                        assert chunk.path not in (editor.uri(other), f"{tmp_path}/{other}")
                        is_inside = chunk.path.startswith(f"{tmp_path}/")
                        uri = chunk.path if ":" in chunk.path else f"file://{chunk.path}"
                        assert is_inside or editor.documents.find(uri) is not None
            assert n_changes

    run(edit())
