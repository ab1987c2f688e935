"""What a run has shown, as a table in Markdown: each test, and the figures that it recorded."""

from __future__ import annotations

import json
import platform
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from suture.server.version import VERSION

_VERSIONS = """
import importlib.metadata, json
names = ("vllm", "torch", "transformers", "tokenizers", "xgrammar", "llguidance")
print(json.dumps({name: importlib.metadata.version(name) for name in names}))
"""


class RunReport:
    """A plugin of pytest that writes `target` at the end of a run of tests of what is in `folder`.

    A test's row has what it gave to `record_property`. Those of one function share a row, in which
    whole numbers are added up.
    """

    def __init__(self, target: Path, folder: Path) -> None:
        self._target = target
        self._folder = folder
        self._outcomes: dict[str, Counter[str]] = {}
        self._figures: dict[str, dict[str, object]] = {}
        self._began = datetime.now(UTC)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # What fails before or after a test fails it; what passes there says nothing.
        if report.when != "call" and report.passed:
            return
        name = report.nodeid.partition("::")[2].partition("[")[0]
        self._outcomes.setdefault(name, Counter())[report.outcome] += 1
        figures = self._figures.setdefault(name, {})
        for key, value in report.user_properties:
            match figures.get(key), value:
                case int(before), int(more):
                    figures[key] = before + more
                case _:
                    figures[key] = value

    def pytest_sessionfinish(self) -> None:
        self._target.write_text("\n".join(self._lines()) + "\n", "utf-8")

    def _lines(self) -> Iterator[str]:
        took = round((datetime.now(UTC) - self._began).total_seconds())
        yield "# A run on a real vLLM\n"
        yield "Written by `make test-vllm`.\n"
        yield f"{self._began:%Y-%m-%d}, {took} s, {_processor()}."
        yield f"Suture {VERSION}, {self._versions()}.\n"
        yield "| test | outcome | figures |"
        yield "| --- | --- | --- |"
        for name, outcomes in self._outcomes.items():
            outcome = ", ".join(f"{n} {outcome}" for outcome, n in outcomes.items())
            figures = "; ".join(f"{key}: {value}" for key, value in self._figures[name].items())
            yield f"| {name.removeprefix('test_').replace('_', ' ')} | {outcome} | {figures} |"

    def _versions(self) -> str:
        python = self._folder / "server" / "bin" / "python"
        told = subprocess.run([python, "-c", _VERSIONS], capture_output=True, text=True, check=True)
        return ", ".join(f"{name} {version}" for name, version in json.loads(told.stdout).items())


def _processor() -> str:
    """What computes here."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(models)} cores of {models[0]}" if models else platform.processor()
