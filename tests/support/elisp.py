"""Emacs Lisp as its reader sees it, as far as set-ups go: no reader macros but quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name, a keyword or a number as it is written."""

    name: str


_TOKEN = re.compile(
    r"""
    (?P<blank>\s+|;[^\n]*)
    | (?P<string>"(?:\\.|[^"\\])*")
    | (?P<char>\?(?:\\.|[^\\]))
    | (?P<quote>\#'|'|`|,@|,)
    | (?P<open>[(\[])
    | (?P<close>[)\]])
    | (?P<atom>(?:\\.|[^\s()\[\]"';`,?]|(?<=[\w-])\?)+)
    """,
    re.VERBOSE | re.DOTALL,
)
_CLOSERS = {"(": ")", "[": "]"}


def read_forms(source: str) -> list[Any]:
    """All forms: lists for lists and vectors, `str` for strings, `Symbol` for the rest.

    What is quoted is a list of the quote and the form. Raises ValueError, with the line, where
    Emacs would find no end, a wrong one, or one too many.
    """
    tokens = _tokens(source)
    forms = []
    for kind, text, line in tokens:
        if kind == "close":
            raise ValueError(f"line {line}: {text} closes nothing")
        forms.append(_form(kind, text, line, tokens))
    return forms


def _tokens(source: str) -> Iterator[tuple[str, str, int]]:
    at = 0
    while at < len(source):
        line = source.count("\n", 0, at) + 1
        found = _TOKEN.match(source, at)
        if found is None:
            raise ValueError(f"line {line}: {source[at : at + 20]!r} has no end")
        at = found.end()
        kind = str(found.lastgroup)
        if kind != "blank":
            yield kind, found[0], line


def _form(kind: str, text: str, line: int, tokens: Iterator[tuple[str, str, int]]) -> Any:
    if kind == "open":
        return _rest(text, line, tokens)
    if kind == "quote":
        quoted = next(tokens, None)
        if quoted is None or quoted[0] == "close":
            raise ValueError(f"line {line}: {text} quotes nothing")
        return [Symbol(text), _form(*quoted, tokens)]
    if kind == "string":
        return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)
    return Symbol(text)


def _rest(opener: str, line: int, tokens: Iterator[tuple[str, str, int]]) -> list[Any]:
    forms: list[Any] = []
    for kind, text, at in tokens:
        if kind != "close":
            forms.append(_form(kind, text, at, tokens))
        elif text == _CLOSERS[opener]:
            return forms
        else:
            raise ValueError(f"line {at}: {text} ends the {opener} of line {line}")
    raise ValueError(f"line {line}: {opener} has no end")


def plist(forms: list[Any]) -> dict[str, Any]:
    """A property list as JSON has it: keywords as names, and so what is in it."""
    names, values = forms[::2], forms[1::2]
    if len(names) != len(values):
        raise ValueError(f"{names[-1]} has no value")
    found = {}
    for name, value in zip(names, values, strict=True):
        if not isinstance(name, Symbol) or not name.name.startswith(":"):
            raise ValueError(f"{name} is no keyword")
        found[name.name[1:]] = _value(value)
    return found


def _value(form: Any) -> Any:
    if isinstance(form, list):
        is_plist = bool(form) and isinstance(form[0], Symbol) and form[0].name.startswith(":")
        return plist(form) if is_plist else [_value(one) for one in form]
    if isinstance(form, Symbol):
        known = {"t": True, ":json-false": False, "nil": None}
        return known[form.name] if form.name in known else int(form.name)
    return form
