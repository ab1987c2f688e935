"""What became of suggestions, kept in one small file under the cache, by day and language.

F1  Several bridges write at once, and none loses what another one wrote.
F2  A process that dies leaves the file as it was, or as it was to be. What makes no sense counts
    as none; a file that cannot be read now is left as it is.
F3  It stays small: so many days, and so many languages a day. There are only numbers in it, and
    names of languages.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from filelock import FileLock

from suture.lsp.tally import Counts, Key

Days = dict[str, dict[str, Counts]]

MAX_DAYS = 400
MAX_LANGUAGES = 40
# What has no name that could be an editor's of a language, and what is one too many.
OTHER = "other"
_LANGUAGE = re.compile(r"[a-z0-9][a-z0-9+#._-]{0,31}")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_LOCK_S = 2.0
_NAMES = tuple(field.name for field in fields(Counts))


class Stats:
    """The file at `path`. Methods raise `OSError` where it cannot be read or written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Days:
        """All days that are kept, the oldest first."""
        try:
            told = json.loads(self.path.read_text("utf-8"))
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
        days = told.get("days") if isinstance(told, dict) else None
        return _read_days(days if isinstance(days, dict) else {})

    def add(self, counts: Mapping[Key, Counts]) -> None:
        """Add what was counted (F1, F2)."""
        if not counts:
            return
        with self._locked():
            days = self.read()
            for (day, language), counted in counts.items():
                languages = days.setdefault(day, {})
                kept = languages.setdefault(_name(language, languages), Counts())
                kept.add(counted)
                # A part that became a whole is taken back, also where it was forgotten meanwhile.
                kept.partly_accepted = max(0, kept.partly_accepted)
            for day in sorted(days)[:-MAX_DAYS]:
                del days[day]
            self._write(days)

    def forget(self) -> None:
        """Delete all of it."""
        if self.path.parent.is_dir():
            with self._locked():
                self.path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path.with_suffix(".lock"), timeout=_LOCK_S):
            yield

    def _write(self, days: Days) -> None:
        told = {
            "days": {
                day: {language: asdict(counts) for language, counts in languages.items()}
                for day, languages in sorted(days.items())
            }
        }
        file, name = tempfile.mkstemp(prefix=".stats", dir=self.path.parent)
        try:
            with open(file, "w", encoding="utf-8") as new:
                json.dump(told, new, separators=(",", ":"))
            os.replace(name, self.path)
        except BaseException:
            os.unlink(name)
            raise


def stats_file(cache: Path) -> Stats:
    """The file of this user."""
    return Stats(cache / "stats.json")


def _name(language: str, known: Mapping[str, Counts]) -> str:
    """What a language is counted under (F3)."""
    is_name = _LANGUAGE.fullmatch(language) is not None
    if not is_name or (language not in known and len(known) >= MAX_LANGUAGES):
        return OTHER
    return language


def _read_days(raw: Mapping[str, Any]) -> Days:
    days: Days = {}
    for day in sorted(raw)[-MAX_DAYS:]:
        if _DAY.fullmatch(day) and isinstance(raw[day], dict):
            languages = {name: _read_counts(one) for name, one in raw[day].items()}
            days[day] = {name: one for name, one in languages.items() if one is not None}
    return days


def _read_counts(raw: Any) -> Counts | None:
    if not isinstance(raw, dict):
        return None
    values = [raw.get(name) for name in _NAMES]
    numbers = [one for one in values if isinstance(one, int) and not isinstance(one, bool)]
    return Counts(*numbers) if len(numbers) == len(values) else None
