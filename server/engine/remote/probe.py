"""What a backend is, by what it says of itself, and what its constraint comes to, by trying it.

Ten tiny requests: a plain one, texts that are easily forced wrongly, one that is many tokens long,
and one that is pushed to say pending bytes in small tokens. Nothing is taken for granted: some
servers take a constraint that they do not know without a word, and a tokenizer that is not the
model's shows only in texts that differ.

  recursive   any tokens may say the pending bytes: the push is followed
  canonical   just the tokens that the server's tokenizer makes of them: it is not
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from suture.healing import Encode, Vocabulary
from suture.server.engine.remote.errors import (
    BackendFailed,
    BackendRefused,
    TokenizerDiffers,
)
from suture.server.engine.remote.events import shown
from suture.server.engine.remote.protocol import (
    Adapter,
    Affinity,
    Asked,
    BackendKind,
    Json,
    Level,
)
from suture.server.errors import SetupError
from suture.server.request import SamplingParams

Get = Callable[[str], Awaitable[object]]
"""What is at a path of the server, as JSON; raises `BackendFailed` where there is nothing."""
Ask = Callable[[Json, str], AsyncGenerator[object, None]]
"""The events of the answer to a body sent to a path; closing it ends the answer."""

_BEFORE = b"def add(a, b):\n    return a"
# Each is easily forced wrongly: into a sentinel, as a sign of a pattern, as a blank.
_PENDING = (
    b"<",
    b" + b",
    b"\n  ",
    b"\n\tuserNameOfThisOne_17",
    rb' .*+?()|[]{}^$/\-"',
    "é 我很 😀".encode(),
    b" ",
)
# Where another tokenizer shows.
_LONG = "\n\nclass Reader:\n    def __init__(self, url='x.org'):\n\t# é, 我很感谢你, 😀\n".encode()
# One token, mostly, and small ones say it too.
_PUSHED = b" return"
_MORE = 4


@dataclass(frozen=True, slots=True)
class Detected:
    """What a server says of itself; `n_ctx` is how many tokens fit, None where it does not tell.

    `owner` is whom its models are owned by, if it says so: servers and services name themselves.
    """

    kind: BackendKind
    version: str
    models: tuple[str, ...]
    n_ctx: int | None
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Probed:
    """A backend as it was found; `why` is what its level rests on, or falls short of."""

    kind: BackendKind
    version: str
    model: str
    n_ctx: int | None
    level: Level
    why: str


async def detect(get: Get) -> Detected:
    """What kind of server this is: by whom it says that its models are owned, or by its paths.

    Behind a gateway that passes on the OpenAI API only, and says no owner, it is one of that API.
    """
    cards = _cards(await _there(get, "/v1/models"))
    owners = {card["owned_by"] for card in cards if isinstance(card.get("owned_by"), str)}
    for kind, owner, paths, sign in _SIGNS:
        told = [await _there(get, path) for path in paths]
        found = next((one for one in told if sign in one), {})
        # Other servers than vLLM tell their version so, and own their models themselves.
        if owner in owners or (found and not (kind == "vllm" and owners)):
            return _detected(kind, found, cards)
    return _detected("openai", {}, cards)


def model_of(server: Detected, name: str | None) -> str:
    """The model to ask for; `name` is the one wanted, None the first that the server names.

    Raises `SetupError` for one that it does not serve.
    """
    if name is None:
        if not server.models:
            raise SetupError("the server names no models: say which is meant")
        return server.models[0]
    # llama-server has one model, whatever it is called.
    if server.models and name not in server.models and server.kind != "llama-server":
        known = ", ".join(server.models[:5])
        raise SetupError(f"the server has no model {name!r}; it has {known}")
    return name


async def probe(
    server: Detected,
    adapter: Adapter,
    model: str,
    ask: Ask,
    vocabulary: Vocabulary,
    encode: Encode,
) -> Probed:
    """What the server's constraint comes to.

    Raises `TokenizerDiffers` where its tokenizer is not that of `vocabulary`, and the errors of
    backends where it does not answer a plain request.
    """
    trial = _Trial(adapter, model, ask, vocabulary, encode)
    await trial.plain()
    level, why = adapter.best_level, "nothing can be forced: the end of the prompt is cleaned"
    if level in ("recursive", "canonical"):
        level, why = await trial.forced()
    return Probed(server.kind, server.version, model, server.n_ctx, level, why)


_SIGNS: tuple[tuple[BackendKind, str, tuple[str, ...], str], ...] = (
    ("llama-server", "llamacpp", ("/props",), "default_generation_settings"),
    ("sglang", "sglang", ("/server_info", "/get_server_info"), "tokenizer_path"),
    ("tgi", "tgi", ("/info",), "model_id"),
    ("vllm", "vllm", ("/version",), "version"),
)


async def _there(get: Get, path: str) -> Mapping[str, Any]:
    """The object at a path; empty where there is none."""
    try:
        told = await get(path)
    except (BackendFailed, BackendRefused):
        return {}
    return told if isinstance(told, dict) else {}


def _cards(models: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    cards = models.get("data")
    return [card for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []


def _detected(
    kind: BackendKind, told: Mapping[str, Any], cards: list[Mapping[str, Any]]
) -> Detected:
    names = tuple(card["id"] for card in cards if isinstance(card.get("id"), str))
    settings = told.get("default_generation_settings")
    n_ctx = [
        *(card.get("max_model_len") for card in cards),
        settings.get("n_ctx") if isinstance(settings, dict) else None,
        told.get("max_total_tokens"),
    ]
    version = told.get("version") or told.get("build_info") or ""
    owners = (card["owned_by"] for card in cards if isinstance(card.get("owned_by"), str))
    return Detected(
        kind,
        shown(version),
        names,
        next((n for n in n_ctx if type(n) is int and n > 0), None),
        next(owners, ""),
    )


@dataclass(frozen=True, slots=True)
class _Said:
    """An answer: its tokens, and their bytes."""

    ids: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class _Trial:
    adapter: Adapter
    model: str
    ask: Ask
    vocabulary: Vocabulary
    encode: Encode

    async def plain(self) -> None:
        """Ask for a few tokens and nothing else."""
        await self._said(self._asked(b""))

    async def forced(self) -> tuple[Level, str]:
        """The level, and what it rests on."""
        for pending in (*_PENDING, _LONG):
            try:
                said = await self._said(self._asked(pending))
            except BackendRefused as refused:
                return "none", f"it refuses to be held to {shown(pending)}: {refused}"
            if not said.data.startswith(pending):
                wanted, got = shown(pending.decode()), shown(said.data.decode("utf-8", "replace"))
                return "none", f"held to {wanted!r}, it says {got!r}"
        return await self._pushed()

    async def _pushed(self) -> tuple[Level, str]:
        """Whether small tokens may say what one token says."""
        small = self._smallest(_PUSHED)
        if small is None or self.encode(_PUSHED)[0] == small:
            return "recursive", "all that it was held to came"
        asked = self._asked(_PUSHED)
        push = replace(asked.sampling, logit_bias=((small, 100.0),))
        try:
            said = await self._said(replace(asked, sampling=push))
        except BackendRefused as refused:
            return "canonical", f"all that it was held to came; it takes no biases: {refused}"
        if not said.data.startswith(_PUSHED):
            return "none", f"held to {_PUSHED!r}, it says {said.data!r}"
        if said.ids[0] != small:
            return "canonical", "what it was held to came in the tokens of its tokenizer only"
        return "recursive", "all that it was held to came, in any tokens"

    def _smallest(self, pending: bytes) -> int | None:
        """A token that says the beginning of the pending bytes only."""
        ids = self.vocabulary.proper_prefixes(pending).tolist()
        return min(ids, key=lambda i: len(self.vocabulary.bytes_of(i)), default=None)

    def _asked(self, pending: bytes) -> Asked:
        vocabulary = self.vocabulary
        level: Level = self.adapter.best_level if pending else "none"
        bos = [vocabulary.bos_id] if vocabulary.add_bos and vocabulary.bos_id is not None else []
        return Asked(
            prompt_ids=(*bos, *self.encode(_BEFORE)),
            pending=pending,
            level=level,
            # A byte a token, at worst.
            max_tokens=len(pending) + _MORE,
            sampling=SamplingParams(),
            end_ids=vocabulary.eog_ids,
            banned_ids=tuple(sorted(vocabulary.control_ids - vocabulary.eog_ids)),
            affinity=Affinity("suture-probe"),
        )

    async def _said(self, asked: Asked) -> _Said:
        """The answer until it has said what is pending; its text has to be that of its tokens."""
        body = self.adapter.body(asked, self.model, self.vocabulary)
        hear = self.adapter.reader(self.vocabulary)
        ids: list[int] = []
        data, text, is_over = b"", "", True
        async with aclosing(self.ask(body, self.adapter.path)) as events:
            async for event in events:
                if (heard := hear(event)) is None:
                    continue
                ids += heard.token_ids or ()
                data += b"".join(map(self._piece, heard.token_ids or ()))
                text += heard.text
                if asked.pending and len(data) > len(asked.pending):
                    is_over = False
                    break
        if self.adapter.tells_ids:
            self._compare(data, text, is_over)
        return _Said(tuple(ids), data)

    def _piece(self, token_id: int) -> bytes:
        try:
            return self.vocabulary.bytes_of(token_id)
        except IndexError:
            raise TokenizerDiffers(
                f"the server's tokenizer is another: it has a token {token_id},"
                f" and here there are {self.vocabulary.n_vocab}"
            ) from None

    def _compare(self, data: bytes, text: str, is_over: bool) -> None:
        """Raise `TokenizerDiffers` where the tokens say something else here.

        Servers leave out the blank that begins a text, and what ends inside a character; and while
        an answer goes on, some hold its last characters back.
        """
        ours, theirs = (
            one.rstrip("\ufffd").lstrip(" ") for one in (data.decode("utf-8", "replace"), text)
        )
        is_same = ours == theirs if is_over else ours.startswith(theirs)
        if not (is_same or _is_told_in(theirs, ours) or _is_told_in(ours, theirs)):
            raise TokenizerDiffers(
                f"the server's tokenizer is another: it says {shown(theirs)!r}"
                f" where the tokens say {shown(ours)!r} here"
            )


def _is_told_in(broken: str, text: str) -> bool:
    """Whether a text, where it is one, is another's: characters in pieces are told in many ways.

    A prompt that is read with another tokenizer may leave a server in the middle of one.
    """
    if "\ufffd" not in broken:
        return False
    at = 0
    for part in broken.split("\ufffd"):
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True
