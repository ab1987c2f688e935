"""What backends are asked for in tests: one text over the toy vocabulary."""

from __future__ import annotations

from typing import Any

from support.toy import special, toy_encode
from suture.server.engine.remote.protocol import Affinity, Asked
from suture.server.request import SamplingParams

BANNED = tuple(map(special, ["<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"]))
ENDS = frozenset(map(special, ["<|endoftext|>", "<|fim_pad|>"]))


def asked(prompt: str = "const user", pending: bytes = b"Na", **fields: Any) -> Asked:
    """A greedy request, healed by the recursive rule unless `fields` say otherwise."""
    given: dict[str, Any] = {
        "prompt_ids": tuple(toy_encode(prompt.encode())),
        "pending": pending,
        "level": "recursive" if pending else "none",
        "max_tokens": 20,
        "sampling": SamplingParams(),
        "end_ids": ENDS,
        "banned_ids": BANNED,
        "affinity": Affinity("0123456789abcdef"),
    }
    return Asked(**{**given, **fields})
