"""The models that `serve` would serve: which are here, each of them, and all together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from suture.server.commands.pull import catalog_of
from suture.server.doctor.finding import Finding, suture
from suture.server.doctor.machine import cache
from suture.server.doctor.model import model
from suture.server.engine.footprint import model_bytes
from suture.server.errors import ModelError, SetupError
from suture.server.models.names import plain_name
from suture.server.models.progress import megabytes
from suture.server.models.store import list_models
from suture.server.pool import MB
from suture.server.settings import Settings


def models(settings: Settings) -> Iterator[Finding]:
    """Everything about each model, the default one first, and what they are to one another."""
    try:
        catalog = catalog_of(settings)
        listed = {entry["name"]: entry for entry in list_models(catalog, settings.model_store)}
    except SetupError as error:
        yield from cache(settings, None)
        yield Finding("problem", "model", str(error), suture("models"))
        return
    names = [settings.model or catalog.default.name, *settings.also_serve]
    to_come = [listed[name] for name in names if name in listed and not listed[name]["pulled"]]
    yield from cache(settings, sum(one["bytes"] or 0 for one in to_come) if to_come else None)
    paths = {
        name: Path(str(listed[name]["path"] if name in listed else name)).expanduser()
        for name in names
    }
    for name, path in paths.items():
        if name in [one["name"] for one in to_come]:
            text = f"model {name}: not pulled yet"
            yield Finding("note", "model", text, suture("pull", name))
        else:
            yield from model(settings, name, path)
    yield from _names([paths[name].stem for name in names])
    yield from _budget(settings, [paths[name] for name in names])


def _names(served: list[str]) -> Iterator[Finding]:
    """Whether requests can tell the models apart."""
    for name, n_models in Counter(map(plain_name, served)).items():
        if n_models > 1:
            text = f"{n_models} models have the name {name}: each needs one of its own"
            yield Finding("problem", "model", text, suture("models"))


def _budget(settings: Settings, paths: list[Path]) -> Iterator[Finding]:
    """Whether each model fits into what all may take together, if that is limited."""
    if not settings.memory_mb:
        return
    sizes = []
    for path in paths:
        try:
            sizes.append((model_bytes(path, settings.ctx), path.stem))
        except ModelError:  # which was told already
            continue
    if not sizes:
        return
    needed, largest = max(sizes)
    told = f"{largest} takes {megabytes(needed)}"
    if needed > settings.memory_mb * MB:
        text = f"--memory-mb {settings.memory_mb}: {told} alone, and cannot be loaded"
        fix = suture("serve", "--memory-mb", str(-(-needed // MB)))
        yield Finding("problem", "memory", text, fix)
    else:
        text = f"--memory-mb {settings.memory_mb}: room for each model, {told}"
        yield Finding("ok", "memory", text)
