"""The prompt of each family and layout, to the id. A changed id here changes what a model reads.

`family_ids.json` has for each a request, the prompt as one reads it, and its ids on a vocabulary
of the bytes 0 to 255 and then the family's control tokens. The layout "move" is psm with its last
token moved, "files" the family's own with two other files. The ids on real vocabularies stand in
this file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.toy_tokenizer import ToyTokenizer
from support.vocabularies import pulled
from suture.healing import Vocabulary
from suture.server.engine.tokenizer import LlamaTokenizer
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.families import FAMILIES, detect_family, missing_sentinels
from suture.server.prompt.plan import plan_prompt
from suture.server.request import CompletionRequest, ExtraText

CASES: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("family_ids.json").read_text(encoding="utf-8")
)
WITHOUT_SENTINELS = (
    "aquila baichuan command-r deepseek-llm falcon gemma-4 gpt-2 gpt-neox llama-bpe llama-spm mpt"
    " phi-3 qwen2 qwen35"
).split()
BUDGET = PromptBudget(n_ctx=4096, prefill_tokens_per_s=1000)


def planned(case: Mapping[str, Any]) -> dict[str, Any]:
    toy = ToyTokenizer(controls=case["controls"], bos=case["bos"], named_bos=None)
    family = detect_family(toy.vocabulary, case["model"], case["architecture"])
    assert family is not None and family.name == case["family"]
    assert family.ambiguous == ()
    fields = dict(case["request"], infill=True)
    fields["extra"] = tuple(ExtraText(**chunk) for chunk in fields.get("extra", ()))
    plan = plan_prompt(CompletionRequest(**fields), toy.vocabulary, family, toy.encode, BUDGET)
    ids = list(plan.kept_ids)
    return {"prompt": toy.show(ids), "ids": ids, "pending": plan.pending.decode()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['family']} {case['layout']}")
def test_ids_of_each_family_and_layout(case: dict[str, Any]) -> None:
    assert planned(case) == {key: case[key] for key in ("prompt", "ids", "pending")}


def test_every_family_has_its_layouts_in_the_golden_file() -> None:
    layouts = {"psm": ["psm", "move", "spm", "files"], "spm": ["spm", "files"]}
    expected = [(row.name, layout) for row in FAMILIES for layout in layouts[row.order]]
    assert [(case["family"], case["layout"]) for case in CASES] == expected


@pytest.mark.model
@pytest.mark.parametrize(
    ("name", "family", "ids"),
    [
        ("deepseek-coder", "deepseek-coder", [32013, 32016, 64, 28, 32015, 26, 32017]),
        ("refact", "refact-1.6b", [3, 45, 1, 83, 47, 2]),
        ("starcoder", "starcoder2", [1, 102, 66, 3, 64, 2]),
    ],
)
def test_ids_on_real_vocabularies(
    name: str, family: str, ids: list[int], model_store: Path
) -> None:
    path = pulled([f"vocab-{name}"], model_store)[f"vocab-{name}"]
    vocabulary, tokenizer = Vocabulary.from_gguf(path), LlamaTokenizer(path)
    found = detect_family(vocabulary, "model")
    assert found is not None and (found.name, found.ambiguous) == (family, ())
    request = CompletionRequest("a=", ";", infill=True)
    plan = plan_prompt(request, vocabulary, found, tokenizer.encode, BUDGET)
    tokenizer.close()
    assert list(plan.kept_ids) == ids


@pytest.mark.model
def test_refacts_real_vocabulary_alone_is_ambiguous(model_store: Path) -> None:
    path = pulled(["vocab-refact"], model_store)["vocab-refact"]
    found = detect_family(Vocabulary.from_gguf(path), "model", "", "")
    assert found is not None
    assert (found.name, found.order) == ("starcoder", "psm")
    # Its vocabulary is StarCoder's own, with the tokens that Mellum has too.
    assert found.ambiguous == ("starcoder", "refact-1.6b", "codeqwen1.5", "granite-code", "mellum")


@pytest.mark.model
def test_real_vocabularies_without_sentinels_have_no_family(model_store: Path) -> None:
    names = [f"vocab-{name}" for name in WITHOUT_SENTINELS]
    for path in pulled(names, model_store).values():
        vocabulary = Vocabulary.from_gguf(path)
        assert detect_family(vocabulary, path.stem, "llama") is None, path.name
        assert missing_sentinels(vocabulary) == ("prefix", "suffix", "middle"), path.name
