"""The project's layout: links, wheel and documents agree."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from suture.server.settings import Settings

ROOT = Path(__file__).parents[2]


def test_the_links_are_what_the_wheel_maps() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    sources = project["tool"]["hatch"]["build"]["targets"]["wheel"]["sources"]
    links = {link.name: link for link in (ROOT / ".dev" / "suture").iterdir()}
    assert {f"suture/{name}" for name in links} == set(sources.values())
    assert all(links[name].resolve() == ROOT / name for name in sources)


def test_no_bare_package_name_is_importable(tmp_path: Path) -> None:
    code = (
        "import importlib.util as u; "
        "print([n for n in ('server', 'healing', 'lsp') if u.find_spec(n)])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_the_wheel_has_the_packages_the_models_and_no_links(tmp_path: Path) -> None:
    options = ("--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT))
    subprocess.run([sys.executable, "-m", "build", *options], check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = wheel.namelist()
        assert wheel.read("suture/server/models/models.txt") == (ROOT / "models.txt").read_bytes()
    packages = {"suture/healing", "suture/lsp", "suture/server"}
    top = {"/".join(name.split("/")[:2]) for name in names if name.startswith("suture/")}
    assert top == packages
    assert {f"{package}/py.typed" for package in packages} <= set(names)
    assert "suture/server/routes/docs.html" in names
    pages = {name for name in names if name.startswith("suture/server/pages/")}
    assert pages == {
        f"suture/server/pages/built/{name}"
        for name in ("icon.svg", "licences.txt", "page.css", "page.html", "page.js")
    }
    assert "suture/__init__.py" not in names


DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
    *(f"docs/editors/{path.name}" for path in (ROOT / "docs" / "editors").glob("*.md")),
]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_of_the_documents_lead_somewhere(document: str) -> None:
    path = ROOT / document
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        assert target.startswith("https://") or (path.parent / target).exists(), target


@pytest.mark.parametrize("document", [*DOCUMENTS, "CHANGELOG.md"])
def test_nothing_in_the_documents_is_still_to_be_filled_in(document: str) -> None:
    assert re.findall(r"@@\w*|\b(?:TODO|TBD|FIXME)\b", (ROOT / document).read_text()) == []


def test_the_documents_name_every_setting() -> None:
    told = (ROOT / "docs" / "settings.md").read_text()
    for name in set(Settings.model_fields) - {"config_dir"}:
        assert f"`{name}`" in told and f"SUTURE_{name.upper()}" in told, name
