"""`GET /v1/status`: whether this is Suture, and how it does; `GET /metrics`: all that is counted.

Clients tell Suture from llama-server, which uses the same port, by the key `suture`. The status
page asks each second, so that all of it is at hand.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict, replace
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from suture.server.counters import ShownCounters, TenantCounters
from suture.server.metrics import CONTENT_TYPE, Metrics
from suture.server.openapi.operation import Operation, described
from suture.server.recent import Recent
from suture.server.routes.completer import Pool, shown_state
from suture.server.routes.shapes.suture import StatusAnswer
from suture.server.settings import Settings
from suture.server.sse import encode_json
from suture.server.version import VERSION

_STATM = Path("/proc/self/statm")


class Status:
    """Answers with version, state, models, process, public settings, the counters of all, the
    requests of late and what users did with the texts that they were shown."""

    def __init__(
        self, pool: Pool, settings: Settings, recent: Recent, shown: ShownCounters
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._recent = recent
        self._shown = shown
        self._started = time.monotonic()

    @described(Operation("Suture", "What this is and how it does", answer=StatusAnswer))
    async def get(self, request: Request) -> Response:
        model = self._pool.models[0].info
        measured = self._pool.measured()
        status = measured.summary() | {
            "suture": VERSION,
            "state": self._state(),
            "model": {
                "name": model.name,
                "path": model.path,
                "n_ctx": model.n_ctx,
                "fim": model.fim,
                "family": model.family,
                "memory": model.memory,
                "tokenizer": model.tokenizer and asdict(model.tokenizer),
                "detokenizer": model.detokenizer and asdict(model.detokenizer),
            },
            "models": [
                {"name": one.info.name, "state": shown_state(one), "bytes": one.n_bytes}
                for one in self._pool.models
            ],
            "backends": list(map(asdict, measured.backends)),
            "recent": self._recent.as_json(time.monotonic()),
            "shown": _shown_json(self._shown),
            "pid": os.getpid(),
            "memory_bytes": resident_bytes(),
            "uptime_s": round(time.monotonic() - self._started, 3),
            "settings": self._settings.public(),
        }
        return Response(encode_json(status), media_type="application/json")

    def _state(self) -> str:
        """Whether requests are served, and where they are, what the default model is at."""
        state = self._pool.state()
        return shown_state(self._pool.models[0]) if state == "ready" else state


def _shown_json(shown: ShownCounters) -> dict[str, int]:
    """Texts that were shown, taken whole, taken by a line, and turned down."""
    events = shown.events
    return {
        "view": events["view", "all"],
        "select": events["select", "all"],
        "select_line": events["select", "line"],
        "dismiss": events["dismiss", "all"],
    }


def resident_bytes(statm: Path = _STATM) -> int | None:
    """How much memory this process has, weights that it has read from a file included.

    None where there is nobody to ask.
    """
    try:
        n_pages = int(statm.read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return n_pages * os.sysconf("SC_PAGE_SIZE")


class MetricsPage:
    """Answers with everything that is counted, in Prometheus's text format."""

    def __init__(self, pool: Pool, shown: ShownCounters, tenants: TenantCounters) -> None:
        self._metrics = Metrics(lambda: replace(pool.measured(), shown=shown, tenants=tenants))

    @described(Operation("Suture", "All that is counted, for Prometheus", media="text/plain"))
    async def get(self, request: Request) -> Response:
        return Response(self._metrics.text(), headers={"Content-Type": CONTENT_TYPE})
