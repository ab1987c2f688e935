"""What becomes of suggestions, counted: shown, accepted, accepted in part, rejected. PURE.

A suggestion is one from its answer on, also while it is typed through or accepted piece by piece:
each item that shows a part of it bears its *mark*. What an editor tells of an item it tells with
the item; one that tells only the document means the last item that was answered there.

A suggestion may be answered before all of it is there, and has grown when it is answered again.

T1  A suggestion is counted once as shown, once as rejected, and once as accepted: as a whole where
    its end was accepted, as it was known then, else in part.
T2  No character is counted twice, and none that was typed.
T3  Numbers alone are kept, by the day and the editor's name of the language.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from suture.lsp.positions import index_of
from suture.lsp.sync import read_object

Json = Mapping[str, Any]
Event = Literal["shown", "accepted", "partly_accepted", "rejected"]
# A day and a language.
Key = tuple[str, str]
# Suggestions that something may still become of.
MAX_KNOWN = 256


@dataclass(slots=True)
class Counts:
    """How often each came; `characters` are those accepted, a line end as one."""

    shown: int = 0
    accepted: int = 0
    partly_accepted: int = 0
    rejected: int = 0
    characters: int = 0

    def add(self, other: Counts) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


@dataclass(frozen=True, slots=True)
class Mark:
    """Of which suggestion an item shows a part: the one from `start` on, behind `n_typed`
    characters of the item that stand in the document already.
    """

    number: int
    start: int = 0
    n_typed: int = 0

    def as_json(self) -> dict[str, int]:
        return {"number": self.number, "start": self.start, "typed": self.n_typed}


@dataclass(slots=True)
class _Known:
    """A suggestion of `length` characters, and what became of it.

    All before `upto` that was not typed is counted, `n_counted` in all; `partly_on` is the day on
    which a part was accepted.
    """

    language: str
    length: int
    last: Mark
    became: set[Event] = field(default_factory=set)
    upto: int = 0
    n_counted: int = 0
    partly_on: str = ""


class Tally:
    """Counts what it is told of; `today` names the day."""

    def __init__(self, today: Callable[[], str]) -> None:
        self._today = today
        self._known: OrderedDict[int, _Known] = OrderedDict()
        self._last: OrderedDict[str, int] = OrderedDict()
        self._counts: dict[Key, Counts] = {}

    def answered(self, uri: str, language: str, mark: Mark, n_left: int) -> None:
        """An item was answered, with so many characters of its suggestion left from its start."""
        known = self._known.setdefault(mark.number, _Known(language, 0, mark))
        known.length = mark.start + n_left
        known.last = mark
        self._known.move_to_end(mark.number)
        self._last[uri] = mark.number
        self._last.move_to_end(uri)
        for those in (self._known, self._last):
            while len(those) > MAX_KNOWN:
                those.popitem(last=False)

    def told(self, event: Event, params: Any) -> None:
        """An editor told what became of an item; what makes no sense is not counted."""
        params = params if isinstance(params, Mapping) else {}
        item = params.get("item")
        mark = _mark_of(item)
        if mark is None:
            uri = read_object(params.get("textDocument")).get("uri")
            number = self._last.get(uri, 0) if isinstance(uri, str) else 0
            mark = self._known[number].last if number in self._known else None
        if mark is None or (known := self._known.get(mark.number)) is None:
            return
        if event == "partly_accepted":
            self._accept_part(known, mark, item, params.get("acceptedLength"))
        elif event not in known.became:
            known.became.add(event)
            self._count(known, event)

    def accepted(self, argument: Any) -> None:
        """An item was accepted to its end; `argument` is what its command bore."""
        mark = _read(argument)
        if mark is None or (known := self._known.get(mark.number)) is None:
            return
        if "accepted" not in known.became:
            known.became.add("accepted")
            if "partly_accepted" in known.became:
                self._of(known, known.partly_on).partly_accepted -= 1
            self._count(known, "accepted")
        self._count_characters(known, known.length - max(known.upto, mark.start))
        known.upto = max(known.upto, known.length)

    def knows(self, argument: Any) -> bool:
        """Whether what a command bore is the mark of a suggestion that was answered."""
        mark = _read(argument)
        return mark is not None and mark.number in self._known

    def take(self) -> dict[Key, Counts]:
        """What was counted since it was taken last."""
        counts, self._counts = self._counts, {}
        return counts

    def give_back(self, counts: dict[Key, Counts]) -> None:
        """Keep what was taken, and went nowhere."""
        for key, counted in counts.items():
            self._counts.setdefault(key, Counts()).add(counted)

    def _accept_part(self, known: _Known, mark: Mark, item: Any, length: Any) -> None:
        if not isinstance(length, int) or isinstance(length, bool) or length <= 0:
            return
        text = read_object(item).get("insertText")
        if isinstance(text, str):
            # Counted from the beginning of the item.
            n_accepted = n_characters(text[: index_of(text, length, "utf-16")]) - mark.n_typed
            end = mark.start + max(0, n_accepted)
            n_new = min(n_accepted, end - known.upto)
            known.upto = max(known.upto, end)
        else:
            n_new = 0 if "accepted" in known.became else length
        if n_new <= 0:
            return
        if not known.became & {"accepted", "partly_accepted"}:
            known.became.add("partly_accepted")
            known.partly_on = self._today()
            self._count(known, "partly_accepted")
        self._count_characters(known, n_new)

    def _count(self, known: _Known, event: Event) -> None:
        counts = self._of(known, self._today())
        setattr(counts, event, getattr(counts, event) + 1)

    def _count_characters(self, known: _Known, n_new: int) -> None:
        n_new = max(0, min(n_new, known.length - known.n_counted))
        known.n_counted += n_new
        self._of(known, self._today()).characters += n_new

    def _of(self, known: _Known, day: str) -> Counts:
        return self._counts.setdefault((day, known.language), Counts())


def n_characters(text: str) -> int:
    """The characters of a text, a line end as one."""
    return len(text) - text.count("\r\n")


def _mark_of(item: Any) -> Mark | None:
    """The mark that an item bears, in the arguments of its command."""
    arguments = read_object(read_object(item).get("command")).get("arguments")
    return _read(arguments[0]) if isinstance(arguments, list) and arguments else None


def _read(raw: Any) -> Mark | None:
    values = [read_object(raw).get(name) for name in ("number", "start", "typed")]
    numbers = [one for one in values if isinstance(one, int) and not isinstance(one, bool)]
    return Mark(*numbers) if len(numbers) == len(values) and min(numbers) >= 0 else None
