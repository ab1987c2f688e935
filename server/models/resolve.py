"""From what a user writes after ``--model`` to a file."""

from __future__ import annotations

import os
from pathlib import Path

from suture.server.errors import ModelError
from suture.server.models.catalog import Catalog
from suture.server.models.download import pull
from suture.server.models.progress import Progress


def resolve_model(model: str | None, catalog: Catalog, store: Path, progress: Progress) -> Path:
    """The file of a path, a catalogue's name, or (None) the catalogue's default.

    A named model is pulled if it is not in `store`. A path is what ends in ``.gguf``, has a
    separator, or is a file and no name. Raises ModelError, DownloadError.
    """
    if model is None:
        return pull(catalog.default, store, progress)
    named = any(entry.name == model for entry in catalog.entries)
    if not named and (_looks_like_path(model) or Path(model).is_file()):
        return _existing(Path(model).expanduser())
    return pull(catalog.find(model), store, progress)


def _looks_like_path(model: str) -> bool:
    return os.sep in model or model.endswith(".gguf")


def _existing(path: Path) -> Path:
    try:
        # Opened, since a file that is there may still be unreadable.
        with path.open("rb"):
            return path
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: {getattr(error, 'strerror', error)}") from None
