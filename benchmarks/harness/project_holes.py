"""Holes that another file of the same project helps to fill, out of sources that are installed.

A hole is the rest of a line behind `name(` or `module.`, where `name` or `module` is imported from
another file of the project, which defines it and is short enough to be shown whole. Projects are
the packages of the standard library and of the site-packages, and this project itself, which is in
no model's training data before it is published.
"""

from __future__ import annotations

import ast
import random
import re
import sysconfig
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from harness.texts import ROOT

N_BEFORE, N_AFTER = 25, 10
# As many characters as a quarter of the context holds for sure.
MIN_OTHER, MAX_OTHER = 600, 4_000
MIN_MIDDLE, MAX_MIDDLE = 6, 60
N_AROUND = 32
OWN = "suture"
_SKIPPED = {"test", "tests", "idlelib", "lib2to3", "site-packages", "_vendor", "vendor", "data"}

Module = tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """A file of a project; `module` is what it is imported as."""

    module: Module
    path: str
    text: str

    @property
    def project(self) -> str:
        return self.module[0]

    def parsed(self) -> list[ast.stmt]:
        """Its statements; none if it is no Python of this version."""
        try:
            return ast.parse(self.text).body
        except (SyntaxError, ValueError):
            return []

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines(keepends=True)

    @cached_property
    def definitions(self) -> dict[str, ast.stmt]:
        """The functions and classes at its top level by name."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return {node.name: node for node in self.parsed() if isinstance(node, kinds)}


@dataclass(frozen=True)
class ProjectHole:
    """A hole in one file, and `name` of the other file that stands before it."""

    source: Source
    line: int
    column: int
    other: Source
    name: str

    @property
    def key(self) -> str:
        return f"{self.source.path}:{self.line + 1}:{self.column + 1}"

    @property
    def prefix(self) -> str:
        above = self.source.lines[max(self.line - N_BEFORE, 0) : self.line]
        return "".join(above) + self.source.lines[self.line][: self.column]

    @property
    def middle(self) -> str:
        return self.source.lines[self.line][self.column :].rstrip("\n")

    @property
    def suffix(self) -> str:
        return "\n" + "".join(self.source.lines[self.line + 1 : self.line + 1 + N_AFTER])

    @property
    def signature(self) -> str:
        """The definition up to its body; of a class, its fields and its methods up to theirs."""
        return "".join(_signature(self.other.definitions[self.name], self.other.lines))

    @property
    def surroundings(self) -> str:
        """The lines around the definition, as many as editors send."""
        at = self.other.definitions[self.name].lineno - 1
        return "".join(self.other.lines[max(at - N_AROUND // 2, 0) :][: 2 * N_AROUND])


def _signature(node: ast.stmt, lines: list[str]) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return lines[node.lineno - 1 : max(node.body[0].lineno - 1, node.lineno)]
    if isinstance(node, ast.ClassDef):
        head = lines[node.lineno - 1 : max(node.body[0].lineno - 1, node.lineno)]
        return head + [line for inner in node.body for line in _signature(inner, lines)]
    is_field = isinstance(node, ast.AnnAssign | ast.Assign)
    return lines[node.lineno - 1 : node.end_lineno] if is_field else []


def project_holes(all_of_them: Sequence[Source], seed: int = 0) -> list[ProjectHole]:
    """All holes in these sources, those of the projects in turns, always in the same order."""
    choose = random.Random(seed)
    by_project: dict[str, list[ProjectHole]] = defaultdict(list)
    sources = {source.module: source for source in all_of_them}
    for source in sources.values():
        # One of a file: calls of one name in one file are much alike.
        found = list(_holes_in(source, sources))
        if found:
            by_project[source.project].append(choose.choice(found))
    for holes in by_project.values():
        choose.shuffle(holes)
    names = [name for name in by_project if name != OWN]
    choose.shuffle(names)
    turns = max(map(len, by_project.values()), default=0)
    # This project is a half of the first ones, or none of it would be among a few.
    own = iter(by_project[OWN])
    ordered = []
    for turn in range(turns):
        for name in names:
            if turn < len(by_project[name]):
                ordered += [by_project[name][turn], *(hole for hole in [next(own, None)] if hole)]
    return [*ordered, *own]


def unrelated_to(hole: ProjectHole, sources: Sequence[Source]) -> Source:
    """A file of another project that is as long as the hole's other one, or a little longer."""
    n = len(hole.other.text)
    others = (source for source in sources if source.project != hole.source.project)
    longer = (source for source in others if n <= len(source.text) <= 2 * n)
    return min(longer, key=lambda source: (len(source.text), source.path))


def all_sources() -> list[Source]:
    """The files of all projects, in one order."""
    own = (
        _read((OWN, folder, *_module(path, ROOT / folder)), path, f"{OWN}/{folder}", ROOT / folder)
        for folder in ("healing", "server")
        for path in sorted((ROOT / folder).rglob("*.py"))
    )
    roots = [Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib"))]
    installed = (
        _read(_module(path, root), path, "", root)
        for root in roots
        for package in sorted(root.iterdir())
        if (package / "__init__.py").is_file() and package.name not in _SKIPPED
        for path in sorted(package.rglob("*.py"))
        if not _SKIPPED & set(path.relative_to(root).parts)
    )
    found = (source for source in (*own, *installed) if source is not None)
    return sorted(found, key=lambda source: source.path)


def _module(path: Path, root: Path) -> Module:
    parts = path.relative_to(root).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def _read(module: Module, path: Path, prefix: str, root: Path) -> Source | None:
    """The file as a source; None if it is long, or not in ASCII."""
    if not module or path.stat().st_size > 60_000:
        return None
    text = path.read_bytes().decode("ascii", "replace").replace("\r\n", "\n")
    source = Source(module, f"{prefix}/{path.relative_to(root)}".lstrip("/"), text)
    return None if "\ufffd" in text else source


def _holes_in(source: Source, sources: dict[Module, Source]) -> Iterator[ProjectHole]:
    if not re.search(rf"(?m)^from (?:\.|{source.project}\b)", source.text):
        return
    statements = source.parsed()
    imported = dict(_imported(source, statements, sources))
    for node in (node for statement in statements for node in ast.walk(statement)):
        match node:
            case ast.Call(func=ast.Name(id=name) as of) if (other := imported.get(name)) and (
                name in other.definitions
            ):
                opens = "("
            case ast.Attribute(value=ast.Name(id=module) as of, attr=name) if (
                other := imported.get(module)
            ) and name in other.definitions:
                opens = "."
            case _:
                continue
        assert of.end_lineno is not None and of.end_col_offset is not None
        hole = ProjectHole(source, of.end_lineno - 1, of.end_col_offset + 1, other, name)
        line = source.lines[hole.line]
        is_there = line[hole.column - 1 : hole.column] == opens
        if is_there and MIN_MIDDLE <= len(hole.middle) <= MAX_MIDDLE:
            yield hole


def _imported(
    source: Source, statements: Sequence[ast.stmt], sources: dict[Module, Source]
) -> Iterator[tuple[str, Source]]:
    """The names that come from other files of the project, or are such files, with the files."""
    is_package = source.path.endswith("__init__.py")
    for node in statements:
        if not isinstance(node, ast.ImportFrom):
            continue
        base = tuple((node.module or "").split(".")) if node.module else ()
        if node.level:
            n_up = node.level - int(is_package)
            base = source.module[: len(source.module) - n_up] + base
        for alias in node.names:
            other = sources.get((*base, alias.name)) or sources.get(base)
            is_other = other is not None and other.project == source.project and other != source
            if is_other and other and MIN_OTHER <= len(other.text) <= MAX_OTHER:
                yield alias.asname or alias.name, other
