from __future__ import annotations

import time
from dataclasses import replace

import pytest

from suture.server.errors import InvalidRequest
from suture.server.prompt.families import FAMILIES, FamilyRow
from suture.server.request import ExtraText
from suture.server.routes.raw_prompts import (
    Hole,
    hole_of,
    read_hole,
    read_opened_hole,
    read_raw_hole,
)

QWEN = "qwen2.5-coder"
PRE, SUF, MID = "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"


@pytest.mark.parametrize(
    ("prompt", "hole"),
    [
        (f"{PRE}a\n{SUF}\nb{MID}", ("a\n", "\nb")),
        (f"{PRE}{SUF}b{MID}a", ("a", "b")),
        (f"{SUF}b{PRE}a{MID}", ("a", "b")),
        (f"{SUF}b{PRE}a", ("a", "b")),
        (f"{PRE}{SUF}{MID}", ("", "")),
        (f"{PRE}a{SUF}{MID}", ("a", "")),
        (f"\n\n{PRE}a{SUF}b{MID}", ("a", "b")),
        (f"<|endoftext|>{PRE}a{SUF}b{MID}", ("a", "b")),
    ],
)
def test_a_hole_is_read_back_from_every_order(prompt: str, hole: tuple[str, str]) -> None:
    assert read_raw_hole(prompt, QWEN) == read_hole(prompt, QWEN) == Hole(*hole)


@pytest.mark.parametrize("family", [None, "no such family", "starcoder", "codellama"])
def test_a_hole_in_the_form_of_another_family_is_one_too(family: str | None) -> None:
    assert read_raw_hole(f"{PRE}a{SUF}b{MID}", family) == Hole("a", "b")
    assert read_raw_hole("[SUFFIX]b[PREFIX]a", family) == Hole("a", "b")
    assert read_raw_hole("<s>[SUFFIX]b[PREFIX]a", family) == Hole("a", "b")
    assert read_raw_hole("</s><PRE>a<SUF>b<MID>", family) == Hole("a", "b")
    assert read_raw_hole("<PRE> a <SUF>b <MID>", family) == Hole("a", "b")


@pytest.mark.parametrize("family", [None, "no such family", "starcoder"])
@pytest.mark.parametrize(
    "prompt", ["", "a", f"{PRE}a", f"x = '{PRE}{SUF}{MID}'", "<filename>a.py</filename>\n<size>1"]
)
def test_what_has_none_of_the_models_sentinels_and_is_no_hole_is_text(
    family: str | None, prompt: str
) -> None:
    assert read_raw_hole(prompt, family) is None
    assert read_opened_hole(prompt, family) is None


@pytest.mark.parametrize(
    "prompt",
    [
        f"x{PRE}a{SUF}b{MID}",
        f"{PRE}a{SUF}b{MID}c",
        f"{PRE}a{SUF}b",
        f"{PRE}a{MID}b{SUF}",
        f"{PRE}a",
        MID,
        f"{PRE}a<|file_sep|>b.py\n{SUF}b{MID}",
        f"<|file_sep|>a.py\n<|repo_name|>r\n{PRE}a{SUF}b{MID}",
        "<|file_sep|>a.py\n" * 300 + f"{PRE}a{SUF}b{MID}",
        "<|repo_name|>",
        PRE * 300,
        f"{PRE}a{SUF}b{SUF}c{MID}",
    ],
)
def test_sentinels_in_no_known_order_are_refused_without_a_word_of_the_text(prompt: str) -> None:
    with pytest.raises(InvalidRequest, match="no order that is read") as raised:
        read_raw_hole(prompt, QWEN)
    assert raised.value.field == "prompt"
    assert read_hole(prompt, QWEN) is None
    if prompt.startswith("x"):
        assert read_opened_hole(prompt, QWEN) is None
    else:
        with pytest.raises(InvalidRequest, match="no order that is read"):
            read_opened_hole(prompt, QWEN)


@pytest.mark.parametrize("text", [f"{SUF}x", f"x{SUF}", PRE, MID, f"{SUF}{PRE}", "<|file_sep|>a"])
def test_sentinels_of_a_users_own_text_never_cut_it_elsewhere(text: str) -> None:
    for prompt in (f"{PRE}{text}{SUF}b{MID}", f"{PRE}a{SUF}{text}{MID}"):
        with pytest.raises(InvalidRequest, match="no order that is read"):
            read_opened_hole(prompt, QWEN)


def test_files_that_continue_puts_before_a_prefix_are_files() -> None:
    mark = "<|system_separator_istruction_repository_level|>"
    files = "<|repo_name|>r\n<|file_sep|>lib/b.py\nx = 1\n<|file_sep|>src/a.py"
    expected = Hole(f"p{SUF}{mark}", "s", (ExtraText("x = 1\n", "lib/b.py"),), "src/a.py")
    assert hole_of(f"{files}{mark}p{SUF}{mark}", "s") == expected
    for text in ("", "p", files, mark, f"x{mark}p", f"{PRE}a{mark}p", f"<|file_sep|>a\nb{mark}p"):
        assert hole_of(text, "s") == Hole(text, "s")


def test_codellamas_blanks_belong_to_its_sentinels() -> None:
    assert read_raw_hole("<PRE> def f(): <SUF>\n <MID>", "codellama") == Hole("def f():", "\n")
    assert read_raw_hole("<PRE>  x <SUF> y <MID>", "codellama") == Hole(" x", " y")


@pytest.mark.parametrize(
    "row",
    # One that has blanks of its own is above.
    [row for row in FAMILIES if not row.sentinels["pre"].startswith("▁")],
    ids=lambda row: row.name,
)
def test_every_family_is_read_in_its_own_order(row: FamilyRow) -> None:
    pre, suf, mid = row.sentinels["pre"], row.sentinels["suf"], row.sentinels.get("mid", "")
    prompt = f"{pre}p{suf}s{mid}" if row.order == "psm" else f"{suf}s{pre}p{mid}"
    assert read_raw_hole(prompt, row.name) == Hole("p", "s")


def test_files_before_the_hole_are_files() -> None:
    files = "<|repo_name|>r\n<|file_sep|>lib/b.py\nx = 1\n<|file_sep|>c.py\ny\n"
    hole = Hole("p", "s", (ExtraText("x = 1\n", "lib/b.py"), ExtraText("y\n", "c.py")))
    assert read_raw_hole(f"{files}{PRE}p{SUF}s{MID}", QWEN) == hole
    titled = f"{files}<|file_sep|>src/a.py\n{PRE}p{SUF}s{MID}"
    assert read_raw_hole(titled, QWEN) == replace(hole, path="src/a.py")
    alone = Hole("y\n", "", hole.extra[:1], "c.py")
    assert read_raw_hole(files, QWEN) == read_opened_hole(files, QWEN) == alone
    for family in (None, "codestral"):
        assert read_opened_hole(files, family) is None
    starcoder = "<file_sep>a.py\nz<file_sep>b.py\n<fim_prefix>p<fim_suffix>s<fim_middle>"
    assert read_hole(starcoder, QWEN) == Hole("p", "s", (ExtraText("z", "a.py"),), "b.py")


@pytest.mark.parametrize("prompt", ["x" * 2**24, PRE * 2**20, f"{PRE}{'x' * 2**24}", " " * 2**24])
def test_a_prompt_of_megabytes_is_read_at_once(prompt: str) -> None:
    began = time.process_time()
    assert read_hole(prompt, QWEN) is None
    assert time.process_time() - began < 20  # where it goes back and forth it takes an hour
