"""`suture doctor --bench`: what a token costs here, between text and tokens and in the model.

The *host's* work for a token of a stream is to make text of it, *c* seconds; the *decode step* is
one evaluation with a token for each stream. Both grow with the streams, and in some batch they
would meet: from there on the model would wait for the host.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from suture.healing import Detokenizer, TokenTransducer, WindowDetokenizer
from suture.server.commands import exits
from suture.server.commands.pull import require_llama_cpp, with_model_file
from suture.server.completion import LoadedModel
from suture.server.engine.protocol import Engine
from suture.server.engine.speed import measure_prefill
from suture.server.engine.tree import TokenTree
from suture.server.settings import Settings

BATCHES = (1, 2, 4, 8, 16)
MAX_ROUNDS = 10
# Of one figure; a slow machine measures fewer batches, too.
ENOUGH_S = 2.0
TOO_LONG_S = 1.5
# A text that is there wherever we are: code, with its comments.
_TEXT = Path(__file__)


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds: of making a token of text, text of a token, and of a step by its streams.

    `prefill` are prompt tokens a second, as `serve` measures them when it loads a model first.
    """

    tokenizer: str
    detokenizer: str
    encode: float
    detokenize: float
    prefill: float
    steps: Mapping[int, float]


def bench(settings: Settings) -> int:
    """Load the settings' model, measure and print; returns the exit status."""
    require_llama_cpp()
    # Only here: a doctor without --bench loads no engine.
    from suture.server.local import load_model

    settings = with_model_file(settings)
    path = Path(str(settings.model))
    print(f"loading {path.stem}", file=sys.stderr, flush=True)
    busy = _busy()  # before we make it so
    engine, model = load_model(path, path.stem, settings, lambda: True)
    try:
        costs = measure(model)
    finally:
        engine.close()
    print(f"{path.stem} on {engine.device}\n{table(costs)}{busy}")
    return exits.OK


def measure(model: LoadedModel) -> Costs:
    """What the host and the model take; on the engine's thread, under a minute."""
    text = _TEXT.read_bytes()
    ids = model.codec.encode(text)
    return Costs(
        tokenizer=str(model.codec.tokenizer),
        detokenizer=str(model.codec.detokenizer),
        encode=_best(lambda: model.codec.encode(text)) / len(ids),
        detokenize=_best(_detokenizing(model, ids)) / len(ids),
        prefill=measure_prefill(model.engine),
        steps=step_seconds(model.engine, ids[0]),
    )


def step_seconds(engine: Engine, token_id: int) -> dict[int, float]:
    """Seconds of one evaluation with a token for each of so many sequences, as far as it goes."""
    most = min(engine.n_rows, engine.n_sequences, engine.n_batch)
    sequences = [engine.open() for _ in range(min(most, BATCHES[-1]))]
    token = TokenTree.chain([token_id])
    seconds: dict[int, float] = {}
    for size in BATCHES:
        if size > len(sequences) or max(seconds.values(), default=0) > TOO_LONG_S:
            break
        batch = [(sequence, token) for sequence in sequences[:size]]
        seconds[size] = _best(lambda batch=batch: engine.evaluate(batch))  # type: ignore[misc]
    for sequence in sequences:
        engine.release(sequence)
    return seconds


def meeting(detokenize: float, steps: Mapping[int, float]) -> float | None:
    """The streams with which the host takes as long as the step; None: with no number of them.

    A step is taken to cost something, and something more for each stream: `steps` has two or more.
    """
    few, many = min(steps), max(steps)
    growth = max((steps[many] - steps[few]) / (many - few), 0.0)
    fixed = steps[few] - growth * few
    return fixed / (detokenize - growth) if detokenize > growth else None


def table(costs: Costs) -> str:
    """The figures for people."""
    steps = ", ".join(f"{n}: {1000 * seconds:.1f} ms" for n, seconds in costs.steps.items())
    one = costs.steps[min(costs.steps)]
    return "\n".join(
        [
            f"tokenizer    {costs.tokenizer}",
            f"             {1e6 * costs.encode:.2f} µs a token of code",
            f"detokenizer  {costs.detokenizer}",
            f"             c = {1e6 * costs.detokenize:.2f} µs a token of code",
            f"prompts      {costs.prefill:.0f} tokens/s",
            f"decode step  {steps} (by streams); {1 / one:.1f} tokens/s for one",
            f"they meet    {_meeting(costs)}",
        ]
    )


def _meeting(costs: Costs) -> str:
    one = costs.steps[min(costs.steps)]
    of_one = f"a step of one stream is as long as the text of {one / costs.detokenize:,.0f} tokens"
    if len(costs.steps) == 1:
        return f"not known, steps of more streams take too long; {of_one}"
    met = meeting(costs.detokenize, costs.steps)
    if met is None:
        return f"never: a stream adds more to the step than to the host; {of_one}"
    return f"in a batch of {met:,.0f}; {of_one}"


def _detokenizing(model: LoadedModel, ids: Sequence[int]) -> Callable[[], None]:
    """What makes text of the tokens one by one, as for a stream."""
    windows = model.codec.windows
    # One for all rounds: its steps are remembered, as they are for all streams of a server.
    transducer = TokenTransducer(model.engine.vocabulary) if windows is None else None

    def run() -> None:
        if transducer is not None:
            feed = Detokenizer(transducer).feed
        else:
            assert windows is not None
            feed = WindowDetokenizer(windows["skip"]).feed
        for token_id in ids:
            feed(token_id)

    return run


def _best(run: Callable[[], object]) -> float:
    """The least seconds of some rounds; the first one only where it takes long."""
    seconds: list[float] = []
    for _ in range(1 + MAX_ROUNDS):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
        if sum(seconds) > ENOUGH_S:
            break
    return min(seconds[1:] or seconds)


def _busy() -> str:
    """What to think of the figures, where others compute as well; empty where none do."""
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    if load < cpus * 0.75:
        return ""
    return f"\nnote         the machine is busy (load {load:.1f} on {cpus} CPUs): measure again"
