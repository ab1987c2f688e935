"""The pages' sources, and that what is sent is what was built of them. No npm is needed."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import get_args

import pytest

from suture.server.request import Reason
from suture.server.routes.pages import NONCE, built

FOLDER = Path(__file__).parents[3] / "server" / "pages"
SOURCES = sorted((FOLDER / "src").iterdir())
SCRIPTS = [path for path in SOURCES if path.suffix == ".js"]
BUILT = ("icon.svg", "licences.txt", "page.css", "page.html", "page.js")
MAX_BYTES = 500_000


def test_what_is_committed_was_built_of_these_sources() -> None:
    names = ["build.mjs", "package-lock.json", "package.json", *(f"src/{p.name}" for p in SOURCES)]
    names = sorted(names) + [f"built/{name}" for name in BUILT]
    lines = [
        f"{hashlib.sha256((FOLDER / name).read_bytes()).hexdigest()}  {name}" for name in names
    ]
    told = (FOLDER / "built" / "digests.txt").read_text("utf-8").splitlines()
    assert told == lines, "make pages builds them anew"


def test_all_pages_together_are_small() -> None:
    assert sum(len(built(name).encode()) for name in BUILT) <= MAX_BYTES


def test_packages_are_pinned_to_the_version_and_their_licences_are_told() -> None:
    package = (FOLDER / "package.json").read_text("utf-8")
    [dependencies] = re.findall(r'(?s)"devDependencies": \{(.*?)\}', package)
    versions = re.findall(r'"([^"]+)": "([^"]+)"', dependencies)
    assert versions and all(re.fullmatch(r"\d+\.\d+\.\d+", version) for _, version in versions)
    licences = built("licences.txt")
    for name, version in versions:
        assert name == "esbuild" or f"{name} {version} (MIT)" in licences
    assert "Permission is hereby granted" in licences


def test_the_page_has_no_inline_scripts_styles_or_handlers() -> None:
    markup = built("page.html")
    assert not re.search(r"\bstyle\s*=|<style", markup)
    assert not re.search(r"<[^>]*\son\w+\s*=", markup)
    assert re.findall(r"<script[^>]*>(.*?)</script>", markup) == [""]
    assert markup.count(NONCE) == 1
    assert not re.search(r"https?:|//[a-z]", markup + built("page.css"))


def test_every_control_has_a_label() -> None:
    markup = built("page.html")
    labelled = re.findall(r"(?s)<label>(.*?)</label>", markup)
    controls = re.findall(r"<(?:select|input)\b", markup)
    assert sum(len(re.findall(r"<(?:select|input)\b", one)) for one in labelled) == len(controls)


SINKS = """innerHTML outerHTML insertAdjacent document.write eval( Function( setAttribute("on
localStorage sessionStorage cookie DOMParser createContextualFragment "javascript: http: https:
import(""".split()


@pytest.mark.parametrize("sink", SINKS)
def test_no_script_makes_markup_of_text_or_keeps_any(sink: str) -> None:
    for path in SCRIPTS:
        # A namespace is no address.
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert sink not in text, path.name


def test_scripts_ask_for_elements_that_there_are() -> None:
    ids = set(re.findall(r'\bid="(\w+)"', built("page.html")))
    for path in SCRIPTS:
        asked = set(re.findall(r'byId\("(\w+)"\)', path.read_text("utf-8")))
        assert asked <= ids, path.name


def test_every_reason_has_a_sentence() -> None:
    told = re.findall(r"(?m)^  ([A-Z_]+): ", (FOLDER / "src" / "reasons.js").read_text("utf-8"))
    assert tuple(told) == get_args(Reason)
