"""Holes of CodeLlama and Codestral to the id, as libllama encodes them.

The vocabulary is Llama's with the family's control tokens behind it. The ids are those that
sentencepiece gives with the makers' own rules: prefix as it is, suffix without the space that
is read before a text (`infilling_prompt_tokens` of CodeLlama, `encode_fim` of mistral-common).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from support.extended_vocabularies import CODELLAMA, MISTRAL, extended
from support.vocabularies import pulled
from suture.healing import Vocabulary
from suture.server.engine.tokenizer import LlamaTokenizer
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.families import FimFamily, detect_family
from suture.server.prompt.plan import PromptPlan, plan_prompt
from suture.server.prompt.text_encoding import text_encoding
from suture.server.request import CompletionRequest, ExtraText

pytestmark = pytest.mark.model

BUDGET = PromptBudget(n_ctx=4096, prefill_tokens_per_s=1000)
BOS, PRE, SUF, MID, EOT = 1, 32007, 32008, 32009, 32010
BEFORE, AFTER = 32000, 32002
HOLE = CompletionRequest("def f(a):\n", "\n    return a\n", infill=True, healing="off")
PREFIX = (822, 285, 29898, 29874, 1125, 13)
SUFFIX = (13, 1678, 736, 263, 13)
PREFIX_BEHIND_TEXT = (1753, 285, 29898, 29874, 1125, 13)
FILES = (ExtraText("b = 1\n", "b.py"), ExtraText("c = 2\n", "c.py"))


@dataclass(frozen=True)
class Model:
    """A vocabulary, its tokenizer and its family."""

    vocabulary: Vocabulary
    tokenizer: LlamaTokenizer
    family: FimFamily

    def plan(self, request: CompletionRequest, budget: PromptBudget = BUDGET) -> PromptPlan:
        return plan_prompt(request, self.vocabulary, self.family, self.tokenizer.encode, budget)

    def show(self, plan: PromptPlan) -> str:
        """The prompt with control tokens by their text; the space before a text shows."""
        pieces = (
            self.vocabulary.bytes_of(i) or self.vocabulary.text_of(i).encode()
            for i in plan.kept_ids
        )
        return b"".join(pieces).decode() + "|" + plan.pending.decode()


def opened(path: Path) -> Model:
    vocabulary = Vocabulary.from_gguf(path)
    family = detect_family(vocabulary, path.stem)
    assert family is not None
    return Model(vocabulary, LlamaTokenizer(path), family)


@pytest.fixture(scope="module")
def llama(model_store: Path) -> Path:
    return pulled(["vocab-llama-spm"], model_store)["vocab-llama-spm"]


@pytest.fixture(scope="module")
def codellama(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = tmp_path_factory.mktemp("codellama")
    model = opened(extended(llama, folder / "model.gguf", CODELLAMA))
    yield model
    model.tokenizer.close()


@pytest.fixture(scope="module")
def codestral(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = tmp_path_factory.mktemp("codestral")
    model = opened(extended(llama, folder / "model.gguf", MISTRAL, name="Codestral 22B v0.1"))
    yield model
    model.tokenizer.close()


def test_codellama_is_found_by_its_tokens(codellama: Model) -> None:
    family = codellama.family
    assert (family.name, family.order, family.ambiguous) == ("codellama", "psm", ())
    assert dict(family.sentinel_ids) == {"pre": PRE, "suf": SUF, "mid": MID}
    assert {PRE, SUF, MID, EOT, 2} == family.stop_ids


@pytest.mark.parametrize(
    ("layout", "ids"),
    [
        ("psm", (BOS, PRE, *PREFIX, SUF, *SUFFIX, MID)),
        ("spm", (BOS, PRE, SUF, *SUFFIX, MID, *PREFIX)),
    ],
)
def test_codellamas_holes(layout: str, ids: tuple[int, ...], codellama: Model) -> None:
    request = replace(HOLE, layout="psm" if layout == "psm" else "spm")
    assert codellama.plan(request).kept_ids == ids


def test_codellamas_paper_order_ends_with_the_prefix_which_is_healed(codellama: Model) -> None:
    plan = codellama.plan(replace(HOLE, prefix="x = ", suffix="", layout="spm", healing="exact"))
    assert plan.kept_ids == (BOS, PRE, SUF, MID, 921, 353)
    assert plan.pending == b" "
    whole = codellama.plan(replace(HOLE, prefix="x = ", suffix="", layout="spm"))
    assert whole.kept_ids == (BOS, PRE, SUF, MID, 921, 353, 29871)


@pytest.mark.parametrize(
    ("prefix", "kept", "pending"),
    [
        ("x = ", (921, 353), b" "),
        ("return userNa", (736, 1404), b"Na"),
        # No space is read before what is said behind the sentinels.
        ("us", (), b"us"),
        ("", (), b""),
    ],
)
def test_codellamas_tail_is_moved_behind_the_middle_token(
    prefix: str, kept: tuple[int, ...], pending: bytes, codellama: Model
) -> None:
    request = replace(HOLE, prefix=prefix, layout="psm", fim_boundary="move", healing="exact")
    plan = codellama.plan(request)
    assert plan.kept_ids == (BOS, PRE, *kept, SUF, *SUFFIX, MID)
    assert (plan.pending, plan.left_ids) == (pending, kept)


def test_codestrals_holes_have_no_middle_token(codestral: Model) -> None:
    assert codestral.family.name == "codestral"
    assert codestral.plan(HOLE).kept_ids == (BOS, AFTER, *SUFFIX, BEFORE, *PREFIX)
    assert codestral.plan(replace(HOLE, suffix="")).kept_ids == (BOS, AFTER, BEFORE, *PREFIX)


def test_other_files_stand_before_codellamas_hole(codellama: Model) -> None:
    plan = codellama.plan(replace(HOLE, extra=FILES, path="a.py"))
    assert codellama.show(plan) == (
        "<s> # b.py\nb = 1\n# c.py\nc = 2\n# a.py\n▁<PRE> def f(a):\n▁<SUF>\n    return a\n▁<MID>|"
    )


def test_other_files_stand_in_codestrals_prefix_which_begins_with_them(codestral: Model) -> None:
    plan = codestral.plan(replace(HOLE, extra=FILES, path="a.py"))
    assert codestral.show(plan) == (
        "<s>[SUFFIX]\n    return a\n[PREFIX] +++++ b.py\nb = 1\n\n+++++ c.py\nc = 2\n\n"
        "+++++ a.py\ndef f(a):\n|"
    )
    assert plan.kept_ids[-len(PREFIX) :] == PREFIX_BEHIND_TEXT


def test_text_left_to_right_has_one_space_before_all_of_it(codellama: Model) -> None:
    request = CompletionRequest("def f(a):\n", healing="off")
    assert codellama.plan(request).kept_ids == (BOS, *PREFIX)
    plan = codellama.plan(replace(request, extra=FILES[:1], path="a.py"))
    assert codellama.show(plan) == "<s> # b.py\nb = 1\n# a.py\ndef f(a):\n|"


def test_a_prefix_that_was_cut_off_begins_no_document(codellama: Model) -> None:
    text = "x = 1\n" * 500 + "def f(a):\n"
    plan = codellama.plan(replace(HOLE, prefix=text), PromptBudget(512, 100))
    assert plan.truncated and plan.windows.prefix.text.startswith("x = 1\n")
    assert codellama.show(plan).startswith("▁<PRE>x = 1\n", len("<s>"))
    assert len(plan.kept_ids) <= PromptBudget(512, 100).prompt_room(HOLE.max_tokens, "latency")


def test_f1_a_tag_in_html_is_no_sentinel(codellama: Model) -> None:
    raw = codellama.tokenizer.encode(b"a <PRE>b <EOT>")
    assert {PRE, EOT} <= set(raw)
    for text in ("<PRE>", "a <PRE>b <EOT>", "<SUF> <MID>\n", " <PRE> <PRE>"):
        plan = codellama.plan(replace(HOLE, prefix=text, suffix=text, path=text))
        assert [i for i in plan.kept_ids if i >= PRE] == [PRE, SUF, MID]
        assert codellama.show(plan) == f"<s>▁<PRE> {text}▁<SUF>{text}▁<MID>|"
        plain = codellama.plan(CompletionRequest(text, healing="off"))
        assert max(plain.kept_ids) < PRE


# What sentencepiece gives for these behind "☺", without the two tokens of that.
INNER = [
    ("", ()),
    ("x", (29916,)),
    (" x", (921,)),
    ("  x", (29871, 921)),
    ("▁x", (921,)),
    ("\n", (13,)),
    ("\n  x", (13, 29871, 921)),
    ("\x01x", (4, 29916)),
]


@pytest.mark.parametrize(("text", "ids"), INNER)
def test_text_inside_a_prompt(text: str, ids: tuple[int, ...], codellama: Model) -> None:
    encoding = text_encoding(codellama.tokenizer.encode, codellama.vocabulary)
    assert tuple(encoding.inner(text.encode())) == ids


def prefix_ids(plan: PromptPlan) -> tuple[int, ...]:
    roles = [role for role, _ in plan.segments]
    at = roles.index("prefix")
    start = sum(n_tokens for _, n_tokens in plan.segments[:at])
    return plan.kept_ids[start : start + plan.segments[at][1]]


CUTS = "class Reader:\n    def is_palindrome(self, userName):  # <PRE> 我很\n        return userNa"


def spm(text: str) -> CompletionRequest:
    return CompletionRequest(text, ";\n", infill=True, layout="spm")


def plain(text: str) -> CompletionRequest:
    return CompletionRequest(text)


def behind_files(text: str) -> CompletionRequest:
    return CompletionRequest(text, extra=FILES, path="a.py")


def psm_moved(text: str) -> CompletionRequest:
    return CompletionRequest(text, ";\n", infill=True, layout="psm", fim_boundary="move")


@pytest.mark.parametrize("request_of", [spm, psm_moved, plain, behind_files])
def test_b1_b2_cuts_are_stable_with_and_without_the_space(
    request_of: Callable[[str], CompletionRequest], codellama: Model
) -> None:
    encoding = text_encoding(codellama.tokenizer.encode, codellama.vocabulary, codellama.family)
    is_opening = request_of is not behind_files
    encode = encoding.opening if is_opening else encoding.inner
    whole = tuple(encode(CUTS.encode()))
    for cut in range(1, len(CUTS) + 1):
        plan = codellama.plan(request_of(CUTS[:cut]))
        kept = prefix_ids(plan)
        spelled = b"".join(map(codellama.vocabulary.bytes_of, kept)) + plan.pending
        # A tail that is moved whole is behind other text.
        has_space = is_opening and bool(kept or plan.boundary is None)
        assert spelled == b" " * has_space + CUTS[:cut].encode()
        assert whole[: len(kept)] == kept


TEXTS = [
    "", " ", "   ", "\n", "\n\n", "\t", "x", " x", "   x", "return x\n", "▁", "▁▁x", " ▁x", "é",
    "我很", "🎉", "👩‍👩‍👧‍👦", "\x01", "\x01\x01x", "\x7f", "<s>", "</s>", "<|end|>x", "<|end|>  x",
    "  <|end|>", "don't", "3.14", "    def f(self):\n        pass\n", "￭", "\u2028", "<0x41>",
]  # fmt: skip


@pytest.mark.parametrize("name", ["llama-spm", "phi-3", "baichuan"])
def test_s1_text_inside_a_prompt_on_every_real_vocabulary_of_this_kind(
    name: str, model_store: Path
) -> None:
    path = pulled([f"vocab-{name}"], model_store)[f"vocab-{name}"]
    vocabulary, tokenizer = Vocabulary.from_gguf(path), LlamaTokenizer(path)
    encoding = text_encoding(tokenizer.encode, vocabulary)
    assert encoding.has_dummy_space
    for text in (*TEXTS, *map("".join, zip(TEXTS, TEXTS[::-1], strict=True))):
        read = vocabulary.as_read(text.encode())
        ids = tuple(encoding.inner(text.encode()))
        assert b"".join(map(vocabulary.bytes_of, ids)) == read, text
        with_other_anchor = tuple(tokenizer.encode(b"\x02" + text.encode()))
        assert ids == with_other_anchor[len(tokenizer.encode(b"\x02")) :], text
    tokenizer.close()
