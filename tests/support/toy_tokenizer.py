"""A tokenizer one can follow by eye: a token for each byte, a few words, and control tokens."""

from __future__ import annotations

from collections.abc import Sequence

from suture.healing.vocabulary import TokenKind, Vocabulary

QWEN_CONTROLS = (
    "<|endoftext|>",
    "<|im_end|>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
)


class ToyTokenizer:
    """Ids 0 to 255 are the bytes, then come `words`, then `controls`; encodes longest match first.

    `bos` is added by the vocabulary, `named_bos` only named. `n_encoded` counts the bytes that
    `encode` was given.
    """

    def __init__(
        self,
        words: Sequence[str] = (),
        controls: Sequence[str] = QWEN_CONTROLS,
        *,
        bos: str | None = None,
        named_bos: str | None = "<|endoftext|>",
        fim_ids: dict[str, int] | None = None,
        control_kind: TokenKind = TokenKind.CONTROL,
    ) -> None:
        n_text = 256 + len(words)
        pieces = [*(bytes([byte]) for byte in range(256)), *(word.encode() for word in words)]
        self.id_of = {text: n_text + n for n, text in enumerate(controls)}
        self._ids = {piece: token_id for token_id, piece in enumerate(pieces)}
        self._longest = max(map(len, pieces))
        is_visible = control_kind not in (TokenKind.CONTROL, TokenKind.UNKNOWN)
        self.vocabulary = Vocabulary(
            [*pieces, *(text.encode() if is_visible else b"" for text in controls)],
            kinds=[*[TokenKind.NORMAL] * n_text, *[control_kind] * len(controls)],
            texts=[*(piece.decode("latin-1") for piece in pieces), *controls],
            bos_id=self.id_of.get(bos or named_bos or ""),
            eos_id=self.id_of.get("<|endoftext|>"),
            eog_ids=frozenset(self.id_of[t] for t in ("<|endoftext|>",) if t in self.id_of),
            add_bos=bos is not None,
            fim_ids=fim_ids,
        )
        self.n_encoded = 0

    def encode(self, text_bytes: bytes) -> list[int]:
        """The ids of plain text; never a control token."""
        self.n_encoded += len(text_bytes)
        ids = []
        at = 0
        while at < len(text_bytes):
            length = min(self._longest, len(text_bytes) - at)
            while text_bytes[at : at + length] not in self._ids:
                length -= 1
            ids.append(self._ids[text_bytes[at : at + length]])
            at += length
        return ids

    def ids(self, *parts: str) -> list[int]:
        """Control tokens where a part is the text of one, plain text elsewhere."""
        ids = []
        for part in parts:
            control = self.id_of.get(part)
            ids += self.encode(part.encode()) if control is None else [control]
        return ids

    def show(self, ids: Sequence[int]) -> str:
        """What the tokens look like, control tokens by their texts."""
        pieces = (
            self.vocabulary.text_of(i).encode()
            if i in self.id_of.values()
            else self.vocabulary.bytes_of(i)
            for i in ids
        )
        return b"".join(pieces).decode()
