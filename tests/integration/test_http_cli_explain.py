"""`suture explain` against a real server, and in this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from support.explaining import exact
from support.fake_completer import FakeCompleter
from support.http_server import serving, settings
from suture.server import cli
from suture.server.errors import EngineError, InfillUnsupported
from suture.server.routes.completer import Completer
from suture.server.settings import Settings


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("SUTURE_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    # No test of this file may meet a server that happens to run here.
    monkeypatch.setenv("SUTURE_PORT", "9")
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server over the scripted engine."""
    with exact(settings()) as completer, serving(completer) as address:
        yield address


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.js"
    path.write_bytes(b"const userNa;\n")
    return path


# The toy model knows what follows in this order.
SPM = ["--layout", "spm"]


def asked(*arguments: str, stdin: bytes = b"", **environ: str) -> tuple[int, bytes, bytes]:
    """Status, output and errors of a process that no terminal belongs to."""
    kept = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    process = subprocess.run(
        [sys.executable, "-m", "suture.server", "explain", *arguments],
        input=stdin,
        capture_output=True,
        env=kept | {"PYTHONPATH": os.pathsep.join(sys.path), **environ},
        timeout=60,
    )
    return process.returncode, process.stdout, process.stderr


def test_a_pipe_gets_text_without_colour_in_its_encoding(url: str, file: Path) -> None:
    for encoding, bar, edge in (("utf-8", "█", "│"), ("ascii", "#", "|")):
        status, out, err = asked(
            f"{file}:1:13", "--server", url, *SPM, PYTHONIOENCODING=encoding, TERM="xterm"
        )
        text = out.decode(encoding)
        assert (status, err) in ((0, b""), (1, b"suture: no text: EMPTY\n"))
        assert f"tokens as typed  {edge}const 256{edge} user 257{edge}Na 259{edge}" in text
        assert bar in text and "\x1b" not in text
        assert "healed INSIDE_WORD" in text and "exact      asked" in text


def test_a_terminal_without_a_name_or_a_dumb_one_gets_no_escapes(url: str, file: Path) -> None:
    for term, is_coloured in (("", False), ("dumb", False), ("xterm", True)):
        _, out, _ = asked(
            f"{file}:1:13", "--server", url, *SPM, TERM=term, FORCE_COLOR="1", COLUMNS="100"
        )
        assert (b"\x1b" in out) == is_coloured, term


def test_json_is_the_answer_of_the_route_and_the_same_in_process(
    url: str, file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def local_completer(settings: Settings) -> Iterator[Completer]:
        with exact(settings) as completer:
            yield completer

    module = ModuleType("suture.server.local")
    module.__dict__["local_completer"] = local_completer
    monkeypatch.setitem(sys.modules, "suture.server.local", module)
    monkeypatch.setattr("suture.server.commands.in_process.require_llama_cpp", lambda: None)
    monkeypatch.setattr("suture.server.commands.in_process.with_model_file", lambda given: given)
    answers = []
    for where in (["--server", url], ["--local"]):
        cli.main(["explain", f"{file}:1:13", "--json", *where, *SPM, "--give-back", "1"])
        answers.append(json.loads(capfd.readouterr().out))
        del answers[-1]["prompt"]
    assert answers[0] == answers[1]
    assert answers[0]["boundary"]["pending"] == "Na" and answers[0]["covers"] is not None


def test_flags_are_those_of_complete(file: Path, tmp_path: Path) -> None:
    # Without an explanation of its own: what was asked is all that matters.
    fake = FakeCompleter()
    with serving(fake) as address:
        command = [f"{file}:1:13", "--server", address, "--healing", "off", "--max-tokens", "5"]
        command += ["--fim-boundary", "move"]
        cli.main(["explain", *command, "--extra", str(file)])
        cli.main(["complete", *command, "--extra", str(file)])
    requests = fake.requests
    assert len(requests) == 2 and requests[0] == requests[1]
    assert (requests[0].healing, requests[0].max_tokens) == ("off", 5)
    assert requests[0].fim_boundary == "move"


def test_the_status_says_what_complete_says(
    url: str, file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # In psm order the toy model has nothing to say.
    assert cli.main(["explain", f"{file}:1:13", "--server", url, "--layout", "psm"]) == 1
    out, err = capfd.readouterr()
    assert err == "suture: no text: EMPTY\n" and "BEHIND_SENTINEL" in out
    assert cli.main(["explain", f"{file}:9:9", "--server", url]) == 2
    assert cli.main(["explain", f"{file}:1:13", "--server", "http://127.0.0.1:9"]) == 3
    assert cli.main(["explain"]) == 2
    for error, status in ((InfillUnsupported("no sentinels"), 1), (EngineError("failed"), 3)):
        with serving(FakeCompleter(explanation=error)) as address:
            assert cli.main(["explain", f"{file}:1:13", "--server", address]) == status
    assert "NO_FIM: no sentinels" in capfd.readouterr().err


def test_standard_input_has_its_cursor_at_the_nul(url: str) -> None:
    status, out, _ = asked("-", "--server", url, "--json", *SPM, stdin=b"const user\0Na;\n")
    told = json.loads(out)
    assert status in (0, 1)
    assert (told["cursor"]["before"], told["cursor"]["after"]) == ("const user", "Na;\n")
    assert "WORD_AFTER_CURSOR" in [one["code"] for one in told["diagnoses"]]
