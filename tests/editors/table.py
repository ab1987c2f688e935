"""Which scenario passed in which front end, as a table in Markdown.

pytest tests/editors --junit-xml=editors.xml; python tests/editors/table.py editors.xml ...
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

FRONT_ENDS = ("raw-vscode", "raw-neovim", "raw-copilot", "neovim", "vscode")
_NAME = re.compile(rf"test_scenario\[({'|'.join(FRONT_ENDS)})-(.+)\]")
_NAME_LAST = re.compile(rf"test_scenario\[(.+)-({'|'.join(FRONT_ENDS)})\]")


def read_results(xml: str) -> dict[str, dict[str, str]]:
    """By scenario and front end: passed, failed, or skipped."""
    results: dict[str, dict[str, str]] = {}
    for case in ElementTree.fromstring(xml).iter("testcase"):
        name = case.get("name", "")
        if found := _NAME.fullmatch(name):
            front_end, scenario = found.groups()
        elif found := _NAME_LAST.fullmatch(name):
            scenario, front_end = found.groups()
        else:
            continue
        kinds = {child.tag for child in case}
        failed = kinds & {"failure", "error"}
        result = "failed" if failed else "skipped" if "skipped" in kinds else "passed"
        results.setdefault(scenario.replace("-", " "), {})[front_end] = result
    return results


def table(results: dict[str, dict[str, str]]) -> str:
    """A row for each scenario, a column for each front end in which any was played."""
    played = {name for row in results.values() for name, result in row.items() if result}
    columns = [name for name in FRONT_ENDS if name in played]
    marks = {"passed": "✓", "failed": "✗", "skipped": "–"}
    lines = [
        f"| scenario | {' | '.join(columns)} |",
        f"| --- |{' :-: |' * len(columns)}",
    ]
    for scenario, row in results.items():
        cells = " | ".join(marks.get(row.get(name, ""), "") for name in columns)
        lines.append(f"| {scenario} | {cells} |")
    return "\n".join(lines)


if __name__ == "__main__":
    told: dict[str, dict[str, str]] = {}
    for path in sys.argv[1:]:
        for scenario, row in read_results(Path(path).read_text("utf-8")).items():
            told.setdefault(scenario, {}).update(row)
    print(table(told))
