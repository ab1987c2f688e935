"""Prompts in which a client has put a family's sentinels itself.

Editors that ask a server without a route for holes send the text `<pre>P<suf>S<mid>` and count on
it that these become control tokens. Here no text ever does (F1 in `prompt.families`), so such a
prompt is read back to the hole that it is of, in whichever order, and to the other files before
it; the prompt of that hole is then made as all are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from suture.server.errors import InvalidRequest
from suture.server.prompt.families import FAMILIES, FamilyRow, Role
from suture.server.request import ExtraText

_BLANK = "▁"
# More files than a prompt has room for.
_MAX_SENTINELS = 256
# Which sentinels stand in a hole, in their order, and behind which of them, from 0, the prefix
# and the suffix stand. Behind the others there is nothing.
_ORDERS: dict[tuple[Role, ...], tuple[tuple[int, int], ...]] = {
    ("pre", "suf", "mid"): ((0, 1), (2, 1)),
    ("suf", "pre", "mid"): ((1, 0),),
    ("suf", "pre"): ((1, 0),),
}


@dataclass(frozen=True, slots=True)
class Hole:
    """The texts before and behind a cursor, the other files, and the path of the cursor's own."""

    prefix: str
    suffix: str
    extra: tuple[ExtraText, ...] = ()
    path: str | None = None


def read_hole(prompt: str, family: str | None) -> Hole | None:
    """The hole that `prompt` is, if it is one and nothing else.

    Clients guess a model's family by its name, and wrongly at times: a hole in the form of
    another family is one too, unless sentinels of this `family` are in it.
    """
    own = [row for row in FAMILIES if row.name == family and _has_sentinels(prompt, row)]
    holes = (_hole(prompt, row) for row in own or FAMILIES)
    return next((hole for hole in holes if hole is not None), None)


def read_raw_hole(prompt: str, family: str | None) -> Hole | None:
    """The same of a prompt in which sentinels are meant as such: None only where it has none.

    Raises `InvalidRequest` where it has some, in no known order: as plain text the model would
    read nonsense.
    """
    hole = read_hole(prompt, family)
    if hole is None and any(_has_sentinels(prompt, row) for row in FAMILIES if row.name == family):
        message = '"prompt" has control tokens in no order that is read: send "prompt" and "suffix"'
        raise InvalidRequest(message, "prompt")
    return hole


def _hole(prompt: str, row: FamilyRow) -> Hole | None:
    roles = _roles(row)
    # CodeLlama's: its tokens have the blank before them, and so has the prefix.
    blank = " " if row.sentinels["pre"].startswith(_BLANK) else ""
    if not prompt.removeprefix(blank).startswith(tuple(roles)):
        return None
    one_of = "|".join(re.escape(text) for text in sorted(roles, key=len, reverse=True))
    _, *split = re.split(f"{blank and ' ?'}({one_of})", prompt, maxsplit=_MAX_SENTINELS)
    order, texts = tuple(roles[text] for text in split[::2]), split[1::2]
    n_files = sum(role in ("rep", "sep") for role in order)
    if order[:n_files] not in (("sep",) * n_files, ("rep", *("sep",) * (n_files - 1))):
        return None
    files = [text for role, text in zip(order, texts[:n_files], strict=False) if role == "sep"]
    middle = texts[n_files:]
    for prefix, suffix in _ORDERS.get(order[n_files:], ()):
        if not any(text for i, text in enumerate(middle) if i not in (prefix, suffix)):
            return _with_files(Hole(middle[prefix].removeprefix(blank), middle[suffix]), files)
    return None


def _with_files(hole: Hole, files: list[str]) -> Hole:
    """The same with other files, each a line with its path, and its text. The last one is the
    cursor's own if it has no text."""
    extra = [ExtraText(text, path) for path, _, text in (file.partition("\n") for file in files)]
    path = extra.pop().path if extra and not extra[-1].text else None
    return Hole(hole.prefix, hole.suffix, tuple(extra), path)


def _has_sentinels(prompt: str, row: FamilyRow) -> bool:
    return any(text in prompt for text in _roles(row))


def _roles(row: FamilyRow) -> dict[str, Role]:
    """The roles of sentinels by how a client writes them: their blank comes from the tokenizer."""
    return {text.lstrip(_BLANK): role for role, text in row.sentinels.items()}
