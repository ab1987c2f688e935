"""When nothing is asked, and the reason that is given."""

from __future__ import annotations

import pytest

from suture.lsp.documents import Cursor
from suture.lsp.gates import MAX_LINE, Switches, cursor_gate, file_gate
from suture.lsp.settings import Options
from suture.server.request import Reason

ON = Switches()


def reason_in(
    uri: str, options: Options, switches: Switches = ON, language: str = "python"
) -> Reason | None:
    refusal = file_gate(uri, language, options, switches, now=100.0)
    return None if refusal is None else refusal.reason


def cursor(before: str, after: str) -> Cursor:
    return Cursor("file:///a.py", "python", 1, 0, before, after, before, after)


@pytest.mark.parametrize(
    "uri",
    ["file:///home/a/.env", "file:///home/a/.ssh/config", "file:///C%3A/x/id_rsa", "untitled:.env"],
)
def test_files_of_secrets_are_excluded(uri: str) -> None:
    assert reason_in(uri, Options()) == "EXCLUDED"


@pytest.mark.parametrize("glob", ["*.csv", "data/*", "**/data/**", "/repo/data/big.csv"])
def test_the_globs_of_the_user_are_excluded(glob: str) -> None:
    options = Options(exclude=(glob,))
    assert reason_in("file:///repo/data/big.csv", options) == "EXCLUDED"
    assert reason_in("file:///repo/src/a.py", options) is None


@pytest.mark.parametrize("uri", ["untitled:Untitled-1", "file:///a.py", "vscode-remote://h/a.py"])
def test_other_files_and_buffers_without_a_file_are_open(uri: str) -> None:
    assert reason_in(uri, Options()) is None


def test_a_language_and_everything_can_be_turned_off_and_on_again() -> None:
    uri, options = "file:///a.md", Options(languages={"markdown": False})
    assert reason_in(uri, options, language="markdown") == "DISABLED"
    switched = ON.toggled(options, "markdown")
    assert reason_in(uri, options, switched, "markdown") is None
    switched = switched.toggled(options, None)
    assert reason_in(uri, options, switched, "markdown") == "DISABLED"
    assert reason_in(uri, options, switched.toggled(options, None), "markdown") is None


def test_messages_of_commits_are_off_unless_asked_for() -> None:
    uri = "file:///r/.git/COMMIT_EDITMSG"
    assert reason_in(uri, Options(), language="git-commit") == "DISABLED"
    options = Options(languages={"git-commit": True})
    assert reason_in(uri, options, language="git-commit") is None


def test_snoozing_ends_by_itself() -> None:
    assert reason_in("file:///a.py", Options(), Switches(snoozed_until=100.5)) == "DISABLED"
    assert reason_in("file:///a.py", Options(), Switches(snoozed_until=99.5)) is None


@pytest.mark.parametrize("after", ["name()", "_x", "é", "1"])
def test_in_front_of_a_word_nothing_comes_unless_asked_for(after: str) -> None:
    refusal = cursor_gate(cursor("get", after), is_automatic=True)
    assert refusal is not None and refusal.reason == "MIDWORD"
    assert cursor_gate(cursor("get", after), is_automatic=False) is None


@pytest.mark.parametrize("after", ["", ")", " + b", ".x", '"'])
def test_elsewhere_it_comes_by_itself(after: str) -> None:
    assert cursor_gate(cursor("get", after), is_automatic=True) is None


def test_in_a_line_of_a_minified_file_nothing_comes_by_itself() -> None:
    refusal = cursor_gate(cursor("x" * MAX_LINE, ";"), is_automatic=True)
    assert refusal is not None and refusal.reason == "DISABLED"
