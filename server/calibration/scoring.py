"""How likely the true text of a hole is under each variant, and whether it is written.

What is scored is the event that the text goes on with the true bytes, up to the end of the word
that the cursor is in (`word`) and up to the end of the line's first tokens (`line`), in bits
(log2). A variant's probability of it is that of the one token path which the tokenizer makes of
these bytes; other segmentations of the same bytes are not counted, for no variant.

  off        the product of the probabilities of the tokens of the true text on its own
  recursive  that of the tokens of the pending bytes and the true text, each step renormalised over
             what the rule allows while bytes are pending, and free from there on
  exact      the posterior of the cover which these tokens begin with, times the probabilities of
             the tokens that follow it: the product of all their probabilities by the evidence of
             the pending bytes. At an exact end the share of what may follow cancels out.

All are conditional on what was typed, and none gets anything for repeating it. The end is moved on
to the first byte behind which all variants' paths have a token end, so all are scored on the same
bytes, and none is charged for a token that says more. Closers that a prompt leaves out behind the
cursor belong to what is to be written there, and so to the path, though not to what is scored.
Variants differ in how many tokens they need, but a probability of bytes does not care.

A path that a variant rules out scores `FLOOR`. Each hole is planned as a first request is: an
anchor stands at its line, and nothing is remembered from hole to hole but the KV cache.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby

import numpy as np

from suture.healing import TokenHealer, TokenTransducer
from suture.healing.covers import ROOT, CoverTree, cover_tree
from suture.healing.healer import HealingError
from suture.healing.posterior import Posterior, Row
from suture.server.calibration.holes import Hole
from suture.server.calibration.rows import Ids, Rows
from suture.server.calibration.variants import Variant, variants_of
from suture.server.completion import LoadedModel
from suture.server.decoding.generation import Generation
from suture.server.decoding.output import special_tokens, stop_strings
from suture.server.decoding.text_stream import byte_stream
from suture.server.errors import ModelError
from suture.server.prompt.plan import PromptPlan, plan_prompt
from suture.server.prompt.text_encoding import text_encoding
from suture.server.request import CompletionRequest

FLOOR = -128.0
"""Bits of what a variant cannot say at all, so that means stay finite."""

N_LINE_TOKENS = 8
N_WRITTEN = 24

# Of the candidates that weigh most it is asked whether they are canonical.
_N_ASKED = 64
_WORD = re.compile(r"\w*")


class UnspelledHole(ValueError):
    """A hole without text, or one that tokens do not spell, or with no token end in common."""


@dataclass(frozen=True, slots=True)
class Score:
    """Bits of the true text up to the word's end, and up to that of the line's first tokens."""

    word: float
    line: float


@dataclass(frozen=True, slots=True)
class _Path:
    """A variant's prompt, and the tokens of the pending bytes and the true text on top of it."""

    request: CompletionRequest
    plan: PromptPlan
    ids: Ids
    ends: tuple[int, ...]  # the true text's bytes that are said behind each token
    covers: CoverTree | None

    def up_to(self, end: int) -> Ids:
        """The tokens that say the first `end` bytes of the true text."""
        return self.ids[: self.ends.index(end) + 1]

    def contexts(self, end: int) -> set[Ids]:
        """What rows are needed behind."""
        kept, ids = self.plan.kept_ids, self.up_to(end)
        needed = {kept + ids[:n] for n in range(len(ids))}
        if self.covers is not None:
            needed |= {kept + self.covers.path(node) for node in self.covers.wants}
        return needed


class Scorer:
    """Scores holes by a model, whose engine is this thread's.

    `variants` are those that the model has. Raises `InfillUnsupported` for a model that fills no
    holes, `ModelError` for one whose text cannot be healed.
    """

    def __init__(self, model: LoadedModel) -> None:
        if not model.codec.heals:
            raise ModelError("the model's tokens are no fixed bytes: nothing is healed")
        if not model.engine.can_branch:
            raise ModelError(f"the model's memory is {model.engine.memory}: it is read in no trees")
        self.variants = variants_of(model)
        # However slow the machine is, a hole is shown whole.
        self._model = replace(model, budget=replace(model.budget, prefill_tokens_per_s=1e6))
        self._vocabulary = model.engine.vocabulary
        self._inner = text_encoding(model.codec.encode, self._vocabulary, model.family).inner
        self._ends = self._vocabulary.eog_ids | (model.family.stop_ids if model.family else set())
        banned = (i for i in self._vocabulary.silent_ids if i not in self._ends)
        self._rows = Rows(model.engine, banned)

    def score(self, hole: Hole) -> dict[Variant, Score]:
        """A score for each variant.

        Raises `UnspelledHole`.
        """
        paths = {variant: self._path(hole, variant) for variant in self.variants}
        word, line = self._targets(hole.middle, list(paths.values()))
        scores: dict[Variant, Score] = {}
        for _, group in groupby(self.variants, lambda variant: variant.place):
            variants = list(group)
            needed = set[Ids]().union(*(paths[variant].contexts(line) for variant in variants))
            rows = self._rows.behind(needed)
            for variant in variants:
                path = paths[variant]
                bits = [self._bits(variant, path, path.up_to(end), rows) for end in (word, line)]
                scores[variant] = Score(*bits)
        return scores

    def matches(self, hole: Hole) -> dict[Variant, bool]:
        """Whether the product's own greedy answer makes of the cursor's line what it was."""
        return {variant: self._writes(hole, self._path(hole, variant)) for variant in self.variants}

    def _path(self, hole: Hole, variant: Variant) -> _Path:
        model, vocabulary = self._model, self._vocabulary
        request = variant.request(hole.prefix, hole.suffix, N_WRITTEN)
        plan = plan_prompt(request, vocabulary, model.family, model.codec.encode, model.budget)
        text = plan.pending + vocabulary.as_read((hole.middle + plan.rest).encode())
        ids = tuple(self._inner(text))
        pieces = list(map(vocabulary.bytes_of, ids))
        if not hole.middle or b"".join(pieces) != text:
            raise UnspelledHole("the tokens do not spell the hole")
        ends = tuple(end - len(plan.pending) for end in accumulate(map(len, pieces)))
        covers = None
        if plan.level == "exact" and model.coverings is not None:
            pairs = model.coverings.pairs
            covers = cover_tree(plan.pending, plan.left_ids, vocabulary, pairs)
        return _Path(request, plan, ids, ends, covers)

    def _targets(self, middle: str, paths: Sequence[_Path]) -> tuple[int, int]:
        """Where the word and the line's first tokens end, in bytes of the true text."""
        as_read = self._vocabulary.as_read
        n_all = len(as_read(middle.encode()))
        common = set(paths[0].ends).intersection(*(path.ends for path in paths))
        ends = sorted(end for end in common if 0 < end <= n_all)
        if not ends:
            raise UnspelledHole("the variants' tokens have no end in common")
        word = len(as_read(_WORD.match(middle)[0].encode()))  # type: ignore[index]
        tokens = self._inner(middle.encode())[:N_LINE_TOKENS]
        n_tokens = sum(len(self._vocabulary.bytes_of(token_id)) for token_id in tokens)
        n_line = len(as_read(middle.partition("\n")[0].encode()))
        word_end, line_end = (
            next((end for end in ends if end >= wanted), ends[-1])
            for wanted in (word, min(n_tokens, n_line))
        )
        return word_end, max(word_end, line_end)

    def _bits(self, variant: Variant, path: _Path, ids: Ids, rows: Mapping[Ids, Row]) -> float:
        if path.covers is not None:
            nats = self._exact(path, path.covers, ids, rows)
        elif variant.healing == "recursive" and path.plan.pending:
            nats = self._recursive(path.plan, ids, rows)
        else:
            nats = _free(path.plan.kept_ids, ids, rows)
        return max(nats / math.log(2.0), FLOOR)

    def _recursive(self, plan: PromptPlan, ids: Ids, rows: Mapping[Ids, Row]) -> float:
        healer, total = TokenHealer(self._vocabulary, plan.pending), 0.0
        for n, token_id in enumerate(ids):
            row = rows[plan.kept_ids + ids[:n]]
            total += float(row[token_id])
            if healer.done:
                continue
            constraint = healer.constraint()
            if not constraint.allows(token_id):
                return -math.inf
            total -= _log_sum(constraint.apply(row, self._vocabulary)[1])
            healer.consume(token_id)
        return total

    def _exact(self, path: _Path, covers: CoverTree, ids: Ids, rows: Mapping[Ids, Row]) -> float:
        kept, coverings = path.plan.kept_ids, self._model.coverings
        assert coverings is not None
        if not _has_cover(covers, ids, self._vocabulary.bytes_of):
            return -math.inf
        of_nodes = {node: rows[kept + covers.path(node)] for node in covers.wants}
        try:
            posterior = Posterior(
                covers, of_nodes, self._vocabulary, coverings.pairs, self._silent_ends
            )
        except HealingError:
            return -math.inf
        posterior.ask_best(_N_ASKED)
        return _free(kept, ids, rows) - posterior.log_evidence

    @property
    def _silent_ends(self) -> frozenset[int]:
        return frozenset(i for i in self._ends if not self._vocabulary.bytes_of(i))

    def _writes(self, hole: Hole, path: _Path) -> bool:
        text, n_deleted = written(path.request, path.plan, self._model, self._rows)
        line, end, _ = hole.middle.partition("\n")
        if end:
            return text.partition("\n")[0] == line
        wanted, made = line + hole.suffix, text + hole.suffix[n_deleted:]
        return made.partition("\n")[0] == wanted.partition("\n")[0]


def written(
    request: CompletionRequest, plan: PromptPlan, model: LoadedModel, on: Rows
) -> tuple[str, int]:
    """The answer, and how many characters behind the cursor it stands in the place of."""
    engine, vocabulary, kv = model.engine, model.engine.vocabulary, on.kv
    stops, special = stop_strings(request, plan), special_tokens(request)
    stream = byte_stream(request, plan, TokenTransducer(vocabulary, stops, special))
    generation = Generation(request, plan, vocabulary, stream, engine, coverings=model.coverings)
    sequence = on.start(plan.kept_ids)
    text = ""
    try:
        while not generation.finished:
            tree = generation.tree(len(engine.tokens(sequence)))
            kv.make_room(len(tree))
            [rows] = engine.evaluate([(sequence, tree)])
            chunk = generation.feed(rows)
            engine.commit(sequence, generation.kept)
            text += chunk.text if chunk is not None else ""
    except BaseException:
        kv.discard(sequence)
        raise
    kv.finish(sequence)
    assert chunk is not None and chunk.result is not None
    edit = chunk.result.edit
    return (text, 0) if edit is None else (edit.text, edit.delete_after)


def _has_cover(covers: CoverTree, ids: Ids, bytes_of: Callable[[int], bytes]) -> bool:
    """Whether the tree has the cover that the tokens begin with."""
    children = {
        (parent, token_id): node
        for node, (parent, token_id) in enumerate(zip(covers.parents, covers.tokens, strict=True))
    }
    node, end = ROOT, 0
    for token_id in ids:
        end += len(bytes_of(token_id))
        if end > len(covers.pending):
            break
        found = children.get((node, token_id))
        if found is None:
            return False
        node = found
    return True


def _free(kept: Ids, ids: Ids, rows: Mapping[Ids, Row]) -> float:
    return sum(float(rows[kept + ids[:n]][token_id]) for n, token_id in enumerate(ids))


def _log_sum(log_values: Row) -> float:
    highest = float(log_values.max())
    if highest == -math.inf:
        return highest
    return highest + math.log(float(np.exp(log_values - highest).sum(dtype=np.float64)))
