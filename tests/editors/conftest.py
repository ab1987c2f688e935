"""No hole in what `make test-editors` tests."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from editors.needed import fail_where_needed


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    fail_where_needed(report)
    return report
