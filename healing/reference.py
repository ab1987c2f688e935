"""Slow, readable twins of the fast modules: the oracles of the property tests.

Each says by enumeration what its twin computes by index, automaton or proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from typing import TypeAlias

from suture.healing.boundary import Encode
from suture.healing.stops import OnStop
from suture.healing.vocabulary import TokenKind, Vocabulary
from suture.healing.windows import MAX_UNREAD, Decode

Path: TypeAlias = tuple[int, ...]

# Vocabulary


def drawable_ids(vocabulary: Vocabulary) -> Iterator[int]:
    """Tokens that healing may draw: ordinary ones, and added ones that are blank."""
    for token_id in range(vocabulary.n_vocab):
        piece, kind = vocabulary.bytes_of(token_id), vocabulary.kind_of(token_id)
        blank = kind is TokenKind.USER_DEFINED and piece.isspace()
        if piece and (blank or kind in (TokenKind.NORMAL, TokenKind.BYTE)):
            yield token_id


def extending_ids(vocabulary: Vocabulary, prefix: bytes) -> set[int]:
    """Drawable tokens that start with `prefix`."""
    return {i for i in drawable_ids(vocabulary) if vocabulary.bytes_of(i).startswith(prefix)}


def proper_prefix_ids(vocabulary: Vocabulary, pending: bytes) -> set[int]:
    """Drawable tokens that `pending` starts with and goes on after."""
    return {
        i
        for i in drawable_ids(vocabulary)
        if pending.startswith(vocabulary.bytes_of(i)) and vocabulary.bytes_of(i) != pending
    }


# Healer


@lru_cache(maxsize=4096)
def is_coverable(vocabulary: Vocabulary, pending: bytes) -> bool:
    """Whether some tokens, the last of which may run over, spell `pending`."""
    return not pending or bool(allowed_ids(vocabulary, pending))


def allowed_ids(vocabulary: Vocabulary, pending: bytes) -> set[int]:
    """Tokens that may come next while `pending` is not empty."""
    return extending_ids(vocabulary, pending) | {
        i
        for i in proper_prefix_ids(vocabulary, pending)
        if is_coverable(vocabulary, pending[len(vocabulary.bytes_of(i)) :])
    }


# Canonical


def merged(data: bytes, merges: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    """What byte-pair encoding makes of a word: always the first merge that fits, leftmost."""
    symbols = [bytes([byte]) for byte in data]
    while fitting := [merge for merge in merges if merge in pairwise(symbols)]:
        at = list(pairwise(symbols)).index(fitting[0])
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    return symbols


def may_go_on(
    ids: Sequence[int], vocabulary: Vocabulary, encode: Encode, continuations: Iterable[bytes]
) -> bool:
    """Whether some continuation of their bytes is tokenized to these tokens and more.

    `encode` reads a text as it stands.
    """
    data = b"".join(map(vocabulary.bytes_of, ids))
    return any(list(encode(data + more))[: len(ids)] == list(ids) for more in continuations)


# Covers


def cover_paths(ids: Sequence[int], vocabulary: Vocabulary, pending: bytes) -> Iterator[Path]:
    """All token paths of these drawable tokens that spell `pending`, the last one running over."""
    for token_id in ids:
        piece = vocabulary.bytes_of(token_id)
        if piece.startswith(pending):
            yield (token_id,)
        elif pending.startswith(piece):
            for path in cover_paths(ids, vocabulary, pending[len(piece) :]):
                yield (token_id, *path)


def cover_masses(
    pending: bytes,
    vocabulary: Vocabulary,
    may_begin: Callable[[Path], bool],
    log_prob: Callable[[Path, int], float],
    end_ids: Collection[int] = (),
) -> dict[Path, float]:
    """The probability of each cover of `pending`, in a model that is asked token by token.

    `may_begin` says which token paths the tokenizer could make. That of an exact end counts with
    what may follow it: tokens of which it could make something, and those that end the text.
    """
    masses = {}
    paths = cover_paths(list(drawable_ids(vocabulary)), vocabulary, pending) if pending else [()]
    with_text = [i for i in range(vocabulary.n_vocab) if vocabulary.bytes_of(i)]
    for path in paths:
        if not all(may_begin(path[:n]) for n in range(1, len(path) + 1)):
            continue
        log_mass = sum(log_prob(path[:n], token_id) for n, token_id in enumerate(path))
        share = 1.0
        if sum(len(vocabulary.bytes_of(token_id)) for token_id in path) == len(pending):
            following = [i for i in with_text if i not in end_ids and may_begin((*path, i))]
            share = sum(math.exp(log_prob(path, i)) for i in (*following, *end_ids))
        masses[path] = math.exp(log_mass) * share
    return masses


def overhang_masses(
    pending: bytes,
    vocabulary: Vocabulary,
    may_begin: Callable[[Path], bool],
    log_prob: Callable[[Path, int], float],
    end_ids: Collection[int] = (),
) -> dict[bytes, float]:
    """The probability of each overhang, an exact end with its best next token (C3)."""
    masses: dict[bytes, float] = {}
    for path, mass in cover_masses(pending, vocabulary, may_begin, log_prob, end_ids).items():
        data = b"".join(map(vocabulary.bytes_of, path))
        overhang = data[len(pending) :]
        if not overhang:
            log_mass = sum(log_prob(path[:n], token_id) for n, token_id in enumerate(path))
            following = [
                i
                for i in range(vocabulary.n_vocab)
                if i in end_ids or (vocabulary.bytes_of(i) and may_begin((*path, i)))
            ]
            if not following:
                continue
            best = max(following, key=lambda i: log_prob(path, i))
            overhang = b"" if best in end_ids else vocabulary.bytes_of(best)
            mass = math.exp(log_mass + log_prob(path, best))
        masses[overhang] = masses.get(overhang, 0.0) + mass
    return masses


# Boundary


def count_stable(segment: bytes, encode: Encode, continuations: Iterable[bytes]) -> int:
    """How many of the segment's tokens every continuation shares (B2, by enumeration)."""
    ids = list(encode(segment))
    n_stable = len(ids)
    for continuation in continuations:
        longer = list(encode(segment + continuation))
        while longer[:n_stable] != ids[:n_stable]:
            n_stable -= 1
    return n_stable


# Detokenizer


@cache
def character_prefixes() -> frozenset[bytes]:
    """All proper prefixes of the encodings of characters: 51 + 1,216 + 16,384."""
    points = [*range(0x80, 0xD800, 0x40), *range(0xE000, 0x110000, 0x40)]
    encodings = [chr(point).encode() for point in points]
    return frozenset(data[:n] for data in encodings for n in range(1, len(data)))


def incomplete_tail(data: bytes) -> int:
    """Length of the longest tail that may still become a character."""
    tails = (data[start:] for start in range(max(0, len(data) - 3), len(data)))
    return max((len(tail) for tail in tails if tail in character_prefixes()), default=0)


def held_bytes(data: bytes, stops: Sequence[str], on_stop: OnStop) -> int:
    """How many bytes at the end of `data` must be held back."""
    starts = {stop.encode()[:n] for stop in stops for n in range(1, len(stop.encode()))}
    possible = [n for n in range(1, len(data) + 1) if data[-n:] in starts]
    if on_stop is OnStop.INCLUDE:
        possible = []
    return max([incomplete_tail(data), *possible])


def first_stop(
    pieces: Sequence[bytes], stops: Sequence[str], min_tokens: int = 0
) -> tuple[int, str] | None:
    """Where the stop string that completes first ends, and which it is, the longest of several.

    One that is complete before token `min_tokens`, counted from 1, does not count.
    """
    data = b"".join(pieces)
    ends = list(accumulate(map(len, pieces)))
    for end in range(1, len(data) + 1):
        n_tokens = 1 + sum(token_end < end for token_end in ends)
        found = [stop for stop in stops if data[:end].endswith(stop.encode())]
        if found and n_tokens >= min_tokens:
            return end, max(found, key=lambda stop: len(stop.encode()))
    return None


def final_text(
    pieces: Sequence[bytes],
    stops: Sequence[str] = (),
    *,
    min_tokens: int = 0,
    on_stop: OnStop = OnStop.EXCLUDE,
    on_incomplete: str = "replace",
) -> tuple[str, str | None]:
    """The whole text of some pieces, and the stop string that ended it."""
    data = b"".join(pieces)
    stop = first_stop(pieces, stops, min_tokens)
    if stop is None:
        if on_incomplete == "drop":
            data = data[: len(data) - incomplete_tail(data)]
        return data.decode("utf-8", "replace"), None
    end, match = stop
    cut = end if on_stop is OnStop.INCLUDE else end - len(match.encode())
    return data[:cut].decode("utf-8", "replace"), match


# Windows


def window_deltas(decode: Decode, prompt_ids: Sequence[int], ids: Sequence[int]) -> list[str]:
    """What each token releases, and last what the flush does; no id is a special token."""
    tokens = list(prompt_ids[-5:])
    prefix, read, n_unsent = 0, len(tokens), 0
    is_prompt = True
    deltas = []
    for token_id in ids:
        tokens.append(token_id)
        before, after = decode(tokens[prefix:read]), decode(tokens[prefix:])
        n_sent = _window_sent(before, after, n_unsent, is_prompt)
        continues = after[:n_sent] == before[:n_sent]
        at_bound = len(tokens) - read == MAX_UNREAD
        waits = after.endswith("\ufffd") or len(after) <= n_sent
        if waits and at_bound:
            textual = [i for i in tokens[read:] if decode([i])]
            if len(textual) < MAX_UNREAD and decode(tokens[prefix:read] + textual) == after:
                tokens[read:] = textual
                deltas.append("")
                continue
        if waits and not at_bound:
            deltas.append("")
            continue
        if continues and after[n_sent:]:
            grown = after[n_sent:]
        else:
            grown = ("" if is_prompt else before[n_sent:]) + decode(tokens[read:])
        n_unsent = 0
        while n_unsent < 3 and grown.endswith("\ufffd" * (n_unsent + 1)):
            n_unsent += 1
        deltas.append(grown[: len(grown) - n_unsent])
        prefix, read, is_prompt = read, len(tokens), False
    before, after = decode(tokens[prefix:read]), decode(tokens[prefix:])
    n_sent = _window_sent(before, after, n_unsent, is_prompt)
    if after[:n_sent] == before[:n_sent] and after[n_sent:]:
        return [*deltas, after[n_sent:]]
    return [*deltas, ("" if is_prompt else before[n_sent:]) + decode(tokens[read:])]


def _window_sent(before: str, after: str, n_unsent: int, is_prompt: bool) -> int:
    """How much of the window's text was sent, or is the prompt's."""
    if not is_prompt:
        return max(0, len(before) - n_unsent)
    n_whole = len(before.rstrip("\ufffd"))
    if after[:n_whole] != before[:n_whole]:
        return n_whole
    return max(n for n in range(len(before) + 1) if after[:n] == before[:n])
