"""A proxy that passes requests on and does nothing else, as plain as Python has it.

Prints its URL.

python bare_proxy.py URL
"""

from __future__ import annotations

import asyncio
import socket
import sys

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route


def proxy(url: str) -> Starlette:
    client = httpx2.AsyncClient(base_url=url, trust_env=False, timeout=60)

    async def pass_on(request: Request) -> Response:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        sent = client.build_request(
            "POST", request.url.path, headers=headers, content=await request.body()
        )
        answer = await client.send(sent, stream=True)
        ended = BackgroundTask(answer.aclose)
        return StreamingResponse(
            answer.aiter_raw(), answer.status_code, media_type="text/event-stream", background=ended
        )

    return Starlette(routes=[Route("/v1/completions", pass_on, methods=["POST"])])


async def main(url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # As Suture serves.
        config = uvicorn.Config(proxy(url), http="h11", ws="none", log_level="warning")
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
