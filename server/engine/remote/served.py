"""What is known of a backend that was probed, and how it is spoken to."""

from __future__ import annotations

from dataclasses import dataclass

from suture.server.engine.remote.probe import Probed
from suture.server.engine.remote.protocol import Adapter


@dataclass(frozen=True, slots=True)
class Served:
    """A backend as its probe found it, with the adapter for its kind.

    `card` is what it said of its model then, "" where it says nothing (`model_card.py`).
    """

    probed: Probed
    adapter: Adapter
    card: str = ""
