"""C1 and C2 on the vocabularies of real models, with a model that is made up.

The oracle goes through the whole vocabulary at every node. What the tokenizer makes of the finished
text says whether the covers are complete.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import suture.healing
from support.vocabularies import pulled
from suture.healing import (
    Boundary,
    CanonicalPairs,
    CoverTree,
    Posterior,
    Vocabulary,
    cover_tree,
    log_softmax_row,
    stable_boundary,
)
from suture.server.engine.tokenizer import LlamaTokenizer

pytestmark = pytest.mark.model

NAMES = [
    *("vocab-starcoder", "vocab-qwen2", "vocab-deepseek-coder"),
    *("vocab-llama-bpe", "vocab-gpt-2", "vocab-llama-spm"),
]
SOURCES = sorted(Path(suture.healing.__file__).parent.glob("*.py"))
TYPED = ["const userNa", "    retu", "import nump", "np.linal", "string_sequenc", "a\n ", "x = "]
N_COMPARED = 200

TokenPath = tuple[int, ...]


class HashModel:
    """A row for every token path: always the same logits, at other tokens."""

    def __init__(self, n_vocab: int) -> None:
        rng = np.random.default_rng(0)
        self._logits = (rng.normal(size=n_vocab) * 6.0).astype(np.float32)

    def row(self, path: TokenPath) -> npt.NDArray[np.float32]:
        shift = zlib.crc32(repr(path).encode()) % len(self._logits)
        return log_softmax_row(np.roll(self._logits, shift))


class Real:
    """A vocabulary, what its tokenizer makes of texts, and every drawable token's bytes."""

    def __init__(self, path: Path) -> None:
        self.vocabulary = Vocabulary.from_gguf(path)
        self._tokenizer = LlamaTokenizer(path)
        self.encode = self._tokenizer.encode
        self.pairs = CanonicalPairs(self.vocabulary, self.encode)
        self.model = HashModel(self.vocabulary.n_vocab)
        self.by_first_byte: dict[int, list[tuple[bytes, int]]] = {}
        for token_id in self.vocabulary.sorted_ids.tolist():
            piece = self.vocabulary.bytes_of(token_id)
            self.by_first_byte.setdefault(piece[0], []).append((piece, token_id))
        self.close = self._tokenizer.close

    def boundary(self, segment: bytes) -> Boundary:
        return stable_boundary(segment, self.encode, self.vocabulary)

    def tree(self, boundary: Boundary) -> CoverTree:
        return cover_tree(boundary.pending, boundary.kept_ids[-24:], self.vocabulary, self.pairs)

    def posterior(self, tree: CoverTree) -> Posterior:
        rows = {node: self.model.row(tree.path(node)) for node in tree.wants}
        return Posterior(tree, rows, self.vocabulary, self.pairs, self.vocabulary.eog_ids)


@pytest.fixture(scope="module", params=NAMES)
def real(request: pytest.FixtureRequest, model_store: Path) -> Iterator[Real]:
    loaded = Real(pulled([request.param], model_store)[request.param])
    yield loaded
    loaded.close()


def cursors(n_files: int, n_each: int) -> Iterator[tuple[bytes, int]]:
    """Places in this project's sources, between characters."""
    for source in SOURCES[:n_files]:
        text = source.read_bytes()[:3000]
        text = text[: text.rfind(b"\n") + 1]
        chosen = random.Random(source.name).sample(range(1, len(text)), n_each)
        yield from ((text, at) for at in chosen if text[at] & 0xC0 != 0x80)


def test_c1_the_tokens_of_the_finished_text_begin_with_one_cover(real: Real) -> None:
    for text, at in cursors(12, 8):
        boundary = real.boundary(text[:at])
        tree = real.tree(boundary)
        ids = real.encode(text)
        assert tuple(ids[: len(boundary.kept_ids)]) == boundary.kept_ids
        found = list(covers_in(tree, ids[len(boundary.kept_ids) :][:64], real))
        assert tree.is_filtered and tree.exact_ends and len(found) == 1, (text[at - 20 : at], found)


def covers_in(tree: CoverTree, ids: Sequence[int], real: Real) -> Iterator[TokenPath]:
    """The beginnings of these tokens that are covers."""
    nodes = {tree.path(node): node for node in tree.wants}
    for n in range(len(ids) + 1):
        path = tuple(ids[:n])
        if nodes.get(path) in tree.exact_ends and n < len(ids):
            if real.pairs.extends(tree.context(nodes[path]), ids[n]):
                yield path
        node = nodes.get(path[:-1]) if path else None
        if node is not None and real.vocabulary.rank[path[-1]] in tree.crossing[node + 1]:
            if real.pairs.extends(tree.context(node), path[-1]):
                yield path


def test_c1_c2_the_posterior_is_that_of_the_whole_vocabulary(real: Real) -> None:
    n_compared = 0
    for segment in [*(text[:at] for text, at in cursors(4, 3)), *map(str.encode, TYPED)]:
        boundary = real.boundary(segment)
        tree = real.tree(boundary)
        posterior = real.posterior(tree)
        bound = posterior.tv_bound
        ours, theirs = heaviest(posterior), brute_force(tree, real)

        assert not tree.left_out
        total = sum(theirs.values())
        likeliest = sorted(theirs, key=theirs.__getitem__, reverse=True)[:N_COMPARED]
        least = theirs[likeliest[-1]] if len(likeliest) == N_COMPARED else 0.0
        for path in likeliest:
            # What is bounded is how far the whole is off; an exact end by more of its own.
            is_end = b"".join(map(real.vocabulary.bytes_of, path)) == tree.pending
            off = (bound + 1e-5) * total if is_end else 1e-5 * theirs[path]
            assert abs(ours.get(path, 0.0) - theirs[path]) <= off, path
        assert {path for path, weight in ours.items() if weight > least * 1.01} <= theirs.keys()
        n_compared += len(likeliest)
    assert n_compared > 1000


def heaviest(posterior: Posterior) -> dict[TokenPath, float]:
    """The canonical covers that weigh most, each with its weight."""
    weights = {}
    for index in posterior.ask_best(N_COMPARED + 50).tolist():
        cover = posterior.cover(index)
        path = posterior.tree.path(cover.node)
        last = () if cover.token_id is None else (cover.token_id,)
        weights[(*path, *last)] = math.exp(posterior.log_weights[index])
    return weights


def brute_force(tree: CoverTree, real: Real) -> dict[TokenPath, float]:
    """The canonical covers that may weigh most, by going through all tokens at every node."""
    weights: dict[TokenPath, float] = {}
    open_paths: list[tuple[TokenPath, float]] = [((), 0.0)]
    while open_paths:
        path, prior = open_paths.pop()
        row = real.model.row(path)
        context = (*tree.left_ids, *path)
        rest = tree.pending[len(b"".join(map(real.vocabulary.bytes_of, path))) :]
        if not rest:
            weights[path] = math.exp(prior) * canonical_share(row, context, real)
            continue
        pieces = real.by_first_byte[rest[0]]
        passing = [i for piece, i in pieces if piece.startswith(rest) and piece != rest]
        passing.sort(key=row.tolist().__getitem__, reverse=True)
        canonical = (i for i in passing if real.pairs.extends(context, i))
        taken = list(islice(canonical, N_COMPARED))
        weights |= {(*path, i): math.exp(prior + float(row[i])) for i in taken}
        inner = [i for piece, i in pieces if rest.startswith(piece)]
        open_paths += [
            ((*path, i), prior + float(row[i])) for i in inner if real.pairs.extends(context, i)
        ]
    return weights


def canonical_share(row: npt.NDArray[np.float32], context: TokenPath, real: Real) -> float:
    """All but a millionth of it."""
    ends = real.vocabulary.eog_ids
    share, asked = 0.0, 0.0
    for token_id in np.argsort(-row)[:5000].tolist():
        if asked > 1.0 - 1e-6:
            break
        prob = math.exp(float(row[token_id]))
        asked += prob
        with_text = bool(real.vocabulary.bytes_of(token_id))
        if token_id in ends or (with_text and real.pairs.extends(context, token_id)):
            share += prob
    return share


def test_typed_in_any_pieces_the_covers_are_the_same(real: Real) -> None:
    """Key by key, all pairs known by then; at once, with none known."""
    text = SOURCES[0].read_bytes()[:400]
    new = CanonicalPairs(real.vocabulary, real.encode)
    trees = [real.tree(real.boundary(text[:at])) for at in range(300, 330)]
    for at, tree in zip(range(300, 330, 7), trees[::7], strict=True):
        boundary = real.boundary(text[:at])
        left_ids = boundary.kept_ids[-24:]
        assert cover_tree(boundary.pending, left_ids, real.vocabulary, new) == tree


def test_a_cursor_inside_a_character_still_has_covers(real: Real) -> None:
    """Where no token path ends there, no cover is an exact end."""
    text = "x = '我很感谢' # é 👩‍👩‍👧 မင်္".encode()
    for at, (_, after) in enumerate(pairwise(text), 1):
        tree = real.tree(real.boundary(text[:at]))
        posterior = real.posterior(tree)
        assert len(posterior.ask_best(1)) == 1
        assert tree.exact_ends or after & 0xC0 == 0x80


def test_c1_blanks_are_split_as_what_follows_them_has_it(real: Real) -> None:
    """Not two and one before ` x`, though a digit may follow these."""
    ids = [real.vocabulary.ids_of(piece) for piece in (b"  ", b" ", b" x")]
    if not all(ids):
        return
    (two, *_), (one, *_), (x, *_) = ids
    assert tuple(real.encode(b"=\n    x"))[-3:] != (two, one, x)
    left = real.encode(b"=\n")[-1:]
    assert not all(
        real.pairs.extends([*left, *before], i) for before, i in (((two,), one), ((two, one), x))
    )
