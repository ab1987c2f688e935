"""When a bridge takes it that the server has read nothing."""

from __future__ import annotations

import asyncio

import pytest

from suture.lsp.bridge import Bridge
from suture.lsp.http_client import Health
from suture.server.request import Reason


@pytest.mark.parametrize(
    ("reasons", "n_came"),
    [
        (["UNREACHABLE", None], 1),
        (["LOADING", None], 1),
        (["BUSY", None], 0),
        (["ERROR", None, "NO_FIM", None], 0),
        (["UNREACHABLE", "LOADING", None, "BUSY", None], 1),
        (["UNREACHABLE", "BUSY", None], 1),
    ],
)
def test_a_server_came_where_it_was_gone_and_not_where_it_was_busy(
    monkeypatch: pytest.MonkeyPatch, reasons: list[Reason | None], n_came: int
) -> None:
    came: list[None] = []

    async def hear() -> None:
        bridge = Bridge()
        monkeypatch.setattr(bridge.others, "server_came", lambda: came.append(None))
        monkeypatch.setattr(bridge, "_show_progress", lambda is_loading: asyncio.sleep(0))
        for reason in reasons:
            bridge._on_health(Health(reason))
        await asyncio.sleep(0)

    asyncio.run(hear())
    assert len(came) == n_came
