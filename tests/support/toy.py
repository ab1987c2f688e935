"""A small byte-complete vocabulary with sentinels, and generations over it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from suture.healing import CanonicalPairs, Decoding, Encode, TokenKind, TokenTransducer, Vocabulary
from suture.server.codec import Choice, Codec, DetokenizerName, Encoder
from suture.server.decoding.covering import Coverings
from suture.server.decoding.drafts import DraftIndex
from suture.server.decoding.generation import Generation
from suture.server.decoding.output import special_tokens, stop_strings
from suture.server.decoding.text_stream import byte_stream, window_stream
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


def toy_encode_markup(piece: bytes) -> Sequence[int]:
    """The same, with specials by their text."""
    ids: list[int] = []
    for part in re.split(b"(" + b"|".join(re.escape(s.encode()) for s in SPECIALS) + b")", piece):
        text = part.decode("utf-8", "replace")
        ids += [special(text)] if text in SPECIALS else toy_encode(part)
    return ids


def special(text: str) -> int:
    return len(PIECES) + SPECIALS.index(text)


def toy_budget(n_ctx: int = 4096) -> PromptBudget:
    return PromptBudget(n_ctx, prefill_tokens_per_s=1e6)


def toy_codec(encode: Encode) -> Codec:
    why = "it is a toy"
    markup = Encoder(toy_encode_markup)
    return Codec(Encoder(encode), markup, Choice("llama", why), Choice("bytes", why))


def toy_generation(
    request: CompletionRequest,
    engine: Engine,
    detokenizer: DetokenizerName = "bytes",
    expected: Sequence[int] = (),
) -> Generation:
    vocabulary = engine.vocabulary
    family = detect_family(vocabulary, "toy")
    plan = plan_prompt(request, vocabulary, family, engine.encode, toy_budget(engine.n_ctx))
    stops, special = stop_strings(request, plan), special_tokens(request)
    transducer = TokenTransducer(vocabulary, stops, special)
    stream = byte_stream(request, plan, transducer)
    if detokenizer == "window":
        decoding = Decoding(
            lambda ids: b"".join(map(transducer.piece_of, ids)).decode("utf-8", "replace"),
            vocabulary.n_vocab,
            frozenset(i for i in vocabulary.silent_ids if not transducer.piece_of(i)),
        )
        stream = window_stream(request, plan, vocabulary, decoding, stops)
    if request.grammar is not None:
        engine.check_grammar(request.grammar)
    known = DraftIndex(plan.kept_ids, expected)
    pairs = CanonicalPairs(vocabulary, engine.encode)
    coverings = Coverings(vocabulary, pairs, can_branch=engine.can_branch)
    return Generation(request, plan, vocabulary, stream, engine, known, coverings)
