"""Whose keys are whose: the tenants file, and the keys of `--api-key-file`.

  tenant  who trusts each other: a team, a customer. It is known by its keys alone.
  user    one of a tenant's people, by what their client says of itself (`routes/asker.py`)

    [tenants.blue]
    keys = ["…", "…"]           or key_file = "blue.keys", one key a line, or both
    limit = 24                  requests of all its users together that may run and wait
    user_limit = 6              those of each one of them
    cache_salt = "…"            prompts of another salt share nothing in a cache with its own

There are two limits because clients name their users themselves. What a tenant takes of the others
is bounded by `limit`, as it has no other keys; `user_limit` only keeps its users from each other,
and who gives himself many names gets more of what is his tenant's.

The keys of `--api-key-file` are those of the tenant `default`, of which the file may say all else.
No error repeats a key or a salt.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from suture.server.errors import SetupError
from suture.server.settings import Settings, nearest, read_api_keys, read_keys, read_text
from suture.server.wording import explain

DEFAULT = "default"
SOURCE = "--tenants"
MAX_LIMIT = 10_000
# As a label of a metric and in a header to another server: nothing to be quoted.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant. `limit` and `user_limit` are requests that run and wait; None is no bound."""

    name: str
    limit: int | None = None
    user_limit: int | None = None
    cache_salt: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Tenants:
    """All tenants, and each key with the tenant whose it is."""

    all: tuple[Tenant, ...] = ()
    keys: tuple[tuple[str, Tenant], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """What the tenants file says of one tenant; `key_file` as it is written there."""

    tenant: Tenant
    keys: tuple[str, ...] = field(repr=False)
    key_file: str | None


def _key(key: str) -> str:
    if not (key.isascii() and key.isprintable()):
        raise ValueError("must be printable ASCII")
    # What clients send is stripped of them.
    if not key or key != key.strip():
        raise ValueError("must not be empty, nor begin or end with blanks")
    return key


def _salt(salt: str) -> str:
    if not (salt.isascii() and salt.isprintable()):
        raise ValueError("must be printable ASCII")
    return salt


_Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT)]


class _Table(BaseModel):
    """One `[tenants.NAME]`."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    keys: list[Annotated[str, AfterValidator(_key)]] = Field(default_factory=list)
    key_file: Annotated[str, Field(min_length=1)] | None = None
    limit: _Limit | None = None
    user_limit: _Limit | None = None
    cache_salt: Annotated[str, Field(min_length=1), AfterValidator(_salt)] | None = None


_FIELDS = tuple(_Table.model_fields)


def parse_tenants(text: str, source: str) -> tuple[Entry, ...]:
    """What the text of a tenants file says; `source` names it. Raises `SetupError`."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SetupError(f"{source}: {error}") from None
    for key in document:
        if key != "tenants":
            raise SetupError(f"{source}: unknown key {key!r}: only [tenants.NAME] is known")
    tables = document.get("tenants", {})
    if not isinstance(tables, dict):
        raise SetupError(f"{source}: tenants: must be tables, [tenants.NAME]")
    if not tables:
        raise SetupError(f"{source} has no tenant in it")
    return tuple(_entry(name, table, source) for name, table in tables.items())


def _entry(name: str, table: Any, source: str) -> Entry:
    where = f"{source}: tenants.{name}"
    if not _NAME.fullmatch(name):
        raise SetupError(
            f"{source}: tenants.{name!r}: a name has 1 to 64 letters, digits, _, . and -"
        )
    if not isinstance(table, dict):
        raise SetupError(f"{where}: must be a table, [tenants.{name}]")
    for key in table:
        if key not in _FIELDS:
            raise SetupError(f"{where}: unknown key {key!r}{nearest(key, _FIELDS)}")
    try:
        read = _Table.model_validate(table)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)[0]
        place = "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in details["loc"])
        raise SetupError(f"{where}{place}: {explain(details)}") from None
    tenant = Tenant(name, read.limit, read.user_limit, read.cache_salt)
    return Entry(tenant, tuple(read.keys), read.key_file)


def read_tenants(settings: Settings) -> Tenants:
    """The tenants that the settings name; none without keys. Raises `SetupError`."""
    entries = _entries(settings)
    tenants = {entry.tenant.name: entry.tenant for entry in entries}
    owned = [
        (key, where, entry.tenant) for entry in entries for key, where in _keys(entry, settings)
    ]
    if settings.api_key_file is not None:
        tenant = tenants.setdefault(DEFAULT, Tenant(DEFAULT))
        owned += [(key, str(settings.api_key_file), tenant) for key in read_api_keys(settings)]
    for name, tenant in tenants.items():
        if all(owner is not tenant for _, _, owner in owned):
            raise SetupError(f"{_source(settings)}: tenants.{name}: has no key")
    owner_of = _one_owner_each(owned, _source(settings))
    return Tenants(tuple(tenants.values()), tuple(owner_of.items()))


def tenant_files(settings: Settings) -> Iterator[Path]:
    """The files with secrets of tenants: that which lists them, and those of their keys."""
    if settings.tenants is not None:
        yield settings.tenants
        for entry in _entries(settings):
            if entry.key_file is not None:
                yield _beside(settings.tenants, entry.key_file)


def _entries(settings: Settings) -> tuple[Entry, ...]:
    if settings.tenants is None:
        return ()
    return parse_tenants(read_text(settings.tenants, SOURCE), _source(settings))


def _source(settings: Settings) -> str:
    return f"{SOURCE}: {settings.tenants}"


def _keys(entry: Entry, settings: Settings) -> Iterator[tuple[str, str]]:
    """A tenant's keys, and where each of them stands."""
    assert settings.tenants is not None
    where = f"tenants.{entry.tenant.name}"
    for n, key in enumerate(entry.keys):
        yield key, f"{where}.keys[{n}]"
    if entry.key_file is not None:
        path = _beside(settings.tenants, entry.key_file)
        for key in read_keys(path, f"{_source(settings)}: {where}.key_file"):
            yield key, str(path)


def _beside(file: Path, name: str) -> Path:
    """A file that another one names, from the folder that this one is in."""
    return file.parent / Path(name).expanduser()


def _one_owner_each(owned: list[tuple[str, str, Tenant]], source: str) -> Mapping[str, Tenant]:
    """The tenant of each key. Raises `SetupError` where two have one."""
    found: dict[str, tuple[str, Tenant]] = {}
    for key, where, tenant in owned:
        before, owner = found.setdefault(key, (where, tenant))
        if owner is not tenant:
            raise SetupError(
                f"{source}: two tenants have one key: {owner.name} ({before}) and "
                f"{tenant.name} ({where})"
            )
    return {key: tenant for key, (_, tenant) in found.items()}
