"""A last line is not glued to the code behind the cursor."""

from __future__ import annotations

import pytest

from support.shaping import shaped
from suture.server.shaping.glue import Glue
from suture.server.shaping.surroundings import Surroundings
from suture.server.shaping.syntax import Syntax


def glue(around: Surroundings) -> Glue:
    return Glue(around, Syntax(around).n_errors)


@pytest.mark.parametrize(
    ("path", "prefix", "suffix", "text", "left"),
    [
        ("x.py", "def f():\n    ", "return x\n", "y = 1\n    z = 2", "y = 1\n    "),
        ("x.py", "def f():\n    ", "return x\n", "y = 1\n    z = y", "y = 1\n    "),
        ("x.py", "def f():\n    ", "return x\n", "if y:\n        z()", "if y:\n    "),
        ("x.py", "def f():\n    ", "return x\n", "y = 1\n    z = g(2)", "y = 1\n    "),
        ("x.py", "", "import b\n", "import a\nimport c", "import a\n"),
        ("x.c", "int f() {\n    ", "return x;\n}\n", "int y = 1;\n    int z", "int y = 1;\n    "),
        (
            "x.ts",
            "f(() => {\n  ",
            "return a\n})\n",
            "const b = 1\n  const c = b",
            "const b = 1\n  ",
        ),
        ("x.rb", "def f\n  ", "b\nend\n", "a = 1\n  c = 2", "a = 1\n  "),
    ],
)
def test_g1_the_last_line_is_left_out_where_it_would_be_glued(
    path: str, prefix: str, suffix: str, text: str, left: str
) -> None:
    around = Surroundings(prefix, suffix, path=path)
    rule = glue(around)
    assert shaped(rule, *text) == left and rule.fired
    assert shaped(glue(around), text) == left
    assert shaped(glue(around), left) == left


@pytest.mark.parametrize(
    ("path", "prefix", "suffix", "text"),
    [
        ("x.py", "def f():\n    ", "return x\n", "y = 1\n    z = 2\n    "),  # apart
        ("x.py", "x = foo(", "a, b)\n", "c,\n        d, "),  # goes on
        ("x.py", "x = foo(", "_b)\n", "c,\n        d"),  # one word
        ("x.py", "", "(a)\n", "b = 1\nfoo"),
        ("x.py", "", "b()\n", "c = 1; "),
        ("x.py", "def f():\n    ", "o(a)\n", "b = 1\n    fo"),
        ("x.py", "def f():\n    ", "= a\n", "b = 1\n    c.d"),
        ("x.py", "def f():\n    ", "foo(a)\n", "b = 1\n    return "),
        ("x.c", "int f() {\n    ", "return x;\n}\n", "int y = 1;\n    int z = 2;"),
        ("x.c", "int f() {\n    ", "x;\n}\n", "int y = 1;\n    y = (int)"),
        ("x.py", "def f():\n    ", "return x\n", "y = 1 + "),  # one line
        ("x.py", "def f():\n    ", "\n", "y = 1\n    z = 2"),  # nothing behind
        ("x.py", "def f():\n    ", "  \nreturn x\n", "y = 1\n    z = 2"),
        ("x.c", "int f() {\n    ", "return x;\n}\n", "int y = 1;\n    int z = 2; "),
        ("x.c", "MACRO(x) {\n    ", "x) BAR }\n", "a();\n    FOO("),  # not for the glue
        ("x.md", "A ", "word.\n", "b\nc"),
        (None, "\x00 ", "return x\n", "y = 1\n    z = 2"),
    ],
)
def test_g2_what_is_not_glued_stays(path: str | None, prefix: str, suffix: str, text: str) -> None:
    rule = glue(Surroundings(prefix, suffix, path=path))
    assert shaped(rule, *text) == text and not rule.fired


def test_g3_the_first_line_is_not_held_and_of_others_the_last() -> None:
    rule = glue(Surroundings("def f():\n    ", "return x\n", path="x.py"))
    fed = [rule.feed(part) for part in ("y = ", "1\n  ", "  z = 2\n    a", "b", "\n    ")]
    assert fed == ["y = ", "1\n", "    z = 2\n", "", "    ab\n"]
    assert rule.flush() == "    "
