"""A small byte-complete vocabulary with sentinels, and generations over it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from suture.healing import Encode, TokenKind, TokenTransducer, Vocabulary
from suture.server.codec import Choice, Codec
from suture.server.decoding.generation import Generation, special_tokens, stop_strings
from suture.server.decoding.text_stream import byte_stream
from suture.server.engine.protocol import Engine
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.families import detect_family
from suture.server.prompt.plan import plan_prompt
from suture.server.request import CompletionRequest

WORDS = [
    b"const", b" user", b" userName", b"Na", b"me", b"return", b"ret", b"  ", b"    ", b"def",
    b" x", b" =", b"()", b"(", b"import", b" numpy", b" nump", b"\n    ", b"\n\n", b" ret",
]  # fmt: skip
SPECIALS = [
    "<|endoftext|>", "<|im_end|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
    "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|im_start|>",
]  # fmt: skip
PADDING = 3

PIECES = [bytes([i]) for i in range(256)] + WORDS
_PATTERN = re.compile(b"|".join(re.escape(p) for p in sorted(PIECES, key=len, reverse=True)), re.S)
_ID_OF = {piece: i for i, piece in enumerate(PIECES)}


def toy_vocabulary() -> Vocabulary:
    n = len(PIECES)
    return Vocabulary(
        [*PIECES, *(text.encode() for text in SPECIALS)],
        kinds=[TokenKind.NORMAL] * n + [TokenKind.CONTROL] * len(SPECIALS),
        n_vocab=n + len(SPECIALS) + PADDING,
        bos_id=n,
        eos_id=n,
        eog_ids=frozenset({n, n + 1, n + 5, n + 6, n + 7}),
    )


def toy_encode(piece: bytes) -> Sequence[int]:
    """The longest piece first: every text has one tokenization, as with real tokenizers."""
    return [_ID_OF[match[0]] for match in _PATTERN.finditer(piece)]


def special(text: str) -> int:
    return len(PIECES) + SPECIALS.index(text)


def toy_budget(n_ctx: int = 4096) -> PromptBudget:
    return PromptBudget(n_ctx, prefill_tokens_per_s=1e6)


def toy_codec(encode: Encode) -> Codec:
    return Codec(encode, Choice("llama", "it is a toy"), Choice("bytes", "it is a toy"))


def toy_generation(request: CompletionRequest, engine: Engine) -> Generation:
    vocabulary = engine.vocabulary
    family = detect_family(vocabulary, "toy")
    plan = plan_prompt(request, vocabulary, family, engine.encode, toy_budget(engine.n_ctx))
    transducer = TokenTransducer(vocabulary, stop_strings(request, plan), special_tokens(request))
    return Generation(request, plan, vocabulary, byte_stream(request, plan, transducer))
