"""The bytes that a request's text must begin with, by the tokens that have come of it.

Nothing here may raise in the middle of a generation: in vLLM that ends the engine with all
requests in it. Where no token is left, or one has come that the rule does not allow, nothing is
constrained any more, and who asked sees it by the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from suture.healing import HealingError, TokenHealer, Vocabulary
from suture.healing.vocabulary import TokenIds

FIELD = "heal_hex"
# Far above what is ever given back: the rule looks at all of it in each step.
MAX_BYTES = 4096


def pending_of(extra_args: Mapping[str, object] | None) -> bytes:
    """What a request says is pending, nothing if it says nothing.

    Raises `ValueError`, which vLLM answers with a 400.
    """
    asked = (extra_args or {}).get(FIELD, "")
    try:
        pending = bytes.fromhex(asked) if isinstance(asked, str) else None
    except ValueError:
        pending = None
    if pending is None:
        raise ValueError(f"{FIELD} must be bytes in hexadecimal")
    if len(pending) > MAX_BYTES:
        raise ValueError(f"{FIELD} must not be longer than {MAX_BYTES} bytes")
    return pending


class PendingBytes:
    """What may come while `pending` has not come: the recursive rule. Stateless."""

    def __init__(self, vocabulary: Vocabulary, pending: bytes) -> None:
        self._vocabulary = vocabulary
        self._pending = pending

    def allowed(self, token_ids: Sequence[int]) -> TokenIds | None:
        """The tokens that may follow these first ones of the answer; None: any may.

        Never empty. Costs little once all of the pending bytes have come.
        """
        try:
            healer = TokenHealer(self._vocabulary, self._pending)
            for token_id in token_ids:
                if healer.done:
                    break
                healer.consume(token_id)
        except HealingError:
            return None
        if healer.done:
            return None
        constraint = healer.constraint()
        extending = self._vocabulary.sorted_ids[constraint.lo : constraint.hi]
        return np.concatenate((constraint.prefix_ids, extending))
