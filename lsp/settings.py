"""What a user sets in the editor: the section `suture`, and `initializationOptions.suture`.

Both have one schema. A value that does not fit leaves its default in force, and is told once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from suture.server.request import Healing, Layout
from suture.server.wording import explain


def _url(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("must begin with http:// or https://")
    return url.rstrip("/")


def _expanded(path: str) -> str:
    return str(Path(path).expanduser())


class _Section(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
        allow_inf_nan=False,
    )


class ServerOptions(_Section):
    """Where completions come from. Without `url` it is the server that all editors share."""

    url: Annotated[str, AfterValidator(_url)] | None = None
    autostart: bool = True
    api_key_file: Annotated[str, AfterValidator(_expanded)] | None = None
    idle_minutes: Annotated[int, Field(ge=1, le=10_080)] = 30


class ContextOptions(_Section):
    """What the model is shown of other files."""

    open_files: bool = True
    neighbours: bool = True
    max_chunks: Annotated[int, Field(ge=0, le=256)] = 16


class Options(_Section):
    """All options.

    `languages` says by the editor's name of a language whether suggestions come in it; `exclude`
    are globs of files in which none come. With `stats` what becomes of suggestions is counted, on
    this machine. `completion` answers `textDocument/completion` too, for
    editors that know no inline completions.
    """

    enable: bool = True
    languages: dict[str, bool] = Field(default_factory=dict)
    exclude: Annotated[tuple[str, ...], Field(max_length=1000, strict=False)] = ()
    debounce_ms: Literal["auto"] | Annotated[int, Field(ge=0, le=10_000)] = "auto"
    multiline: bool = True
    max_tokens: Annotated[int, Field(ge=1, le=2048)] = 64
    prefetch: bool = True
    completion: bool = False
    stats: bool = True
    healing: Healing | None = None
    give_back: Literal["stable"] | Annotated[int, Field(ge=1, le=8)] | None = None
    layout: Layout | None = None
    server: ServerOptions = ServerOptions()
    context: ContextOptions = ContextOptions()


def read_options(raw: Any) -> tuple[Options, list[str]]:
    """The options that a client sent, and what is wrong with those that were left out.

    What is no object at all, or null, says nothing.
    """
    if not isinstance(raw, dict):
        return Options(), [] if raw is None else ["suture: must be an object"]
    given = _copy(raw)
    complaints: list[str] = []
    while True:
        try:
            return Options.model_validate(given), complaints
        except ValidationError as error:
            details = error.errors(include_url=False, include_input=False)
            for loc in dict.fromkeys(_setting(one["loc"]) for one in details):
                told = next(one for one in details if _setting(one["loc"]) == loc)
                complaints.append(f"suture.{'.'.join(loc)}: {explain(told)}")
                _drop(given, loc)


_SECTIONS = ("server", "context")


def _setting(loc: tuple[int | str, ...]) -> tuple[str, ...]:
    """The names of the setting that an error is about: a part of it is not left out alone."""
    depth = 2 if loc[0] in _SECTIONS and len(loc) > 1 else 1
    return tuple(str(part) for part in loc[:depth])


def _copy(raw: dict[str, Any]) -> dict[str, Any]:
    return {
        # An editor's settings have null for what is not set.
        name: _copy(value) if isinstance(value, dict) else value
        for name, value in raw.items()
        if value is not None
    }


def _drop(given: dict[str, Any], loc: tuple[str, ...]) -> None:
    for name in loc[:-1]:
        given = given[name]
    given.pop(loc[-1], None)
