"""One completion that another's engine makes, fed by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from support.toy import toy_budget, toy_codec, toy_encode, toy_vocabulary
from suture.healing import TokenTransducer
from suture.server.decoding.text_stream import byte_stream
from suture.server.engine.remote.errors import ConstraintIgnored
from suture.server.engine.remote.generation import RemoteGeneration
from suture.server.engine.remote.openai import OpenAI
from suture.server.engine.remote.openai_chat import OpenAIChat
from suture.server.engine.remote.protocol import Adapter, Affinity, Finish, Heard, Scored
from suture.server.engine.remote.vllm import Vllm
from suture.server.prompt.plan import plan_prompt
from suture.server.remote import RemoteModel
from suture.server.request import CompletionRequest

VOCABULARY = toy_vocabulary()
PENDING = b" userNa"
REQUEST = CompletionRequest("def add(x): return userNa", shape="raw", max_tokens=6)


def generation_of(request: CompletionRequest) -> RemoteGeneration:
    plan = plan_prompt(request, VOCABULARY, None, toy_encode, toy_budget())
    text = byte_stream(request, plan, TokenTransducer(VOCABULARY, (), "skip"))
    return RemoteGeneration(request, plan, VOCABULARY, text, toy_encode, Affinity("k"))


def text_of(generation: RemoteGeneration, token_ids: Sequence[int]) -> str:
    """The whole text of an answer that ends with these tokens."""
    first = generation.feed(Heard(tuple(token_ids)))
    last = generation.feed(Heard((), finish="stop")) or generation.end()
    return (first.text if first else "") + last.text


@pytest.mark.parametrize("detokenize", [True, False])
@pytest.mark.parametrize("finish", [None, "length"])
def test_r1_an_answer_that_goes_wrong_within_the_pending_bytes_leaves_nothing_behind(
    finish: Finish | None, detokenize: bool
) -> None:
    generation = generation_of(
        CompletionRequest(REQUEST.prefix, shape="raw", max_tokens=6, detokenize=detokenize)
    )
    assert generation.asked("recursive").pending == PENDING
    assert generation.feed(Heard((PENDING[0],))) is None
    assert generation.feed(Heard((PENDING[1],))) is None
    with pytest.raises(ConstraintIgnored):
        generation.feed(Heard((ord("!"),), finish=finish))
    assert not generation.asked("none").pending
    assert not generation.is_over
    assert text_of(generation, b"me()") == ("me()" if detokenize else "")


def test_r1_an_answer_that_ends_within_the_pending_bytes_leaves_nothing_behind() -> None:
    generation = generation_of(REQUEST)
    generation.asked("recursive")
    generation.feed(Heard((PENDING[0],)))
    generation.feed(Heard((), finish="stop"))
    with pytest.raises(ConstraintIgnored):
        generation.end()
    generation.asked("none")
    assert text_of(generation, b"me()") == "me()"


def test_alternatives_that_the_vocabulary_does_not_have_are_not_told() -> None:
    """A model's rows may be padded, and servers tell of what is in them."""
    generation = generation_of(CompletionRequest("x", healing="off", n_probs=2, shape="raw"))
    generation.asked("none")
    top = ((VOCABULARY.n_vocab, -0.5), (ord("y"), -1.0))
    chunk = generation.feed(Heard((ord("z"),), scores=(Scored(ord("z"), -2.0, top),)))
    assert chunk is not None
    assert [one.token_id for one in chunk.scores[0].top] == [ord("y")]


def test_a_prompt_that_is_cut_further_leaves_room_to_say_its_bytes_again() -> None:
    """The last word is a few tokens, and may be said again in as many as it has bytes."""
    n_ctx = 512
    budget = toy_budget(n_ctx)
    model = RemoteModel(VOCABULARY, None, budget, toy_codec(toy_encode), (OpenAI(),))
    request = CompletionRequest("x = importimportimp", shape="raw", max_tokens=n_ctx)
    plan = model.fit(plan_prompt(request, VOCABULARY, None, toy_encode, budget))
    text = byte_stream(request, plan, TokenTransducer(VOCABULARY, (), "skip"))
    asked = model.generation(request, plan, text).asked("hygiene")
    assert asked.pending == b" importimportimp"
    assert len(asked.prompt_ids) + asked.max_tokens <= n_ctx


def test_a_prompt_that_nothing_is_to_be_healed_of_stays_as_it_is() -> None:
    model = RemoteModel(VOCABULARY, None, toy_budget(), toy_codec(toy_encode), (OpenAI(),))
    request = CompletionRequest("def add(x): return userNa", healing="off", shape="raw")
    plan = plan_prompt(request, VOCABULARY, None, toy_encode, toy_budget())
    assert model.fit(plan) == plan


@pytest.mark.parametrize(
    ("adapters", "kept"),
    [
        ((Vllm(),), "f(a) + ab"),
        ((Vllm(), OpenAI()), "f(a) +"),
        ((OpenAI(), Vllm()), "f(a) +"),
        ((Vllm(), OpenAI(), OpenAIChat("none")), "f(a)"),
    ],
)
def test_a_prompt_is_cut_as_the_backend_wants_it_that_can_do_least(
    adapters: tuple[Adapter, ...], kept: str
) -> None:
    model = RemoteModel(VOCABULARY, None, toy_budget(), toy_codec(toy_encode), adapters)
    request = CompletionRequest("f(a) + abretu", shape="raw")
    plan = model.fit(plan_prompt(request, VOCABULARY, None, toy_encode, toy_budget()))
    assert b"".join(map(VOCABULARY.bytes_of, plan.kept_ids)).decode() == kept
