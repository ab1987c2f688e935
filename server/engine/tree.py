"""A tree of tokens, the unit of all evaluation: prefill, covers, drafts, candidates are trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ROOT = -1


@dataclass(frozen=True, slots=True)
class TokenTree:
    """Tokens to evaluate on top of what a sequence holds.

    `parents[i]` is the index of node i's parent, smaller than i, or `ROOT` for a node that
    follows the sequence's last token. `wants` are the nodes whose logits rows are returned,
    in that order. A chain is the tree in which each node follows the one before it.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    wants: tuple[int, ...]

    @classmethod
    def chain(cls, tokens: Sequence[int], wants: Sequence[int] | None = None) -> TokenTree:
        """One path; the last node's row is wanted unless `wants` says otherwise."""
        n = len(tokens)
        if wants is None:
            wants = (n - 1,) if n else ()
        return cls(tuple(tokens), tuple(range(-1, n - 1)), tuple(wants))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_chain(self) -> bool:
        return all(parent == i - 1 for i, parent in enumerate(self.parents))

    def check(self, n_vocab: int) -> None:
        """Raise `ValueError` where the tree is not one, or holds a token no model row has."""
        if len(self.tokens) != len(self.parents):
            raise ValueError(f"{len(self.tokens)} tokens but {len(self.parents)} parents")
        for i, (token, parent) in enumerate(zip(self.tokens, self.parents, strict=True)):
            if not 0 <= token < n_vocab:
                raise ValueError(f"token {token} of node {i} is outside the vocabulary")
            if not ROOT <= parent < i:
                raise ValueError(f"node {i} has parent {parent}, which does not come before it")
        if any(not 0 <= node < len(self.tokens) for node in self.wants):
            raise ValueError("logits are wanted of a node that the tree does not have")

    def depths(self) -> list[int]:
        """Each node's distance from the root; the first tokens have 0."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(0 if parent == ROOT else depths[parent] + 1)
        return depths

    def leaves(self) -> list[int]:
        """The nodes without children, in order."""
        inner = set(self.parents)
        return [i for i in range(len(self.tokens)) if i not in inner]

    def path(self, node: int) -> list[int]:
        """The nodes from a first token down to `node`."""
        path = []
        while node != ROOT:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def trunk_length(self) -> int:
        """How many nodes at the head form one unbranched path whose rows nobody wants.

        The last node never counts: somebody wants what comes after it.
        """
        children = [0] * len(self.tokens)
        for parent in self.parents[1:]:
            if parent == ROOT:
                return 0
            children[parent] += 1
        wanted = set(self.wants)
        for i in range(len(self.tokens) - 1):
            if i in wanted or children[i] != 1 or self.parents[i + 1] != i:
                return i
        return max(len(self.tokens) - 1, 0)

    def stem_length(self) -> int:
        """How many nodes at the head all others stand on, up to the first whose row is wanted.

        It is what a memory that cannot be cut back keeps, whatever of the others is committed.
        """
        return 0 if ROOT in self.parents[1:] else min(self.trunk_length() + 1, len(self.tokens))

    def stem(self) -> TokenTree:
        """The nodes of the stem, with those of its rows that are wanted."""
        n_stem = self.stem_length()
        wants = [node for node in self.wants if node < n_stem]
        return TokenTree.chain(self.tokens[:n_stem], wants)

    def after(self, n_trunk: int) -> TokenTree:
        """What is left on top of the first `n_trunk` nodes, which must be of the trunk."""
        return TokenTree(
            self.tokens[n_trunk:],
            tuple(max(parent - n_trunk, ROOT) for parent in self.parents[n_trunk:]),
            tuple(node - n_trunk for node in self.wants),
        )
