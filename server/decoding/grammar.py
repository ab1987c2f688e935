"""What a text must be: the state of a grammar, token by token.

As in llama.cpp's own loop a token is drawn freely and asked about; only where it is refused the row
is masked and a token drawn again, because masking a row costs more than all other sampling. A token
that the grammar permits is thus drawn a little more often than from the masked row alone, by the
chance that the free draw hits it. Where the best token is always drawn the next best ones are asked
about first, which comes to the same.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from suture.healing import Encode
from suture.server.decoding.candidates import Logits


class Grammar(Protocol):
    """A text's state under a grammar. `close` frees it; nothing may be called after it."""

    @property
    def is_complete(self) -> bool:
        """Whether the text may end here."""
        ...

    def permits(self, token_id: int) -> bool:
        """Whether the token may come next; of a token that ends the text, whether it may end."""
        ...

    def mask(self, row: Logits) -> None:
        """Set to -inf, in place, the logits of all tokens that may not come next."""
        ...

    def accept(self, token_id: int) -> None:
        """Go on past the token. Raises `ValueError` for one that may not come next."""
        ...

    def copy(self) -> Grammar:
        """The same state, to be closed by itself."""
        ...

    def close(self) -> None: ...


class Language(Protocol):
    """How text is tokenized, and what makes grammars over the tokens: the engine."""

    def encode(self, piece: bytes) -> list[int]: ...

    def check_grammar(self, gbnf: str) -> None:
        """Raise `InvalidRequest`, with the reason, for what is not a grammar. Any thread."""
        ...

    def grammar(self, gbnf: str) -> Grammar:
        """A grammar that was checked, before its first token."""
        ...


class GrammarState:
    """A grammar as one generation uses it.

    `ends` are tokens without text that end it, of which the library knows some only: they may come
    where the text is complete. `encode` is for text behind other text.
    """

    def __init__(self, language: Language, gbnf: str, ends: frozenset[int], encode: Encode) -> None:
        self._encode = encode
        self._grammar = language.grammar(gbnf)
        self._ends = ends
        self._end_ids = np.array(sorted(ends), np.intp)

    def permits(self, token_id: int) -> bool:
        if token_id in self._ends:
            return self._grammar.is_complete
        return self._grammar.permits(token_id)

    def mask(self, row: Logits) -> None:
        ends = row[self._end_ids]
        self._grammar.mask(row)
        row[self._end_ids] = ends if self._grammar.is_complete else -np.inf

    def accept(self, token_id: int) -> None:
        """Go on past a permitted token; nothing comes after one that ends the text."""
        if token_id not in self._ends:
            self._grammar.accept(token_id)

    def accept_bytes(self, text: bytes) -> bool:
        """Go on past bytes that are less than a token; False, going nowhere, if they may not come.

        The library takes tokens, so they are tokenized by themselves. Bytes that end inside a
        character may not come: no tokens say them that the rest of it could follow.
        """
        if not _is_whole(text):
            return False
        token_ids = self._encode(text)
        # Most are refused at once, and a copy is of the whole grammar.
        if not all(map(self._grammar.permits, token_ids[:1])):
            return False
        ahead = self._grammar.copy()
        try:
            for token_id in token_ids:
                ahead.accept(token_id)
            self._grammar, ahead = ahead, self._grammar
            return True
        except ValueError:
            return False  # asked before as well, a long text takes twice as long
        finally:
            ahead.close()

    def close(self) -> None:
        self._grammar.close()


def _is_whole(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
