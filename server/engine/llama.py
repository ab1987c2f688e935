"""The engine over llama.cpp: one model, one context, one thread.

llama.cpp answers a wrong call with an abort or a crash of the process, so every call is checked
against what it can take first. The guards, each with a subprocess test of what happens without:

E1  a batch holds 1 to n_batch tokens
E2  a sequence id is one that was opened, below n_seq_max
E3  rows are read only of nodes that asked for them, and no more than n_rows are asked for
E4  n_rows >= n_seq_max at construction
E5  every token of a batch belongs to at least one sequence
E6  a token is accepted by a grammar only if the grammar permits it (`grammar.py`)
E7  a grammar that does not compile is an error, not a null pointer (`grammar.py`)
E8  a model file that does not load is an error, not a null pointer
E9  an abort of the library does not start a debugger (`libllama.py`)

After any return code but 0, every sequence of the batch is cut back to what it held before: the
library leaves positions behind that were never computed. A memory with states cannot be cut back,
and to make room it moves the states of sequences that are not in the batch, which a failure leaves
half moved: there every sequence is emptied, and an evaluation is never aborted.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from suture.healing import UnsupportedVocabulary, Vocabulary
from suture.healing.gguf import GgufError
from suture.server.engine import libllama, tokenizer
from suture.server.engine.abort import AbortFlag, abort_callback
from suture.server.engine.cells import CellCount, Cells
from suture.server.engine.grammar import Grammar, check_grammar
from suture.server.engine.memory import memory_of, shortest_cut
from suture.server.engine.protocol import (
    Aborted,
    Batch,
    Logits,
    SavedSequence,
    SequenceId,
    check_batch,
)
from suture.server.engine.tree import TokenTree
from suture.server.errors import EngineError, ModelError

N_BATCH = 512
N_ROWS = 64
N_SEQ_MAX = 64
N_STATES = 8  # each is as large as some hundreds of tokens' cells, and is there from the start
_PATH_ID = N_STATES  # one more, for the paths of trees
DEFAULT_CTX = 8192

_RC_NO_ROOM = 1
_RC_ABORTED = 2
_FLASH_ATTENTION_AUTO = -1
_BYTES = ctypes.POINTER(ctypes.c_uint8)


@dataclass(slots=True)
class _Evaluated:
    """The tree evaluated last on a sequence, with the sequence ids lent to its leaves."""

    tree: TokenTree
    leaf_ids: dict[int, int]


@dataclass(slots=True)
class _Sequence:
    tokens: list[int] = field(default_factory=list)
    cells: Cells = field(default_factory=list)
    evaluated: _Evaluated | None = None


class LlamaEngine:
    """Drives one GGUF model. Make it, use it and close it on one and the same thread.

    `n_ctx` 0 is the model's training length, at most 8192. `n_gpu_layers` -1 offloads what fits.
    `on_progress` is called with the share loaded, 0 to 1; False stops the loading. `vocab` is the
    library's own vocabulary pointer, for a `Grammar`; `vocabulary` is the file's, if it has been
    read before. Raises `ModelError` in one line for a file that is missing, broken or not a
    text-generating model.
    """

    def __init__(
        self,
        path: Path,
        *,
        n_threads: int,
        n_ctx: int = 0,
        n_gpu_layers: int = -1,
        on_progress: Callable[[float], bool] | None = None,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        self._lib = libllama.load()
        self._thread = threading.get_ident()
        self.vocabulary = read_vocabulary(path) if vocabulary is None else vocabulary
        self._model = _load_model(self._lib, path, n_gpu_layers, on_progress)
        self.device = libllama.device(n_gpu_layers)
        self.vocab = self._lib.llama_model_get_vocab(self._model)
        self.memory = memory_of(self._lib, self._model)
        self.can_branch = self.memory in ("full", "sliding")
        self.n_sequences = N_SEQ_MAX if self.can_branch else N_STATES
        self._n_window = int(self._lib.llama_model_n_swa(self._model))
        self._abort_callback = abort_callback(self._lib.ggml_abort_callback)
        try:
            self._check_vocabulary(path)
            self._context = self._make_context(path, n_ctx, n_threads)
        except BaseException:
            self._lib.llama_model_free(self._model)
            raise
        self._memory = self._lib.llama_get_memory(self._context)
        self.n_ctx = int(self._lib.llama_n_ctx(self._context))
        self.n_batch = int(self._lib.llama_n_batch(self._context))
        self.n_rows = N_ROWS
        self.n_params = int(self._lib.llama_model_n_params(self._model))
        self.size_bytes = int(self._lib.llama_model_size(self._model))
        self._row_type = ctypes.c_float * self.vocabulary.n_vocab
        self._batch = _Batch(self._lib, self.n_batch, N_SEQ_MAX)
        self._free_ids = list(range(self.n_sequences - 1, -1, -1))
        self._sequences: dict[SequenceId, _Sequence] = {}
        self._cells = CellCount(self.n_ctx)

    @property
    def n_free(self) -> int:
        return self._cells.n_free

    def encode(self, piece: bytes) -> list[int]:
        return tokenizer.encode(self.vocab, piece)

    def encode_markup(self, piece: bytes) -> list[int]:
        return tokenizer.encode_markup(self.vocab, piece)

    def decode(self, token_ids: Sequence[int]) -> str:
        return tokenizer.decode(self.vocab, token_ids)

    def decode_markup(self, token_ids: Sequence[int]) -> str:
        return tokenizer.decode_markup(self.vocab, token_ids)

    def check_grammar(self, gbnf: str) -> None:
        check_grammar(self.vocab, gbnf)

    def grammar(self, gbnf: str) -> Grammar:
        return Grammar(self.vocab, gbnf, self.vocabulary)

    def open(self) -> SequenceId:
        self._on_engine_thread()
        sequence = SequenceId(self._lend_id())
        self._sequences[sequence] = _Sequence()
        return sequence

    def fork(self, sequence: SequenceId, n_tokens: int) -> SequenceId:
        self._on_engine_thread()
        source = self._get(sequence)
        self._drop_evaluated(sequence)
        if 0 < n_tokens < self.shortest(sequence):
            raise ValueError(f"sequence {sequence} cannot be forked at {n_tokens} tokens")
        fork = self.open()
        if n_tokens > 0:
            self._lib.llama_memory_seq_cp(self._memory, sequence, fork, 0, n_tokens)
        state = self._sequences[fork]
        state.tokens, state.cells = source.tokens[:n_tokens], source.cells[:n_tokens]
        self._cells.share(state.cells)
        return fork

    def shortest(self, sequence: SequenceId) -> int:
        n_tokens = len(self._get(sequence).tokens)
        return self._shortest(sequence) if self.can_branch else n_tokens

    def save(self, sequence: SequenceId) -> SavedSequence:
        self._on_engine_thread()
        state = self._get(sequence)
        self._drop_evaluated(sequence)
        size = int(self._lib.llama_state_seq_get_size(self._context, sequence))
        saved = np.empty(size, np.uint8)
        n_bytes = self._lib.llama_state_seq_get_data(
            self._context, saved.ctypes.data_as(_BYTES), size, sequence
        )
        if n_bytes != size:
            raise EngineError(f"a sequence of {len(state.tokens)} tokens could not be saved")
        # Of a window that slides only its last place is saved.
        shortest = 0 if self.memory == "full" else len(state.tokens)
        return SavedSequence(tuple(state.tokens), saved, shortest)

    def load(self, saved: SavedSequence) -> SequenceId:
        self._on_engine_thread()
        if len(saved.tokens) > self.n_free:
            raise EngineError(f"no room left in the context of {self.n_ctx} tokens")
        sequence = self.open()
        n_bytes = self._lib.llama_state_seq_set_data(
            self._context, saved.state.ctypes.data_as(_BYTES), len(saved.state), sequence
        )
        if n_bytes != len(saved.state):
            self.release(sequence)
            raise EngineError(f"a sequence of {len(saved.tokens)} tokens could not be loaded")
        self._extend(self._sequences[sequence], saved.tokens)
        return sequence

    def only_here(self, sequence: SequenceId) -> int:
        return self._cells.n_only(self._get(sequence).cells)

    def tokens(self, sequence: SequenceId) -> Sequence[int]:
        return self._get(sequence).tokens

    def evaluate(self, batch: Batch, abort: AbortFlag | None = None) -> list[Logits]:
        self._on_engine_thread()
        self._check_batch(batch)
        if self.can_branch:
            flag = AbortFlag() if abort is None else abort
            self._lib.llama_set_abort_callback(self._context, self._abort_callback, flag.address)
        for sequence, _tree in batch:
            self._drop_evaluated(sequence)
        try:
            if self.can_branch or all(tree.stem_length() == len(tree) for _, tree in batch):
                return self._evaluate_at_once(batch)
            return self._evaluate_paths(batch)
        except BaseException:
            for sequence, _tree in batch:
                self._drop_evaluated(sequence)
            raise

    def commit(self, sequence: SequenceId, node: int) -> None:
        self._on_engine_thread()
        state = self._get(sequence)
        if state.evaluated is None or not 0 <= node < len(state.evaluated.tree):
            raise ValueError(f"sequence {sequence} has no evaluated node {node}")
        tree, leaf_ids = state.evaluated.tree, state.evaluated.leaf_ids
        path = tree.path(node)
        if not self.can_branch:
            path = path[: tree.stem_length()]
        start, end = len(state.tokens), len(state.tokens) + len(path)
        if leaf_ids:
            winner = next(leaf for leaf in leaf_ids if node in tree.path(leaf))
            self._lib.llama_memory_seq_cp(self._memory, leaf_ids[winner], sequence, start, end)
        self._extend(state, [tree.tokens[i] for i in path])
        self._drop_evaluated(sequence)

    def truncate(self, sequence: SequenceId, n_tokens: int) -> int:
        self._on_engine_thread()
        state = self._get(sequence)
        self._drop_evaluated(sequence)
        if n_tokens < len(state.tokens):
            self._forget_after(sequence, n_tokens)
        return len(state.tokens)

    def release(self, sequence: SequenceId) -> None:
        self._on_engine_thread()
        state = self._get(sequence)
        self._drop_evaluated(sequence)
        self._lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        self._cut(state, 0)
        del self._sequences[sequence]
        self._free_ids.append(sequence)

    def close(self) -> None:
        self._on_engine_thread()
        self._batch.free()
        self._lib.llama_free(self._context)
        self._lib.llama_model_free(self._model)
        self._sequences.clear()

    def _on_engine_thread(self) -> None:
        # A second OpenMP pool halves the speed of both, and the context is not thread-safe.
        if threading.get_ident() != self._thread:
            raise RuntimeError("the engine was called on a thread that did not make it")

    def _get(self, sequence: SequenceId) -> _Sequence:
        try:
            return self._sequences[sequence]
        except KeyError:
            raise ValueError(f"sequence {sequence} is not open") from None

    def _lend_id(self) -> int:
        if not self._free_ids:
            raise EngineError(f"all {self.n_sequences} sequences are in use")
        return self._free_ids.pop()

    def _check_batch(self, batch: Batch) -> None:
        check_batch(batch, self.n_batch, self.vocabulary.n_vocab)
        n_rows = sum(len(set(tree.wants)) for _, tree in batch)
        if n_rows > self.n_rows:
            raise ValueError(f"a batch returns up to {self.n_rows} rows, not {n_rows}")
        for sequence, tree in batch:
            self._get(sequence)
            if not self.can_branch and not tree.stem_length():
                raise ValueError("this architecture evaluates trees with one first token only")

    def _evaluate_at_once(self, batch: Batch) -> list[Logits]:
        rows_at = self._fill(batch)
        self._decode()
        return [self._read_rows(indices) for indices in rows_at]

    def _evaluate_paths(self, batch: Batch) -> list[Logits]:
        """The stems at once, then what stands on each, path by path: states cannot be cut back."""
        stems = [(sequence, tree.stem()) for sequence, tree in batch]
        # The next evaluation overwrites their rows.
        rows_of = [rows.copy() for rows in self._evaluate_at_once(stems)]
        found = []
        for (sequence, tree), (_, stem), of_stem in zip(batch, stems, rows_of, strict=True):
            rows = dict(zip(stem.wants, of_stem, strict=True))
            for leaf in tree.leaves() if len(stem) < len(tree) else ():
                rows |= self._evaluate_path(sequence, tree, tree.path(leaf)[len(stem) :])
            self._sequences[sequence].evaluated = _Evaluated(tree, {})
            found.append(self._stack([rows[node] for node in tree.wants]))
        return found

    def _evaluate_path(
        self, sequence: SequenceId, tree: TokenTree, path: list[int]
    ) -> dict[int, Logits]:
        """The wanted rows of a path on a tree's stem, which was evaluated on its sequence."""
        wanted = [at for at, node in enumerate(path) if node in tree.wants]
        chain = TokenTree.chain([tree.tokens[node] for node in path], wanted)
        start = len(self._sequences[sequence].tokens) + tree.stem_length()
        self._lib.llama_memory_seq_cp(self._memory, sequence, _PATH_ID, -1, -1)
        try:
            self._batch.clear()
            indices = self._batch.add(chain, start, [[_PATH_ID]] * len(chain))
            self._decode()
            rows = self._read_rows(indices).copy()
        finally:
            self._lib.llama_memory_seq_rm(self._memory, _PATH_ID, -1, -1)
        return {path[at]: row for at, row in zip(wanted, rows, strict=True)}

    def _fill(self, batch: Batch) -> list[list[int]]:
        """Write the batch; for each tree the batch index of each wanted node."""
        self._batch.clear()
        rows_at = []
        for sequence, tree in batch:
            state = self._sequences[sequence]
            state.evaluated = _Evaluated(tree, {})
            owners = self._owners(sequence, tree, state.evaluated.leaf_ids)
            rows_at.append(self._batch.add(tree, len(state.tokens), owners))
        return rows_at

    def _owners(
        self, sequence: SequenceId, tree: TokenTree, leaf_ids: dict[int, int]
    ) -> list[list[int]]:
        """For each node the sequence ids it belongs to: the leaves below it, or the sequence.

        A branching tree's nodes must not carry the trunk's own id: sequences that share a token
        have to hold the same positions. So the leaves get copies of the trunk.
        """
        if tree.is_chain:
            return [[sequence]] * len(tree)
        owners: list[list[int]] = [[] for _ in tree.tokens]
        for leaf in tree.leaves():
            leaf_id = leaf_ids[leaf] = self._lend_id()
            self._lib.llama_memory_seq_cp(self._memory, sequence, leaf_id, -1, -1)
            for node in tree.path(leaf):
                owners[node].append(leaf_id)
        return owners

    def _decode(self) -> None:
        rc = self._lib.llama_decode(self._context, self._batch.raw)
        if rc == _RC_ABORTED:
            raise Aborted("the evaluation was aborted")
        if rc == _RC_NO_ROOM:
            raise EngineError(f"no room left in the context of {self.n_ctx} tokens")
        if rc != 0:
            if not self.can_branch:
                for sequence in self._sequences:
                    self._forget_after(sequence, 0)
            raise EngineError(f"llama_decode failed with code {rc}: {libllama.last_error()}")

    def _read_rows(self, indices: list[int]) -> Logits:
        return self._stack([self._row(index) for index in indices])

    def _stack(self, rows: list[Logits]) -> Logits:
        if len(rows) == 1:
            return rows[0][np.newaxis]
        return np.stack(rows) if rows else np.empty((0, self.vocabulary.n_vocab), np.float32)

    def _row(self, index: int) -> Logits:
        pointer = self._lib.llama_get_logits_ith(self._context, index)
        if not pointer:
            raise EngineError(f"llama.cpp returned no logits for row {index}")
        address = ctypes.cast(pointer, ctypes.POINTER(self._row_type))
        return np.ctypeslib.as_array(address.contents)

    def _drop_evaluated(self, sequence: SequenceId) -> None:
        """Cut a sequence back to its committed tokens and take the lent ids back."""
        state = self._sequences[sequence]
        if state.evaluated is None:
            return
        for leaf_id in state.evaluated.leaf_ids.values():
            self._lib.llama_memory_seq_rm(self._memory, leaf_id, -1, -1)
            self._free_ids.append(leaf_id)
        state.evaluated = None
        self._forget_after(sequence, len(state.tokens))

    def _forget_after(self, sequence: SequenceId, n_tokens: int) -> None:
        """Keep a sequence's first tokens, or none: nobody must go on from a part of them."""
        is_whole = n_tokens >= self._shortest(sequence)
        is_cut = self._lib.llama_memory_seq_rm(self._memory, sequence, n_tokens, -1)
        if not (is_whole and is_cut):
            n_tokens = 0
            self._lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        self._cut(self._sequences[sequence], n_tokens)

    def _shortest(self, sequence: SequenceId) -> int:
        if self.memory != "sliding":
            return 0
        oldest = self._lib.llama_memory_seq_pos_min(self._memory, sequence)
        return shortest_cut(oldest, self._n_window)

    def _extend(self, state: _Sequence, tokens: Sequence[int]) -> None:
        state.tokens.extend(tokens)
        state.cells.extend(self._cells.take(len(tokens)))

    def _cut(self, state: _Sequence, n_tokens: int) -> None:
        self._cells.drop(state.cells[n_tokens:])
        del state.tokens[n_tokens:]
        del state.cells[n_tokens:]

    def _make_context(self, path: Path, n_ctx: int, n_threads: int) -> Any:
        lib = self._lib
        params = lib.llama_context_default_params()
        params.n_ctx = n_ctx or min(int(lib.llama_model_n_ctx_train(self._model)), DEFAULT_CTX)
        params.n_batch = params.n_ubatch = N_BATCH
        params.n_seq_max = N_SEQ_MAX if self.can_branch else N_STATES + 1
        params.n_outputs_max = params.n_outputs_max_per_seq = N_ROWS
        params.n_threads = params.n_threads_batch = n_threads
        params.flash_attn_type = _FLASH_ATTENTION_AUTO
        params.kv_unified = True  # tokens of a tree belong to several sequences at once
        params.swa_full = True  # or a sequence that was cut back would lack its window
        if params.n_outputs_max < params.n_seq_max:
            raise ValueError("llama.cpp aborts where n_outputs_max < n_seq_max")
        context = lib.llama_init_from_model(self._model, params)
        if not context:
            raise ModelError(
                f"{path}: no context of {params.n_ctx} tokens could be made "
                f"({libllama.last_error()}); try a smaller --ctx"
            )
        return context

    def _check_vocabulary(self, path: Path) -> None:
        n_vocab = int(self._lib.llama_vocab_n_tokens(self.vocab))
        if n_vocab != self.vocabulary.n_vocab:
            raise ModelError(
                f"{path}: the model has {n_vocab} rows of logits, "
                f"its vocabulary {self.vocabulary.n_vocab}"
            )


class _Batch:
    """A llama_batch whose scalar fields are written through numpy views."""

    def __init__(self, lib: Any, n_tokens: int, n_seq_max: int) -> None:
        self._lib = lib
        self.raw = lib.llama_batch_init(n_tokens, 0, n_seq_max)
        self._token = np.ctypeslib.as_array(self.raw.token, (n_tokens,))
        self._pos = np.ctypeslib.as_array(self.raw.pos, (n_tokens,))
        self._n_seq_id = np.ctypeslib.as_array(self.raw.n_seq_id, (n_tokens,))
        self._logits = np.ctypeslib.as_array(self.raw.logits, (n_tokens,))

    def clear(self) -> None:
        self.raw.n_tokens = 0

    def add(self, tree: TokenTree, start: int, owners: list[list[int]]) -> list[int]:
        """Append a tree whose first tokens have position `start`; indices of its wanted nodes."""
        depths = tree.depths()
        # Breadth first: a sequence's positions must come in rising order.
        order = sorted(range(len(tree)), key=depths.__getitem__)
        first, last = self.raw.n_tokens, self.raw.n_tokens + len(tree)
        self._token[first:last] = [tree.tokens[node] for node in order]
        self._pos[first:last] = [start + depths[node] for node in order]
        wanted = set(tree.wants)
        self._logits[first:last] = [node in wanted for node in order]
        for index, node in enumerate(order, first):
            self._write_owners(index, owners[node])
        self.raw.n_tokens = last
        index_of = {node: first + i for i, node in enumerate(order)}
        return [index_of[node] for node in tree.wants]

    def _write_owners(self, index: int, sequence_ids: list[int]) -> None:
        if not sequence_ids:
            raise ValueError("a token that belongs to no sequence crashes llama.cpp")
        self._n_seq_id[index] = len(sequence_ids)
        target = self.raw.seq_id[index]
        for i, sequence_id in enumerate(sequence_ids):
            target[i] = sequence_id

    def free(self) -> None:
        self._lib.llama_batch_free(self.raw)


def read_vocabulary(path: Path, cache: Path | None = None) -> Vocabulary:
    """The vocabulary of a model file, as `Vocabulary.from_gguf` reads it.

    Raises `ModelError` where it cannot be had.
    """
    if not path.is_file():
        raise ModelError(f"{path}: no such model file")
    try:
        return Vocabulary.from_gguf(path, cache)
    except (GgufError, UnsupportedVocabulary) as error:
        raise ModelError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from error


def _load_model(
    lib: Any, path: Path, n_gpu_layers: int, on_progress: Callable[[float], bool] | None
) -> Any:
    params = lib.llama_model_default_params()
    params.n_gpu_layers = n_gpu_layers
    # Virtual machines announce AMX and then die of it: an illegal instruction in the first matrix
    # product. It is used only through the extra buffer types, with which repacking goes too.
    params.use_extra_bufts = not libllama.has_amx()
    if on_progress is not None:
        report = on_progress
        params.progress_callback = lib.llama_progress_callback(lambda share, _data: report(share))
    model = lib.llama_model_load_from_file(os.fsencode(path), params)
    if not model:
        raise ModelError(f"{path}: llama.cpp cannot load it ({libllama.last_error()})")
    if not lib.llama_model_has_decoder(model) or lib.llama_model_is_diffusion(model):
        lib.llama_model_free(model)
        raise ModelError(f"{path}: not a model that generates text token by token")
    return model
