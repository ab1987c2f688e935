"""Line ends as the document has them: prompts are LF only, and so is what a model says."""

from __future__ import annotations

from typing import Literal

LineEnd = Literal["\n", "\r\n", "\r"]


def lf_only(text: str) -> str:
    """The text as models are shown it."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


class OnlyLf:
    """The text with LF for each CR and LF, as the next rules know no other line end.

    A CR alone stays: held is one that may be the first half. Models are shown LF only, and
    seldom say anything else.
    """

    name = "line_ends"
    ended = False

    def __init__(self) -> None:
        self._held = ""
        self.fired = False

    def feed(self, text: str) -> str:
        """The next part of the text, as far as its line ends are known."""
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""
        text = text.removesuffix("\r")
        self.fired = self.fired or "\r\n" in text
        return text.replace("\r\n", "\n")

    def flush(self) -> str:
        """A CR that nothing came behind."""
        held, self._held = self._held, ""
        return held


class LineEnds:
    """Turns each line end of a text that comes in parts into `line_end`; LF changes nothing.

    A CR and LF that come apart are still one line end.
    """

    name = "line_ends"

    def __init__(self, line_end: str) -> None:
        self._line_end = line_end
        self._after_cr = False
        self.ended = False
        self.fired = False

    def feed(self, text: str) -> str:
        """The next part of the text, its line ends replaced."""
        if self._line_end == "\n" or not text:
            return text
        if self._after_cr:
            self._see("\r\n" if text[0] == "\n" else "\r")
            text = text.removeprefix("\n")
        self._after_cr = text.endswith("\r")
        self._see(text.removesuffix("\r"))
        return self._ended(text)

    def flush(self) -> str:
        """What is left of the text: nothing is held."""
        if self._after_cr:
            self._see("\r")
        return ""

    def _see(self, said: str) -> None:
        """Note whether line ends are others; where a CR ends a part, once what follows is known."""
        self.fired = self.fired or self._ended(said) != said

    def _ended(self, text: str) -> str:
        return lf_only(text).replace("\n", self._line_end)


class BetweenCrAndLf(LineEnds):
    """The same where the cursor stands inside a line end, which counts as before it.

    What goes on with the line cannot be inserted there without breaking its end, so all of such a
    text is left out. Of another the first LF ends the line, and a CR behind it begins a line end.
    """

    def __init__(self, line_end: str) -> None:
        super().__init__(line_end)
        self._has_begun = False

    def feed(self, text: str) -> str:
        if self.ended or not text:
            return ""
        if self._has_begun:
            return super().feed(text)
        self._has_begun = self.fired = True
        self.ended = not text.startswith("\n")
        return "" if self.ended else "\n" + super().feed(text[1:])

    def flush(self) -> str:
        return "\r" if self._has_begun and not self.ended else ""
