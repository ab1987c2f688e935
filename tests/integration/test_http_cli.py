"""`suture complete` against a real server, and in this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType

import pytest

from support.fake_completer import DONE, FakeCompleter, says
from support.http_server import serving
from suture.server import cli
from suture.server.commands.pull import NO_LLAMA_CPP, with_model_file
from suture.server.errors import EngineError, InfillUnsupported, Loading, Unreachable
from suture.server.request import CompletionChunk, CompletionResult, Edit, Reason
from suture.server.routes.completer import Completer
from suture.server.settings import Settings

TEXT = "range(3)\r\n\u2028é🎉"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("SUTURE_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # No test of this file may meet a server that happens to run here.
    monkeypatch.setenv("SUTURE_PORT", "9")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.py"
    path.write_bytes(b"for i in :\r\n    pass\r\n")
    return path


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCompleter:
    """The completer that `--local` finds in place of a model."""
    fake = FakeCompleter(says("range(3)\r\n", "\u2028é🎉"))

    @contextmanager
    def local_completer(settings: Settings) -> Iterator[Completer]:
        yield fake

    module = ModuleType("suture.server.local")
    module.__dict__["local_completer"] = local_completer
    monkeypatch.setitem(sys.modules, "suture.server.local", module)
    # The fake runs without it.
    monkeypatch.setattr("suture.server.commands.in_process.require_llama_cpp", lambda: None)

    def find(given: Settings) -> Settings:
        return given if given.model is None else with_model_file(given)

    monkeypatch.setattr("suture.server.commands.in_process.with_model_file", find)
    return fake


def test_the_text_is_the_same_from_a_server_and_in_process_byte_for_byte(
    file: Path, local: FakeCompleter, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    remote = FakeCompleter(local.script)
    with serving(remote) as url:
        for where in (["--server", url], ["--local"]):
            for how in ([], ["--stream"]):
                assert cli.main(["complete", f"{file}:1:10", *where, *how]) == 0
                out, err = capfdbinary.readouterr()
                assert (out, err) == (TEXT.encode(), b"")
    # Over HTTP somebody asks; in the process nobody has to be told apart.
    asked = [replace(one, user=None) for one in (*remote.requests, *local.requests)]
    assert len({*map(str, asked)}) == 1
    request = remote.requests[0]
    assert (request.prefix, request.suffix) == ("for i in ", ":\r\n    pass\r\n")
    assert request.sampling.temperature == 0 and request.path == str(file)


def test_flags_of_the_request_are_sent(file: Path, tmp_path: Path) -> None:
    extra = tmp_path / "b.py"
    extra.write_text("x = 1\n")
    fake = FakeCompleter()
    flags = ["--healing", "off", "--give-back", "2", "--layout", "spm", "--max-tokens", "7"]
    flags += ["--fim-boundary", "move", "--shape", "block", "--language", "lua"]
    with serving(fake) as url:
        command = ["complete", f"{file}:2:1", "--server", url, *flags]
        assert cli.main([*command, "--extra", str(extra), str(file)]) == 0
    request = fake.requests[0]
    assert (request.healing, request.give_back, request.layout) == ("off", 2, "spm")
    assert (request.fim_boundary, request.max_tokens) == ("move", 7)
    assert (request.shape, request.language) == ("block", "lua")
    assert [(extra.text, extra.path) for extra in request.extra] == [
        ("x = 1\n", str(extra)),
        ("for i in :\r\n    pass\r\n", str(file)),
    ]


def test_file_names_that_are_not_utf8_are_sent_with_a_mark(tmp_path: Path) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.py")
    Path(odd).write_text("x")
    fake = FakeCompleter()
    with serving(fake) as url:
        assert cli.main(["complete", f"{odd}:1:2", "--server", url, "--extra", odd]) == 0
    marked = f"{tmp_path}/\ufffd.py"
    assert fake.requests[0].path == fake.requests[0].extra[0].path == marked


def test_json_prints_the_whole_answer(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(FakeCompleter(says("range(3)", ""))) as url:
        assert cli.main(["complete", f"{file}:1:10", "--server", url, "--json"]) == 0
    answer = json.loads(capfd.readouterr().out)
    assert answer["content"] == answer["suture"]["edit"]["text"] == "range(3)"
    assert answer["stop"] is True


def test_diff_shows_the_change_of_the_file(
    file: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with serving(FakeCompleter(says("x"))) as url:
        assert cli.main(["complete", f"{file}:1:10", "--server", url, "--diff"]) == 0
    out = capfdbinary.readouterr().out
    assert out.endswith(b"-for i in :\r\n+for i in x:\r\n     pass\r\n")


def test_diff_shows_what_an_answer_writes_over_closers(
    file: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    last = CompletionChunk("", result=CompletionResult("eos", edit=Edit(1, ": \n")))
    with serving(FakeCompleter([last])) as url:
        assert cli.main(["complete", f"{file}:1:10", "--server", url, "--diff"]) == 0
    assert capfdbinary.readouterr().out.endswith(b"-for i in :\r\n+for i in : \n+\r\n     pass\r\n")


@pytest.mark.parametrize("where", ["server", "local"])
def test_candidates_are_lines_of_json_the_best_first_and_each_once(
    where: str, file: Path, local: FakeCompleter, capfd: pytest.CaptureFixture[str]
) -> None:
    texts = [("", None), ("a\nb", 0.5), ("c", 0.75), ("c", 0.75)]
    local.script = [
        CompletionChunk(text, (), CompletionResult("eos", confidence=confidence), index)
        for index, (text, confidence) in enumerate(texts)
    ]
    with serving(local) as url:
        flags = ["--server", url] if where == "server" else ["--local"]
        assert cli.main(["complete", f"{file}:1:10", *flags, "-n", "4"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["c", "a\nb", ""]
    [request] = local.requests
    assert (request.n, request.sampling.temperature, request.sampling.seed) == (4, 0.4, 0)


def test_candidates_without_text_are_status_1_with_the_reason_of_the_first(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = CompletionResult("stop", "LOW_CONFIDENCE")
    script = [CompletionChunk("", (), result, index) for index in range(2)]
    with serving(FakeCompleter(script)) as url:
        assert cli.main(["complete", f"{file}:1:10", "--server", url, "-n", "2"]) == 1
    out, err = capfd.readouterr()
    assert (json.loads(out), err) == ({"text": ""}, "suture: no text: LOW_CONFIDENCE\n")


def test_the_least_confidence_is_asked_for(file: Path) -> None:
    fake = FakeCompleter()
    with serving(fake) as url:
        flags = ["--server", url, "--min-confidence", "0.25"]
        assert cli.main(["complete", f"{file}:1:10", *flags]) == 0
    assert fake.requests[0].min_confidence == 0.25


def test_no_text_is_status_1_with_the_reason(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    told: tuple[tuple[Reason | None, str], ...] = (("BUDGET", "BUDGET"), (None, "EMPTY"))
    for reason, said in told:
        last = CompletionChunk("", result=CompletionResult("length", reason))
        with serving(FakeCompleter([last])) as url:
            assert cli.main(["complete", f"{file}:1:1", "--server", url]) == 1
        assert capfd.readouterr() == ("", f"suture: no text: {said}\n")


@pytest.mark.parametrize("where", ["server", "local"])
def test_errors_are_one_line_with_their_status(
    where: str, file: Path, local: FakeCompleter, capfd: pytest.CaptureFixture[str]
) -> None:
    for error, status, said in (
        (InfillUnsupported("Infill is not supported by this model: x"), 1, "NO_FIM: Infill is not"),
        (EngineError("decode failed\nbadly"), 3, "ERROR: decode failed badly"),
    ):
        local.script = [error]
        with serving(FakeCompleter([error])) as url:
            flags = ["--server", url] if where == "server" else ["--local"]
            assert cli.main(["complete", f"{file}:1:1", *flags]) == status
        out, err = capfd.readouterr()
        assert out == "" and err.startswith(f"suture: {said}") and err.count("\n") == 1


def test_an_answer_that_breaks_off_is_status_3(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken: list[CompletionChunk | Exception] = [CompletionChunk("ab", (1,)), EngineError("gone")]
    with serving(FakeCompleter(broken)) as url:
        assert cli.main(["complete", f"{file}:1:1", "--server", url]) == 3
    assert capfd.readouterr() == ("", "suture: ERROR: gone\n")


def test_a_server_that_is_loading_is_waited_for(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fake = FakeCompleter([Loading("Loading model")])

    def load_once_asked() -> None:
        while not fake.requests:
            time.sleep(0.01)
        fake.script = says("ready")

    with serving(fake) as url:
        threading.Thread(target=load_once_asked, daemon=True).start()
        assert cli.main(["complete", f"{file}:1:1", "--server", url]) == 0
    assert capfd.readouterr().out == "ready"
    assert len(fake.requests) == 2


class NotSuture(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()
        self.wfile.write(b'{"error":{"code":404,"message":"File Not Found"}}')

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def another_server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), NotSuture) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_without_a_server_it_completes_locally(
    file: Path, local: FakeCompleter, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["complete", f"{file}:1:1"]) == 0
    assert capfd.readouterr().err == "" and len(local.requests) == 1


def test_another_server_on_the_port_is_warned_of_and_not_asked(
    file: Path,
    local: FakeCompleter,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with another_server() as url:
        monkeypatch.setenv("SUTURE_PORT", url.rpartition(":")[2])
        assert cli.main(["complete", f"{file}:1:1"]) == 0
        told = f"suture: {url}: something that is not Suture"
        assert capfd.readouterr().err == f"{told}: completing locally\n"
        assert cli.main(["complete", f"{file}:1:1", "--server", url]) == 3
        assert capfd.readouterr().err == f"{told}\n"
        monkeypatch.setenv("SUTURE_SERVER", url)  # the same as the flag
        assert cli.main(["complete", f"{file}:1:1"]) == 3
    assert len(local.requests) == 1


def test_a_server_with_another_model_is_not_asked(
    file: Path,
    local: FakeCompleter,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    fake = FakeCompleter()
    with serving(fake) as url:
        monkeypatch.setenv("SUTURE_PORT", url.rpartition(":")[2])
        other = file.parent / "other.gguf"
        other.touch()
        model = ["--model", str(other)]
        assert cli.main(["complete", f"{file}:1:1", *model]) == 0
        assert "another model: toy: completing locally" in capfd.readouterr().err
        assert cli.main(["complete", f"{file}:1:1", "--server", url, *model]) == 3
        assert cli.main(["complete", f"{file}:1:1", "--server", url, "--model", "toy"]) == 0
        monkeypatch.setenv("SUTURE_MODEL", str(other))  # the same as the flag
        assert cli.main(["complete", f"{file}:1:1"]) == 0
    assert (len(fake.requests), len(local.requests)) == (1, 2)


def test_the_position_may_follow_the_extra_files(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fake = FakeCompleter()
    with serving(fake) as url:
        assert cli.main(["complete", "--server", url, "--extra", str(file), f"{file}:1:1"]) == 0
        assert cli.main(["complete", "--server", url, "--extra", str(file)]) == 2
    assert "where? expected FILE:LINE:COL or -" in capfd.readouterr().err
    [request] = fake.requests
    assert [extra.path for extra in request.extra] == [str(file)]
    assert request.path == str(file)


def test_a_server_that_was_named_must_be_there(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for url, status, code in (
        ("http://127.0.0.1:9", 3, "UNREACHABLE: "),
        ("http://[", 3, "UNREACHABLE: "),
        ("127.0.0.1:9", 2, ""),
        ("ftp://x", 2, ""),
        ("", 2, ""),
    ):
        assert cli.main(["complete", f"{file}:1:1", "--server", url]) == status, url
        err = capfd.readouterr().err
        assert err.startswith(f"suture: {code}{url}: ") and "internal" not in err
        assert err.count("\n") == 1


def test_a_key_is_sent(file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    with serving(FakeCompleter(), api_key_file=keys) as url:
        assert cli.main(["complete", f"{file}:1:1", "--server", url]) == 3
        assert capfd.readouterr().err == f"suture: AUTH: {url}: a server that wants an API key\n"
        os.environ["SUTURE_API_KEY_FILE"] = str(keys)
        assert cli.main(["complete", f"{file}:1:1", "--server", url]) == 0
        del os.environ["SUTURE_API_KEY_FILE"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["{file}:9:1"],
        ["{file}:1:99"],
        ["{file}"],
        ["nothing.py:1:1"],
        ["{file}:1:1", "--extra", "nothing.py"],
        ["{file}:1:1", "-n", "0"],
        ["{file}:1:1", "-n", "17"],
        ["{file}:1:1", "--min-confidence", "2"],
        ["{file}:1:1", "-n", "2", "--diff"],
        ["{file}:1:1", "--max-tokens", "-1"],
        ["{file}:1:1", "--healing", "magic"],
        ["{file}:1:1", "--fim-boundary", "mix"],
        ["{file}:1:1", "--model", "nothing.gguf", "--local"],
        ["{file}:1:1", "--json", "--diff"],
        ["{file}:1:1", "--server", "http://x", "--local"],
        ["{file}:1:1", "--mod", "x"],
        [],
    ],
)
def test_wrong_usage_is_one_line_and_status_2(
    arguments: list[str],
    file: Path,
    local: FakeCompleter,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["complete", *(argument.format(file=file) for argument in arguments)]) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.startswith("suture") and err.count("\n") == 1
    assert local.requests == []


def test_a_number_that_is_none_is_named(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for flag, value in (("--max-tokens", "-1"), ("--max-tokens", "1e3"), ("-n", "-2")):
        assert cli.main(["complete", f"{file}:1:1", flag, value]) == 2
        told = f"argument {flag}: must be a whole number from 0 on, not '{value}'"
        assert told in capfd.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
@pytest.mark.parametrize("arguments", [["complete"], ["complete", "--stream"], ["models"]])
def test_where_nothing_can_be_written_it_is_one_line(arguments: list[str], file: Path) -> None:
    with serving(FakeCompleter(says("x"))) as url, open("/dev/full", "wb") as full:
        at = [f"{file}:1:1", "--server", url] if arguments[0] == "complete" else []
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "LC_ALL": "C"}
        command = [sys.executable, "-m", "suture.server", *arguments, *at]
        made = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environ, timeout=30)
    assert (made.returncode, made.stderr) == (3, b"suture: cannot write: No space left on device\n")


def test_help_lists_the_verbs_that_work(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    out = capfd.readouterr().out
    for verb in ("serve", "complete", "explain", "pull", "models", "doctor", "lsp", "stats"):
        assert f"    {verb} " in out
        assert cli.main([verb, "--help"]) == 0
    assert cli.main(["--version"]) == 0
    assert cli.main([]) == 2
    assert cli.main(["explain"]) == 2


def test_models_lists_the_catalogue(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["models", "--json"]) == 0
    listed = json.loads(capfd.readouterr().out)
    keys = {"name", "path", "bytes", "sha256", "licence", "default", "pulled"}
    assert all(model.keys() == keys for model in listed)
    assert [model["default"] for model in listed] == [True] + [False] * (len(listed) - 1)
    assert cli.main(["models"]) == 0
    assert "(default)" in capfd.readouterr().out
    assert cli.main(["pull", "qwen2.5-coder-1.5"]) == 2
    assert "qwen2.5-coder-1.5b" in capfd.readouterr().err
    assert cli.main(["models", "--models", str(tmp_path / "missing")]) == 2


def test_without_llama_cpp_it_says_what_to_install(
    file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for command in (["complete", f"{file}:1:1", "--local"], ["serve", "--port", "0"]):
        assert cli.main(command) == 2
        assert capfd.readouterr() == ("", f"suture: {NO_LLAMA_CPP}\n")


def test_a_server_before_others_serves_what_they_call_their_model(
    file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SUTURE_ENGINE", "remote")
    monkeypatch.setenv("SUTURE_MODEL", "tokenizer.json")
    fake = FakeCompleter(says("range(3)"))
    with serving(fake) as url:
        monkeypatch.setenv("SUTURE_PORT", url.rpartition(":")[2])
        assert cli.main(["complete", f"{file}:1:1"]) == 0
        assert capfd.readouterr() == ("range(3)", "")
        monkeypatch.setenv("SUTURE_ENGINE_MODEL", "another")
        assert cli.main(["complete", f"{file}:1:1"]) == 2
        assert "another model: toy" in capfd.readouterr().err


def test_servers_that_run_the_model_are_not_waited_for(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fake = FakeCompleter([Unreachable("no inference server answers: no server answers there")])
    with serving(fake) as url:
        assert cli.main(["complete", f"{file}:1:1", "--server", url]) == 3
    assert capfd.readouterr().err.startswith(
        "suture: UNREACHABLE: no inference server answers: no server"
    )
    assert len(fake.requests) == 1


def test_a_model_that_other_servers_run_is_not_run_here(
    file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SUTURE_ENGINE", "remote")
    monkeypatch.setenv("SUTURE_ENGINE_URL", "http://127.0.0.1:1")
    for verb in ("complete", "explain"):
        assert cli.main([verb, f"{file}:1:1", "--local"]) == 2
        assert "--engine remote" in capfd.readouterr().err


def suture(*arguments: str) -> subprocess.Popen[bytes]:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "LC_ALL": "C"}
    return subprocess.Popen(
        [sys.executable, "-m", "suture.server", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ | {"PYTHONIOENCODING": "ascii"},
    )


def test_standard_input_is_completed_in_any_locale() -> None:
    fake = FakeCompleter(says("é🎉\n"))
    with serving(fake) as url:
        process = suture("complete", "-", "--server", url)
        out, err = process.communicate("\ufeffa\r\né\0b".encode(), timeout=30)
    assert (out, err, process.returncode) == ("é🎉\n".encode(), b"", 0)
    assert (fake.requests[0].prefix, fake.requests[0].suffix) == ("\ufeffa\r\né", "b")
    assert fake.requests[0].path is None


def test_a_reader_that_leaves_is_no_error(file: Path) -> None:
    chunks = [CompletionChunk("x" * 1000, (1,))] * 300
    with serving(FakeCompleter([*chunks, DONE], delay_s=0.001)) as url:
        process = suture("complete", f"{file}:1:1", "--server", url, "--stream")
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=30) == 0
        process.stderr.close()
        assert process.stdin is not None
        process.stdin.close()


def test_an_interrupt_is_status_130_and_cancels(file: Path) -> None:
    fake = FakeCompleter([CompletionChunk("x", (1,)), *says("y")], delay_s=2)
    with serving(fake) as url:
        process = suture("complete", f"{file}:1:1", "--server", url, "--stream")
        assert process.stdout is not None
        process.stdout.read(1)
        process.send_signal(2)
        _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (130, b"")
    assert fake.cancelled == 1


def test_an_unforeseen_error_is_one_line_and_debug_shows_where(
    file: Path,
    local: FakeCompleter,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    local.script = [KeyError("what")]
    assert cli.main(["complete", f"{file}:1:1", "--local"]) == 3
    err = capfd.readouterr().err
    assert err.startswith("suture: internal error: KeyError") and err.count("\n") == 1
    monkeypatch.setenv("SUTURE_DEBUG", "1")
    assert cli.main(["complete", f"{file}:1:1", "--local"]) == 3
    assert "Traceback" in capfd.readouterr().err
