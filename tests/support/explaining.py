"""Explanations: one with a bit of everything, and those of a scripted engine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from support.scripted_completer import VOCABULARY, ScriptedCompleter
from support.toy import toy_encode
from suture.healing import CanonicalPairs
from suture.server.decoding.covering import Coverings
from suture.server.diagnoses import SENTENCES, Diagnosis
from suture.server.engine.protocol import Engine
from suture.server.engine.scripted import Model, speaking_model
from suture.server.explanation import (
    Boundary,
    CoverNode,
    Covers,
    CoverShare,
    Explanation,
    Method,
    MethodName,
    Next,
    PromptMap,
    Segment,
    Token,
)
from suture.server.request import CompletionResult, HealingLevel, Reason
from suture.server.settings import Settings

USER, NAME = Token(5, b" user", " user"), Token(6, b"Na", "Na")


def method(name: MethodName, level: HealingLevel, text: str) -> Method:
    reason: Reason | None = None if text else "EMPTY"
    result = CompletionResult("length" if text else "eos", reason=reason)
    return Method(name, name == "exact", level, b" userNa", text, result)


EXPLANATION = Explanation(
    boundary=Boundary(
        before=b"def f():\n\tconst userNa",
        after="\x1b[31m;é".encode(),
        typed=(Token(1, b"const", "const"), USER, NAME),
        kept=(Token(1, b"const", "const"),),
        pending=b" userNa",
        dropped_tokens=2,
    ),
    covers=Covers(
        nodes=(CoverNode(USER, -1, 5, 0.1), CoverNode(NAME, 0, 7, 0.01)),
        best=(
            CoverShare((Token(9, b" userName", " userName"),), False, b"me", 0.7321),
            CoverShare(
                (USER, NAME), True, b"", 0.2, (Next(Token(7, b"me", "me"), 0.5), Next(USER, 1e-4))
            ),
            CoverShare((USER, Token(8, b"Nat", "Nat")), False, b"t", 0.000021),
        ),
        others=0.0678,
        log_evidence=-2.0,
        tv_bound=0.00012,
        is_filtered=True,
    ),
    methods=(
        method("off", "none", ""),
        method("drop_one", "recursive", "vy\u202e[bold]\n"),
        method("recursive", "recursive", "me ="),
        method("exact", "exact", "me ="),
    ),
    prompt=PromptMap(
        "psm", "move", True, 20, 12, (Segment("pre", 1, 1), Segment("prefix", 19, 11))
    ),
    diagnoses=(
        Diagnosis("INSIDE_WORD", True, *SENTENCES["INSIDE_WORD"]),
        Diagnosis("BOUNDED", False, *SENTENCES["BOUNDED"]),
    ),
)

# Behind a prompt's end of `const`, whatever stands there besides.
SAID = b"const userName = ()\n"
SPEAKING = speaking_model(VOCABULARY, SAID)


class ExactCompleter(ScriptedCompleter):
    """Heals exactly, as a real model does."""

    def _load(self) -> Engine:
        engine = super()._load()
        assert self._loaded is not None
        coverings = Coverings(VOCABULARY, CanonicalPairs(VOCABULARY, toy_encode))
        self._loaded = replace(self._loaded, coverings=coverings)
        return engine


@contextlib.contextmanager
def exact(settings: Settings, model: Model = SPEAKING) -> Iterator[ExactCompleter]:
    """A completer that is ready, closed at the end."""
    completer = ExactCompleter(model, settings)
    completer.start()
    try:
        completer.wait_ready()
        yield completer
    finally:
        completer.close()


def piece_names(tokens: Sequence[dict[str, object]]) -> list[object]:
    """What tokens of an answer are called."""
    return [token["name"] for token in tokens]
