"""Between text and tokens: which tokenizer and which detokenizer a model is served with, and why.

Both have a straight way and a fast one. llama.cpp's own tokenizer is right by definition; tiktoken
gives the same tokens several times faster where the vocabulary allows it, which is tried on
`PROBES` when the model is loaded. Tokens become text by joining their bytes where the vocabulary
is *byte-homomorphic*, the joined bytes of a text's tokens being the text; elsewhere only decoding
windows of tokens knows the text, and there is no healing, which rests on joined bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from suture.healing import (
    Decode,
    Decoding,
    Encode,
    TiktokenTokenizer,
    Vocabulary,
    first_difference,
    tokenizer_of,
)
from suture.healing.pretokenizer import Pretokenizer, pattern_of
from suture.server.engine.threads import best_thread_count
from suture.server.errors import SetupError

TokenizerName = Literal["tiktoken", "llama"]
DetokenizerName = Literal["bytes", "window"]
# Whether the text of a control token stands for the token, or is text like any other.
Specials = Literal["parse", "spell"]

# Tiktoken's expressions keep a stack that runs over in one run of some 700,000 blanks.
MAX_TIKTOKEN_BYTES = 1 << 18
_SHOWN_CHARS = 40

# Whatever tokenizers are known to differ in. A millisecond or two.
PROBES = (
    "def area(width: float, height=2.50):\n    '''Don't; it's \"so\".'''\n\treturn width\n\n",
    "  if (x != y && !z[0]) {\r\n\t\tfoo->bar(0x1F, 1_000_000);\r\n\r\n  }  // end...\n",
    "I'll we've you're I'M THEY'D 'S don''t l'été",
    "1 12 123 1234 12345678 3.14159 1e-10 ٣٤٥ ½ Ⅷ",
    " a  b   c    d     e\t\tf \t g\n\n h\n  \n \r\n\r i        ",
    "camelCase snake_case SCREAMING_CASE HTTPServer2 __init__ $_ @x #!/bin/sh",
    "Größe naïve Ångström ﬁne İi ǅ ß",
    "привет Ελληνικά שָׁלוֹם العَرَبِيَّة हिन्दी ภาษาไทย မြန်မာ",
    "我很感谢你的热情，ありがとう。カタカナ 한국어 \u3000全角",
    "e\u0301 o\u0308\u0323 Z\u0351\u036b ☕️ 👩‍👩‍👧‍👦 🇩🇪 👍🏽",
    "<|fim_middle|> <fim_suffix> <|endoftext|></s> <s>[INST] <|im_end",
    "ok \ufffd\ufffd \u00a0\u2028\u200b end",
    "...!!!??? --- === ((([[[{{{ }}}]]])))  ->  => :: <> `~^|\\/",
    "x" * 70 + "-" * 70 + " " * 70 + "0" * 70,
)


class OwnTokenizer(Protocol):
    """The model's own tokenizer, llama.cpp's. Any thread may call it."""

    def encode(self, piece: bytes) -> list[int]:
        """Token ids of plain text bytes: no special is parsed, none added."""
        ...

    def encode_markup(self, piece: bytes) -> list[int]:
        """Token ids of text in which control tokens stand by their own text."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of tokens, control tokens as nothing."""
        ...

    def decode_markup(self, token_ids: Sequence[int]) -> str:
        """The text of tokens, control tokens by their own text."""
        ...


@dataclass(frozen=True, slots=True)
class Choice:
    """What is in use, and why, in words."""

    name: TokenizerName | DetokenizerName
    why: str

    def __str__(self) -> str:
        return f"{self.name} ({self.why})"


@dataclass(frozen=True, slots=True)
class Encoder:
    """One way from texts to tokens: a tokenizer, with its special-token flags. Any thread calls it.

    `encode_all` gives for each of several texts what `encode` gives; None where the tokenizer
    takes one text at a time.
    """

    encode: Encode
    encode_all: Callable[[Sequence[bytes]], Sequence[Sequence[int]]] | None = None


@dataclass(frozen=True, slots=True)
class Codec:
    """How the texts of one model become tokens, and its tokens text.

    `encoder` is the one of plain text, `markup` that of text in which control tokens stand by
    their own text: for who asks for tokens, never for a prompt. `windows` are how tokens are
    decoded, special ones skipped or shown; None where bytes are joined. `heals` says whether
    healing's arithmetic on bytes holds.
    """

    encoder: Encoder
    markup: Encoder
    tokenizer: Choice
    detokenizer: Choice
    windows: Mapping[Literal["skip", "show"], Decoding] | None = None
    heals: bool = True

    @property
    def encode(self) -> Encode:
        """The tokens of one plain text."""
        return self.encoder.encode

    def reading(self, specials: Specials) -> Encoder:
        """The encoder of a text whose control tokens are parsed, or spelled."""
        return self.markup if specials == "parse" else self.encoder


def choose_codec(
    tokenizer: Literal["auto"] | TokenizerName,
    detokenizer: Literal["auto"] | DetokenizerName,
    vocabulary: Vocabulary,
    own: OwnTokenizer,
    fast: TiktokenTokenizer | None,
) -> Codec:
    """The tokenizer and detokenizer asked for, or the best of each for "auto".

    `fast` is None where `tokenizer_from_gguf` has none, or it is not wanted. Raises `SetupError`
    for one that this vocabulary cannot be served with, and says on which text it fails.
    """
    encoder, read = _choose_tokenizer(tokenizer, vocabulary, own, fast)
    lossy = lossy_probe(vocabulary, own.encode)
    written = _choose_detokenizer(detokenizer, lossy)
    windows = _windows(vocabulary, own) if written.name == "window" else None
    markup = Encoder(own.encode_markup)
    return Codec(encoder, markup, read, written, windows, heals=lossy is None)


def read_tiktoken(
    wanted: Literal["auto"] | TokenizerName, vocabulary: Vocabulary
) -> TiktokenTokenizer | None:
    """The fast tokenizer of a vocabulary, where one is wanted and can be built."""
    if wanted == "llama" or _no_tiktoken(vocabulary) is not None:
        return None
    return tokenizer_of(vocabulary)


def lossy_probe(vocabulary: Vocabulary, encode: Encode) -> str | None:
    """The first probe that the joined bytes of its tokens are not; None if there is none.

    SentencePiece may add one space before a text.
    """
    for text in PROBES:
        read = vocabulary.as_read(text.encode())
        joined = b"".join(map(vocabulary.bytes_of, encode(text.encode())))
        if joined not in (read, b" " + read):
            return text
    return None


def _choose_tokenizer(
    wanted: Literal["auto"] | TokenizerName,
    vocabulary: Vocabulary,
    own: OwnTokenizer,
    fast: TiktokenTokenizer | None,
) -> tuple[Encoder, Choice]:
    if wanted == "llama":
        return Encoder(own.encode), Choice("llama", "asked for")
    if fast is None:
        against = _no_tiktoken(vocabulary) or "its ids or marked tokens are not in tiktoken's order"
    elif (text := _difference(fast, own)) is not None:
        against = f"tiktoken gives other tokens for {_shown(text)}"
    else:
        why = f"llama.cpp's tokens on {len(PROBES)} probes"
        return _sparing(fast, own), Choice("tiktoken", why)
    if wanted == "tiktoken":
        raise SetupError(f"--tokenizer tiktoken: not with this vocabulary: {against}")
    return Encoder(own.encode), Choice("llama", against)


def _no_tiktoken(vocabulary: Vocabulary) -> str | None:
    """Why tiktoken cannot stand in for a vocabulary of this kind."""
    if vocabulary.model != "gpt2":
        return "its vocabulary is not byte-level"
    family = vocabulary.pretokenizer
    if not Pretokenizer(family).known:
        return f"its family, {family}, is not known"
    if pattern_of(family) is None:
        return f"no one expression splits text as its family, {family}, does"
    return None


def _difference(fast: TiktokenTokenizer, own: OwnTokenizer) -> str | None:
    """The first probe with other tokens, control tokens taken as text or as themselves."""
    as_text = first_difference(fast.encode, own.encode, PROBES)
    return as_text or first_difference(fast.encode_markup, own.encode_markup, PROBES)


def _sparing(fast: TiktokenTokenizer, own: OwnTokenizer) -> Encoder:
    """The fast tokenizer, spared what it fails at: very long texts, and bytes that are no text."""

    def encode(segment: bytes) -> Sequence[int]:
        if len(segment) > MAX_TIKTOKEN_BYTES:
            return own.encode(segment)
        try:
            return fast.encode(segment)
        except UnicodeDecodeError:
            return own.encode(segment)

    def encode_all(segments: Sequence[bytes]) -> Sequence[Sequence[int]]:
        if any(len(segment) > MAX_TIKTOKEN_BYTES for segment in segments):
            return list(map(encode, segments))
        try:
            return fast.encode_all(segments, n_threads)
        except UnicodeDecodeError:
            return list(map(encode, segments))

    n_threads = best_thread_count()
    return Encoder(encode, encode_all)


def _choose_detokenizer(wanted: Literal["auto"] | DetokenizerName, lossy: str | None) -> Choice:
    if lossy is None:
        if wanted == "window":
            return Choice("window", "asked for")
        return Choice("bytes", "the bytes of its tokens are those of the text")
    against = f"the bytes of its tokens are not those of {_shown(lossy)}"
    if wanted == "bytes":
        raise SetupError(f"--detokenizer bytes: not with this vocabulary: {against}")
    return Choice("window", f"{against}; no healing")


def _windows(vocabulary: Vocabulary, own: OwnTokenizer) -> dict[Literal["skip", "show"], Decoding]:
    silent = vocabulary.silent_ids
    without_text = frozenset(i for i in silent if not vocabulary.is_special(i))

    def decoding(decode: Decode, special_ids: frozenset[int]) -> Decoding:
        return Decoding(decode, vocabulary.n_vocab, special_ids)

    return {
        "skip": decoding(own.decode, frozenset(silent)),
        "show": decoding(own.decode_markup, without_text),
    }


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…")
