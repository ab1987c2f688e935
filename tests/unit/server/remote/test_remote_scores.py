import pytest

from support.toy import toy_budget, toy_encode, toy_vocabulary
from suture.healing import TokenTransducer
from suture.server.decoding.text_stream import byte_stream
from suture.server.engine.remote.generation import RemoteGeneration
from suture.server.engine.remote.protocol import Affinity, Heard, Scored
from suture.server.prompt.plan import plan_prompt
from suture.server.request import CompletionRequest

VOCABULARY = toy_vocabulary()


@pytest.mark.parametrize("n_probs", [0, 1, 2])
def test_no_more_are_told_of_a_tokens_place_than_were_asked_for(n_probs: int) -> None:
    """vLLM and llama-server tell of one more than that, or of one where none was asked for."""
    request = CompletionRequest("x", healing="off", n_probs=n_probs, shape="raw")
    plan = plan_prompt(request, VOCABULARY, None, toy_encode, toy_budget())
    text = byte_stream(request, plan, TokenTransducer(VOCABULARY, (), "skip"))
    generation = RemoteGeneration(request, plan, VOCABULARY, text, toy_encode, Affinity("k"))
    assert generation.asked("none").n_probs == n_probs
    [token_id] = toy_encode(b" user")
    top = ((7, -0.5), (8, -1.0), (token_id, -2.0))
    chunk = generation.feed(Heard((token_id,), scores=(Scored(token_id, -2.0, top),)))
    assert chunk is not None
    [score] = chunk.scores
    assert [one.token_id for one in score.top] == [7, 8, token_id][:n_probs]
