"""Other ways to stream a text, each as a function that makes a new stream.

`tokenizers`' own DecodeStream; the rules of vLLM and TGI (two windows) and of transformers'
TextStreamer, restated over a list of pieces, which is faster than the tokenizers that they have;
and a call into llama.cpp for each token, as bindings make it. With stop strings a peer does what
vLLM does: look for each in the new text and a little before it, and hold the longest but one.
"""

from __future__ import annotations

import codecs
import ctypes
import functools
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models

from suture.healing import Detokenizer, TokenTransducer, Vocabulary, read_metadata
from suture.server.engine import libllama
from suture.server.engine.tokenizer import LlamaTokenizer

# DecodeStream has None for no text; to make a text of that would be our time, not its own.
Feed = Callable[[int], str | None]
New = Callable[[], Feed]

_REPLACEMENT = "\ufffd"


def suture(vocabulary: Vocabulary, stops: Sequence[str] = ()) -> New:
    """The product's own; its transducer stays warm from stream to stream, as in a server."""
    transducer = TokenTransducer(vocabulary, stops)
    return lambda: Detokenizer(transducer).feed


@functools.cache
def tokenizer_of(path: Path, vocabulary: Vocabulary) -> Tokenizer:
    """The file's byte-level vocabulary as `tokenizers` has it."""
    metadata = read_metadata(path)
    texts = [text.decode() for text in metadata["tokenizer.ggml.tokens"]]  # type: ignore[attr-defined]
    merges = [
        tuple(merge.decode().split(" "))
        for merge in metadata["tokenizer.ggml.merges"]  # type: ignore[attr-defined]
    ]
    tokenizer = Tokenizer(models.BPE({text: i for i, text in enumerate(texts)}, merges))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(texts[i], special=True) for i in sorted(vocabulary.control_ids)]
    )
    return tokenizer


def decode_stream(path: Path, vocabulary: Vocabulary) -> New:
    """`tokenizers.decoders.DecodeStream`."""
    tokenizer = tokenizer_of(path, vocabulary)
    return lambda: functools.partial(
        decoders.DecodeStream(skip_special_tokens=True).step, tokenizer
    )


def two_windows(pieces: Sequence[bytes]) -> New:
    """Decode a short window twice, send the difference unless it ends in U+FFFD."""

    def texts() -> Generator[str, int, None]:
        ids: list[int] = []
        prefix, read, text = 0, 0, ""
        while True:
            ids.append((yield text))
            before = _decode(pieces, ids[prefix:read])
            after = _decode(pieces, ids[prefix:])
            text = ""
            if len(after) > len(before) and not after.endswith(_REPLACEMENT):
                text = after[len(before) :]
                prefix, read = read, len(ids)

    return lambda: _started(texts())


def text_streamer(pieces: Sequence[bytes]) -> New:
    """Decode everything since the last line end, send up to the last space."""

    def texts() -> Generator[str, int, None]:
        ids: list[int] = []
        n_sent, text = 0, ""
        while True:
            ids.append((yield text))
            whole = _decode(pieces, ids)
            if whole.endswith("\n"):
                text, n_sent, ids = whole[n_sent:], 0, []
            else:
                is_cjk = "\u4e00" <= whole[-1:] <= "\u9fff"
                end = len(whole) if is_cjk else whole.rfind(" ") + 1
                text, n_sent = whole[n_sent:end], max(n_sent, end)

    return lambda: _started(texts())


def piece_calls(path: Path) -> New:
    """llama.cpp asked for the piece of each token, and an incremental decoder."""
    lib, vocab = libllama.load(), LlamaTokenizer(path).vocab
    buffer = ctypes.create_string_buffer(512)

    def new() -> Feed:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode

        def feed(token_id: int) -> str:
            n_bytes = lib.llama_token_to_piece(vocab, token_id, buffer, 512, 0, False)
            return decode(buffer.raw[:n_bytes])

        return feed

    return new


def with_finds(new: New, stops: Sequence[str]) -> New:
    """A stream that looks for stop strings as vLLM does, and always holds the longest but one."""
    longest = max(map(len, stops), default=0)

    def deltas(inner: Feed) -> Generator[str, int, None]:
        # Local variables, so that the text grows in place; an attribute is copied each time.
        text, delta, n_sent = "", "", 0
        while True:
            start = len(text) - longest
            text += inner((yield delta)) or ""
            if start < 0:
                start = 0
            for stop in stops:
                if text.find(stop, start) >= 0:
                    raise ValueError("the benchmark's stop strings must never be complete")
            end = len(text) - longest + 1
            if end > n_sent:
                delta, n_sent = text[n_sent:end], end
            else:
                delta = ""

    return (lambda: _started(deltas(new()))) if stops else new


def _decode(pieces: Sequence[bytes], ids: Sequence[int]) -> str:
    return b"".join([pieces[token_id] for token_id in ids]).decode("utf-8", "replace")


def _started(texts: Generator[str, int, None]) -> Feed:
    next(texts)
    return texts.send
