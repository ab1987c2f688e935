"""What a completion is asked with and answered with, in no dialect's words.

A route translates its body into a `CompletionRequest`; `complete()` turns that into
`CompletionChunk`s, of which the last carries the `CompletionResult`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Healing = Literal["exact", "recursive", "off"]
Layout = Literal["auto", "psm", "spm", "anchor"]
FimBoundary = Literal["auto", "keep", "move"]
GrammarScope = Literal["output", "prefill"]
Shape = Literal["auto", "line", "block", "raw"]
OnIncomplete = Literal["replace", "drop"]
FinishReason = Literal["stop", "eos", "length", "suffix", "deadline", "superseded", "cancelled"]
HealingLevel = Literal["exact", "exact_seq", "recursive", "canonical", "hygiene", "none"]
# Why there is no text, or less than asked for: docs/reasons.md has what each means.
Reason = Literal[
    "LOADING",
    "BUSY",
    "BUDGET",
    "DEADLINE",
    "SUPERSEDED",
    "CANCELLED",
    "LOW_CONFIDENCE",
    "DUPLICATE_SUFFIX",
    "EMPTY",
    "MIDWORD",
    "NO_FIM",
    "EXCLUDED",
    "DISABLED",
    "UNREACHABLE",
    "AUTH",
    "ERROR",
]


@dataclass(frozen=True, slots=True)
class ExtraText:
    """Text from another file that may help; `path` is shown to the model."""

    text: str
    path: str | None = None


MAX_CANDIDATES = 16
# Of a text that is explained, where nobody says how long it is to be.
EXPLAINED_TOKENS = 8
# llama.cpp's names and order.
SAMPLERS = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a token is drawn. The defaults are greedy; a route fills in its dialect's own.

    `temperature` 0 is greedy. `top_k` 0, `top_p` 1, `min_p` 0, `typical_p` 1, `top_n_sigma` 0,
    `xtc_probability` 0, `dynatemp_range` 0, `dry_multiplier` 0 and `repeat_penalty` 1 are off.
    Each sampler keeps at least `min_keep` tokens. `repeat_last_n` and `dry_penalty_last_n` below
    0 are the whole text. `samplers` are the ones that apply, in their order. `seed` None draws a
    fresh one. `logit_bias` adds to logits; ``-inf`` bans a token.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    min_keep: int = 0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    samplers: tuple[str, ...] = SAMPLERS
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One completion at one cursor.

    `infill` says that there is a hole between `prefix` and `suffix`; without it the text goes
    on left to right after `prefix`, and `suffix` is empty. `give_back` None is the stable cut,
    else that many tokens. `fim_boundary` says of a prompt in psm order whether the prefix's tail
    is kept, or moved behind the sentinels and healed there; it asks for that order where `layout`
    is "auto". `max_tokens` 0 evaluates the prompt and generates nothing.
    `prompt_deadline_ms` bounds the time to the first token, `deadline_ms` the generation from
    there on; None is no bound. `n` are the candidates wanted, which differ where tokens are drawn;
    `sampling_of_others` is what those after the first are drawn with, None the same.
    `grammar` is what the text must be, in GBNF; `grammar_field` the field of the body it is from.
    `grammar_scope` says whether that is the output alone, or what was prefilled before it too.
    `n_probs` None asks for no log probabilities, a number for those of the tokens and of so many
    of the likeliest in each one's place. What is less sure than `min_confidence`, a line's
    geometric mean probability, is left out; 0 is off.
    `tenant` is whose key it came with, `user` who of them asks, as far as is known: they take turns
    (`fair_queue.py`). Prompts of another `cache_salt` share nothing in a cache with this one's.
    """

    prefix: str
    suffix: str = ""
    infill: bool = False
    extra: tuple[ExtraText, ...] = ()
    path: str | None = None
    language: str | None = None
    healing: Healing = "exact"
    give_back: int | None = None
    layout: Layout = "auto"
    fim_boundary: FimBoundary = "auto"
    shape: Shape = "auto"
    sampling: SamplingParams = field(default_factory=SamplingParams)
    sampling_of_others: SamplingParams | None = None
    grammar: str | None = None
    grammar_field: str = "grammar"
    grammar_scope: GrammarScope = "output"
    max_tokens: int = 128
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    detokenize: bool = True
    return_tokens: bool = False
    on_incomplete: OnIncomplete = "replace"
    stream_interval: int = 1
    prompt_deadline_ms: int | None = None
    deadline_ms: int | None = None
    session: str | None = None
    seq: int | None = None
    n: int = 1
    n_probs: int | None = None
    min_confidence: float = 0.0
    tenant: str | None = None
    user: str | None = None
    cache_salt: str | None = None


@dataclass(frozen=True, slots=True)
class HealingReport:
    """What happened at the boundary; `pending` is the given-back bytes.

    `logprob` is that of the tokens which say them again, in nats, after biases and penalties if
    healing is exact and before them if it is recursive. `log_evidence` is, of exact
    healing, that of the bytes, before biases and penalties; None where no log probabilities were
    needed.
    """

    level: HealingLevel = "none"
    dropped_tokens: int = 0
    pending: bytes = b""
    nodes: int = 0
    tv_bound: float = 0.0
    logprob: float = 0.0
    log_evidence: float | None = None


@dataclass(frozen=True, slots=True)
class PromptReport:
    """Tokens of the prompt: all, taken from the KV cache, and evaluated for this request.

    `excluded` chunks of other files were left out because they hold secrets.
    """

    tokens: int = 0
    reused: int = 0
    evaluated: int = 0
    layout: str = "plain"
    truncated: bool = False
    excluded: int = 0


@dataclass(frozen=True, slots=True)
class DraftReport:
    """How many tokens were drafted, and how many of them came true: each saved an evaluation."""

    proposed: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class StreamReport:
    """Steps after which bytes were held back, and the most bytes held at once."""

    held_steps: int = 0
    held_max_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds spent evaluating the prompt and generating."""

    prompt_ms: float = 0.0
    predicted_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Edit:
    """`text` in the place of the first `delete_after` code points behind the cursor."""

    delete_after: int
    text: str


@dataclass(frozen=True, slots=True)
class CompletionResult:
    """How a completion ended. `stop_match` is the stop string that ended it, if one did.

    `edit` is the answer where the text alone is only its beginning: the text ends before closers
    behind the cursor that the answer writes too. None where the text is all.
    `seed` is the one that tokens were drawn with. `reason` is a code of docs/reasons.md where
    there is no text, or less than asked for. `rules` are the names of docs/shaping.md of what was
    done to the text. `confidence` is the geometric mean probability of the text's tokens, or of
    the line for which all was left out; None where it was not needed, or there is no text.
    """

    finish: FinishReason
    reason: Reason | None = None
    stop_match: str | None = None
    completion_tokens: int = 0
    seed: int | None = None
    healing: HealingReport = field(default_factory=HealingReport)
    prompt: PromptReport = field(default_factory=PromptReport)
    draft: DraftReport = field(default_factory=DraftReport)
    stream: StreamReport = field(default_factory=StreamReport)
    timings: Timings = field(default_factory=Timings)
    edit: Edit | None = None
    rules: tuple[str, ...] = ()
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token in the place of another: what it says there, and its log probability in nats."""

    token_id: int
    piece: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token of a text and how likely the model thinks it, before biases, penalties and samplers.

    `piece` is what it says past the cursor, and may be a part of a character. `offset` is the first
    character of the text that it is part of. `top` are the likeliest in its place, best first, with
    this one where it is among them.
    """

    token_id: int
    piece: bytes
    logprob: float
    offset: int = 0
    top: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class CompletionChunk:
    """Text released by some steps; only the last chunk of a candidate has a `result`.

    `token_ids` are the accepted tokens since the chunk before, the healed ones included. `index`
    says which of a request's candidates it is of. `scores` are, where they are asked for, those of
    the tokens whose text begins with this chunk.
    """

    text: str
    token_ids: tuple[int, ...] = ()
    result: CompletionResult | None = None
    index: int = 0
    scores: tuple[ScoredToken, ...] = ()
