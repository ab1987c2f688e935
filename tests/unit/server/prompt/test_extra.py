from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.toy_tokenizer import ToyTokenizer
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.extra import MAX_CHUNKS
from suture.server.prompt.families import detect_family
from suture.server.prompt.plan import PromptPlan, plan_prompt
from suture.server.request import CompletionRequest, ExtraText

FAST = PromptBudget(n_ctx=4096, prefill_tokens_per_s=2000)
SLOW = PromptBudget(n_ctx=4096, prefill_tokens_per_s=136)
HOLE = CompletionRequest("a = ", "\n", infill=True, layout="psm", path="src/a.py")
PLAIN = CompletionRequest("a = ", path="src/a.py", healing="off")


def plan(request: CompletionRequest, toy: ToyTokenizer, budget: PromptBudget = FAST) -> PromptPlan:
    family = detect_family(toy.vocabulary, "")
    return plan_prompt(request, toy.vocabulary, family, toy.encode, budget)


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
