"""A real Chromium that looks at the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Request, sync_playwright

from support.browser import Tab
from support.chromium import ARGUMENTS, CHROMIUM


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser. It may not outlive the module: its event loop would be in the way of others."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def tab(chromium: Browser) -> Iterator[Tab]:
    """A fresh tab; the test fails where the page complains, or asks others than its server."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    tab = Tab(context.new_page())

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            tab.errors.append(f"{message.text} ({message.location})")

    def on_request(request: Request) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "data:")):
            tab.foreign.append(request.url)

    tab.page.on("console", on_console)
    tab.page.on("pageerror", lambda error: tab.errors.append(str(error)))
    tab.page.on("request", on_request)
    yield tab
    context.close()
    assert tab.errors == [] and tab.foreign == []
