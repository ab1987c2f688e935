"""The serving process as a whole: where it is started, how it stops, who asks."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from pathlib import Path

import httpx2
import pytest

from e2e.conftest import SUTURE, TIMEOUT_S, run_suture, serving

pytestmark = [pytest.mark.e2e, pytest.mark.model]

ENDLESS = {"prompt": "import nump\n" * 3, "max_tokens": 100_000, "ignore_eos": True}


def test_nothing_is_imported_from_the_folder_it_is_started_in(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uvicorn").mkdir()
    (tmp_path / "uvicorn" / "__init__.py").write_text("raise SystemExit('HIJACKED')\n")
    monkeypatch.chdir(tmp_path)
    # As the `suture` script runs: without the folder on the path of the parent.
    safe = (SUTURE[0], "-P", *SUTURE[1:])
    command = [*safe, "serve", "--port", "0", "--model", str(small_model)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("listening on ")
        finally:
            process.terminate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_ends_what_runs_with_its_text_so_far(
    small_model: Path, number: signal.Signals, stream: bool
) -> None:
    with serving("--model", str(small_model)) as served:
        body = ENDLESS | {"stream": stream}
        answers: list[httpx2.Response] = []

        def ask() -> None:
            url = served.url + "/v1/completions"
            answers.append(httpx2.post(url, json=body, timeout=TIMEOUT_S))

        asking = threading.Thread(target=ask)
        asking.start()
        while not served.status()["running"]:
            time.sleep(0.01)
        served.process.send_signal(number)
        asking.join(TIMEOUT_S)
        raw = answers[0].text
        assert answers[0].status_code == 200
        assert served.process.wait(TIMEOUT_S) == (130 if number == signal.SIGINT else 0)
    if stream:
        *_, last, done = raw.removesuffix("\n\n").split("\n\n")
        assert done == "data: [DONE]"
        raw = last.removeprefix("data: ")
    assert json.loads(raw)["suture"]["finish"] == "cancelled"


def test_a_served_key_and_certificate_are_used_by_every_verb(
    small_model: Path, tmp_path: Path
) -> None:
    tls = Path(__file__).parents[1] / "support" / "tls"
    keys = tmp_path / "keys"
    keys.write_text("one\n")
    access = ["--api-key-file", str(keys), "--tls-cert", str(tls / "cert.pem")]
    secure = [*access, "--tls-key", str(tls / "key.pem")]
    command = [*SUTURE, "serve", "--port", "0", "--model", str(small_model), *secure]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().split()[-1]
            port = url.rpartition(":")[2]
            text = run_suture("complete", "-", "--server", url, *access, stdin=b"import nump\0")
            assert text.stdout.startswith(b"y"), text.stderr
            doctor = run_suture("doctor", "--model", str(small_model), "--port", port, *access)
            assert f"{url}: suture " in doctor.stdout.decode()
            second = run_suture("serve", "--model", str(small_model), "--port", port, *secure)
            assert second.returncode == 2 and b"in use by Suture" in second.stderr
            untrusted = run_suture("complete", "-", "--server", url, stdin=b"import nump\0")
            assert untrusted.returncode == 3 and b"not trusted" in untrusted.stderr
        finally:
            process.terminate()


def test_a_reader_that_has_enough_is_no_error() -> None:
    for verb in ("models", "doctor"):
        piped = f"{' '.join(SUTURE)} {verb} | true; exit ${{PIPESTATUS[0]}}"
        outcome = subprocess.run(["bash", "-c", piped], capture_output=True, timeout=TIMEOUT_S)
        assert b"internal" not in outcome.stderr, outcome.stderr


def test_an_interrupt_while_it_starts_is_status_130(small_model: Path) -> None:
    command = [*SUTURE, "complete", "--local", "--model", str(small_model), "-"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        time.sleep(1.5)  # it waits for standard input
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130 and b"Traceback" not in said
