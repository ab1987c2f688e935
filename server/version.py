"""The version that is installed."""

from __future__ import annotations

from importlib import metadata

try:
    VERSION = metadata.version("suture")
except metadata.PackageNotFoundError:  # run from a checkout that is not installed
    VERSION = "0+source"
