"""Which family a model is of: by its tokens, and where they do not tell, by what it is called.

1. Rows whose sentinels the vocabulary has are looked at, no others.
2. The model's name decides, then the title in its file, then its architecture.
3. Else the row with the most sentinels stands. Where others fit as well, or a larger family may
   have been stripped of tokens, psm is taken and the answer says that it is `ambiguous`: Refact
   and StarCoder have the same sentinels with the same ids and were trained in different orders,
   which costs 9 bits at the first line when guessed wrong.
4. A row that is known from memory, or whose tokens untrained models have too, is taken by its name
   only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from suture.healing.vocabulary import TokenKind, Vocabulary
from suture.server.errors import ModelError
from suture.server.prompt.families.rows import (
    COMMENTED,
    FAMILIES,
    UNTRAINED,
    FamilyRow,
    HoleLayout,
    LayoutDefaults,
    Order,
    RepositoryLayout,
    Role,
    TailBoundary,
)

_SENTINEL_KINDS = (TokenKind.CONTROL, TokenKind.USER_DEFINED)

HOLE_ROLES: tuple[Role, ...] = ("pre", "suf", "mid")
ROLE_NAMES: Mapping[Role, str] = MappingProxyType(
    {
        "pre": "prefix",
        "suf": "suffix",
        "mid": "middle",
        "rep": "repository name",
        "sep": "file separator",
        "user": "user turn",
        "assistant": "assistant turn",
    }
)


@dataclass(frozen=True, slots=True)
class FimFamily:
    """A family found in a vocabulary.

    `sentinel_ids` are the ids by role, "pre" and "suf" always among them. A generation ends at any
    of `stop_ids`, the sentinels included: no middle holds one. `ambiguous` names all families that
    the model may be of, if that is not known for sure. Unless `verified`, the family's format is
    known from memory only. `stop_strings` end a middle like `stop_ids`. `default_layout` and
    `default_boundary` are those of the row.
    """

    name: str
    order: Order
    sentinel_ids: Mapping[Role, int]
    stop_ids: frozenset[int]
    repository: RepositoryLayout = COMMENTED
    ambiguous: tuple[str, ...] = ()
    verified: bool = True
    stop_strings: tuple[str, ...] = ()
    default_layout: HoleLayout | None = None
    default_boundary: TailBoundary = "keep"

    @property
    def defaults(self) -> LayoutDefaults:
        """What "auto" stands for, unless the model itself was measured."""
        return LayoutDefaults(self.default_layout or self.order, self.default_boundary)


@dataclass(frozen=True, slots=True)
class _Match:
    """A row, and the ids of its sentinels in a vocabulary."""

    row: FamilyRow
    ids: Mapping[Role, int]

    @property
    def texts(self) -> frozenset[str]:
        return frozenset(self.row.sentinels.values())


def detect_family(
    vocabulary: Vocabulary,
    name: str,
    architecture: str | None = None,
    title: str | None = None,
    rows: Sequence[FamilyRow] = FAMILIES,
) -> FimFamily | None:
    """The family of the model called `name`, or None if there is none or its order is not known.

    `architecture` and `title` are those that the vocabulary's file says, unless they are given. Ids
    that the file names itself go before those found by text. Raises `ModelError` if they cannot be
    sentinels: ordinary text, or one token in two roles.
    """
    architecture = vocabulary.architecture if architecture is None else architecture
    name, title = _letters(name), _letters(vocabulary.title if title is None else title)
    if _is_untrained(name) or _is_untrained(title):
        return None
    matches = _matches(vocabulary, rows)
    known = (
        _of_name(matches, name)
        or _of_name(matches, title)
        or _of_architecture(matches, architecture)
    )
    if known is not None:
        return _resolve(known, vocabulary)
    largest = [match for match in matches if not _is_part_of_another(match, matches)]
    by_tokens = [match for match in largest if match.row.known_by == "tokens"]
    if len(by_tokens) == 1 and _is_distinctive(by_tokens[0], rows):
        return _resolve(by_tokens[0], vocabulary)
    return _ambiguous(
        [match for match in by_tokens if match.row.order == "psm"], largest, vocabulary
    )


def missing_sentinels(
    vocabulary: Vocabulary, rows: Sequence[FamilyRow] = FAMILIES
) -> tuple[str, ...]:
    """Which of "prefix", "suffix", "middle" the vocabulary has no token for, in that order."""
    return tuple(
        ROLE_NAMES[role]
        for role in HOLE_ROLES
        if role not in vocabulary.fim_ids
        and all(
            vocabulary.special_id(row.sentinels[role]) is None
            for row in rows
            if role in row.sentinels
        )
    )


def families_by_name(
    vocabulary: Vocabulary, name: str, title: str = "", rows: Sequence[FamilyRow] = FAMILIES
) -> tuple[str, ...]:
    """The families that the model could be of if its name said so, which `name` does not."""
    if _is_untrained(_letters(name)) or _is_untrained(_letters(title)):
        return ()
    matches = _matches(vocabulary, rows)
    return tuple(match.row.name for match in matches if match.row.known_by == "name")


def _letters(name: str) -> str:
    """``Refact-1_6B.fim`` as ``refact16b.fim``: files spell names with different separators."""
    return re.sub(r"[^a-z0-9.]", "", name.lower())


def _is_untrained(name: str) -> bool:
    return any(all(part in name for part in parts) for parts in UNTRAINED)


def _matches(vocabulary: Vocabulary, rows: Sequence[FamilyRow]) -> list[_Match]:
    """The rows all of whose sentinels the vocabulary has, in order."""
    matches = []
    for row in rows:
        found = {role: vocabulary.special_id(text) for role, text in row.sentinels.items()}
        ids = {role: token_id for role, token_id in found.items() if token_id is not None}
        if len(ids) == len(found):
            matches.append(_Match(row, MappingProxyType(ids)))
    return matches


def _of_name(matches: Sequence[_Match], name: str) -> _Match | None:
    """The only match with the longest part of the name: ``granite4`` goes before ``granite``.

    None if rows share that part: what they are called does not tell them apart.
    """
    named = [(len(part), match) for match in matches for part in match.row.names if part in name]
    longest = max((length for length, _ in named), default=0)
    best = [match for length, match in named if length == longest]
    return best[0] if len(best) == 1 else None


def _of_architecture(matches: Sequence[_Match], architecture: str) -> _Match | None:
    """The only match that has models of this architecture."""
    built = [
        match
        for match in matches
        if match.row.known_by == "tokens" and architecture in match.row.architectures
    ]
    return built[0] if len(built) == 1 else None


def _is_part_of_another(match: _Match, matches: Sequence[_Match]) -> bool:
    return any(match.texts < other.texts for other in matches if other.row.known_by == "tokens")


def _is_distinctive(match: _Match, rows: Sequence[FamilyRow]) -> bool:
    """Whether no other family has all of the match's sentinels."""
    return not any(
        match.texts <= set(row.sentinels.values()) for row in rows if row is not match.row
    )


def _ambiguous(
    takeable: Sequence[_Match], candidates: Sequence[_Match], vocabulary: Vocabulary
) -> FimFamily | None:
    """The first that may be taken, with what all candidates have in common.

    None if there is no such, or if two of them name different tokens for one role.
    """
    if not takeable:
        return None
    hole = {role: takeable[0].ids[role] for role in HOLE_ROLES if role in takeable[0].ids}
    if any(match.ids.get(role) != hole.get(role) for match in candidates for role in HOLE_ROLES):
        return None
    family = _resolve(_Match(takeable[0].row, hole), vocabulary)
    stops = (_resolve(match, vocabulary).stop_ids for match in candidates)
    return FimFamily(
        family.name,
        "psm",
        family.sentinel_ids,
        family.stop_ids.union(*stops),
        ambiguous=tuple(match.row.name for match in candidates),
    )


def _resolve(match: _Match, vocabulary: Vocabulary) -> FimFamily:
    row, spelled = match.row, match.ids
    sentinel_ids = {role: vocabulary.fim_ids.get(role, spelled[role]) for role in spelled}
    for role, token_id in sentinel_ids.items():
        if vocabulary.kind_of(token_id) not in _SENTINEL_KINDS:
            raise ModelError(
                f"the model's file names token {token_id} as its FIM {ROLE_NAMES[role]} token,"
                f" but that is ordinary text: {vocabulary.text_of(token_id)!r}"
            )
    if len(set(sentinel_ids.values())) < len(sentinel_ids):
        raise ModelError(f"the model's file gives one token two FIM roles: {sentinel_ids}")
    stops = (_stop_id(vocabulary, text) for text in row.stops)
    stop_ids = frozenset(
        (
            *sentinel_ids.values(),
            *spelled.values(),
            *vocabulary.fim_ids.values(),
            *(token_id for token_id in stops if token_id is not None),
        )
    )
    return FimFamily(
        row.name,
        row.order,
        MappingProxyType(sentinel_ids),
        stop_ids,
        row.repository,
        verified=row.evidence == "source",
        stop_strings=row.stop_strings,
        default_layout=row.default_layout,
        default_boundary=row.default_boundary,
    )


def _stop_id(vocabulary: Vocabulary, text: str) -> int | None:
    """The token that a family ends with. Converters leave some marked as ordinary text: ▁<EOT>."""
    ordinary = vocabulary.ids_of(vocabulary.as_read(text.encode()))
    return next(iter(ordinary), None) if (i := vocabulary.special_id(text)) is None else i
