"""What a server says of its model, as far as that tells one model from another.

A server may come back with another model under the same name, sooner than anybody notices that it
was gone. Times of creation are left out: servers make them up with every answer.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from suture.server.engine.remote.errors import BackendBusy, BackendFailed, BackendRefused

_FIELDS = ("id", "root", "parent", "owned_by", "max_model_len")
# Of llama-server's.
_META = ("n_vocab", "n_params", "n_embd", "size")


async def model_card(get: Callable[[str], Awaitable[object]], model: str) -> str:
    """What is said of `model`, or of all models where none is called that; "" if nothing is.

    `get` gives what is at a path of the server, as JSON. Raises `BackendUnreachable`.
    """
    try:
        told = await get("/v1/models")
    except (BackendBusy, BackendFailed, BackendRefused):
        return ""
    cards = told.get("data") if isinstance(told, dict) else None
    known = [card for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []
    told_of = [card for card in known if card.get("id") == model] or known
    return json.dumps([*map(_lasting, told_of)], sort_keys=True) if told_of else ""


def _lasting(card: Mapping[str, Any]) -> dict[str, object]:
    """What of a card is the same whenever it is asked for."""
    meta = card.get("meta")
    within = meta if isinstance(meta, dict) else {}
    return {
        **{name: card.get(name) for name in _FIELDS},
        **{name: within.get(name) for name in _META},
    }
