"""Ghost text in the playground, in a real browser over a completer that knows what one writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.browser import Tab
from support.http_server import client, serving
from support.writing_completer import WritingCompleter
from suture.server.errors import EngineError, Loading, QueueFull

SAID = "def add(a, b):\n    return a + b\n\n\nprint(add(1, 2))\n"


@pytest.fixture
def completer() -> WritingCompleter:
    return WritingCompleter(text=SAID)


@pytest.fixture
def url(tab: Tab, completer: WritingCompleter) -> Iterator[str]:
    with tab.served(completer) as url:
        yield url


def events(url: str) -> dict[str, int]:
    """What was counted of shown texts."""
    with client(url) as http:
        shown = http.get("/v1/status").json()["shown"]
    assert isinstance(shown, dict)
    return shown


def last_prefix(completer: WritingCompleter) -> str | None:
    """What was asked about last."""
    return completer.requests[-1].prefix if completer.requests else None


def test_ghost_text_appears_as_one_types_and_tab_takes_all(
    tab: Tab, url: str, completer: WritingCompleter
) -> None:
    tab.open(url)
    assert completer.requests == []
    tab.type("def ad")
    tab.suggests(SAID)
    assert tab.text == "def ad" and tab.ghost == SAID[6:]
    tab.wait_for_message("healing exact")
    tab.press("Tab")
    tab.shows(SAID)
    tab.wait_for_message("EMPTY")  # nothing comes behind all of it
    assert completer.requests[-1].prefix == SAID
    assert events(url) == {"view": 1, "select": 1, "select_line": 0, "dismiss": 0}


def test_typing_what_is_shown_asks_nothing_and_does_not_flicker(
    tab: Tab, url: str, completer: WritingCompleter
) -> None:
    tab.open(url)
    tab.type("def a")
    tab.suggests(SAID)
    tab.wait_for_message("Suggestion")
    asked = len(completer.requests)
    tab.page.evaluate("""() => {
      window.seen = new Set();
      const look = () => {
        const lines = [...document.querySelectorAll(".cm-line")];
        window.seen.add(lines.map((line) => line.textContent).join("\\n"));
        requestAnimationFrame(look);
      };
      look();
    }""")
    for text in ("def ad", "def add"):
        tab.type("d")
        tab.shows(text, SAID)
    tab.press("Backspace")
    tab.shows("def ad", SAID)
    tab.page.wait_for_timeout(500)
    assert tab.page.evaluate("[...window.seen]") == [SAID]
    assert len(completer.requests) == asked


def test_another_character_ends_it_and_asks_again(
    tab: Tab, url: str, completer: WritingCompleter
) -> None:
    tab.open(url)
    tab.type("def a")
    tab.suggests(SAID)
    tab.type("X")
    tab.shows("def aX")
    tab.wait_for_message("EMPTY: The model ended at once.")
    assert completer.requests[-1].prefix == "def aX"
    tab.press("Backspace")
    tab.suggests(SAID)


def test_words_and_lines_are_taken_one_by_one(
    tab: Tab, url: str, completer: WritingCompleter
) -> None:
    tab.open(url, text="def add(a")
    tab.suggests(SAID)
    tab.wait_for_message("Suggestion")
    asked = len(completer.requests)
    for word in (",", " b", "):", "\n    return", " a"):
        before = tab.text
        tab.press("Control+ArrowRight")
        tab.shows(before + word, SAID)
    for line in (" + b", "\n\n\nprint(add(1, 2))"):
        before = tab.text
        tab.press("Control+ArrowDown")
        tab.shows(before + line, SAID)
    assert len(completer.requests) == asked
    assert events(url)["select_line"] == 1
    tab.press("Control+z")
    # Each is one step to undo.
    tab.shows("def add(a, b):\n    return a + b", SAID)


def test_escape_dismisses_until_the_text_changes(
    tab: Tab, url: str, completer: WritingCompleter
) -> None:
    tab.open(url, text="def add")
    tab.suggests(SAID)
    tab.wait_for_message("Suggestion")
    tab.press("Escape")
    tab.shows("def add")
    asked = len(completer.requests)
    tab.page.wait_for_timeout(400)
    assert len(completer.requests) == asked and tab.ghost == ""
    assert events(url) == {"view": 1, "select": 0, "select_line": 0, "dismiss": 1}
    tab.type("(")
    tab.suggests(SAID)


def test_an_answer_to_another_text_is_never_shown(
    tab: Tab, url: str, completer: WritingCompleter
) -> None:
    completer.may_go_on.clear()
    tab.open(url)
    tab.type("def a")
    tab.wait_until(lambda: last_prefix(completer) == "def a")
    first = len(completer.requests)
    tab.type("X")
    tab.wait_until(lambda: last_prefix(completer) == "def aX" and completer.cancelled == first)
    completer.may_go_on.set()
    tab.wait_for_message("EMPTY")
    tab.shows("def aX")
    assert (completer.cancelled, len(completer.requests)) == (first, first + 1)
    assert events(url)["view"] == 0


def test_moving_the_cursor_ends_what_is_shown_and_what_is_asked(
    tab: Tab, url: str, completer: WritingCompleter
) -> None:
    tab.open(url, text="def add")
    tab.suggests(SAID)
    tab.press("ArrowLeft")
    tab.shows("def add")
    tab.press("End")
    tab.page.wait_for_timeout(300)
    tab.shows("def add")
    tab.press("Alt+\\")  # by hand
    tab.suggests(SAID)


def test_what_comes_is_shown_while_it_comes_and_typed_through(
    tab: Tab, url: str, completer: WritingCompleter
) -> None:
    completer.delay_s = 0.3
    tab.open(url, text="def add(a")
    tab.wait_for("document.querySelector('.ghost')?.textContent === TEXT", ", b):")
    tab.type(", b")
    assert tab.text == "def add(a, b"  # before the rest has come
    tab.suggests(SAID)
    assert len(completer.requests) == 1


def test_all_of_it_typed_while_it_comes_asks_for_more(
    tab: Tab, url: str, completer: WritingCompleter
) -> None:
    completer.text = "a = bcd"
    tab.open(url)
    tab.type("a =")
    tab.suggests("a = bcd")
    tab.wait_for_message("Suggestion")
    completer.text += "e\n"
    tab.type(" bcd")
    tab.suggests("a = bcde\n")


def test_a_bracket_that_the_editor_closed_is_written_over(
    tab: Tab, url: str, completer: WritingCompleter
) -> None:
    tab.open(url, text="def add")
    tab.page.keyboard.press("Escape")
    completer.may_go_on.clear()
    tab.type("(")
    tab.shows("def add()")
    completer.may_go_on.set()
    # What is suggested stands around the closer, and nothing twice.
    tab.suggests(SAID)
    tab.shows("def add()", SAID)
    assert completer.requests[-1].suffix == ")"
    tab.press("Tab")
    tab.shows(SAID)


def test_brackets_typed_through_are_closed_by_the_suggestion(
    tab: Tab, url: str, completer: WritingCompleter
) -> None:
    tab.open(url, text="def add")
    tab.suggests(SAID)
    tab.wait_for_message("Suggestion")
    asked = len(completer.requests)
    for character in "(a, b):":
        tab.type(character)
        tab.suggests(SAID)
    assert len(completer.requests) == asked
    tab.press("Tab")
    tab.shows(SAID)


def test_words_go_over_closers_and_lines_too(tab: Tab, url: str) -> None:
    tab.open(url, text="def add")
    tab.suggests(SAID)
    tab.type("(")
    tab.shows("def add()", SAID)
    for text in ("def add(a)", "def add(a,)", "def add(a, b)", "def add(a, b):"):
        tab.press("Control+ArrowRight")
        tab.shows(text, SAID)


ASTRAL = 'say("🎉 é", [👩‍👩‍👧, "𝔘"])\n# ✂️\n'


def test_astral_characters_count_as_one_for_the_server_and_as_two_for_the_editor(
    tab: Tab, url: str, completer: WritingCompleter
) -> None:
    completer.text = "# 🎉🎉\n" + ASTRAL
    tab.open(url, text="# 🎉🎉\nsay")
    tab.suggests(completer.text)
    tab.press("Escape")
    tab.type("(")
    tab.suggests(completer.text)
    assert completer.requests[-1].prefix == "# 🎉🎉\nsay("
    tab.press("Control+ArrowRight")
    tab.press("Control+ArrowRight")
    assert tab.preview == completer.text and "\ufffd" not in tab.text
    tab.press("Tab")
    tab.shows(completer.text)


def test_line_ends_are_the_documents(tab: Tab, url: str, completer: WritingCompleter) -> None:
    tab.open(url, text="def add(a, b):\n    ret")
    tab.suggests(SAID)
    tab.page.select_option("#line_ends", "crlf")
    tab.wait_for_message("Suggestion")
    tab.suggests(SAID)
    assert completer.requests[-1].prefix == "def add(a, b):\r\n    ret"
    tab.page.click(".cm-content")
    tab.press("Control+End")
    tab.press("Alt+\\")
    tab.suggests(SAID)
    tab.press("Tab")
    tab.shows(SAID)
    tab.wait_for_message("EMPTY")
    assert completer.requests[-1].prefix == SAID.replace("\n", "\r\n")


def test_pasted_line_ends_are_line_ends(tab: Tab, url: str, completer: WritingCompleter) -> None:
    tab.open(url, text="def add(a, b):\r\n    ret")
    tab.suggests(SAID)
    assert completer.requests[-1].prefix == "def add(a, b):\n    ret"


def test_input_methods_are_left_alone(tab: Tab, url: str, completer: WritingCompleter) -> None:
    completer.text = "# 日本語です\n"
    tab.open(url, text="# ")
    tab.suggests(completer.text)
    tab.wait_for_message("Suggestion")
    asked = len(completer.requests)
    keyboard = tab.page.context.new_cdp_session(tab.page)
    for composed in ("に", "にほ", "にほん", "日本"):
        keyboard.send(
            "Input.imeSetComposition",
            {"text": composed, "selectionStart": len(composed), "selectionEnd": len(composed)},
        )
        tab.shows("# " + composed)
    tab.page.wait_for_timeout(300)
    assert len(completer.requests) == asked and tab.text == "# 日本"
    keyboard.send("Input.insertText", {"text": "日本"})
    tab.suggests(completer.text)
    assert tab.text == "# 日本"


def test_an_empty_answer_takes_an_older_suggestion_away(
    tab: Tab, url: str, completer: WritingCompleter
) -> None:
    tab.open(url, text="def add")
    tab.suggests(SAID)
    tab.wait_for_message("Suggestion")
    completer.text = ""
    tab.press("Alt+\\")  # by hand, while that one is shown
    tab.wait_for_message("EMPTY: The model ended at once.")
    tab.shows("def add")


def test_why_there_is_nothing_is_said(tab: Tab, url: str, completer: WritingCompleter) -> None:
    completer.text = ""
    tab.open(url)
    tab.type("x")
    tab.wait_for_message("EMPTY: The model ended at once.")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Loading("Loading model", retry_after=1), "LOADING: The model is still being loaded."),
        (QueueFull("2 requests wait already", retry_after=1), "BUSY: Too many requests wait"),
    ],
)
def test_who_has_to_wait_is_told_and_served_later(
    tab: Tab, url: str, completer: WritingCompleter, error: Loading | QueueFull, message: str
) -> None:
    completer.raised[0] = error
    tab.open(url)
    tab.type("def a")
    tab.wait_for_message(message)
    completer.raised.clear()
    tab.suggests(SAID)
    assert all("503" in one for one in tab.errors)
    tab.errors.clear()


def test_an_error_in_a_stream_is_told(tab: Tab, url: str, completer: WritingCompleter) -> None:
    completer.raised[2] = EngineError("the engine failed")
    tab.open(url)
    tab.type("def a")
    tab.wait_for_message("ERROR: The engine failed")
    tab.press("Tab")  # what came of it may be taken
    assert SAID.startswith(tab.text) and len(tab.text) > 5


def test_a_key_is_asked_for_and_used(tab: Tab, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    with tab.served(WritingCompleter(text=SAID), api_key_file=keys) as url:
        tab.page.goto(url)
        tab.page.wait_for_selector("#key_row:not([hidden])")
        tab.page.click(".cm-content")
        tab.press("Control+a")
        tab.type("def a")
        tab.wait_for_message("AUTH: The server wants an API key.")
        tab.page.fill("#key", "secret")
        tab.press("Enter")
        tab.page.wait_for_selector("#key_row", state="hidden")
        tab.type("d")
        tab.suggests(SAID)
        tab.wait_for_tile("Requests a minute", "1")
    assert all("401" in one for one in tab.errors), tab.errors
    tab.errors.clear()


def test_languages_are_told_to_the_server_and_bring_samples(
    tab: Tab, url: str, completer: WritingCompleter
) -> None:
    tab.open(url, text=None)
    assert "def longest_lines" in tab.text
    for name, language, path in (
        ("Rust", "rust", "playground.rs"),
        ("C++", "cpp", "playground.cpp"),
        ("Markdown", "markdown", "playground.md"),
        ("Go", "go", "playground.go"),
    ):
        n_before = len(completer.requests)
        tab.page.select_option("#language", name)
        tab.wait_for_message("EMPTY")
        asked = completer.requests[-1]
        assert len(completer.requests) > n_before
        assert (asked.language, asked.path) == (language, path)
        assert asked.prefix and asked.suffix and "‸" not in asked.prefix + asked.suffix
    tab.page.click(".cm-content")
    tab.type("//mine")
    tab.page.select_option("#language", "Python")
    assert "//mine" in tab.text  # what one has written stays


def test_the_server_goes_and_comes_back(tab: Tab) -> None:
    completer = WritingCompleter(text=SAID)
    with serving(completer) as url:
        tab.open(url, text="def a")
        tab.suggests(SAID)
        port = int(url.rpartition(":")[2])
    tab.wait_for('document.body.dataset.server === "gone"')
    assert "cannot be reached" in tab.page.inner_text("#state")
    tab.type("X")
    tab.wait_for_message("UNREACHABLE: The server cannot be reached.")
    tab.press("Backspace")
    tab.shows("def a", tab.preview)  # one types on
    with tab.served(completer, port=port):
        tab.wait_for('document.body.dataset.server === "ready"')
        tab.suggests(SAID)
    tab.errors.clear()


def test_what_is_selected_is_typed_over(tab: Tab, url: str) -> None:
    tab.open(url, text="a\nb\nc")
    tab.press("Control+a")
    tab.type("(")
    tab.shows("(a\nb\nc)")  # brackets go around it
    tab.press("Control+a")
    tab.type("d")
    tab.shows("d")


def test_buttons_do_what_keys_do(tab: Tab, url: str) -> None:
    tab.open(url, text="def add")
    tab.suggests(SAID)
    tab.page.click("#take_word")
    tab.shows("def add(", SAID)
    tab.page.click("#take_line")
    tab.shows("def add(a, b):", SAID)
    tab.page.click("#dismiss")
    tab.shows("def add(a, b):")
    assert tab.page.is_disabled("#take_all")
    tab.page.click("#ask")
    tab.suggests(SAID)
    tab.page.click("#take_all")
    tab.shows(SAID)


def test_one_key_at_a_time_leaves_no_request_behind(
    tab: Tab, url: str, completer: WritingCompleter
) -> None:
    """Requests of a fast typist end before the next, and numbers rise."""
    completer.may_go_on.clear()
    tab.open(url)
    for character in "x = lambda":
        tab.type(character)
        tab.page.wait_for_timeout(60)
    tab.wait_until(lambda: last_prefix(completer) == "x = lambda")
    tab.wait_until(lambda: completer.cancelled == len(completer.requests) - 1)
    completer.may_go_on.set()
    tab.wait_for_message("EMPTY")
    numbers = [request.seq or 0 for request in completer.requests]
    assert numbers == sorted(set(numbers)) and len({r.session for r in completer.requests}) == 1
    assert completer.cancelled == len(completer.requests) - 1


def test_it_types_on_while_nothing_answers(tab: Tab) -> None:
    """A server that takes requests and never answers."""
    completer = WritingCompleter(text=SAID, may_go_on=threading.Event())
    with tab.served(completer) as url:
        tab.open(url)
        tab.type("def add(a, b):")
        tab.shows("def add(a, b):")
        completer.may_go_on.set()
