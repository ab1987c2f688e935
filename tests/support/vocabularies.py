"""The vocabularies that llama.cpp tests its tokenizers with, out of one archive."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from suture.server.models.catalog import Catalog
from suture.server.models.download import pull_all
from suture.server.models.progress import progress_on

_CATALOG = Path(__file__).with_name("vocabularies.txt")


def pulled(names: Sequence[str], store: Path) -> dict[str, Path]:
    """The files of these entries of vocabularies.txt by name, verified, fetched if not there."""
    catalog = Catalog.load(_CATALOG)
    entries = [catalog.find(name) for name in names]
    return dict(zip(names, pull_all(entries, store, progress_on(sys.stderr)), strict=True))
