"""Closers that the file already has: which of an answer are cut, and which only look like them."""

from __future__ import annotations

import pytest

from suture.server.shaping.brackets import Brackets
from suture.server.shaping.surroundings import Surroundings
from suture.server.shaping.syntax import Syntax

# prefix, what the model says, suffix, what is left of it
DOUBLED = [
    ("foo(", "a, b)", ") + bar\n", "a, b"),
    ("foo(", "a, b);\n", ") + bar;\n", "a, b"),
    ("foo(", "a) + g(b)", ") + bar\n", "a) + g(b"),
    ("x[", "0]", "].y\n", "0"),
    ("x = {", "a: [1]}", "}, 2\n", "a: [1]"),
    ("f(x[", "0])", "]) + 1\n", "0"),
    ("f(\n    x[", "0],\n", "]\n)\n", "0"),
    ('print("', 'hi"', '", x)\n', "hi"),
    ('print("', 'hi", "you"', '", x)\n', 'hi", "you'),
    ("print('", "it\\'s'", "', x)\n", "it\\'s"),
    ("x = `", "a ${b} c`", "`, d\n", "a ${b} c"),
    ("x = `${", "b}`", "}`, d\n", "b"),
    ('    """', 'Adds (a).\n    """\n    return 1\n', '"""\n    pass\n', "Adds (a).\n    "),
    ('    """Adds.\n', '    Twice.\n    """\n', '\n    """\n    pass\n', "    Twice."),
    ("if (a) {\n  ", "b();\n}\n\nx = 1;\n", "\n}\nmore();\n", "b();"),
    ("if (a) {\n  ", "b();\n\n\n}", "\n}\nmore();\n", "b();"),
    ("if (a) {", "\n  b();\n}", "}\nmore();\n", "\n  b();\n"),
    ("f(function () {\n  ", "g();\n});\n\nh();\n", "\n});\ni();\n", "g();"),
    # One is missing, and no more.
    ("if (a) {\n  if (b) {\n    ", "c();\n  }\n}\n", "\n}\nmore();\n", "c();\n  }"),
    ("f(g(", "a)))", ") + 1\n", "a)"),
]  # fmt: skip
# prefix, what the model says, suffix
KEPT = [
    ("foo(", "a, b", ") + bar\n"),
    ("foo(", "a) + g(b", ") + bar\n"),
    ("foo(", "a)\nbar(b", ") + c\n"),
    ("foo(", "bar(x)[0]", ") + bar\n"),
    ("foo(", '":)", x', ") + bar\n"),
    ("foo(", "\n    # 1) the first\n    a,\n", ") + bar\n"),
    ("foo(", "it's :( but", ") + bar\n"),
    ('print("', 'hi", "y', '", x)\n'),
    ('print("', "hi (x) :)", '", x)\n'),
    ('print("hi", ', '"(", x', ")\n"),
    ('x = ["a', 'b", c', '], "d": e\n'),
    ("if (a) {\n  ", "b();\n} else {\n  c();", "\n}\nmore();\n"),
    ("fn a() {\n  ", "b();\n}\n\nfn c() {\n  d();", "\n}\n"),
    ("fn a() {\n  if x {\n    ", "b();\n  }", "\n}\n"),
    ("fn f(", "x: &'a str, y: Vec<&'a T>", ") -> R<'a> {\n"),
    ("f() {\n  ", "case $1 in\n  a) g;;\n  *) h;;\n  esac", "\n}\n"),
    ("x = (see ", "the other) and (this", " one)\n"),
    ("foo(", "a)", ""),
    ("foo(", "a)\n", "\nbar()\n"),
    ("", "a)\n}\n", "\nfoo()\n"),
    ("[a](", "http://b/c_(d)", ") and e\n"),
    ("\\frac{a}{", "\\left[ b \\right)", "}\n"),
    # Behind a cut nobody knows what the suffix closes.
    ("1) a\n2) ", "b\n3) c\n", "\n4) d\n"),
]
# path, prefix, what the model says, suffix, what is left of it
JUDGED = [
    ("a.py", "foo(", "# see 1) and\n    a,\n", "\n)\nb\n", "# see 1) and\n    a,\n"),
    ("a.py", "foo(", "# :)", "\n)\nb\n", "# :)"),
    ("a.py", "foo(", "':)'", ") + 1\n", "':)'"),
    ("a.py", "foo(", "a)", ") + 1\n", "a"),
    ("a.py", "foo(", "a, b) + c\nnext()\n", ") + bar\n", "a, b"),
    ("a.py", 'print("', 'hi", y)\n', '", x)\n', "hi"),
    ("a.py", 'f"{x', '.y}"', '}" + z\n', ".y"),
    ("a.js", "foo(", "/* a) */ b, c) + d", ") + 1\n", "/* a) */ b, c"),
    ("a.rb", 'raise A, "no', 'ne"\n', '" if b?\n\nc("d")\n', "ne"),
    ("a.sh", "f() {\n  (\n    ", "case $1 in\n      a) g ;;\n    esac\n", "\n  )\n}\n",
     "case $1 in\n      a) g ;;\n    esac\n"),
    ("a.rs", "fn f() {\n    g(", "x, 'a', '(')", ");\n}\n", "x, 'a', '('"),
]  # fmt: skip


def cut(around: Surroundings, *parts: str) -> str:
    rule = Brackets(around, Syntax(around))
    text = "".join(map(rule.feed, parts)) + rule.flush()
    assert rule.fired == rule.ended == (text != "".join(parts))
    assert rule.feed("more") == ("" if rule.ended else "more")
    return text


@pytest.mark.parametrize(("prefix", "says", "suffix", "left"), DOUBLED)
def test_an_answer_ends_before_a_closer_that_it_doubles(
    prefix: str, says: str, suffix: str, left: str
) -> None:
    assert cut(Surroundings(prefix, suffix), says) == left
    assert cut(Surroundings(prefix, suffix), *says) == left
    assert cut(Surroundings(prefix, suffix), left) == left


@pytest.mark.parametrize(("prefix", "says", "suffix"), KEPT)
def test_what_only_looks_like_one_is_kept(prefix: str, says: str, suffix: str) -> None:
    assert cut(Surroundings(prefix, suffix), says) == says
    assert cut(Surroundings(prefix, suffix), *says) == says


@pytest.mark.parametrize(("path", "prefix", "says", "suffix", "left"), JUDGED)
def test_where_it_is_in_doubt_a_parse_decides(
    path: str, prefix: str, says: str, suffix: str, left: str
) -> None:
    around = Surroundings(prefix, suffix, path=path)
    assert cut(around, says) == left
    assert cut(around, *says) == left


def test_what_the_prompt_leaves_out_may_be_written_and_no_more() -> None:
    around = Surroundings("f() {\n  g(function () {", "\n}\nmore();\n", rest="})")
    assert cut(around, " return 1; })") == " return 1; })"
    assert cut(around, " return 1; })\n}\n") == " return 1; })"


def test_behind_a_cut_all_counts_as_closed() -> None:
    prefix = "class A {\n  f() {\n    "
    cut_off = Surroundings(prefix, "\n  }\n  g() {\n", is_suffix_cut=True)
    assert cut(cut_off, "h();\n  }\n}\n") == "h();"
    whole = Surroundings(prefix, "\n  }\n")
    assert cut(whole, "h();\n  }\n}\n") == "h();\n  }"


def test_before_a_cut_indentation_tells_what_closes_what() -> None:
    """The last closer is of a class that one does not see; the function's own is missing."""
    around = Surroundings("  f() {\n    ", "\n}\n", is_prefix_cut=True)
    assert cut(around, "h();\n  }") == "h();\n  }"
    assert cut(around, "h();\n  }\n}\n") == "h();\n  }"


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("path", ["a.js", None])
def test_the_end_of_a_long_block_is_no_double_of_what_ends_the_one_around_it(
    is_cut: bool, path: str | None
) -> None:
    body = "".join(f"    call({n}, value);\n" for n in range(300))
    prefix = f"f(() => {{\n  g(() => {{\n{body}  "
    around = Surroundings(prefix[-6000:] if is_cut else prefix, "\n});\n", is_cut, path=path)
    for says in ("});\n  h();", "  h();\n  });", "  h(() => {\n      i();\n    });\n  });"):
        assert cut(around, says) == cut(around, *says) == says
        assert cut(around, f"{says}\n}});") == cut(around, *f"{says}\n}});") == says


def test_k3_held_is_a_doubled_closer_and_the_line_behind_it() -> None:
    rule = Brackets(Surroundings("if (a) {\n  ", "\n}\n"), Syntax(Surroundings("")))
    assert rule.feed("b();\n") == "b();"
    assert rule.feed("}\n") == ""
    assert rule.feed("\nwhile (c)") == ""
    assert rule.feed(" {\n") == "\n}\n\nwhile (c) {"
    assert rule.feed("d();") == "\nd();"
    assert rule.flush() == ""


def test_the_judge_is_asked_where_something_stays_doubled_only() -> None:
    class Counted(Syntax):
        n = 0

        def n_errors(self, text: str) -> int | None:
            self.n += 1
            return super().n_errors(text)

    around = Surroundings("foo(", ") + 1\n", path="a.py")
    for says, n_asked in (("a, b[0], (c)", 0), ("a) + g(b", 0), ("a, b)", 2)):
        judge = Counted(around)
        rule = Brackets(around, judge)
        _ = [rule.feed(character) for character in says], rule.flush()
        assert judge.n == n_asked
