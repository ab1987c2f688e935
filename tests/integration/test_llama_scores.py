"""The scores of a real model's text are those of its tokens, given the text before the cursor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from support.toy import toy_generation
from suture.healing import CanonicalPairs, CoverTree, Vocabulary, cover_tree, log_softmax_row
from suture.server.decoding.generation import Generation
from suture.server.engine.llama import LlamaEngine
from suture.server.engine.protocol import Logits
from suture.server.request import CompletionRequest, SamplingParams, ScoredToken

pytestmark = pytest.mark.model

Path = tuple[int, ...]
CURSORS = [
    "import numpy as np\nimport matplotlib.pyp",
    'const userName = "Ada";\nconsole.log(userNa',
    "for index, value in enum",
]


def recorded(
    generation: Generation, engine: LlamaEngine
) -> tuple[list[ScoredToken], Path, dict[Path, Logits]]:
    """The scores, the new tokens, and each row that they were drawn from by what stands before it.

    Another evaluation of the same tokens would be another model: how many are evaluated at once
    moves the logits of a quantized one.
    """
    sequence = engine.open()
    scores, ids, rows = list[ScoredToken](), list[int](), dict[Path, Logits]()
    while not generation.finished:
        before = tuple(engine.tokens(sequence))
        tree = generation.tree(len(before))
        [found] = engine.evaluate([(sequence, tree)])
        for node, row in zip(tree.wants, found, strict=True):
            path = (tree.tokens[at] for at in tree.path(node))
            rows[(*before, *path)] = log_softmax_row(row.astype(np.float64))
        chunk = generation.feed(found)
        engine.commit(sequence, generation.kept)
        if chunk is not None:
            scores += chunk.scores
            ids += chunk.token_ids
    engine.release(sequence)
    return scores, tuple(ids), rows


def evidence(
    covers: CoverTree,
    kept: Path,
    rows: Mapping[Path, Logits],
    vocabulary: Vocabulary,
    pairs: CanonicalPairs,
) -> float:
    """The probability of all covers together, of tokens that matter one by one."""
    total = 0.0
    ends = vocabulary.eog_ids.intersection(vocabulary.silent_ids)
    for node in covers.wants:
        rest = covers.pending[covers.end_of(node) :]
        row = np.exp(rows[(*kept, *covers.path(node))])
        prior = math.exp(_joint(kept, covers.path(node), rows))
        order = np.argsort(-row)
        # What comes behind is less than that together.
        n_asked = int(np.searchsorted(np.cumsum(row[order]), 1.0 - 1e-4)) + 1
        for token_id in order[:n_asked].tolist():
            piece = vocabulary.bytes_of(token_id)
            is_end = token_id in ends and not rest
            may_come = piece.startswith(rest) and len(piece) > len(rest)
            if is_end or (may_come and pairs.extends(covers.context(node), token_id)):
                total += prior * float(row[token_id])
    return total


def _joint(kept: Path, ids: Sequence[int], rows: Mapping[Path, Logits]) -> float:
    return sum(float(rows[(*kept, *ids[:n])][token_id]) for n, token_id in enumerate(ids))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_c1_the_scores_add_up_to_those_of_the_aligned_text_less_the_evidence(
    temperature: float, engine: LlamaEngine
) -> None:
    vocabulary = engine.vocabulary
    pairs = CanonicalPairs(vocabulary, engine.encode)
    for prefix in CURSORS:
        sampling = SamplingParams(temperature=temperature, seed=1)
        request = CompletionRequest(prefix, max_tokens=5, n_probs=5, shape="raw", sampling=sampling)
        generation = toy_generation(request, engine)
        scores, ids, rows = recorded(generation, engine)
        plan = generation.plan
        covers = cover_tree(plan.pending, plan.left_ids, vocabulary, pairs)
        said = b"".join(map(vocabulary.bytes_of, ids))
        assert plan.pending and said.startswith(plan.pending)
        if temperature == 0.0:
            # As the tokenizer cuts the whole text, up to where more text may change that.
            whole = engine.encode(prefix.encode() + said.removeprefix(plan.pending))
            with_text = [i for i in (*plan.kept_ids, *ids[:2]) if vocabulary.bytes_of(i)]
            assert whole[: len(with_text)] == with_text
        total = evidence(covers, plan.kept_ids, rows, vocabulary, pairs)
        expected = _joint(plan.kept_ids, ids, rows) - math.log(total)
        assert sum(score.logprob for score in scores) == pytest.approx(expected, abs=1e-3)
        assert b"".join(score.piece for score in scores) == said.removeprefix(plan.pending)
        assert all(score.top[0].logprob >= score.logprob - 1e-6 for score in scores)
