"""The model that `serve` would load: its file, its vocabulary, and whether there is room for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from suture.healing import GgufError, GgufHeader, UnsupportedVocabulary, Vocabulary, read_header
from suture.server.calibration.profile import read_profile
from suture.server.codec import choose_codec, read_tiktoken
from suture.server.commands.pull import catalog_of
from suture.server.doctor.finding import Finding, suture
from suture.server.doctor.machine import cache
from suture.server.engine import libllama, limits
from suture.server.engine.memory import DESCRIPTIONS
from suture.server.engine.tokenizer import LlamaTokenizer
from suture.server.errors import SetupError, SutureError
from suture.server.models.progress import megabytes
from suture.server.models.store import list_models
from suture.server.prompt.families import FimFamily, detect_family, families_by_name
from suture.server.settings import Settings

# What `ctx` 0 is at most, and what a context is at least.
_DEFAULT_CTX = 8192
_LEAST_CTX = 256
# Interpreter, libraries and the library's own buffers beside weights and context.
_BASE_BYTES = 400_000_000
_HALF = 2


def model(settings: Settings) -> Iterator[Finding]:
    """Everything about the model, and whether there is room for it."""
    try:
        catalog = catalog_of(settings)
        name = settings.model or catalog.default.name
        listed = {entry["name"]: entry for entry in list_models(catalog, settings.model_store)}
    except SetupError as error:
        yield from cache(settings, None)
        yield Finding("problem", "model", str(error), suture("models"))
        return
    if name in listed and not listed[name]["pulled"]:
        yield from cache(settings, listed[name]["bytes"])
        text = f"model {name}: not pulled yet"
        yield Finding("note", "model", text, suture("pull", name))
        return
    yield from cache(settings, None)
    path = Path(str(listed[name]["path"] if name in listed else name)).expanduser()
    try:
        yield from _file(settings, name, path)
    except (GgufError, UnsupportedVocabulary, SutureError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        told = str(reason).removeprefix(f"{path}: ")
        yield Finding("problem", "model", f"model {name}: {told}", suture("models"))


def _file(settings: Settings, name: str, path: Path) -> Iterator[Finding]:
    vocabulary = Vocabulary.from_gguf(path, settings.vocabulary_cache)
    yield describe_vocabulary(name, path, vocabulary)
    header = read_header(path)
    yield from _calibrated(settings, path, vocabulary)
    if not header.tensor_shapes:
        text = f"model {name}: the file has a vocabulary but no weights"
        yield Finding("problem", "model", text, suture("models"))
    if libllama.installed_version() is not None:
        yield from describe_driving(settings, path, vocabulary, header)
    if header.tensor_shapes:
        yield describe_memory(settings, path.stat().st_size, header, limits.memory())


def _calibrated(settings: Settings, path: Path, vocabulary: Vocabulary) -> Iterator[Finding]:
    """What "auto" stands for with the model, if that was measured."""
    profile = read_profile(settings.profiles, path, detect_family(vocabulary, path.stem))
    if profile is not None:
        boundary = f" {profile.boundary}" if profile.layout == "psm" else ""
        text = f"calibrated on {profile.holes} holes: layout {profile.layout}{boundary}"
        yield Finding("ok", "model", text)


def describe_vocabulary(name: str, path: Path, vocabulary: Vocabulary) -> Finding:
    """What the model's vocabulary is, and whether it can fill holes."""
    family = detect_family(vocabulary, path.stem)
    told = f"model {name}: {vocabulary.n_vocab} tokens ({vocabulary.pretokenizer})"
    kind: Literal["ok", "note"] = "ok"
    if family is None:
        fills = "no FIM: left to right only"
        if named := families_by_name(vocabulary, path.stem, vocabulary.title):
            kind = "note"
            fills += f": ambiguous, its tokens fit {', '.join(named)}, but its name does not tell"
    else:
        kind, fills = _family(family)
    return Finding(kind, "model", f"{told}, {fills}\n        {path}")


def _family(family: FimFamily) -> tuple[Literal["ok", "note"], str]:
    """How a model fills holes, and how sure that is."""
    fills = f"fills in the middle as {family.name}"
    if family.ambiguous:
        fitting = ", ".join(family.ambiguous)
        return "note", f"{fills} in psm order: ambiguous, its tokens fit {fitting}"
    if not family.verified:
        return "note", f"{fills} in {family.order} order: unverified, a format known from memory"
    return "ok", fills


def describe_driving(
    settings: Settings, path: Path, vocabulary: Vocabulary, header: GgufHeader
) -> Iterator[Finding]:
    """How `serve` would drive the model: its memory and its tokenizer. Reads no weights."""
    own = LlamaTokenizer(path)
    try:
        memory = own.memory(header.metadata)
        kind: Literal["ok", "note"] = "note" if memory in ("recurrent", "hybrid") else "ok"
        yield Finding(kind, "model", f"memory: {memory}: {DESCRIPTIONS[memory]}")
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
        fix = suture("serve", "--tokenizer", "auto", "--detokenizer", "auto")
        return Finding("problem", "model", str(error), fix)
    text = f"tokenizer: {codec.tokenizer}\n        detokenizer: {codec.detokenizer}"
    return Finding("ok" if codec.heals else "note", "model", text)


def describe_memory(
    settings: Settings, n_bytes: int, header: GgufHeader, memory: limits.Memory
) -> Finding:
    """Whether model and context fit into main memory; what a GPU takes of them is not counted."""
    ctx = context_length(settings, header)
    a_token = bytes_per_token(header)
    needed = _BASE_BYTES + n_bytes + a_token * ctx
    told = f"{megabytes(n_bytes)} of weights and {megabytes(a_token * ctx)} for {ctx} tokens"
    limit = min((n for n in (memory.limit, memory.total) if n is not None), default=None)
    if limit is not None and needed > limit:
        text = f"room: {told}, of {megabytes(limit)} that there are: it is killed or crawls"
        return Finding("problem", "memory", text, _smaller(ctx, a_token, limit - n_bytes))
    if memory.free is not None and needed > memory.free:
        text = f"room: {told}, and {megabytes(memory.free)} are free: others would have to give"
        return Finding("note", "memory", text, _smaller(ctx, a_token, memory.free - n_bytes))
    room = "" if memory.free is None else f", {megabytes(memory.free)} free"
    return Finding("ok", "memory", f"room: {told}{room}")


def context_length(settings: Settings, header: GgufHeader) -> int:
    """The context that `serve` would make, in tokens."""
    if settings.ctx:
        return settings.ctx
    return min(_number(header, "context_length") or _DEFAULT_CTX, _DEFAULT_CTX)


def bytes_per_token(header: GgufHeader) -> int:
    """What the cache holds for a token of context, at most: layers that have none are counted."""
    n_layers, width = _number(header, "block_count"), _number(header, "embedding_length")
    n_heads = _number(header, "attention.head_count") or 1
    n_kv_heads = _number(header, "attention.head_count_kv") or n_heads
    key = _number(header, "attention.key_length") or width // n_heads
    value = _number(header, "attention.value_length") or width // n_heads
    return n_layers * n_kv_heads * (key + value) * _HALF


def _number(header: GgufHeader, key: str) -> int:
    """A number of the architecture, the largest where layers differ; 0 where it is not told."""
    architecture = header.metadata.get("general.architecture", "")
    told = header.metadata.get(f"{architecture}.{key}", 0)
    values = told if hasattr(told, "__iter__") else [told]
    return max((int(value) for value in values), default=0)


def _smaller(ctx: int, a_token: int, left: int) -> str:
    """A shorter context where that is enough; else a smaller model is to be chosen."""
    fits = (left - _BASE_BYTES) // a_token if a_token else 0
    fits = min(fits, ctx) // _LEAST_CTX * _LEAST_CTX
    return suture("serve", "--ctx", str(fits)) if fits >= 4 * _LEAST_CTX else suture("models")
