"""pygls' protocol, made quiet and certain.

P1  Every request gets exactly one reply, whatever is in it. A completion is never an error: what
    is wrong with it, or unknown, is answered with no items, for editors show errors.
P2  Nothing is ever shown to the user for a message that failed.
P3  A completion sees the document as it was when it was asked, whatever was read since; of one
    that has changed since nothing is asked.

It stands on names of pygls that are not public: `_handle_request`, `_request_futures`,
`_send_data`, `_shutdown`.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from cattrs import Converter
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol, lsp_method

from suture.lsp.documents import Cursor, Documents, Position
from suture.lsp.notebooks import NOTEBOOK_EVENTS, Notebooks
from suture.lsp.sync import EVENTS, apply_event, read_position

logger = logging.getLogger(__name__)

INLINE, LIST = types.TEXT_DOCUMENT_INLINE_COMPLETION, types.TEXT_DOCUMENT_COMPLETION
COMPLETIONS = frozenset({INLINE, LIST})
_NO_ITEMS: dict[str, Any] = {"isIncomplete": True, "items": []}
_MAX_UINT = 2**31 - 1
_OF_REQUESTS = ("jsonrpc", "id", "method", "params")
_INVOKED, _AUTOMATIC = 1, 2
_PARSE_ERROR, _INVALID_REQUEST, _INVALID_PARAMS, _NOT_INITIALIZED = -32700, -32600, -32602, -32002


@dataclass(frozen=True, slots=True)
class Exit:
    """The editor said goodbye; `status` is what the process ends with."""

    status: int


class BridgeProtocol(LanguageServerProtocol):
    """Speaks with one client; owns the open documents."""

    def __init__(self, server: LanguageServer, converter: Converter) -> None:
        super().__init__(server, converter)
        self.documents = Documents()
        self.notebooks = Notebooks(self.documents)
        self.cursor: contextvars.ContextVar[Cursor | None]
        self.cursor = contextvars.ContextVar("cursor", default=None)
        self.exit: Exit | None = None
        self.on_event: Callable[[str, str], None] = _ignore
        # What clients tell beyond the protocol, by its method: taken as it comes.
        self.on_told: dict[str, Callable[[Any], None]] = {}
        self._is_initialized = False

    def receive(self, body: bytes) -> None:
        """Take a message; raises nothing (P1)."""
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            self._refuse(None, _PARSE_ERROR, "this is no JSON")
            return
        try:
            self._take(message)
        except Exception as error:
            logger.warning("a message failed: %s", type(error).__name__)

    @lsp_method(types.EXIT)
    def lsp_exit(self, *args: object) -> Generator[Any, Any, None]:
        """Note that the client wants us gone: who reads the messages ends then."""
        self.exit = Exit(0 if self._shutdown else 1)
        yield from ()

    @lsp_method(types.SHUTDOWN)
    def lsp_shutdown(self, *args: object) -> Generator[Any, Any, None]:
        """Cancel what runs. pygls' own goes through its requests while they leave one by one."""
        for msg_id, future in list(self._request_futures.items()):
            if msg_id != self.msg_id:
                future.cancel()
        self._shutdown = True
        yield from ()

    def cancel_with_request(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task where the request at hand is. What a command runs pygls lets go on."""
        if self.msg_id is not None and (asked := self._request_futures.get(self.msg_id)):
            asked.add_done_callback(lambda _: task.cancel())

    def _take(self, message: Any) -> None:
        if not isinstance(message, dict) or message.get("jsonrpc") != self.VERSION:
            self._refuse(_id_of(message), _INVALID_REQUEST, "expected a JSON-RPC 2.0 message")
        elif isinstance(method := message.get("method"), str):
            if "id" in message:
                self._take_request(message, method)
            else:
                self._take_notification(message, method)
        elif "result" in message or "error" in message:
            self.handle_message(self.structure_message(message))
        else:
            self._refuse(_id_of(message), _INVALID_REQUEST, "expected a method")

    def _take_request(self, message: dict[str, Any], method: str) -> None:
        msg_id = _id_of(message)
        if msg_id is None:
            self._refuse(None, _INVALID_REQUEST, "an id must be a number or a string")
        elif self._shutdown:
            self._refuse(msg_id, _INVALID_REQUEST, "the server is shutting down")
        elif not self._is_initialized and method != types.INITIALIZE:
            self._refuse(msg_id, _NOT_INITIALIZED, "expected initialize first")
        elif self._is_initialized and method == types.INITIALIZE:
            self._refuse(msg_id, _INVALID_REQUEST, "it is initialized already")
        else:
            self._take_sound_request(message, msg_id, method)

    def _take_sound_request(self, message: dict[str, Any], msg_id: int | str, method: str) -> None:
        # Nothing else: with an `error` in it, it would be read as a reply.
        request = {name: message[name] for name in _OF_REQUESTS if name in message}
        try:
            structured = self.structure_message(_repaired(request, method))
        except JsonRpcException:
            self._refuse_params(msg_id, method)
            return
        if not hasattr(structured, "id"):
            self._refuse(msg_id, _INVALID_REQUEST, "this is told, and not asked: no id")
            return
        self._is_initialized = True
        self.handle_message(structured)

    def _take_notification(self, message: dict[str, Any], method: str) -> None:
        if method in EVENTS:
            uri = apply_event(self.documents, method, message.get("params"))
            if uri is not None:
                self.on_event(method, uri)
            return
        if method in NOTEBOOK_EVENTS:
            for event, uri in self.notebooks.apply(method, message.get("params")):
                self.on_event(event, uri)
            return
        if (take := self.on_told.get(method)) is not None:
            take(message.get("params"))
            return
        try:
            structured = self.structure_message({"params": None, **message})
        except JsonRpcException:
            logger.warning("a notification with wrong parameters")
            return
        self.handle_message(structured)

    def _handle_request(self, msg_id: str | int, method_name: str, params: Any) -> None:
        # Within the request's own context, before anything else is read (P3).
        if method_name in COMPLETIONS:
            place = Position(params.position.line, params.position.character)
            cursor = self.documents.cursor(params.text_document.uri, place)
            self.cursor.set(None if cursor is None else self.notebooks.around(cursor))
        super()._handle_request(msg_id, method_name, params)

    def _refuse_params(self, msg_id: int | str, method: str) -> None:
        if method in COMPLETIONS:
            items = _NO_ITEMS if method == LIST else {"items": []}
            self._send_data({"jsonrpc": self.VERSION, "id": msg_id, "result": items})
        else:
            self._refuse(msg_id, _INVALID_PARAMS, "the parameters are not those of the method")

    def _refuse(self, msg_id: int | str | None, code: int, message: str) -> None:
        error = {"code": code, "message": message}
        self._send_data({"jsonrpc": self.VERSION, "id": msg_id, "error": error})


def _ignore(method: str, uri: str) -> None:
    """Nobody listens."""


def _id_of(message: Any) -> int | str | None:
    """The id of a message, if it has one that a reply can bear."""
    msg_id = message.get("id") if isinstance(message, dict) else None
    is_id = isinstance(msg_id, int | str) and not isinstance(msg_id, bool)
    return msg_id if is_id else None


def _repaired(message: dict[str, Any], method: str) -> dict[str, Any]:
    """A request for completions with what clients of other drafts send put right."""
    params = message.get("params")
    if method not in COMPLETIONS or not isinstance(params, dict):
        return message
    place = read_position(params.get("position"))
    params = params | {"position": {"line": _uint(place.line), "character": _uint(place.character)}}
    if method == INLINE:
        context = params.get("context")
        context = context if isinstance(context, dict) else {}
        params["context"] = context | {"triggerKind": _kind(context.get("triggerKind"))}
    else:
        params.pop("context", None)
    return message | {"params": params}


def _kind(raw: Any) -> int:
    """Invoked by hand only where that is said; VS Code's own enumeration counts from 0."""
    is_invoked = raw in (0, 1) and not isinstance(raw, bool)
    return _INVOKED if is_invoked else _AUTOMATIC


def _uint(number: int) -> int:
    return max(0, min(number, _MAX_UINT))
