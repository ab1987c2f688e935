"""Inline completions for an editor, over the language server protocol."""

from __future__ import annotations

import argparse
import asyncio
import logging

SUMMARY = "complete in an editor, over the language server protocol"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server", metavar="URL", help="where to ask (default: one server for all)"
    )
    parser.add_argument(
        "--tcp",
        type=int,
        metavar="PORT",
        help="take one connection on this port instead of standard input and output (0: any)",
    )


def run(args: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.CRITICAL)
    return asyncio.run(_serve(args.server, args.tcp))


async def _serve(url: str | None, port: int | None) -> int:
    # Not before: the other verbs need none of it, and it takes half a second.
    from suture.lsp.server import create_bridge
    from suture.lsp.transport import accept_one, open_stdio

    reader, writer = await (open_stdio() if port is None else accept_one(port))
    return await create_bridge(url).serve(reader, writer)
