"""Which files of the workspace a text names, as far as that can be told without building it. PURE.

Paths are relative to the workspace's folder, with `/`. A *mention* is the places where one file
may be, the likeliest first; a place that ends in a slash is a directory: any file of it may be it.
Nothing here looks whether a file is there: installed packages and the standard library are named
by the same words, and are not in the workspace.

I1  No place is outside the folder, and none is the document itself.
I2  So many mentions at most, however long the text, in time in proportion to it; none of them
    depends on the cursor.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

MAX_MENTIONS = 128
# Imports stand at the top of a file, mostly.
_MAX_TEXT = 64_000
# No disk has longer ones that anybody means.
_MAX_PATH = 512

Mention = tuple[str, ...]


@dataclass(frozen=True)
class _Document:
    """The document at hand: its path in the workspace's folder, and its text."""

    path: str
    text: str

    @property
    def directory(self) -> str:
        return posixpath.dirname(self.path)

    @property
    def stem(self) -> str:
        return posixpath.splitext(posixpath.basename(self.path))[0]

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """Where paths of a language may begin: the directories above, nearest first, and `src`."""
        parts = self.directory.split("/") if self.directory else []
        above = ["/".join(parts[:n]) for n in range(len(parts), -1, -1)]
        return tuple(dict.fromkeys([*above[:6], "", "src", "lib"]))

    def beside(self, path: str, endings: Iterable[str] = ("",)) -> Mention:
        """The places of a path that is relative to this file."""
        return tuple(posixpath.join(self.directory, path + ending) for ending in endings)

    def below_roots(self, path: str, endings: Iterable[str] = ("",)) -> Mention:
        """The places of a path that begins at a root."""
        return tuple(
            posixpath.join(root, path + ending) for root in self.roots for ending in endings
        )


def mentions(grammar: str | None, path: str, text: str) -> list[Mention]:
    """The files that a text names, in its order, each once (I1, I2)."""
    reader = _READERS.get(grammar or "")
    if reader is None:
        return []
    document = _Document(path, text[:_MAX_TEXT])
    found = (_inside(one, path) for one in islice(reader(document), 4 * MAX_MENTIONS))
    return list(dict.fromkeys(one for one in found if one))[:MAX_MENTIONS]


def _inside(places: Mention, own: str) -> Mention:
    kept = []
    for place in places:
        if len(place) > _MAX_PATH:
            continue
        end = "/" if place.endswith("/") else ""
        path = posixpath.normpath(place.lstrip("/"))
        if path == "." and end:
            kept.append("./")
        elif path != own and path != "." and not path.startswith("../") and path != "..":
            kept.append(path + end)
    return tuple(dict.fromkeys(kept))


_PYTHON = re.compile(
    # Nothing is given back: the search would try all ways to share blanks and dots.
    r"^[ \t]*+(?:from[ \t]++(\.*+)(?:[ \t]*+(?!import\b)([\w.]++))?+[ \t]*+\bimport\b"
    r"[ \t]*+(\([^)]{0,4000}+\)|[^\n#;(]++)|import[ \t]++([^\n#;]++))",
    re.MULTILINE,
)
_PY_FORMS = (".py", "/__init__.py", ".pyi")


def _python(document: _Document) -> Iterator[Mention]:
    for dots, module, names, plain in _PYTHON.findall(document.text):
        if plain:
            for one in plain.split(","):
                yield _py_module(document, "", one.strip().split(" ")[0].replace(".", "/"))
            continue
        module = module.replace(".", "/")
        for name in re.sub(r"#[^\n]*", "", names).strip("()").split(",")[:16]:
            name = name.strip().split(" ")[0]
            if name == "*":
                yield _py_module(document, dots, module)
            elif name.isidentifier():
                # A module of a package; or else what the package itself has.
                inner = _py_module(document, dots, f"{module}/{name}".lstrip("/"))
                yield (*inner, *_py_module(document, dots, module))


def _py_module(document: _Document, dots: str, module: str) -> Mention:
    if dots:
        up = "../" * (len(dots) - 1)
        forms = _PY_FORMS if module else ("__init__.py",)
        return document.beside(up + module, forms)
    if not module or module.partition("/")[0] in sys.stdlib_module_names:
        return ()
    found = document.below_roots(module, _PY_FORMS)
    # A package may be called otherwise than the directory that it is made of.
    inner = module.partition("/")[2]
    return (*found, *(inner + form for form in _PY_FORMS)) if "/" in inner else found


_JS = re.compile(
    r"""(?:\bfrom|\bimport|\brequire\s*\(|\bimport\s*\()\s*["'`]((?:\.{1,2}|[@~])/[^"'`\n]+)["'`]"""
)
_JS_FORMS = ("", *(f".{end}" for end in "ts tsx js jsx mts mjs cjs d.ts vue svelte".split()))
_JS_ALL = (*_JS_FORMS, *(f"/index.{end}" for end in ("ts", "tsx", "js", "jsx")))


def _javascript(document: _Document) -> Iterator[Mention]:
    for path in _JS.findall(document.text):
        # TypeScript is imported as what it will be compiled to.
        stem, ending = posixpath.splitext(path)
        bare = stem if ending in (".js", ".jsx", ".mjs", ".cjs") else path
        paths = dict.fromkeys((path, bare))
        for one in paths:
            if one.startswith("."):
                yield document.beside(one, _JS_ALL)
            else:
                yield document.below_roots(one[2:], _JS_ALL)


_GO = re.compile(
    r"""^[ \t]*(?:import[ \t]+)?(?:[\w.]+[ \t]+)?"([\w.~/-]+/[\w.~-]+)"[ \t]*$""", re.M
)


def _go(document: _Document) -> Iterator[Mention]:
    # The module's own name stands before the directory: a domain and a path, or a single word.
    for path in _GO.findall(document.text):
        parts = path.split("/")
        least = 1 if "." not in parts[0] else 2
        for n in range(least, min(len(parts), 5)):
            yield ("/".join(parts[n:]) + "/",)
    yield (f"{document.directory}/",)


_RUST_MOD = re.compile(r"^[ \t]*(?:pub(?:\([^)\n]*\))?[ \t]+)?mod[ \t]+(\w+)[ \t]*;", re.M)
_RUST_USE = re.compile(r"\buse\s+(crate|super|self)::([\w:]*)(?:\{([^;]{0,2000})\})?")


def _rust(document: _Document) -> Iterator[Mention]:
    is_root = document.stem in ("mod", "lib", "main")
    own = document.directory if is_root else posixpath.join(document.directory, document.stem)
    for name in _RUST_MOD.findall(document.text):
        yield tuple(posixpath.join(own, name + form) for form in _RS_FORMS)
    parts = document.directory.split("/")
    crate = "/".join(parts[: parts.index("src") + 1]) if "src" in parts else document.directory
    above = posixpath.dirname(own)
    bases = {"crate": crate, "self": own, "super": above}
    for base, path, inner in _RUST_USE.findall(document.text):
        names = re.findall(r"(?:^|,)\s*(\w+(?:::\w+)*)", inner) if inner else [""]
        for name in names[:16]:
            yield _rs_places(bases[base], [one for one in (path + "::" + name).split("::") if one])


_RS_FORMS = (".rs", "/mod.rs")
# Modules are not nested deeper, and each of a path's beginnings is two places.
_RS_DEPTH = 8


def _rs_places(base: str, parts: list[str]) -> Mention:
    """A path names modules, and then something in the last of them."""
    most = min(len(parts), _RS_DEPTH)
    paths = (posixpath.join(base, *parts[:n]) for n in range(most, 0, -1))
    found = [path + form for path in paths for form in _RS_FORMS]
    return (*found, base + ".rs", *(posixpath.join(base, f"{s}.rs") for s in ("mod", "lib")))


_INCLUDE = re.compile(r"""^[ \t]*#[ \t]*(?:include|import)[ \t]*["<]([^">\n]+)[">]""", re.M)


def _c(document: _Document) -> Iterator[Mention]:
    for path in _INCLUDE.findall(document.text):
        yield (*document.beside(path), *document.below_roots(path), f"include/{path}")


_JVM = re.compile(
    r"^[ \t]*import[ \t]+(?:static[ \t]+)?([\w.]+?)(\.[*_])?[ \t]*(?:;[ \t]*)?$", re.M
)
_JVM_PACKAGE = re.compile(r"^[ \t]*package[ \t]+([\w.]+)", re.M)
_JVM_FORMS = (".java", ".kt", ".scala")


def _jvm(document: _Document) -> Iterator[Mention]:
    package = _JVM_PACKAGE.search(document.text)
    inner = package[1].replace(".", "/") if package else ""
    root = document.directory.removesuffix(inner).rstrip("/")
    # What a test imports is beside the tests.
    roots = dict.fromkeys((root, root.replace("src/test/", "src/main/")))
    for name, wildcard in _JVM.findall(document.text):
        path = name.replace(".", "/")
        if wildcard:
            yield tuple(posixpath.join(one, path) + "/" for one in roots)
        else:
            # A member of a class is imported like a class of a package.
            paths = (path, posixpath.dirname(path))
            yield tuple(
                posixpath.join(one, name + form)
                for name in paths
                for one in roots
                for form in _JVM_FORMS
            )
    yield tuple(posixpath.join(one, inner) + "/" for one in roots)


_PHP = re.compile(
    r"""^[ \t]*use[ \t]+\\?([\w\\]+)"""
    r"""|\b(?:require|include)(?:_once)?\b[^'"\n]{0,100}["']/?([^'"\n]+)""",
    re.M,
)


def _php(document: _Document) -> Iterator[Mention]:
    for name, path in _PHP.findall(document.text):
        if path:
            yield document.beside(path)
            continue
        # Of a namespace the first words are the package's, and the rest are directories.
        parts = name.split("\\")
        yield tuple(
            posixpath.join(root, *parts[n:]) + ".php"
            for n in range(min(len(parts), 3))
            for root in ("", "src", "app", "lib")
        )


def _same_directory(document: _Document) -> Iterator[Mention]:
    """Of languages in which the files of a directory know each other without being named."""
    yield (f"{document.directory}/",)


@dataclass(frozen=True)
class _Paths:
    """A language that names files by paths, nearly as they are."""

    pattern: re.Pattern[str]
    endings: tuple[str, ...]
    roots: tuple[str, ...] = ()
    between: str = "/"

    def __call__(self, document: _Document) -> Iterator[Mention]:
        for found in self.pattern.findall(document.text):
            path = found.replace(self.between, "/")
            below = (
                posixpath.join(root, path + end) for root in self.roots for end in self.endings
            )
            yield (*document.beside(path, self.endings), *below)


_DART = r"""^[ \t]*(?:import|export|part)[ \t]+["'](?:package:\w+/)?([^"':\n]+)["']"""
_SOURCED = r"""^[ \t]*(?:source|\.)[ \t]+["']?(?:\$\{?\w+\}?/)?([\w./-]+)"""
_QUOTED = r"""[ \t(]*["']([^"'\n]+)["']"""
_STYLES = ("", ".scss", ".css")
_READERS: dict[str, Callable[[_Document], Iterator[Mention]]] = {
    "python": _python,
    "starlark": _python,
    **dict.fromkeys(("javascript", "typescript", "tsx"), _javascript),
    "go": _go,
    "rust": _rust,
    **dict.fromkeys(("c", "cpp", "objc", "cuda"), _c),
    **dict.fromkeys(("java", "kotlin", "scala"), _jvm),
    "php": _php,
    **dict.fromkeys(("csharp", "swift"), _same_directory),
    "ruby": _Paths(
        re.compile(r"^[ \t]*require(?:_relative)?" + _QUOTED, re.M), (".rb",), ("lib", "app", "")
    ),
    "lua": _Paths(
        re.compile(r"\brequire" + _QUOTED), (".lua", "/init.lua"), ("", "lua", "src"), between="."
    ),
    "dart": _Paths(re.compile(_DART, re.M), ("",), ("lib",)),
    "proto": _Paths(re.compile(r'^[ \t]*import[ \t]+"([^"\n]+)"', re.M), ("",), ("", "proto")),
    "zig": _Paths(re.compile(r'@import\("([^"\n]+\.zig)"\)'), ("",)),
    "bash": _Paths(re.compile(_SOURCED, re.M), ("",), ("",)),
    **dict.fromkeys(
        ("css", "scss"),
        _Paths(re.compile(r"^[ \t]*@(?:import|use|forward)" + _QUOTED, re.M), _STYLES, ("",)),
    ),
}
