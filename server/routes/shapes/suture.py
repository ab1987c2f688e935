"""What is Suture's own in an answer: the `suture` object, reasons, `/v1/status`, `/v1/explain`."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from suture.server.request import FinishReason, HealingLevel, Reason


class ReportedHealing(TypedDict):
    """How the end of the prompt was healed."""

    level: HealingLevel
    dropped_tokens: Annotated[int, Field(description="Tokens given back.")]
    pending: Annotated[str, Field(description="What they say.")]
    pending_bytes: list[int]
    nodes: Annotated[int, Field(description="Tokens evaluated for it besides the prompt.")]
    tv_bound: Annotated[
        float | None,
        Field(description="How far the drawn distribution may be from the exact one."),
    ]
    logprob: Annotated[
        float | None, Field(description="Of the tokens drawn for what was given back, in nats.")
    ]


class ReportedPrompt(TypedDict):
    """The prompt, in tokens."""

    tokens: int
    reused: Annotated[int, Field(description="Taken from the cache.")]
    evaluated: int
    layout: str
    truncated: Annotated[bool, Field(description="Whether text was left out.")]
    excluded: Annotated[int, Field(description="Chunks left out because they hold secrets.")]


class ReportedDraft(TypedDict):
    """Tokens that were drafted, and those of them that came true."""

    proposed: int
    accepted: int


class ReportedStream(TypedDict):
    """What was held back of a stream."""

    held_steps: int
    held_max_bytes: int


class ReportedEdit(TypedDict):
    """The answer as an edit: `text` in the place of what is behind the cursor."""

    delete_after: Annotated[int, Field(description="So many code points are replaced.")]
    text: str


class TokenIds(TypedDict):
    """The tokens of an answer."""

    ids: list[int]


class SutureObject(TypedDict):
    """What became of a request."""

    finish: FinishReason
    reason: Annotated[
        Reason | None, Field(description="Why there is no text, or less than asked for.")
    ]
    healing: ReportedHealing
    prompt: ReportedPrompt
    draft: ReportedDraft
    stream: ReportedStream
    edit: ReportedEdit
    rules: Annotated[list[str], Field(description="What was done to the text.")]
    confidence: Annotated[
        float | None,
        Field(description="The geometric mean probability of the text's tokens, where needed."),
    ]
    tokens: NotRequired[TokenIds]


class ErrorReason(TypedDict):
    """Beside an error that has a code of its own."""

    reason: Reason


class ServedModel(TypedDict):
    """The model, and what was found out about it."""

    name: str
    path: str
    n_ctx: int
    fim: bool
    family: str | None
    memory: str | None
    tokenizer: dict[str, Any] | None
    detokenizer: dict[str, Any] | None


class PooledModel(TypedDict):
    """A model that may be served."""

    name: str
    state: str
    bytes: int


class Backend(TypedDict):
    """A server that runs the model; `level` is how it heals, null until that was tried."""

    name: str
    state: str
    why: str
    kind: str | None
    version: str
    level: HealingLevel | None
    running: int
    requests: int
    failures: dict[str, int]
    first_event_s: float | None


class StatusAnswer(TypedDict):
    """The answer of `/v1/status`; counters stand beside these."""

    suture: Annotated[str, Field(description="The version.")]
    state: str
    model: ServedModel
    models: list[PooledModel]
    backends: Annotated[list[Backend], Field(description="Other servers that run the model.")]
    recent: Annotated[dict[str, Any], Field(description="The requests of late.")]
    shown: Annotated[dict[str, int], Field(description="What users did with texts.")]
    pid: int
    memory_bytes: int | None
    uptime_s: float
    settings: Annotated[dict[str, Any], Field(description="The defaults of requests.")]


class ExplainedToken(TypedDict):
    """A token, what it is called and what it says."""

    id: int
    name: str
    bytes: list[int]


class ExplainedCursor(TypedDict):
    """What stands around the cursor."""

    before: str
    before_bytes: list[int]
    after: str
    after_bytes: list[int]


class ExplainedBoundary(TypedDict):
    """The end of the text in tokens: as typed, and as the prompt keeps it."""

    typed: list[ExplainedToken]
    kept: list[ExplainedToken]
    pending: str
    pending_bytes: list[int]
    dropped_tokens: int


class Evidence(TypedDict):
    """How likely the model thinks it that the text goes on with what is pending."""

    probability: float
    logprob: float
    bits_per_byte: float


class ExplainedNode(TypedDict):
    """A node of the tree of covers; `parent` -1 is the cut."""

    token: ExplainedToken
    parent: int
    end: int
    probability: float


class NextToken(TypedDict):
    """A token that may follow."""

    token: ExplainedToken
    probability: float


class ExplainedCover(TypedDict):
    """One way to say what is pending."""

    tokens: list[ExplainedToken]
    exact_end: bool
    overhang: str
    overhang_bytes: list[int]
    probability: float
    next: list[NextToken]


class ExplainedCovers(TypedDict):
    """All ways to say what is pending."""

    evidence: Evidence
    tv_bound: float
    canonical_only: bool
    nodes: list[ExplainedNode]
    best: list[ExplainedCover]
    others: float


class ExplainedMethod(TypedDict):
    """What one method of healing makes of the request."""

    name: str
    asked: bool
    level: HealingLevel
    pending: str
    pending_bytes: list[int]
    text: str
    finish: FinishReason
    reason: Reason | None


class ExplainedDiagnosis(TypedDict):
    """What is weak at the cursor, and what helps."""

    code: str
    healed: bool
    found: str
    cure: str


class ExplainedSegment(TypedDict):
    """A part of the prompt."""

    role: str
    tokens: int
    reused: int


class ExplainedPrompt(TypedDict):
    """The prompt of the method asked for."""

    layout: str
    boundary: str | None
    truncated: bool
    excluded: int
    tokens: int
    reused: int
    evaluated: int
    segments: list[ExplainedSegment]


class ExplainAnswer(TypedDict):
    """The answer of `/v1/explain`."""

    model: str
    asked: Annotated[str, Field(description="The method that the request asks for.")]
    finish: FinishReason
    reason: Reason | None
    cursor: ExplainedCursor
    boundary: ExplainedBoundary
    covers: ExplainedCovers | None
    methods: list[ExplainedMethod]
    diagnoses: list[ExplainedDiagnosis]
    prompt: ExplainedPrompt
