"""What is not installed is skipped, and fails where it has to be installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("needed", "outcome"), [("", "1 skipped"), ("1", "1 error")])
def test_an_editor_that_is_not_installed_is_a_failure_where_it_is_needed(
    needed: str, outcome: str
) -> None:
    here = Path(__file__).parent
    one = f"{here / 'test_vscode.py'}::test_a_snooze_is_shown_and_ended"
    told = {"CODE_SERVER_DIR": str(here / "nowhere"), "EDITORS_NEEDED": needed}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", one]
    done = subprocess.run(
        command, cwd=here.parents[1], env={**os.environ, **told}, capture_output=True, text=True
    )
    assert outcome in done.stdout, done.stdout + done.stderr
    assert "not installed: " in done.stdout
