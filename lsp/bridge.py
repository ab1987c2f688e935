"""The language server of one editor: its options, its documents, what runs for it.

The model is in a server that all editors share (`launch.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import asdict, replace
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from suture.lsp.completions import SUPERSEDED, Completions, Outcome
from suture.lsp.context.other_files import OtherFiles
from suture.lsp.context.workspace import workspace_of
from suture.lsp.counting import Counting
from suture.lsp.documents import Cursor, Position
from suture.lsp.gates import Refusal, switch_gate
from suture.lsp.http_client import READY, Address, Health, ServerClient, Unanswered
from suture.lsp.launch import Presence, locate
from suture.lsp.positions import ENCODINGS
from suture.lsp.protocol import BridgeProtocol
from suture.lsp.ranges import CURSOR, Asked, Item, Profile, Row, ask_at, item_of, profile_of
from suture.lsp.settings import read_options
from suture.lsp.shown import Suggestion
from suture.lsp.stats import stats_file
from suture.lsp.status import Status
from suture.lsp.sync import CHANGE, CLOSE, OPEN
from suture.lsp.tally import Mark, n_characters
from suture.lsp.transport import read_messages
from suture.server.settings import load_settings
from suture.server.version import VERSION

Json = dict[str, Any]

logger = logging.getLogger(__name__)

SECTION = "suture"
# Told to clients that say that they know it: there is more of the text that is shown.
DID_GROW = "suture/didGrow"
NOTEBOOKS = types.NotebookDocumentSyncOptions([types.NotebookDocumentFilterWithNotebook("*")])
WATCH_S = 2.0
REPLIED_S = 0.01
# How long a client may take to tell its configuration, before nobody waits for it any more.
CONFIGURED_S = 10.0


class Bridge(LanguageServer):
    """The server of one editor. `url` is where completions come from, whatever the options say."""

    protocol: BridgeProtocol

    def __init__(self, url: str | None = None) -> None:
        super().__init__(
            "suture", VERSION, protocol_cls=BridgeProtocol, notebook_document_sync=NOTEBOOKS
        )
        self._url = url
        self._presence = Presence()
        self._given: Json = {}  # initializationOptions.suture
        self.counts: Counter[str] = Counter()
        self.counting = Counting(lambda: stats_file(load_settings().cache))
        self.profile = CURSOR
        self.status = Status(self._send_status, self._off)
        options, _ = read_options(None)
        self.client = ServerClient(self._locate, self._on_health)
        self.completions = Completions(self.client, secrets.token_hex(8), options)
        self._is_configured = asyncio.Event()
        self.others = OtherFiles(self.protocol.documents, self.completions, self._is_configured)
        self.completions.bodies.others_with = self.others.sent_with
        self.completions.bodies.path_in = self.others.path_in
        self._is_of_folders = False
        self._tasks: set[asyncio.Task[Any]] = set()
        # Whether the server may have lost what it had read.
        self._was_gone = False
        self._is_copilot_style = False
        self._progress: str | None = None
        self._has_progress = False
        self.protocol.on_event = self._on_event

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Nothing: whoever asked has a reply, and nobody wants a popup (P2)."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        """Speak with a client until it leaves; the exit status."""
        self.protocol.set_writer(writer)
        try:
            async for body in read_messages(reader):
                self.protocol.receive(body)
                if self.protocol.exit is not None:
                    return self.protocol.exit.status
        except (ConnectionError, ValueError):
            return 1
        finally:
            await self._end()
            writer.close()
        return 0

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do something beside the messages. What awaits the client is done so, for a request
        that is cancelled meanwhile would end pygls' wait for the client, too."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def initialize(self, params: types.InitializeParams) -> None:
        """Take what a client is and wants."""
        encoding = self.workspace.position_encoding
        self.protocol.documents.encoding = next(
            one for one in ENCODINGS if one == (encoding or "utf-16")
        )
        given = params.initialization_options
        given = given if isinstance(given, dict) else {}
        self._is_copilot_style = "editorPluginInfo" in given
        section = given.get(SECTION)
        self._given = section if isinstance(section, dict) else {}
        knows = given.get("knows")
        if isinstance(knows, list) and DID_GROW in knows:
            self.completions.writings.on_grown = self._on_grown
        self.profile = profile_of(params.client_info.name if params.client_info else "")
        self.completions.remembered.shows_last_line_end = self.profile.shows_last_line_end
        self._is_of_folders = params.workspace_folders is not None
        self.take_options({})
        if not self._has_configuration:
            self._is_configured.set()
        # One that is not there now counts its processes elsewhere, in another container.
        if params.process_id is not None and _is_alive(params.process_id):
            self.begin(self._watch(params.process_id))

    def take_options(self, section: Any) -> None:
        """Put options in force: those of the configuration, over those of the start."""
        merged = _merged(self._given, section) if isinstance(section, dict) else self._given
        before = self.completions.options
        options, complaints = read_options(merged)
        self.completions.options = options
        self.status.complain(complaints)
        if options != before:
            self.completions.forget()
            self.status.switched()
        if options.server != before.server:
            self.client.relocate()
            if self._is_configured.is_set():
                self.begin(self._check())
        self.take_folders()

    def take_folders(self) -> None:
        """Know the folders that are open now, as clients name them or their root."""
        folders = [(one.uri, one.name) for one in self.workspace.folders.values()]
        root = self.workspace.root_uri
        if root is not None and not self._is_of_folders:
            folders = [(root, "")]
        self.others.take(self.completions.options, workspace_of(folders))

    async def start(self) -> None:
        """Find the server before the first key, so that its model is loaded meanwhile."""
        self.status.open()  # no notification may come before the reply to initialize
        # An answer that comes later is taken then.
        await asyncio.wait({self.begin(self.pull_options())}, timeout=CONFIGURED_S)
        self._is_configured.set()
        await self._check()

    async def _check(self) -> None:
        """Have told what is wrong with the server, before anything is asked of it."""
        if self.completions.switches.is_on(self.completions.options):
            with contextlib.suppress(Unanswered):
                await self.client.check()

    async def hear_of_options(self) -> None:
        """Let a client tell of changes that tells only who asked to be told."""
        workspace = self.client_capabilities.workspace
        told = workspace.did_change_configuration if workspace is not None else None
        if told is None or not told.dynamic_registration:
            return
        method = types.WORKSPACE_DID_CHANGE_CONFIGURATION
        wanted = types.DidChangeConfigurationRegistrationOptions(section=SECTION)
        registration = types.Registration(id=method, method=method, register_options=wanted)
        with contextlib.suppress(JsonRpcException):
            await self.client_register_capability_async(types.RegistrationParams([registration]))

    async def pull_options(self) -> None:
        """Ask the client for the configuration, if it has one."""
        if not self._has_configuration:
            return
        item = types.ConfigurationItem(section=SECTION)
        with contextlib.suppress(JsonRpcException):  # it may say no
            sections = await self.workspace_configuration_async(types.ConfigurationParams([item]))
            self.take_options(sections[0] if sections else None)

    @property
    def _has_configuration(self) -> bool:
        workspace = self.client_capabilities.workspace
        return workspace is not None and bool(workspace.configuration)

    async def _configured(self) -> None:
        """Wait for the first configuration: a file that it excludes must not be sent before."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONFIGURED_S):
                await self._is_configured.wait()
        self._is_configured.set()

    async def complete(
        self, cursor: Cursor | None, row: Row | None, is_automatic: bool
    ) -> tuple[Asked, Outcome] | None:
        """What came of a request at a cursor, and where it was asked; None if nowhere."""
        if cursor is None:
            return None
        await self._configured()
        if not self.protocol.documents.is_current(cursor):
            self.status.outcome(SUPERSEDED)
            return None
        asked = ask_at(cursor, row, self.protocol.documents.encoding)
        if asked is None:
            message = "the selected row of the popup does not go on from what is typed"
            refused = self.completions.refuse(cursor.uri, Refusal("DISABLED", message))
            self.status.outcome(refused)
            return None
        self.others.asked(asked.cursor)
        try:
            outcome = await self.completions.complete(asked.cursor, is_automatic)
        except Exception as error:  # a fault of ours is no reason for a message box, either
            outcome = Outcome(reason="ERROR", message=f"suture lsp failed: {type(error).__name__}")
            logger.exception("a completion failed")
        if not self.protocol.documents.is_current(cursor):
            # Not every client asks anew, or knows that an item was of another text.
            outcome = SUPERSEDED
        self.status.outcome(outcome)
        return asked, outcome

    def items(self, asked: Asked, outcome: Outcome) -> list[tuple[Item, Mark]]:
        """The items of an outcome, as this client shows them, the first at once."""
        if outcome.suggestion is None:
            return []
        suggestions = (outcome.suggestion, *outcome.alternatives)
        # The last that is answered is the one that is shown.
        marked = [self._marked(asked, one, self.profile) for one in reversed(suggestions)]
        return marked[::-1]

    def row(self, asked: Asked, outcome: Outcome) -> tuple[Item, Mark] | None:
        """The item of an outcome as a row of a popup."""
        if outcome.suggestion is None:
            return None
        return self._marked(asked, outcome.suggestion, replace(self.profile, starts_at="word"))

    def _marked(self, asked: Asked, suggestion: Suggestion, profile: Profile) -> tuple[Item, Mark]:
        item = item_of(asked, suggestion, profile, self.protocol.documents.encoding)
        n_left = n_characters(suggestion.text)
        mark = Mark(suggestion.number, suggestion.start, n_characters(item.text) - n_left)
        self.counting.tally.answered(asked.real.uri, asked.real.language, mark, n_left)
        return item, mark

    async def explained(self) -> Json:
        """All that is known of the last request, and of the server."""
        return asdict(self.completions.last) | {"status": self.status.shown}

    async def warm_up(self, uri: str | None) -> Json:
        """Let the server read the end of a document, or of the first that is open."""
        await self._configured()
        documents = self.protocol.documents
        document = next(iter(documents), None) if uri is None else documents.find(uri)
        if document is None:
            message = "no document is open" if uri is None else "no such document is open"
            return asdict(Outcome(reason="EMPTY", message=message))
        cursor = document.cursor(Position(document.n_lines, 0), documents.encoding)
        warming = self.begin(self.completions.warm_up(cursor))
        self.protocol.cancel_with_request(warming)
        return asdict(await warming)

    async def _locate(self) -> Address:
        server = self.completions.options.server
        return await asyncio.to_thread(locate, server, self._presence, self._url)

    def _on_event(self, method: str, uri: str) -> None:
        if method == OPEN:
            self.others.opened(uri)
        elif method == CHANGE:
            self.others.changed(uri)
        elif method == CLOSE:
            self.completions.close(uri)
            self.others.closed(uri)

    def _on_grown(self, cursor: Cursor) -> None:
        self.begin(self._tell_grown(cursor))

    async def _tell_grown(self, cursor: Cursor) -> None:
        # Never before the reply that has the beginning of it, which may be on its way.
        await asyncio.sleep(REPLIED_S)
        # Where the text has changed since, the client has asked for it, or will.
        if self.protocol.documents.is_current(cursor):
            document = {"uri": cursor.uri, "version": cursor.version}
            self.protocol.notify(DID_GROW, {"textDocument": document})

    def _on_health(self, health: Health) -> None:
        self.status.healthy(health)
        if health == READY and self._was_gone:
            self._was_gone = False
            self.others.server_came()
        elif health.reason in ("UNREACHABLE", "LOADING"):
            self._was_gone = True
        self.begin(self._show_progress(health.reason == "LOADING"))

    def _off(self) -> Refusal | None:
        completions = self.completions
        return switch_gate(completions.options, completions.switches, time.monotonic())

    def _send_status(self, status: Json) -> None:
        self.protocol.notify("suture/status", status)
        if self._is_copilot_style:
            self.protocol.notify("didChangeStatus", status)

    async def _show_progress(self, is_loading: bool) -> None:
        """Show that the model is being loaded, for as long as it is."""
        if not is_loading:
            token, self._progress = self._progress, None
            is_shown, self._has_progress = self._has_progress, False
            if token is not None and is_shown:
                self.work_done_progress.end(token, types.WorkDoneProgressEnd())
            return
        window = self.client_capabilities.window
        if self._progress is not None or window is None or not window.work_done_progress:
            return
        # Before the client answers: by then it may be loading anew.
        token = self._progress = f"suture-{secrets.token_hex(4)}"
        try:
            await self.work_done_progress.create_async(token)
        except JsonRpcException:  # it may say no
            self._progress = None
            return
        if self._progress == token:
            self._has_progress = True
            begin = types.WorkDoneProgressBegin(title="Suture", message="loading the model")
            self.work_done_progress.begin(token, begin)

    async def _watch(self, process_id: int) -> None:
        """End with the editor, also where it leaves our standard input open."""
        while _is_alive(process_id):
            await asyncio.sleep(WATCH_S)
        self.counting.save()
        os._exit(1)

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        self.others.end()
        self.counting.end()
        self.completions.end()
        await self.client.close()
        self._presence.end()
        await asyncio.to_thread(self.counting.save)


def _merged(below: Json, above: Json) -> Json:
    """Options over options, section by section; null says nothing."""
    merged = dict(below)
    for name, value in above.items():
        if value is None:
            continue
        under = merged.get(name)
        is_section = isinstance(value, dict) and isinstance(under, dict)
        merged[name] = _merged(under, value) if is_section and under is not None else value
    return merged


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
