"""One client that asks without end, and another one, on the real queue."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.fake_completer import FakeCompleter, says
from support.http_server import Json, client, serving, settings
from support.raw_http import until
from support.scripted_completer import VOCABULARY, scripted
from suture.server.client import Client
from suture.server.engine.protocol import Logits
from suture.server.engine.scripted import speaking_model
from suture.server.errors import ClientBusy

SPEAKS = speaking_model(VOCABULARY, b"def x = (me)")


class Gate:
    """A model that says nothing before it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def __call__(self, tokens: Sequence[int]) -> Logits:
        assert self.opened.wait(30)
        return SPEAKS(tokens)


def test_one_client_leaves_half_of_the_queue_to_others(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("greedy\nmodest\n")
    flags: Json = {"api_key_file": keys, "parallel": 1, "queue": 5}  # 3 places each
    gate = Gate()
    with (
        scripted(gate, settings(**flags)) as completer,
        serving(completer, **flags) as url,
        ThreadPoolExecutor(16) as askers,
    ):

        def ask(key: str) -> int:
            body = {"input_prefix": "def x =", "input_suffix": "", "n_predict": 4}
            with client(url) as http:
                return http.post("/infill", json=body, headers={"X-Api-Key": key}).status_code

        greedy = [askers.submit(ask, "greedy") for _ in range(12)]
        assert until(lambda: sum(one.done() for one in greedy) == 9)
        modest = [askers.submit(ask, "modest") for _ in range(3)]
        assert until(lambda: completer.measured().waiting == 5)
        gate.opened.set()
        assert Counter(one.result(30) for one in greedy) == {429: 9, 200: 3}
        assert [one.result(30) for one in modest] == [200] * 3
        # Their places are free again.
        assert ask("greedy") == 200


def test_who_types_is_never_refused_for_the_last_key(tmp_path: Path) -> None:
    """Each key's request comes while those before it are still at work."""
    flags: Json = {"client_limit": 1, "parallel": 1, "queue": 8}
    gate = Gate()
    with (
        scripted(gate, settings(**flags)) as completer,
        serving(completer, **flags) as url,
        ThreadPoolExecutor(8) as askers,
    ):

        def ask(seq: int) -> tuple[int, str]:
            body = {"input_prefix": "def x =" + " " * seq, "input_suffix": "", "n_predict": 4}
            with client(url) as http:
                answer = http.post("/infill", json=body | {"session": "s", "seq": seq})
            return answer.status_code, answer.json()["suture"]["finish"]

        keys = []
        for seq in range(1, 7):
            keys.append(askers.submit(ask, seq))
            assert until(lambda: completer.measured().running + completer.measured().waiting > 0)
        gate.opened.set()
        told = [one.result(30) for one in keys]
    assert {status for status, _ in told} == {200}
    assert "superseded" in {finish for _, finish in told}


def test_the_command_line_says_that_it_is_busy() -> None:
    completer = FakeCompleter(says("a"), delay_s=0.5)
    body = {"input_prefix": "a", "input_suffix": "b"}
    with serving(completer, client_limit=1) as url, client(url) as http:
        asking = threading.Thread(target=lambda: http.post("/infill", json=body))
        asking.start()
        assert until(lambda: len(completer.requests) == 1)
        with Client(url) as ours, pytest.raises(ClientBusy, match="may have 1 requests"):
            [*ours.infill(body)]
        asking.join(10)
