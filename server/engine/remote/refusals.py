"""Errors as inference servers tell them, and what each says of whom else to ask. PURE.

OpenAI, llama-server   {"error": {"message": ..., "code": 400, "type": ...}}
vLLM, older            {"object": "error", "message": ..., "code": 400}
FastAPI's              {"detail": ...}, of fields [{"loc": [...], "msg": ..., "input": ...}]
TGI                    {"error": "...", "error_type": ...}
proxies                plain text, or a page
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from suture.server.engine.remote.errors import BackendBusy, BackendFailed, BackendRefused
from suture.server.errors import SutureError

MAX_MESSAGE = 300
# {"error": {"message": "..."}}
MAX_DEPTH = 3
LONGEST_WAIT_S = 60
_BUSY = frozenset({429, 503})
_KEY = frozenset({401, 403})
_PLACE = frozenset({404, 405, 407})
# Too slow for it.
_TIMEOUT = 408


class NotServed(BackendFailed):
    """There is no such path or model, or not for our key: how we were set up does not fit.

    It says nothing of the request: a backend that is set up in another way would answer.
    """


def error_told(status: int, headers: Mapping[str, str], content: bytes) -> SutureError:
    """What an answer comes to whose status is none of success."""
    told = _message(_json(content)) or _plain(content)
    return _error(status, told, headers.get("retry-after", ""))


def told_in_event(value: object) -> SutureError | None:
    """What an event comes to that tells of an error, in a stream that began well; else None."""
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    if not error and value.get("object") != "error":
        return None
    within = error if isinstance(error, dict) else value
    code = within.get("code")
    return _error(code if type(code) is int else 500, _message(value), "")


def _error(status: int, told: str, retry_after: str) -> SutureError:
    if status in _KEY:
        return NotServed(f"the server wants another API key than ours (status {status})")
    said = (
        f"the server says: {told} (status {status})"
        if told
        else f"the server answers with status {status}"
    )
    if status in _BUSY:
        return BackendBusy(said, _seconds(retry_after))
    if status in _PLACE or 300 <= status < 400:
        return NotServed(said)
    if 400 <= status < 500 and status != _TIMEOUT:
        return BackendRefused(said)
    return BackendFailed(said)


def _message(told: object) -> str:
    """What a JSON error says, in one short line; nothing where it says nothing that we know."""
    for _ in range(MAX_DEPTH):
        if not isinstance(told, dict):
            break
        told = told.get("error") or told.get("message") or told.get("detail")
    if isinstance(told, list):
        return _field(told[0]) if told else ""
    return _short(told) if isinstance(told, str) else ""


def _field(wrong: object) -> str:
    """What is wrong with a field, without what stands in it."""
    if not isinstance(wrong, dict):
        return ""
    at = wrong.get("loc")
    where = ".".join(map(str, at)) if isinstance(at, list) else ""
    return _short(f"{where}: {wrong.get('msg', '')}")


def _plain(content: bytes) -> str:
    """A text that is no JSON and no page."""
    text = content.decode("utf-8", "replace").strip()
    return "" if text.startswith(("<", "{", "[")) else _short(text)


def _short(text: str) -> str:
    line = " ".join(text[: 4 * MAX_MESSAGE].split())
    line = "".join(character for character in line if character.isprintable())
    return line if len(line) <= MAX_MESSAGE else line[: MAX_MESSAGE - 1] + "…"


def _json(content: bytes) -> object:
    try:
        value: object = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value


def _seconds(retry_after: str) -> int:
    """How long to wait, from the header's seconds or date; one second without any."""
    if retry_after.isascii() and retry_after.isdigit():
        wait_s = int(retry_after[:9])
    else:
        try:
            wait_s = int(parsedate_to_datetime(retry_after).timestamp() - time.time()) + 1
        except (ValueError, OverflowError):
            wait_s = 1
    return min(max(wait_s, 1), LONGEST_WAIT_S)
