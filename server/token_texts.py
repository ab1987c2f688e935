"""What a model's token ids say, for clients that send them or ask for them.

A prompt of token ids is its text here: the planner tokenizes it anew, as healing works on text. So
ids that say no text, and bytes that are no whole text, are refused and never dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from suture.healing import Vocabulary
from suture.server.codec import Codec
from suture.server.prompt.text_encoding import Controls, starts_with_space


class NoText(ValueError):
    """The token ids are not those of a text; `str(error)` goes on behind the field's name."""


@dataclass(frozen=True, slots=True)
class TokenTexts:
    """The texts of one vocabulary's tokens.

    `without_text` are the ids that may be no part of a text. `has_dummy_space` says that the
    tokenizer puts a space before a text, `is_lossless` that joined pieces are the text.
    """

    vocabulary: Vocabulary
    without_text: frozenset[int]
    has_dummy_space: bool = False
    is_lossless: bool = True

    @property
    def opening_ids(self) -> tuple[int, ...]:
        """What every prompt of this model begins with."""
        bos_id = self.vocabulary.bos_id
        return () if bos_id is None or not self.vocabulary.add_bos else (bos_id,)

    def shown(self, token_id: int) -> bytes:
        """A token's bytes; those of a control token are its own text."""
        if self.vocabulary.is_special(token_id):
            return self.vocabulary.text_of(token_id).encode()
        return self.vocabulary.bytes_of(token_id)

    def prompt_text(
        self, parts: Sequence[int | str], marks: Mapping[int | str, bytes] = MappingProxyType({})
    ) -> str:
        """The text of token ids and texts in a row; raises `NoText`.

        The ids that every prompt begins with may stand there or not. Those of `marks` are written
        so, whatever they are.
        """
        opening = self.opening_ids
        n_opening = len(opening) if tuple(parts[: len(opening)]) == opening else 0
        shown = parts[n_opening:]
        joined = b"".join(self._pieces(shown, n_opening, marks))
        if self.has_dummy_space and shown and not isinstance(shown[0], str):
            joined = joined.removeprefix(b" ")
        try:
            return joined.decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                raise NoText("must be whole text: it ends inside a character") from None
            raise NoText("must be text: its tokens' bytes are not UTF-8") from None

    def _pieces(
        self, parts: Sequence[int | str], first: int, marks: Mapping[int | str, bytes]
    ) -> Iterator[bytes]:
        for index, part in enumerate(parts, first):
            if isinstance(part, str):
                yield part.encode()
            elif part in marks:
                yield marks[part]
            elif not self.is_lossless:
                raise NoText("must be text: this model's tokens do not tell theirs")
            elif not 0 <= part < self.vocabulary.n_vocab:
                last = self.vocabulary.n_vocab - 1
                raise NoText(f"must have token ids from 0 to {last}: item {index} is none")
            elif part in self.without_text:
                raise NoText(f"must be text: item {index} is a token that no text has")
            else:
                yield self.vocabulary.bytes_of(part)


def token_texts(vocabulary: Vocabulary, codec: Codec, family: Controls | None) -> TokenTexts:
    """The texts of the tokens of a model that `codec` is for."""
    return TokenTexts(
        vocabulary,
        frozenset(vocabulary.silent_ids) | (family.stop_ids if family else frozenset()),
        starts_with_space(codec.encode, vocabulary),
        codec.heals,
    )
