"""Hard text forced through a real vocabulary and streamed over real HTTP.

Guards against what vllm#931, llama.cpp#4036 and ik_llama.cpp#780 report: replacement characters
where a character's bytes come in several tokens.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

from support.engine_completer import EngineCompleter
from support.http_server import client, events, serving
from support.toy import toy_codec
from suture.healing import Vocabulary
from suture.healing.boundary import Encode
from suture.server.completion import LoadedModel
from suture.server.engine.protocol import Logits
from suture.server.engine.scheduler import Scheduler
from suture.server.engine.scripted import Model, ScriptedEngine
from suture.server.prompt.budget import PromptBudget

pytestmark = pytest.mark.model

PROMPT = "# "
TEXTS = [
    "我很感谢你的热情 👩‍👩‍👧‍👦 မင်္ဂလာပါ",
    "🇩🇪🇲🇲🇮🇳🇺 e\u0301 𠮷野家 \ufeffimport\r\n\t\x00",
    "a real \ufffd stays",
]


class ScriptedCompleter(EngineCompleter):
    """A completer on a scripted engine."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self._scheduler = Scheduler(lambda: engine)
        budget = PromptBudget(engine.n_ctx, 1e6)
        loaded = LoadedModel(engine, None, budget, toy_codec(engine.encode))
        super().__init__("scripted", self._scheduler, loaded)
        self._scheduler.start()
        self._scheduler.wait_ready()

    def close(self) -> None:
        super().close()
        self._scheduler.close()


def forcing_model(vocabulary: Vocabulary, ids: Sequence[int]) -> Model:
    """Says `ids` one by one after any prompt that holds none of them, then ends."""

    def logits(tokens: Sequence[int]) -> Logits:
        n_said = next((n for n in range(len(ids), 0, -1) if list(tokens[-n:]) == ids[:n]), 0)
        row = np.zeros(vocabulary.n_vocab, np.float32)
        assert vocabulary.eos_id is not None
        row[ids[n_said] if n_said < len(ids) else vocabulary.eos_id] = 10.0
        return row

    return logits


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("spelling", ["canonical", "bytes"])
def test_deltas_join_to_the_text_without_replacement_characters(
    real_vocabulary: tuple[Vocabulary, Encode], text: str, spelling: str
) -> None:
    vocabulary, encode = real_vocabulary
    whole = text.encode()
    ids = list(encode(whole))
    if spelling == "bytes":
        ids = [vocabulary.ids_of(whole[i : i + 1])[0] for i in range(len(whole))]
    engine = ScriptedEngine(vocabulary, encode, forcing_model(vocabulary, ids))
    completer = ScriptedCompleter(engine)
    body = {"prompt": PROMPT, "max_tokens": 400, "healing": "off", "temperature": 0}
    try:
        with serving(completer) as url, client(url) as http:
            response = http.post("/v1/completions", json=body | {"stream": True})
            whole_answer = http.post("/v1/completions", json=body).json()
    finally:
        completer.close()
    *chunks, done = events(response)
    deltas = [json.loads(chunk)["choices"][0]["text"] for chunk in chunks]
    assert done == "[DONE]"
    assert "".join(deltas) == text == whole_answer["choices"][0]["text"]
    if "\ufffd" not in text:
        assert not any("\ufffd" in delta for delta in deltas)
    assert whole_answer["suture"]["stream"]["held_max_bytes"] <= 3
