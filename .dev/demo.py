"""`make demo`: a real model fills a hole in a real file, shown as an editor would show it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

from suture.server.commands.pull import with_model_file
from suture.server.errors import SutureError
from suture.server.local import LocalCompleter, local_completer
from suture.server.request import CompletionRequest, CompletionResult
from suture.server.settings import load_settings

FILE = Path(__file__).resolve().parent.parent / "docs" / "examples" / "count_lines.py"
HOLE = "os.walk(", "folder"
SHOWN_LINES = 9

console = Console(highlight=False)


def main() -> None:
    text = FILE.read_text(encoding="utf-8")
    before, hole = HOLE
    cursor = text.index(before) + len(before)
    prefix, suffix = text[:cursor], text[cursor:].removeprefix(hole)
    settings = with_model_file(load_settings())
    console.print(f"Loading {settings.model}", style="dim")
    with local_completer(settings) as completer:
        console.print(f"{FILE.name}: what belongs at the cursor?\n", style="bold")
        show(prefix, "▏", suffix)
        started = time.perf_counter()
        ghost, result = asyncio.run(complete(completer, prefix, suffix))
        elapsed = time.perf_counter() - started
    console.print()
    show(prefix, ghost, suffix)
    console.print(
        f"\n{result.prompt.tokens} prompt tokens, {result.completion_tokens} generated, "
        f"{elapsed:.1f} s cold, layout {result.prompt.layout}, finish {result.finish}",
        style="dim",
    )


async def complete(
    completer: LocalCompleter, prefix: str, suffix: str
) -> tuple[str, CompletionResult]:
    request = CompletionRequest(prefix, suffix, infill=True, path=FILE.name, max_tokens=48)
    texts = []
    async with contextlib.aclosing(completer.complete(request)) as chunks:
        async for chunk in chunks:
            texts.append(chunk.text)
            if chunk.result is not None:
                return "".join(texts), chunk.result
    raise RuntimeError("the completion ended without a result")


def show(prefix: str, ghost: str, suffix: str) -> None:
    """The lines around the cursor: prefix blue, ghost text grey, suffix green."""
    shown = Text()
    shown.append("\n".join(prefix.split("\n")[-SHOWN_LINES:]), "blue")
    shown.append(ghost, "italic bright_black on grey15")
    shown.append("\n".join(suffix.split("\n")[:SHOWN_LINES]), "green")
    console.print(shown)


if __name__ == "__main__":
    try:
        main()
    except SutureError as error:
        sys.exit(f"suture: {error}")
