from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.toy_tokenizer import ToyTokenizer
from suture.server.prompt.anchors import Anchors
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.extra import MAX_CHUNKS
from suture.server.prompt.families import detect_family
from suture.server.prompt.plan import PromptPlan, plan_prompt
from suture.server.request import CompletionRequest, ExtraText, Layout

FAST = PromptBudget(n_ctx=4096, prefill_tokens_per_s=2000)
SLOW = PromptBudget(n_ctx=4096, prefill_tokens_per_s=136)
HOLE = CompletionRequest("a = ", "\n", infill=True, layout="psm", path="src/a.py")
PLAIN = CompletionRequest("a = ", path="src/a.py", healing="off")


def plan(
    request: CompletionRequest,
    toy: ToyTokenizer,
    budget: PromptBudget = FAST,
    anchors: Anchors | None = None,
) -> PromptPlan:
    family = detect_family(toy.vocabulary, "")
    return plan_prompt(request, toy.vocabulary, family, toy.encode, budget, anchors)


def shown(planned: PromptPlan, toy: ToyTokenizer) -> str:
    return toy.show(planned.kept_ids)


def test_a_family_trained_on_repositories_gets_its_layout_with_real_paths() -> None:
    toy = ToyTokenizer()
    extra = (ExtraText("b = 1\n", "src/b.py"), ExtraText("c = 2", "src/c.py"))
    planned = plan(replace(HOLE, extra=extra), toy)
    assert shown(planned, toy) == (
        "<|repo_name|>repository\n<|file_sep|>src/b.py\nb = 1\n<|file_sep|>src/c.py\nc = 2\n"
        "<|file_sep|>src/a.py\n<|fim_prefix|>a = <|fim_suffix|>\n<|fim_middle|>"
    )
    assert [role for role, _ in planned.segments] == [
        "rep", "repository", "sep", "extra", "sep", "extra", "sep", "path",
        "pre", "prefix", "suf", "suffix", "mid",
    ]  # fmt: skip
    assert all(planned.kept_ids[at] >= 256 for at in planned.barriers)
    assert len(planned.barriers) == 7
    assert not planned.truncated


def test_a_path_alone_adds_nothing() -> None:
    toy = ToyTokenizer()
    assert shown(plan(HOLE, toy), toy) == "<|fim_prefix|>a = <|fim_suffix|>\n<|fim_middle|>"


def test_a_left_to_right_model_reads_files_behind_comment_lines() -> None:
    toy = ToyTokenizer(controls=("<|endoftext|>",))
    extra = (ExtraText("b = 1\n", "src/b.py"), ExtraText("c()", "src/c.ts"), ExtraText("d\n"))
    planned = plan(replace(PLAIN, extra=extra), toy)
    assert shown(planned, toy) == "# src/b.py\nb = 1\n// src/c.ts\nc()\nd\n# src/a.py\na = "
    assert planned.segments == (
        ("extra", 17),
        ("extra", 16),
        ("extra", 2),
        ("path", 11),
        ("prefix", 4),
    )
    assert planned.barriers == ()


def test_what_has_no_path_is_untitled() -> None:
    toy = ToyTokenizer()
    planned = plan(replace(HOLE, path=None, extra=(ExtraText("b\n"),)), toy)
    assert "<|file_sep|>untitled\nb\n<|file_sep|>untitled\n<|fim_prefix|>" in shown(planned, toy)


def test_extra_text_is_lf_only_and_a_path_is_one_line() -> None:
    toy = ToyTokenizer()
    planned = plan(replace(HOLE, extra=(ExtraText("b\r\nc\rd", "x\r\ny.py"),)), toy)
    assert "<|file_sep|>x y.py\nb\nc\nd\n<|file_sep|>" in shown(planned, toy)


def test_f1_sentinels_in_paths_and_extra_text_stay_text() -> None:
    toy = ToyTokenizer()
    planned = plan(replace(HOLE, extra=(ExtraText("<|fim_middle|>\n", "<|file_sep|>"),)), toy)
    assert planned.kept_ids.count(toy.id_of["<|fim_middle|>"]) == 1
    assert planned.kept_ids.count(toy.id_of["<|file_sep|>"]) == 2
    assert "<|file_sep|><|file_sep|>\n<|fim_middle|>\n" in shown(planned, toy)


def test_the_oldest_chunks_are_dropped_first() -> None:
    toy = ToyTokenizer()
    extra = tuple(ExtraText(f"{name} = 1\n" * 3, f"{name}.py") for name in "bcd")
    planned = plan(replace(HOLE, extra=extra), toy, SLOW)
    assert shown(planned, toy).startswith(
        "<|repo_name|>repository\n<|file_sep|>d.py\nd = 1\nd = 1\nd = 1\n<|file_sep|>src/a.py\n"
    )
    assert planned.truncated


def test_a_chunk_too_long_even_alone_loses_lines_from_its_end() -> None:
    toy = ToyTokenizer()
    chunk = ExtraText("".join(f"line {n}\n" for n in range(9)), "b.py")
    planned = plan(replace(HOLE, extra=(ExtraText("old\n", "o.py"), chunk)), toy, SLOW)
    lines = "line 0\nline 1\nline 2\nline 3\nline 4\n"
    assert shown(planned, toy).startswith(
        f"<|repo_name|>repository\n<|file_sep|>b.py\n{lines}<|file_sep|>src/a.py\n"
    )
    assert planned.truncated


@pytest.mark.parametrize("text", ["x" * 1000, "x" * 1_000_000, "x" * 50 + "\n"])
def test_a_line_that_does_not_fit_is_not_cut(text: str) -> None:
    toy = ToyTokenizer()
    planned = plan(replace(HOLE, extra=(ExtraText(text, "b.py"),)), toy, SLOW)
    assert shown(planned, toy) == "<|fim_prefix|>a = <|fim_suffix|>\n<|fim_middle|>"
    assert planned.truncated


def test_a_chunk_with_a_line_that_does_not_fit_keeps_the_lines_before_it() -> None:
    toy = ToyTokenizer()
    for n_chars in (60, 1000, 1_000_000):
        text = "b = 1\n" + "x" * n_chars + "\n"
        planned = plan(replace(HOLE, extra=(ExtraText(text, "b.py"),)), toy, SLOW)
        assert "<|file_sep|>b.py\nb = 1\n<|file_sep|>" in shown(planned, toy)
        assert planned.truncated


def test_no_extra_text_where_the_cursors_file_takes_all() -> None:
    toy = ToyTokenizer()
    request = replace(HOLE, prefix="a = 1\n" * 100, extra=(ExtraText("b\n", "b.py"),))
    planned = plan(request, toy, SLOW)
    assert planned.segments[0] == ("pre", 1)
    assert planned.truncated


def test_a_chunk_that_repeats_the_lines_at_the_cursor_is_left_out() -> None:
    toy = ToyTokenizer()
    body = "def total(rows):\n    result = 0\n"
    extra = (
        ExtraText("def other():\n    pass\n", "b.py"),
        ExtraText(body + "    return sum(rows)\n", "a.py"),
    )
    request = CompletionRequest(body, "    return result\n", infill=True, layout="psm", extra=extra)
    planned = plan(request, toy)
    assert "def other()" in shown(planned, toy)
    assert shown(planned, toy).count("def total") == 1
    assert planned.truncated


@pytest.mark.parametrize("text", ["", "a = ", "b\n"])
def test_no_more_chunks_are_looked_at_than_the_newest(text: str) -> None:
    toy = ToyTokenizer()
    chunks = (ExtraText("oldest\n"), *[ExtraText(text)] * MAX_CHUNKS)
    looked_at: list[int] = []

    class Counted(tuple[ExtraText, ...]):
        def __getitem__(self, at: Any) -> Any:
            looked_at.append(at)
            return super().__getitem__(at)

    planned = plan(replace(HOLE, extra=Counted(chunks * 1000)), toy)
    assert len(looked_at) <= MAX_CHUNKS
    assert "oldest" not in shown(planned, toy)
    assert planned.truncated


def test_blank_chunks_add_nothing_and_lose_nothing() -> None:
    toy = ToyTokenizer()
    planned = plan(replace(HOLE, extra=(ExtraText("", "b.py"), ExtraText(" \n\t\n"))), toy)
    assert planned.kept_ids == plan(HOLE, toy).kept_ids
    assert not planned.truncated


def test_q1_a_chunk_of_a_secret_file_or_with_a_secret_in_it_is_left_out() -> None:
    toy = ToyTokenizer()
    token = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hI6"
    extra = (
        ExtraText("b = 1\n", "b.py"),
        ExtraText("DEBUG=1\n", "/home/user/site/.env"),
        ExtraText(f"c = 2\nTOKEN = '{token}'\n", "c.py"),
        ExtraText("d = 3\n", "d.py"),
    )
    for request in (replace(HOLE, extra=extra), replace(PLAIN, extra=extra)):
        planned = plan(request, toy)
        assert "b = 1" in shown(planned, toy) and "d = 3" in shown(planned, toy)
        assert not any(text in shown(planned, toy) for text in ("DEBUG", "c = 2", token, ".env"))
        assert planned.n_excluded == 2 and not planned.truncated


def test_q1_secrets_alone_leave_no_frame() -> None:
    toy = ToyTokenizer()
    planned = plan(replace(HOLE, extra=(ExtraText("A=1\n", ".env"),)), toy)
    assert planned.kept_ids == plan(HOLE, toy).kept_ids
    assert planned.n_excluded == 1


@pytest.mark.parametrize(
    "text", ["\0\0\1", "a = 1\n\0", "\x7fELF\x02\x01\x03\ufffd\ufffd", "\ufffd" * 9]
)
def test_what_is_no_text_is_left_out(text: str) -> None:
    toy = ToyTokenizer()
    planned = plan(replace(HOLE, extra=(ExtraText("b = 1\n", "b.py"), ExtraText(text, "c"))), toy)
    assert "b = 1" in shown(planned, toy)
    assert planned.segments.count(("sep", 1)) == 2 and planned.truncated


def test_text_with_colours_and_page_breaks_is_text() -> None:
    toy = ToyTokenizer()
    text = "\x0cdef f():\n\treturn '\x1b[31mred\x1b[0m'\n"
    assert text in shown(plan(replace(HOLE, extra=(ExtraText(text, "b.py"),)), toy), toy)


FILE = [f"def function_{n}(rows):\n    return rows[{n}] + {n}\n" for n in range(60)]


def in_file(at: int, extra: ExtraText) -> CompletionRequest:
    """A cursor in the middle of `FILE`, whose own line is being written."""
    before, after = "".join(FILE[:at]), "\n" + "".join(FILE[at:])
    return CompletionRequest(before + "total = ", after, infill=True, path="a.py", extra=(extra,))


@pytest.mark.parametrize("at", [30, 2, 58])
def test_a_long_chunk_that_contains_the_cursors_place_is_left_out(at: int) -> None:
    toy = ToyTokenizer()
    whole = "".join(f"x_{n} = {n}\n" for n in range(400)) + "".join(FILE)
    # A window of a few lines: most of the chunk stands elsewhere.
    budget = PromptBudget(n_ctx=65536, prefill_tokens_per_s=24_000)
    request = in_file(at, ExtraText(whole, "b.py"))
    near = replace(request, prefix=request.prefix[-900:], suffix=request.suffix[:900])
    planned = plan(near, toy, budget)
    assert planned.segments[0][0] == "pre" and planned.truncated
    far = replace(near, prefix="def g():\n    y = ", suffix="\n    return y * 2\n")
    assert "x_399" in shown(plan(far, toy, budget), toy)


def test_other_places_of_the_same_file_are_shown() -> None:
    toy = ToyTokenizer()
    request = in_file(50, ExtraText("".join(FILE[:8]), "a.py"))
    near = replace(request, prefix=request.prefix[-300:], suffix=request.suffix[:300])
    assert "function_7" in shown(plan(near, toy), toy)


def test_what_all_files_have_does_not_make_a_chunk_a_copy() -> None:
    toy = ToyTokenizer()
    imports = "import os\nimport re\nimport sys\nfrom typing import Any\nfrom pathlib import Path\n"
    ends = "    }\n  }\n}\n    return x;\n  else {\n" * 4
    chunk = ExtraText(imports + "".join(FILE[:20]) + ends, "b.py")
    request = CompletionRequest(imports + "\n", "\n" + ends, infill=True, extra=(chunk,))
    assert "function_1(" in shown(plan(request, toy), toy)


LICENCE = "".join(f"{{}} term {n} of the licence\n" for n in range(14))


@pytest.mark.parametrize("mark", ["#", "//", " *", "--"])
def test_a_licence_in_all_files_makes_no_copies_of_them(mark: str) -> None:
    toy = ToyTokenizer()
    header = LICENCE.replace("{}", mark)
    request = CompletionRequest(header, "", infill=True, path="new.py")
    planned = plan(replace(request, extra=(ExtraText(header + "".join(FILE[:20]), "b.py"),)), toy)
    assert "function_1(" in shown(planned, toy)


def extra_ids(planned: PromptPlan) -> tuple[int, ...]:
    """All before the title of the cursor's file."""
    roles = [role for role, _ in planned.segments]
    end = roles.index("path") - 1 if "path" in roles else 0
    return planned.kept_ids[: sum(n for _, n in planned.segments[:end])]


def chunks(n: int) -> list[ExtraText]:
    return [ExtraText(f"item_{i} = {i}\n" * (2 + i % 5), f"lib/c{i}.py") for i in range(n)]


def test_q2_a_newer_chunk_stands_behind_the_others() -> None:
    toy = ToyTokenizer()
    before: tuple[int, ...] = ()
    for n in range(1, 9):
        planned = plan(replace(HOLE, extra=tuple(chunks(n))), toy)
        assert extra_ids(planned)[: len(before)] == before and not planned.truncated
        before = extra_ids(planned)


def test_q2_where_there_is_no_room_the_head_outlasts_several_new_chunks() -> None:
    toy = ToyTokenizer()
    n_heads, before = 0, tuple[int, ...]()
    for n in range(40, 140):
        planned = plan(replace(HOLE, extra=tuple(chunks(n)[-16:])), toy, FAST)
        ids = extra_ids(planned)
        assert planned.truncated and f"item_{n - 1} =" in shown(planned, toy)
        n_heads += ids[: len(before)] != before
        before = ids
    assert n_heads <= 40  # 85 where the oldest is dropped at every new one


def test_q2_the_chunks_stay_while_one_types() -> None:
    toy = ToyTokenizer()
    heads = set()
    typed = "".join(f"value_{n} = compute({n})\n" for n in range(60))
    for end in range(0, len(typed), 7):
        request = replace(HOLE, prefix="a = 1\n" + typed[:end], extra=tuple(chunks(16)))
        heads.add(extra_ids(plan(request, toy, FAST)))
    assert len(heads) <= 2


def test_an_absolute_path_is_shown_without_whose_it_is() -> None:
    toy = ToyTokenizer()
    extra = (ExtraText("b = 1\n", "/home/user/src/site/app/b.py"),)
    planned = plan(replace(HOLE, path="C:\\Users\\ada\\site\\a.py", extra=extra), toy)
    assert "<|file_sep|>site/app/b.py\nb = 1\n<|file_sep|>site/a.py\n" in shown(planned, toy)
    assert "ada" not in shown(planned, toy)


def test_the_language_says_how_the_cursors_file_is_commented() -> None:
    toy = ToyTokenizer(controls=("<|endoftext|>",))
    request = replace(PLAIN, path="tool", language="python", extra=(ExtraText("b\n", "b.ts"),))
    assert shown(plan(request, toy), toy) == "// b.ts\nb\n# tool\na = "


@pytest.mark.parametrize("layout", ["psm", "spm", "anchor"])
def test_text_that_was_read_ahead_of_time_has_more_room(layout: Layout) -> None:
    toy, anchors = ToyTokenizer(), Anchors()
    extra = tuple(ExtraText(f"{name} = 1\n" * 30, f"{name}.py") for name in "bcdef")
    typed = replace(HOLE, extra=extra, layout=layout, max_tokens=16)

    def n_shown(request: CompletionRequest) -> int:
        planned = plan(request, toy, SLOW, anchors)
        return sum(role == "extra" for role, _ in planned.segments)

    assert n_shown(typed) < 2
    assert n_shown(replace(typed, max_tokens=0)) == 5
    assert n_shown(typed) < 2  # it may have been cancelled
    anchors.warmed.add(extra, None)
    assert n_shown(typed) == n_shown(replace(typed, prefix="a = b")) == 5
    assert n_shown(replace(typed, extra=extra[1:])) < 2
    assert plan(typed, toy, FAST, anchors).kept_ids == plan(typed, toy, FAST).kept_ids


@given(
    n_ctx=st.integers(64, 5000),
    speed=st.floats(1, 10_000),
    max_tokens=st.integers(0, 5000),
    n_lines=st.integers(0, 400),
)
def test_p1_what_was_read_ahead_leaves_the_output_its_room(
    n_ctx: int, speed: float, max_tokens: int, n_lines: int
) -> None:
    toy, anchors, budget = ToyTokenizer(), Anchors(), PromptBudget(n_ctx, speed)
    extra = (ExtraText("b = 1\n" * 200, "b.py"), ExtraText("c = 1\n" * 50, "c.py"))
    anchors.warmed.add(extra, None)
    prefix = "a = 1\n" * n_lines + "d = "
    request = replace(HOLE, extra=extra, prefix=prefix, max_tokens=max_tokens)
    planned = plan(request, toy, budget, anchors)
    n_prompt = len(planned.kept_ids) + len(planned.pending)
    assert n_prompt <= budget.prompt_room(max_tokens, "context")
    assert n_prompt + planned.max_tokens <= n_ctx or planned.max_tokens == 1
