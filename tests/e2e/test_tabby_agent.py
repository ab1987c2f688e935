"""The real tabby-agent, unmodified, over its standard streams against our server.

Runs where TABBY_AGENT_DIR names its package, which `make clients` installs for `make test`, and
there is node; it says so where it does not.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.fake_completer import FakeCompleter, says
from support.http_server import client, serving
from suture.server.request import ExtraText

AGENT = os.environ.get("TABBY_AGENT_DIR", "")
NODE = shutil.which("node")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not AGENT or NODE is None, reason="TABBY_AGENT_DIR is not set, or no node"),
]

TEXT = "def area(width, height):\n    return \n\n\nprint(area(2, 3))\n"


class Agent:
    """tabby-agent's calls: a line of JSON each, with a number that its answer has too."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._number = 0
        self.notes: list[Any] = []

    def __call__(self, function: str, *arguments: object) -> Any:
        self._number += 1
        assert self._process.stdin is not None and self._process.stdout is not None
        call = [self._number, {"func": function, "args": arguments}]
        print(json.dumps(call), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            number, data = json.loads(line)
            if number == self._number:
                return data
            self.notes.append(data)
        raise AssertionError("tabby-agent ended")


@contextmanager
def agent_at(url: str, home: Path, key: str = "") -> Iterator[Agent]:
    command = [str(NODE), str(Path(AGENT) / "dist" / "cli.js")]
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        agent = Agent(process)
        server = {"endpoint": url, "token": key}
        tracking = {"disable": True}
        agent("initialize", {"config": {"server": server, "anonymousUsageTracking": tracking}})
        try:
            yield agent
            agent("finalize")
        finally:
            process.kill()


def test_it_completes_and_tells_what_users_did(tmp_path: Path) -> None:
    completer = FakeCompleter(says("width * ", "height\n"))
    asked = {
        "filepath": "/site/shapes.py",
        "workspace": "/site",
        "language": "python",
        "text": TEXT,
        "position": TEXT.index("return ") + 7,
        "manually": True,
        "declarations": [
            {"filepath": "/site/lib/units.py", "offset": 0, "text": "def m(x): ...\n"}
        ],
    }
    with serving(completer) as url, agent_at(url, tmp_path) as agent:
        assert agent("getStatus") == "ready"
        assert agent("getServerHealthState")["model"] == "toy"
        answer = agent("provideCompletions", asked)
        for kind in ({"type": "view"}, {"type": "select", "select_kind": "line"}):
            event = kind | {"completion_id": answer["id"], "choice_index": 0}
            assert agent("postEvent", event) is True
        with client(url) as http:
            metrics = http.get("/metrics").text
    [choice] = answer["choices"]
    at = asked["position"]
    assert choice["text"] == "width * height"
    assert choice["replaceRange"] == {"start": at, "end": at}
    [request] = completer.requests
    assert request.prefix + request.suffix == TEXT
    assert (request.path, request.language) == ("shapes.py", "python")
    assert request.extra == (ExtraText("def m(x): ...\n", "lib/units.py"),)
    assert 'suture_shown_texts_total{event="view",part="all"} 1.0' in metrics
    assert 'suture_shown_texts_total{event="select",part="line"} 1.0' in metrics


def test_it_asks_for_a_key_where_it_has_a_wrong_one(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("good\n")
    with serving(FakeCompleter(), api_key_file=keys) as url:
        with agent_at(url, tmp_path, "bad") as agent:
            assert agent("getStatus") == "unauthorized"
            assert "authRequired" in {note.get("event") for note in agent.notes}
        with agent_at(url, tmp_path, "good") as agent:
            assert agent("getStatus") == "ready"
