"""Every code of docs/reasons.md, reached over HTTP or on the command line."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import pytest

from support.answering import answering_model, hesitating_model
from support.http_server import Json, client, events, serving, settings
from support.scripted_completer import ScriptedCompleter, scripted
from suture.server import cli
from suture.server.engine.protocol import Engine, Logits
from suture.server.engine.scripted import Model
from suture.server.errors import EngineError
from suture.server.request import CompletionRequest, Reason

DOCUMENT = Path(__file__).parents[2] / "docs" / "reasons.md"
PREFIX, SUFFIX = "def f(w, h):\n    x = ", "\n    return x\n\nprint(f)\n"
BODY: Json = {
    "input_prefix": PREFIX,
    "input_suffix": SUFFIX,
    "temperature": 0,
    "n_predict": 60,
}
CODES: frozenset[str] = frozenset(get_args(Reason))
# Those that nothing here says: editors do.
OF_EDITORS = {"MIDWORD", "DISABLED"}


def saying(says: str) -> Model:
    return answering_model(CompletionRequest(PREFIX, SUFFIX, infill=True, max_tokens=60), says)


LONG = saying("w * h * (" + " 1 +" * 20 + " 0)\n")


def slow(tokens: Sequence[int]) -> Logits:
    time.sleep(0.02)
    return LONG(tokens)


def broken(tokens: Sequence[int]) -> Logits:
    raise EngineError("decode failed")


class Gate:
    """A model that says nothing before it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, tokens: Sequence[int]) -> Logits:
        self.reached.set()
        assert self.opened.wait(20)
        return LONG(tokens)


class WithoutSentinels(ScriptedCompleter):
    """A model that was not trained to fill in the middle."""

    def _load(self) -> Engine:
        engine = super()._load()
        assert self._loaded is not None
        self._loaded = type(self._loaded)(engine, None, self._loaded.budget, self._loaded.codec)
        return engine


def answered(model: Model, **fields: object) -> Json:
    with scripted(model, settings()) as completer, serving(completer) as url, client(url) as http:
        response = http.post("/infill", json=BODY | fields)
    answer: Json = response.json()
    return answer | {"status": response.status_code}


def reach_loading(tmp_path: Path) -> Json:
    completer = ScriptedCompleter(LONG, settings())
    with serving(completer) as url, client(url) as http:
        response = http.post("/infill", json=BODY)
    completer.close()
    assert response.status_code == 503 and response.headers["retry-after"]
    answer: Json = response.json()
    return answer


def behind_a_running_one(
    ask: Callable[[str, Gate, ScriptedCompleter], Json], queue: int, **flags: object
) -> Json:
    """What `ask` is answered while a request has the only place and another one waits."""
    gate, at = Gate(), settings(parallel=1, queue=queue, **flags)
    with scripted(gate, at) as completer, serving(completer, **flags) as url:
        with client(url) as http:
            first = threading.Thread(target=lambda: http.post("/infill", json=BODY))
            first.start()
            assert gate.reached.wait(20)
            try:
                return ask(url, gate, completer)
            finally:
                gate.opened.set()
                first.join(20)


def reach_busy(tmp_path: Path) -> Json:
    def ask(url: str, gate: Gate, completer: ScriptedCompleter) -> Json:
        with client(url) as waiting, client(url) as http:
            second = threading.Thread(target=lambda: waiting.post("/infill", json=BODY))
            second.start()
            while not completer.measured().waiting:
                time.sleep(0.002)
            response = http.post("/infill", json=BODY)
            gate.opened.set()
            second.join(20)
        assert response.status_code == 503 and response.headers["retry-after"]
        answer: Json = response.json()
        return answer

    return behind_a_running_one(ask, queue=1)


def reach_budget(tmp_path: Path) -> Json:
    def ask(url: str, gate: Gate, completer: ScriptedCompleter) -> Json:
        threading.Timer(0.6, gate.opened.set).start()
        with client(url) as http:
            answer: Json = http.post("/infill", json=BODY | {"t_max_prompt_ms": 50}).json()
        assert answer["content"] == ""
        return answer

    # No deadline is shorter than twice what prompts are sized for.
    return behind_a_running_one(ask, queue=2, first_text_ms=100)


def reach_deadline(tmp_path: Path) -> Json:
    answer = answered(slow, t_max_predict_ms=60, shape="raw")
    assert answer["content"] and answer["suture"]["finish"] == "deadline"
    return answer


def reach_superseded(tmp_path: Path) -> Json:
    with scripted(LONG, settings()) as completer, serving(completer) as url, client(url) as http:
        http.post("/infill", json=BODY | {"session": "s", "seq": 2})
        answer: Json = http.post("/infill", json=BODY | {"session": "s", "seq": 1}).json()
    return answer


def reach_cancelled(tmp_path: Path) -> Json:
    gate = Gate()
    answers: list[Json] = []
    with scripted(gate, settings()) as completer, serving(completer) as url, client(url) as http:
        asking = threading.Thread(
            target=lambda: answers.append(http.post("/infill", json=BODY).json())
        )
        asking.start()
        assert gate.reached.wait(20)
        completer.cancel_all()
        gate.opened.set()
        asking.join(20)
    return answers[0]


def reach_duplicate_suffix(tmp_path: Path) -> Json:
    return answered(saying(SUFFIX))


def reach_empty(tmp_path: Path) -> Json:
    return answered(saying(""))


def reach_low_confidence(tmp_path: Path) -> Json:
    answer = answered(hesitating_model(LONG, lambda so_far: 0.3), min_confidence=0.5)
    assert answer["content"] == ""
    return answer


def reach_no_fim(tmp_path: Path) -> Json:
    completer = WithoutSentinels(LONG, settings())
    completer.start()
    completer.wait_ready()
    with serving(completer) as url, client(url) as http:
        response = http.post("/infill", json=BODY)
    completer.close()
    assert response.status_code == 501
    answer: Json = response.json()
    return answer


def reach_excluded(tmp_path: Path) -> Json:
    answer = answered(broken, path="/home/user/site/.env")
    assert answer["status"] == 200 and answer["content"] == ""
    assert answer["suture"]["prompt"] == {
        "tokens": 0,
        "reused": 0,
        "evaluated": 0,
        "layout": "plain",
        "truncated": False,
        "excluded": 0,
    }
    return answer


def reach_error(tmp_path: Path) -> Json:
    answer = answered(broken)
    assert answer["status"] == 500
    return answer


def reach_auth(tmp_path: Path) -> Json:
    keys = tmp_path / "keys"
    keys.write_text("hunter2\n")
    with (
        scripted(LONG, settings()) as completer,
        serving(completer, api_key_file=keys) as url,
        client(url) as http,
    ):
        response = http.post("/infill", json=BODY)
    assert response.status_code == 401
    answer: Json = response.json()
    return answer


REACHED = {
    "LOADING": reach_loading,
    "BUSY": reach_busy,
    "BUDGET": reach_budget,
    "DEADLINE": reach_deadline,
    "SUPERSEDED": reach_superseded,
    "CANCELLED": reach_cancelled,
    "DUPLICATE_SUFFIX": reach_duplicate_suffix,
    "EMPTY": reach_empty,
    "LOW_CONFIDENCE": reach_low_confidence,
    "NO_FIM": reach_no_fim,
    "EXCLUDED": reach_excluded,
    "ERROR": reach_error,
    "AUTH": reach_auth,
}


@pytest.mark.parametrize("reason", REACHED)
def test_a_reason_is_told_over_http(reason: str, tmp_path: Path) -> None:
    assert REACHED[reason](tmp_path)["suture"]["reason"] == reason


def test_the_document_defines_the_codes_that_there_are_and_no_others() -> None:
    defined = re.findall(r"(?m)^\| `([A-Z_]+)` \| ", DOCUMENT.read_text("utf-8"))
    assert len(defined) == len(set(defined))
    assert set(defined) == CODES


def test_every_code_is_reached_here_or_said_by_editors() -> None:
    assert REACHED.keys() | OF_EDITORS | {"UNREACHABLE"} == CODES


def test_an_error_in_a_stream_says_its_reason_too() -> None:
    told = iter(range(10**6))

    def breaks(tokens: Sequence[int]) -> Logits:
        return LONG(tokens) if next(told) < 3 else broken(tokens)

    with scripted(breaks, settings()) as completer, serving(completer) as url, client(url) as http:
        *_, last = events(http.post("/infill", json=BODY | {"stream": True}))
    assert '"suture":{"reason":"ERROR"}' in last


@pytest.fixture
def no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("no_configuration")
@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        (".env", 1, "suture: no text: EXCLUDED\n"),
        ("a.py", 3, "suture: ERROR: decode failed\n"),
    ],
)
def test_the_command_line_says_what_the_server_says(
    name: str, status: int, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_text("TOKEN=\n")
    with scripted(broken, settings()) as completer, serving(completer) as url:
        assert cli.main(["complete", f"{name}:1:7", "--server", url]) == status
    assert capfd.readouterr() == ("", said)


@pytest.mark.usefixtures("no_configuration")
def test_what_is_excluded_is_not_explained(capfd: pytest.CaptureFixture[str]) -> None:
    Path(".env").write_text("TOKEN=\n")
    with scripted(broken, settings()) as completer, serving(completer) as url:
        assert cli.main(["explain", ".env:1:7", "--server", url]) == 1
        with client(url) as http:
            refused = http.post("/v1/explain", json=BODY | {"path": ".env"})
    assert capfd.readouterr().err.startswith("suture: EXCLUDED: ")
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "path"
    assert refused.json()["suture"] == {"reason": "EXCLUDED"}


@pytest.mark.usefixtures("no_configuration")
def test_no_server_is_unreachable(capfd: pytest.CaptureFixture[str]) -> None:
    Path("a.py").write_text("x = \n")
    assert cli.main(["complete", "a.py:1:5", "--server", "http://127.0.0.1:9"]) == 3
    assert capfd.readouterr().err == "suture: UNREACHABLE: http://127.0.0.1:9: no server\n"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/infill", "/v1/completions"])
def test_an_excluded_file_is_answered_in_each_dialect(path: str, stream: bool) -> None:
    body: Json = {
        "/infill": BODY | {"n_cmpl": 2},
        "/v1/completions": {"prompt": PREFIX, "suffix": SUFFIX, "n": 2},
    }[path]
    with scripted(broken, settings()) as completer, serving(completer) as url, client(url) as http:
        response = http.post(path, json=body | {"path": "keys/id_rsa", "stream": stream})
        assert completer.measured().counters.jobs == 0
    assert response.status_code == 200
    # Whole, both are the same text, and so one.
    n_told = 2 if stream else 1
    assert response.text.count('"reason":"EXCLUDED"') == n_told
    if path == "/v1/completions":
        assert response.text.count('"finish_reason":"stop"') == n_told


def test_an_excluded_request_supersedes_its_session() -> None:
    gate = Gate()
    answers: list[Json] = []
    body = BODY | {"session": "s"}
    with scripted(gate, settings()) as completer, serving(completer) as url:
        with client(url) as http, client(url) as other:
            asking = threading.Thread(
                target=lambda: answers.append(other.post("/infill", json=body | {"seq": 1}).json())
            )
            asking.start()
            assert gate.reached.wait(20)
            http.post("/infill", json=body | {"seq": 2, "path": ".env"})
            gate.opened.set()
            asking.join(20)
            late = http.post("/infill", json=body | {"seq": 2}).json()
    assert answers[0]["suture"]["reason"] == "SUPERSEDED"
    assert late["suture"]["reason"] == "SUPERSEDED"
