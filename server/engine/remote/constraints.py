"""Pending bytes as a constraint of an engine: a regular expression, or a grammar.

An engine that masks tokens by `P[\\s\\S]*` allows just the tokens that go on with the rest of P and
those that are a proper beginning of it: the recursive rule. Both forms are of characters, so the
pending bytes have to be whole ones. A character that not all engines take as it stands has no
constraint: NUL is refused by vLLM in either form, and other control characters are nobody's text.

  mistakable   a special token whose own text an engine may take for the text that it forces: where
               it could be part of that, it has to be banned beside the constraint. The one token
               that engines know for the end is not: it may come behind the pending bytes only

What a client asks for as a grammar shares the engine's one constraint: `composed` is pending bytes
and grammar in one. The client's rules get names of their own, and what xgrammar reads otherwise
than llama.cpp is written so that both read it as llama.cpp does: `.` begins a name in xgrammar,
names may not begin with a digit, some escapes are others, and an empty alternative is written as an
empty literal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from suture.healing import Vocabulary
from suture.server.engine.remote.protocol import Asked

ANYTHING = r"[\s\S]*"
_REGEX_SIGNS = frozenset("\\.+*?()|[]{}^$/-")
_CONTROLS = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}
_REFUSED = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_ANY_TEXT = r"[^\x00]*"
_PREFIX = "client-"

_ESCAPED = r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)"
_TOKEN = re.compile(
    rf"""(?P<blank>(?:\s|\#[^\r\n]*)+)
    | (?P<literal>"(?:{_ESCAPED}|[^\\"])*")
    | (?P<set>\[(?:{_ESCAPED}|[^\\\]])*\])
    | (?P<name>[a-zA-Z0-9-]+)
    | (?P<define>::=)
    | (?P<times>\{{[^}}]*\}}|[*+?])
    | (?P<sign>[()|.])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = re.compile(r"\\(?:x(..)|u(....)|U(.{8})|(.))", re.DOTALL)
# What has to be escaped where; `^` begins a set of others only where it stands as itself.
_IN_LITERAL = {**_CONTROLS, "\\": r"\\", '"': r"\""}
_IN_SET = {**_CONTROLS, "\\": r"\\", "]": r"\]", "-": r"\-", "^": r"\u005E"}


def regex_of(pending: bytes) -> str | None:
    """A regular expression for texts that begin with the pending bytes; None if there is none."""
    text = _plain(pending)
    if text is None:
        return None
    escaped = ("\\" + c if c in _REGEX_SIGNS else _CONTROLS.get(c, c) for c in text)
    return "".join(escaped) + ANYTHING


def gbnf_of(pending: bytes) -> str | None:
    """A grammar for texts that begin with the pending bytes; None if there is none."""
    literal = _literal(pending)
    return None if literal is None else f"root ::= {literal} {_ANY_TEXT}"


def composed(pending: bytes, grammar: str) -> str | None:
    """A grammar for the pending bytes and behind them what `grammar` describes.

    `grammar` is one that `gbnf.check` takes. None where the two cannot be made one.
    """
    literal = _literal(pending)
    rules = None if literal is None else _renamed(grammar)
    if rules is None:
        return None
    return f"root ::= {f'{literal} ' if pending else ''}{_PREFIX}root\n{rules}"


def grammar_for(pending: bytes, grammar: str) -> str | None:
    """As `composed`; with nothing pending a grammar that has no other writing stays as it is."""
    both = composed(pending, grammar)
    return grammar if both is None and not pending else both


def mistakable(text: bytes, pending: bytes) -> bool:
    """Whether a constraint could take the text that a token shows for some of the pending bytes."""
    starts = (at for at, byte in enumerate(pending) if byte == text[0])
    return any(text.startswith(pending[at:]) or pending.startswith(text, at) for at in starts)


def taken_for_text(asked: Asked, ends: frozenset[int], vocabulary: Vocabulary) -> list[int]:
    """The special tokens to ban beside the constraint, those before others that show sentinels.

    `ends` are those that the engine knows to be no text. Of the others none can end the text then.
    """
    pending = asked.pending if asked.level != "none" else b""
    if not pending and asked.grammar is None:
        return []
    specials = _shown((*asked.banned_ids, *sorted(asked.end_ids - ends)), vocabulary)
    if asked.grammar is not None:
        return [token_id for token_id, _ in specials]
    return [token_id for token_id, text in specials if mistakable(text, pending)]


def known_ends(vocabulary: Vocabulary) -> frozenset[int]:
    """The ends that xgrammar knows: the model's own."""
    eos_id = vocabulary.eos_id
    return vocabulary.eog_ids if eos_id is None else frozenset({eos_id})


@lru_cache(maxsize=8)
def _shown(token_ids: tuple[int, ...], vocabulary: Vocabulary) -> tuple[tuple[int, bytes], ...]:
    """Those of the tokens that say no text and show one, with that: sentinels first."""
    shown = ((i, vocabulary.text_of(i).encode()) for i in token_ids if not vocabulary.bytes_of(i))
    sentinels = vocabulary.control_ids | set(vocabulary.fim_ids.values())
    with_text = [(token_id, text) for token_id, text in shown if text]
    return tuple(sorted(with_text, key=lambda pair: pair[0] not in sentinels))


def _plain(pending: bytes) -> str | None:
    try:
        text = pending.decode()
    except UnicodeDecodeError:
        return None
    return None if _REFUSED.search(text) else text


def _literal(pending: bytes) -> str | None:
    text = _plain(pending)
    if text is None:
        return None
    escaped = ("\\" + c if c in '\\"' else _CONTROLS.get(c, c) for c in text)
    return f'"{"".join(escaped)}"'


def _renamed(grammar: str) -> str | None:
    """The rules with other names, in the words that all read alike; None for an empty set."""
    tokens = [match for match in _TOKEN.finditer(grammar) if match.lastgroup != "blank"]
    defined = {i for i, token in enumerate(tokens[1:]) if token.lastgroup == "define"}
    written: list[str] = []
    is_empty = False
    for i, token in enumerate(tokens):
        text, ends = token[0], i in defined or token[0] in ("|", ")")
        if is_empty and ends:
            written.append('""')
        if i in defined:
            written.append("\n" if i else "")
        if token.lastgroup == "set" and text in ("[]", "[^]"):
            return None
        written.append(_portable(token))
        is_empty = token.lastgroup == "define" or text in ("|", "(")
    return " ".join([*written, *(['""'] if is_empty else [])]).replace(" \n ", "\n").strip()


def _portable(token: re.Match[str]) -> str:
    text = token[0]
    match token.lastgroup:
        case "name":
            return _PREFIX + text
        case "literal":
            return _ESCAPES.sub(lambda escape: _escaped(escape, _IN_LITERAL), text)
        case "set":
            return _ESCAPES.sub(lambda escape: _escaped(escape, _IN_SET), text)
    return r"[^\x00]" if text == "." else text


def _escaped(escape: re.Match[str], signs: Mapping[str, str]) -> str:
    """An escape as all read it: the character itself, where that is one that can be seen."""
    code = escape[1] or escape[2] or escape[3]
    named = {"n": "\n", "r": "\r", "t": "\t"}
    char = chr(int(code, 16)) if code else named.get(escape[4], escape[4])
    if char in signs or char.isprintable():
        return signs.get(char, char)
    return f"\\u{ord(char):04X}" if ord(char) < 0x10000 else f"\\U{ord(char):08X}"
