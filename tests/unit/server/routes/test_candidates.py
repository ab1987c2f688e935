"""The order of candidates, and which of them are one."""

from __future__ import annotations

from suture.server.request import CompletionRequest, CompletionResult, Edit
from suture.server.routes.candidates import Completed, parse_errors, ranked


def candidate(
    index: int, text: str, confidence: float | None = None, edit: Edit | None = None
) -> Completed:
    result = CompletionResult("eos", completion_tokens=3, confidence=confidence, edit=edit)
    return Completed(text, [index], result, index)


def unknown(candidate: Completed) -> None:
    """Nobody knows."""


def order(candidates: list[Completed]) -> list[tuple[int, str]]:
    return [(one.index, one.text) for one in candidates]


def test_the_surest_comes_first_and_one_without_text_last() -> None:
    found = ranked([candidate(0, ""), candidate(1, "a", 0.5), candidate(2, "b", 0.75)], unknown)
    assert order(found) == [(0, "b"), (1, "a"), (2, "")]


def test_errors_come_before_sureness_and_what_nobody_knows_is_none() -> None:
    n_errors = {"a": 1, "b": 0, "c": None, "d": 1}
    found = ranked(
        [candidate(i, text, (i + 1) / 10) for i, text in enumerate("abcd")],
        lambda one: n_errors[one.text],
    )
    assert order(found) == [(0, "c"), (1, "b"), (2, "d"), (3, "a")]


def test_those_of_one_text_and_edit_are_one() -> None:
    edit = Edit(1, "a)")
    found = ranked(
        [
            candidate(0, "b", 0.9),
            candidate(1, "a", 0.5),
            candidate(2, "a", 0.5, edit),
            candidate(3, "a", 0.5),
            candidate(4, "a", 0.5),
        ],
        unknown,
    )
    assert order(found) == [(0, "b"), (1, "a"), (2, "a")]
    assert [one.n_merged for one in found] == [0, 6, 0]
    assert [one.result.edit for one in found] == [None, None, edit]


def test_without_scores_they_stay_in_their_order() -> None:
    texts = ["b", "c", "a"]
    found = ranked([candidate(i, text) for i, text in enumerate(texts)], unknown)
    assert order(found) == list(enumerate(texts))


def test_one_alone_stays_as_it_is() -> None:
    [only] = ranked([candidate(0, "")], unknown)
    assert (only.index, only.n_merged) == (0, 0)


def test_errors_are_those_of_the_file_with_the_candidate_as_an_editor_inserts_it() -> None:
    request = CompletionRequest("x = f(a", ")\r\ny = 1\r\n", infill=True, path="a.py")
    n_errors = parse_errors(request)
    assert n_errors(candidate(0, ", b")) == 0
    assert n_errors(candidate(0, ", b", edit=Edit(1, ", b)\r\nz = 2"))) == 0
    assert n_errors(candidate(0, ", b)(")) == 0
    broken = n_errors(candidate(0, ", (b"))
    assert broken is not None and broken > 0
    assert parse_errors(CompletionRequest("a", "b", path="a.unknown"))(candidate(0, ")")) is None
