"""The rest of a suggestion that one types through, against an editor that types and accepts."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from suture.lsp.shown import Shown, Suggestion

CODE = st.text(st.sampled_from("ab(){}[]\"' \n="), max_size=10)
CLOSER_OF = {"(": ")", "[": "]", "{": "}"}
KEYS = st.lists(st.sampled_from(["right", "wrong", "back", "elsewhere"]), max_size=12)


@dataclass
class Editor:
    """A text and a cursor in it; `added` are the closers that it put behind the cursor itself."""

    prefix: str
    suffix: str
    auto_closes: bool
    added: str = ""

    def type(self, char: str) -> None:
        self.prefix += char
        if self.auto_closes and char in CLOSER_OF:
            self.suffix = CLOSER_OF[char] + self.suffix
            self.added = CLOSER_OF[char] + self.added
        elif self.added and char == self.added[0]:
            self.suffix, self.added = self.suffix[1:], self.added[1:]

    def accepted(self, suggestion: Suggestion) -> str:
        return self.prefix + suggestion.text + self.suffix[suggestion.delete_after :]


@given(CODE, CODE, CODE, st.integers(0, 2), KEYS)
def test_w1_w2_while_one_types_it_the_rest_makes_the_same_document(
    prefix: str, suffix: str, text: str, n_over: int, keys: list[str]
) -> None:
    n_over = min(n_over, len(suffix) - len(suffix.lstrip(")]}\"'")))
    shown, editor = Shown(), Editor(prefix, suffix, auto_closes=False)
    shown.add(prefix, suffix, Suggestion(text, n_over))
    whole = editor.accepted(Suggestion(text, n_over))
    for key in keys:
        n_typed = len(editor.prefix) - len(prefix)
        if key == "right" and n_typed < len(text):
            editor.type(text[n_typed])
        elif key == "back" and n_typed > 0:
            editor.prefix = editor.prefix[:-1]
        elif key == "wrong":
            editor.type("§")
        elif key == "elsewhere":
            editor.suffix = "§" + editor.suffix
        rest = shown.rest(editor.prefix, editor.suffix)
        typed = editor.prefix[len(prefix) :]
        on_the_way = text.startswith(typed) and editor.suffix == suffix
        if not n_over:
            assert (rest is not None) == (on_the_way and bool(text[len(typed) :].strip()))
        if rest is not None:
            assert editor.accepted(rest) == whole


@given(CODE, CODE, CODE)
def test_w1_closers_that_an_editor_adds_are_written_once_or_stay(
    prefix: str, suffix: str, text: str
) -> None:
    shown, editor = Shown(), Editor(prefix, suffix, auto_closes=True)
    shown.add(prefix, suffix, Suggestion(text))
    for char in text:
        editor.type(char)
        rest = shown.rest(editor.prefix, editor.suffix)
        if rest is not None:
            left = editor.added[rest.delete_after :]
            assert editor.accepted(rest) == prefix + text + left + suffix


def test_brackets_that_the_editor_closes_are_replaced() -> None:
    shown = Shown()
    shown.add("def add", "\n", Suggestion("(a, b):\n    return a + b"))
    assert shown.rest("def add(", ")\n") == Suggestion("a, b):\n    return a + b", 1)
    assert shown.rest("def add(a", ")\n") == Suggestion(", b):\n    return a + b", 1)
    assert shown.rest("def add(a, b)", "\n") == Suggestion(":\n    return a + b")
    assert shown.rest("def add(", "]\n") is None


def test_a_closer_of_the_document_that_is_typed_over_is_replaced_no_more() -> None:
    shown = Shown()
    shown.add("foo(", ")\n", Suggestion("a, b)\nbar()", 1))
    assert shown.rest("foo(a, b", ")\n") == Suggestion(")\nbar()", 1)
    assert shown.rest("foo(a, b)", "\n") == Suggestion("\nbar()")


def test_the_latest_suggestion_wins_and_the_oldest_is_forgotten() -> None:
    shown = Shown(capacity=2)
    for text in ("one", "two", "three"):
        shown.add("x", "", Suggestion(text))
    assert shown.rest("x", "") == Suggestion("three")
    assert shown.rest("xtw", "") == Suggestion("o")
    assert shown.rest("xo", "") is None


def test_what_is_fetched_ahead_goes_on_where_the_shown_one_ends() -> None:
    shown = Shown()
    shown.add("a", "", Suggestion(" = 1"))
    shown.add("a = 1", "", Suggestion("\nb = 2"))
    assert shown.rest("a =", "") == Suggestion(" 1")
    assert shown.rest("a = 1", "") == Suggestion("\nb = 2")


def test_of_a_long_file_few_suggestions_are_remembered_but_always_the_latest() -> None:
    shown = Shown(max_bytes=100_000)
    texts = ["one", "two", "three", "four"]
    for n, text in enumerate(texts):
        shown.add("x" * 40_000 + str(n), "", Suggestion(text))
    rests = [shown.rest("x" * 40_000 + str(n), "") for n in range(4)]
    assert rests == [None, None, Suggestion("three"), Suggestion("four")]
    shown.add("x" * 200_000, "", Suggestion("five"))
    assert shown.rest("x" * 200_000, "") == Suggestion("five")


def test_w1_a_closer_that_is_typed_in_front_of_the_one_to_replace_replaces_it_still() -> None:
    shown = Shown()
    shown.add("", "'", Suggestion("'=", 1))
    assert shown.rest("'", "'") == Suggestion("=", 1)


@given(CODE, CODE, CODE, CODE)
def test_w3_a_suggestion_that_has_grown_is_one(
    prefix: str, suffix: str, text: str, more: str
) -> None:
    shown, whole = Shown(capacity=2), text + more
    shown.add(prefix, suffix, Suggestion("§", number=1))
    shown.add(prefix, suffix, Suggestion(text, number=2))
    shown.add(prefix, suffix, Suggestion(whole, number=2))
    fresh = Shown()
    fresh.add(prefix, suffix, Suggestion("§", number=1))
    fresh.add(prefix, suffix, Suggestion(whole, number=2))
    for n_typed in range(len(whole) + 1):
        there = prefix + whole[:n_typed]
        assert shown.rest(there, suffix) == fresh.rest(there, suffix)
    if whole.strip():
        assert shown.rest(prefix, suffix) == Suggestion(whole)


def test_w3_the_rest_of_a_suggestion_elsewhere_is_another_one() -> None:
    shown = Shown()
    shown.add("x", "", Suggestion(" = 1", number=1))
    shown.add("x =", "", Suggestion(" 1", number=1))
    assert shown.rest("x", "") == Suggestion(" = 1")
