"""`docs/clients.md`: what one copies from it is well formed, and asks what is there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from starlette.testclient import TestClient

from support.fake_completer import FakeCompleter
from support.http_server import serving, settings
from support.neovim import NVIM
from suture.server.app import create_app

PAGE = (Path(__file__).parents[2] / "docs" / "clients.md").read_text("utf-8")
BLOCKS = re.findall(r"(?ms)^```(\w+)\n(.*?)^```$", PAGE)
ADDRESS = "http://127.0.0.1:8012"


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCKS if name == language]


def run_nvim(tmp_path: Path, name: str, text: str, command: str) -> None:
    """Let Neovim judge a file; it exits with an error if it is none of its language."""
    (tmp_path / name).write_text(text)
    judge = f"try | {command} | catch | cquit | endtry"
    argv = [str(NVIM), "--clean", "--headless", "-c", judge, "-c", "qall!"]
    subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True, timeout=30)


def test_every_block_is_of_a_language_that_is_checked() -> None:
    assert {name for name, _ in BLOCKS} == {"json", "lua", "python", "sh", "toml", "vim", "yaml"}


def test_settings_are_well_formed() -> None:
    for text in blocks("json"):
        assert json.loads(text)
    for text in blocks("yaml"):
        assert yaml.safe_load(text)
    for text in blocks("toml"):
        assert tomllib.loads(text)


def test_shell_commands_are_well_formed() -> None:
    for text in blocks("sh"):
        subprocess.run(["bash", "-n", "-c", text], check=True, timeout=30)


@pytest.mark.skipif(NVIM is None, reason="there is no nvim to read Lua and Vim script")
def test_neovims_set_ups_are_well_formed(tmp_path: Path) -> None:
    for text in blocks("lua"):
        run_nvim(tmp_path, "a.lua", text, "lua assert(loadfile('a.lua'))")
    for text in blocks("vim"):
        run_nvim(tmp_path, "a.vim", text, "source a.vim")


def test_the_libraries_example_runs() -> None:
    completer = FakeCompleter()
    environment = os.environ | {"NO_PROXY": "127.0.0.1"}
    with serving(completer) as url:
        for text in blocks("python"):
            argv = [sys.executable, "-c", text.replace(ADDRESS, url)]
            subprocess.run(argv, env=environment, check=True, timeout=60)
    assert [(one.prefix, one.suffix) for one in completer.requests] == [("def f(", "):\n")] * 3


def test_every_address_on_the_page_is_one_of_ours() -> None:
    ours = settings()
    assert ADDRESS == f"http://{ours.host}:{ours.port}"
    http = TestClient(create_app(FakeCompleter(), ours), base_url=ADDRESS)
    paths = set(re.findall(rf"{ADDRESS}(/[\w/]*)", PAGE))
    whole = {path for path in paths if not path.endswith("/") and path != "/v1"}
    assert {"/infill", "/v1/completions", "/v1/fim/completions"} <= whole
    for path in whole:
        assert http.post(path, json={}).status_code == 400, path


def test_every_client_of_the_table_has_its_place() -> None:
    anchors = set(re.findall(r"\]\(#([\w-]+)\)", PAGE))
    titles = re.findall(r"(?m)^## (.+)$", PAGE)
    slugs = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    assert anchors <= slugs
