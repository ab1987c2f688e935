"""The invariants on every vocabulary that llama.cpp tests its tokenizers with.

B1 and B2 have an oracle here: the tokens of a whole text, which was cut somewhere.
"""

import ctypes
import json
import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tiktoken

import suture.healing
from support.text import TRICKY_TEXTS
from suture.healing import (
    BoundaryError,
    TokenKind,
    UnsupportedVocabulary,
    Vocabulary,
    fixed_boundary,
    read_metadata,
    reference,
    stable_boundary,
    uncut_boundary,
)
from suture.healing.boundary import Boundary
from suture.healing.tiktoken_encoding import first_difference, tokenizer_from_gguf
from suture.server.engine import libllama
from suture.server.engine.tokenizer import LlamaTokenizer
from suture.server.models.catalog import Catalog
from suture.server.models.download import pull_all
from suture.server.models.progress import progress_on

pytestmark = pytest.mark.model

CATALOG = Catalog.load(Path(__file__).parents[1] / "support" / "vocabularies.txt")
REFUSED = {"vocab-bert-bge": "bert", "vocab-nomic-bert-moe": "t5"}
NAMES = [entry.name for entry in CATALOG.entries if "." not in entry.name]
SUPPORTED = [name for name in NAMES if name not in REFUSED]
# Falcon has no token for a vertical tab and some control characters; llama.cpp drops them.
LOSSY = {"vocab-falcon"}
N_CURSORS = 8
SOURCES = sorted(Path(suture.healing.__file__).parent.glob("*.py"))


@pytest.fixture(scope="module")
def paths(model_store: Path) -> dict[str, Path]:
    """All files by name, pulled at once: they lie in one archive."""
    files = pull_all(CATALOG.entries, model_store, progress_on(sys.stderr))
    return {entry.name: path for entry, path in zip(CATALOG.entries, files, strict=True)}


@pytest.fixture(scope="module")
def texts(paths: dict[str, Path]) -> dict[str, bytes]:
    """Our own sources, llama.cpp's texts for tokenizers, and texts that break careless code."""
    inputs = {path.read_bytes(): name for name, path in paths.items() if name.endswith(".inp")}
    return {
        **{path.name: whole_characters(path.read_bytes()[:4000]) for path in SOURCES},
        **{name: text for text, name in inputs.items()},
        **{name: text.encode() for name, text in TRICKY_TEXTS.items()},
    }


class Real:
    """A vocabulary, and its tokenizer as llama.cpp runs it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.vocabulary = Vocabulary.from_gguf(path)
        self.tokenizer = LlamaTokenizer(path)

    def encode(self, text: bytes) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text))

    def spelled(self, ids: tuple[int, ...]) -> bytes:
        return b"".join(map(self.vocabulary.bytes_of, ids))

    def as_tokens_read(self, segment: bytes) -> bytes:
        """The segment as the tokens of its whole characters spell it."""
        whole = whole_characters(segment)
        return self.spelled(self.encode(whole)) + segment[len(whole) :]


@pytest.fixture(scope="module", params=SUPPORTED)
def real(request: pytest.FixtureRequest, paths: dict[str, Path]) -> Iterator[Real]:
    loaded = Real(paths[request.param])
    yield loaded
    loaded.tokenizer.close()


def whole_characters(data: bytes) -> bytes:
    return data[: len(data) - reference.incomplete_tail(data)]


def cursors(name: str, text: bytes) -> list[int]:
    places = range(len(text) + 1)
    return random.Random(name).sample(places, min(N_CURSORS, len(places)))


@pytest.mark.parametrize("name", REFUSED)
def test_vocabularies_without_fixed_bytes_are_refused(paths: dict[str, Path], name: str) -> None:
    with pytest.raises(UnsupportedVocabulary, match=f"'{REFUSED[name]}'"):
        Vocabulary.from_gguf(paths[name])


def test_b1_b2_at_every_sampled_cursor(real: Real, texts: dict[str, bytes]) -> None:
    wrong, n_cursors = [], 0
    for name, text in texts.items():
        ids = real.encode(text)
        for cursor in cursors(name, text):
            n_cursors += 1
            if not is_right(real, text[:cursor], ids):
                wrong.append((name, cursor, text[max(0, cursor - 20) : cursor]))

    assert n_cursors > 250
    assert wrong == []


def is_right(real: Real, segment: bytes, ids: tuple[int, ...]) -> bool:
    """Whether the cut gives the segment's bytes (B1) and tokens of the whole text (B2)."""
    try:
        boundary = stable_boundary(segment, real.encode, real.vocabulary)
    except BoundaryError:
        # Rightly so where no tokens spell what would be given back.
        return not real.vocabulary.single_bytes.issuperset(segment[-64:])
    spelled = real.spelled(boundary.kept_ids) + boundary.pending
    n_kept = len(boundary.kept_ids)
    return spelled == real.as_tokens_read(segment) and boundary.kept_ids == ids[:n_kept]


def test_b1_what_the_tokens_spell_is_the_text_with_known_exceptions(
    real: Real, texts: dict[str, bytes], request: pytest.FixtureRequest
) -> None:
    """SentencePiece reads a space before the text and U+2581 as a space; nothing else differs."""
    vocabulary = real.vocabulary
    if request.node.callspec.params["real"] in LOSSY:
        assert len(vocabulary.single_bytes) < 256
    before = b" " if vocabulary.model == "llama" else b""

    for name, text in texts.items():
        kept = bytes(byte for byte in text if byte in vocabulary.single_bytes)
        assert real.as_tokens_read(text) in (
            before + vocabulary.as_read(text),
            before + vocabulary.as_read(kept),
        ), name


RULES: dict[str, Callable[[bytes, Real], Boundary]] = {
    "fixed": lambda segment, real: fixed_boundary(segment, 2, real.encode, real.vocabulary),
    "uncut": lambda segment, real: uncut_boundary(segment, real.encode, real.vocabulary),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("text", ["a▁▁b = '▁", "▁", "", " ", "我很", "x\n\n", "</s> x"])
def test_b1_the_other_rules_at_every_byte(real: Real, rule: str, text: str) -> None:
    for end in range(len(text.encode()) + 1):
        segment = text.encode()[:end]
        boundary = RULES[rule](segment, real)
        spelled = real.spelled(boundary.kept_ids) + boundary.pending
        assert spelled == real.as_tokens_read(segment)


def test_v1_v2_pieces_are_those_of_the_engine(real: Real) -> None:
    """But for padding, and for strings outside the byte-level alphabet, which it marks."""
    vocabulary, lib = real.vocabulary, libllama.load()
    n_tokens = lib.llama_vocab_n_tokens(real.tokenizer.vocab)
    buffer = ctypes.create_string_buffer(2048)

    for token_id in random.Random(0).sample(range(n_tokens), 20_000):
        n_bytes = lib.llama_token_to_piece(
            real.tokenizer.vocab, token_id, buffer, len(buffer), 0, False
        )
        piece = vocabulary.bytes_of(token_id)
        shown = buffer.raw[:n_bytes]
        if not shown.startswith((b"[PAD", b"[UNK_BYTE_")):
            assert shown == piece, (token_id, vocabulary.text_of(token_id))
        assert (token_id in vocabulary.ids_of(piece)) == bool(piece)


JSON_NAMES = ["vocab-llama-spm", "vocab-phi-3", "vocab-qwen2", "vocab-deepseek-coder"]


@pytest.mark.parametrize("name", JSON_NAMES)
def test_v1_a_tokenizer_json_of_the_same_tokens_has_the_same_rows(
    paths: dict[str, Path], tmp_path: Path, name: str
) -> None:
    given = Vocabulary.from_gguf(paths[name])
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(as_tokenizer_json(paths[name])), encoding="utf-8")

    vocabulary = Vocabulary.from_tokenizer_json(path, n_vocab=given.n_vocab)

    assert rows(vocabulary) == rows(given)
    assert vocabulary.sorted_ids.tolist() == given.sorted_ids.tolist()


@pytest.mark.parametrize("name", ["vocab-gpt-2", "vocab-llama-bpe", "vocab-starcoder"])
def test_v1_a_tiktoken_encoding_of_the_same_tokens_has_the_same_rows(
    paths: dict[str, Path], name: str
) -> None:
    given = Vocabulary.from_gguf(paths[name])
    ids = range(given.n_vocab)
    ranks = {given.bytes_of(i): i for i in ids if given.kind_of(i) is TokenKind.NORMAL}
    specials = {given.text_of(i): i for i in ids if given.is_special(i)}
    encoding = tiktoken.Encoding(name, pat_str=".", mergeable_ranks=ranks, special_tokens=specials)

    vocabulary = Vocabulary.from_tiktoken(encoding, n_vocab=given.n_vocab)

    assert rows(vocabulary) == rows(given)
    assert vocabulary.sorted_ids.tolist() == given.sorted_ids.tolist()


TIKTOKEN_PARITY = [
    *("vocab-gpt-2", "vocab-starcoder", "vocab-refact", "vocab-command-r"),
    *("vocab-qwen2", "vocab-qwen35", "vocab-llama-bpe"),
]


@pytest.mark.parametrize("name", TIKTOKEN_PARITY)
def test_tiktoken_gives_the_tokens_of_the_engine(
    paths: dict[str, Path], texts: dict[str, bytes], name: str
) -> None:
    ours, engine = tokenizer_from_gguf(paths[name]), LlamaTokenizer(paths[name])
    assert ours is not None
    sources = [path.read_text("utf-8") for path in SOURCES]
    plain = [*(text.decode() for text in texts.values()), *sources, *LOSSY_TEXTS]
    markers = [text for text in ours.encoding.special_tokens_set if "<" in text][:20]
    marked = [f"a {marker}\n b{marker}{marker} c" for marker in markers]

    assert first_difference(ours.encode, engine.encode, [*plain, *marked]) is None
    with_markup = partial(encode_markup, engine)
    assert first_difference(ours.encode_markup, with_markup, [*plain, *marked]) is None
    engine.close()


@pytest.mark.parametrize("name", ["vocab-llama-spm", "vocab-falcon", "vocab-mpt"])
def test_vocabularies_that_tiktoken_cannot_do_say_so(paths: dict[str, Path], name: str) -> None:
    assert tokenizer_from_gguf(paths[name]) is None


LOSSY_TEXTS = [
    "".join(map(chr, range(0x20))),
    "a\x04b\x0b  12 \u017f 's'\u017f",
    "\x7f\x80\x85\xa0",
]


def encode_markup(engine: LlamaTokenizer, text: bytes) -> list[int]:
    """The engine's tokens where control tokens are parsed."""
    ids = (ctypes.c_int32 * (len(text) + 8))()
    n = libllama.load().llama_tokenize(engine.vocab, text, len(text), ids, len(ids), False, True)
    return ids[:n]


def rows(vocabulary: Vocabulary) -> list[tuple[bytes, TokenKind]]:
    return [(vocabulary.bytes_of(i), vocabulary.kind_of(i)) for i in range(vocabulary.n_vocab)]


def as_tokenizer_json(path: Path) -> dict[str, object]:
    """The tokens of a GGUF file as `tokenizers` would write them."""
    metadata = read_metadata(path)
    strings, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    assert isinstance(strings, list) and isinstance(kinds, np.ndarray)
    vocab: dict[str, int] = {}
    added: list[dict[str, object]] = []
    for token_id, (string, kind) in enumerate(zip(strings, kinds.tolist(), strict=True)):
        text = string.decode()
        if text == f"[PAD{token_id}]" or kind == TokenKind.UNUSED:
            continue
        if kind in (TokenKind.CONTROL, TokenKind.USER_DEFINED):
            added.append({"id": token_id, "content": text, "special": kind == TokenKind.CONTROL})
        else:
            vocab[text] = token_id
    is_byte_level = metadata["tokenizer.ggml.model"] == "gpt2"
    unknown = [string.decode() for string, kind in zip(strings, kinds, strict=True) if kind == 2]
    return {
        "model": {
            "type": "BPE",
            "vocab": vocab,
            "byte_fallback": not is_byte_level,
            "unk_token": unknown[0] if unknown else None,
        },
        "added_tokens": added,
        "decoder": {"type": "ByteLevel" if is_byte_level else "ByteFallback"},
    }
