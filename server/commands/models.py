"""`suture models`: what models.txt names, and what of it is here."""

from __future__ import annotations

import argparse
import json

from suture.server.commands import exits
from suture.server.commands.flags import add_settings, settings_of
from suture.server.commands.pull import catalog_of
from suture.server.models.progress import megabytes
from suture.server.models.store import ListedModel, list_models

SUMMARY = "list the models that can be pulled"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="a JSON list")
    add_settings(parser, "models")


def run(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    listed = list_models(catalog_of(settings), settings.model_store)
    if args.json:
        print(json.dumps(listed, indent=2))
    else:
        width = max(len(model["name"]) for model in listed)
        print("\n".join(_line(model, width) for model in listed))
    return exits.OK


def _line(model: ListedModel, width: int) -> str:
    size = "size unknown" if model["bytes"] is None else megabytes(model["bytes"])
    where = model["path"] or "not pulled"
    default = "  (default)" if model["default"] else ""
    return f"{model['name']:<{width}}  {model['licence']}  {size:>12}  {where}{default}"
