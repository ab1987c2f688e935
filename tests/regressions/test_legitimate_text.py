"""Text that only looks like a loop, an echo, another block or another style: all of it stays."""

from __future__ import annotations

import base64

import pytest

from suture.server.shaping.shaper import Shaper
from suture.server.shaping.surroundings import Surroundings

PY, C, MD = "x.py", "x.c", "x.md"
ROW = "        [0, 0, 0, 0],\n"
ASSERT = "    assert area({}, 1) == {}\n"
# name: path, what stands before the cursor, the text, what stands after it
TEXTS = {
    "matrix rows": (PY, "m = [\n", ROW * 12 + "        [0, 0, 0, 1],", "\n]\n"),
    "zeros in a line": (PY, "zeros = [", "0, " * 63 + "0]", "\n"),
    "zeros in C": (C, "int t[] = {\n", "    0, 0, 0, 0, 0, 0, 0, 0,\n" * 30 + "    1", "\n};\n"),
    "asserts": (
        PY,
        "def test_area():\n",
        "".join(ASSERT.format(n, n) for n in range(20)).rstrip(),
        "\n",
    ),
    "the same call five times": (
        PY,
        "def f(it):\n    ",
        "\n    ".join(["next(it)  # skip a header"] * 5),
        "\n    return it\n",
    ),
    "closing braces": (
        C,
        "void f(void)\n{\n    for (;;) {\n        if (a) {\n            if (b) {\n                ",
        "g();\n            }\n        }\n    }\n}",
        "\n",
    ),
    "closing brackets below a block that goes on": (
        "x.ts",
        "it('a', () => {\n  run(() => {\n    ",
        "f(\n      [\n        1,\n      ],\n    )",
        "\n  })\n})\n",
    ),
    "ends": (
        "x.rb",
        "module A\n  class B\n    def c\n      ",
        "if d\n        e\n      end\n    end\n  end\nend",
        "\n",
    ),
    "ends of Lua": (
        "x.lua",
        "local function f()\n   for i = 1, 2 do\n      ",
        "if i then\n         g()\n      end\n   end\nend",
        "\n",
    ),
    "an enum": (
        PY,
        "class Color(Enum):\n    ",
        "\n    ".join(f"COLOR_{n} = auto()" for n in range(20)),
        "\n",
    ),
    "imports": (
        "x.go",
        "package a\n\nimport (\n",
        "".join(f'\t"example.com/a/b/c{n}"\n' for n in range(9)) + ")",
        "\n",
    ),
    "a Markdown table": (
        MD,
        "",
        "| a | b |\n| --- | --- |\n" + "| x | x |\n" * 6 + "| y | y |",
        "\n\ntext\n",
    ),
    "rules": (MD, "Title\n", "-" * 120 + "\n\nText\n\n----\n\nMore\n\n----", "\n"),
    "a comment's rule": (PY, "", "#" + "=" * 79 + "\n# Parsing\n#" + "=" * 79, "\n\nx = 1\n"),
    "a fence": (MD, "Run\n\n", "```sh\nmake\nmake\n```\n\nand\n\n```sh\nmake\n```", "\n\nDone.\n"),
    "a line break of Markdown": (MD, "One  \n", "two  \nthree  ", "\nfour\n"),
    "indented Markdown": (MD, "- a\n  - ", "b\n    - c\n- d\n\nText", "\n"),
    "a URL": (PY, 's = "http:', '//example.com/src/a//b?q=1#x"', "\n"),
    "comments of slashes": (C, "", "// a\n// b\n//\n// c", "\nint x;\n"),
    "a docstring": (
        PY,
        "def f(x):\n    ",
        '"""Doubles.\n\nAt no depth:\n\n    f(1) == 2\n  half\n"""\n    return 2 * x',
        "\n",
    ),
    "a docstring that was begun": (
        PY,
        'def f(x):\n    """Doubles.\n\n    ',
        'Args:\n  x: what\n\ttabs\nReturns:\n    """\n    return 2 * x',
        "\n\n\ndef g():\n    pass\n",
    ),
    "a table of tests": (
        PY,
        "CASES = [\n",
        '    ("a", 1, True),\n    ("a", 1, False),\n' * 3 + '    ("b", 1, True),',
        "\n]\n",
    ),
    "base64": (
        PY,
        'data = """\n',
        base64.b64encode(b"\0" * 120).decode() + "\n" + "QUJD" * 15 + '\n"""',
        "\n",
    ),
    "test after test": (
        PY,
        "class TestA(TestCase):\n    def test_a(self):\n        ",
        "x = make_a_server(port=0)\n        self.assertTrue(x)\n\n    def test_b(self):\n"
        "        x = make_a_server(port=0)\n        self.assertFalse(x)",
        "\n\n    def test_c(self):\n        pass\n",
    ),
    "else": (PY, "if a:\n    ", "b()\nelif c:\n    d()\nelse:\n    e()", "\n"),
    "except": (PY, "try:\n    ", "b()\nexcept A:\n    d()\nfinally:\n    e()", "\n"),
    "the other branch before the brace below": (
        C,
        "void f(void)\n{\n    if (a) {\n        ",
        "b();\n    } else {\n        c();",
        "\n    }\n}\n",
    ),
    "directives and labels": (
        C,
        "void f(void)\n{\n    ",
        "a();\n#ifdef B\n    b();\n#endif\nout:\n    c();",
        "\n    d();\n}\n",
    ),
    "a here-document": (
        "x.sh",
        "usage() {\n  ",
        "x=$(cat <<EOF\nUsage: $0 (it's short)\nEOF\n  )\n  exit 1",
        "\n}\n",
    ),
    "a here-document of Ruby": (
        "x.rb",
        "def f\n  ",
        "puts(<<~TEXT, 1)\n    It's (a\nTEXT\n  x <<-SQL.strip\nSELECT 1\n  SQL\n  2",
        "\nend\n",
    ),
    "a here-document of PHP": (
        "x.php",
        "<?php\nfunction f() {\n  ",
        "echo <<<'EOT'\nIt's {a\nEOT;\n  return 1;",
        "\n}\n",
    ),
    "a property above another": (
        PY,
        "class P:\n    def __init__(self, x):\n        self._x = x\n\n    ",
        "@property\n    def x(self):\n        return self._x",
        "\n\n    @property\n    def y(self):\n        return self._y\n",
    ),
    "a test above another": (
        "x.rs",
        "mod tests {\n    #[test]\n    fn a() {\n        f();\n    }\n\n    ",
        "#[test]\n    fn b() {\n        h();\n    }",
        "\n\n    #[test]\n    fn c() {\n        g();\n    }\n}\n",
    ),
    "a template above another": (
        "x.hpp",
        "",
        "template <typename T>\nT b(T x) { return x; }",
        "\n\ntemplate <typename T>\nT c(T x) { return x; }\n",
    ),
    "an error looked at above another": (
        "x.go",
        "func f() error {\n\ta, err := g()\n\t",
        'if err != nil {\n\t\treturn fmt.Errorf("g: %w", err)\n\t}\n\tb, err := h(a)',
        "\n\tif err != nil {\n\t\treturn err\n\t}\n\treturn nil\n}\n",
    ),
    "what raises above another": (
        PY,
        "def test():\n    ",
        "with raises(ValueError):\n        f(2)",
        "\n    with raises(ValueError):\n        f(3)\n",
    ),
    "a section above another": (
        "x.html",
        "<body>\n  <section>\n    <p>a</p>\n  </section>\n  ",
        "<section>\n    <p>b</p>\n  </section>",
        "\n  <section>\n    <p>c</p>\n  </section>\n</body>\n",
    ),
    "directives before the end of others": (
        "x.h",
        "#ifndef A_H\n#define A_H\n\n",
        '#ifdef __cplusplus\nextern "C" {\n#endif\n\nint f(int);\n\n'
        "#ifdef __cplusplus\n}\n#endif",
        "\n\n#endif\n",
    ),
    "a choice in another": (
        C,
        "#ifdef A\n",
        "#ifdef B\nint y;\n#else\nint z;\n#endif",
        "\n#else\nint x;\n#endif\n",
    ),
    "a list in another": (
        "x.tex",
        "\\begin{itemize}\n",
        "\\item a\n\\begin{itemize}\n\\item b\n\\end{itemize}",
        "\n\\end{itemize}\n",
    ),
    "a condition of a template in another": (
        "x.html",
        "{% if a %}\n",
        "{% if b %}\n<p>x</p>\n{% endif %}",
        "\n{% endif %}\n",
    ),
    "a namespace": (
        "x.cpp",
        "#include <a>\n\n",
        "namespace a {\nclass B {\n public:\n  int c;\n};\n}  // namespace a",
        "\n",
    ),
    "who may see it": (
        "x.hpp",
        "class A {\npublic:\n  A();\n  ",
        "int f() const;\n\nprivate:\n  int x_;",
        "\n};\n",
    ),
    "Allman braces": (
        "x.cs",
        "class A\n{\n    void B()\n",
        "    {\n        if (c)\n        {\n            d();\n        }\n    }\n}",
        "\n",
    ),
    "a wrapped signature": (
        PY,
        "class A:\n    def f(\n        self,\n        ",
        "x: int,\n    ) -> int:\n        return x",
        "\n\n    def g(self):\n        pass\n",
    ),
    "a chain": (
        "x.js",
        "function f() {\n  const a = b\n    .c()\n    ",
        ".d()\n\n  return a",
        "\n}\n",
    ),
    "a continued condition": (
        PY,
        "def f():\n    if (a and\n            ",
        "b):\n        c()\n    return d",
        "\n",
    ),
    "a deeper line where a block opens": (PY, "def f():\n    if a:\n    ", "    b()", "\n"),
    "alignment behind tabs": (C, "int f(int a,\n\t", "  int b)\n{\n\tif (a &&\n\t    b)\n\t\tc();",
                              "\n}\n"),
    "a recipe": (
        "Makefile",
        "ifeq (a, b)\n  A = 1\n  B = 2\nendif\n\nall:\n",
        "\tmake a\n\tmake b",
        "\n",
    ),
    "a comment's stars in a file of tabs": (
        C,
        "void f(void)\n{\n\ta();\n\tb();\n}\n\n",
        "/*\n * One.\n *   Two.\n */",
        "\nint x;\n",
    ),
    "a call over several lines": ("x.py", "x = foo(", "\n    a,\n    b,\n", ") + 1\n"),
    "YAML": (
        "x.yml",
        "jobs:\n  a:\n    steps:\n    ",
        "- run: make\n    - run: make\n  b:\n    steps:\n    - run: make",
        "\n  c:\n    steps: []\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("shape", ["auto", "block"])
def test_legitimate_text_stays(name: str, shape: str) -> None:
    path, prefix, text, suffix = TEXTS[name]
    around = Surroundings(prefix, suffix, path=path)
    shaper = Shaper(around, prefix, "block" if shape == "block" else "auto")
    assert "".join([*map(shaper.feed, text), shaper.flush()]) == text
    assert shaper.rules == ()
    whole = Shaper(around, prefix)
    assert whole.feed(text) + whole.flush() == text


@pytest.mark.parametrize("name", TEXTS)
def test_where_the_language_is_not_known_it_stays_too(name: str) -> None:
    path, prefix, text, suffix = TEXTS[name]
    if path in (MD, "Makefile") or "labels" in name:
        return  # what blanks and colons mean there is the language's own
    shaper = Shaper(Surroundings(prefix, suffix), prefix)
    assert "".join([*map(shaper.feed, text), shaper.flush()]) == text
