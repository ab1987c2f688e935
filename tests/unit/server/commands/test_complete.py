from __future__ import annotations

import pytest

from support.http_server import Json, settings
from suture.server.commands.asking import server_url


@pytest.mark.parametrize(
    ("flags", "url"),
    [
        ({}, "http://127.0.0.1:8012"),
        ({"host": "0.0.0.0", "port": "1"}, "http://127.0.0.1:1"),
        ({"host": "::", "port": "1"}, "http://[::1]:1"),
        ({"host": "box.lan", "tls_cert": "/c"}, "https://box.lan:8012"),
    ],
)
def test_the_server_of_these_settings_is_reached_from_this_machine(flags: Json, url: str) -> None:
    assert server_url(settings(**flags)) == url
