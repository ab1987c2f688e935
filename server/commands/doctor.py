"""`suture doctor`: what this installation has, what is wrong with it, and how to mend that.

Status 0 if nothing is wrong, else 2. With --calibrate nothing is examined: MODEL is measured, and
the layout kept that it fills best. With --bench nothing is either: what a token costs is measured.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from suture.server.commands import exits
from suture.server.commands.calibration import calibrate
from suture.server.commands.flags import add_settings, settings_of
from suture.server.doctor.backends import backends
from suture.server.doctor.bench import bench
from suture.server.doctor.build import build
from suture.server.doctor.editors import editors
from suture.server.doctor.files import files, proxy
from suture.server.doctor.finding import Finding, shell, suture
from suture.server.doctor.machine import threads
from suture.server.doctor.models import models
from suture.server.doctor.running import running
from suture.server.errors import SetupError
from suture.server.settings import Settings, load_settings
from suture.server.version import VERSION

SUMMARY = "say what is installed and what is wrong with it"

_PACKAGES = ("numpy", "pydantic", "starlette", "tiktoken", "uvicorn", "huggingface-hub")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--calibrate",
        metavar="MODEL",
        help="measure which layout this model fills holes best in, and keep that (minutes)",
    )
    instead.add_argument(
        "--bench", action="store_true", help="measure what a token costs here (half a minute)"
    )
    instead.add_argument("--json", action="store_true", help="a JSON list of what was found")
    add_settings(
        parser,
        "model",
        "models",
        "also_serve",
        "memory_mb",
        "host",
        "port",
        "ctx",
        "threads",
        "gpu_layers",
        "healing",
        "tokenizer",
        "detokenizer",
        "api_key_file",
        "tenants",
        "tls_cert",
        "tls_key",
        "engine",
        "engine_url",
        "engine_model",
        "engine_key_file",
    )


def run(args: argparse.Namespace) -> int:
    if args.bench:
        return bench(settings_of(args))
    if args.calibrate is not None:
        return _calibrate(args)
    status = exits.OK
    found = []
    for finding in _examine(args):
        if args.json:
            found.append(asdict(finding))
        else:
            print(finding, flush=True)
        if finding.kind == "problem":
            status = exits.SETUP
    if args.json:
        print(json.dumps(found, indent=2))
    return status


def _calibrate(args: argparse.Namespace) -> int:
    if args.model is not None:
        raise SetupError("--calibrate names the model: it does not go with --model")
    settings = settings_of(args)
    return calibrate(settings.model_copy(update={"model": args.calibrate}))


def _examine(args: argparse.Namespace) -> Iterator[Finding]:
    """Everything there is to say, also where the settings are wrong: of the defaults then."""
    try:
        settings = settings_of(args)
    except SetupError as error:
        yield Finding("problem", "settings", str(error), _mend(str(error).partition(": ")[0]))
        text = "settings: those wrong ones are left out, what follows is of the defaults"
        yield Finding("note", "settings", text)
        settings = load_settings(environ={}, config=Path("/dev/null"))
    yield from examine(settings)


def _mend(source: str) -> str:
    """What mends a setting, by where it stands: a variable, a flag or a file."""
    if source.startswith("SUTURE_"):
        return shell("unset", source)
    if source.startswith("--"):
        return suture("doctor", "--help")
    return "${EDITOR:-vi} " + shell(source)


def examine(settings: Settings) -> Iterator[Finding]:
    """Everything there is to say, what everything else rests on first."""
    python = f"suture {VERSION}, python {platform.python_version()} ({sys.executable})"
    yield Finding("ok", "install", python)
    packages = ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)
    yield Finding("ok", "install", packages)
    if settings.engine == "remote":
        yield from backends(settings)
    else:
        yield from build()
        yield threads(settings)
        yield from models(settings)
    yield from running(settings)
    yield from files(settings)
    yield from proxy()
    yield from editors(Path.home())
    values = settings.model_dump(mode="json", exclude_defaults=True)
    told = ", ".join(f"{key} = {values[key]}" for key in values)
    yield Finding("ok", "settings", f"settings: {told}")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"
