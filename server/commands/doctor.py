"""`suture doctor`: what this installation has, what is wrong with it, and how to mend that.

The build of llama.cpp is checked against the one this code was written for: its version, the sizes
of its structs, and defaults read back through the binding. Status 0 if nothing is wrong, else 2.
With --calibrate nothing is examined: MODEL is measured, and the layout kept that it fills best.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from suture.healing import GgufError, GgufHeader, UnsupportedVocabulary, Vocabulary, read_header
from suture.server.calibration.profile import read_profile
from suture.server.client import Absent, Suture
from suture.server.codec import choose_codec, read_tiktoken
from suture.server.commands import exits
from suture.server.commands.asking import open_client, server_url
from suture.server.commands.calibration import calibrate
from suture.server.commands.flags import add_settings, settings_of
from suture.server.commands.pull import catalog_of
from suture.server.engine import libllama
from suture.server.engine.memory import DESCRIPTIONS
from suture.server.engine.threads import best_thread_count
from suture.server.engine.tokenizer import LlamaTokenizer
from suture.server.errors import SetupError, SutureError
from suture.server.models.store import list_models
from suture.server.prompt.families import FimFamily, detect_family, families_by_name
from suture.server.settings import Settings
from suture.server.version import VERSION

SUMMARY = "say what is installed and what is wrong with it"

_PACKAGES = ("numpy", "pydantic", "starlette", "tiktoken", "uvicorn", "huggingface-hub")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `fix` says what to do about a `problem`."""

    kind: Literal["ok", "note", "problem"]
    text: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.kind:8s}{self.text}" + (f"\n        -> {self.fix}" if self.fix else "")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--calibrate",
        metavar="MODEL",
        help="measure which layout this model fills holes best in, and keep that (minutes)",
    )
    add_settings(
        parser,
        "model",
        "models",
        "host",
        "port",
        "ctx",
        "threads",
        "gpu_layers",
        "healing",
        "tokenizer",
        "detokenizer",
        "api_key_file",
        "tls_cert",
    )


def run(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    if args.calibrate is not None:
        if args.model is not None:
            raise SetupError("--calibrate names the model: it does not go with --model")
        return calibrate(settings.model_copy(update={"model": args.calibrate}))
    status = exits.OK
    for finding in examine(settings):
        print(finding, flush=True)
        if finding.kind == "problem":
            status = exits.SETUP
    return status


def examine(settings: Settings) -> Iterator[Finding]:
    """Everything there is to say, what everything else rests on first."""
    yield Finding("ok", f"suture {VERSION}, python {platform.python_version()} ({sys.executable})")
    yield Finding("ok", ", ".join(f"{name} {_version(name)}" for name in _PACKAGES))
    yield from _build()
    yield from _threads(settings)
    yield _cache(settings)
    yield from _model(settings)
    yield _port(settings)
    values = settings.model_dump(mode="json", exclude_defaults=True)
    yield Finding("ok", "settings: " + ", ".join(f"{key} = {values[key]}" for key in values))


def _build() -> Iterator[Finding]:
    """The build of llama.cpp."""
    try:
        report = libllama.inspect()
    except SetupError as error:
        yield Finding("problem", str(error), "make setup, or: pip install 'suture[local]'")
        return
    fix = f"pip install --no-cache-dir llama-cpp-python=={libllama.PINNED_VERSION}"
    for problem in report.problems:
        yield Finding("problem", problem, fix)
    if not report.problems:
        yield Finding("ok", f"llama-cpp-python {report.version}: version, struct sizes, defaults")
    yield Finding("ok", f"backends: {', '.join(report.backends) or 'none reported'}")
    yield Finding("ok", f"built with: {_switched_on(report.system_info)}")
    gpu = "GPU offload: " + ("yes" if report.gpu_offload else "no")
    yield Finding("ok" if report.gpu_offload else "note", gpu)
    if report.uses_amx:
        yield Finding(
            "note",
            "the build uses AMX, which fails in virtual machines: it is left off, at some speed",
            "make setup builds without it",
        )


def _switched_on(system_info: str) -> str:
    """``CPU : SSE3 = 1 | AVX = 0`` without what is off and without the ones."""
    parts = [part.strip() for part in system_info.split("|")]
    return " ".join(part.removesuffix(" = 1") for part in parts if not part.endswith(" = 0"))


def _threads(settings: Settings) -> Iterator[Finding]:
    best = best_thread_count()
    if settings.threads > best:
        yield Finding(
            "note",
            f"threads: {settings.threads}, more than the {best} physical cores: slower",
            "leave --threads out",
        )
    else:
        yield Finding("ok", f"threads: {settings.threads or best} of {best} physical cores")


def _cache(settings: Settings) -> Finding:
    """Whether models and vocabularies can be kept."""
    folder = settings.cache
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or error
        return Finding("problem", f"cache {folder} cannot be written: {reason}", "SUTURE_CACHE=DIR")
    return Finding("ok", f"cache {folder}")


def _model(settings: Settings) -> Iterator[Finding]:
    """The model that `serve` would load."""
    try:
        catalog = catalog_of(settings)
        name = settings.model or catalog.default.name
        listed = {entry["name"]: entry for entry in list_models(catalog, settings.model_store)}
    except SetupError as error:
        yield Finding("problem", str(error))
        return
    if name in listed and not listed[name]["pulled"]:
        yield Finding("note", f"model {name}: not pulled yet", f"suture pull {name}")
        return
    path = Path(str(listed[name]["path"] if name in listed else name)).expanduser()
    try:
        vocabulary = Vocabulary.from_gguf(path, settings.vocabulary_cache)
        yield describe_vocabulary(name, path, vocabulary)
        header = read_header(path)
        yield from _calibrated(settings, path, vocabulary)
        if not header.tensor_shapes:
            yield Finding("problem", f"model {name}: the file has a vocabulary but no weights")
        if libllama.installed_version() is not None:
            yield from describe_driving(settings, path, vocabulary, header)
    except (GgufError, UnsupportedVocabulary, SutureError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        told = str(reason).removeprefix(f"{path}: ")
        yield Finding("problem", f"model {name}: {told}", "suture models lists those known")


def _calibrated(settings: Settings, path: Path, vocabulary: Vocabulary) -> Iterator[Finding]:
    """What "auto" stands for with the model, if that was measured."""
    profile = read_profile(settings.profiles, path, detect_family(vocabulary, path.stem))
    if profile is not None:
        boundary = f" {profile.boundary}" if profile.layout == "psm" else ""
        text = f"calibrated on {profile.holes} holes: layout {profile.layout}{boundary}"
        yield Finding("ok", text)


def describe_vocabulary(name: str, path: Path, vocabulary: Vocabulary) -> Finding:
    """What the model's vocabulary is, and whether it can fill holes."""
    family = detect_family(vocabulary, path.stem)
    model = f"model {name}: {vocabulary.n_vocab} tokens ({vocabulary.pretokenizer})"
    kind: Literal["ok", "note"] = "ok"
    if family is None:
        fills = "no FIM: left to right only"
        if named := families_by_name(vocabulary, path.stem, vocabulary.title):
            kind = "note"
            fills += f": ambiguous, its tokens fit {', '.join(named)}, but its name does not tell"
    else:
        kind, fills = _family(family)
    return Finding(kind, f"{model}, {fills}\n        {path}")


def describe_driving(
    settings: Settings, path: Path, vocabulary: Vocabulary, header: GgufHeader
) -> Iterator[Finding]:
    """How `serve` would drive the model: its memory and its tokenizer. Reads no weights."""
    own = LlamaTokenizer(path)
    try:
        memory = own.memory(header.metadata)
        kind: Literal["ok", "note"] = "note" if memory in ("recurrent", "hybrid") else "ok"
        yield Finding(kind, f"memory: {memory}: {DESCRIPTIONS[memory]}")
        yield describe_codec(settings, vocabulary, own)
    finally:
        own.close()


def describe_codec(settings: Settings, vocabulary: Vocabulary, own: LlamaTokenizer) -> Finding:
    """What `serve` would make tokens of text with, and text of tokens."""
    try:
        fast = read_tiktoken(settings.tokenizer, vocabulary)
        wanted = settings.tokenizer, settings.detokenizer
        codec = choose_codec(*wanted, vocabulary, own, fast)
    except SetupError as error:
        return Finding("problem", str(error), "leave the flag or setting out")
    text = f"tokenizer: {codec.tokenizer}\n        detokenizer: {codec.detokenizer}"
    return Finding("ok" if codec.heals else "note", text)


def _family(family: FimFamily) -> tuple[Literal["ok", "note"], str]:
    """How a model fills holes, and how sure that is."""
    fills = f"fills in the middle as {family.name}"
    if family.ambiguous:
        fitting = ", ".join(family.ambiguous)
        return "note", f"{fills} in psm order: ambiguous, its tokens fit {fitting}"
    if not family.verified:
        return "note", f"{fills} in {family.order} order: unverified, a format known from memory"
    return "ok", fills


def _port(settings: Settings) -> Finding:
    url = server_url(settings)
    try:
        with open_client(settings, url) as client:
            found = client.identify()
    except SetupError as error:
        return Finding("problem", str(error))
    if isinstance(found, Absent):
        return Finding("ok", f"{url}: nothing runs there yet")
    if isinstance(found, Suture):
        status = found.status
        which = f"suture {status['suture']}, {status.get('state')}, pid {status.get('pid')}"
        return Finding("ok", f"{url}: {which}")
    return Finding("problem", f"{url}: {found.what}", "stop it, or choose another --port")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"
