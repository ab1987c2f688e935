"""What is logged of a failure never has a value in it."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Callable

import pytest

from suture.server.logs import ValuelessFormatter, _is_failure, log_loop_error, without_values

SECRET = "password = hunter2"


def caught(fail: Callable[[], object]) -> Exception:
    try:
        fail()
    except Exception as error:
        return error
    raise AssertionError("it did not fail")


def quotes() -> None:
    raise ValueError(f"cannot take {SECRET!r}")


def chains() -> None:
    try:
        quotes()
    except ValueError as error:
        raise RuntimeError(SECRET) from error


def groups() -> None:
    raise ExceptionGroup(SECRET, [caught(quotes), KeyError(SECRET)])


@pytest.mark.parametrize(
    ("fail", "types"),
    [
        (quotes, ["ValueError"]),
        (chains, ["ValueError", "RuntimeError"]),
        (groups, ["ExceptionGroup", "ValueError", "KeyError"]),
        (lambda: int(SECRET), ["ValueError"]),
    ],
)
def test_a_failure_is_its_types_and_frames(fail: Callable[[], object], types: list[str]) -> None:
    said = without_values(caught(fail))
    assert "hunter2" not in said
    assert [name for name in types if name in said] == types
    assert __file__ in said


def test_an_error_that_is_its_own_cause_ends() -> None:
    error = caught(quotes)
    other = RuntimeError(SECRET)
    error.__cause__, other.__cause__ = other, error
    assert without_values(error).count("RuntimeError") == 1


def test_other_libraries_exceptions_are_logged_in_the_same_form() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(ValuelessFormatter("%(levelname)s %(name)s: %(message)s"))
    logger = logging.Logger("library")
    logger.addHandler(handler)
    try:
        quotes()
    except ValueError:
        logger.exception("it failed")
    said = stream.getvalue()
    assert said.startswith("ERROR library: it failed\nValueError\n")
    assert "hunter2" not in said


def test_a_cancelled_task_is_no_failure() -> None:
    def logged(error: BaseException) -> bool:
        info = (type(error), error, None)
        record = logging.LogRecord("library", logging.ERROR, "", 0, "it failed", (), info)
        return _is_failure(record)

    assert not logged(asyncio.CancelledError())
    assert logged(ValueError())


def test_an_error_in_a_callback_is_logged_without_its_arguments(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(log_loop_error)
        loop.call_soon(int, SECRET)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(run())
    assert "ValueError" in caplog.text
    assert "hunter2" not in caplog.text
