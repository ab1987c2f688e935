"""What becomes of suggestions, counted once, and no character twice."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support.json_values import JSON
from suture.lsp.tally import MAX_KNOWN, Counts, Event, Mark, Tally

Json = dict[str, Any]
DAY = "2026-05-01"
URI = "file:///a.py"
TEXT = "(a, b):\r\n    return a + b"
N_CHARACTERS = len(TEXT) - 1


def item(mark: Mark, text: str) -> Json:
    return {"insertText": text, "command": {"arguments": [mark.as_json()]}}


def counted(tally: Tally) -> Counts:
    """All that was counted of Python today."""
    counts = tally.take()
    assert set(counts) <= {(DAY, "python")}
    return counts.get((DAY, "python"), Counts())


def answered(tally: Tally, number: int = 1, typed: str = "") -> Json:
    """The item of a whole suggestion in a line where `typed` stands."""
    mark = Mark(number, 0, len(typed))
    tally.answered(URI, "python", mark, N_CHARACTERS)
    return item(mark, typed + TEXT)


def test_t1_each_is_counted_once() -> None:
    tally = Tally(lambda: DAY)
    one = {"item": answered(tally)}
    for event in ("shown", "rejected"):
        for _ in range(2):
            tally.told(event, one)
    for _ in range(2):
        tally.accepted(one["item"]["command"]["arguments"][0])
    assert counted(tally) == Counts(1, 1, 0, 1, N_CHARACTERS)
    assert tally.take() == {}


def test_t2_the_parts_of_an_item_and_the_rest_of_the_next_are_the_whole() -> None:
    tally = Tally(lambda: DAY)
    first = answered(tally, typed="def add")
    # Counted from the beginning of the item, in UTF-16: twice the same tells nothing new.
    for _ in range(2):
        tally.told("partly_accepted", {"item": first, "acceptedLength": len("def add(a")})
    assert counted(tally) == Counts(partly_accepted=1, characters=2)
    tally.told("partly_accepted", {"item": first, "acceptedLength": len("def add(a, b")})
    assert counted(tally) == Counts(characters=3)
    rest = Mark(1, 5, 12)
    tally.answered(URI, "python", rest, N_CHARACTERS - 5)
    tally.accepted(rest.as_json())
    assert counted(tally) == Counts(accepted=1, partly_accepted=-1, characters=N_CHARACTERS - 5)


def test_t2_what_was_typed_is_not_accepted() -> None:
    tally = Tally(lambda: DAY)
    answered(tally)
    rest = Mark(1, 4, 11)
    tally.answered(URI, "python", rest, N_CHARACTERS - 4)
    tally.accepted(rest.as_json())
    assert counted(tally) == Counts(accepted=1, characters=N_CHARACTERS - 4)


def test_t1_one_that_has_grown_since_it_was_accepted_is_one_of_which_more_was_accepted() -> None:
    tally = Tally(lambda: DAY)
    tally.answered(URI, "python", Mark(1), 7)
    tally.accepted(Mark(1).as_json())
    assert counted(tally) == Counts(accepted=1, characters=7)
    rest = Mark(1, 7, 14)
    tally.answered(URI, "python", rest, N_CHARACTERS - 7)
    told = {"item": item(rest, "def add" + TEXT), "acceptedLength": 14 + 2 + len("    return")}
    for _ in range(2):
        tally.told("partly_accepted", told)
        # Who tells only the document may mean what was counted already.
        tally.told("partly_accepted", {"textDocument": {"uri": URI}, "acceptedLength": 3})
    assert counted(tally) == Counts(characters=1 + len("    return"))
    for _ in range(2):
        tally.accepted(rest.as_json())
    assert counted(tally) == Counts(characters=len(" a + b"))


def test_an_editor_that_tells_only_the_document_means_what_was_answered_there_last() -> None:
    tally = Tally(lambda: DAY)
    answered(tally)
    where = {"textDocument": {"uri": URI}}
    tally.told("shown", where)
    for n_new in (2, 3):
        tally.told("partly_accepted", {**where, "acceptedLength": n_new})
    tally.told("rejected", where)
    tally.told("shown", {"textDocument": {"uri": "file:///b.py"}})
    assert counted(tally) == Counts(shown=1, partly_accepted=1, rejected=1, characters=5)


def test_characters_beyond_the_basic_plane_are_one_each() -> None:
    tally = Tally(lambda: DAY)
    mark = Mark(7, 0, 1)
    tally.answered(URI, "python", mark, 3)
    tally.told("partly_accepted", {"item": item(mark, "x😀😀y"), "acceptedLength": 5})
    assert counted(tally) == Counts(partly_accepted=1, characters=2)


def test_a_part_is_taken_back_on_the_day_it_was_counted() -> None:
    days = ["2026-05-01"]
    tally = Tally(lambda: days[0])
    one = answered(tally)
    tally.told("partly_accepted", {"item": one, "acceptedLength": 2})
    days[0] = "2026-05-02"
    tally.accepted(Mark(1, 2, 2).as_json())
    assert tally.take() == {
        ("2026-05-01", "python"): Counts(characters=2),
        ("2026-05-02", "python"): Counts(accepted=1, characters=N_CHARACTERS - 2),
    }


def test_what_could_not_be_saved_is_counted_on() -> None:
    tally = Tally(lambda: DAY)
    tally.told("shown", {"item": answered(tally)})
    tally.give_back(tally.take())
    tally.told("shown", {"item": answered(tally, 2)})
    assert counted(tally) == Counts(shown=2)


def test_known_are_marks_that_were_answered_and_nothing_else() -> None:
    tally = Tally(lambda: DAY)
    answered(tally)
    assert tally.knows(Mark(1, 3).as_json())
    odd: list[Any] = [Mark(2).as_json(), {"x": 1}, "zzz", [], None, {"number": 1}]
    assert not any(tally.knows(one) for one in odd)


def test_of_old_suggestions_nothing_is_known() -> None:
    tally = Tally(lambda: DAY)
    old = answered(tally)
    for number in range(2, MAX_KNOWN + 2):
        answered(tally, number)
    tally.told("shown", {"item": old})
    assert tally.take() == {}


@given(JSON, st.sampled_from(["shown", "partly_accepted", "rejected"]))
@settings(max_examples=50)
def test_nothing_that_is_told_raises(value: Any, event: Event) -> None:
    tally = Tally(lambda: DAY)
    answered(tally)
    tally.told(event, value)
    tally.accepted(value)
    tally.knows(value)
    mark = Mark(1).as_json()
    for arguments in (value, [value], [{**mark, "number": value}], [mark]):
        told = {"command": {"arguments": arguments}, "insertText": value}
        tally.told(event, {"item": told, "acceptedLength": value})
        tally.accepted(arguments)
    tally.told(event, {"textDocument": {"uri": URI}, "acceptedLength": value})


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 40), st.booleans()), max_size=8))
def test_t2_no_more_than_a_suggestion_has_is_counted(
    parts: list[tuple[int, int, bool]],
) -> None:
    tally = Tally(lambda: DAY)
    answered(tally)
    for start, length, is_whole in parts:
        start = min(start, N_CHARACTERS)
        mark = Mark(1, start, 0)
        if is_whole:
            tally.accepted(mark.as_json())
        else:
            told = {"item": item(mark, TEXT[start:]), "acceptedLength": length}
            tally.told("partly_accepted", told)
    counts = counted(tally)
    assert 0 <= counts.characters <= N_CHARACTERS
    assert counts.accepted + counts.partly_accepted <= 1
