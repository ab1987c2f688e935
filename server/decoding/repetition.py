"""Samplers that look at the text so far: penalties for tokens in it, and DRY for its repetition.

DRY ("don't repeat yourself") finds where the end of the text stood before, and makes the token that
followed there less likely, the more the longer the match. A *sequence breaker* is a text that no
match goes over. All is as llama.cpp has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from suture.healing import Vocabulary
from suture.server.decoding.candidates import Candidates
from suture.server.request import SamplingParams

Breakers = Mapping[int, Sequence[tuple[int, ...]]]
"""By a breaker's first token, what may follow it until the breaker has been said."""

MAX_REPEAT = 1000
_MAX_BREAKER_BYTES = 40
_MAX_BREAKER_TOKENS = 20
_FLOAT32_MAX_LOG = 88.7228391
# Beyond every logit, and far from where what is done with it overflows.
_MAX_LOGIT = 1e30


def penalize(candidates: Candidates, history: Sequence[int], params: SamplingParams) -> Candidates:
    """Penalties for the tokens among the last `repeat_last_n` of `history`."""
    seen, counts = np.unique(_last(history, params.repeat_last_n), return_counts=True)
    at, which = candidates.find(seen)
    logits = candidates.logits.copy()
    values = logits[at].astype(np.float64)
    scaled = np.where(values > 0, values / params.repeat_penalty, values * params.repeat_penalty)
    scaled -= counts[which] * params.frequency_penalty + params.presence_penalty
    logits[at] = np.where(np.isfinite(values), np.clip(scaled, -_MAX_LOGIT, _MAX_LOGIT), values)
    return candidates.with_logits(logits)


def avoid_repetition(
    candidates: Candidates, history: Sequence[int], params: SamplingParams, breakers: Breakers
) -> Candidates:
    """DRY's penalties over the last `dry_penalty_last_n` tokens of `history`."""
    least, most = params.dry_allowed_length, MAX_REPEAT
    if params.dry_base > 1.000001:
        # Beyond it the penalty grows no more.
        most = min(most, least + int(_FLOAT32_MAX_LOG / math.log(params.dry_base)))
    repeated = repeat_lengths(_last(history, params.dry_penalty_last_n), least, breakers, most)
    repeated = {
        token: length for token, length in repeated.items() if () not in breakers.get(token, ())
    }
    if not repeated:
        return candidates
    tokens = np.array(sorted(repeated), np.int64)
    lengths = np.array([repeated[token] for token in tokens.tolist()])
    exponents = (lengths - params.dry_allowed_length).astype(np.float64)
    penalties = params.dry_multiplier * params.dry_base**exponents
    at, which = candidates.find(tokens)
    logits = candidates.logits.copy()
    logits[at] -= np.clip(penalties, -_MAX_LOGIT, _MAX_LOGIT)[which].astype(np.float32)
    return candidates.with_logits(logits)


def repeat_lengths(
    text: npt.NDArray[np.int64], min_length: int, breakers: Breakers, most: int = MAX_REPEAT
) -> dict[int, int]:
    """By token, how long a repetition it would go on with, of at least `min_length` tokens.

    A longer one than `most` counts as that long: each token of it takes a look at all of the text.
    """
    n = len(text)
    if n <= min_length:
        return {}
    most = min(most, _length_of_last_sequence(text.tolist(), breakers))
    if most < min_length:
        return {}
    # Of each place, how many tokens up to it equal the text's end.
    lengths = np.zeros(n - 1, np.int64)
    places, length = np.flatnonzero(text[:-1] == text[-1]), 1
    while len(places) and length <= most:
        lengths[places] = length
        places = places[places >= length]
        places = places[text[places - length] == text[n - 1 - length]]
        length += 1
    longest: dict[int, int] = {}
    for place in np.flatnonzero(lengths >= min_length).tolist():
        follower = int(text[place + 1])
        longest[follower] = max(longest.get(follower, 0), int(lengths[place]))
    return longest


def _length_of_last_sequence(text: Sequence[int], breakers: Breakers) -> int:
    """How many tokens stand after the last breaker; all where there is none."""
    if not breakers:
        return len(text)
    for i in range(len(text)):
        head = len(text) - 1 - i
        tails = breakers.get(text[head], ())
        said = [len(t) for t in tails if tuple(text[head + 1 : head + 1 + len(t)]) == t]
        if said:
            return i - max(said)
    return len(text)


@lru_cache(maxsize=4)
def sequence_breakers(
    texts: tuple[str, ...], vocabulary: Vocabulary, encode: Callable[[bytes], Sequence[int]]
) -> Breakers:
    """The token sequences that say one of `texts`, however what surrounds it is tokenized."""
    pieces = [vocabulary.bytes_of(i) for i in range(vocabulary.n_vocab)]
    starts = np.cumsum([0, *map(len, pieces)])
    joined = np.frombuffer(b"".join(pieces), np.uint8)
    found: dict[int, set[tuple[int, ...]]] = {}
    for text in texts:
        breaker = text.encode()[:_MAX_BREAKER_BYTES]
        places = np.flatnonzero(joined == breaker[0])
        tails: dict[bytes, tuple[int, ...]] = {}
        owners = np.searchsorted(starts, places, side="right") - 1
        for token, at in zip(owners.tolist(), (places - starts[owners]).tolist(), strict=True):
            piece = pieces[token]
            if breaker in piece:
                found.setdefault(token, set()).add(())
            elif breaker.startswith(begun := piece[at:]):
                if begun not in tails:
                    tail = encode(breaker[len(begun) :])[:_MAX_BREAKER_TOKENS]
                    tails[begun] = tuple(tail)
                found.setdefault(token, set()).add(tails[begun])
    return {token: sorted(tails) for token, tails in found.items()}


def _last(history: Sequence[int], n: int) -> npt.NDArray[np.int64]:
    """The last `n` tokens; all of them where that is negative."""
    return np.asarray(history[-n:] if n > 0 else history if n < 0 else (), np.int64)
