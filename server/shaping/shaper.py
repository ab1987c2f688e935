"""The rules one after the other: what the model says goes in, what is inserted comes out.

unsure       ends the text before a line that the model is unsure of, where that is asked for
rules        first those that write blanks as the file does, as the next ones compare the text with
             it; then those that end the text; the blank end last. None where the caller wants all
line ends    as the document has them
closers      what the answer writes over those behind the cursor becomes an edit
"""

from __future__ import annotations

from collections.abc import Sequence

from suture.server.request import Edit, Shape
from suture.server.shaping.brackets import Brackets
from suture.server.shaping.closers import OverClosers
from suture.server.shaping.confidence import Unsure
from suture.server.shaping.echo import Echo
from suture.server.shaping.fences import Fence
from suture.server.shaping.glue import Glue
from suture.server.shaping.indentation import FirstLine, Tabs
from suture.server.shaping.lexical import lexical_syntax
from suture.server.shaping.line_ends import BetweenCrAndLf, LineEnds, OnlyLf
from suture.server.shaping.rejoin import Rejoin
from suture.server.shaping.repeats import Repeats
from suture.server.shaping.rule import Rule
from suture.server.shaping.scope import Scope
from suture.server.shaping.surroundings import Surroundings
from suture.server.shaping.syntax import Syntax
from suture.server.shaping.tails import Tail


class Shaper:
    """One text that comes in parts, shaped for its place.

    `prefix` is the whole text before the cursor, line ends and all. Only with `leaves_out` is
    text left out, and so it is only then that `min_confidence` says anything; what it is for
    comes by `note`.
    """

    def __init__(
        self,
        around: Surroundings,
        prefix: str,
        shape: Shape = "auto",
        leaves_out: bool = True,
        min_confidence: float = 0.0,
    ) -> None:
        shows = leaves_out and shape != "raw"
        # The first of all: it knows where in the model's own text each token begins.
        self._unsure = Unsure(min_confidence if shows else 0.0)
        syntax = Syntax(around)
        self._rejoin = Rejoin(around.prefix, around.suffix, around.is_suffix_cut, syntax.better_cut)
        self._rules: Sequence[Rule] = ()
        if shows:
            self._rules = (self._unsure, OnlyLf(), *_rules(around, shape, self._rejoin, syntax))
        self._n_over = 0  # of the rules, those that no text comes to any more
        line_ends = BetweenCrAndLf if around.is_between_cr_and_lf else LineEnds
        self._line_ends = line_ends(around.line_end)
        long_quotes = lexical_syntax(around.language, around.path).long_quotes
        self._over_rest = OverClosers(around.rest, prefix, long_quotes)
        self._says_nothing = True

    @property
    def is_over(self) -> bool:
        """Whether all that comes would be left out."""
        return self._n_over > 0 or self._line_ends.ended

    @property
    def has_rejoined(self) -> bool:
        """Whether the text has reached what stands after the cursor."""
        is_last = self._rejoin.found and self._rules[self._n_over - 1] is self._rejoin
        return is_last and not self._line_ends.ended

    @property
    def has_only_rejoined(self) -> bool:
        """Whether the text was nothing but what stands after the cursor."""
        return self.has_rejoined and self._rejoin.is_all

    @property
    def unsure_of_all(self) -> float | None:
        """How sure the first line was, if all was left out because that was not enough."""
        return self._unsure.refused_all

    @property
    def says_nothing(self) -> bool:
        """Whether nothing was left of the text so far."""
        return self._says_nothing

    @property
    def rules(self) -> tuple[str, ...]:
        """The names of the rules that fired, in their order."""
        if self._line_ends.ended:
            return (self._line_ends.name,)
        names = [rule.name for index, rule in enumerate(self._rules) if self._has_fired(index)]
        if self._line_ends.fired:
            names.append(self._line_ends.name)
        if self._over_rest.fired:
            names.append(self._over_rest.name)
        return tuple(dict.fromkeys(names))

    @property
    def edit(self) -> Edit | None:
        """The answer as an edit over the closers behind the cursor; None where there are none."""
        return self._over_rest.edit

    def note(self, start: int, logprob: float) -> None:
        """A token that begins at the character `start` of the text, before it is fed."""
        self._unsure.note(start, logprob)

    def feed(self, text: str) -> str:
        """What can be inserted now and could not before."""
        return "" if self.is_over else self._insert(self._through(text, is_last=False))

    def flush(self) -> str:
        """What is left to be inserted of the text, which ends here."""
        ended = self._insert(self._through("", is_last=True))
        return ended + self._over_rest.feed(self._line_ends.flush())

    def _has_fired(self, index: int) -> bool:
        """Whether a rule has changed the text: not where a later one has ended it before."""
        rule = self._rules[index]
        return rule.fired and not (rule.ended and index < self._n_over - 1)

    def _through(self, text: str, is_last: bool) -> str:
        for index in range(self._n_over, len(self._rules)):
            rule = self._rules[index]
            text = rule.feed(text)
            if is_last and not rule.ended:
                text += rule.flush()
            if rule.ended:
                self._n_over = index + 1
        return text

    def _insert(self, text: str) -> str:
        text = self._line_ends.feed(text)
        self._says_nothing = self._says_nothing and not text
        return self._over_rest.feed(text)


def _rules(around: Surroundings, shape: Shape, rejoin: Rejoin, syntax: Syntax) -> tuple[Rule, ...]:
    """The rules in their order; of one line there is no block to leave, and no line to repeat."""
    in_place = (FirstLine(around), Tabs(around), rejoin)
    brackets = Brackets(around, syntax)
    if shape == "line":
        return (*in_place, Repeats(around), brackets, Tail(around))
    ends = (Echo(around), Repeats(around), brackets, Scope(around), Fence(around))
    return (*in_place, *ends, Glue(around, syntax.n_errors), Tail(around))
