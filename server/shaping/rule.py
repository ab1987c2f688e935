"""A rule: one thing that is done to the text of a model as it comes.

S1  A rule leaves text out, or writes the same blanks and line ends as the file does. It adds none.
S2  A text that a rule has made is not changed by it again.
S3  How a text comes apart changes nothing.
S4  What may still be left out is held: the line that is being said, and no more.
"""

from __future__ import annotations

from typing import Protocol


class Rule(Protocol):
    """One rule over one text; `name` is what answers call it.

    `fired` says that the text is another for it; `ended`, that all that comes would be left out.
    """

    @property
    def name(self) -> str: ...

    @property
    def fired(self) -> bool: ...

    @property
    def ended(self) -> bool: ...

    def feed(self, text: str) -> str:
        """What of the text is sure now and was not before; nothing once it has `ended`."""
        ...

    def flush(self) -> str:
        """What is left of the text, which ends here."""
        ...
