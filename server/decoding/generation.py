"""One completion as a state machine: it says which tree it wants, is fed rows, yields text.

There is no thread, clock, asyncio or llama.cpp in it. Whoever drives it calls, in turn,

    tree = generation.tree(n_committed)     what to evaluate on top of the committed tokens
    chunk = generation.feed(rows)           the text that these rows released, if any
    generation.kept                         the node to commit, with those on the way to it

until a chunk carries a result, or ends it early by `finish()`. A tree holds tokens that have been
accepted and, behind them, a draft: a row is drawn from for each, and the first token that is not
the drafted one ends the step. The first tree may hold the covers of what healing gave back, of
which one is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from suture.healing import Encode, HealingError, TokenHealer, Vocabulary
from suture.server.decoding.candidates import Logits
from suture.server.decoding.covering import Covering, Coverings, Drawn
from suture.server.decoding.drafts import MAX_DRAFT, DraftIndex, DraftWidth
from suture.server.decoding.grammar import GrammarState, Language
from suture.server.decoding.repetition import Breakers, sequence_breakers
from suture.server.decoding.sampling import Sampler, log_probability
from suture.server.decoding.score_log import ScoreLog
from suture.server.decoding.scores import score_of, score_under
from suture.server.decoding.text_stream import TextStream
from suture.server.engine.tree import TokenTree
from suture.server.errors import InvalidRequest
from suture.server.prompt.plan import PromptPlan
from suture.server.prompt.text_encoding import text_encoding
from suture.server.request import (
    CompletionChunk,
    CompletionRequest,
    CompletionResult,
    DraftReport,
    FinishReason,
    HealingLevel,
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

# Some healed token fits at once, almost always.
_MAX_HEALED_DRAWS = 64
# Asking costs some 100 us a token, and masking the row 20 ms.
_MAX_ASKED = 32
_REASONS: dict[FinishReason, Reason] = {
    "deadline": "DEADLINE",
    "superseded": "SUPERSEDED",
    "cancelled": "CANCELLED",
}


class Generation:
    """The loop of one request over its prompt plan.

    `text_stream` must be a new one for this plan, its `stop_strings` and `special_tokens`.
    `language` is needed for DRY and for a grammar, which it must have checked. What a grammar holds
    is freed by `finish`, or by `close` where the generation has failed. `known` is where drafts are
    looked up, if in more than the prompt. `coverings` are needed for exact healing, and without
    them it is the recursive rule that heals.
    """

    def __init__(
        self,
        request: CompletionRequest,
        plan: PromptPlan,
        vocabulary: Vocabulary,
        text_stream: TextStream,
        language: Language | None = None,
        known: DraftIndex | None = None,
        coverings: Coverings | None = None,
    ) -> None:
        self.finished = False
        self._request = request
        self._plan = plan
        self._vocabulary = vocabulary
        self._tokens = list(plan.kept_ids)
        self._healer = TokenHealer(vocabulary, plan.pending)
        self._stop_texts = _stop_texts(request, plan, vocabulary)
        self._stop_ids = _stop_ids(request, plan, vocabulary).union(self._stop_texts)
        banned_ids = _banned_ids(request, vocabulary, self._stop_ids)
        breakers = _breakers(request, vocabulary, language)
        self._sampler = Sampler(request.sampling, banned_ids, breakers)
        self._language = language
        self._grammar: GrammarState | None = None
        self._covering: Covering | None = None
        self._level: HealingLevel = "none"
        if plan.level == "exact" and coverings is not None and plan.max_tokens > 0:
            ends = frozenset(vocabulary.silent_ids).difference(banned_ids)
            self._covering = coverings.of(plan, ends)
        self._detokenizer = text_stream
        self._healing_logprob = 0.0
        self._log_evidence: float | None = None
        # Nothing is scored where nobody asks: it is about a millisecond a token.
        self._scores = ScoreLog() if _wants_scores(request) else None
        self._logprob_before = 0.0
        self._healing_nodes = 0
        self._tv_bound = 0.0
        self._n_generated = 0
        self._n_reused = 0
        self._stop_match: str | None = None
        self._shaper = _shaper(request, plan)
        self._has_sent = False
        self._unsent_text: list[str] = []
        self._unsent_ids: list[int] = []
        self._known = DraftIndex(plan.kept_ids) if known is None else known
        self._draft: tuple[int, ...] = ()
        self._n_matched = 0
        self._width: DraftWidth | None = None
        self._n_proposed = self._n_accepted = 0
        self.n_drafted = self.n_rejected = self.n_covers = 0
        self.kept = 0

    @property
    def plan(self) -> PromptPlan:
        return self._plan

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        return self._plan.kept_ids

    @property
    def tokens(self) -> Sequence[int]:
        """The prompt and all that was accepted; not to be changed by the caller."""
        return self._tokens

    @property
    def request(self) -> CompletionRequest:
        return self._request

    @property
    def max_tokens(self) -> int:
        """How many tokens may be generated: what was asked for, as far as there is room."""
        return self._plan.max_tokens

    @property
    def n_generated(self) -> int:
        return self._n_generated

    def reuse(self, n_tokens: int) -> None:
        """Note that the first `n_tokens` of the prompt were in the KV cache already."""
        self._n_reused = n_tokens

    def tree(self, n_committed: int, width: DraftWidth | None = None) -> TokenTree:
        """What to evaluate on top of the first `n_committed` tokens of this generation.

        With `width`, a step that only draws a token may have a draft behind it. Raises
        `InvalidRequest` where a grammar does not take what it is to cover before the cursor.
        """
        # Only now: what never runs has nothing to free.
        if self._request.grammar is not None and self._grammar is None:
            self._grammar = self._new_grammar(self._request.grammar)
        tokens = self._tokens[n_committed:]
        self.n_drafted = self.n_covers = 0
        if self._covering is not None:
            try:
                tree = self._covering.tree(tokens)
            except HealingError:
                self._covering = None  # too many bytes for a tree, so healed token by token
            else:
                self.n_covers = self._covering.n_evaluated
                return tree
        self._width = width
        self._draft, self._n_matched = self._propose() if len(tokens) == 1 else ((), 0)
        self.n_drafted = len(self._draft)
        self._n_proposed += len(self._draft)
        n_wanted = 1 + len(self._draft)
        tokens += self._draft
        self.kept = len(tokens) - 1
        return TokenTree.chain(tokens, wants=range(len(tokens) - n_wanted, len(tokens)))

    def feed(self, rows: Logits) -> CompletionChunk | None:
        """Draw from the last token's row and from those of the draft that comes true.

        `rows` are those that the tree wants, of shape (n, n_vocab), and are used up.
        """
        if self._covering is not None:
            chunk = self._feed_covers(rows, self._covering)
            self._covering = None
            return chunk if self.finished else self._chunk_if_due()
        draft, n_accepted = self._draft, 0
        chunk = self._feed_row(rows[0])
        for drafted, row in zip(draft, rows[1:], strict=True):
            if self.finished or self._tokens[-1] != drafted:
                break
            n_accepted += 1
            self._n_accepted += 1
            chunk = self._feed_row(row)
        self.n_rejected = len(draft) - n_accepted
        self.kept -= self.n_rejected
        if self._width is not None and draft:
            self._width.observe_draft(self._n_matched, len(draft), n_accepted)
        return chunk if self.finished else self._chunk_if_due()

    def _propose(self) -> tuple[tuple[int, ...], int]:
        """A draft of what comes next, as wide as pays, and how many tokens matched before it."""
        if self._width is None or not self._healer.done:
            return (), 0
        n_most = min(MAX_DRAFT, self._plan.max_tokens - self._n_generated - 1)
        draft, n_matched = self._known.propose(max(n_most, 0))
        return draft[: self._width.best(n_matched, len(draft))], n_matched

    def _feed_covers(self, rows: Logits, covering: Covering) -> CompletionChunk | None:
        """Draw a cover and go on behind it; the last chunk if that ends the text."""
        self.kept = covering.root
        self._healing_nodes = covering.n_evaluated
        # What spells given-back bytes is not new, and so is no end (H4).
        banned = self._stop_ids if self._is_early else ()
        for drawn in covering.draws(rows, self._sampler, self._tokens, banned):
            token_id = self._token_of(drawn, covering)
            if token_id is not None:
                return self._take_cover(drawn, token_id, covering)
        self._drop_healing()
        return None

    def _token_of(self, drawn: Drawn, covering: Covering) -> int | None:
        """A cover's last token, behind an exact end the next one; None where the grammar takes
        none, which else goes on behind it."""
        if drawn.token_id is None:
            return self._draw_new(covering.row_behind(drawn), [*self._tokens, *drawn.path])
        if drawn.overhang is not None:
            return drawn.token_id if self._may_go_on(drawn.overhang) else None
        if self._grammar is not None:
            if not self._grammar.permits(drawn.token_id):
                return None
            self._grammar.accept(drawn.token_id)
        return drawn.token_id

    def _take_cover(
        self, drawn: Drawn, token_id: int, covering: Covering
    ) -> CompletionChunk | None:
        if not covering.is_clean:
            self._level, self._tv_bound = covering.level, covering.tv_bound
            self._healing_logprob = drawn.logprob
        score = None
        if self._scores is not None:
            score = covering.score(drawn, token_id, self._n_top)
            self._log_evidence = None if covering.is_clean else covering.log_evidence
        self._healer = TokenHealer(self._vocabulary, b"")
        self.kept = covering.kept(drawn)
        for said_again in drawn.path:
            self._accept(said_again)
        return self._feed_token(token_id, is_new=True, score=score)

    def _may_go_on(self, overhang: bytes) -> bool:
        """Whether the grammar takes what a cover says past the cursor; it goes on behind it."""
        return self._grammar is None or not overhang or self._grammar.accept_bytes(overhang)

    def _feed_row(self, row: Logits) -> CompletionChunk | None:
        """Draw a token; the last chunk if it ends the text."""
        if self._plan.max_tokens == 0:
            return self.finish("length")
        was_healing = not self._healer.done
        # Drawing changes the row.
        raw = None if self._scores is None else row.copy()
        token_id = self._draw(row)
        if token_id is None:
            return None if was_healing else self.finish("eos")
        score = None if raw is None else self._score(raw, token_id)
        is_new = self._is_new(token_id)
        return self._feed_token(token_id, is_new, score if is_new else None)

    def _feed_token(
        self, token_id: int, is_new: bool, score: ScoredToken | None = None
    ) -> CompletionChunk | None:
        """Accept a drawn token; the last chunk if it ends the text."""
        if is_new and token_id in self._stop_ids and not self._is_early:
            return self._stop_at(token_id, score)
        self._n_generated += is_new
        self._accept(token_id, score)
        if self._shaper.is_over:
            return self.finish("stop")
        if self._detokenizer.stopped:
            return self.finish("stop")
        if self._n_generated >= self._plan.max_tokens:
            return self.finish("length")
        return None

    def finish(self, reason: FinishReason) -> CompletionChunk:
        """End now: the last chunk, with everything held back that is still text."""
        self.finished = True
        self.close()
        if self._request.detokenize:
            self._release(self._detokenizer.flush())
            if self._ends_line and _is_line_of_its_own(self._plan):
                self._release("\n")
            self._insert(self._shaper.flush())
        if self._shaper.has_rejoined and reason in ("stop", "length", "eos"):
            reason = "suffix"
        elif self._shaper.is_over and reason in ("stop", "length", "eos"):
            reason = "stop"
        elif self._detokenizer.stopped and reason in ("stop", "length", "eos"):
            # The window path may find a stop string only when no more tokens come.
            reason = "eos" if self._has_ended_itself else "stop"
        return self._take_chunk(self._result(reason))

    def close(self) -> None:
        """Free what the engine lent; `finish` does so too."""
        if self._grammar is not None:
            self._grammar.close()
            self._grammar = None

    def _draw(self, row: Logits) -> int | None:
        """A token; None where nothing may come, or nothing healed, which drops healing (C4)."""
        if self._healer.done:
            return self._draw_new(row, self._tokens)
        # Scored before biases and penalties change the row: it is the model's belief.
        raw = row.copy()
        # A stop id may be what the given-back bytes are said with.
        self._sampler.adjust(row)
        return self._draw_healed(row, raw)

    def _draw_new(self, row: Logits, history: Sequence[int]) -> int | None:
        """A token behind `history`, all of which is said; None where nothing may come."""
        self._sampler.adjust(row, self._stop_ids if self._is_early else ())
        if row.max() == -np.inf:
            return None
        token_id = self._sampler.pick(row, history=history)
        if self._grammar is None:
            return token_id
        return self._permitted(token_id, row, self._grammar, history)

    def _permitted(
        self, drawn: int, row: Logits, grammar: GrammarState, history: Sequence[int]
    ) -> int | None:
        """The drawn token if it may come, else one that may, drawn from what is left of the row."""
        # Of a greedy draw the best permitted token is wanted, and it is seldom far down.
        n_asked = _MAX_ASKED if self._sampler.is_greedy else 1
        for n_left in range(n_asked, -1, -1):
            if grammar.permits(drawn):
                grammar.accept(drawn)
                return drawn
            row[drawn] = -np.inf
            if n_left == 1:
                grammar.mask(row)
            if n_left == 0 or not np.isfinite(row.max()):
                break
            drawn = self._sampler.pick(row, history=history)
        return None

    def _draw_healed(self, row: Logits, raw: Logits) -> int | None:
        """A token that says pending bytes; its overhang is what the grammar sees of it.

        Each that is refused is left out of the next draw, so what is drawn has the distribution of
        the permitted ones. The last draw is among those that say no more than what is pending.
        """
        constraint = self._healer.constraint()
        token_ids, logits = constraint.apply(row, self._vocabulary)
        for n_left in range(_MAX_HEALED_DRAWS, -1, -1):
            token_id = self._sampler.pick(logits, token_ids, self._tokens)
            overhang = self._overhang(token_id)
            if self._grammar is None or not overhang or self._grammar.accept_bytes(overhang):
                self._healing_logprob += log_probability(raw, token_id)
                self._healing_nodes += 1
                self._level = "none" if self._plan.level == "none" else "recursive"
                # The recursive rule's distance from the posterior is not known: the trivial bound.
                self._tv_bound = 1.0
                return token_id
            logits[token_ids == token_id] = -np.inf
            if n_left == 1:
                whole = self._vocabulary.ids_of(self._healer.pending)
                without_overhang = [*constraint.prefix_ids.tolist(), *whole]
                logits[~np.isin(token_ids, without_overhang)] = -np.inf
            if not np.isfinite(logits.max()):
                break
        self._drop_healing()
        return None

    def _score(self, raw: Logits, token_id: int) -> ScoredToken:
        """What the model makes of a drawn token, before the healer has moved on.

        What tokens that say nothing new cost is counted with the first that does.
        """
        if self._healer.done:
            score = score_of(raw, token_id, self._vocabulary, self._n_top)
        else:
            constraint, pending = self._healer.constraint(), self._healer.pending
            score = score_under(constraint, pending, raw, token_id, self._vocabulary, self._n_top)
        score = _behind(score, self._logprob_before)
        says_new = self._healer.done or bool(score.piece)
        self._logprob_before = 0.0 if says_new else score.logprob
        return score

    @property
    def _n_top(self) -> int:
        return self._request.n_probs or 0

    def _overhang(self, token_id: int) -> bytes:
        """What a token says past the pending bytes."""
        piece, pending = self._vocabulary.bytes_of(token_id), self._healer.pending
        return piece[len(pending) :] if piece.startswith(pending) else b""

    def _drop_healing(self) -> None:
        """Say the pending bytes as the tokenizer does, whatever the model thinks of it (C4).

        How far that is from the posterior nobody knows (C2).
        """
        for token_id in self._spelling(self._healer.pending):
            self._accept(token_id)
        self._healer = TokenHealer(self._vocabulary, b"")
        self._level, self._healing_logprob, self._tv_bound = "none", 0.0, 1.0
        self._logprob_before = 0.0

    def _spelling(self, pending: bytes) -> Sequence[int]:
        """Tokens that say the bytes, which may begin or end inside a character."""
        try:
            pending.decode()
        except UnicodeDecodeError:
            pass  # the tokenizer would make replacement characters of them
        else:
            return self._inner_encoding()(pending)
        token_ids: list[int] = []
        while n_bytes := self._vocabulary.longest_prefix(pending):
            token_ids.append(self._vocabulary.ids_of(pending[:n_bytes])[-1])
            pending = pending[n_bytes:]
        return token_ids

    def _new_grammar(self, gbnf: str) -> GrammarState:
        # One that has text is for the grammar to judge, as every text.
        ends = frozenset(i for i in self._stop_ids if not self._vocabulary.bytes_of(i))
        grammar = GrammarState(_needed(self._language), gbnf, ends, self._inner_encoding())
        if self._request.grammar_scope == "prefill":
            _accept_prefill(grammar, self._plan.windows.prefix.text)
        return grammar

    def _inner_encoding(self) -> Encode:
        """How text is tokenized that stands behind other text."""
        encode = _needed(self._language).encode
        return text_encoding(encode, self._vocabulary, self._plan).inner

    @property
    def _is_early(self) -> bool:
        return self._n_generated < self._request.min_tokens

    def _accept(self, token_id: int, score: ScoredToken | None = None) -> None:
        self._tokens.append(token_id)
        self._known.extend((token_id,))
        self._unsent_ids.append(token_id)
        if score is not None:
            self._note(score)
        if self._request.detokenize:
            self._release(self._detokenizer.feed(token_id))

    def _note(self, score: ScoredToken) -> None:
        """Remember the score of a token that is about to be made text of."""
        assert self._scores is not None
        if not self._request.detokenize:
            self._scores.add_without_text(score)
            return
        start = self._scores.n_said + self._detokenizer.held_chars
        self._scores.add(score, start)
        self._shaper.note(start, score.logprob)

    def _is_new(self, token_id: int) -> bool:
        """Whether the token says more than the given-back bytes; moves the healer on (H4)."""
        if self._healer.done:
            return True
        n_again = self._healer.consume(token_id)
        return n_again < len(self._vocabulary.bytes_of(token_id))

    def _stop_at(self, token_id: int, score: ScoredToken | None) -> CompletionChunk:
        self._n_generated += 1
        self._unsent_ids.append(token_id)
        if token_id in self._stop_texts:
            return self._stop_at_text(self._stop_texts[token_id])
        if token_id not in self._request.stop_token_ids:
            return self.finish("eos")
        if self._request.include_stop and self._request.detokenize:
            if score is not None:
                self._note(score)
            self._release(self._detokenizer.feed(token_id))
        return self.finish("stop")

    def _stop_at_text(self, text: str) -> CompletionChunk:
        """End at a special token whose text is a stop string; as bytes it would never show."""
        self._stop_match = text
        self._release(self._detokenizer.flush())
        if self._request.include_stop:
            self._release(text)
        return self.finish("stop")

    def _release(self, text: str) -> None:
        if self._scores is not None:
            self._scores.say(text)
        self._insert(self._shaper.feed(text))

    def _insert(self, insertion: str) -> None:
        if insertion:
            self._unsent_text.append(insertion)
            if self._scores is not None:
                self._scores.leave(insertion)

    def _chunk_if_due(self) -> CompletionChunk | None:
        if self._request.detokenize and not self._unsent_text:
            return None
        due = len(self._unsent_ids) >= self._request.stream_interval
        return self._take_chunk() if due or not self._has_sent else None

    def _take_chunk(self, result: CompletionResult | None = None) -> CompletionChunk:
        text = "".join(self._unsent_text)
        self._has_sent = self._has_sent or bool(self._unsent_ids)
        are_wanted = self._scores is not None and self._request.n_probs is not None
        scores = self._scores.take() if self._scores is not None and are_wanted else ()
        chunk = CompletionChunk(text, tuple(self._unsent_ids), result, scores=scores)
        self._unsent_text.clear()
        self._unsent_ids.clear()
        return chunk

    def _result(self, finish: FinishReason) -> CompletionResult:
        return CompletionResult(
            finish=finish,
            reason=self._reason(finish),
            stop_match=None if self._shaper.is_over else self._stopped_at,
            completion_tokens=self._n_generated,
            seed=self._sampler.seed,
            healing=self._healing_report(),
            prompt=PromptReport(
                tokens=len(self._plan.kept_ids),
                reused=self._n_reused,
                evaluated=len(self._plan.kept_ids) - self._n_reused,
                layout=self._plan.layout,
                truncated=self._plan.truncated,
                excluded=self._plan.n_excluded,
            ),
            draft=DraftReport(self._n_proposed, self._n_accepted),
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
        if finish == "deadline" and len(self._tokens) == len(self._plan.kept_ids):
            return "BUDGET"  # for the prompt; what was read of it is in the cache
        if finish in _REASONS:
            return _REASONS[finish]
        if self._shaper.unsure_of_all is not None:
            return "LOW_CONFIDENCE"
        if finish == "suffix" and self._shaper.has_only_rejoined:
            return "DUPLICATE_SUFFIX"
        if finish == "length" and self._plan.max_tokens and not self._n_generated:
            return "BUDGET"  # the context is full of the prompt and of given-back bytes
        says_nothing = self._request.detokenize and self._shaper.says_nothing
        return "EMPTY" if says_nothing and self._plan.max_tokens > 0 else None

    def _healing_report(self) -> HealingReport:
        return HealingReport(
            level=self._level,
            dropped_tokens=self._plan.dropped_tokens,
            pending=self._plan.pending,
            nodes=self._healing_nodes,
            tv_bound=self._tv_bound,
            logprob=self._healing_logprob,
            log_evidence=self._log_evidence,
        )


def _accept_prefill(grammar: GrammarState, text: str) -> None:
    """Go on past the text before the cursor, pending bytes and all: every cover says it first."""
    is_taken = False
    try:
        is_taken = grammar.accept_bytes(text.encode())
    finally:
        if not is_taken:
            grammar.close()
    if not is_taken:
        message = (
            '"grammar_scope" is "prefill", and the text before the cursor, as far as the prompt has'
            " room for it, does not begin anything that the grammar describes"
        )
        raise InvalidRequest(message, "grammar_scope")


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


def _behind(score: ScoredToken, logprob: float) -> ScoredToken:
    """The score with what stands before it and has no entry of its own."""
    if not logprob:
        return score
    top = tuple(replace(one, logprob=one.logprob + logprob) for one in score.top)
    return replace(score, logprob=score.logprob + logprob, top=top)


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


def _breakers(
    request: CompletionRequest, vocabulary: Vocabulary, language: Language | None
) -> Breakers:
    """The sequence breakers of DRY, if it is asked for."""
    if request.sampling.dry_multiplier == 0.0:
        return {}
    texts = request.sampling.dry_sequence_breakers
    return sequence_breakers(texts, vocabulary, _needed(language).encode)


def _needed(language: Language | None) -> Language:
    if language is None:
        raise ValueError("grammars and DRY need the language of an engine")
    return language


def _banned_ids(
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
