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

import numpy as np

from suture.healing import Encode, HealingError, TokenHealer, Vocabulary
from suture.server.decoding.candidates import Logits
from suture.server.decoding.covering import Covering, Coverings, Drawn
from suture.server.decoding.drafts import MAX_DRAFT, DraftIndex, DraftWidth
from suture.server.decoding.grammar import GrammarState, Language
from suture.server.decoding.output import Made, Output, banned_ids
from suture.server.decoding.repetition import Breakers, sequence_breakers
from suture.server.decoding.sampling import Sampler, log_probability
from suture.server.decoding.scores import score_of, score_under
from suture.server.decoding.text_stream import TextStream
from suture.server.engine.tree import TokenTree
from suture.server.errors import InvalidRequest
from suture.server.prompt.plan import PromptPlan
from suture.server.prompt.text_encoding import spelled, text_encoding
from suture.server.request import (
    CompletionChunk,
    CompletionRequest,
    DraftReport,
    FinishReason,
    HealingLevel,
    HealingReport,
    ScoredToken,
)

# Some healed token fits at once, almost always.
_MAX_HEALED_DRAWS = 64
# Asking costs some 100 us a token, and masking the row 20 ms.
_MAX_ASKED = 32


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
        self._output = Output(request, plan, vocabulary, text_stream)
        banned = banned_ids(request, vocabulary, self._output.stop_ids)
        breakers = _breakers(request, vocabulary, language)
        self._sampler = Sampler(request.sampling, banned, breakers)
        self._language = language
        self._grammar: GrammarState | None = None
        self._covering: Covering | None = None
        self._level: HealingLevel = "none"
        if plan.level == "exact" and coverings is not None and plan.max_tokens > 0:
            ends = frozenset(vocabulary.silent_ids).difference(banned)
            self._covering = coverings.of(plan, ends)
        self._healing_logprob = 0.0
        self._log_evidence: float | None = None
        self._logprob_before = 0.0
        self._healing_nodes = 0
        self._tv_bound = 0.0
        self._n_reused = 0
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
        return self._output.n_generated

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
            return chunk if self.finished else self._output.chunk_if_due()
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
        return chunk if self.finished else self._output.chunk_if_due()

    def _propose(self) -> tuple[tuple[int, ...], int]:
        """A draft of what comes next, as wide as pays, and how many tokens matched before it."""
        if self._width is None or not self._healer.done:
            return (), 0
        n_most = min(MAX_DRAFT, self._plan.max_tokens - self.n_generated - 1)
        draft, n_matched = self._known.propose(max(n_most, 0))
        return draft[: self._width.best(n_matched, len(draft))], n_matched

    def _feed_covers(self, rows: Logits, covering: Covering) -> CompletionChunk | None:
        """Draw a cover and go on behind it; the last chunk if that ends the text."""
        self.kept = covering.root
        self._healing_nodes = covering.n_evaluated
        # What spells given-back bytes is not new, and so is no end (H4).
        banned = self._output.stop_ids if self._output.is_early else ()
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
        if self._output.wants_scores:
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
        raw = row.copy() if self._output.wants_scores else None
        token_id = self._draw(row)
        if token_id is None:
            return None if was_healing else self.finish("eos")
        score = None if raw is None else self._score(raw, token_id)
        is_new = self._is_new(token_id)
        return self._feed_token(token_id, is_new, score if is_new else None)

    def _feed_token(
        self, token_id: int, is_new: bool, score: ScoredToken | None = None
    ) -> CompletionChunk | None:
        """Go on with a drawn token; the last chunk if it ends the text."""
        if not self._output.ends_at(token_id, is_new):
            self._remember(token_id)
        reason = self._output.take(token_id, is_new, score)
        return None if reason is None else self.finish(reason)

    def finish(self, reason: FinishReason) -> CompletionChunk:
        """End now: the last chunk, with everything held back that is still text."""
        self.finished = True
        self.close()
        made = Made(
            healing=self._healing_report(),
            n_reused=self._n_reused,
            n_evaluated=len(self._plan.kept_ids) - self._n_reused,
            draft=DraftReport(self._n_proposed, self._n_accepted),
            seed=self._sampler.seed,
        )
        return self._output.end(reason, made)

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
        self._sampler.adjust(row, self._output.stop_ids if self._output.is_early else ())
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
        for token_id in spelled(self._healer.pending, self._inner_encoding(), self._vocabulary):
            self._accept(token_id)
        self._healer = TokenHealer(self._vocabulary, b"")
        self._level, self._healing_logprob, self._tv_bound = "none", 0.0, 1.0
        self._logprob_before = 0.0

    def _new_grammar(self, gbnf: str) -> GrammarState:
        # One that has text is for the grammar to judge, as every text.
        ends = frozenset(i for i in self._output.stop_ids if not self._vocabulary.bytes_of(i))
        grammar = GrammarState(_needed(self._language), gbnf, ends, self._inner_encoding())
        if self._request.grammar_scope == "prefill":
            _accept_prefill(grammar, self._plan.windows.prefix.text)
        return grammar

    def _inner_encoding(self) -> Encode:
        """How text is tokenized that stands behind other text."""
        encode = _needed(self._language).encode
        return text_encoding(encode, self._vocabulary, self._plan).inner

    def _accept(self, token_id: int) -> None:
        """Go on with a token that says again what was given back."""
        self._remember(token_id)
        self._output.say(token_id)

    def _remember(self, token_id: int) -> None:
        self._tokens.append(token_id)
        self._known.extend((token_id,))

    def _is_new(self, token_id: int) -> bool:
        """Whether the token says more than the given-back bytes; moves the healer on (H4)."""
        if self._healer.done:
            return True
        n_again = self._healer.consume(token_id)
        return n_again < len(self._vocabulary.bytes_of(token_id))

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


def _behind(score: ScoredToken, logprob: float) -> ScoredToken:
    """The score with what stands before it and has no entry of its own."""
    if not logprob:
        return score
    top = tuple(replace(one, logprob=one.logprob + logprob) for one in score.top)
    return replace(score, logprob=score.logprob + logprob, top=top)


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
