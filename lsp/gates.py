"""When nothing is asked, and why. PURE.

Each gate gives a reason of docs/reasons.md and a sentence for the user. A file's gates hold
whatever was shown before. The cursor's hold only where nothing is shown: a text that one types
through stays, wherever it was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from urllib.parse import unquote, urlsplit

from suture.lsp.documents import Cursor
from suture.lsp.settings import Options
from suture.server.prompt.secrets import is_secret_path
from suture.server.request import Reason

# Minified files, data: nobody types there, and a line is the whole prompt.
MAX_LINE = 4000
# Editors name their own pages by such languages.
_NOT_CODE = frozenset({"git-commit", "gitcommit", "scminput", "log", "search-result", "output"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no suggestion comes."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Switches:
    """What the user turned on and off by commands, over the options.

    `snoozed_until` is on the clock that the gate is asked with.
    """

    enable: bool | None = None
    languages: Mapping[str, bool] = field(default_factory=dict)
    snoozed_until: float = 0.0

    def toggled(self, options: Options, language: str | None) -> Switches:
        """The same with one language, or everything, the other way round."""
        if language is None:
            return replace(self, enable=not self.is_on(options), snoozed_until=0.0)
        flipped = {language: not self.has_language(options, language)}
        return replace(self, languages={**self.languages, **flipped})

    def is_on(self, options: Options) -> bool:
        return options.enable if self.enable is None else self.enable

    def has_language(self, options: Options, language: str) -> bool:
        default = options.languages.get(language, has_code(language))
        return self.languages.get(language, default)


def file_gate(
    uri: str, language: str, options: Options, switches: Switches, now: float
) -> Refusal | None:
    """Why no suggestion comes in a file; None where one may."""
    if (excluded := exclusion(path_of(uri), options)) is not None:
        return excluded
    if (off := switch_gate(options, switches, now)) is not None:
        return off
    if not switches.has_language(options, language):
        return Refusal("DISABLED", f"suggestions are turned off for {language}")
    return None


def switch_gate(options: Options, switches: Switches, now: float) -> Refusal | None:
    """Why no suggestion comes in any file; None where one may in some."""
    if not switches.is_on(options):
        return Refusal("DISABLED", "suggestions are turned off")
    if now < switches.snoozed_until:
        minutes = -(-(switches.snoozed_until - now) // 60)
        return Refusal("DISABLED", f"suggestions are snoozed for {minutes:.0f} min more")
    return None


def exclusion(path: str, options: Options) -> Refusal | None:
    """Why nothing of a file is ever sent; None where it may be."""
    if is_secret_path(path):
        return Refusal("EXCLUDED", "files of this name hold secrets")
    if glob := next((one for one in options.exclude if _matches(path, one)), None):
        return Refusal("EXCLUDED", f'suture.exclude has "{glob}"')
    return None


def has_code(language: str) -> bool:
    """Whether documents of a language are texts that one writes, and not an editor's own pages."""
    return language not in _NOT_CODE


def cursor_gate(cursor: Cursor, is_automatic: bool) -> Refusal | None:
    """Why nothing is asked at a cursor by itself; who asks by hand is always answered."""
    if not is_automatic:
        return None
    if cursor.after[:1].isalnum() or cursor.after.startswith("_"):
        return Refusal("MIDWORD", "the cursor is inside a word, or in front of one")
    if len(cursor.before) + len(cursor.after) > MAX_LINE:
        return Refusal("DISABLED", f"the line has more than {MAX_LINE} characters")
    return None


def path_of(uri: str) -> str:
    """The path that a URI names, with `/`; of a buffer without a file what stands for it."""
    return unquote(urlsplit(uri).path)


def _matches(path: str, glob: str) -> bool:
    """Whether a glob matches a path, the end of it or its name; `*` goes over slashes."""
    name = path.rpartition("/")[2]
    return fnmatchcase(path, glob) or fnmatchcase(path, f"*/{glob}") or fnmatchcase(name, glob)
