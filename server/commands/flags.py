"""Flags that are settings: their values go unparsed to `load_settings`, which judges them."""

from __future__ import annotations

import argparse
from pathlib import Path

from suture.server.settings import Settings, load_settings

_HELP = {
    "model": (
        "NAME|PATH",
        "a name of models.txt, a GGUF file, or with --engine remote a tokenizer.json "
        "(default: the first of models.txt)",
    ),
    "models": ("FILE", "another models.txt"),
    "host": ("HOST", "address to listen on (default 127.0.0.1)"),
    "port": ("PORT", "port to listen on (default 8012; 0 picks a free one)"),
    "ctx": ("N", "context in tokens (default 0: the model's, at most 8192)"),
    "threads": ("N", "threads (default 0: one per physical core)"),
    "gpu_layers": ("auto|N", "layers on the GPU (default auto)"),
    "healing": ("exact|recursive|off", "how the text at the cursor is healed (default exact)"),
    "give_back": ("stable|N", "what is given back: up to a stable cut, or N tokens"),
    "layout": ("auto|psm|spm|anchor", "order of prefix, suffix and middle (default auto)"),
    "min_confidence": ("P", "leave out lines whose tokens are less probable (default 0: none)"),
    "tokenizer": ("auto|tiktoken|llama", "what makes tokens of text (default auto)"),
    "detokenizer": ("auto|bytes|window", "what makes text of tokens (default auto)"),
    "stream_interval": ("K", "send text every K tokens (default 1)"),
    "api_key_file": ("FILE", "keys that clients must send one of, one a line"),
    "tenants": ("FILE", "whose keys are whose, with limits and cache salts, TOML"),
    "tls_cert": ("FILE", "certificate chain, PEM"),
    "tls_key": ("FILE", "its key, PEM"),
    "allow_host": ("HOST", "a Host header to answer to (may be given again)"),
    "first_text_ms": ("MS", "time to first text that a cold prompt is sized for (default 2000)"),
    "parallel": ("N", "requests that are worked on at once (default 4)"),
    "queue": ("N", "requests that may wait (default 32)"),
    "client_limit": ("auto|N", "requests that one client may have (default auto; 0: no limit)"),
    "encode_batch": ("N", "texts that are tokenized in one call under load (default 1: off)"),
    "encode_wait_ms": ("T", "how long such a call waits for more texts (default 2)"),
    "also_serve": ("NAME|PATH", "another model, loaded when asked for (may be given again)"),
    "memory_mb": ("MB", "what loaded models may take together (default 0: no limit)"),
    "idle_minutes": ("M", "unload a model that nobody asked for so long (default 0: never)"),
    "drain_s": ("S", "how long what runs may go on when the server is stopped (default 5)"),
    "engine": ("llama|remote", "what runs the model: this process, or other servers"),
    "engine_url": ("URL", "an inference server that runs it (may be given again)"),
    "engine_kind": ("auto|KIND", "vllm, vllm-strict, llama-server, sglang, openai, openai-chat"),
    "engine_model": ("NAME", "what those servers call the model (default: their first)"),
    "engine_key_file": ("FILE", "the API key that they want"),
    "engine_parallel": ("N", "requests that each of them works on at once (default 32)"),
    "stall_s": ("S", "unready after so many seconds of work without a step (default 60)"),
}

_LISTS = frozenset({"allow_host", "also_serve", "engine_url"})


def add_settings(parser: argparse.ArgumentParser, *keys: str) -> None:
    """`--config`, and a flag for each setting of `keys`."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file, TOML")
    for key in keys:
        metavar, text = _HELP[key]
        action = "append" if key in _LISTS else "store"
        flag = "--" + key.replace("_", "-")
        parser.add_argument(flag, dest=key, action=action, metavar=metavar, help=text)


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings in force under these flags."""
    flags = {key: getattr(args, key) for key in _HELP if getattr(args, key, None) is not None}
    return load_settings(flags, args.config)
