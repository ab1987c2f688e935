"""How clients write the name of a model."""

from __future__ import annotations


def plain_name(name: str) -> str:
    """What is left of a name without what Ollama adds: `library/a:1b` and `a-1b:latest` are one."""
    plain = name.lower().removeprefix("registry.ollama.ai/").removeprefix("library/")
    return plain.removesuffix(":latest").replace(":", "-")
