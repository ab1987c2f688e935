"""Prompts in which a client has put a family's sentinels itself.

Editors that ask a server without a route for holes send the text `<pre>P<suf>S<mid>` and count on
it that these become control tokens. Here no text ever does (F1 in `prompt.families`), so such a
prompt is read back to the hole that it is of, in whichever order, and to the other files before
it; the prompt of that hole is then made as all are. What a user's own text has of sentinels can
therefore make a prompt that is refused, or move where a text is cut, and nothing else.

Which prompts are read so depends on what the client says of them:

  read_hole         nothing: a whole hole is one, anything else is text
  read_opened_hole  as its route is for text with control tokens: what begins with a sentinel of
                    the model's must be a whole hole
  read_raw_hole     that sentinels are meant: any of the model's, anywhere, must be part of a hole
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from suture.server.errors import InvalidRequest
from suture.server.prompt.families import FAMILIES, FamilyRow, Role
from suture.server.request import ExtraText

_BLANK = "▁"
# What Continue puts between other files and the prefix, also where it sends the suffix beside them.
_CONTINUES = "<|system_separator_istruction_repository_level|>"
_CONTINUES_FAMILY = "qwen2.5-coder"
# More files than a prompt has room for.
_MAX_SENTINELS = 256
# Which sentinels stand in a hole, in their order, and behind which of them, from 0, the prefix
# and the suffix stand. Behind the others there is nothing.
_ORDERS: dict[tuple[Role, ...], tuple[tuple[int, int], ...]] = {
    ("pre", "suf", "mid"): ((0, 1), (2, 1)),
    ("suf", "pre", "mid"): ((1, 0),),
    ("suf", "pre"): ((1, 0),),
}
# What clients put before a prompt by hand; a prompt's own beginning is put there in any case.
_BEGINNING = re.compile(
    r"\s*(?:</?s>|<bos>|<\|begin_of_text\|>|<\|endoftext\|>|<｜begin▁of▁sentence｜>)?\s*"
)
_NO_ORDER = (
    '"prompt" has control tokens in no order that is read: send "prompt" and "suffix", '
    "or ask /infill"
)


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
    another family is one too, unless sentinels of this `family` are in it. Blanks before it are
    those of a template whose text of other files is empty.
    """
    prompt = _from_sentinel(prompt)
    own = [row for row in _rows(family) if _has_sentinels(prompt, row)]
    # Nearly all prompts: none of the many families has to be looked at.
    if not own and not prompt.startswith(_SENTINELS):
        return None
    holes = [_hole(prompt, row) for row in own or FAMILIES]
    # Of another family's files alone: an XML document may begin with <filename>.
    holes += [_last_file(prompt, row) for row in own]
    return next((hole for hole in holes if hole is not None), None)


def read_opened_hole(prompt: str, family: str | None) -> Hole | None:
    """The same of a prompt of which only the beginning says that sentinels are meant.

    Raises `InvalidRequest` where it begins with one of the model's and is no hole. One further on
    is text: it may be a file about such models that goes on.
    """
    hole = read_hole(prompt, family)
    if hole is None and any(_opens(_from_sentinel(prompt), row) for row in _rows(family)):
        raise InvalidRequest(_NO_ORDER, "prompt")
    return hole


def read_raw_hole(prompt: str, family: str | None) -> Hole | None:
    """The same of a prompt in which sentinels are meant as such: None only where it has none.

    Raises `InvalidRequest` where it has some, in no known order: as plain text the model would
    read nonsense.
    """
    hole = read_hole(prompt, family)
    if hole is None and any(_has_sentinels(prompt, row) for row in _rows(family)):
        raise InvalidRequest(_NO_ORDER, "prompt")
    return hole


def hole_of(prompt: str, suffix: str) -> Hole:
    """The hole between a prompt and a suffix that a client tells apart: text, both of them.

    Of Continue's the prompt has other files before it, in the form of the family that it guesses,
    with a mark of its own behind them: without that the model would read the mark.
    """
    head, mark, prefix = prompt.partition(_CONTINUES)
    files = read_hole(head + "\n", _CONTINUES_FAMILY) if mark else None
    if files is None or files.prefix or files.suffix:
        return Hole(prompt, suffix)
    return Hole(prefix, suffix, files.extra, files.path)


def _rows(family: str | None) -> list[FamilyRow]:
    return [row for row in FAMILIES if row.name == family]


def _hole(prompt: str, row: FamilyRow) -> Hole | None:
    order, texts = _split(prompt, row)
    n_files = _n_files(order)
    files = _files(order, texts[:n_files])
    middle = texts[n_files:]
    for prefix, suffix in _ORDERS.get(order[n_files:], ()):
        if not any(text for i, text in enumerate(middle) if i not in (prefix, suffix)):
            before = middle[prefix].removeprefix(_blank(row))
            return _with_files(Hole(before, middle[suffix]), files)
    return None


def _last_file(prompt: str, row: FamilyRow) -> Hole | None:
    """The end of the last of some files: without a hole, that is where a model goes on."""
    order, texts = _split(prompt, row)
    if not 0 < _n_files(order) == len(order) < _MAX_SENTINELS or order[-1] != "sep":
        return None
    *extra, own = _files(order, texts)
    return Hole(own.text, "", tuple(extra), own.path)


def _split(prompt: str, row: FamilyRow) -> tuple[tuple[Role, ...], list[str]]:
    """The sentinels of a prompt that begins with one, and the text behind each."""
    roles = _roles(row)
    if not _opens(prompt, row):
        return (), []
    one_of = "|".join(re.escape(text) for text in sorted(roles, key=len, reverse=True))
    _, *split = re.split(f"{_blank(row) and ' ?'}({one_of})", prompt, maxsplit=_MAX_SENTINELS)
    return tuple(roles[text] for text in split[::2]), split[1::2]


def _blank(row: FamilyRow) -> str:
    """CodeLlama's: its tokens have the blank before them, and so has the prefix."""
    return " " if row.sentinels["pre"].startswith(_BLANK) else ""


def _n_files(order: tuple[Role, ...]) -> int:
    """How many sentinels are about files; 0 where these stand in no order that is read."""
    n = sum(role in ("rep", "sep") for role in order)
    return n if order[:n] in (("sep",) * n, ("rep", *("sep",) * (n - 1))) else 0


def _files(order: tuple[Role, ...], texts: list[str]) -> list[ExtraText]:
    """The files, each a line with its path, and its text."""
    parted = [
        text.partition("\n") for role, text in zip(order, texts, strict=False) if role == "sep"
    ]
    return [ExtraText(text, path) for path, _, text in parted]


def _with_files(hole: Hole, files: list[ExtraText]) -> Hole:
    """The same with other files. The last one is the cursor's own if it has no text."""
    if not files or files[-1].text:
        return Hole(hole.prefix, hole.suffix, tuple(files))
    *extra, own = files
    return Hole(hole.prefix, hole.suffix, tuple(extra), own.path)


def _from_sentinel(prompt: str) -> str:
    beginning = _BEGINNING.match(prompt)
    return prompt[beginning.end() :] if beginning else prompt


def _opens(prompt: str, row: FamilyRow) -> bool:
    return prompt.startswith(tuple(_roles(row)))


def _has_sentinels(prompt: str, row: FamilyRow) -> bool:
    return any(text in prompt for text in _roles(row))


def _roles(row: FamilyRow) -> dict[str, Role]:
    """The roles of sentinels by how a client writes them: their blank comes from the tokenizer."""
    return {text.lstrip(_BLANK): role for role, text in row.sentinels.items()}


_SENTINELS = tuple({text for row in FAMILIES for text in _roles(row)})
