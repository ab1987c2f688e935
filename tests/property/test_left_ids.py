"""The tokens before the cut are enough to tell what the tokenizer would go on with."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import suture.server.prompt.layouts
from support.text import TRICKY_TEXTS
from support.vocabularies import pulled
from suture.healing import CanonicalPairs, Vocabulary
from suture.server.engine.tokenizer import LlamaTokenizer
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.families import FimFamily
from suture.server.prompt.plan import plan_prompt
from suture.server.request import CompletionRequest, Layout

pytestmark = pytest.mark.model

NAMES = ["qwen2", "starcoder", "deepseek-coder", "llama-bpe", "gpt-2", "llama-spm"]
BUDGET = PromptBudget(n_ctx=8192, prefill_tokens_per_s=1e6)
N_CUTS = 12
N_NEXT = 3
SOURCE = Path(suture.server.prompt.layouts.__file__).read_text(encoding="utf-8")
# Longer than what is looked at, each without a line end.
RUNS = ["x1" * 80, "1234567890" * 9, " " * 150 + "x", "a_b." * 60, "é" * 90, "=" * 200, "\t" * 70]
TEXTS = [SOURCE, "\n\n".join(RUNS), *RUNS, *TRICKY_TEXTS.values()]


def requests(text: str, rng: random.Random) -> Iterator[CompletionRequest]:
    """Cursors in `text`, with its tail last in the prompt and with it moved."""
    layouts: list[Layout] = ["psm", "spm", "anchor"]
    for _ in range(N_CUTS):
        cut = rng.randrange(len(text) + 1)
        for layout in layouts:
            yield CompletionRequest(
                text[:cut], text[cut:], infill=True, layout=layout, fim_boundary="move"
            )


@pytest.mark.parametrize("name", NAMES)
def test_what_the_tokenizer_goes_on_with_is_never_refused_behind_left_ids(
    name: str, model_store: Path
) -> None:
    path = pulled([f"vocab-{name}"], model_store)[f"vocab-{name}"]
    vocabulary, tokenizer = Vocabulary.from_gguf(path), LlamaTokenizer(path)
    # Any tokens do for sentinels that no text is encoded to.
    ids = sorted(vocabulary.control_ids)[:1] * 3
    family = FimFamily(
        "any", "psm", dict(zip(("pre", "suf", "mid"), ids, strict=True)), frozenset()
    )
    pairs = CanonicalPairs(vocabulary, tokenizer.encode)
    rng = random.Random(name)
    for text in TEXTS:
        for request in requests(text, rng):
            plan = plan_prompt(request, vocabulary, family, tokenizer.encode, BUDGET)
            kept = _text_ids(plan.kept_ids, plan.segments)
            read = plan.windows.prefix.text + plan.windows.suffix.text
            whole = tuple(tokenizer.encode(read.encode()))
            if not kept and vocabulary.model != "gpt2":
                continue  # what is moved whole is read without the space that `whole` has
            assert whole[: len(kept)] == kept
            left = list(plan.left_ids)
            for token_id in whole[len(kept) : len(kept) + N_NEXT]:
                assert pairs.extends(left, token_id), (text[-20:], left, token_id)
                left.append(token_id)
    tokenizer.close()


def _text_ids(ids: tuple[int, ...], segments: tuple[tuple[str, int], ...]) -> tuple[int, ...]:
    """The kept tokens of the text before the cursor."""
    at, found = 0, tuple[int, ...]()
    for role, n_tokens in segments:
        if role in ("prefix", "typed"):
            found += ids[at : at + n_tokens]
        at += n_tokens
    return found
