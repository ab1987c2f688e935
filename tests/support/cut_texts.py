"""Texts before a cursor, cut where a token is likely to be half typed."""

from __future__ import annotations

import argparse
import json.decoder
import random
import re
from collections.abc import Iterator
from pathlib import Path

_SOURCES = (argparse, json.decoder, re)
_N_CUTS = 18

# A line to go on with, behind some of the library's.
_ENDINGS = {
    "accent": 'título = "dirección de correo electró',
    "accents": "# à côté de la fenêtre, où l'été é",
    "half a word of CJK": "# 我们很感谢你的帮",
    "CJK": 'print("世界',
    "emoji": 'print("ready 🎉',
    "emoji in a family": 'family = "👩‍👩‍👧‍👦',
    "tabs": "if x:\n\t\treturn self.\t",
    "regex": r"pattern = re.compile(r'^(\w+|[a-z]{2,})*?$|(?:\.\d",
    "brackets": "rows = [[{(",
    "backslashes": "path = 'C:\\\\Users\\\\na",
    "braces": 'text = f"{{{value!r:>{width}}}',
    "indentation": "for name in names:\n    ",
}


def cut_holes() -> dict[str, tuple[str, str]]:
    """Thirty holes by name, each what stands before it and behind.

    Places in the standard library, and what is hard to force.
    """
    library = _library()
    opening, behind = library[:400], "\n\n\ndef main() -> None:\n    run()\n"
    holes = {f"library {number}": hole for number, hole in enumerate(_cuts(library))}
    return holes | {name: (f"{opening}\n{line}", behind) for name, line in _ENDINGS.items()}


def _library() -> str:
    """Some of the code that comes with this Python, from where it is code."""
    texts = []
    for module in _SOURCES:
        assert module.__file__ is not None
        text = Path(module.__file__).read_text("utf-8")
        start = text.index("\nclass ") if "\nclass " in text else 0
        texts.append(text[start : start + 1600])
    return "\n".join(texts)


def _cuts(library: str) -> Iterator[tuple[str, str]]:
    """Most of these places are inside a word or a run of blanks."""
    rng = random.Random(0)
    for at in sorted(rng.sample(range(200, len(library)), _N_CUTS)):
        yield library[max(0, at - 1200) : at], library[at : at + 300]
