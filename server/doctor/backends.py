"""The model that other servers run: its tokenizer, and how each of these servers does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from suture.server.commands.pull import catalog_of
from suture.server.doctor.finding import Finding, pip_install, shell, suture
from suture.server.engine.remote.backend import Backend
from suture.server.engine.remote.probe import detect, model_of
from suture.server.engine.remote.tokenizer import read_tokenizer
from suture.server.errors import SetupError, SutureError
from suture.server.models.store import list_models
from suture.server.remote import backends_of
from suture.server.settings import Settings


def backends(settings: Settings) -> Iterator[Finding]:
    """What `serve --engine remote` needs."""
    yield _tokenizer(settings)
    if not settings.engine_url:
        yield Finding("problem", "server", "no --engine-url is named", suture("serve", "--help"))
        return
    try:
        found = backends_of(settings)
    except SetupError as error:
        yield Finding("problem", "server", str(error), suture("serve", "--help"))
        return
    for backend in found:
        yield asyncio.run(_look_at(backend, settings.engine_model))


def _tokenizer(settings: Settings) -> Finding:
    path = _tokenizer_file(settings)
    if path is None:
        name = settings.model or "the default one"
        return Finding("problem", "model", f"the tokenizer of {name} is not here", _pull(settings))
    try:
        vocabulary, codec = read_tokenizer(path, settings)
    except SetupError as error:
        return Finding("problem", "model", str(error), pip_install("suture[remote]"))
    text = f"{path}: {vocabulary.n_vocab} tokens, by {codec.tokenizer}"
    return Finding("ok", "model", text)


def _tokenizer_file(settings: Settings) -> Path | None:
    """The file that `--model` names; None where it is one of models.txt that is not pulled."""
    catalog = catalog_of(settings)
    name = settings.model or catalog.default.name
    for model in list_models(catalog, settings.model_store):
        if model["name"] == name:
            return Path(str(model["path"])) if model["pulled"] else None
    return Path(name).expanduser()


def _pull(settings: Settings) -> str:
    return suture("pull", settings.model or catalog_of(settings).default.name)


async def _look_at(backend: Backend, name: str | None) -> Finding:
    """What a server says of itself; nothing is asked of its model."""
    try:
        await backend.check()
        server = await detect(backend.get)
        text = f"{backend.name}: {server.kind} {server.version}".rstrip()
        return Finding("ok", "server", f"{text}, model {model_of(server, name)}")
    except SutureError as error:
        text = f"{backend.name}: {error}"
        return Finding("problem", "server", text, shell("curl", f"{backend.name}/v1/models"))
    finally:
        await backend.close()
