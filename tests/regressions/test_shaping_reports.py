"""What users reported of other servers and plugins about indentation, blank lines and echoes."""

from __future__ import annotations

import pytest

from suture.server.shaping.line_ends import LineEnd
from suture.server.shaping.shaper import Shaper
from suture.server.shaping.surroundings import Surroundings


def shaped(around: Surroundings, text: str) -> str:
    shaper = Shaper(around, around.prefix)
    return "".join([*map(shaper.feed, text), shaper.flush()])


@pytest.mark.parametrize("n_columns", [0, 2, 4, 8])
@pytest.mark.parametrize("path", ["x.py", None])
def test_on_a_line_of_blanks_the_first_line_is_indented_once(
    n_columns: int, path: str | None
) -> None:
    """llama.vscode#72, llama.vscode#39, llama.vim#51, llama.vim#54, tabby#3263, llm.nvim#49."""
    typed = " " * n_columns
    opener = "" if not n_columns else f"{' ' * (n_columns - 2)}if a:\n"
    around = Surroundings(f"{opener}{typed}", f"\n{typed}c()\n", path=path)
    # Models that are shown the blanks say them again, or do not.
    assert shaped(around, f"{typed}b()\n{typed}b(1)\n") == f"b()\n{typed}b(1)"
    assert shaped(around, f"b()\n{typed}b(1)\n") == f"b()\n{typed}b(1)"


def test_the_quotes_of_a_docstring_stay_on_their_own_line() -> None:
    """Quotes that an editor added, which the model was not shown, are behind the cursor still."""
    around = Surroundings('def f():\n    """', "\n    return 1\n", rest='"""', path="x.py")
    assert shaped(around, "One.\n\n    More.\n    ") == "One.\n\n    More.\n    "


def test_leading_tabs_that_are_wanted_stay() -> None:
    """llama.vscode's remover of blanks took all leading tabs."""
    around = Surroundings("func f() {\n\tif a {\n\t", "\n\t}\n}\n", path="x.go")
    assert shaped(around, "\tb()\n\t\tc()") == "\tb()\n\t\tc()"


def test_in_a_file_of_tabs_nothing_begins_with_spaces() -> None:
    """vscode-copilot-release#13140, copilot-cmp#95."""
    above = "func f() {\n\tif a {\n\t\tb()\n\t}\n"
    around = Surroundings(above + "\t", "\n}\n", path="x.go")
    assert shaped(around, "for c {\n        d()\n    }\n") == "for c {\n\t\td()\n\t}"
    around = Surroundings(above, "\n}\n", path="x.go")
    assert shaped(around, "    for c {\n        d()\n    }") == "\tfor c {\n\t\td()\n\t}"
    # And two spaces a level, as some models have it.
    assert shaped(around, "  for c {\n    d()\n  }") == "\tfor c {\n\t\td()\n\t}"


def test_in_a_file_of_spaces_nothing_begins_with_tabs() -> None:
    around = Surroundings("def f():\n  if a:\n    b()\n  ", "\n", path="x.py")
    assert shaped(around, "if c:\n\t\td()\n\treturn e\n") == "if c:\n    d()\n  return e"


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_no_blank_lines_are_added_at_the_end(line_end: LineEnd) -> None:
    """continue#3591, continue#3567, tabby#3261."""
    around = Surroundings("x = ", "\ny = 2\n", line_end=line_end, path="x.py")
    assert shaped(around, "1\n\n\n") == "1"
    assert shaped(around, "f(\n    1,\n\n)\n    \n") == line_end.join(["f(", "    1,", "", ")"])


def test_a_blank_line_ends_nothing() -> None:
    """Refact stopped at the first blank line."""
    around = Surroundings("def f():\n    ", "\n\n\ndef g():\n    pass\n", path="x.py")
    assert shaped(around, "a = 1\n\n    b = 2\n\n\n    return a") == (
        "a = 1\n\n    b = 2\n\n\n    return a"
    )


def test_closers_of_what_was_opened_above_are_written() -> None:
    """Twinny cut an answer at the first bracket that it had not opened itself; lsp-ai took any
    closer that the text below began with."""
    around = Surroundings("function f() {\n  return a(b(\n    ", "", path="x.js")
    assert shaped(around, "c\n  ))\n}\n") == "c\n  ))\n}"
    around = Surroundings("x = [f(", "]\n", path="x.py")
    assert shaped(around, "a)") == "a)"


def test_the_lines_above_the_cursor_are_not_said_again() -> None:
    """llama.vim#138: what is shown of the cursor's surroundings twice is repeated."""
    above = 'def area(width, height):\n    """The area of a rectangle."""\n'
    around = Surroundings(above, "", path="x.py")
    assert shaped(around, above + "    return width * height\n") == ""
    around = Surroundings(above + "    ", "", path="x.py")
    assert shaped(around, "return width * height\n\n" + above) == "return width * height"
    assert shaped(around, "return width * height\n\n\ndef volume(") == "return width * height"


def test_a_block_that_is_finished_is_not_followed_by_the_next_one() -> None:
    """tabby#3263, llama.vscode#72: where to stop by indentation."""
    above = "class A:\n    def f(self):\n        "
    around = Surroundings(above, "\n\n    def g(self):\n        pass\n", path="x.py")
    text = "return 1\n\n    def h(self):\n        return 2\n\nclass B:\n    pass"
    assert shaped(around, text) == "return 1\n\n    def h(self):\n        return 2"


def test_a_model_in_a_loop_is_stopped() -> None:
    around = Surroundings("x = ", "\n\ny = 1\n", path="x.py")
    assert shaped(around, "1\n" + "print(x)\n" * 50) == "1\n" + "\n".join(["print(x)"] * 6)
    assert len(shaped(around, "[" + "0, " * 500)) <= 258
    block = "if a:\n    b()\nelse:\n    c()\n"
    assert shaped(around, "1\n" + block * 9) == "1\n" + (block * 3).rstrip()
