"""What is open behind a text, by language."""

from __future__ import annotations

import pytest

from suture.server.shaping.lexical import Nesting, lexical_syntax


@pytest.mark.parametrize(
    ("language", "path", "name"),
    [
        ("python", None, "python"),
        ("Python", "x.c", "python"),
        (None, "a/b.PY", "python"),
        (None, "a\\b.tsx", "javascript"),
        (None, "a/Makefile", "make"),
        (None, "README", "text"),
        ("nonsense", "x.rs", "rust"),
        (None, "x.nonsense", "code"),
        (None, None, "code"),
    ],
)
def test_a_language_is_known_by_its_name_or_the_files(
    language: str | None, path: str | None, name: str
) -> None:
    assert lexical_syntax(language, path) is lexical_syntax(name, None)


@pytest.mark.parametrize(
    ("language", "text", "closers", "string_end"),
    [
        ("python", "f([", ")]", ""),
        ("python", "f(']', # ]\n", ")", ""),
        ("python", 'x = """\n(', "", '"""'),
        ("python", 'x = """\n("""\n[', "]", ""),
        ("python", "x = '''\\'''\n", "", "'''"),
        ("python", "it's\n(", ")", ""),
        ("c", "f('(', \"[\"); /* ( */ // (\n{", "}", ""),
        ("c", "/* (\n", "", "*/"),
        ("c", "it's a(", ")", ""),
        ("rust", "fn f<'a>(x: &'a str, '(' ", ")", ""),
        ("rust", 'let x = "\\\n(', "", '"'),
        ("go", "x := `(\n", "", "`"),
        ("go", "x := `(`\n[", "]", ""),
        ("javascript", "x = `${a}\n", "", "`"),
        ("ruby", "x\n=begin\n(\n", "", "\n=end"),
        ("ruby", "x\n=begin\n(\n=end\n[", "]", ""),
        ("lua", "--[[ (\n", "", "]]"),
        ("lua", "x = [[ (\n", "", "]]"),
        ("lua", "-- (\n(", ")", ""),
        ("shell", 'echo "a\n(', "", '"'),
        ("shell", "echo $# (", ")", ""),
        (None, "# (\n// (\n/* ( */ [", "]", ""),
        (None, ")](", ")", ""),
    ],
)
def test_what_is_open_behind_a_text(
    language: str | None, text: str, closers: str, string_end: str
) -> None:
    nesting = Nesting(lexical_syntax(language, None), text)
    assert (nesting.closers, nesting.string_end) == (closers, string_end)
    by_lines = Nesting(lexical_syntax(language, None))
    for line in text.splitlines(keepends=True):
        by_lines.feed(line)
    assert by_lines.closers == closers and by_lines.opened_at == nesting.opened_at


def test_a_text_of_openers_costs_no_more_than_another() -> None:
    nesting = Nesting(lexical_syntax(None, None), "([{" * 100_000)
    assert 0 < len(nesting.closers) == len(nesting.opened_at) <= 1000


def test_a_statement_begins_where_its_outermost_round_or_square_bracket_does() -> None:
    syntax = lexical_syntax("python", None)
    assert Nesting(syntax, "x = {f([").statement_at == 6
    assert Nesting(syntax, "f({").statement_at is None
    assert Nesting(syntax, 'x = """').statement_at == 4
    assert Nesting(syntax, ")").n_closing == 1
