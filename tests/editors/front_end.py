"""What a scenario asks of an editor, whichever it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

Part = Literal["all", "word", "line"]
# Raw ones are JSON-RPC clients that behave as an editor does; the others are editors.
Name = Literal["raw-vscode", "raw-neovim", "raw-copilot", "neovim", "vscode"]
# As a browser names them. `Control+z` and the like do not stand here: editors differ in them.
Key = Literal[
    "Backspace", "Delete", "Enter", "Escape", "Tab", "Left", "Right", "Up", "Down", "Home", "End"
]


class FrontEnd(Protocol):
    """One editor, in which one types into one document at a time.

    Nothing here waits for what the language server will say: who runs a scenario does, and looks
    again and again. Text is as it would be saved, with its line ends.
    """

    name: Name

    def configure(self, options: Mapping[str, Any], closes_brackets: bool) -> None:
        """Set the user's options (`suture.*`), and whether the editor closes brackets and quotes.

        What is not named is as the editor's client has it by default, but for the server.
        """

    def open(self, name: str, text: str) -> None:
        """Show a file of the workspace that has this text, the cursor at its start, to insert.

        A `name` that is empty is a buffer without a file.
        """

    def go_to(self, line: int, index: int) -> None:
        """Put the cursor behind so many code points of a line, both counted from 0."""

    def type(self, text: str, ms_a_key: int = 0) -> None:
        """Type characters key by key, so many milliseconds each; a line feed is Enter."""

    def press(self, key: Key) -> None:
        """Press a key that writes nothing."""

    def paste(self, text: str) -> None:
        """Insert a text at once."""

    def accept(self, part: Part) -> None:
        """Accept all, the next word or the next line of what is shown, with the user's own key."""

    def ask(self) -> None:
        """Ask for a suggestion by hand."""

    def dismiss(self) -> None:
        """Hide what is shown, with the user's own key."""

    def show_popup(self, rows: Sequence[str]) -> None:
        """Open the editor's own popup with these words, the first one selected.

        They take the place of the letters before the cursor. Without words it is closed.
        """

    def split(self) -> None:
        """Show the document in a second window beside the first, which goes on being typed in."""

    def undo(self) -> None:
        """Take back the last change."""

    @property
    def text(self) -> str:
        """The document."""

    @property
    def cursor(self) -> tuple[int, int]:
        """Line and code points before the cursor in it, both counted from 0."""

    @property
    def preview(self) -> str:
        """The document with what is suggested, as it is shown; the document where nothing is."""

    @property
    def status(self) -> dict[str, Any]:
        """The last `suture/status`: `kind`, `busy`, `message`, `reason`."""

    @property
    def complaints(self) -> list[str]:
        """Message boxes, errors and popups that came since it was opened: there must be none."""
