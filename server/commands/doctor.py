"""`suture doctor`: what is installed and which settings are in force."""

from __future__ import annotations

import argparse
import platform
import sys
from importlib import metadata

from suture.server.commands import exits
from suture.server.commands.flags import add_settings, settings_of
from suture.server.version import VERSION

SUMMARY = "show what is installed and which settings are in force"

_PACKAGES = ("llama-cpp-python", "numpy", "pydantic", "starlette", "tiktoken", "uvicorn")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, "model", "models")


def run(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    print(f"suture {VERSION}")
    print(f"python {platform.python_version()} ({sys.executable}) on {platform.platform()}")
    for package in _PACKAGES:
        print(f"{package} {_version(package)}")
    for key, value in settings.model_dump(mode="json").items():
        print(f"{key} = {value}")
    return exits.OK


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
