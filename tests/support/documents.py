"""The blocks of Python in our documents, run."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

_DOCS = Path(__file__).parents[2] / "docs"


def run_blocks(document: str, names: dict[str, object]) -> int:
    """Runs a document's blocks one after the other, in one namespace; how many examples.

    Fails with what doctest reports.
    """
    path = _DOCS / document
    blocks = "".join(re.findall(r"```python\n(.*?)```", path.read_text("utf-8"), re.DOTALL))
    test = doctest.DocTestParser().get_doctest(blocks, names, document, str(path), 0)
    report: list[str] = []
    results = doctest.DocTestRunner().run(test, out=report.append)
    assert not report, "".join(report)
    return results.attempted
