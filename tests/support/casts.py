"""Recordings of a terminal (asciicast v2), and the screen that they make at a moment."""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.neovim import NVIM

# Neovim's own terminal shows it, in a window of the recording's size.
_REPLAY = """
local path, width, height = arg[1], tonumber(arg[2]), tonumber(arg[3])
vim.o.columns, vim.o.lines = width + 10, height + 10
local buffer = vim.api.nvim_create_buf(false, true)
vim.api.nvim_open_win(buffer, true, {
  relative = "editor", row = 0, col = 0, width = width, height = height, style = "minimal",
})
local file = assert(io.open(path, "rb"))
vim.api.nvim_chan_send(vim.api.nvim_open_term(buffer, {}), file:read("*a"))
vim.wait(300)
local lines = vim.api.nvim_buf_get_lines(buffer, -height - 1, -1, false)
io.write(vim.json.encode(lines))
"""


@dataclass(frozen=True, slots=True)
class Cast:
    """A header, and events: seconds, a kind (`o` what was shown, `m` a mark) and a text."""

    header: dict[str, Any]
    events: tuple[tuple[float, str, str], ...]

    @property
    def output(self) -> str:
        return "".join(text for _, kind, text in self.events if kind == "o")

    @property
    def marks(self) -> list[str]:
        return [text for _, kind, text in self.events if kind == "m"]

    def until(self, mark: str) -> str:
        """What was shown before a mark."""
        at = next(n for n, (_, *event) in enumerate(self.events) if event == ["m", mark])
        return Cast(self.header, self.events[:at]).output

    def screen(self, mark: str) -> list[str]:
        """The lines of the screen at a mark, without blanks at their ends."""
        width, height = self.header["width"], self.header["height"]
        with tempfile.TemporaryDirectory() as folder:
            script, shown = Path(folder, "replay.lua"), Path(folder, "shown")
            script.write_text(_REPLAY)
            # Where the recording was made the terminal was the size that it says.
            shown.write_text(self.until(mark), "utf-8", newline="")
            command = [str(NVIM), "--clean", "-n", "-l", str(script), str(shown)]
            made = subprocess.run(
                [*command, str(width), str(height)], capture_output=True, check=True, timeout=60
            )
        lines: list[str] = json.loads(made.stdout)
        return [line.rstrip() for line in lines]


def read_cast(path: Path) -> Cast:
    header, *events = map(json.loads, path.read_text("utf-8").splitlines())
    return Cast(header, tuple((float(at), str(kind), str(text)) for at, kind, text in events))
