"""Where an answer leaves the block of the cursor."""

from __future__ import annotations

import pytest

from support.shaping import shaped
from suture.server.shaping.scope import Scope, header_above
from suture.server.shaping.surroundings import Surroundings

METHOD = "class A:\n    def f(self):\n        "


@pytest.mark.parametrize(
    ("path", "prefix", "text", "suffix", "inserted"),
    [
        # There is text below.
        ("x.py", "def f():\n    ", "x\n\ny\n", "\n    z\n", "x\n\n"),
        ("x.py", METHOD, "x\n\n    def g(self):\n        y\n\nz", "\n\n    def h(self): pass\n",
         "x\n\n    def g(self):\n        y\n\n"),
        ("x.py", "if a:\n    ", "x\nelif b:\n    y\nz\n", "\nelse:\n    w\n",
         "x\nelif b:\n    y\n"),
        ("x.c", "f() {\n  if (a) {\n    ", "b();\n  }\n  c();\n", "\n  }\n}\n", "b();\n"),
        ("x.c", "f() {\n  if (a) {\n    ", "b();\n  } else {\n    c();\n  }\n", "\n  }\n}\n",
         "b();\n  } else {\n    c();\n"),
        # A bracket that nothing below closes is closed.
        ("x.c", "f() {\n  if (a) {\n    ", "b();\n  }\n}\n", "\n    int x;\n}\n", "b();\n  }\n"),
        # Nothing is below.
        ("x.py", METHOD, "x\n\n    def g(self):\n        y", "\n", "x\n\n"),
        ("x.py", "def f():", "\n    x\n\n\ndef g():\n    y", "", "\n    x\n\n\n"),
        ("x.py", "", "def f():\n    x\n\n\ndef g():\n    y", "", "def f():\n    x\n\n\n"),
        ("x.py", "", "a = 1\nif a:\n    b\nelse:\n    c\nd\n", "",
         "a = 1\nif a:\n    b\nelse:\n    c\n"),
        ("x.py", "", "a = f(\n  b,\n)\nc = 1\n@d\ndef e(): pass\n", "", "a = f(\n  b,\n)\n"),
        ("x.js", "function f() {\n  if (a) {\n    ", "b()\n  }\n}\n\nfunction g() {\n}\n", "",
         "b()\n  }\n}\n\n"),
        ("x.js", "it('a', () => {\n  ", "b()\n})\n\nit('c', () => {\n", "", "b()\n})\n\n"),
        ("x.js", "", "function f() {\n  a()\n}\n\nfunction g() {\n", "",
         "function f() {\n  a()\n}\n\n"),
        ("x.c", "int f()\n{\n    ", "a();\n}\n\nint g()\n{\n", "", "a();\n}\n\n"),
        ("x.rb", "class A\n  def f\n    ", "x\n  rescue B\n    y\n  end\nend\n\nclass C\n", "",
         "x\n  rescue B\n    y\n  end\nend\n\n"),
        ("x.lua", "local function f()\n   ", "x()\nend\n\nfunction g()\n", "", "x()\nend\n\n"),
        ("x.go", "func f() {\n\t", "a()\n}\n\nfunc g() {\n", "\n", "a()\n}\n\n"),
        ("x.rs", "impl A {\n    fn f(&self) {\n        ", "b()\n    }\n\n    fn g(&self) {\n", "",
         "b()\n    }\n\n"),
        ("Makefile", "all:\n\t", "a\n\tb\n\nclean:\n\tc\n", "\n", "a\n\tb\n\n"),
        ("x.yml", "a:\n  b:\n    ", "c: 1\n  d: 2\n", "\n    e: 1\n", "c: 1\n"),
    ],
)  # fmt: skip
def test_the_text_ends_where_it_leaves_the_block(
    path: str, prefix: str, text: str, suffix: str, inserted: str
) -> None:
    for around in (Surroundings(prefix, suffix, path=path), Surroundings(prefix, suffix)):
        rule = Scope(around)
        assert shaped(rule, *text) == inserted
        assert rule.fired and rule.ended


@pytest.mark.parametrize(
    ("path", "prefix", "text", "suffix"),
    [
        ("x.py", "def f():\n    ", 'x = """\ny\n"""\n    z', "\n    w\n"),
        ("x.py", "def f():\n    ", "x = [\n1,\n]\n    z", "\n    w\n"),
        ("x.py", 'def f():\n    """Text.\n\n    ', 'More.\nNo depth.\n    """\n    x', "\n    w\n"),
        ("x.py", "x = (\n    ", "1,\n)\n", "\n    2\n"),
        ("x.md", "  ", "a\nb\n", "\n  c\n"),
        ("x.py", "    x = ", "1\ny = 2\n", " + 1\n    z\n"),
        ("x.c", "    a();", "\nout:\n    b();\n#endif\n", "\n    c();\n"),
        ("x.tsx", "  return (\n    <a>\n      ", "b\n    </a>\n", "\n      c\n"),
        ("x.py", "", "a = 1\nb = 2\n\nc = 3\n", ""),
        ("x.py", "    f(", "a)\n    b\n", "\n    c\n"),
        ("x.rs", "fn f<M>()\nwhere\n    ", "M: A,\n{\n    a();", "\n    b();\n}\n"),
        (
            "x.java",
            "  A a =\n      new A() {\n        b();\n      ",
            "};\n\n  int c;",
            "\n  int d;\n",
        ),
        (
            "x.rs",
            "    let a = b(c(|| {\n            d\n        }",
            "));\n\n    e();",
            "\n        f\n",
        ),
        ("x.c", "    a(", '"b\\\nc\\\nd");\n    e();', "\n    f();\n"),
        ("x.py", "def f():\n    x\n\n", "def g():\n    y\n", "\n\ndef h(): pass\n"),
    ],
)
def test_what_does_not_leave_the_block_goes_on(
    path: str, prefix: str, text: str, suffix: str
) -> None:
    rule = Scope(Surroundings(prefix, suffix, path=path))
    assert shaped(rule, *text) == text and not rule.fired


def test_a_string_that_the_beginning_is_cut_off_from_is_known_by_the_next_ones() -> None:
    cut = 'Adds (a.\n    """\n    return 1\n\ndef g():\n    """Twice."""\n    x = 1\n\n'
    more = 'def h():\n    """Text\n    goes on.\n    """\n    '
    around = Surroundings(cut + more, "", is_prefix_cut=True, path="x.py")
    assert shaped(Scope(around), "return 2\n\ndef i():\n    pass\n") == "return 2\n\n"
    around = Surroundings(cut + more[:23], "", is_prefix_cut=True, path="x.py")
    text = 'goes\non.\n    """\n    return 2'
    assert shaped(Scope(around), text) == text


def test_what_lies_below_what_was_cut_off_is_not_known() -> None:
    around = Surroundings("f() {\n    ", "\n", is_suffix_cut=True)
    assert shaped(Scope(around), "a()\n}\n") == "a()\n}\n"
    around = Surroundings("f() {\n    ", "\n    b()\n", is_suffix_cut=True)
    assert shaped(Scope(around), "a()\n}\n") == "a()\n"
    # Of a file whose beginning is cut off any bracket may be open.
    around = Surroundings("    a()\n    ", "\n", is_prefix_cut=True, path="x.c")
    assert shaped(Scope(around), "b();\n}\nc\n") == "b();\n}\n"


@pytest.mark.parametrize(
    ("prefix", "header"),
    [
        (METHOD, "    def f(self):"),
        ("class A:\n    x = 1\n    ", "class A:"),
        ("def f(x", "def f(x"),
        ("export async function f() {\n  if (a) {\n    ", "export async function f() {"),
        ("int f()\n{\n  for (;;)\n  {\n    ", "{"),
        ("def f():\n    a = {\n        ", "def f():"),
        ("x = 1\n", ""),
        ("if a:\n    ", ""),
    ],
)
def test_o2_the_header_is_that_of_the_innermost_definition(prefix: str, header: str) -> None:
    assert header_above(prefix, len) == header


def test_o6_a_line_in_the_block_is_not_held_and_one_below_it_only_while_it_may_be() -> None:
    rule = Scope(Surroundings("def f():\n    ", "\n    z\n"))
    assert [rule.feed(part) for part in ("x", " = 1", "\n", "   ", " y", "\n", "e", "n")] == [
        *("x", " = 1", "\n", "", "    y", "\n", "", ""),
    ]
    assert rule.feed("v") == "" and rule.ended


@pytest.mark.parametrize("blank", ["\r", "\f", "\v", "\u2028", "\xa0"])
def test_a_line_of_other_blanks_is_a_blank_one(blank: str) -> None:
    around = Surroundings("def f():\n    ", "\n    z\n", path="x.py")
    for parts in ((f"x\n{blank}\n    y",), tuple(f"x\n{blank}\n    y")):
        assert shaped(Scope(around), *parts) == f"x\n{blank}\n    y"
