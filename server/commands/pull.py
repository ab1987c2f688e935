"""`suture pull NAME`: fetch a model of models.txt and print where it is."""

from __future__ import annotations

import argparse
import importlib.util
import sys

from suture.server.commands import exits
from suture.server.commands.flags import add_settings, settings_of
from suture.server.errors import SetupError
from suture.server.models.catalog import Catalog, find_catalog
from suture.server.models.download import pull
from suture.server.models.progress import progress_on
from suture.server.models.resolve import resolve_model
from suture.server.models.store import list_models
from suture.server.settings import Settings

SUMMARY = "fetch a model"

NO_LLAMA_CPP = "llama.cpp is not installed, which runs the model: pip install 'suture[local]'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a name that `suture models` lists")
    add_settings(parser, "models")


def run(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    entry = catalog_of(settings).find(args.name)
    print(pull(entry, settings.model_store, progress_on(sys.stderr)))
    return exits.OK


def catalog_of(settings: Settings) -> Catalog:
    """The catalogue in force: `--models`, the user's own, or the packaged one."""
    return find_catalog(settings.models, settings.config_dir / "models.txt")


def with_model_file(settings: Settings) -> Settings:
    """`settings` with the model's file as `model`; pulls it if it is not here yet."""
    progress = progress_on(sys.stderr)
    path = resolve_model(settings.model, catalog_of(settings), settings.model_store, progress)
    return settings.model_copy(update={"model": str(path.absolute())})


def with_model_files(settings: Settings) -> Settings:
    """The same with the file of each model that may be served."""
    progress, catalog = progress_on(sys.stderr), catalog_of(settings)
    paths = [
        str(resolve_model(model, catalog, settings.model_store, progress).absolute())
        for model in settings.also_serve
    ]
    return with_model_file(settings).model_copy(update={"also_serve": tuple(paths)})


def require_pulled(settings: Settings) -> None:
    """Raise `SetupError` where a model to be served is one of models.txt that is not here."""
    catalog = catalog_of(settings)
    names = {settings.model or catalog.default.name, *settings.also_serve}
    for model in list_models(catalog, settings.model_store):
        if model["name"] in names and not model["pulled"]:
            raise SetupError(
                f"model {model['name']} is not pulled yet: suture pull {model['name']}"
            )


def require_llama_cpp() -> None:
    """Raise `SetupError` before any download where no model could be run."""
    if importlib.util.find_spec("llama_cpp") is None:
        raise SetupError(NO_LLAMA_CPP)
