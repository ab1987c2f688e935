"""A session belongs to the caller that named it."""

from __future__ import annotations

from pathlib import Path

from support.fake_completer import FakeCompleter
from support.http_server import client, serving

BODY = {"input_prefix": "a", "input_suffix": "b", "session": "one", "seq": 3}


def test_two_keys_may_use_one_session_name(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alpha\nbeta\n")
    completer = FakeCompleter()
    with serving(completer, api_key_file=keys) as url, client(url) as http:
        for key in ("alpha", "beta", "alpha"):
            assert http.post("/infill", json=BODY, headers={"Authorization": f"Bearer {key}"})
    sessions = [request.session for request in completer.requests]
    assert sessions[0] == sessions[2] != sessions[1]
    assert not any("alpha" in str(session) for session in sessions)


def test_without_keys_a_session_is_everybodys() -> None:
    completer = FakeCompleter()
    with serving(completer) as url, client(url) as http:
        http.post("/infill", json=BODY)
        http.post("/infill", json=BODY | {"session": None})
    assert [request.session for request in completer.requests] == ["/one", None]
    assert completer.requests[0].seq == 3
