"""Texts to be completed: HumanEval's holes, and this project's own sources."""

from __future__ import annotations

import ast
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parent.parent.parent
HOLES = ROOT / "benchmarks/data/HumanEval-RandomSpanInfillingLight.jsonl.gz"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Hole:
    """What stands before and after the cursor."""

    prefix: str
    suffix: str


def human_eval_holes() -> list[Hole]:
    """HumanEval's random spans, the light set."""
    with gzip.open(HOLES, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [Hole(row["prompt"], row["suffix"]) for row in rows]


def human_eval_headers() -> list[str]:
    """Imports, signature and docstring of each task, whose body is to be written."""
    return [header for header, _ in human_eval_programs()]


def human_eval_programs() -> list[tuple[str, str]]:
    """Header and body of each task whose hole was not in the docstring itself."""
    with gzip.open(HOLES, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    before = {row["entry_point"]: row["prompt"] + row["canonical_solution"] for row in rows}
    after = {row["entry_point"]: row["suffix"] for row in rows}
    headers = {name: _header(text, name) for name, text in before.items()}
    return [
        (header, (before[name] + after[name])[len(header) :])
        for name, header in headers.items()
        if header
    ]


def _header(text: str, name: str) -> str:
    """Up to the docstring's end; empty where the hole was in the docstring itself."""
    start = text.find(f"def {name}(")
    ends = [text.find(quotes, start) for quotes in ('"""', "'''")]
    opening = min((end for end in ends if end >= 0), default=-1)
    if start < 0 or opening < 0:
        return ""
    closing = text.find(text[opening : opening + 3], opening + 3)
    return text[: closing + 3] + "\n" if closing >= 0 else ""


def source_files() -> list[Path]:
    """Of this project, all that ships."""
    return [
        path
        for folder in ("healing", "lsp", "server")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]


def source_pieces(n_bytes: int) -> Iterator[str]:
    """Whole lines from the middle of each file, at least so many bytes, no two alike."""
    for path in source_files():
        lines = path.read_text("utf-8").splitlines(keepends=True)
        piece = ""
        for line in lines[len(lines) // 4 :]:
            if len(piece) >= n_bytes:
                yield piece
                break
            piece += line


def long_text(n_bytes: int) -> str:
    """The sources one after the other, cut at a line's end."""
    text = "".join(path.read_text("utf-8") for path in source_files())[:n_bytes]
    return text[: text.rfind("\n") + 1]


def functions(n_lines: range) -> list[str]:
    """The functions of the sources that have so many lines, at no indentation, with their ends."""
    found = []
    for path in source_files():
        text = path.read_text("utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and not node.decorator_list:
                source = ast.get_source_segment(text, node)
                if source is not None and source.count("\n") + 1 in n_lines:
                    found.append(source + "\n")
    return found


def spread(items: list[T], n: int) -> list[T]:
    """`n` of them, evenly spread; all where there are no more."""
    return [items[i * len(items) // n] for i in range(n)] if n < len(items) else items
