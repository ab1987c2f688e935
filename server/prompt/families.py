"""FIM families: which control tokens a model was trained to fill a hole with, and in which order.

A family is data: roles and the texts of their special tokens, looked up as ids in a vocabulary.
Prompts are put together from ids, never from format strings.

  order     the order a family was trained in: "psm" is prefix, suffix, middle
  sentinel  the control token that opens one of these parts

F1  Control ids in a prompt come from here only, whatever the user's text contains. Therefore each
    sentinel must be exactly one token of a control kind: one that no plain text is encoded to.

A vocabulary alone may not tell a family: Refact and StarCoder have the same sentinels with the
same ids and were trained in different orders, which costs 9 bits at the first line when guessed
wrong. Rows that share their sentinels are told apart by the model's name; what neither tells is
not detected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from suture.healing.vocabulary import TokenKind, Vocabulary
from suture.server.errors import ModelError

Order = Literal["psm", "spm"]
Role = Literal["pre", "suf", "mid", "rep", "sep"]

_SENTINEL_KINDS = (TokenKind.CONTROL, TokenKind.USER_DEFINED)

HOLE_ROLES: tuple[Role, ...] = ("pre", "suf", "mid")
ROLE_NAMES: Mapping[Role, str] = MappingProxyType(
    {
        "pre": "prefix",
        "suf": "suffix",
        "mid": "middle",
        "rep": "repository name",
        "sep": "file separator",
    }
)


@dataclass(frozen=True, slots=True)
class FamilyRow:
    """What is known of a family before a vocabulary is looked at.

    `sentinels` has a text for "pre", "suf" and "mid", and for "rep" and "sep" if the family was
    trained on whole repositories. `stops` are the other texts that end a generation, those that
    the vocabulary has. `names`, if any, are parts of model names one of which must occur,
    in lower case: for families that others share their sentinels with.
    """

    name: str
    order: Order
    sentinels: Mapping[Role, str]
    stops: tuple[str, ...]
    names: tuple[str, ...] = ()


FAMILIES: tuple[FamilyRow, ...] = (
    # Qwen2.5-Coder, Qwen3-Coder and later Qwen models. GGUF files often list only <|im_end|> as
    # end of generation: llama.cpp#9606.
    FamilyRow(
        name="qwen2.5-coder",
        order="psm",
        sentinels=MappingProxyType(
            {
                "pre": "<|fim_prefix|>",
                "suf": "<|fim_suffix|>",
                "mid": "<|fim_middle|>",
                "rep": "<|repo_name|>",
                "sep": "<|file_sep|>",
            }
        ),
        stops=("<|endoftext|>", "<|im_end|>", "<|fim_pad|>"),
    ),
)


@dataclass(frozen=True, slots=True)
class FimFamily:
    """A family found in a vocabulary.

    `sentinel_ids` are the ids by role, "pre", "suf" and "mid" always among them. A generation
    ends at any of `stop_ids`, the sentinels included: no middle holds one.
    """

    name: str
    order: Order
    sentinel_ids: Mapping[Role, int]
    stop_ids: frozenset[int]


def detect_family(
    vocabulary: Vocabulary, name: str, rows: Sequence[FamilyRow] = FAMILIES
) -> FimFamily | None:
    """The family of the model called `name`, or None if it is not known for sure.

    Ids that the GGUF names itself go before those found by text. Raises `ModelError` if they
    cannot be sentinels: ordinary text, or one token in two roles.
    """
    found = [
        (row, spelled)
        for row in rows
        if not row.names or any(part in name.lower() for part in row.names)
        if (spelled := _spelled_ids(row, vocabulary)) is not None
    ]
    return _resolve(*found[0], vocabulary) if len(found) == 1 else None


def missing_sentinels(
    vocabulary: Vocabulary, rows: Sequence[FamilyRow] = FAMILIES
) -> tuple[str, ...]:
    """Which of "prefix", "suffix", "middle" the vocabulary has no token for, in that order."""
    return tuple(
        ROLE_NAMES[role]
        for role in HOLE_ROLES
        if role not in vocabulary.fim_ids
        and all(vocabulary.special_id(row.sentinels[role]) is None for row in rows)
    )


def _spelled_ids(row: FamilyRow, vocabulary: Vocabulary) -> dict[Role, int] | None:
    """The row's sentinels by their texts, or None if the vocabulary lacks one."""
    ids = {role: vocabulary.special_id(text) for role, text in row.sentinels.items()}
    known = {role: token_id for role, token_id in ids.items() if token_id is not None}
    return known if len(known) == len(ids) else None


def _resolve(row: FamilyRow, spelled: Mapping[Role, int], vocabulary: Vocabulary) -> FimFamily:
    sentinel_ids = {role: vocabulary.fim_ids.get(role, spelled[role]) for role in spelled}
    for role, token_id in sentinel_ids.items():
        if vocabulary.kind_of(token_id) not in _SENTINEL_KINDS:
            raise ModelError(
                f"the model's file names token {token_id} as its FIM {ROLE_NAMES[role]} token,"
                f" but that is ordinary text: {vocabulary.text_of(token_id)!r}"
            )
    if len(set(sentinel_ids.values())) < len(sentinel_ids):
        raise ModelError(f"the model's file gives one token two FIM roles: {sentinel_ids}")
    stops = (vocabulary.special_id(text) for text in row.stops)
    stop_ids = frozenset(
        (
            *sentinel_ids.values(),
            *spelled.values(),
            *vocabulary.fim_ids.values(),
            *(token_id for token_id in stops if token_id is not None),
        )
    )
    return FimFamily(row.name, row.order, MappingProxyType(sentinel_ids), stop_ids)
