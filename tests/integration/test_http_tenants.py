"""Tenants over real HTTP: whose key it is, turns, limits, salts, what is told, and SIGHUP."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.fake_completer import FakeCompleter, says
from support.http_server import Json, client, serving, settings
from support.raw_http import ask, head, until
from support.route_bodies import assert_shape, bodies
from support.scripted_completer import VOCABULARY, scripted
from suture.server.engine.protocol import Logits
from suture.server.engine.scripted import speaking_model

TESTS = Path(__file__).parents[1]
SERVE = (sys.executable, str(TESTS / "support" / "fake_serve.py"))
SPEAKS = speaking_model(VOCABULARY, b"def x = (me)")
SALT = "salt-of-blue"
TENANTS = f"""
[tenants.blue]
keys = ["blue-1", "blue-2"]
cache_salt = "{SALT}"

[tenants.red]
keys = ["red-1"]
limit = 2
user_limit = 1
"""
COMPLETIONS = ("/infill", "/completion", "/v1/completions", "/v1/fim/completions", "/api/generate")


@pytest.fixture
def tenants(tmp_path: Path) -> Path:
    file = tmp_path / "tenants.toml"
    file.write_text(TENANTS)
    return file


class Gate:
    """A model that says nothing before it is opened, and notes whose prompts it sees."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.begun: list[str] = []

    def __call__(self, tokens: Sequence[int]) -> Logits:
        self.reached.set()
        assert self.opened.wait(30)
        text = b"".join(map(VOCABULARY.bytes_of, tokens)).decode(errors="replace")
        name = text.rpartition("#")[2].partition(";")[0]
        if name not in self.begun:
            self.begun.append(name)
        return SPEAKS(tokens)


def key(name: str, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}", **more}


Asking = Callable[..., httpx2.Response]


@contextmanager
def asking(gate: Gate, **flags: object) -> Iterator[tuple[Asking, Callable[[], int]]]:
    """What asks with a key for the prompt of a name, and how many wait."""
    with (
        scripted(gate, settings(**flags)) as completer,
        serving(completer, **flags) as url,
        client(url) as http,
    ):

        def ask(name: str, headers: dict[str, str], **fields: object) -> httpx2.Response:
            body = {"prompt": f"#{name};def x =", "max_tokens": 1, **fields}
            return http.post("/v1/completions", json=body, headers=headers)

        yield ask, lambda: completer.measured().waiting


@pytest.mark.parametrize(
    ("others", "more"),
    [
        ("red-1", {}),
        ("blue-1", {"user": "bob"}),
        # Another key of the same tenant is another user where nobody says more.
        ("blue-2", {}),
    ],
)
def test_who_floods_is_served_next_but_one(
    tenants: Path, others: str, more: dict[str, str]
) -> None:
    flags: Json = {"tenants": tenants, "parallel": 1, "queue": 64, "client_limit": 0}
    gate = Gate()
    with asking(gate, **flags) as (ask, n_waiting), ThreadPoolExecutor(10) as askers:
        flood = [askers.submit(ask, "first", key("blue-1"))]
        assert gate.reached.wait(20)
        for n in range(8):
            flood.append(askers.submit(ask, f"flood {n}", key("blue-1")))
        assert until(lambda: n_waiting() == 8)
        other = askers.submit(ask, "other", key(others), **more)
        assert until(lambda: n_waiting() == 9)
        gate.opened.set()
        assert {one.result(30).status_code for one in [*flood, other]} == {200}
    assert gate.begun[:2] == ["first", "other"]
    assert len(gate.begun) == 10


def test_a_header_names_users_as_well(tenants: Path) -> None:
    flags: Json = {"tenants": tenants, "parallel": 1, "client_limit": 0}
    gate = Gate()
    with asking(gate, **flags) as (ask, n_waiting), ThreadPoolExecutor(8) as askers:
        ann, bob = (key("blue-1", **{"X-User-ID": name}) for name in ("ann", "bob"))
        asked = [askers.submit(ask, "ann 0", ann)]
        assert gate.reached.wait(20)
        for n, (name, headers) in enumerate([("ann 1", ann), ("ann 2", ann), ("bob", bob)]):
            asked.append(askers.submit(ask, name, headers))
            assert until(lambda n=n: n_waiting() == n + 1)  # type: ignore[misc]
        gate.opened.set()
        assert {one.result(30).status_code for one in asked} == {200}
    assert gate.begun == ["ann 0", "bob", "ann 1", "ann 2"]


@pytest.mark.parametrize("path", COMPLETIONS)
def test_a_key_of_no_tenant_is_a_401(path: str, tenants: Path) -> None:
    with serving(FakeCompleter(), tenants=tenants) as url, client(url) as http:
        body = bodies("a\nb\n")[path]
        for headers in ({}, key("red"), key("blue"), key(SALT), {"X-Api-Key": "red-1 "[:-2]}):
            answer = http.post(path, json=body, headers=headers)
            assert answer.status_code == 401
            assert_shape(path, 401, answer.json())
        for name in ("blue-1", "blue-2", "red-1"):
            assert http.post(path, json=body, headers=key(name)).status_code == 200


@pytest.mark.parametrize("path", COMPLETIONS)
def test_what_is_too_much_for_a_tenant_or_a_user_is_a_429(path: str, tenants: Path) -> None:
    completer = FakeCompleter(says("a"), delay_s=0.5)
    with (
        serving(completer, tenants=tenants, client_limit=0) as url,
        client(url) as http,
        ThreadPoolExecutor(4) as askers,
    ):

        def ask(user: str, name: str = "red-1") -> httpx2.Response:
            body = bodies("a\nb\n")[path] | {"user": user, "session": None, "stream": False}
            return http.post(path, json=body, headers=key(name))

        running = [askers.submit(ask, "ann")]
        assert until(lambda: len(completer.requests) == 1)
        mine = ask("ann")
        running.append(askers.submit(ask, "bob"))
        assert until(lambda: len(completer.requests) == 2)
        ours = ask("eve")
        assert ask("ann", "blue-1").status_code == 200
        assert {one.result(20).status_code for one in running} == {200}
        assert ask("ann").status_code == 200
    for answer, words in ((mine, "one user may have 1"), (ours, "one tenant together may have 2")):
        assert answer.status_code == 429 and answer.headers["retry-after"] == "1"
        assert_shape(path, 429, answer.json())
        assert words in answer.text
        assert answer.json()["suture"] == {"reason": "BUSY"}


def test_a_salt_parts_the_cache_and_none_does_not(tenants: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("plain\n")
    flags: Json = {"tenants": tenants, "api_key_file": keys}
    text = "def x = me + " * 20
    with (
        scripted(SPEAKS, settings(**flags)) as completer,
        serving(completer, **flags) as url,
        client(url) as http,
    ):

        def reused(name: str, **fields: object) -> int:
            body = {"prompt": text, "max_tokens": 1, "session": "s", **fields}
            told = http.post("/v1/completions", json=body, headers=key(name)).json()
            n_reused: int = told["suture"]["prompt"]["reused"]
            return n_reused

        assert reused("blue-1") == 0
        assert reused("red-1") == 0  # nothing of what blue has asked
        assert reused("red-1", cache_salt=SALT, session=None) > 50  # its own
        assert reused("plain") > 50  # that of red, which has no salt either
        assert reused("blue-2") > 50  # its tenant's
        # The same session of the same file: none goes on with another key's answer.
        assert completer.measured().requests.continued == 0


def samples(page: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.labels["tenant"], sample.labels["outcome"]): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "suture_tenant_requests_total"
    }


def test_requests_are_counted_by_tenant_and_nothing_secret_is_told(tenants: Path) -> None:
    with serving(FakeCompleter(), tenants=tenants) as url, client(url) as http:
        before = samples(http.get("/metrics", headers=key("red-1")).text)
        body = {"prompt": "a", "user": "user-9"}
        for name in ("blue-1", "blue-2", "red-1"):
            http.post("/v1/completions", json=body, headers=key(name))
        http.post("/v1/completions", json=body | {"n": 3}, headers=key("red-1"))
        http.post("/v1/completions", json=body, headers=key("nobody"))
        pages = [
            http.get(path, headers=key("red-1")).text
            for path in ("/metrics", "/v1/status", "/slots", "/props", "/openapi.json")
        ]
        http.post("/tokenize", json={"content": "a"}, headers=key("red-1"))
        last = samples(http.get("/metrics", headers=key("red-1")).text)
    assert set(before) == {(t, o) for t in ("blue", "red") for o in ("accepted", "refused")}
    assert set(before.values()) == {0}
    assert samples(pages[0]) == {
        ("blue", "accepted"): 2,
        ("blue", "refused"): 0,
        ("red", "accepted"): 1,
        ("red", "refused"): 1,
    }
    assert last["red", "accepted"] == 2
    secrets = (SALT, "blue-1", "red-1", "user-9", "tenants.toml")
    assert not [secret for secret in secrets if secret in "\n".join(pages)]
    assert "blue" not in pages[1]


def test_without_keys_no_tenant_is_counted() -> None:
    with serving(FakeCompleter()) as url, client(url) as http:
        http.post("/v1/completions", json={"prompt": "a"})
        assert samples(http.get("/metrics").text) == {}


@contextmanager
def served(*flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`suture serve` around a scripted worker, and its URL."""
    path = os.pathsep.join([*sys.path, str(TESTS)])
    environ = os.environ | {"PYTHONPATH": path, "XDG_CONFIG_HOME": "/nonexistent"}
    with subprocess.Popen(
        [*SERVE, "", "--port", "0", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
        env=environ,
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().rpartition(" ")[2].strip()
        finally:
            process.kill()


def status(url: str, name: str) -> int:
    """Of a request with a key, on a connection of its own."""
    return ask(url, head("GET", "/v1/models", f"X-Api-Key: {name}")).status


def test_on_sighup_the_file_is_read_again_and_a_wrong_one_is_said(tmp_path: Path) -> None:
    file, keys = tmp_path / "tenants.toml", tmp_path / "blue.keys"
    file.write_text('[tenants.blue]\nkey_file = "blue.keys"\n')
    keys.write_text("old\n")
    for one in (file, keys):
        one.chmod(0o600)
    with served("--tenants", str(file)) as (process, url):
        assert (status(url, "old"), status(url, "new")) == (200, 401)
        first = ask(url, head("GET", "/v1/status", "X-Api-Key: old")).json()["pid"]
        keys.write_text("new\n")
        process.send_signal(signal.SIGHUP)
        # Until then either of the two workers may answer.
        assert until(lambda: not Path(f"/proc/{first}").exists(), 60)
        assert (status(url, "old"), status(url, "new")) == (401, 200)
        file.write_text("[tenants.blue]\nkey_file = 5\n")
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        said: list[str] = []
        while not any("goes on as it was" in line for line in said):
            said.append(process.stderr.readline())
        assert f"{file}: tenants.blue.key_file: must be a string: the worker goes on" in said[-1]
        assert status(url, "new") == 200
        process.terminate()
        assert process.wait(20) == 0


def test_a_wrong_file_is_one_line_and_status_2_and_an_open_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "tenants.toml"
    file.write_text("[tenants.blue]\nlimits = 3\n")
    with served("--tenants", str(file)) as (process, _):
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 2
    assert errors == (
        f"suture: --tenants: {file}: tenants.blue: unknown key 'limits' (did you mean limit?)\n"
    )
    file.write_text('[tenants.blue]\nkeys = ["b"]\n')
    file.chmod(0o644)
    with served("--tenants", str(file)) as (process, url):
        assert status(url, "b") == 200
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line == f"suture: {file} can be read or changed by others: chmod 600\n"
        process.terminate()
        assert process.wait(20) == 0
