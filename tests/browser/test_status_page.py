"""The numbers and the explanation, the page's safety and who can use it, in a real browser."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from support.browser import Tab
from support.explaining import exact
from support.http_server import client, settings
from support.writing_completer import WritingCompleter

SAID = "def add(a, b):\n    return a + b\n"
HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\x1b[31m"


@pytest.fixture
def completer() -> WritingCompleter:
    return WritingCompleter(text=SAID)


@pytest.fixture
def url(tab: Tab, completer: WritingCompleter) -> Iterator[str]:
    with tab.served(completer) as url:
        yield url


def test_the_numbers_move(tab: Tab, url: str) -> None:
    tab.page.goto(url)
    tab.wait_for_tile("Requests a minute", "0")
    assert tab.page.inner_text("#state") == "ready"
    assert tab.page.inner_text("#model") == "toy"
    assert tab.tile("First text, median") == "–"
    with client(url) as http:
        for _ in range(3):
            body = {"input_prefix": "def add", "input_suffix": ""}
            assert http.post("/infill", json=body).status_code == 200
        for kind in ("view", "view", "view", "view", "select", "dismiss"):
            event = {"type": kind, "completion_id": "a", "choice_index": 0}
            http.post("/v1/events", json=event)
    tab.wait_for_tile("Requests a minute", "3")
    tab.wait_for_tile("Accepted", "25.0 %")
    assert tab.tile("Tokens read per key, median") == "3"
    assert tab.tile("From the cache") == "57.1 %"
    assert tab.tile("Drafts that came true") == "75.0 %"
    assert tab.tile("First text, median").endswith(" ms") and tab.tile("Memory").endswith(" MiB")
    tab.wait_until(lambda: tab.page.locator(".spark rect").count() >= 2)
    tab.page.click("#numbers summary")
    rows = [text.split() for text in tab.page.locator("#ends tr").all_inner_texts()]
    assert rows == [["3", "eos"], ["3", "exact"]]


def test_a_text_that_came_in_no_time_has_a_bar_and_no_text_has_none(tab: Tab, url: str) -> None:
    def tell(route: Any) -> None:
        status = route.fetch().json()
        seconds = {"requests": [0] * 59 + [1], "first_text_ms": [None] * 59 + [0.0]}
        status["recent"]["by_second"] = seconds
        route.fulfill(json=status)

    tab.page.route("**/v1/status", tell)
    tab.page.goto(url)
    tab.wait_until(lambda: tab.page.locator(".spark").count() == 2)
    assert tab.page.locator(".spark rect").count() == 2
    heights = [bar.get_attribute("height") for bar in tab.page.locator(".spark rect").all()]
    assert heights == ["24", "1"]


def test_nobody_is_asked_while_nobody_looks(tab: Tab, url: str) -> None:
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    tab.page.goto(url)
    tab.wait_for_tile("Requests a minute", "0")
    see = """(state) => {
      Object.defineProperty(document, "visibilityState", {value: state, configurable: true});
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    tab.page.evaluate(see, "hidden")
    tab.page.wait_for_timeout(300)
    asked.clear()
    tab.page.wait_for_timeout(2500)
    assert asked == []
    began = time.monotonic()
    tab.page.evaluate(see, "visible")
    tab.wait_until(lambda: len(asked) >= 2)
    tab.page.wait_for_timeout(1500)
    assert len(asked) <= 2 + (time.monotonic() - began)  # one a second


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("loading", "loading the model"),
        ("stalled", "stalled: it has work and completes none"),
    ],
)
def test_a_server_that_cannot_answer_is_told(tab: Tab, state: str, told: str) -> None:
    completer = WritingCompleter(loading=state)  # type: ignore[arg-type]
    with tab.served(completer) as url:
        tab.page.goto(url)
        tab.wait_for("document.querySelector('#state').textContent === TEXT", told)
        completer.loading = "ready"
        tab.wait_for("document.querySelector('#state').textContent === TEXT", "ready")


def test_the_cursor_is_explained_once_it_rests(
    tab: Tab, url: str, completer: WritingCompleter
) -> None:
    tab.open(url, text="def add")
    tab.page.wait_for_selector("#answer section")
    titles = tab.page.locator("#answer h3").all_inner_texts()
    assert titles == [
        "At the cursor",
        "Covers",
        "What each method makes of it",
        "The boundary",
        "Prompt",
    ]
    assert "73.2 %" in tab.page.inner_text("#answer")
    tab.wait_for_message("Suggestion")
    tab.page.wait_for_timeout(500)
    prefixes = [request.prefix for request in completer.explained]
    assert prefixes.count("def add") == 1 and prefixes[-1] == "def add"
    tab.page.uncheck("#wants_explanation")
    assert tab.page.is_hidden("#explanation")
    tab.page.focus(".cm-content")
    tab.type("(a, b):")
    tab.page.wait_for_timeout(700)
    assert len(completer.explained) == len(prefixes)
    tab.page.check("#wants_explanation")
    tab.wait_until(lambda: completer.explained[-1].prefix == "def add(a, b):")


def test_explain_is_the_same_page_without_the_numbers(tab: Tab, url: str) -> None:
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url.removeprefix(url)))
    tab.page.goto(url + "/explain")
    tab.page.wait_for_selector("#answer section")  # of the sample, before one types
    assert tab.page.is_hidden("#numbers") and "/v1/status" not in asked
    tab.page.click("#to_status")
    tab.wait_for_tile("Memory", tab.tile("Memory"))
    assert tab.page.get_attribute("#to_status", "aria-current") == "page"


def test_the_explanation_is_asked_with_what_is_chosen(tab: Tab) -> None:
    at = settings()
    with exact(at) as completer, tab.served(completer) as url:
        tab.open(url, "/explain", text="const userNa")
        tab.wait_for('document.querySelector("#answer").textContent.includes(TEXT)', "userName")
        tab.suggests("const userName = ()")
        tab.page.click(".controls_more summary")
        tab.page.select_option("#healing", "off")
        tab.wait_for('document.querySelector("#answer").textContent.includes(TEXT)', "HEALING_OFF")


def test_hostile_text_is_text(tab: Tab, completer: WritingCompleter) -> None:
    completer.text = "x" + HOSTILE
    completer.model = replace(completer.model, name=HOSTILE)
    with tab.served(completer) as url:
        tab.open(url, text="x")
        tab.suggests("x" + HOSTILE)
        tab.wait_for('document.querySelector("#model").textContent === TEXT', HOSTILE)
    assert tab.page.locator("img[src]").count() == 0


def test_nothing_else_can_be_run_or_asked(tab: Tab, url: str) -> None:
    tab.page.goto(url)
    tab.wait_for_tile("Requests a minute", "0")
    refused = tab.page.evaluate("""async (url) => {
      const style = document.createElement("style");
      style.textContent = "h1 { color: rgb(1, 2, 3) }";
      document.head.append(style);
      let made = "made";
      try {
        document.createElement("script").textContent = "window.ran = true";
      } catch {
        made = "refused";
      }
      const colour = getComputedStyle(document.querySelector("h1")).color;
      const other = url.replace("127.0.0.1", "localhost") + "/health";
      const asked = await fetch(other).then(() => "answered", () => "refused");
      return [made, colour === "rgb(1, 2, 3)", asked];
    }""", url)  # fmt: skip
    assert refused == ["refused", False, "refused"]
    assert any("Content Security Policy" in one for one in tab.errors)
    tab.errors.clear()
    tab.foreign.clear()


@pytest.mark.parametrize("path", ["/", "/explain"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_narrow_screen(tab: Tab, url: str, path: str, scheme: str) -> None:
    tab.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    tab.page.set_viewport_size({"width": 360, "height": 740})
    tab.open(url, path, text="def add")
    tab.suggests(SAID)
    tab.page.wait_for_selector("#answer section")
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 360


_CONTRAST = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (part) =>
    (part /= 255) <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const [r, g, b, a = 1] = rgb(getComputedStyle(element).backgroundColor);
      if (a) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const element of document.querySelectorAll("body *")) {
    const hasText = [...element.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
    if (!hasText || !element.checkVisibility() || element.closest(":disabled")) continue;
    if (element.tagName === "OPTION" || element.closest(".unseen")) continue;
    const ink = light(rgb(getComputedStyle(element).color));
    const paper = light(behind(element));
    const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (contrast < 4.5) low.push([element.tagName, element.textContent, contrast]);
  }
  return low;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read(tab: Tab, url: str, scheme: str) -> None:
    tab.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    tab.open(url, text="def add")
    tab.suggests(SAID)
    tab.page.wait_for_selector("#answer section")
    tab.page.click("#numbers summary")
    assert tab.page.evaluate(_CONTRAST) == []


def test_it_is_used_with_a_keyboard_alone_and_read_aloud(tab: Tab, url: str) -> None:
    tab.open(url, text="def add")
    tab.suggests(SAID)
    tab.wait_for_message("Suggestion")
    # Readers are told what is suggested, and not that it stands there.
    assert tab.page.get_attribute(".ghost", "aria-hidden") == "true"
    assert tab.page.text_content("#message .unseen") == SAID[7:]
    assert tab.page.get_attribute("#message", "aria-live") == "polite"
    tab.press("Escape")
    tab.press("Escape")
    tab.press("Tab")
    assert not tab.page.evaluate("document.activeElement.closest('.cm-editor') !== null")
    nameless = tab.page.evaluate("""() =>
      [...document.querySelectorAll("button, a, select, input, summary")]
        .filter((one) => !(one.textContent.trim() || one.labels?.length)).length""")
    assert nameless == 0
