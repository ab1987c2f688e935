"""The vocabulary in a `tokenizer.json`, the file of Hugging Face's `tokenizers`.

Two kinds have tokens with bytes of their own: byte-level BPE, and BPE over SentencePiece's
alphabet with byte fallback. Which one a file is, its decoder says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suture.healing.pieces import UnsupportedVocabulary, pieces_of
from suture.healing.pretokenizer import UNKNOWN, family_of_pattern
from suture.healing.specials import TokenKind, effective_kinds, end_ids
from suture.healing.token_table import TokenTable

# No vocabulary has as many rows; a file that claims more would fill the memory.
_MAX_ROWS = 1 << 24


class TokenizerFileError(ValueError):
    """The file is not a `tokenizer.json` that can be read; one line says why."""


def read_tokenizer_json(
    path: Path, *, n_vocab: int | None = None, bos: str | None = None, eos: str | None = None
) -> TokenTable:
    """The tokens of the file; `n_vocab` rows if it has fewer.

    Without `bos`, the token that the file's post-processor puts before a text is it. Raises
    `TokenizerFileError`, `UnsupportedVocabulary`, or `OSError` where it cannot be opened.
    """
    try:
        data = json.loads(path.read_bytes())
        if not isinstance(data, dict) or not isinstance(data.get("model"), dict):
            raise TokenizerFileError("there is no model in it")
        return _table(data, n_vocab, bos, eos)
    except UnsupportedVocabulary as error:
        raise UnsupportedVocabulary(f"{path}: {error}") from None
    except TokenizerFileError as error:
        raise TokenizerFileError(f"{path}: {error}") from None
    except (UnicodeDecodeError, json.JSONDecodeError):
        raise TokenizerFileError(f"{path}: not a JSON file") from None


@dataclass(frozen=True, slots=True)
class _AddedToken:
    content: str
    id: int
    special: bool


def _table(
    data: Mapping[str, Any], n_vocab: int | None, bos: str | None, eos: str | None
) -> TokenTable:
    model = _spelling(data)
    family = _family(data.get("pre_tokenizer")) if model == "gpt2" else UNKNOWN
    own = _own_tokens(data["model"])
    added = _added_tokens(data.get("added_tokens"))
    ids = {text.encode(): token_id for text, token_id in own.items()}
    ids |= {token.content.encode(): token.id for token in added}
    if not ids:
        raise TokenizerFileError("it has no tokens")
    strings = _by_id(ids, n_vocab)
    kinds = _kinds(data["model"], own, added, ids, len(strings))
    first = _first_token(data.get("post_processor"))
    eos_id = _named(eos, ids)
    return TokenTable(
        pieces_of(strings, kinds, model, family),
        kinds=kinds,
        n_vocab=len(strings),
        bos_id=_named(first if bos is None else bos, ids),
        eos_id=eos_id,
        eog_ids=frozenset(end_ids(ids, {}) | ({eos_id} if eos_id is not None else set())),
        add_bos=first is not None,
        model=model,
        pretokenizer=family,
    )


def _kinds(
    model: Mapping[str, Any],
    own: Mapping[str, int],
    added: Sequence[_AddedToken],
    ids: Mapping[bytes, int],
    n_rows: int,
) -> npt.NDArray[np.int32]:
    kinds = np.full(n_rows, TokenKind.UNUSED, np.int32)
    kinds[list(own.values())] = TokenKind.NORMAL
    if model.get("byte_fallback"):
        kinds[[token_id for string, token_id in ids.items() if _is_byte(string)]] = TokenKind.BYTE
    for token in added:
        kinds[token.id] = TokenKind.CONTROL if token.special else TokenKind.USER_DEFINED
    unknown = model.get("unk_token")
    if isinstance(unknown, str) and unknown.encode() in ids:
        kinds[ids[unknown.encode()]] = TokenKind.UNKNOWN
    return effective_kinds(kinds, ids, {})


def _spelling(data: Mapping[str, Any]) -> str:
    """How tokens spell their bytes, by llama.cpp's name: "gpt2" or "llama"."""
    model = data["model"]
    kind = model.get("type") or "BPE"
    if kind != "BPE":
        raise UnsupportedVocabulary(f"tokenizer model {kind!r} is not supported")
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise UnsupportedVocabulary(f"BPE with {key} {model[key]!r} is not supported")
    decoders = [part.get("type") for part in _parts(data.get("decoder"), "decoders")]
    if decoders == ["ByteLevel"]:
        return "gpt2"
    if "ByteFallback" in decoders and not {"WordPiece", "BPEDecoder", "CTC"} & set(decoders):
        return "llama"
    raise UnsupportedVocabulary(
        f"BPE with the decoder {' + '.join(map(str, decoders)) or 'none'} is not supported"
    )


def _family(pre_tokenizer: object) -> str:
    """The family whose splits these are, `UNKNOWN` if it is none that we know."""
    parts = _parts(pre_tokenizer, "pretokenizers")
    kinds = [part.get("type") for part in parts]
    by_itself = bool(parts) and kinds[-1] == "ByteLevel" and parts[-1].get("use_regex", True)
    if kinds == ["ByteLevel"] and by_itself:
        return "gpt-2"
    if kinds == ["Digits", "ByteLevel"] and by_itself and parts[0].get("individual_digits"):
        return "starcoder"
    if kinds == ["Split", "ByteLevel"] and not by_itself and not parts[0].get("invert"):
        pattern = parts[0].get("pattern")
        if isinstance(pattern, dict) and parts[0].get("behavior") == "Isolated":
            return family_of_pattern(str(pattern.get("Regex")))
    return UNKNOWN


def _parts(node: object, key: str) -> list[dict[str, Any]]:
    """A pipeline's parts; a single part is a pipeline of one."""
    if not isinstance(node, dict):
        return []
    parts = node.get(key) if node.get("type") == "Sequence" else [node]
    return [part for part in parts or [] if isinstance(part, dict)]


def _own_tokens(model: Mapping[str, Any]) -> dict[str, int]:
    vocab = model.get("vocab")
    if not isinstance(vocab, dict) or not all(_is_id(token_id) for token_id in vocab.values()):
        raise TokenizerFileError("its vocab does not give every token an id")
    if len(set(vocab.values())) < len(vocab):
        raise TokenizerFileError("its vocab gives two tokens one id")
    return vocab


def _added_tokens(node: object) -> list[_AddedToken]:
    try:
        added = [
            _AddedToken(token["content"], token["id"], bool(token.get("special")))
            for token in node or ()  # type: ignore[attr-defined]
        ]
    except (AttributeError, KeyError, TypeError):
        raise TokenizerFileError("its added_tokens lack an id or a content") from None
    if not all(_is_id(token.id) and isinstance(token.content, str) for token in added):
        raise TokenizerFileError("its added_tokens lack an id or a content")
    return added


def _is_id(token_id: object) -> bool:
    return type(token_id) is int and 0 <= token_id < _MAX_ROWS


def _is_byte(string: bytes) -> bool:
    return len(string) == 6 and string.startswith(b"<0x") and string.endswith(b">")


def _by_id(ids: Mapping[bytes, int], n_vocab: int | None) -> list[bytes]:
    n_rows = max(ids.values()) + 1
    if n_vocab is not None and n_vocab < n_rows:
        raise TokenizerFileError(f"its tokens do not fit in {n_vocab} rows of logits")
    strings = [b""] * (n_vocab or n_rows)
    for string, token_id in ids.items():
        strings[token_id] = string
    return strings


def _first_token(post_processor: object) -> str | None:
    """The special token that a template puts before every text."""
    for part in _parts(post_processor, "processors"):
        template = part.get("single")
        if part.get("type") == "TemplateProcessing" and isinstance(template, list) and template:
            token = template[0].get("SpecialToken") if isinstance(template[0], dict) else None
            if isinstance(token, dict) and isinstance(token.get("id"), str):
                return str(token["id"])
    return None


def _named(text: str | None, ids: Mapping[bytes, int]) -> int | None:
    if text is None:
        return None
    if text.encode() not in ids:
        raise TokenizerFileError(f"it has no token {text!r}")
    return ids[text.encode()]
