"""The document as a page, in a real browser."""

from __future__ import annotations

from support.browser import Tab
from support.fake_completer import FakeCompleter


def test_the_page_shows_every_route_and_needs_nothing_that_its_policy_forbids(tab: Tab) -> None:
    with tab.served(FakeCompleter()) as url:
        tab.page.goto(f"{url}/docs")
        tab.page.wait_for_selector('text="Mistral"')
        told = tab.page.inner_text("#routes")
        assert "/infill" in told and "/models/unload" in told
