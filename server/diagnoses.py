"""What is weak at a cursor, each with a one-sentence cure: a short, closed list.

A finding is *healed* where the method that the request asks for mends it. The codes are documented
in docs/http.md, and stay.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from suture.server.prompt.plan import PromptPlan
from suture.server.request import CompletionRequest, HealingLevel

Code = Literal[
    "TRAILING_BLANK",
    "INSIDE_WORD",
    "OPEN_TOKEN",
    "HEALING_OFF",
    "BEHIND_SENTINEL",
    "HEALING_DROPPED",
    "UNSPELLABLE",
    "NO_BYTES",
    "GIVE_BACK_SHORT",
    "NOT_EXACT",
    "BOUNDED",
    "UNLIKELY_TEXT",
    "WORD_AFTER_CURSOR",
    "WORD_BEGINS_AT_CURSOR",
    "INSIDE_CHARACTER",
    "BETWEEN_CR_AND_LF",
]

# Nats: what the model gives less than this, it has hardly seen.
_UNLIKELY = -9.2
_LARGE_BOUND = 0.05
_ZERO_WIDTH_JOINER = "\u200d"

# What was found, and what helps.
SENTENCES: MappingProxyType[Code, tuple[str, str]] = MappingProxyType(
    {
        "TRAILING_BLANK": (
            "The text ends with a blank, which most tokens have in front of their word.",
            "End the text before the blank, if it cannot be healed.",
        ),
        "INSIDE_WORD": (
            "The text ends inside a word, which the tokenizer splits elsewhere when it is whole.",
            "Ask at the start of the word, if it cannot be healed.",
        ),
        "OPEN_TOKEN": (
            "Longer tokens begin with what the text ends with.",
            "Ask where the text goes on with a blank or a line end, if it cannot be healed.",
        ),
        "HEALING_OFF": (
            "Healing is off, and the end of the text would be given back.",
            "Ask with healing exact.",
        ),
        "BEHIND_SENTINEL": (
            "The end of the text stands before a sentinel in this layout, where it is not healed.",
            "Ask with fim_boundary move or layout anchor, or with spm, where the model has them.",
        ),
        "HEALING_DROPPED": (
            "A grammar, a bias or a ban refuses all healed text, so that healing was dropped.",
            "Let the grammar begin with what tokens may say past the cursor, or allow more tokens.",
        ),
        "UNSPELLABLE": (
            "No tokens of this model could spell the end of the text again.",
            "Move the cursor behind a character that the vocabulary has, or take another model.",
        ),
        "NO_BYTES": (
            "The bytes of this model's tokens are not the text, so nothing is healed.",
            "Take a model whose detokenizer is bytes (suture doctor says which it is).",
        ),
        "GIVE_BACK_SHORT": (
            "Fewer tokens are given back than the text's tokens depend on.",
            'Ask with give_back "stable".',
        ),
        "NOT_EXACT": (
            "Healing is not exact: too much is given back for a tree, or another server draws.",
            "Ask further on in the text, where less is given back, or have Suture run the model.",
        ),
        "BOUNDED": (
            "Covers that may matter were left out: tv_bound says how much.",
            "Ask further on in the text, where less is given back.",
        ),
        "UNLIKELY_TEXT": (
            "The model hardly believes what was typed, so that what follows is a guess.",
            "Look for a slip in it, or show the file that has the name (input_extra).",
        ),
        "WORD_AFTER_CURSOR": (
            "The word goes on behind the cursor, and an answer ends before that rest.",
            "Ask at the end of the word, or delete its rest before.",
        ),
        "WORD_BEGINS_AT_CURSOR": (
            "A word begins right behind the cursor: an answer that ends with it ends before it.",
            "Put a blank behind the cursor, or delete the word, if another one is meant.",
        ),
        "INSIDE_CHARACTER": (
            "What stands behind the cursor belongs to the character before it.",
            "Move the cursor behind the whole character.",
        ),
        "BETWEEN_CR_AND_LF": (
            "The cursor stands inside a line end.",
            "Move it before the carriage return.",
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found, and what helps; `is_healed` where nothing has to."""

    code: Code
    is_healed: bool
    found: str
    cure: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What is looked at: the request, its plan and the level that it was healed at.

    `stable_pending` is what a stable cut would give back, None where no tokens could say it again.
    `log_evidence` is None where there are no covers.
    """

    request: CompletionRequest
    plan: PromptPlan
    level: HealingLevel
    stable_pending: bytes | None
    heals: bool
    log_evidence: float | None = None
    tv_bound: float = 0.0


def diagnose(facts: Facts) -> tuple[Diagnosis, ...]:
    """What is weak there, the end of the text first."""
    is_healed = facts.level != "none"
    return (
        *(_named(code, is_healed) for code in _ends(facts)),
        *(_named(code, False) for code in (*_causes(facts), *_shares(facts), *_places(facts))),
    )


def _named(code: Code, is_healed: bool) -> Diagnosis:
    return Diagnosis(code, is_healed, *SENTENCES[code])


def _ends(facts: Facts) -> Iterator[Code]:
    """What the text ends with, where longer tokens begin with it."""
    last = facts.request.prefix[-1:]
    if facts.stable_pending == b"" or not last:
        return
    if last in " \t":
        yield "TRAILING_BLANK"
    elif _is_of_word(last):
        yield "INSIDE_WORD"
    elif facts.stable_pending:
        yield "OPEN_TOKEN"


def _causes(facts: Facts) -> Iterator[Code]:
    """Why the end of the text is not healed, or not as it could be."""
    request, plan, stable = facts.request, facts.plan, facts.stable_pending
    if stable == b"":
        return
    if not facts.heals:
        yield "NO_BYTES"
    elif stable is None:
        yield "UNSPELLABLE"
    elif request.healing == "off":
        yield "HEALING_OFF"
    elif not plan.pending:
        yield "BEHIND_SENTINEL"
    elif facts.level == "none":
        yield "HEALING_DROPPED"
    elif request.give_back is not None and len(plan.pending) < len(stable):
        yield "GIVE_BACK_SHORT"


def _shares(facts: Facts) -> Iterator[Code]:
    if facts.request.healing == "exact" and facts.level == "recursive":
        yield "NOT_EXACT"
    if facts.tv_bound > _LARGE_BOUND:
        yield "BOUNDED"
    if facts.log_evidence is not None and facts.log_evidence < _UNLIKELY:
        yield "UNLIKELY_TEXT"


def _places(facts: Facts) -> Iterator[Code]:
    last, first = facts.request.prefix[-1:], facts.request.suffix[:1]
    if not first:
        return
    if first == _ZERO_WIDTH_JOINER or last == _ZERO_WIDTH_JOINER or _is_mark(first):
        yield "INSIDE_CHARACTER"
    elif last == "\r" and first == "\n":
        yield "BETWEEN_CR_AND_LF"
    elif _is_of_word(first):
        yield "WORD_AFTER_CURSOR" if _is_of_word(last) else "WORD_BEGINS_AT_CURSOR"


def _is_of_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")
