"""The blocks of Python in our documents, run."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

_DOCS = Path(__file__).parents[2] / "docs"


def run_block(document: str, number: int, names: dict[str, object]) -> None:
    """Runs one block of a document; the failures are what doctest reports."""
    path = _DOCS / document
    block = re.findall(r"```python\n(.*?)```", path.read_text("utf-8"), re.DOTALL)[number]
    test = doctest.DocTestParser().get_doctest(block, names, document, str(path), 0)
    report: list[str] = []
    doctest.DocTestRunner().run(test, out=report.append)
    assert not report, "".join(report)
