"""A scenario played in an editor.

What must be so is looked for again and again, for as long as a busy machine may take. What must not
come (another request, another text, nothing at all) has a while to come, longer than any client or
bridge waits for the next key, and is looked for all that while.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from editors.front_end import FrontEnd
from editors.scenario import Opened, Scenario, Step, place_of
from editors.stage import Stage

DEADLINE_S = 30.0
HOLD_S = 0.4
STAY_S = 0.25
_PAUSE_S = 0.02


class Play:
    """One scenario in one editor, from its beginning."""

    def __init__(self, scenario: Scenario, front: FrontEnd, stage: Stage) -> None:
        self._scenario, self._front, self._stage = scenario, front, stage
        self._over = scenario.over
        # How many requests had begun when something was said of them last.
        self._n_told = 0

    def run(self) -> None:
        """Do all steps; an `AssertionError` says which one did not do as it must."""
        scenario, front = self._scenario, self._front
        writes = "" if scenario.writes is None else self._over + scenario.writes
        self._stage.begin(writes, scenario.says)
        front.configure(scenario.options, scenario.closes_brackets)
        self._open(Opened(file=scenario.file_name, text=scenario.text))
        _until(self._has_server)
        for n, step in enumerate(scenario.steps, 1):
            try:
                self._do(step)
                self._expect(step)
            except AssertionError as error:
                done = step.verb or "what is said"
                raise AssertionError(f"step {n} ({done}): {error}") from None
        assert front.complaints == [], f"the editor complained: {front.complaints}"

    def end(self) -> None:
        """Leave the server ready, the bridge too, which asks one that failed ever more seldom."""
        is_well = self._stage.is_ready
        self._stage.turn("ready")
        if not is_well or self._front.status.get("kind") == "Error":
            self._front.configure({"prefetch": False}, False)
            self._front.open("at-the-end.py", "x = \n")
            self._front.go_to(0, 4)
            self._front.ask()
            _until(lambda: _same("status", self._front.status.get("reason") or "", "", "EMPTY"))
        _until(self._is_idle)

    def _open(self, opened: Opened) -> None:
        text, line, index = place_of(self._over + opened.text)
        self._front.open(opened.file, text)
        self._front.go_to(line, index)

    def _has_server(self) -> None:
        """Some editors start it with the first document."""
        assert self._front.status.get("kind"), "the language server has not said how it does"

    def _do(self, step: Step) -> None:
        front = self._front
        if step.type is not None:
            self._type(step)
        elif step.press is not None:
            front.press(step.press)
        elif step.paste is not None:
            front.paste(step.paste)
        elif step.accept is not None:
            front.accept(step.accept)
        elif step.popup is not None:
            front.show_popup(step.popup)
        elif step.go_to is not None:
            front.go_to(*step.go_to)
        elif step.open is not None:
            self._open(step.open)
        elif step.server is not None:
            self._stage.turn(step.server)
        elif step.verb is not None:
            {"ask": front.ask, "dismiss": front.dismiss, "undo": front.undo, "split": front.split}[
                step.verb
            ]()

    def _type(self, step: Step) -> None:
        assert step.type is not None
        if not step.stays:
            self._front.type(step.type, step.ms_a_key)
            return
        for n, key in enumerate(step.type, 1):
            self._front.type(key)
            try:
                self._shows(step)
                _holds(lambda: self._shown(step), STAY_S)
            except AssertionError as error:
                raise AssertionError(f"behind {step.type[:n]!r}: {error}") from None

    def _expect(self, step: Step) -> None:
        if step.shows is not None:
            self._shows(step)
        checks: list[Callable[[], None]] = [
            check
            for is_said, check in (
                (step.text is not None, lambda: self._has_text(step)),
                (step.contains is not None, lambda: self._contains(step)),
                (step.reason is not None, lambda: self._has_reason(step)),
                (step.kind is not None, lambda: self._has_kind(step)),
                (step.cancelled_at_least is not None, lambda: self._has_cancelled(step)),
                (step.idle is not None, self._is_idle),
            )
            if is_said
        ]
        for check in checks:
            _until(check)
        if step.nothing is not None:
            _until(self._shows_nothing)
            _holds(self._shows_nothing, HOLD_S)
        if step.requests is not None or step.requests_at_most is not None:
            self._count_requests(step)

    def _shows(self, step: Step) -> None:
        _until(lambda: self._shown(step))

    def _shown(self, step: Step) -> None:
        assert step.shows is not None
        _same("it shows", self._front.preview, self._over + step.shows)

    def _shows_nothing(self) -> None:
        _same("it shows", self._front.preview, self._front.text)

    def _has_text(self, step: Step) -> None:
        assert step.text is not None
        text, line, index = place_of(self._over + step.text)
        _same("the document", self._front.text, text)
        if text != self._over + step.text:
            _same("the cursor", self._front.cursor, (line, index))

    def _contains(self, step: Step) -> None:
        text = self._front.text
        assert step.contains is not None and step.contains in text, (
            f"the document: {_end_of(text)} has no {step.contains!r}"
        )

    def _has_reason(self, step: Step) -> None:
        _same("the reason", self._front.status.get("reason") or "", step.reason or "")

    def _has_kind(self, step: Step) -> None:
        _same("the status", self._front.status.get("kind"), step.kind)

    def _has_cancelled(self, step: Step) -> None:
        n_cancelled = self._stage.model.cancelled
        assert n_cancelled >= (step.cancelled_at_least or 0), f"{n_cancelled} were cancelled"

    def _is_idle(self) -> None:
        n_running = self._stage.model.n_running
        assert n_running == 0, f"{n_running} requests run"

    def _count_requests(self, step: Step) -> None:
        if step.requests is not None:
            _until(lambda: self._has_begun(step.requests, None))
        _holds(lambda: self._has_begun(step.requests, step.requests_at_most), HOLD_S)
        self._n_told = self._n_begun()

    def _n_begun(self) -> int:
        """The requests in this scenario's document: one of the last may come late."""
        name = self._scenario.file_name
        paths = list(self._stage.model.begun)
        return sum(path.endswith(name) if name else not path for path in paths)

    def _has_begun(self, exactly: int | None, at_most: int | None) -> None:
        n_begun = self._n_begun() - self._n_told
        is_so = n_begun == exactly if exactly is not None else n_begun <= (at_most or 0)
        assert is_so, f"{n_begun} requests"


def _until(check: Callable[[], None]) -> None:
    """Wait until a check does not fail."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            check()
            return
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_S)


def _holds(check: Callable[[], None], hold_s: float) -> None:
    """Look for so long whether a check ever fails."""
    deadline = time.monotonic() + hold_s
    while time.monotonic() < deadline:
        check()
        time.sleep(_PAUSE_S)


def _same(what: str, found: object, *wanted: object) -> None:
    assert found in wanted, f"{what}: {_end_of(found)}, expected {_end_of(wanted[0])}"


def _end_of(value: object) -> str:
    """A value for a message: of a long text its end."""
    shown = repr(value)
    return shown if len(shown) < 1000 else f"... {shown[-1000:]}"
