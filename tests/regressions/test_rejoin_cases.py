"""Answers that other servers let repeat what stands after the cursor, or cut off wrongly.

continue#4721, continue#10751, continue#2130 (closers twice), llama.vscode#13 (the rest of a word
twice), minuet-ai.nvim#100 (what must not be trimmed), continue#2494 and continue#3994 (slashes and
fences taken for ends).
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from support.answering import answered
from suture.server.request import CompletionRequest, Layout
from suture.server.shaping.rejoin import Rejoin

# prefix, what the model says, suffix, what is inserted
REPEATED = [
    ("foo(", "a, b)\n", ")\n", "a, b"),
    ("x = [", "1, 2]", "]", "1, 2"),
    ('print("', 'hi")', '")', "hi"),
    ("a = [[1],[2", "]]", "]", "]"),
    ("if (a) {\n    ", "b();\n}\n", "\n}\n", "b();"),
    ("if (a) {\n    ", "b();\n}\n\nc();\n", "\n}\n\nc();\nd();\n", "b();"),
    ("return a", "b;", ";\n", "b"),
    ("Not ", "qualified", "qualified user\n", ""),
    ("Not ", "qual\nNot", "qual\n", ""),
    ("Not qual", "ified user", "ified user\n", ""),
    ("Not qual", "ified users.\n", "ified\n", ""),
    ("get", "UserName(", "Name()\n", "User"),
    ("a", "dd", "d\n", "d"),
    ("    retu", "rn x\n", "rn\n", ""),
    ("f(", "c, a", "a, b)\n", "c, "),
    ("x = ", "1\ny = their_last_value\nz", "their_last_value\n", "1\ny = "),
    ("Not ", "unqualified for this\n", "qualified for this\n", "un"),
    ("x = ", "myvalue", "value\n", "my"),
    ("value = ", "myvalue\nx", "value\n", "my"),
    ('print("Not ', 'Equal")\n\nif a != b', 'qual")\n', "E"),  # llama.vscode#13
    ("# Equal: a == b\n# Not ", "Equal: a != b\n# Greater: a", "qual: a != b\nx = 1\n", "E"),
    ("w * ", "h\n\nprint(area)\nmore", "\n\n\nprint(area)\n", "h"),
    ("w * ", "h\n\n\n\nprint(area)\nmore", "\nprint(area)\n", "h"),
    ("x\n\n", "def f():\n    pass\n", "\ndef f():\n    return 1\n", ""),
    ("if a:\n    ", "b()\nelse:\n    d()", "\nelse:\n    c()\n", "b()"),
    ("if a:\n    ", "b()\n    return x\n", "return x\n", "b()\n    "),
    ("f(", "a, 'née')\nreturn été\nx", ", 'née')\nreturn été\n", "a"),
    ("f(\n    ", "a).items(object)\n", ").items(object)\n", "a"),
    ("for _ in x:\n\t", "f()\n\n\ndef g():\n\tpass", "\n\ndef g():\n\treturn", "f()"),
    ("", "@a\ndef f(): x\n@a\ndef g(): y\nz", "\n@a\ndef g(): y\n", "@a\ndef f(): x"),
    ("", "try:\n  f()\ntry:\n  g()\nx", "\ntry:\n  g()\n", "try:\n  f()"),
    ("f()\n", "\ntry:", "\n\ntry:\n  g()\n", ""),
    ("#if A\n", "#if B\nx\n#endif\n#endif\n#if", "\n#endif\n", "#if B\nx\n#endif"),
]
# prefix, what the model says, suffix
KEPT = [
    ("return a", "", ";\n"),
    ('s = "http:', '//x/y"\n', "\n"),
    ("```py\n", "x = 1\n```\n", "\nmore"),
    ("foo(", "bar(x)\n", ")\n"),
    ("foo(", "a)\nbar(b", ")\n"),
    ("x = foo(", "bar(a, b)\n", "a, b)\n"),
    ("if (a) {\n", "if (b) {\n}\nc();", "}\n"),
    ("if (a) {\nif (b) {\n", "c();\n}", "\n}\n"),
    ("fn a() {\n", "b();\n}\n\nfn c() {\nd();", "\n}\n"),
    ("if a:\n    ", "if b:\n        return x\n    c()", "\n    return x\n"),
    ("if a:\n    ", "if b:\n        return x\n    c()", "return x\n"),
    ("if a:\n    ", "x = 1\n    y = 2", "\n    x = 3\n"),
    ("", "self.y = 2\n", "self.x = 1\n"),
    ("f(", "self.b, ", "self.a)\n"),
    ("f(", "a=1, ", "a, b)\n"),
    ("value = ", "myvalue + x", "value\n"),
    ("x = ", "1\ny = value\nz", "value\n"),
    ("ret", "ned = 1", "rn x\n"),
    ("x = a[", "0]\ny = b[", "0]\n"),
    ("    x.y(12)\n", "    x.y(11)\n", "\n    x.y(12, 3)\n"),
    ("def f():\n    ", "return", "\n    return 1\n"),
]


def hole(prefix: str, suffix: str, layout: Layout) -> CompletionRequest:
    return CompletionRequest(prefix, suffix, infill=True, layout=layout, max_tokens=100)


@pytest.mark.parametrize(("prefix", "says", "suffix", "inserted"), REPEATED)
@pytest.mark.parametrize("layout", ["psm", "spm"])
def test_what_stands_after_the_cursor_is_not_written_twice(
    prefix: str, says: str, suffix: str, inserted: str, layout: Layout
) -> None:
    text, result = answered(hole(prefix, suffix, layout), says)
    assert (text, result.finish) == (inserted, "suffix")
    assert result.reason == (None if inserted else "DUPLICATE_SUFFIX")


@pytest.mark.parametrize(("prefix", "says", "suffix"), KEPT)
@pytest.mark.parametrize("layout", ["psm", "spm"])
def test_what_only_looks_like_the_suffix_is_kept(
    prefix: str, says: str, suffix: str, layout: Layout
) -> None:
    text, result = answered(hole(prefix, suffix, layout), says)
    is_at_end = suffix.startswith("\n")
    assert (text, result.finish) == (says.rstrip() if is_at_end else says, "eos")


@pytest.mark.parametrize(("prefix", "says", "suffix", "inserted"), REPEATED)
def test_over_closers_that_the_prompt_leaves_out_the_file_is_the_same(
    prefix: str, says: str, suffix: str, inserted: str
) -> None:
    """But for blank lines that are all there is behind the answer."""
    text, result = answered(hole(prefix, suffix, "anchor"), says)
    edit = result.edit
    n_deleted, written = (edit.delete_after, edit.text) if edit else (0, text)
    applied = prefix + written + suffix[n_deleted:]
    assert applied.rstrip("\n") == (prefix + inserted + suffix).rstrip("\n")


HOLES = "HumanEval-RandomSpanInfillingLight.jsonl.gz"


def test_of_real_holes_none_is_cut_and_what_overruns_them_is() -> None:
    n_overrun = n_right = 0
    with gzip.open(Path(__file__).parents[2] / "benchmarks" / "data" / HOLES, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    for row in rows:
        prefix, text, suffix = row["prompt"], row["canonical_solution"], row["suffix"]
        rejoin = Rejoin(prefix, suffix)
        assert rejoin.feed(text) + rejoin.flush() == text and not rejoin.found
        if suffix.strip():
            n_overrun += 1
            rejoin = Rejoin(prefix, suffix)
            n_right += (rejoin.feed(text + suffix) + rejoin.flush()).rstrip() == text.rstrip()
    # In the others the hole begins at a line start and ends in the middle of one.
    assert (n_overrun, n_right) == (151, 149)
