"""The texts from other files that were read ahead of time.

A client that sends them with every request may have them read in a pause, with a request for no
token. They stand before all else in a prompt and stay in the cache, so requests with the same ones
need not be quick to read them, and may have more of them.
"""

from __future__ import annotations

from suture.server.request import ExtraText

MAX_REMEMBERED = 16


class WarmedTexts:
    """The extra texts that were read ahead of late; for one model.

    One thread adds, and others may ask meanwhile: what they see is replaced, never changed.
    """

    def __init__(self) -> None:
        self._keys: tuple[int, ...] = ()

    def add(self, extra: tuple[ExtraText, ...], salt: str | None) -> None:
        """They have been read under the salt; nothing is remembered of none."""
        key = hash((extra, salt))
        if extra and key not in self._keys:
            self._keys = (*self._keys, key)[-MAX_REMEMBERED:]

    def has(self, extra: tuple[ExtraText, ...], salt: str | None) -> bool:
        return hash((extra, salt)) in self._keys
