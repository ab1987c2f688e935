"""From the tokens of a generation to its text: who draws them is no matter here.

    reason = output.take(token_id, is_new)    the text ends with this token, and why
    chunk = output.chunk_if_due()             the text that was released, if any
    chunk = output.end(reason, how)           the last one, with everything that was held back

Tokens become text (`text_stream.py`), text is shaped for its place, and what ends it is looked for
on the way: tokens that do, stop strings, the shape, and the most tokens that were asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from suture.healing import Vocabulary
from suture.server.decoding.score_log import ScoreLog
from suture.server.decoding.text_stream import TextStream
from suture.server.prompt.plan import PromptPlan
from suture.server.request import (
    CompletionChunk,
    CompletionRequest,
    CompletionResult,
    DraftReport,
    FinishReason,
    HealingReport,
    PromptReport,
    Reason,
    ScoredToken,
    StreamReport,
)
from suture.server.shaping.guessing import named_or_guessed
from suture.server.shaping.line_ends import lf_only
from suture.server.shaping.shaper import Shaper
from suture.server.shaping.surroundings import Surroundings

_REASONS: dict[FinishReason, Reason] = {
    "deadline": "DEADLINE",
    "superseded": "SUPERSEDED",
    "cancelled": "CANCELLED",
}
# At the end of what was asked for, of the text itself or of the room: not before its time.
_OWN_ENDS: tuple[FinishReason, ...] = ("stop", "length", "eos")


@dataclass(frozen=True, slots=True)
class Made:
    """How a text was made, for its report. `n_reused` tokens of the prompt were in a cache."""

    healing: HealingReport
    n_reused: int = 0
    n_evaluated: int = 0
    draft: DraftReport = field(default_factory=DraftReport)
    seed: int | None = None


class Output:
    """The text of one generation over its prompt plan.

    `text_stream` must be a new one for this plan, its `stop_strings` and `special_tokens`.
    `stop_ids` are the tokens that end the text, but not before `min_tokens` (`is_early`).
    """

    def __init__(
        self,
        request: CompletionRequest,
        plan: PromptPlan,
        vocabulary: Vocabulary,
        text_stream: TextStream,
    ) -> None:
        self._request = request
        self._plan = plan
        self._stop_texts = _stop_texts(request, plan, vocabulary)
        self.stop_ids = _stop_ids(request, plan, vocabulary).union(self._stop_texts)
        self.n_generated = 0
        self._detokenizer = text_stream
        # Nothing is scored where nobody asks: it is about a millisecond a token.
        self._scores = ScoreLog() if _wants_scores(request) else None
        self._stop_match: str | None = None
        self._shaper = _shaper(request, plan)
        self._has_tokens = False
        self._has_sent = False
        self._unsent_text: list[str] = []
        self._unsent_ids: list[int] = []

    @property
    def is_early(self) -> bool:
        """Whether nothing may end the text yet."""
        return self.n_generated < self._request.min_tokens

    @property
    def wants_scores(self) -> bool:
        """Whether its tokens are to come with their scores."""
        return self._scores is not None

    def take(
        self, token_id: int, is_new: bool, score: ScoredToken | None = None
    ) -> FinishReason | None:
        """Go on with a token; why the text ends with it, if it does.

        `is_new`: it says more than what was given back.
        """
        if self.ends_at(token_id, is_new):
            return self._stop_at(token_id, score)
        self.n_generated += is_new
        self.say(token_id, score)
        if self._shaper.is_over or self._detokenizer.stopped:
            return "stop"
        return "length" if self.n_generated >= self._plan.max_tokens else None

    def ends_at(self, token_id: int, is_new: bool) -> bool:
        """Whether a token is one that ends the text, here."""
        return is_new and token_id in self.stop_ids and not self.is_early

    def say(self, token_id: int, score: ScoredToken | None = None) -> None:
        """Go on with a token that is no end, and what it says past the cursor is output."""
        self._has_tokens = True
        self._unsent_ids.append(token_id)
        if score is not None:
            self._note(score)
        if self._request.detokenize:
            self._release(self._detokenizer.feed(token_id))

    def end(self, reason: FinishReason, made: Made) -> CompletionChunk:
        """The last chunk, with everything held back that is still text."""
        if self._request.detokenize:
            self._release(self._detokenizer.flush())
            if self._ends_line and _is_line_of_its_own(self._plan):
                self._release("\n")
            self._insert(self._shaper.flush())
        if reason in _OWN_ENDS:
            reason = self._own_end(reason)
        return self._take_chunk(self._result(reason, made))

    def chunk_if_due(self) -> CompletionChunk | None:
        """What was released, if it is to be sent now."""
        if not (self._unsent_text if self._request.detokenize else self._unsent_ids):
            return None
        due = len(self._unsent_ids) >= self._request.stream_interval
        return self._take_chunk() if due or not self._has_sent else None

    def _own_end(self, reason: FinishReason) -> FinishReason:
        if self._shaper.has_rejoined:
            return "suffix"
        if self._shaper.is_over:
            return "stop"
        if self._detokenizer.stopped:
            # The window path may find a stop string only when no more tokens come.
            return "eos" if self._has_ended_itself else "stop"
        return reason

    def _note(self, score: ScoredToken) -> None:
        """Remember the score of a token that is about to be made text of."""
        assert self._scores is not None
        if not self._request.detokenize:
            self._scores.add_without_text(score)
            return
        start = self._scores.n_said + self._detokenizer.held_chars
        self._scores.add(score, start)
        self._shaper.note(start, score.logprob)

    def _stop_at(self, token_id: int, score: ScoredToken | None) -> FinishReason:
        self.n_generated += 1
        self._unsent_ids.append(token_id)
        if token_id in self._stop_texts:
            return self._stop_at_text(self._stop_texts[token_id])
        if token_id not in self._request.stop_token_ids:
            return "eos"
        if self._request.include_stop and self._request.detokenize:
            if score is not None:
                self._note(score)
            self._release(self._detokenizer.feed(token_id))
        return "stop"

    def _stop_at_text(self, text: str) -> FinishReason:
        """End at a special token whose text is a stop string; as bytes it would never show."""
        self._stop_match = text
        self._release(self._detokenizer.flush())
        if self._request.include_stop:
            self._release(text)
        return "stop"

    def _release(self, text: str) -> None:
        if self._scores is not None:
            self._scores.say(text)
        self._insert(self._shaper.feed(text))

    def _insert(self, insertion: str) -> None:
        if insertion:
            self._unsent_text.append(insertion)
            if self._scores is not None:
                self._scores.leave(insertion)

    def _take_chunk(self, result: CompletionResult | None = None) -> CompletionChunk:
        text = "".join(self._unsent_text)
        self._has_sent = self._has_sent or bool(self._unsent_ids)
        are_wanted = self._scores is not None and self._request.n_probs is not None
        scores = self._scores.take() if self._scores is not None and are_wanted else ()
        chunk = CompletionChunk(text, tuple(self._unsent_ids), result, scores=scores)
        self._unsent_text.clear()
        self._unsent_ids.clear()
        return chunk

    def _result(self, finish: FinishReason, made: Made) -> CompletionResult:
        return CompletionResult(
            finish=finish,
            reason=self._reason(finish),
            stop_match=None if self._shaper.is_over else self._stopped_at,
            completion_tokens=self.n_generated,
            seed=made.seed,
            healing=made.healing,
            prompt=PromptReport(
                tokens=len(self._plan.kept_ids),
                reused=made.n_reused,
                evaluated=made.n_evaluated,
                layout=self._plan.layout,
                truncated=self._plan.truncated,
                excluded=self._plan.n_excluded,
            ),
            draft=made.draft,
            stream=StreamReport(self._detokenizer.held_steps, self._detokenizer.held_max_bytes),
            edit=self._shaper.edit,
            rules=self._rules,
            confidence=self._confidence,
        )

    @property
    def _confidence(self) -> float | None:
        if self._shaper.unsure_of_all is not None:
            return self._shaper.unsure_of_all
        return None if self._scores is None else self._scores.confidence

    @property
    def _rules(self) -> tuple[str, ...]:
        """The rules that changed the text, that of the shape "line" included."""
        return (*(("line",) if self._ends_line else ()), *self._shaper.rules)

    @property
    def _ends_line(self) -> bool:
        """Whether it is the shape "line" that ends the text."""
        if self._request.shape != "line" or self._detokenizer.stop_match != "\n":
            return False
        return self._asked_for("\n") is None

    @property
    def _stopped_at(self) -> str | None:
        return self._stop_match or self._asked_for(self._detokenizer.stop_match)

    def _asked_for(self, stop_match: str | None) -> str | None:
        """The request's own spelling of a stop string; one that shape added is nobody's."""
        if stop_match is None:
            return None
        asked = zip(stop_strings(self._request, self._plan), self._request.stop, strict=False)
        return next((stop for watched, stop in asked if watched == stop_match), None)

    @property
    def _has_ended_itself(self) -> bool:
        """Whether the text stopped where this family goes on to another file: nobody asked."""
        match = self._detokenizer.stop_match
        return match in self._plan.stop_strings and self._asked_for(match) is None

    def _reason(self, finish: FinishReason) -> Reason | None:
        if finish == "deadline" and not self._has_tokens:
            return "BUDGET"  # for the prompt; what was read of it is in the cache
        if finish in _REASONS:
            return _REASONS[finish]
        if self._shaper.unsure_of_all is not None:
            return "LOW_CONFIDENCE"
        if finish == "suffix" and self._shaper.has_only_rejoined:
            return "DUPLICATE_SUFFIX"
        if finish == "length" and self._plan.max_tokens and not self.n_generated:
            return "BUDGET"  # the context is full of the prompt and of given-back bytes
        says_nothing = self._request.detokenize and self._shaper.says_nothing
        return "EMPTY" if says_nothing and self._plan.max_tokens > 0 else None


def _shaper(request: CompletionRequest, plan: PromptPlan) -> Shaper:
    """What shapes the text."""
    prefix, suffix = plan.windows.prefix, plan.windows.suffix
    leaves_out, language = _leaves_out(request), request.language
    if leaves_out and request.shape != "raw":
        language = named_or_guessed(language, request.path, prefix.text, suffix.text)
    around = Surroundings(
        prefix.text,
        suffix.text,
        prefix.truncated,
        suffix.truncated,
        plan.rest,
        plan.windows.line_end,
        request.prefix.endswith("\r") and request.suffix.startswith("\n"),
        request.path,
        language,
    )
    return Shaper(
        around,
        request.prefix,
        request.shape,
        leaves_out=leaves_out,
        min_confidence=request.min_confidence,
    )


def _is_line_of_its_own(plan: PromptPlan) -> bool:
    """Whether a line goes in before one that is there: it needs its line end, or would be glued."""
    before = plan.windows.prefix.text.rpartition("\n")[2]
    behind = (plan.rest + plan.windows.suffix.text).partition("\n")[0]
    return not before.strip(" \t") and bool(behind.strip(" \t"))


def _wants_scores(request: CompletionRequest) -> bool:
    """Whether tokens are to be scored: for the client, or to rank or to leave out."""
    # What is left whole is so also where the server has a least confidence for all.
    leaves_out = request.min_confidence > 0.0 and _leaves_out(request)
    return request.n_probs is not None or request.n > 1 or leaves_out


def _leaves_out(request: CompletionRequest) -> bool:
    """Whether anything is left out of the text: not where more than one completion is wanted.

    Nor left to right, unless a shape is asked for: there is no file then, only a text.
    """
    is_code = request.shape != "raw" and (request.infill or request.shape != "auto")
    wants_more = request.ignore_eos or request.min_tokens > 0 or request.grammar is not None
    return is_code and request.detokenize and not wants_more


def stop_strings(request: CompletionRequest, plan: PromptPlan) -> tuple[str, ...]:
    """The stop strings that a request's transducer must watch for, their line ends LF."""
    if not request.detokenize:
        return ()
    stops = request.stop
    if plan.windows.line_end != "\n":
        # The model is shown LF, and so says LF, where the document and its client have others.
        stops = tuple(map(lf_only, stops))
    ends = () if request.ignore_eos else plan.stop_strings
    return (*stops, *ends, "\n") if request.shape == "line" else (*stops, *ends)


def special_tokens(request: CompletionRequest) -> Literal["skip", "show"]:
    """What a request's transducer must make of special tokens."""
    return "skip" if request.skip_special_tokens else "show"


def _stop_texts(
    request: CompletionRequest, plan: PromptPlan, vocabulary: Vocabulary
) -> dict[int, str]:
    """Special tokens whose own text is a stop string, where the text never shows them."""
    if special_tokens(request) == "show":
        return {}
    ids = ((vocabulary.special_id(stop), stop) for stop in stop_strings(request, plan))
    return {i: stop for i, stop in ids if i is not None and not vocabulary.bytes_of(i)}


def _stop_ids(
    request: CompletionRequest, plan: PromptPlan, vocabulary: Vocabulary
) -> frozenset[int]:
    ends = frozenset[int]() if request.ignore_eos else vocabulary.eog_ids | plan.stop_ids
    return ends | frozenset(request.stop_token_ids)


def banned_ids(
    request: CompletionRequest, vocabulary: Vocabulary, stop_ids: frozenset[int]
) -> list[int]:
    """Rows that must never be drawn (V1): they mean nothing, or would be a sentinel in the text.

    A control token that ends the text may be drawn, and any other only where the caller wants
    to see special tokens. With `ignore_eos` the ends are banned as well.
    """
    shown = frozenset[int]() if request.skip_special_tokens else vocabulary.control_ids
    if request.ignore_eos:
        shown -= vocabulary.eog_ids
    return [i for i in vocabulary.silent_ids if i not in stop_ids and i not in shown]
