"""The byte path's examples in docs/detokenizing.md give what the document says."""

import doctest
import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[3] / "docs" / "detokenizing.md"


def test_the_documents_examples_of_the_byte_path_are_true() -> None:
    section = DOCUMENT.read_text().split("## The byte path")[1].split("## The window path")[0]
    examples = "".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL))
    parsed = doctest.DocTestParser().get_doctest(examples, {}, DOCUMENT.name, str(DOCUMENT), 0)
    report: list[str] = []

    results = doctest.DocTestRunner().run(parsed, out=report.append)

    assert results.attempted > 10
    assert not report, "".join(report)
