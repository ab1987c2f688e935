"""Statements by how their lines begin and end: what opens a block, and what is not finished.

It is a guess, the same for all languages, and says yes where it is not sure.
"""

from __future__ import annotations

import re

_BLOCK_WORDS = (
    "if elif elseif elsif else for foreach while until unless with switch case default when def "
    "class module function func fun fn sub struct enum interface impl namespace begin rescue "
    "ensure except catch finally try do describe context it template define typedef endif ifdef "
    "ifeq ifneq ifndef repeat"
)
_MODIFIERS = "export pub local static private public protected async unsafe"
_OPENS = re.compile(
    rf"[:{{>]\Z|^\s*-\s|^\s*(?:(?:{_MODIFIERS.replace(' ', '|')})(?:\(\w+\))?\s+)*"
    rf"(?:{_BLOCK_WORDS.replace(' ', '|')})\b|\b(?:do|then|else|begin|where|of)\Z|\|\Z|"
    r"\bfunction(?:\s*\w*\(.*\))?\Z"
)
_UNFINISHED = re.compile(r"[(\[,\\=+\-*/&?~^%.<]\Z|=>\Z|\b(?:and|or|not|in)\Z")
_COMMENT = re.compile(r"(?<=\S)\s+(?:#|//|--)\s.*\Z")
_CONTINUES = re.compile(
    r"\.\w|\?\.|[?:+=]\s|=>|&&|\|\|?|[,)\]>]|-(?![\s-])|/(?![/*])|\*(?![\s*/])|"
    r"(?:and|or|extends|implements|throws)\b"
)


def opens_block(line: str) -> bool:
    """Whether the lines below one may be a level deeper."""
    return _OPENS.search(_COMMENT.sub("", line.rstrip()).rstrip()) is not None


def goes_on(line: str, above: str) -> bool:
    """Whether a line goes on with the statement of the one above it, by how they begin and end."""
    return _CONTINUES.match(line.strip()) is not None or is_unfinished(above)


def is_unfinished(line: str) -> bool:
    """Whether the statement of a line goes on in the next one."""
    return _UNFINISHED.search(_COMMENT.sub("", line.rstrip()).rstrip()) is not None
