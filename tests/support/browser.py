"""The page in a browser, as who uses it sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from playwright.sync_api import Page

from support.http_server import serving
from suture.server.routes.completer import Completer

TIMEOUT_S = 15.0

_TEXT = """() => [...document.querySelectorAll(".cm-line")].map((line) => {
  const copy = line.cloneNode(true);
  copy.querySelectorAll(".ghost").forEach((ghost) => ghost.remove());
  return copy.textContent;
}).join("\\n")"""
_PREVIEW = """() => [...document.querySelectorAll(".cm-line")].map((line) => line.textContent)
  .join("\\n")"""


@dataclass
class Tab:
    """The page in a browser, and what of it is wrong.

    `errors` are what the console and the page complain of; `foreign` what was asked of others than
    the server. A test that expects errors takes them out.
    """

    page: Page
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    @contextmanager
    def served(self, completer: Completer, **flags: object) -> Iterator[str]:
        """The URL of a server, which the page leaves before it ends."""
        with serving(completer, **flags) as url:
            try:
                yield url
            finally:
                self.page.goto("about:blank")

    def open(self, url: str, path: str = "/", text: str | None = "") -> None:
        """Load the page, with another text in the editor than its sample, the cursor at its end."""
        self.page.goto(url + path)
        self.page.wait_for_selector(".cm-content")
        if text is not None:
            self.page.click(".cm-content")
            self.page.keyboard.press("Control+a")
            self.page.keyboard.press("Delete")
            self.page.keyboard.insert_text(text)

    def type(self, text: str) -> None:
        for character in text:
            self.page.keyboard.type(character)

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)

    @property
    def text(self) -> str:
        """The text in the editor."""
        return str(self.page.evaluate(_TEXT))

    @property
    def preview(self) -> str:
        """The same with what is suggested."""
        return str(self.page.evaluate(_PREVIEW))

    @property
    def ghost(self) -> str:
        """What is suggested, and does not stand there."""
        ghosts: list[str] = self.page.eval_on_selector_all(
            ".ghost", "ghosts => ghosts.map((ghost) => ghost.textContent)"
        )
        return "".join(ghosts)

    def shows(self, text: str, preview: str | None = None) -> None:
        """The editor comes to have this text, and that with what is suggested."""
        wanted = (text, text if preview is None else preview)
        give_up_at = time.monotonic() + TIMEOUT_S
        while (self.text, self.preview) != wanted and time.monotonic() < give_up_at:
            self.page.wait_for_timeout(20)
        assert (self.text, self.preview) == wanted

    def suggests(self, preview: str) -> None:
        """The text with what is suggested comes to be this."""
        give_up_at = time.monotonic() + TIMEOUT_S
        while self.preview != preview and time.monotonic() < give_up_at:
            self.page.wait_for_timeout(20)
        assert self.preview == preview

    def wait_for(self, condition: str, text: str = "") -> None:
        """Wait until a JavaScript expression is true, in which TEXT is `text`."""
        self.page.wait_for_function(f"(TEXT) => {condition}", arg=text, timeout=1000 * TIMEOUT_S)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is true that the page does not know of."""
        give_up_at = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < give_up_at, "it did not come true"
            self.page.wait_for_timeout(20)

    def wait_for_message(self, text: str) -> None:
        self.wait_for('document.querySelector("#message").textContent.includes(TEXT)', text)

    def tile(self, name: str) -> str:
        """What a tile of the numbers says."""
        return self.page.inner_text(f'.tile:has(dt:text-is("{name}")) .value')

    def wait_for_tile(self, name: str, value: str) -> None:
        selector = f'.tile:has(dt:text-is("{name}")) .value:text-is("{value}")'
        self.page.wait_for_selector(selector, timeout=1000 * TIMEOUT_S)
