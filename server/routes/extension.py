"""Suture's own fields in every completion route, and the `suture` object of every answer."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from suture.server.errors import InvalidRequest
from suture.server.request import (
    CompletionResult,
    Edit,
    FimBoundary,
    GrammarScope,
    Healing,
    Layout,
    OnIncomplete,
    Shape,
)
from suture.server.routes.completer import ModelInfo
from suture.server.routes.fields import (
    Count,
    ModelFields,
    Share,
    Text,
    check_token_id,
    integral,
)
from suture.server.routes.raw_prompts import Hole
from suture.server.routes.shapes.suture import SutureObject
from suture.server.settings import Settings


def _give_back(value: Any) -> Any:
    value = integral(value)
    if value == "stable" or (type(value) is int and 1 <= value <= 8):
        return value
    raise ValueError('must be "stable" or a number of tokens from 1 to 8')


class ExtensionFields(ModelFields):
    """What a client may ask of Suture beyond its dialect; absent is the server's default.

    `fim_boundary` says nothing of a prompt in another order than psm, nor `grammar_scope` of a
    text without a grammar, nor `min_confidence` of one that is not shaped: clients may send them
    with every request.
    """

    GROUP = "what Suture adds"

    healing: Healing | None = Field(
        default=None,
        description="How the end of the prompt is healed; absent, as the server was started.",
    )
    give_back: (
        Annotated[
            Literal["stable"] | int,
            BeforeValidator(_give_back),
            WithJsonSchema(
                {"anyOf": [{"const": "stable"}, {"type": "integer", "minimum": 1, "maximum": 8}]}
            ),
        ]
        | None
    ) = Field(
        default=None,
        description='Tokens given back at the cursor: as many as the boundary needs ("stable"), or '
        "that many.",
    )
    layout: Layout | None = Field(
        default=None,
        description='The order of the parts of a hole; with "anchor" a key adds its own tokens to '
        "the prompt, and no others are evaluated.",
    )
    fim_boundary: FimBoundary = Field(
        default="auto",
        description="In psm order: whether the end of the text before the cursor is kept as it is, "
        "or moved behind the sentinels and healed there.",
    )
    grammar_scope: GrammarScope = Field(
        default="output",
        description="What a grammar sees: the text alone, or what was prefilled before it too.",
    )
    shape: Shape | None = Field(
        default=None,
        description='What is left out of the text: "line" ends it at its first line end, "raw" '
        'leaves it as it is, "auto" is "block" in a hole.',
    )
    min_confidence: Share | None = Field(
        default=None, description="Lines that the model is less sure of are left out; 0 is off."
    )
    stream_interval: Annotated[int, BeforeValidator(integral), Field(ge=1, le=1024)] | None = Field(
        default=None, description="Tokens between two events of a stream."
    )
    session: Annotated[Text, Field(max_length=256)] | None = Field(
        default=None, description="A request ends those of its session with a lower seq."
    )
    seq: Annotated[int, BeforeValidator(integral), Field(ge=0, le=2**63 - 1)] | None = Field(
        default=None, description="The request's number in its session, higher each time."
    )
    user: Text | None = Field(
        default=None,
        description="Who asks, where several use one key: requests of different users take turns.",
    )
    path: Text | None = Field(default=None, description="Of the file being completed.")
    language: Text | None = Field(
        default=None, description="The editor's name of the language at the cursor."
    )
    min_tokens: Count = Field(default=0, description="No stop string or end before so many tokens.")
    include_stop_str_in_output: bool = Field(default=False, description="Keeps the stop string.")
    stop_token_ids: Annotated[list[Count], Field(max_length=1024, fail_fast=True)] = Field(
        default_factory=list, description="Further tokens that end the text."
    )
    ignore_eos: bool = Field(default=False, description="The model may not end the text.")
    skip_special_tokens: bool = Field(
        default=True, description="false lets special tokens be drawn, and shows them."
    )
    detokenize: bool = Field(
        default=True, description="false: token ids alone, and no stop strings."
    )
    return_tokens: bool = Field(default=False, description="Token ids beside the text.")
    on_incomplete: OnIncomplete | None = Field(
        default=None,
        description="What becomes of half a character at the end: by default it is dropped in a "
        "hole, and replaced elsewhere.",
    )

    @property
    def wants_token_ids(self) -> bool:
        """Whether the answer has the ids: without detokenizing they are all there is."""
        return self.return_tokens or not self.detokenize

    def extension(self, settings: Settings, model: ModelInfo, max_tokens: int) -> dict[str, Any]:
        """These fields as arguments of a `CompletionRequest`, but for what a route decides.

        That is `shape`, and `on_incomplete`: half a character is damage in a source file, and a
        replacement character a fair sign of it elsewhere.
        """
        if self.min_tokens > max_tokens:
            message = f'"min_tokens" must be at most {max_tokens}, the tokens asked for'
            raise InvalidRequest(message, "min_tokens")
        for token_id in self.stop_token_ids:
            check_token_id(token_id, model.n_vocab, "stop_token_ids")
        give_back = self.give_back or settings.give_back
        confidence = self.min_confidence
        # Only psm has a boundary, so who asks for one has a say in the layout (`choose_layout`).
        layout = self.layout or (settings.layout if self.fim_boundary == "auto" else "auto")
        return {
            "healing": self.healing or settings.healing,
            "give_back": None if give_back == "stable" else give_back,
            "layout": layout,
            "fim_boundary": self.fim_boundary,
            "grammar_scope": self.grammar_scope,
            "min_confidence": settings.min_confidence if confidence is None else confidence,
            "stream_interval": self.stream_interval or settings.stream_interval,
            "session": self.session,
            "seq": self.seq,
            "user": self.user,
            "path": self.path,
            "language": self.language,
            "min_tokens": self.min_tokens,
            "include_stop": self.include_stop_str_in_output,
            "stop_token_ids": tuple(self.stop_token_ids),
            "ignore_eos": self.ignore_eos,
            "skip_special_tokens": self.skip_special_tokens,
            "detokenize": self.detokenize,
            "return_tokens": self.return_tokens,
        }

    def texts(self, prompt: str, hole: Hole | None) -> dict[str, Any]:
        """The texts of a request, and what depends on whether there is a hole, as its arguments.

        They go over those of `extension`: without a hole it is `prompt` that goes on, as it is.
        """
        if hole is None:
            return {
                "prefix": prompt,
                "shape": self.shape or "raw",
                "on_incomplete": self.on_incomplete or "replace",
            }
        return {
            "prefix": hole.prefix,
            "suffix": hole.suffix,
            "infill": True,
            "extra": hole.extra,
            "path": self.path or hole.path,
            "shape": self.shape or "auto",
            "on_incomplete": self.on_incomplete or "drop",
        }

    def check_prompts(self, n_prompts: int) -> None:
        """Raise `InvalidRequest` where several prompts cannot be answered."""
        # The second one would supersede the first.
        if n_prompts > 1 and self.session is not None:
            raise InvalidRequest('"session" cannot be had with several prompts', "session")


def suture_object(result: CompletionResult, text: str, token_ids: list[int] | None) -> SutureObject:
    """The `suture` object of an answer whose whole text is `text`."""
    healing, prompt, edit = result.healing, result.prompt, result.edit or Edit(0, text)
    answer: SutureObject = {
        "finish": result.finish,
        "reason": result.reason,
        "healing": {
            "level": healing.level,
            "dropped_tokens": healing.dropped_tokens,
            "pending": healing.pending.decode("utf-8", "replace"),
            "pending_bytes": list(healing.pending),
            "nodes": healing.nodes,
            "tv_bound": finite(healing.tv_bound),
            "logprob": finite(healing.logprob),
        },
        "prompt": {
            "tokens": prompt.tokens,
            "reused": prompt.reused,
            "evaluated": prompt.evaluated,
            "layout": prompt.layout,
            "truncated": prompt.truncated,
            "excluded": prompt.excluded,
        },
        "draft": {"proposed": result.draft.proposed, "accepted": result.draft.accepted},
        "stream": {
            "held_steps": result.stream.held_steps,
            "held_max_bytes": result.stream.held_max_bytes,
        },
        "edit": {"delete_after": edit.delete_after, "text": edit.text},
        "rules": list(result.rules),
        "confidence": result.confidence,
    }
    if token_ids is not None:
        answer["tokens"] = {"ids": token_ids}
    return answer


def finite(value: float) -> float | None:
    """A number as JSON has it."""
    # JSON has no infinity, and a logprob may be one
    return value if math.isfinite(value) else None
