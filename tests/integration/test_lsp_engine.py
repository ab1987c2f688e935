"""The whole chain from an editor's key to the engine, which plays a model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from support.answering import answering_model
from support.http_server import serving, settings
from support.lsp_client import TIMEOUT_S, VSCODE, Json, editing, editing_with_process, until
from support.scripted_completer import VOCABULARY, scripted
from suture.server.engine.protocol import Logits
from suture.server.engine.scripted import random_model
from suture.server.request import CompletionRequest

ALONE: Json = {"prefetch": False, "debounceMs": 0}
BEFORE, AFTER = "def f(w, h):\n    area(", ")\n    return x\n"


class Slow:
    """A model of arbitrary text that takes its time; `n_rows` counts what it was asked for."""

    def __init__(self) -> None:
        self.n_rows = 0
        self._model = random_model(VOCABULARY.n_vocab)

    def __call__(self, tokens: Sequence[int]) -> Logits:
        self.n_rows += 1
        time.sleep(0.005)
        return self._model(tokens)


def test_x1_after_a_burst_of_keys_the_engine_is_idle() -> None:
    model = Slow()

    async def edit(url: str) -> None:
        options = {"prefetch": True, "debounceMs": 20, "maxTokens": 2048}
        async with editing_with_process(url, VSCODE, options) as editor:
            editor.open("x = \n")
            replies = []
            for n in range(20):
                editor.type("y", 0, 4 + n)
                msg_id, reply = editor.ask_inline(0, 5 + n)
                replies.append(reply)
                await asyncio.sleep(0.03)
                editor.notify("$/cancelRequest", {"id": msg_id})
            for reply in replies:
                await asyncio.wait_for(reply, TIMEOUT_S)
            await until(lambda: set(completer.slots()) == {None})
            n_rows = model.n_rows
            await asyncio.sleep(0.3)
            assert model.n_rows == n_rows

    with scripted(model, settings()) as completer, serving(completer) as url:
        asyncio.run(edit(url))


def test_an_answer_over_closers_is_typed_through() -> None:
    hole = CompletionRequest(BEFORE, AFTER, infill=True, max_tokens=60)
    model = answering_model(hole, "w, h)\n    y = 1")

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, ALONE) as editor:
            editor.open(BEFORE + AFTER)
            for n, char in enumerate("w, h)"):
                (item,) = await editor.inline(1, 9 + n)
                assert item["insertText"] == "    area(w, h)\n    y = 1"
                # Over the bracket that stands there, until that is typed over.
                end = item["range"]["end"]["character"]
                assert end == 10 + n
                if char == ")":
                    editor.delete(1, 9 + n, 10 + n)
                editor.type(char, 1, 9 + n)
            (item,) = await editor.inline(1, 14)
            assert item["range"]["end"]["character"] == 14
            assert (await editor.command("explainLast"))["source"] == "typed"

    with scripted(model, settings()) as completer, serving(completer) as url:
        asyncio.run(edit(url))
        assert completer.measured().counters.jobs == 1
