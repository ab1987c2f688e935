"""Request to prompt ids, by layout. A changed id here changes what a model reads: review it.

`prompt_ids.json` has for each request the ids on the toy vocabulary (bytes 0 to 255, then
`WORDS`, then Qwen's control tokens) and on the one of qwen2.5-coder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.toy_tokenizer import ToyTokenizer
from suture.healing.boundary import Encode
from suture.healing.vocabulary import Vocabulary
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.families import detect_family
from suture.server.prompt.plan import plan_prompt
from suture.server.request import CompletionRequest, ExtraText

CASES: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("prompt_ids.json").read_text(encoding="utf-8")
)
WORDS = (" user", " userName", "Na")
BUDGET = PromptBudget(n_ctx=4096, prefill_tokens_per_s=1000)


def planned(case: dict[str, Any], vocabulary: Vocabulary, encode: Encode) -> dict[str, Any]:
    fields = dict(case["request"])
    fields["extra"] = tuple(ExtraText(**chunk) for chunk in fields.get("extra", ()))
    family = detect_family(vocabulary, "")
    plan = plan_prompt(CompletionRequest(**fields), vocabulary, family, encode, BUDGET)
    return {"ids": list(plan.kept_ids), "pending": plan.pending.decode()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_ids_on_the_toy_vocabulary(case: dict[str, Any]) -> None:
    toy = ToyTokenizer(WORDS)
    assert planned(case, toy.vocabulary, toy.encode) == case["toy"]


@pytest.mark.model
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_ids_on_qwens_vocabulary(
    case: dict[str, Any], qwen_vocabulary: tuple[Vocabulary, Encode]
) -> None:
    assert planned(case, *qwen_vocabulary) == case["qwen"]
