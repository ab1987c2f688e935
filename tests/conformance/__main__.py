"""Scores a server: `python -m conformance --url URL`.

Status 0 if no check failed, 1 if one did, 2 where there is nothing to score.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

from conformance.check import Result
from conformance.dialects import DIALECTS
from conformance.scores import compared, listed, scored
from conformance.suite import CHECKS, score


def main(arguments: list[str] | None = None) -> int:
    given = parse(arguments)
    if given.list:
        print(listed(CHECKS))
        return 0
    if given.compare:
        print(compared([json.loads(path.read_text()) for path in given.compare]))
        return 0
    if not given.url:
        print("conformance: --url says which server", file=sys.stderr)
        return 2
    return run(given)


def run(given: argparse.Namespace) -> int:
    wanted = [one for one in CHECKS if not given.only or given.only & {*one.id.split(", ")}]
    dialect = None if given.dialect == "auto" else given.dialect
    scoring = score(
        given.url,
        wanted,
        show=lambda result: print(line(result), file=sys.stderr, flush=True),
        wait_s=given.wait,
        model=given.model,
        dialect=dialect,
        api_key=given.api_key,
        limit_s=given.limit,
    )
    try:
        found = asyncio.run(scoring)
        found = replace(found, server=given.name or found.server)
    except LookupError as nothing:
        print(f"conformance: {nothing}", file=sys.stderr)
        return 2
    print(json.dumps(found.as_json(), indent=1) if given.json else scored(found))
    return 0 if found.is_clean else 1


def line(result: Result) -> str:
    return f"{result.outcome:5} {result.check.id:8} {result.check.title}: {result.detail}"


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("conformance", description="Scores a server of completions.")
    parser.add_argument("--url", help="its base URL, without a path")
    names = ["auto", *(one.name for one in DIALECTS)]
    parser.add_argument("--dialect", choices=names, default="auto", help="spoken by the checks")
    parser.add_argument("--model", help="its name (default: the first that the server lists)")
    parser.add_argument("--name", help="what the server is called in the results")
    parser.add_argument("--api-key", metavar="KEY", help="sent as a bearer token")
    parser.add_argument(
        "--wait", type=float, default=120, metavar="S", help="for the model to load"
    )
    parser.add_argument("--limit", type=float, default=900, metavar="S", help="of one check")
    parser.add_argument("--json", action="store_true", help="the results as JSON, for --compare")
    parser.add_argument("--only", type=_ids, default=set(), metavar="A9,D1", help="these checks")
    parser.add_argument("--list", action="store_true", help="what the checks are, and no more")
    parser.add_argument(
        "--compare", type=Path, nargs="+", metavar="FILE", help="results of --json as one table"
    )
    return parser.parse_args(arguments)


def _ids(text: str) -> set[str]:
    ids = {one.strip() for one in text.split(",")}
    known = {name for one in CHECKS for name in one.id.split(", ")}
    if not ids <= known:
        raise argparse.ArgumentTypeError(f"there is no check {', '.join(sorted(ids - known))}")
    return ids


if __name__ == "__main__":
    sys.exit(main())
