"""Random combinations of cut, grammar, stop, sampler and layout, each driven to its end.

    python -m support.healing_fuzz 100000 [first]

runs that many of them, those from number `first` on, and says what came of them.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from random import Random

import numpy as np

from support.toy import toy_encode, toy_generation, toy_vocabulary
from support.vocab import byte_level, sentencepiece_like
from suture.server.codec import DetokenizerName
from suture.server.decoding.drafts import DraftWidth
from suture.server.decoding.step_costs import StepCosts
from suture.server.engine.scripted import ScriptedEngine, random_model
from suture.server.errors import InvalidRequest
from suture.server.request import CompletionRequest, CompletionResult, SamplingParams

# What has sentinels, what merges as real tokenizers do, and what reads a space before a text.
_VOCABULARIES = [(toy_vocabulary(), toy_encode), byte_level(), sentencepiece_like()]
_PARTS = (
    "const", " user", "userName", "Na", "me", "ret", "return", "  ", "    ", " ", "\n", "\n\n",
    "def", " x", " =", "(", "()", "import", " nump", "é", "歪", "🙂", "<|im_end|>", "\r\n", "\t",
)  # fmt: skip
_TEXTS = ("me()", "Name = x", " user", "\n    return x", "é", "py as np", "()", "x", "", "user")


class AlwaysDrafts(DraftWidth):
    """Drafts all there is."""

    def best(self, n_matched: int, n_available: int) -> int:
        return n_available


def random_request(random: Random, is_fim: bool, n_vocab: int) -> CompletionRequest:
    prefix = "".join(random.choices(_PARTS, k=random.randrange(7)))
    word = random.choice(_PARTS)
    prefix += word[: random.randint(1, len(word))]
    infill = is_fim and random.random() < 0.4
    return CompletionRequest(
        prefix,
        suffix="".join(random.choices(_PARTS, k=random.randrange(4))) if infill else "",
        infill=infill,
        healing=random.choice(("exact", "exact", "exact", "recursive", "off")),
        give_back=random.choice((None, None, None, 1, 2, 5)),
        layout=random.choice(("auto", "psm", "spm", "anchor")) if infill else "auto",
        fim_boundary=random.choice(("auto", "keep", "move")) if infill else "auto",
        shape=random.choice(("auto", "line", "raw")),
        sampling=_random_sampling(random, n_vocab),
        grammar=_random_grammar(random, prefix),
        grammar_scope=random.choice(("output", "prefill")),
        max_tokens=random.choice((0, 1, 2, 8, 12)),
        min_tokens=random.choice((0, 0, 0, 1, 4)),
        stop=random.choice(((), (), ("me",), ("\n",), ("a", "()"), ("<|im_end|>",))),
        stop_token_ids=random.choice(((), (), (ord("\n"),), (ord("a"), ord(" ")))),
        include_stop=random.random() < 0.3,
        ignore_eos=random.random() < 0.2,
        skip_special_tokens=random.random() < 0.8,
        detokenize=random.random() < 0.9,
        return_tokens=True,
        stream_interval=random.choice((1, 3)),
    )


def _random_sampling(random: Random, n_vocab: int) -> SamplingParams:
    return SamplingParams(
        temperature=random.choice((0.0, 0.0, 0.7, 1.0, 2.0)),
        top_k=random.choice((0, 0, 1, 3, 40)),
        top_p=random.choice((1.0, 1.0, 0.9, 0.1)),
        min_p=random.choice((0.0, 0.0, 0.05, 1.0)),
        typical_p=random.choice((1.0, 1.0, 0.5)),
        top_n_sigma=random.choice((0.0, 0.0, 1.0)),
        xtc_probability=random.choice((0.0, 0.0, 1.0)),
        dynatemp_range=random.choice((0.0, 0.0, 0.5)),
        repeat_penalty=random.choice((1.0, 1.0, 1.3)),
        dry_multiplier=random.choice((0.0, 0.0, 1.0)),
        min_keep=random.choice((0, 0, 2)),
        logit_bias=_random_biases(random, n_vocab),
        seed=random.randrange(1000),
    )


def _random_biases(random: Random, n_vocab: int) -> tuple[tuple[int, float], ...]:
    how = random.randrange(12)
    if how == 0:
        return tuple((i, -np.inf) for i in range(n_vocab))
    if how < 4:
        ids = random.sample(range(n_vocab), random.choice((1, 50, 250)))
        return tuple((i, random.choice((-np.inf, -100.0, 100.0, 5.0))) for i in ids)
    return ()


def _random_grammar(random: Random, prefix: str) -> str | None:
    if random.random() < 0.6:
        return None
    texts = random.choices(_TEXTS, k=random.randrange(1, 4))
    if random.random() < 0.6:
        texts = [prefix + text for text in texts]
    return "root ::= " + " | ".join(json.dumps(text) for text in texts)


def run(number: int) -> str:
    """Drive one combination to its end and check what holds for all; what came of it."""
    random = Random(number)
    which = random.choice((0, 0, 1, 2))
    vocabulary, encode = _VOCABULARIES[which]
    request = random_request(random, which == 0, vocabulary.n_vocab)
    engine = ScriptedEngine(vocabulary, encode, random_model(vocabulary.n_vocab, number))
    detokenizer: DetokenizerName = random.choice(("bytes", "bytes", "window"))
    try:
        generation = toy_generation(request, engine, detokenizer)
    except InvalidRequest as error:
        assert "cannot start from nothing" in str(error) and which == 1
        return "refused"
    width = AlwaysDrafts(StepCosts()) if random.random() < 0.5 else None
    sequence = engine.open()
    said: list[int] = []
    text, result = "", None
    while result is None:
        try:
            tree = generation.tree(len(engine.tokens(sequence)), width)
        except InvalidRequest as error:
            assert request.grammar_scope == "prefill" and error.field == "grammar_scope"
            return "refused"
        [rows] = engine.evaluate([(sequence, tree)])
        chunk = generation.feed(rows)
        engine.commit(sequence, generation.kept)
        if chunk is not None:
            said += chunk.token_ids
            text, result = text + chunk.text, chunk.result
    committed = list(engine.tokens(sequence))
    whole = [*generation.prompt_ids, *said]
    assert committed == whole[: len(committed)] and len(whole) - len(committed) <= len(said)
    pieces = b"".join(map(vocabulary.bytes_of, said))
    _check_text(request, generation.plan.pending, said, pieces, text, result)
    assert result.healing.pending == generation.plan.pending
    _check_report(result)
    if request.grammar is not None and request.detokenize:
        _check_grammar(request, generation.plan.windows.prefix.text, text)
    return result.healing.level


def _check_text(
    request: CompletionRequest,
    pending: bytes,
    said: list[int],
    pieces: bytes,
    text: str,
    result: CompletionResult,
) -> None:
    """The text is what the tokens say behind the pending bytes, up to where it was ended."""
    is_begun = result.completion_tokens > 0 or len(pieces) >= len(pending)
    assert pieces.startswith(pending) if is_begun else pending.startswith(pieces)
    new = pieces[len(pending) :]
    if not request.detokenize:
        assert not text
        return
    if not request.skip_special_tokens or result.finish in ("stop", "suffix"):
        return
    if said and said[-1] in request.stop_token_ids and result.completion_tokens:
        return
    expected = _comparable(new.decode("utf-8", "replace"))
    assert expected.startswith(_comparable(text))


def _comparable(text: str) -> str:
    """Without what depends on the document's line ends, and on where half a character is told."""
    return text.replace("\r", "").replace("\n", "").replace("\ufffd", "")


def _check_report(result: CompletionResult) -> None:
    healing = result.healing
    assert 0.0 <= healing.tv_bound <= 1.0 and not np.isnan(healing.logprob)
    assert healing.logprob <= 1e-6
    if healing.level == "none":
        assert healing.tv_bound in (0.0, 1.0) and healing.logprob == 0.0
    assert result.completion_tokens >= 0


def _check_grammar(request: CompletionRequest, prefix: str, text: str) -> None:
    assert request.grammar is not None
    texts = [json.loads(part) for part in request.grammar.removeprefix("root ::= ").split(" | ")]
    before = prefix if request.grammar_scope == "prefill" else ""
    shown = _comparable(before + text)
    if request.include_stop:
        shown = shown.removesuffix("<|im_end|>")
    assert any(_comparable(whole).startswith(shown) for whole in texts)


def main() -> None:
    n_runs, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    outcomes: Counter[str] = Counter()
    for number in range(first, first + n_runs):
        try:
            outcomes[run(number)] += 1
        except Exception:
            print(f"number {number}")
            raise
        if (number + 1) % 10_000 == 0:
            print(f"up to number {number}: {dict(outcomes)}", flush=True)
    print(dict(outcomes))


if __name__ == "__main__":
    main()
