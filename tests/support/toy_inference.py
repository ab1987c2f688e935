"""What an inference server says over a toy model: token ids, greedy, under one constraint.

The model and its vocabulary are those of the scripted engine, so that the embedded server and a
remote one can be asked the same. A constraint is what real servers take for pending bytes, a
regular expression `P[\\s\\S]*` or a grammar `"P" [^\\x00]*`, or a grammar of some texts; it masks
as the recursive rule has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from suture.healing import TokenHealer, Vocabulary
from suture.server.decoding.candidates import Logits
from suture.server.engine.scripted import Model
from suture.server.engine.scripted_grammar import TextsGrammar

_REGEX = re.compile(r"(?P<literal>(?:\\.|[^\\\[\](){}|*+?.^$])*)\[\\s\\S\]\*", re.DOTALL)
_LITERAL = r'"(?:[^"\\]|\\.)*"'
_BEGINNING = re.compile(rf"root ::= (?P<literal>{_LITERAL}) \[\^\\x00\]\*\s*", re.DOTALL)
_COMPOSED = re.compile(
    rf"root ::= (?:(?P<literal>{_LITERAL}) )?(?P<name>[\w-]+)\s+"
    rf"(?P=name) ::= (?P<texts>{_LITERAL}(?: \| {_LITERAL})*)\s*",
    re.DOTALL,
)
_SHORT = {"n": "\n", "t": "\t", "r": "\r"}


class NoConstraint(ValueError):
    """A constraint that no server, or not this one, understands."""


@dataclass(frozen=True)
class Constraint:
    """What the text has to be: it begins with `pending`, or is one of `texts`."""

    pending: bytes = b""
    texts: tuple[bytes, ...] = ()


def of_regex(regex: str) -> Constraint:
    if (match := _REGEX.fullmatch(regex)) is None:
        raise NoConstraint(f"not a beginning and anything: {regex!r}")
    return Constraint(pending=_unescaped(match["literal"]))


def of_grammar(gbnf: str) -> Constraint:
    if match := _BEGINNING.fullmatch(gbnf):
        return Constraint(pending=_unescaped(match["literal"][1:-1]))
    if match := _COMPOSED.fullmatch(gbnf):
        start = _unescaped((match["literal"] or '""')[1:-1])
        return Constraint(texts=tuple(start + text for text in _texts(match["texts"])))
    if re.fullmatch(rf"root ::= {_LITERAL}(?: \| {_LITERAL})*\s*", gbnf, re.DOTALL):
        return Constraint(texts=tuple(_texts(gbnf)))
    raise NoConstraint("not a beginning, and not some texts")


def _texts(alternatives: str) -> Iterator[bytes]:
    return (_unescaped(text[1:-1]) for text in re.findall(_LITERAL, alternatives))


def _unescaped(literal: str) -> bytes:
    def character(escape: re.Match[str]) -> str:
        return chr(int(escape[1], 16)) if escape[1] else _SHORT.get(escape[2], escape[2])

    return re.sub(r"\\(?:x([0-9a-fA-F]{2})|(.))", character, literal, flags=re.DOTALL).encode()


@dataclass(frozen=True)
class Inference:
    """What is asked of the model; `ends` end the text, which has `max_tokens` at most."""

    prompt_ids: Sequence[int]
    max_tokens: int
    ends: frozenset[int]
    constraint: Constraint = Constraint()
    bias: Mapping[int, float] = field(default_factory=dict)
    min_tokens: int = 0


@dataclass(frozen=True)
class Said:
    """One token, with the log probabilities of all in its place."""

    token_id: int
    logprobs: Logits


def infer(vocabulary: Vocabulary, model: Model, asked: Inference) -> Iterator[Said]:
    """The tokens of the answer; one of the ends is the last, where there is one."""
    healer = TokenHealer(vocabulary, asked.constraint.pending)
    texts = asked.constraint.texts
    grammar = TextsGrammar(vocabulary, texts) if texts else None
    ids = list(asked.prompt_ids)
    padding = [i for i in range(vocabulary.n_vocab) if not _is_said(vocabulary, i)]
    try:
        for n in range(asked.max_tokens):
            row = _row(model(ids), padding, asked, n)
            logprobs = _logprobs(row)
            if not healer.done:
                row = np.where(_mask(healer, vocabulary), row, -np.inf)
            if grammar is not None:
                grammar.mask(row)
            token_id = int(np.argmax(row))
            yield Said(token_id, logprobs)
            if token_id in asked.ends:
                return
            healer.consume(token_id)
            if grammar is not None:
                grammar.accept(token_id)
            ids.append(token_id)
    finally:
        if grammar is not None:
            grammar.close()


def _is_said(vocabulary: Vocabulary, token_id: int) -> bool:
    """Whether a real model might say it; none says the padding behind its vocabulary."""
    return vocabulary.rank[token_id] >= 0 or bool(vocabulary.text_of(token_id))


def _row(logits: Logits, padding: list[int], asked: Inference, n: int) -> Logits:
    row = logits.astype(np.float32, copy=True)
    row[padding] = -np.inf
    for token_id, bias in asked.bias.items():
        row[token_id] += bias
    if n < asked.min_tokens:
        row[list(asked.ends)] = -np.inf
    return row


def _mask(healer: TokenHealer, vocabulary: Vocabulary) -> npt.NDArray[np.bool_]:
    constraint = healer.constraint()
    return np.array([constraint.allows(i) for i in range(vocabulary.n_vocab)])


def _logprobs(row: Logits) -> Logits:
    scaled = row - row.max()
    log_sum = np.log(np.exp(scaled).sum())
    logprobs: Logits = (scaled - log_sum).astype(np.float32)
    return logprobs
