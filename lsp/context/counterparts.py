"""The other half of a file: the header of a source, the tests of an implementation. PURE.

Paths and mentions are those of `imports.py`, and so is I1.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from suture.lsp.context.imports import Mention

_HEADERS = (".h", ".hpp", ".hh", ".hxx")
_SOURCES = (".c", ".cpp", ".cc", ".cxx", ".m", ".mm", ".cu")
# How names say that a file has tests, each with what it tests.
_TESTS = (
    re.compile(r"test_(?P<stem>.+)"),
    re.compile(r"(?P<stem>.+)[._-](?:test|tests|spec)"),
    re.compile(r"(?P<stem>.+)(?:Tests?|Spec)"),
)
_TEST_FORMS = ("test_{}", "{}_test", "{}.test", "{}.spec", "{}_spec", "{}Test", "{}Spec")
_TEST_FOLDERS = ("test", "tests", "__tests__", "spec")


def counterparts(path: str) -> list[Mention]:
    """The files that belong to a file by their names."""
    return [kept for one in _found(path) if (kept := tuple(p for p in one if p != path))]


def _found(path: str) -> Iterator[Mention]:
    directory, name = posixpath.split(path)
    stem, ending = posixpath.splitext(name)
    if ending in _HEADERS or ending in _SOURCES:
        others = _SOURCES if ending in _HEADERS else _HEADERS
        yield tuple(
            posixpath.join(place, stem + other) for place in _half_of(directory) for other in others
        )
    tested = next((found["stem"] for one in _TESTS if (found := one.fullmatch(stem))), None)
    if tested is not None:
        yield tuple(posixpath.join(place, tested + ending) for place in _tested(directory))
    else:
        yield tuple(
            posixpath.join(place, form.format(stem) + ending)
            for place in _tests_of(directory)
            for form in _TEST_FORMS
        )


def _half_of(directory: str) -> list[str]:
    """Where the header of a source is, and the other way round."""
    parts = directory.split("/")
    swap = {"src": "include", "include": "src"}
    swapped = "/".join(swap.get(part, part) for part in parts)
    return list(dict.fromkeys((directory, swapped)))


def _tested(directory: str) -> list[str]:
    """Where that is which tests in a directory are for."""
    parts = directory.split("/")
    without = "/".join(part for part in parts if part not in _TEST_FOLDERS)
    main = "/".join("main" if part == "test" else part for part in parts)
    above = posixpath.dirname(directory)
    sources = "/".join("src" if part in _TEST_FOLDERS else part for part in parts)
    return list(dict.fromkeys((directory, without, above, main, sources)))


def _tests_of(directory: str) -> list[str]:
    parts = directory.split("/")
    swapped = "/".join("test" if part == "main" else part for part in parts)
    beside = (posixpath.join(directory, folder) for folder in _TEST_FOLDERS)
    return list(dict.fromkeys((directory, *beside, swapped, "tests", "test")))
