"""`GET /v1/status`: whether this is Suture, and how it does; `GET /metrics`: all that is counted.

Clients tell Suture from llama-server, which uses the same port, by the key `suture`.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict, replace

from starlette.requests import Request
from starlette.responses import Response

from suture.server.counters import ShownCounters
from suture.server.metrics import CONTENT_TYPE, Metrics
from suture.server.routes.completer import Pool, shown_state
from suture.server.settings import Settings
from suture.server.sse import encode_json
from suture.server.version import VERSION


class Status:
    """Answers with version, state, models, process, public settings and the counters of all."""

    def __init__(self, pool: Pool, settings: Settings) -> None:
        self._pool = pool
        self._settings = settings
        self._started = time.monotonic()

    async def get(self, request: Request) -> Response:
        model = self._pool.models[0].info
        status = self._pool.status() | {
            "suture": VERSION,
            "state": self._pool.state(),
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
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self._started, 3),
            "settings": self._settings.public(),
        }
        return Response(encode_json(status), media_type="application/json")


class MetricsPage:
    """Answers with everything that is counted, in Prometheus's text format."""

    def __init__(self, pool: Pool, shown: ShownCounters) -> None:
        self._metrics = Metrics(lambda: replace(pool.measured(), shown=shown))

    async def get(self, request: Request) -> Response:
        return Response(self._metrics.text(), headers={"Content-Type": CONTENT_TYPE})
