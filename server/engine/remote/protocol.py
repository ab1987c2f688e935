"""What another's inference server is asked for and what it answers, in no server's words.

backend      one such server, at one URL
adapter      how a kind of server is spoken to: a translation and nothing else
pending      the bytes that were given back: the answer has to begin with them
level        what a server makes of that: `recursive` where its constraint allows just the tokens
             that go on with the pending bytes, `canonical` where it says them as its tokenizer
             does, `hygiene` where it is only asked not to need any, `none` without
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from suture.healing import Vocabulary
from suture.server.request import CompletionRequest, SamplingParams

BackendKind = Literal["vllm", "llama-server", "sglang", "tgi", "openai", "openai-chat"]
Level = Literal["recursive", "canonical", "hygiene", "none"]
Finish = Literal["stop", "length", "abort"]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Affinity:
    """Which requests are to meet the same replica: those with the same `key`.

    It is a digest and tells nothing of whom it is of. `cache_salt` keeps the prefixes of one
    tenant apart from those of others, where the engine can; None: they are shared.
    """

    key: str
    cache_salt: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """One text that a backend is asked for.

    `prompt_ids` are never empty. `pending` is whole characters, forced as `level` says, and empty
    where the level is "none". `max_tokens` has room for the tokens that say them again. At any of
    `end_ids` the text ends, and none of `banned_ids` is to come: they would be sentinels in it.
    `grammar` is what the text behind the pending bytes must be, in GBNF. `n_probs` None asks for no
    log probabilities. Stop strings are no affair of the engine: it would look for them in the
    pending bytes, too.
    """

    prompt_ids: tuple[int, ...]
    pending: bytes
    level: Level
    max_tokens: int
    sampling: SamplingParams
    end_ids: frozenset[int]
    banned_ids: tuple[int, ...]
    affinity: Affinity
    ignore_eos: bool = False
    min_tokens: int = 0
    grammar: str | None = None
    n_probs: int | None = None


@dataclass(frozen=True, slots=True)
class Scored:
    """A token's log probability in nats, and those of the likeliest in its place, best first.

    Servers tell of as many as asked for, or of one more.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the backend counts them; `cached` of the prompt were in its cache, if it tells."""

    prompt: int
    completion: int
    cached: int | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """A part of an answer: `token_ids` where the engine tells them, else None.

    `text` is what the engine itself makes of them, as far as it says.
    `finish` says why the engine ended: at one of the ends, for it had said as much as it was to,
    or of itself (`abort`). `scores` are one for each token, or none.
    """

    token_ids: tuple[int, ...] | None = None
    text: str = ""
    scores: tuple[Scored, ...] = ()
    finish: Finish | None = None
    usage: Usage | None = None


Reader = Callable[[object], Heard | None]
"""What one event of one answer says; None where it says nothing. Events come in their order.

Raises `BackendFailed` for one that is none of this server's, and what the server says of a failure
as the error that it is.
"""


class Adapter(Protocol):
    """How one kind of server is spoken to. Stateless: what an answer needs is in its reader.

    `path` is where texts are asked for by POST, answered as server-sent events. `tells_ids`: its
    answers are token ids, so bytes. `best_level` is what its constraint comes to if it keeps what
    its documentation promises: the probe finds out whether it does.
    """

    kind: BackendKind
    path: str
    tells_ids: bool
    best_level: Level

    def check(self, request: CompletionRequest) -> None:
        """Raise `InvalidRequest`, naming the field, for what this kind of server cannot do."""
        ...

    def level(self, asked: Asked) -> Level:
        """What becomes of the pending bytes beside all else that is asked for.

        A server takes one constraint: where a grammar and the pending bytes cannot be made one,
        the grammar is kept and the level is "none".
        """
        ...

    def body(self, asked: Asked, model: str, vocabulary: Vocabulary) -> Json:
        """The body that asks for it, as a stream."""
        ...

    def headers(self, affinity: Affinity) -> Mapping[str, str]:
        """The headers by which gateways send it where its prefix is."""
        ...

    def reader(self, vocabulary: Vocabulary) -> Reader:
        """A reader for one answer; `vocabulary` is that of the model."""
        ...
