"""What servers answer with, read with care: a value of the wrong shape is a failure of theirs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from suture.server.engine.remote.errors import BackendFailed
from suture.server.engine.remote.protocol import Scored, Usage
from suture.server.engine.remote.refusals import told_in_event

_MAX_SHOWN = 200


def event_of(value: object) -> Mapping[str, Any]:
    """An event as an object; raises what the server says of a failure, if it does."""
    if not isinstance(value, dict):
        raise BackendFailed(f"the server sent an event that is no object: {shown(value)}")
    if (error := told_in_event(value)) is not None:
        raise error
    return value


def shown(value: object) -> str:
    """A value on one line, cut off where it is long."""
    text = " ".join(str(value).split())
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"


def objects(value: object) -> Sequence[Mapping[str, Any]]:
    """A list of objects; none for null."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise BackendFailed(f"the server sent no list of objects: {shown(value)}")
    return value


def object_in(event: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object called `name`; empty where there is none."""
    value = event.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BackendFailed(f"the server sent no object as {name}: {shown(value)}")
    return value


def text_in(event: Mapping[str, Any], name: str) -> str:
    """The text called `name`; empty where there is none."""
    value = event.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BackendFailed(f"the server sent no text as {name}: {shown(value)}")
    # JSON may have half a character in it, which no bytes say.
    return value.encode("utf-8", "replace").decode()


def count_in(event: Mapping[str, Any], name: str) -> int | None:
    """The number called `name`; None where there is none."""
    value = event.get(name)
    return None if value is None else _id(value)


def token_ids(value: object) -> tuple[int, ...]:
    """Token ids."""
    if not isinstance(value, list):
        raise BackendFailed(f"the server sent no token ids: {shown(value)}")
    return tuple(map(_id, value))


def scored(token_id: object, logprob: object, top: Sequence[tuple[object, object]] = ()) -> Scored:
    """A score, those in its place from the likeliest on."""
    alternatives = [(_id(one), _logprob(value)) for one, value in top]
    alternatives.sort(key=lambda pair: -pair[1])
    return Scored(_id(token_id), _logprob(logprob), tuple(alternatives))


def openai_usage(event: Mapping[str, Any]) -> Usage | None:
    """The usage as the OpenAI API has it; None where there is none."""
    usage = object_in(event, "usage")
    if not usage:
        return None
    return Usage(
        count_in(usage, "prompt_tokens") or 0,
        count_in(usage, "completion_tokens") or 0,
        count_in(object_in(usage, "prompt_tokens_details"), "cached_tokens"),
    )


def _id(value: object) -> int:
    if type(value) is not int or value < 0:
        raise BackendFailed(f"the server sent {shown(value)} where a number belongs")
    return value


def _logprob(value: object) -> float:
    # JSON has no -inf: some servers write null, others the least number there is.
    if value is None:
        return -math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BackendFailed(f"the server sent {shown(value)} as a log probability")
    return float(value)
