"""A model that `serve` would load: its file, its vocabulary, and whether there is room for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from suture.healing import GgufError, GgufHeader, UnsupportedVocabulary, Vocabulary, read_header
from suture.server.calibration.profile import read_profile
from suture.server.codec import choose_codec, read_tiktoken
from suture.server.doctor.finding import Finding, suture
from suture.server.engine import libllama, limits
from suture.server.engine.footprint import CTX_STEP, context_bytes, context_length
from suture.server.engine.memory import DESCRIPTIONS
from suture.server.engine.tokenizer import LlamaTokenizer
from suture.server.errors import SetupError, SutureError
from suture.server.models.progress import megabytes
from suture.server.prompt.families import FimFamily, detect_family, families_by_name
from suture.server.settings import Settings

# A shorter context is no cure.
_LEAST_CTX = 1024
# Interpreter, libraries and the library's own buffers beside weights and context.
_BASE_BYTES = 400_000_000


def model(settings: Settings, name: str, path: Path) -> Iterator[Finding]:
    """Everything about one model, and whether there is room for it alone."""
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
    ctx = context_length(header.metadata, settings.ctx)
    n_context = context_bytes(header.metadata, ctx)
    needed = _BASE_BYTES + n_bytes + n_context
    told = f"{megabytes(n_bytes)} of weights and {megabytes(n_context)} for {ctx} tokens"
    limit = min((n for n in (memory.limit, memory.total) if n is not None), default=None)
    if limit is not None and needed > limit:
        text = f"room: {told}, of {megabytes(limit)} that there are: it is killed or crawls"
        return Finding("problem", "memory", text, _smaller(ctx, header, limit - n_bytes))
    if memory.free is not None and needed > memory.free:
        text = f"room: {told}, and {megabytes(memory.free)} are free: others would have to give"
        return Finding("note", "memory", text, _smaller(ctx, header, memory.free - n_bytes))
    room = "" if memory.free is None else f", {megabytes(memory.free)} free"
    return Finding("ok", "memory", f"room: {told}{room}")


def _smaller(ctx: int, header: GgufHeader, left: int) -> str:
    """A shorter context where that is enough; else a smaller model is to be chosen."""
    for fits in range(ctx - CTX_STEP, _LEAST_CTX - 1, -CTX_STEP):
        if _BASE_BYTES + context_bytes(header.metadata, fits) <= left:
            return suture("serve", "--ctx", str(fits))
    return suture("models")
