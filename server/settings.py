"""All settings, from flags over environment over file over defaults.

The one module that reads the environment. `SUTURE_PORT` is `--port` is `port` in the file;
`SUTURE_CONFIG` names the file and `SUTURE_DEBUG` asks for tracebacks. An unknown key or a value
that does not fit is a `SetupError` that names where it stands.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)

from suture.server.errors import SetupError
from suture.server.request import Healing, Layout
from suture.server.wording import explain

# How a server asks for an API key, by which our clients know that it is Suture.
CHALLENGE = 'Bearer realm="suture"'
_PREFIX = "SUTURE_"
_NOT_SETTINGS = {"SUTURE_CONFIG", "SUTURE_DEBUG"}
# As in a Host header: international names are in ASCII there.
_HOST_NAME = re.compile(r"\w(?:[\w.-]*[\w.])?", re.ASCII)


def _list(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _word_or_int(word: str, low: int, high: int, what: str) -> BeforeValidator:
    def check(value: Any) -> Any:
        if value == word:
            return value
        try:
            number = int(value) if isinstance(value, int | str) else None
        except ValueError:
            number = None
        if number is None or isinstance(value, bool) or not low <= number <= high:
            raise ValueError(f'must be "{word}" or {what}')
        return number

    return BeforeValidator(check)


def _context(n_tokens: int) -> int:
    if 0 < n_tokens < 256:
        raise ValueError("must be 0 or at least 256")
    return n_tokens


def _host_name(name: str) -> str:
    if not _HOST_NAME.fullmatch(name):
        try:
            ipaddress.ip_address(name)
        except ValueError:
            message = f"must be a host's name, without scheme, port and path, not {name!r}"
            raise ValueError(message) from None
    return name


HostName = Annotated[str, AfterValidator(_host_name)]
UserPath = Annotated[Path, AfterValidator(Path.expanduser)]
GiveBack = Annotated[
    Literal["stable"] | int, _word_or_int("stable", 1, 8, "a number of tokens from 1 to 8")
]
GpuLayers = Annotated[
    Literal["auto"] | int, _word_or_int("auto", 0, 10_000, "a number of layers from 0")
]
ClientLimit = Annotated[
    Literal["auto"] | int, _word_or_int("auto", 0, 10_000, "a number of requests from 0")
]


class Settings(BaseModel):
    """Every setting; frozen, and passed down from the command.

    `ctx` 0 is the model's own context, at most 8192. `threads` 0 is one per physical core.
    `model` is a name of models.txt or a path; None is the first line of models.txt; so is each of
    `also_serve`. With `engine` "remote" the servers at `engine_url` run the model, which they call
    `engine_model`, and each is asked for up to `engine_parallel` texts at once; `model` is then a
    GGUF file or a `tokenizer.json` with its tokenizer. `memory_mb` 0 and `idle_minutes` 0 are no
    limits. `server` is where `complete` asks; None is this machine's `host` and `port`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: str | None = None
    models: UserPath | None = None
    cache: UserPath
    config_dir: Path
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8012
    ctx: Annotated[int, Field(ge=0, le=2**24), AfterValidator(_context)] = 0
    threads: Annotated[int, Field(ge=0, le=1024)] = 0
    gpu_layers: GpuLayers = "auto"
    healing: Healing = "exact"
    give_back: GiveBack = "stable"
    layout: Layout = "auto"
    min_confidence: Annotated[float, Field(ge=0, le=1)] = 0.0
    tokenizer: Literal["auto", "tiktoken", "llama"] = "auto"
    detokenizer: Literal["auto", "bytes", "window"] = "auto"
    stream_interval: Annotated[int, Field(ge=1, le=1024)] = 1
    api_key_file: UserPath | None = None
    tenants: UserPath | None = None
    tls_cert: UserPath | None = None
    tls_key: UserPath | None = None
    allow_host: Annotated[tuple[HostName, ...], BeforeValidator(_list)] = ()
    first_text_ms: Annotated[int, Field(ge=100, le=600_000)] = 2000
    parallel: Annotated[int, Field(ge=1, le=32)] = 4
    queue: Annotated[int, Field(ge=1, le=10_000)] = 32
    client_limit: ClientLimit = "auto"
    encode_batch: Annotated[int, Field(ge=1, le=256)] = 1
    encode_wait_ms: Annotated[int, Field(ge=0, le=1000)] = 2
    stall_s: Annotated[int, Field(ge=1, le=86_400)] = 60
    engine: Literal["llama", "remote"] = "llama"
    engine_url: Annotated[tuple[str, ...], BeforeValidator(_list)] = ()
    engine_kind: Literal[
        "auto", "vllm", "vllm-strict", "llama-server", "sglang", "openai", "openai-chat"
    ] = "auto"
    engine_model: str | None = None
    engine_key_file: UserPath | None = None
    engine_parallel: Annotated[int, Field(ge=1, le=10_000)] = 32
    also_serve: Annotated[tuple[str, ...], BeforeValidator(_list)] = ()
    memory_mb: Annotated[int, Field(ge=0, le=10**9)] = 0
    idle_minutes: Annotated[float, Field(ge=0, le=525_600)] = 0.0
    drain_s: Annotated[int, Field(ge=0, le=3600)] = 5
    server: str | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _no_booleans(cls, value: Any) -> Any:
        if isinstance(value, bool):  # which pydantic would take for 0 or 1
            raise ValueError("must be a value, not true or false")
        return value

    @property
    def most_running(self) -> int:
        """How many requests may run at once, here or at all inference servers together."""
        if self.engine == "remote":
            return self.engine_parallel * len(self.engine_url)
        return self.parallel

    @property
    def model_store(self) -> Path:
        """The folder of pulled models."""
        return self.cache / "models"

    @property
    def vocabulary_cache(self) -> Path:
        """The folder of what was read of model files."""
        return self.cache / "vocabularies"

    @property
    def profiles(self) -> Path:
        """The folder of what calibrating found out about models."""
        return self.cache / "profiles"

    @property
    def speeds(self) -> Path:
        """The folder of how fast models were read here."""
        return self.cache / "speeds"

    def url_at(self, host: str, port: int) -> str:
        """The URL of a server with these settings on an address."""
        scheme = "https" if self.tls_cert else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def public(self) -> dict[str, object]:
        """The settings that any client may see: the defaults of its requests."""
        return self.model_dump(
            include={"healing", "give_back", "layout", "min_confidence", "stream_interval"}
        )


# Where files are found follows from the environment alone; it is no setting of its own.
_DERIVED = {"config_dir"}
_KEYS = tuple(key for key in Settings.model_fields if key not in _DERIVED)


def load_settings(
    flags: Mapping[str, object] | None = None,
    config: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """The settings in force. A flag that is None was not given; `config` is `--config`."""
    merged: dict[str, object] = {"config_dir": _xdg(environ, "XDG_CONFIG_HOME", ".config")}
    merged["cache"] = _xdg(environ, "XDG_CACHE_HOME", ".cache")
    named: dict[str, str] = {}
    file, values = _from_file(config, environ)
    for source, layer in (
        (lambda key: f"{file}: {key}", values),
        (lambda key: _PREFIX + key.upper(), _from_environment(environ)),
        (lambda key: "--" + key.replace("_", "-"), flags or {}),
    ):
        given = {key: value for key, value in layer.items() if value is not None}
        merged |= given
        named |= {key: source(key) for key in given}
    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        key = str(details["loc"][0])
        raise SetupError(f"{named.get(key, key)}: {explain(details)}") from None


def debug_requested(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether `SUTURE_DEBUG` asks for tracebacks."""
    return environ.get("SUTURE_DEBUG", "") not in ("", "0")


def has_dumb_terminal(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether `TERM` says that the terminal takes no escapes; where there is none, it may."""
    return environ.get("TERM", "xterm").lower() in ("", "dumb", "unknown")


def inherited_sockets(environ: Mapping[str, str] = os.environ) -> int:
    """How many sockets a service manager has opened for this very process (sd_listen_fds)."""
    ours = environ.get("LISTEN_PID") == str(os.getpid())
    told = environ.get("LISTEN_FDS", "")
    return int(told) if ours and told.isdecimal() else 0


def notify_socket(environ: Mapping[str, str] = os.environ) -> str | None:
    """Where a service manager wants to be told how we are doing (sd_notify); None: nowhere."""
    return environ.get("NOTIFY_SOCKET") or None


def proxy_of_loopback(environ: Mapping[str, str] = os.environ) -> str | None:
    """The variable that sends requests for 127.0.0.1 to a proxy; None: there is none."""
    exempt = [
        part.strip()
        for name in ("no_proxy", "NO_PROXY")
        for part in environ.get(name, "").split(",")
    ]
    if "*" in exempt or "127.0.0.1" in exempt or "127.0.0.0/8" in exempt:
        return None
    # Programs do not heed HTTP_PROXY in capitals where a web server may have set it.
    names = ("http_proxy", "all_proxy", "ALL_PROXY")
    return next((name for name in names if environ.get(name)), None)


def named_certificates(
    environ: Mapping[str, str] = os.environ,
) -> tuple[str | None, str | None]:
    """The file and the folder of certificates that clients are to trust, as OpenSSL names them."""
    return environ.get("SSL_CERT_FILE") or None, environ.get("SSL_CERT_DIR") or None


def read_api_keys(settings: Settings, source: str = "--api-key-file") -> tuple[str, ...]:
    """The keys of `api_key_file`, one a line; none without such a file.

    `source` is what the user calls the file, for errors.
    """
    return () if settings.api_key_file is None else read_keys(settings.api_key_file, source)


def read_keys(path: Path, source: str) -> tuple[str, ...]:
    """The keys of a file, one a line, of which there is at least one. Raises `SetupError`."""
    keys = tuple(line.strip() for line in read_text(path, source).splitlines() if line.strip())
    if not keys:
        raise SetupError(f"{source}: {path} has no key in it")
    if not all(key.isascii() and key.isprintable() for key in keys):
        raise SetupError(f"{source}: {path}: keys must be printable ASCII")
    return keys


def _xdg(environ: Mapping[str, str], name: str, fallback: str) -> Path:
    base = environ.get(name, "")
    # The XDG specification has relative paths ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / fallback) / "suture"


def _from_file(config: Path | None, environ: Mapping[str, str]) -> tuple[Path, dict[str, object]]:
    explicit = config or (Path(environ["SUTURE_CONFIG"]) if environ.get("SUTURE_CONFIG") else None)
    path = explicit or _xdg(environ, "XDG_CONFIG_HOME", ".config") / "config.toml"
    if explicit is None and not path.exists():
        return path, {}
    try:
        values = tomllib.loads(read_text(path, "--config"))
    except tomllib.TOMLDecodeError as error:
        raise SetupError(f"{path}: {error}") from None
    for key in values:
        if key not in _KEYS:
            raise SetupError(f"{path}: unknown key {key!r}{nearest(key, _KEYS)}")
    return path, values


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    names = {_PREFIX + key.upper(): key for key in _KEYS}
    values: dict[str, object] = {}
    for name in sorted(environ):
        if not name.startswith(_PREFIX) or name in _NOT_SETTINGS:
            continue
        if name not in names:
            raise SetupError(f"{name}: unknown setting{nearest(name, tuple(names))}")
        # An empty variable is how a shell or a service file says "not set".
        if environ[name]:
            values[names[name]] = environ[name]
    return values


def read_text(path: Path, source: str) -> str:
    """What a file says, which `source` names. Raises `SetupError`."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise SetupError(f"{source}: {path} is not UTF-8") from None
    except OSError as error:
        raise SetupError(f"{source}: {path}: {error.strerror}") from None


def nearest(name: str, known: tuple[str, ...]) -> str:
    """A name that may have been meant, as the end of a sentence; empty where none is near."""
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
