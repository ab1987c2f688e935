"""The one place that imports llama_cpp: load the library, prove that it is the one we know.

The low-level signatures move between releases, and a wrong struct layout corrupts memory
instead of raising. So `load()` compares version and struct sizes with those this code was
written against before anything is called.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import importlib
import importlib.metadata
import logging
import os
from dataclasses import dataclass
from typing import Any

from suture.server.errors import SetupError

PINNED_VERSION = "0.3.36"
LIBRARY_VERSION = "0.5.0-dev"

# sizeof() on 64-bit platforms, from the pinned release.
STRUCT_SIZES = {
    "llama_batch": 56,
    "llama_model_params": 80,
    "llama_context_params": 160,
    "llama_sampler_chain_params": 1,
    "llama_token_data": 12,
    "llama_token_data_array": 32,
}

# Defaults that the library itself writes, the last field of each struct among them: reading them
# back through the binding proves that both have the same layout.
CONTEXT_DEFAULTS = {"n_ctx": 512, "n_batch": 2048, "n_ubatch": 512, "n_seq_max": 1, "n_samplers": 0}
MODEL_DEFAULTS = {"use_extra_bufts": True, "vocab_only": False, "check_tensors": False}

_NO_GPU = ("CPU", "BLAS", "RPC")
_LEVEL_ERROR = 4
# One step below the library's own: what is wrong reaches the user in our own one line.
_LOG_LEVELS = {3: logging.INFO, _LEVEL_ERROR: logging.INFO}
_log = logging.getLogger("suture.llama")
_last_errors: collections.deque[str] = collections.deque(maxlen=1)


@dataclass(frozen=True, slots=True)
class LibraryReport:
    """What `suture doctor` says of the installed build; `problems` is empty when all is well."""

    version: str
    system_info: str
    gpu_offload: bool
    backends: tuple[str, ...]
    uses_amx: bool
    problems: tuple[str, ...]


def installed_version() -> str | None:
    """The installed llama-cpp-python's version, or None."""
    try:
        return importlib.metadata.version("llama-cpp-python")
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def load() -> Any:
    """The module of low-level bindings, checked, its log routed to Python's logging.

    Raises `SetupError` when it is missing, does not load or is not the pinned release.
    """
    lib = _import()
    problems = _problems(lib)
    if problems:
        raise SetupError("; ".join(problems))
    return lib


def inspect() -> LibraryReport:
    """What the build can do and what is wrong with it. Raises `SetupError` when it is missing."""
    lib = _import()
    return LibraryReport(
        version=installed_version() or "unknown",
        system_info=lib.llama_print_system_info().decode("utf-8", "replace").strip(" |"),
        gpu_offload=bool(lib.llama_supports_gpu_offload()),
        backends=_backends(lib),
        uses_amx=has_amx(),
        problems=tuple(_problems(lib)),
    )


def device(n_gpu_layers: int) -> str:
    """Where a model's layers are with so many offloaded: the GPU's backend, or "cpu"."""
    lib = load()
    if n_gpu_layers == 0 or not lib.llama_supports_gpu_offload():
        return "cpu"
    gpus = (name.lower() for name in _backends(lib) if name not in _NO_GPU)
    return next(gpus, "cpu")


def has_amx() -> bool:
    """Whether the build uses the CPU's matrix tiles."""
    return b"AMX_INT8 = 1" in _import().llama_print_system_info()


def last_error() -> str:
    """The last line that the library logged as an error."""
    return _last_errors[-1] if _last_errors else "no reason given"


@functools.cache
def _import() -> Any:
    # Before the library is loaded: on an abort, ggml otherwise starts gdb for a backtrace.
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    if installed_version() is None:
        raise SetupError(
            "llama-cpp-python is not installed: pip install 'suture[local]' (needs a C++ compiler)"
        )
    try:
        lib = importlib.import_module("llama_cpp.llama_cpp")
    except (ImportError, OSError, RuntimeError) as error:
        raise SetupError(f"llama-cpp-python does not load: {_first_line(error)}") from error
    lib.llama_log_set(_log_callback(), ctypes.c_void_p(0))
    _load_backend_plugins(lib)
    lib.llama_backend_init()
    return lib


def _problems(lib: Any) -> list[str]:
    problems = []
    version = installed_version()
    if version != PINNED_VERSION:
        problems.append(f"llama-cpp-python is {version}, this Suture needs {PINNED_VERSION}")
    for name, expected in STRUCT_SIZES.items():
        size = ctypes.sizeof(getattr(lib, name))
        if size != expected:
            problems.append(f"{name} has {size} bytes, expected {expected}")
    if problems:
        return problems  # nothing may be called through a layout that is known to be wrong
    library = lib.llama_version().decode()
    if library != LIBRARY_VERSION:
        problems.append(f"libllama is {library}, this Suture needs {LIBRARY_VERSION}")
    problems += _wrong_defaults("context", lib.llama_context_default_params(), CONTEXT_DEFAULTS)
    problems += _wrong_defaults("model", lib.llama_model_default_params(), MODEL_DEFAULTS)
    return problems


def _wrong_defaults(name: str, params: Any, expected: dict[str, Any]) -> list[str]:
    return [
        f"libllama's default {name} parameter {field} is {getattr(params, field)}, expected {value}"
        for field, value in expected.items()
        if getattr(params, field) != value
    ]


def _load_backend_plugins(lib: Any) -> None:
    # The portable build (GGML_BACKEND_DL) keeps its CPU variants in plugins beside the library;
    # ggml looks for them beside the *executable*, which is python. Elsewhere nothing is missing.
    ggml = _ggml(lib)
    if ggml.ggml_backend_reg_count() == 0:
        package = importlib.import_module("llama_cpp")
        folder = os.path.join(os.path.dirname(str(package.__file__)), "lib")
        ggml.ggml_backend_load_all_from_path(os.fsencode(folder))


def _ggml(lib: Any) -> Any:
    """libllama's own ggml: a wheel holds copies of its file, each with a registry of its own."""
    ggml = lib._lib
    ggml.ggml_backend_reg_count.restype = ctypes.c_size_t
    ggml.ggml_backend_reg_get.restype = ctypes.c_void_p
    ggml.ggml_backend_reg_get.argtypes = [ctypes.c_size_t]
    ggml.ggml_backend_reg_name.restype = ctypes.c_char_p
    ggml.ggml_backend_reg_name.argtypes = [ctypes.c_void_p]
    return ggml


def _backends(lib: Any) -> tuple[str, ...]:
    ggml = _ggml(lib)
    return tuple(
        ggml.ggml_backend_reg_name(ggml.ggml_backend_reg_get(index)).decode()
        for index in range(ggml.ggml_backend_reg_count())
    )


@functools.cache
def _log_callback() -> Any:
    lib = importlib.import_module("llama_cpp.llama_cpp")

    def write(level: int, text: bytes, _user_data: object) -> None:
        line = text.decode("utf-8", "replace").rstrip()
        if level == _LEVEL_ERROR and line:
            _last_errors.append(line)
        if line and line != ".":
            _log.log(_LOG_LEVELS.get(level, logging.DEBUG), line)

    # Cached, so that it lives as long as the library that calls it.
    return lib.llama_log_callback(write)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
