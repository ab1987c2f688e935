"""What docs/security.md says is tested has its test."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "security.md").read_text()


def test_every_test_that_is_named_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", DOCUMENT))
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert named and not {name for name in named if f"def {name}(" not in sources}


def test_every_file_that_is_named_is_there() -> None:
    named = set(re.findall(r"`((?:tests|server)/[\w/.]+)`", DOCUMENT))
    assert named and not {path for path in named if not (ROOT / path).exists()}
