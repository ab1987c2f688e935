"""The judge of syntax: which languages it knows, what it counts, and what it costs at most."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from suture.server.shaping.surroundings import Surroundings
from suture.server.shaping.syntax import _GRAMMARS, Syntax, _language, grammar_of

# A path, a grammar; a text that parses, and one that does not
LANGUAGES = [
    ("a.py", "python", "x = f(1)\n", "x = f(1))\n"),
    ("stubs/a.pyi", "python", "def f(): ...\n", "def f(: ...\n"),
    ("a.js", "javascript", "f({a: 1});\n", "f({a: 1};\n"),
    ("a.jsx", "javascript", "x = <a>{b}</a>;\n", "x = <a>{b</a>;\n"),
    ("a.ts", "typescript", "let x: number[] = [1];\n", "let x: number[] = [1]];\n"),
    ("a.tsx", "tsx", "x = <a b={1}/>;\n", "x = <a b={1/>;\n"),
    ("a.c", "c", "int f(void) { return 1; }\n", "int f(void) { return 1; }}\n"),
    ("a.h", "c", "int f(int);\n", "int f(int;\n"),
    ("src/a.CPP", "cpp", "std::vector<int> f() { return {}; }\n", "int f() { return {; }\n"),
    ("A.java", "java", "class A { int f() { return 1; } }\n", "class A { int f() { return 1; }\n"),
    ("A.cs", "csharp", "class A { int F() => 1; }\n", "class A { int F() => 1; }}\n"),
    ("a.go", "go", "package a\nfunc f() {}\n", "package a\nfunc f() {}}\n"),
    ("a.rs", "rust", "fn f<'a>(x: &'a str) {}\n", "fn f<'a>(x: &'a str)) {}\n"),
    ("a.rb", "ruby", "def f\n  1\nend\n", "def f\n  g(1))\nend\n"),
    ("a.php", "php", "<?php f([1]);\n", "<?php f([1]]);\n"),
    ("a.kt", "kotlin", "fun f() = g(1)\n", "fun f() = g(1))\n"),
    ("a.swift", "swift", "func f() { g(1) }\n", "func f() { g(1)) }\n"),
    ("a.scala", "scala", "def f = g(1)\n", "def f = g(1))\n"),
    ("a.lua", "lua", "if a then f() end\n", "if a then f() end end\n"),
    ("a.sh", "bash", "case $1 in\n  a) f;;\nesac\n", "case $1 in\n  a) f;;\nesac }\n"),
    (".bashrc", "bash", "f() { g; }\n", "f() { g; }}\n)"),
    ("a.json", "json", '{"a": [1]}\n', '{"a": [1]]}\n'),
    ("a.yaml", "yaml", "a: [1]\n", "a: [1]]\n"),
    ("a.toml", "toml", "a = [1]\n", "a = [1]]\n"),
    ("a.css", "css", "a { b: c; }\n", "a { b: c; }}\n"),
    ("a.sql", "sql", "SELECT f(1) FROM t;\n", "SELECT f(1)) FROM t;\n"),
    ("a.hs", "haskell", "f x = g (x)\n", "f x = g (x))\n"),
    ("a.ex", "elixir", "f([1])\n", "f([1]])\n"),
    ("a.zig", "zig", "fn f() void { g(1); }\n", "fn f() void { g(1)); }\n"),
    ("main.tf", "hcl", 'a "b" { c = [1] }\n', 'a "b" { c = [1]] }\n'),
    ("Makefile", "make", "a: b\n\tc\n", "a: $(b\n"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "grammar", "right", "wrong"), LANGUAGES)
def test_what_does_not_parse_has_errors(path: str, grammar: str, right: str, wrong: str) -> None:
    assert grammar_of(path, None) == grammar
    syntax = Syntax(Surroundings("", path=path))
    errors = syntax.n_errors(wrong)
    assert syntax.n_errors(right) == 0
    assert errors is not None and errors > 0
    assert syntax.better_cut([wrong, right]) == 1
    assert syntax.better_cut([right, wrong]) == 0


@pytest.mark.parametrize(
    ("path", "language", "grammar"),
    [
        (None, "typescriptreact", "tsx"),
        (None, "javascriptreact", "javascript"),
        (None, "shellscript", "bash"),
        (None, "csharp", "csharp"),
        (None, "C++", "cpp"),
        ("a.h", "cpp", "cpp"),
        ("a.py", "plaintext", "python"),
        ("C:\\src\\a.py", None, "python"),
        ("../../a.py", None, "python"),
        ("a.md", "markdown", None),
        ("notes.txt", "plaintext", None),
        ("a.tex", "latex", None),
        ("py", None, "python"),
        ("", "", None),
        (None, None, None),
    ],
)
def test_the_editors_language_counts_more_than_the_path(
    path: str | None, language: str | None, grammar: str | None
) -> None:
    assert grammar_of(path, language) == grammar


@pytest.mark.parametrize("grammar", [row.split()[0] for row in _GRAMMARS.strip().splitlines()])
def test_y2_every_grammar_is_installed(grammar: str) -> None:
    assert _language(grammar)


def test_a_line_end_that_is_missing_is_an_error_though_no_node_shows_it() -> None:
    syntax = Syntax(Surroundings("def f():\n    ", "return x\n", path="x.py"))
    assert syntax.n_errors("y = g(1)\n    ") == 0
    assert syntax.n_errors("y = g(1)") == 1


def test_of_an_unknown_language_there_is_no_opinion() -> None:
    syntax = Syntax(Surroundings("(", ")", path="a.txt"))
    assert syntax.n_errors(")") is None
    assert syntax.n_added_errors(")") is None
    assert syntax.is_token(")", 0) is None
    assert syntax.better_cut([")", ""]) == 0


@pytest.mark.parametrize(
    "above",
    [
        "template <class T>\nT f(T a) {\n",
        "namespace a {\nint f() {\n",
        "class A {\npublic:\n f() {\n",
    ],
)
def test_a_header_may_be_of_cpp(above: str) -> None:
    syntax = Syntax(Surroundings(above, "\n}\n", path="x.h"))
    assert syntax.n_errors("  auto g = [&](auto b) { return b; };") in (0, 1)
    of_c = Syntax(Surroundings("int f(int class) {\n", "\n}\n", path="x.h"))
    assert of_c.n_errors("  return class;") == 0


def test_of_code_in_another_language_than_said_there_is_no_opinion() -> None:
    syntax = Syntax(Surroundings("def f(a): return a if a else [*a]\n" * 80, "", path="x.c"))
    assert syntax.n_errors("x") is None and syntax.n_errors("") is None
    assert syntax.is_token("(", 0) is None


def test_errors_of_the_surroundings_do_not_count() -> None:
    syntax = Syntax(Surroundings("x = )\ny = f(", ")\nz = ]\n", path="a.py"))
    assert syntax.n_added_errors("1") == 0
    assert syntax.n_added_errors("1) + 2") == 1
    assert syntax.better_cut(["1) + 2", "1", "2"]) == 1


def test_closers_that_are_not_shown_are_there_unless_written() -> None:
    syntax = Syntax(Surroundings("f(", "\n", rest=")", path="a.py"))
    assert syntax.n_errors("a") == syntax.n_errors("a)") == 0


def test_a_closer_in_a_comment_or_string_is_no_token() -> None:
    syntax = Syntax(Surroundings("f(\n    ", "\n)\n", path="a.py"))
    assert syntax.is_token("a)", 1)
    assert syntax.is_token("(é))", 3)
    assert syntax.is_token("# 1) a", 3) is False
    assert syntax.is_token("':)'", 2) is False
    assert syntax.is_token("':)'", 3)


def test_behind_a_cut_all_that_is_open_is_closed() -> None:
    suffix = "\n    }\n\n    void g() {\n"
    syntax = Syntax(Surroundings("class A {\n    void f() {\n", suffix, False, True, path="A.java"))
    assert syntax.n_errors("        h();") == 0
    assert syntax.better_cut(["        h();\n    }", "        h();"]) == 1


def test_before_a_cut_a_docstring_may_be_open() -> None:
    prefix = 'Returns (a).\n    """\n    return f('
    syntax = Syntax(Surroundings(prefix, ")\n\n\nx = 1\n", is_prefix_cut=True, path="a.py"))
    assert syntax.n_errors("a") == 0
    assert syntax.better_cut(["a)", "a"]) == 1


def test_y1_any_thread_may_ask() -> None:
    around = [Surroundings("f(", ")\n" * n, path="a.py") for n in range(60)]
    expected = [Syntax(place).n_errors("a)") for place in around]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda place: Syntax(place).n_errors("a)"), around)) == expected


@pytest.mark.parametrize("path", ["a.sh", "a.scala", "a.lua", "a.rs", "a.js"])
@pytest.mark.parametrize("text", ["a<b(c,", "#if x\n", "({[", "\ud800\x00", "f(f("])
def test_y2_whatever_the_text_an_answer_comes(path: str, text: str) -> None:
    """Where tree-sitter would take seconds there is no opinion."""
    syntax = Syntax(Surroundings(text * 3000, text * 3000, path=path))
    assert syntax.n_errors("x") in (None, *range(5000))


def test_y2_once_a_parse_takes_too_long_there_is_no_opinion_any_more() -> None:
    syntax = Syntax(Surroundings("a<b(c," * 3000, path="a.sh"))
    assert [syntax.n_errors(text) for text in ("x", "y")] == [None, None]
    assert syntax.better_cut(["x", "y"]) == 0
