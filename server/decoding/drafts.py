"""Drafts: what the text at hand suggests comes next, to be verified in one evaluation.

Code repeats itself, and a completion often repeats the text around its hole. So the last tokens are
looked up in all that is known (the prompt, files beside it, the session's last answer, what was
generated), and what followed them there is the *draft*; while the text is what that answer was, the
rest of it is. It is evaluated behind the token just drawn; each of its tokens that equals the one
drawn from the row before it is one evaluation saved, and the first that does not ends the step.
Every token is drawn from its own row as always, so the text never depends on drafts.

A wider evaluation costs more, on a CPU very much so, and not evenly. `DraftWidth` weighs that cost
against how often drafts came true lately, and proposes none where they do not pay.

G1  drafted and not, a request gives the same tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from suture.server.decoding.step_costs import StepCosts

# Shorter matches are chance: in code every second bracket is followed by the same token.
MIN_MATCH = 3
MAX_DRAFT = 15
# How many earlier places are compared for the longest match.
_PLACES = 4
# How many tokens an evaluation may hold: where the cost makes a step, the widths before it.
_WIDTHS = (1, 2, 3, 4, 8, 16)
# How many drafted tokens come true, by how many matched before them at least. After a short match
# too few to pay, unless wide evaluations turn out to be cheap here.
_PRIOR: Mapping[int, float] = MappingProxyType({MIN_MATCH: 0.6, 6: 0.8, MAX_DRAFT: 0.95})
_MEMORY = 0.9


class DraftIndex:
    """A growing text of tokens, and where each run of three tokens stood in it last.

    `expected` are the tokens that come behind `tokens` if an earlier answer still holds.
    """

    def __init__(self, tokens: Sequence[int] = (), expected: Sequence[int] = ()) -> None:
        self._tokens: list[int] = []
        self._places: dict[tuple[int, ...], list[int]] = {}
        self._expected: tuple[int, ...] = ()
        self._n_met = 0
        self.extend(tokens)
        self._expected = tuple(expected)

    def extend(self, tokens: Sequence[int]) -> None:
        """The text goes on."""
        known = self._tokens
        first = len(known)
        known.extend(tokens)
        if self._expected:
            self._meet(tokens)
        # The run that ends the text is not entered: nothing follows it yet.
        for end in range(max(first, MIN_MATCH), len(known)):
            places = self._places.setdefault(tuple(known[end - MIN_MATCH : end]), [])
            places.append(end)
            del places[:-_PLACES]

    def propose(self, n_tokens: int) -> tuple[tuple[int, ...], int]:
        """At most `n_tokens` that may come next, and how many tokens matched before them.

        What is expected comes first, for as long as it was met; it is trusted like a long match.
        Of the places where the text's end stood before, the one that matches longest counts, the
        latest of several.
        """
        if expected := self._expected[self._n_met : self._n_met + n_tokens]:
            return expected, MAX_DRAFT
        known = self._tokens
        places = self._places.get(tuple(known[-MIN_MATCH:]), ())
        best, n_best = 0, 0
        for place in places:
            n_matched = self._n_matched(place)
            if n_matched >= n_best:
                best, n_best = place, n_matched
        return tuple(known[best : best + n_tokens]) if n_best else (), n_best

    def _meet(self, tokens: Sequence[int]) -> None:
        expected = self._expected[self._n_met : self._n_met + len(tokens)]
        if expected and expected == tuple(tokens[: len(expected)]):
            self._n_met += len(expected)
        else:
            self._expected = ()

    def _n_matched(self, place: int) -> int:
        """How many tokens before `place` equal the text's end; counted up to `MAX_DRAFT`."""
        known = self._tokens
        n = MIN_MATCH
        while n < min(MAX_DRAFT, place) and known[place - n - 1] == known[-n - 1]:
            n += 1
        return n


class DraftWidth:
    """How many tokens to draft, from what evaluations cost and how often drafts came true.

    For one engine, whose thread uses it.
    """

    def __init__(self, costs: StepCosts) -> None:
        self._costs = costs
        # By matched tokens, so that a long match may be trusted where a short one is not.
        self._accepted = dict(_PRIOR)

    def begin_text(self) -> None:
        """Another text: what did not pay in the last one gets some of its credit back."""
        for bucket, prior in _PRIOR.items():
            kept = _MEMORY * self._accepted[bucket]
            self._accepted[bucket] = kept + (1 - _MEMORY) * prior

    def observe_draft(self, n_matched: int, n_proposed: int, n_accepted: int) -> None:
        """Of a draft, so many tokens came true before the first that did not."""
        bucket = self._bucket(n_matched)
        n_tried = min(n_accepted + 1, n_proposed)
        for n in range(n_tried):
            came_true = float(n < n_accepted)
            kept = _MEMORY * self._accepted[bucket]
            self._accepted[bucket] = kept + (1 - _MEMORY) * came_true

    def best(self, n_matched: int, n_available: int) -> int:
        """The number of drafted tokens that yields most tokens a second; 0 for none.

        After a long match every width is tried once, the widest first: what it costs here is not
        known until then, and little is lost.
        """
        if n_matched >= MAX_DRAFT:
            for n_tokens in reversed(_WIDTHS):
                if 1 < n_tokens <= n_available + 1 and not self._costs.has_seen(n_tokens):
                    return n_tokens - 1
        share = self._accepted[self._bucket(n_matched)]
        best, best_rate = 0, 1 / self._costs.of(1)
        for n_tokens in _WIDTHS:
            n_drafted = n_tokens - 1
            if not 0 < n_drafted <= n_available:
                continue
            expected = sum(share**n for n in range(n_tokens))
            rate = expected / self._costs.of(n_tokens)
            if rate > best_rate:
                best, best_rate = n_drafted, rate
        return best

    def _bucket(self, n_matched: int) -> int:
        return max(start for start in self._accepted if start <= max(n_matched, MIN_MATCH))
