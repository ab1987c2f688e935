"""What users and readers of code report of brackets that other clients and servers double or drop.

continue#4721, continue#10751, continue#2130 (closers written twice); minuet-ai.nvim#100 (trimming
that one fears); and what reading shows: lsp-ai trims an overlap of one character at the end, so
that a needed closer is gone; twinny's formatter counts closers in strings and takes any character
that the suffix begins with; llm-ls inserts what the model says as it is.
"""

from __future__ import annotations

import pytest

from suture.server.shaping.closers import line_rest, still_open
from suture.server.shaping.shaper import Shaper
from suture.server.shaping.surroundings import Surroundings

# who, path, text before the cursor, what the model says, text behind, the file between them
REPORTS = [
    # continue#4721, continue#10751: what is behind the cursor is said again.
    ("continue#4721", "a.js", "foo(", "a, b)\n", ")\n", "a, b)\n"),
    ("continue#4721", "a.js", "foo(", "a, b)", ") + 1\n", "a, b) + 1\n"),
    ("continue#4721", "a.js", "function f() {\n  ", "return 1;\n}", "\n}\n", "return 1;\n}\n"),
    ("continue#4721", "a.js", "x.map((y) => {\n  ", "g(y);\n});\n", "\n});\nh();\n",
     "g(y);\n});\nh();\n"),
    ("continue#10751", "a.ts", "const a = [1, ", "2, 3];", "];\n", "2, 3];\n"),
    ("continue#10751", "a.ts", "if (x) {\n  ", "y();\n}\n\nz();\n", "\n}\nw();\n",
     "y();\n}\nw();\n"),
    # continue#2130: the editor closes brackets, the model does so again.
    ("continue#2130", "A.java", "System.out.println(", '"hi");', ");\n", '"hi");\n'),
    ("continue#2130", "A.java", 'System.out.println("', 'hi");', '");\n', 'hi");\n'),
    ("continue#2130", "A.java", "List<String> a = b(c(", "d));", "));\n", "d));\n"),
    ("continue#2130", "a.kt", "f(listOf(", "1, 2))", "))\n", "1, 2))\n"),
    # minuet-ai.nvim#100: repeats that are meant.
    ("minuet#100", "a.js", "f(() => {\n  g(() => {\n    ", "h();\n  });\n", "});\n",
     "h();\n  });\n});\n"),
    ("minuet#100", "a.js", "a(b(", "c)", ");\n", "c));\n"),
    ("minuet#100", "a.py", "x = [[1], [2", "], [3]", "]\n", "], [3]]\n"),
    ("minuet#100", "a.py", "x = ((1 + 2", ") * (3 + 4)", ")\n", ") * (3 + 4))\n"),
    ("minuet#100", "a.c", "if (a) {\n    if (b) {\n        ", "c();\n    }", "\n}\n",
     "c();\n    }\n}\n"),
    ("minuet#100", "a.md", "see [a](", "b_(c))", " and d\n", "b_(c)) and d\n"),
    # lsp-ai: `)` at the answer's end and the suffix's start, and both are needed.
    ("lsp-ai", "a.py", "f(g(", "h(x)", ")\n", "h(x))\n"),
    ("lsp-ai", "a.py", "f(", "g()", ")\n", "g())\n"),
    ("lsp-ai", "a.py", "x = f(a[", "b[0]", "])\n", "b[0]])\n"),
    ("lsp-ai", "a.rs", "    a(", "|x| { b(x) }", ")\n", "|x| { b(x) })\n"),
    # twinny: closers in strings are none, and what the suffix begins with may be meant.
    ("twinny", "a.py", "print(", "':)', x", ")\n", "':)', x)\n"),
    ("twinny", "a.py", "print(", "f('('), ')'", ") + 1\n", "f('('), ')') + 1\n"),
    ("twinny", "a.js", "x = [", '"]", "["', "];\n", '"]", "["];\n'),
    ("twinny", "a.js", "x = {", "a: '}'", "};\n", "a: '}'};\n"),
    # llm-ls: nothing is trimmed.
    ("llm-ls", "a.rs", "let x = vec![", "1, 2];", "];\n", "1, 2];\n"),
    ("llm-ls", "a.go", "if err != nil {\n\t", "return err\n}\n", "\n}\nreturn nil\n",
     "return err\n}\nreturn nil\n"),
    ("llm-ls", "a.go", 'fmt.Println("', 'hi", x)\n', '", y)\n', 'hi", y)\n'),
]  # fmt: skip


@pytest.mark.parametrize(("who", "path", "before", "says", "behind", "expected"), REPORTS)
@pytest.mark.parametrize("hides_rest", [False, True], ids=["rest shown", "rest hidden"])
def test_the_file_has_the_closers_that_it_needs(
    who: str, path: str, before: str, says: str, behind: str, expected: str, hides_rest: bool
) -> None:
    rest = line_rest(before, behind) if hides_rest else ""
    if len(rest) < len(still_open(before)):
        rest = ""  # one that is not shown the rest would close all
    around = Surroundings(before, behind.removeprefix(rest), rest=rest, path=path)
    for parts in ([says], list(says)):
        shaper = Shaper(around, before)
        text = "".join(map(shaper.feed, parts)) + shaper.flush()
        edit = shaper.edit
        n_deleted, text = (edit.delete_after, edit.text) if edit else (0, text)
        assert (text + behind[n_deleted:]).replace("\n\n", "\n") == expected
