"""Paths as a model is shown them.

Models that read repositories were trained on paths inside them. Clients send what they have: paths
from the root of the disk, with the user's name in them, Windows' ones, addresses. So a path is
shown without what leads to the repository, as far as one can tell, and is one line of text.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

UNNAMED = "untitled"
MAX_PATH = 256
# Of a path from the root: where the repository begins is not known, and this far is near enough.
MAX_PARTS = 3

_DRIVE = re.compile(r"/?[A-Za-z]:(?=/)")
_HOME = re.compile(
    r"(?i)(?://[^/]+/[^/]+)?(?:/mnt/[a-z])?"
    r"/(?:home|users|export/home|var/home|usr/home|documents and settings)/[^/]+/|/root/|~[^/]*/"
)
# C0 and C1, what else ends lines, and what turns the direction of text.
_UNPRINTABLE = re.compile(
    "[\\x00-\\x20\\x7f-\\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]+"
)

# How a line is a comment, by the endings of names and by editors' names of languages; else `//`.
_COMMENTS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("py", "python", "pyi", "rb", "ruby", "sh", "bash", "shellscript"), ("# ", "")),
    **dict.fromkeys(("pl", "perl", "r", "jl", "julia", "ex", "exs", "elixir", "nix"), ("# ", "")),
    **dict.fromkeys(("yaml", "yml", "toml", "cmake", "make", "makefile"), ("# ", "")),
    **dict.fromkeys(("dockerfile", "tf", "terraform", "ps1", "powershell"), ("# ", "")),
    **dict.fromkeys(("zsh", "fish", "awk", "tcl", "mk", "pyx", "cython"), ("# ", "")),
    **dict.fromkeys(("lua", "sql", "hs", "haskell", "elm", "ada", "vhdl", "vhd"), ("-- ", "")),
    **dict.fromkeys(("lisp", "el", "clj", "clojure", "scm", "scheme"), (";; ", "")),
    **dict.fromkeys(("tex", "latex", "erl", "erlang", "m", "matlab"), ("% ", "")),
    **dict.fromkeys(("objective-c", "objective-cpp"), ("// ", "")),
    **dict.fromkeys(("html", "xml", "svg", "vue", "svelte", "md", "markdown"), ("<!-- ", " -->")),
    **dict.fromkeys(("css", "scss", "less"), ("/* ", " */")),
    **dict.fromkeys(("ml", "mli", "ocaml"), ("(* ", " *)")),
}


def one_line(text: str, length: int = MAX_PATH) -> str:
    """The last `length` characters of a name or path, with a blank for what is not to be seen."""
    return _UNPRINTABLE.sub(" ", text[-length:]).strip()


def shown_path(path: str | None, length: int = MAX_PATH) -> str:
    """The path as it is in a prompt, at most `length` characters; "untitled" if it is none.

    Slashes are those of Unix, `.` and `..` are resolved as far as that goes without the disk. Of a
    path from the root or from a home its last `MAX_PARTS` parts stay, and never whose home it is.
    """
    text = (path or "")[-4 * MAX_PATH :]
    if text.startswith("file://"):
        text = unquote(text.removeprefix("file://"))
    text = text.replace("\\", "/")
    parts: list[str] = []
    for part in map(str.strip, one_line(_without_home(text), len(text)).split("/")):
        if part == "..":
            parts[-1:] = []
        elif part not in ("", "."):
            parts.append(part)
    if _is_absolute(text) or len(path or "") > len(text):
        parts = parts[-MAX_PARTS:]
    while len(parts) > 1 and len("/".join(parts)) > length:
        del parts[0]
    return "/".join(parts)[-length:].strip() or UNNAMED


def comment_title(path: str | None, language: str | None = None) -> str:
    """A comment line that names a file, as a person would write one; nothing without a path.

    Comments are those of `language` if it is known, else those of the path's ending.
    """
    if not path:
        return ""
    shown = shown_path(path)
    ending = shown.rsplit("/", 1)[-1].rsplit(".", 1)[-1].lower()
    before, after = _COMMENTS.get((language or "").lower()) or _COMMENTS.get(ending, ("// ", ""))
    return f"{before}{shown}{after}\n"


def _without_home(path: str) -> str:
    drive = _DRIVE.match(path)
    path = path[drive.end() :] if drive else path
    home = _HOME.match(path)
    return path[home.end() :] if home else path


def _is_absolute(path: str) -> bool:
    return path.startswith(("/", "~")) or _DRIVE.match(path) is not None
