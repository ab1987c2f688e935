"""What is not installed of all that drives an editor: its tests are skipped, by `missing`.

Where EDITORS_NEEDED is set, as by `make test-editors`, which installs it, they fail instead.
"""

from __future__ import annotations

import os

import pytest

_MISSING = "not installed: "


def missing(what: str) -> str:
    """The reason of a test that is skipped for it."""
    return _MISSING + what


def fail_where_needed(report: pytest.TestReport) -> None:
    """Make of a test that was skipped for what is missing one that failed."""
    if os.environ.get("EDITORS_NEEDED") and report.skipped and _MISSING in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = str(report.longrepr)
