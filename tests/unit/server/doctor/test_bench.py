from __future__ import annotations

import numpy as np
import pytest

from support.http_server import settings
from support.toy import toy_budget, toy_codec, toy_encode, toy_vocabulary
from suture.healing import GgufHeader
from suture.server.completion import LoadedModel
from suture.server.doctor.bench import Costs, measure, meeting, table
from suture.server.doctor.model import describe_memory
from suture.server.engine.limits import Memory
from suture.server.engine.scripted import ScriptedEngine, speaking_model


@pytest.mark.parametrize(
    ("detokenize", "steps", "met"),
    [
        (0.003, {1: 0.021, 11: 0.031}, 10.0),  # 20 ms, and 1 ms a stream
        (0.0005, {1: 0.021, 11: 0.031}, None),
        (0.001, {1: 0.020, 4: 0.019}, 20.0),  # noise: more streams never cost less
    ],
)
def test_the_batch_where_host_and_model_meet(
    detokenize: float, steps: dict[int, float], met: float | None
) -> None:
    found = meeting(detokenize, steps)
    assert found == (None if met is None else pytest.approx(met))


def test_all_that_costs_is_measured_and_told() -> None:
    vocabulary = toy_vocabulary()
    engine = ScriptedEngine(vocabulary, toy_encode, speaking_model(vocabulary, b"x"))
    costs = measure(LoadedModel(engine, None, toy_budget(), toy_codec(toy_encode)))
    assert list(costs.steps) == [1, 2, 4, 8, 16]
    assert min(costs.encode, costs.detokenize, *costs.steps.values()) > 0
    told = table(costs)
    assert "µs a token of code" in told and "they meet    " in told
    assert all(f"{size}: " in told for size in costs.steps)


def test_that_they_never_meet_is_said() -> None:
    told = table(Costs("t", "d", 1e-6, 2e-7, 100.0, {1: 0.04, 16: 0.2}))
    assert "never: a stream adds more to the step than to the host" in told
    assert "as long as the text of 200,000 tokens" in told
    assert "25.0 tokens/s for one" in told


def test_of_one_step_alone_nothing_is_concluded() -> None:
    told = table(Costs("t", "d", 1e-6, 2e-7, 100.0, {1: 4.0}))
    assert "they meet    not known, steps of more streams take too long" in told


HEADER = GgufHeader(
    {
        "general.architecture": "toy",
        "toy.context_length": 32768,
        "toy.block_count": 28,
        "toy.embedding_length": 1536,
        "toy.attention.head_count": 12,
        "toy.attention.head_count_kv": 2,
    },
    {"a": (1,)},
    0,
)


def test_a_context_costs_what_the_library_allocates_for_it() -> None:
    # 28 layers of 2 heads, 128 numbers each for keys and values, 2 bytes a number: 28,672 a token.
    memory = Memory(None, None, None)
    assert "234.9 MB for 8192 tokens" in describe_memory(settings(), 1, HEADER, memory).text
    shorter = describe_memory(settings(ctx="500"), 1, HEADER, memory)
    assert "14.7 MB for 512 tokens" in shorter.text
    heads = {"toy.attention.head_count_kv": np.array([2] * 14 + [0] * 14, np.int32)}
    few = GgufHeader({**HEADER.metadata, **heads}, HEADER.tensor_shapes, 0)
    assert "117.4 MB for 8192 tokens" in describe_memory(settings(), 1, few, memory).text


def test_a_model_that_does_not_fit_is_a_problem_whose_fix_fits() -> None:
    giga = 10**9
    fits = describe_memory(settings(), giga, HEADER, Memory(8 * giga, 4 * giga, None))
    assert fits.kind == "ok"
    tight = describe_memory(settings(), giga, HEADER, Memory(8 * giga, 3 * giga // 2, None))
    assert tight.kind == "note" and tight.fix.endswith("serve --ctx 3328")
    shorter = settings(ctx="3328")
    assert (
        describe_memory(shorter, giga, HEADER, Memory(8 * giga, 3 * giga // 2, None)).kind == "ok"
    )
    limited = describe_memory(settings(), giga, HEADER, Memory(8 * giga, 4 * giga, giga))
    assert limited.kind == "problem" and limited.fix.endswith("models")
    assert describe_memory(settings(), giga, HEADER, Memory(None, None, None)).kind == "ok"
