"""One completion that another's engine makes: says what is asked, is fed what is heard.

There is no thread, clock or socket in it. Whoever drives it calls

    asked = generation.asked(level)     what a backend is asked for that claims this level
    generation.check(heard)             a part of its answer is one
    chunk = generation.feed(heard)      the text that it released, if any
    chunk = generation.end()            the last one, where the answer is over

until a chunk carries a result, or ends it early by `finish()`. After `ConstraintIgnored` the answer
is worthless, and nothing of it was said: `asked` may be called anew. With the level "none" it asks
for the text behind the given-back bytes, which are then part of the prompt.

R1  No answer is believed: its tokens have to be such as the recursive rule allows, as long as bytes
    are pending, or to say the bytes again, where nothing is forced; and ids have to be in the
    vocabulary.
R2  Pending bytes are whole characters, since constraints are texts; no token crosses a barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from suture.healing import (
    Encode,
    HealingError,
    NotSaidAgain,
    SaidAgain,
    TokenHealer,
    Vocabulary,
    structural_end,
    word_end,
)
from suture.server.decoding.output import Made, Output, banned_ids
from suture.server.decoding.text_stream import TextStream
from suture.server.engine.remote.errors import BackendFailed, ConstraintIgnored
from suture.server.engine.remote.protocol import (
    Affinity,
    Asked,
    BackendKind,
    Finish,
    Heard,
    Level,
    Scored,
    Usage,
)
from suture.server.prompt.plan import PromptPlan
from suture.server.prompt.text_encoding import spelled, text_encoding
from suture.server.request import (
    Alternative,
    CompletionChunk,
    CompletionRequest,
    FinishReason,
    HealingLevel,
    HealingReport,
    ScoredToken,
)


class RemoteGeneration:
    """The text of one request over its prompt plan, made elsewhere (`job.Work`).

    `text_stream` must be a new one for this plan, its `stop_strings` and `special_tokens`.
    """

    def __init__(
        self,
        request: CompletionRequest,
        plan: PromptPlan,
        vocabulary: Vocabulary,
        text_stream: TextStream,
        encode: Encode,
        affinity: Affinity,
    ) -> None:
        self.finished = False
        self._request = request
        self._plan = plan
        self._vocabulary = vocabulary
        self._output = Output(request, plan, vocabulary, text_stream)
        self._inner = text_encoding(encode, vocabulary, plan).inner
        self._affinity = affinity
        self._banned = tuple(banned_ids(request, vocabulary, self._output.stop_ids))
        self._healer = TokenHealer(vocabulary, b"")
        self._said_again = SaidAgain(b"")
        self._level: HealingLevel = "none"
        # Tokens that say given-back bytes again, not all of which have come.
        self._unsaid: list[int] = []
        self._n_heard = self._n_healing = self._n_asked = 0
        self._healing_logprob = self._logprob_before = 0.0
        self._usage: Usage | None = None
        self._finish: Finish | None = None
        self._reason: FinishReason | None = None

    @property
    def request(self) -> CompletionRequest:
        return self._request

    @property
    def plan(self) -> PromptPlan:
        return self._plan

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        return self._plan.kept_ids

    @property
    def max_tokens(self) -> int:
        return self._plan.max_tokens

    @property
    def n_generated(self) -> int:
        return self._output.n_generated

    @property
    def affinity(self) -> Affinity:
        return self._affinity

    def asked(self, level: Level) -> Asked:
        """What a backend is asked for; `level` is the one that it heals at.

        To be called before anything is heard, or anew after `ConstraintIgnored`.
        """
        self._forget()
        pending = self._plan.pending
        is_healed = level != "none" and self._plan.level != "none" and _is_text(pending)
        prompt_ids = self._plan.kept_ids
        if not is_healed:
            prompt_ids, pending = (*prompt_ids, *self._spelled), b""
        is_forced = level != "hygiene"
        self._healer = TokenHealer(self._vocabulary, pending if is_forced else b"")
        self._said_again = SaidAgain(b"" if is_forced else pending)
        self._level = level if pending else "none"
        # To read a prompt ahead there is no other way than to have a token drawn.
        self._n_asked = max(self._plan.max_tokens, 1) + len(pending)
        return Asked(
            prompt_ids=prompt_ids,
            pending=pending,
            level=level if pending else "none",
            max_tokens=self._n_asked,
            sampling=self._request.sampling,
            end_ids=self._output.stop_ids,
            banned_ids=self._banned,
            affinity=self._affinity,
            ignore_eos=self._request.ignore_eos,
            min_tokens=self._request.min_tokens,
            grammar=self._request.grammar,
            n_probs=self._n_probs,
        )

    def _forget(self) -> None:
        """Forget an answer that was not believed."""
        self._unsaid.clear()
        self._n_heard = self._n_healing = 0
        self._healing_logprob = self._logprob_before = 0.0
        self._usage = self._finish = None

    def check(self, heard: Heard) -> None:
        """Raise `BackendFailed` for a part of an answer that is none: to be called before `feed`.

        It is a failure of the backend's, which another one may be asked after.
        """
        n_vocab = self._vocabulary.n_vocab
        if not all(0 <= token_id < n_vocab for token_id in heard.token_ids or ()):
            raise BackendFailed("the backend answered token ids that the tokenizer does not have")
        if heard.finish == "abort":
            raise BackendFailed("the backend gave the answer up")

    def feed(self, heard: Heard) -> CompletionChunk | None:
        """Go on with a part of the answer; the last chunk if that ends the text.

        Raises `ConstraintIgnored` where it does not begin with the pending bytes.
        """
        self._usage = heard.usage or self._usage
        if self._finish is not None:
            return self.end()
        self._finish = heard.finish
        if self._plan.max_tokens == 0:
            is_over = bool(heard.token_ids or heard.text or heard.finish)
            return self.finish("length") if is_over else None
        ids = self._ids(heard)
        scores = heard.scores if len(heard.scores) == len(ids) else ()
        for index, token_id in enumerate(ids):
            self._reason = self._take(token_id, scores[index] if scores else None)
            if self._reason is not None:
                break
        if self._reason is not None and self._finish is None:
            return self.finish(self._reason)
        # An engine that has ended tells yet how much of the prompt it had.
        return self._output.chunk_if_due()

    @property
    def is_over(self) -> bool:
        """Whether the engine has ended, and at most tells yet what it counted."""
        return self._finish is not None

    @property
    def is_ending(self) -> bool:
        """Whether the engine has ended, or is about to: it has said as much as it was to."""
        return self.is_over or self._n_heard >= self._n_asked

    def end(self) -> CompletionChunk:
        """The answer is over, and with it the text. Raises as `feed` does."""
        with suppress(NotSaidAgain):
            self._said_again.finish()
        if not (self._healer.done and self._said_again.done):
            raise ConstraintIgnored("the answer ends before it says what was given back")
        return self.finish(self._reason or ("length" if self._finish == "length" else "eos"))

    def finish(self, reason: FinishReason) -> CompletionChunk:
        """End now: the last chunk, with everything held back that is still text."""
        self.finished = True
        self._say_unsaid()
        return self._output.end(reason, self._made())

    def _ids(self, heard: Heard) -> Sequence[int]:
        """The tokens of a part; of an engine that tells text only, ours for the same text."""
        if heard.token_ids is None:
            return self._ids_of_text(heard.text.encode())
        return heard.token_ids

    def _ids_of_text(self, text_bytes: bytes) -> Sequence[int]:
        """Tokens for what is new of a text."""
        try:
            new = self._said_again.feed(text_bytes)
        except NotSaidAgain:
            raise ConstraintIgnored("the answer does not say again what was given back") from None
        return self._inner(new) if new else ()

    def _take(self, token_id: int, scored: Scored | None) -> FinishReason | None:
        if not self._n_heard:
            self._say_again()
        was_healing = not self._healer.done
        try:
            n_again = self._healer.consume(token_id)
        except HealingError:
            raise ConstraintIgnored("the answer does not begin with what was given back") from None
        self._n_heard += 1
        piece = self._vocabulary.bytes_of(token_id)[n_again:]
        is_new = not was_healing or bool(piece)
        self._n_healing += was_healing
        if was_healing and scored is not None:
            self._healing_logprob += scored.logprob
        score = self._score(token_id, piece, scored, is_new, was_healing)
        if not self._healer.done:
            self._unsaid.append(token_id)
            return None
        self._say_unsaid()
        return self._output.take(token_id, is_new, score if is_new else None)

    def _say_unsaid(self) -> None:
        """Say what was held back until the answer could be believed."""
        for token_id in self._unsaid:
            self._output.say(token_id)
        self._unsaid.clear()

    def _say_again(self) -> None:
        """Where nothing is healed, given-back bytes are text that the prompt has (C4)."""
        if self._plan.pending and self._healer.done:
            for token_id in self._spelled:
                self._output.say(token_id)

    @property
    def _spelled(self) -> Sequence[int]:
        return spelled(self._plan.pending, self._inner, self._vocabulary)

    def _score(
        self,
        token_id: int,
        piece: bytes,
        scored: Scored | None,
        is_new: bool,
        was_healing: bool,
    ) -> ScoredToken | None:
        """A token's score; what those before it cost that said nothing new is counted with it."""
        if scored is None or not self._output.wants_scores:
            return None
        logprob = self._logprob_before + scored.logprob
        self._logprob_before = 0.0 if is_new else logprob
        # Servers tell one more than asked for, where the token itself is not among them.
        asked = () if was_healing else scored.top[: self._request.n_probs or 0]
        # A model's rows may be longer than its vocabulary.
        n_vocab = self._vocabulary.n_vocab
        top = tuple(self._alternative(*one) for one in asked if one[0] < n_vocab)
        return ScoredToken(token_id, piece, logprob, top=top)

    def _alternative(self, token_id: int, logprob: float) -> Alternative:
        return Alternative(token_id, self._vocabulary.bytes_of(token_id), logprob)

    @property
    def _n_probs(self) -> int | None:
        wanted = self._request.n_probs
        return 0 if wanted is None and self._output.wants_scores else wanted

    def _made(self) -> Made:
        n_prompt = len(self._plan.kept_ids)
        cached = (self._usage.cached if self._usage is not None else None) or 0
        n_reused = min(cached, n_prompt)
        healing = HealingReport(
            level=self._level if self._healer.done and self._n_heard else "none",
            dropped_tokens=self._plan.dropped_tokens,
            pending=self._plan.pending,
            nodes=self._n_healing,
            # How far the rule is from the posterior nobody knows (C2).
            tv_bound=1.0 if self._plan.pending else 0.0,
            logprob=self._healing_logprob,
        )
        return Made(healing, n_reused, n_prompt - n_reused, seed=self._request.sampling.seed)


def with_whole_characters(plan: PromptPlan, vocabulary: Vocabulary) -> PromptPlan:
    """The same prompt, cut between characters where that is possible behind its barriers (R2)."""
    kept_ids, pending = plan.kept_ids, plan.pending
    barrier = max(plan.barriers, default=-1)
    while pending and _is_inside(pending) and len(kept_ids) - 1 > barrier:
        kept_ids, pending = kept_ids[:-1], vocabulary.bytes_of(kept_ids[-1]) + pending
    if not kept_ids or _is_inside(pending):
        return plan
    n_more = len(plan.kept_ids) - len(kept_ids)
    return replace(
        plan, kept_ids=kept_ids, pending=pending, dropped_tokens=plan.dropped_tokens + n_more
    )


def with_clean_end(
    plan: PromptPlan, kind: BackendKind, vocabulary: Vocabulary, encode: Encode
) -> PromptPlan:
    """The same prompt for an engine that nothing can be forced on: cut where tokens end anyhow."""
    if plan.level == "none":
        return plan
    start = max(plan.barriers, default=-1) + 1
    segment = b"".join(map(vocabulary.bytes_of, plan.kept_ids[start:])) + plan.pending
    end = (structural_end if kind == "openai-chat" else word_end)(segment)
    inner = text_encoding(encode, vocabulary, plan).inner
    kept_ids = (*plan.kept_ids[:start], *(inner(end.kept) if end.kept else ()))
    if not kept_ids:
        return plan
    n_more = len(plan.kept_ids) - len(kept_ids)
    return replace(
        plan,
        kept_ids=kept_ids,
        pending=end.pending,
        dropped_tokens=max(plan.dropped_tokens + n_more, 0),
        level="hygiene" if end.pending else "none",
    )


def _is_inside(pending: bytes) -> bool:
    """Whether bytes begin inside a character."""
    return bool(pending) and pending[0] & 0xC0 == 0x80


def _is_text(pending: bytes) -> bool:
    """Whether there are bytes, and they are whole characters."""
    try:
        return bool(pending.decode())
    except UnicodeDecodeError:
        return False
