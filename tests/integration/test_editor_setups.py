"""`docs/editors` and `editor-clients`: what one copies is well formed, and names what there is."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from support.elisp import Symbol, plist, read_forms
from support.http_server import serving, settings
from support.lsp_client import URI, Json, editing
from support.writing_completer import WritingCompleter
from suture.lsp.settings import Options, read_options

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / "editor-clients"
PAGES = sorted((ROOT / "docs" / "editors").glob("*.md"))
EMACS = shutil.which("emacs")
ADDRESS = "http://127.0.0.1:8012"
# What Helix says of itself when it starts, as far as Suture looks at it.
HELIX: Json = {
    "clientInfo": {"name": "helix", "version": "25.07.1"},
    "capabilities": {
        "general": {"positionEncodings": ["utf-8", "utf-32", "utf-16"]},
        "textDocument": {"completion": {"completionItem": {"snippetSupport": True}}},
        "window": {"workDoneProgress": True},
        "workspace": {
            "configuration": True,
            "didChangeConfiguration": {"dynamicRegistration": False},
        },
    },
}


def blocks(language: str) -> list[str]:
    """All blocks of one language on the pages."""
    found = [re.findall(r"(?ms)^```(\w+)\n(.*?)^```$", page.read_text("utf-8")) for page in PAGES]
    return [text for of_page in found for name, text in of_page if name == language]


def without_comments(text: str) -> str:
    """JSON from what Zed reads, which may have comments where JSON has blanks."""
    part = r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/'
    return re.sub(part, lambda found: found[1] or " ", text, flags=re.DOTALL)


def options_of(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The names of all options, `section.name` in a section."""
    for field in model.model_fields.values():
        name, kind = f"{prefix}{field.alias}", field.annotation
        if inspect.isclass(kind) and issubclass(kind, BaseModel):
            yield from options_of(kind, f"{name}.")
        else:
            yield name


OPTIONS = set(options_of(Options))


def assert_ours(given: dict[str, Any]) -> None:
    """Each option is there, and has a value that fits."""
    sections = {name.split(".")[0] for name in OPTIONS if "." in name}
    named = {
        f"{name}.{inner}" if name in sections else name
        for name, value in given.items()
        for inner in (value if name in sections else [""])
    }
    assert named <= OPTIONS, named - OPTIONS
    assert read_options(given)[1] == []


def helix_options(text: str) -> dict[str, Any]:
    config = tomllib.loads(text)["language-server"]["suture"]["config"]
    assert list(config) == ["suture"]
    options: dict[str, Any] = config["suture"]
    return options


HELIX_TOML = (CLIENTS / "helix" / "languages.toml").read_text("utf-8")


def test_every_block_is_of_a_language_that_is_checked() -> None:
    languages = [re.findall(r"(?m)^```(\w+)$", page.read_text("utf-8")) for page in PAGES]
    assert {name for of_page in languages for name in of_page} == {"elisp", "toml"}
    assert {page.stem for page in PAGES} >= {"emacs", "helix", "zed"}


def test_helix_starts_our_language_server_with_options_of_ours() -> None:
    read = tomllib.loads(HELIX_TOML)
    server = read["language-server"]["suture"]
    assert [server["command"], *server["args"]] == ["suture", "lsp"]
    for language in read["language"]:
        assert language["language-servers"][-1] == "suture"
        assert len(language["language-servers"]) > 1, "it would lose its own servers"
    for text in (HELIX_TOML, *blocks("toml")):
        assert_ours(helix_options(text))
        assert helix_options(text)["completion"] is True


def test_helix_is_answered_with_rows_that_pass_its_filter() -> None:
    """It shows the rows that the word before the cursor begins, whatever their ranges are."""
    config = {"suture": helix_options(HELIX_TOML)}
    place = {"textDocument": {"uri": URI}, "position": {"line": 0, "character": 3}}

    async def edit(url: str) -> None:
        told: dict[str, object] = {"workspace/configuration": [config["suture"]]}
        async with editing(url, HELIX, config["suture"], told) as editor:
            editor.open("pri\n", language="python")
            listed = await editor.request("textDocument/completion", place)
            (row,) = listed["items"]
            assert row["filterText"].startswith("pri") and row["label"] == "print(1)"
            assert row["textEdit"]["newText"] == "print(1)"
            assert row["textEdit"]["range"]["start"] == {"line": 0, "character": 0}

    with serving(WritingCompleter(text="print(1)")) as url:
        asyncio.run(edit(url))


def test_zed_asks_at_our_address_as_the_page_of_clients_says() -> None:
    text = (CLIENTS / "zed" / "settings.json").read_text("utf-8")
    given = json.loads(without_comments(text))["edit_predictions"]
    ours = settings()
    assert ADDRESS == f"http://{ours.host}:{ours.port}"
    assert given["ollama"]["api_url"] == ADDRESS
    assert given["open_ai_compatible_api"]["api_url"] == f"{ADDRESS}/v1/completions"
    page = (ROOT / "docs" / "clients.md").read_text("utf-8").split("\n## Zed\n")[1]
    shown = json.loads(re.findall(r"(?ms)^```json\n(.*?)^```$", page)[0])["edit_predictions"]
    assert shown == {"provider": given["provider"], "ollama": given["ollama"]}


def test_comments_are_left_out_of_json_and_strings_are_not() -> None:
    text = '{ // a "b"\n"url": "http://x/*y*/", /* "c": 1,\n*/ "d": "\\"//" }'
    assert json.loads(without_comments(text)) == {"url": "http://x/*y*/", "d": '"//'}


EMACS_LISP = CLIENTS / "emacs" / "suture.el"


def test_emacs_set_up_is_well_formed_and_starts_our_language_server() -> None:
    forms = read_forms(EMACS_LISP.read_text("utf-8"))
    assert forms[-1] == [Symbol("provide"), [Symbol("'"), Symbol("suture")]]
    (command,) = (form[2] for form in forms if form[1:2] == [Symbol("suture-command")])
    assert command == [Symbol("'"), ["suture", "lsp"]]
    for text in blocks("elisp"):
        assert read_forms(text)


def test_emacs_options_are_ours() -> None:
    given = [
        plist(form[2][1])
        for text in blocks("elisp")
        for form in read_forms(text)
        if form[:2] == [Symbol("setq"), Symbol("suture-options")]
    ]
    assert given
    for options in given:
        assert_ours(options)
    example = re.search(r"\(:maxTokens [^)]*\)", EMACS_LISP.read_text("utf-8"))
    assert example is not None
    (options,) = read_forms(example[0].replace('\\"', '"'))
    assert_ours(plist(options))


def emacs(*arguments: str) -> str:
    """What a real Emacs prints, which complains of nothing."""
    command = [str(EMACS), "--batch", "-Q", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert "rror" not in ended.stderr and "arning" not in ended.stderr, ended.stderr
    return ended.stdout


@pytest.mark.skipif(EMACS is None, reason="there is no emacs")
def test_emacs_loads_the_file_and_starts_the_server_with_the_options(tmp_path: Path) -> None:
    options = "(setq suture-options '(:maxTokens 32 :prefetch :json-false))"
    told = "(princ (json-encode (plist-get (cddr (suture-eglot)) :initializationOptions)))"
    printed = emacs("-l", str(EMACS_LISP), "-l", "json", "--eval", options, "--eval", told)
    given = json.loads(printed)["suture"]
    assert_ours(given)
    assert given == {"completion": True, "maxTokens": 32, "prefetch": False}
    copied = shutil.copy(EMACS_LISP, tmp_path)
    strict = "(setq byte-compile-error-on-warn t)"
    emacs("--eval", strict, "-f", "batch-byte-compile", str(copied))


@pytest.mark.skipif(EMACS is None, reason="there is no emacs")
def test_emacs_reads_the_blocks_of_the_page(tmp_path: Path) -> None:
    for n, text in enumerate(blocks("elisp")):
        path = tmp_path / f"{n}.el"
        path.write_text(text)
        count = f'(with-temp-buffer (insert-file-contents "{path}") (check-parens))'
        emacs("--eval", count)


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("(a (b)", "line 1: ( has no end"),
        ("(a\n])", "line 2: ] ends the ( of line 1"),
        ("(a))", "line 1: ) closes nothing"),
        ("(a ')", "line 1: ' quotes nothing"),
        ('(a "b)', "has no end"),
    ],
)
def test_the_reader_finds_what_is_wrong(source: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=re.escape(wrong)):
        read_forms(source)


def test_the_reader_knows_strings_characters_and_comments() -> None:
    forms = read_forms('(a ?\\( "b ; \\" (" [1 :k]) ; ((\nlsp-feature? (x . ,@y)')
    a, k, dot = Symbol("a"), [Symbol("1"), Symbol(":k")], Symbol(".")
    assert forms == [
        [a, Symbol("?\\("), 'b ; " (', k],
        Symbol("lsp-feature?"),
        [Symbol("x"), dot, [Symbol(",@"), Symbol("y")]],
    ]
