"""What clients ask and tell, each answered in a few lines."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from lsprotocol import types

from suture.lsp.bridge import SECTION, Bridge
from suture.lsp.documents import Position
from suture.lsp.protocol import INLINE, LIST
from suture.lsp.ranges import Item, Row
from suture.lsp.tally import Event, Mark
from suture.server.version import VERSION

Json = dict[str, Any]

DEFAULT_SNOOZE_MIN = 15
MAX_SNOOZE_MIN = 24 * 60
# What clients tell, by our names and by Copilot's.
EVENTS = {
    "suture/didShow": "shown",
    "textDocument/didShowCompletion": "shown",
    "suture/didPartiallyAccept": "partly_accepted",
    "textDocument/didPartiallyAcceptCompletion": "partly_accepted",
    "suture/didReject": "rejected",
    "textDocument/didFocus": "focused",
}


# Of which `suture stats` tells.
COUNTED: dict[str, Event] = {
    "shown": "shown",
    "partly_accepted": "partly_accepted",
    "rejected": "rejected",
}


def create_bridge(url: str | None = None) -> Bridge:
    """A language server that asks the server at `url`, or the one that its options name."""
    bridge = Bridge(url)
    # Bound with `partial`: pygls sets attributes on handlers, which methods have not.
    bridge.feature(types.INITIALIZE)(partial(_initialize, bridge))
    bridge.feature(types.INITIALIZED)(partial(_initialized, bridge))
    bridge.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)(partial(_configured, bridge))
    bridge.feature(types.TEXT_DOCUMENT_DID_SAVE)(partial(_saved, bridge))
    bridge.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)(partial(_moved, bridge))
    bridge.feature(INLINE, types.InlineCompletionOptions())(partial(_complete_inline, bridge))
    for method, event in EVENTS.items():
        bridge.protocol.on_told[method] = partial(_count, bridge, event)
    for name, command in COMMANDS.items():
        bridge.command(f"suture.{name}")(partial(command, bridge))
    return bridge


def _initialize(bridge: Bridge, params: types.InitializeParams) -> None:
    bridge.initialize(params)
    if bridge.completions.options.completion:
        bridge.feature(LIST, types.CompletionOptions())(partial(_complete_list, bridge))


def _initialized(bridge: Bridge, params: Any) -> None:
    bridge.begin(bridge.start())
    bridge.begin(bridge.hear_of_options())


def _configured(bridge: Bridge, params: types.DidChangeConfigurationParams) -> None:
    settings = params.settings
    if isinstance(settings, dict) and SECTION in settings:
        bridge.take_options(settings[SECTION])
    else:
        bridge.begin(bridge.pull_options())


def _saved(bridge: Bridge, params: types.DidSaveTextDocumentParams) -> None:
    bridge.others.saved(params.text_document.uri)


def _moved(bridge: Bridge, params: types.DidChangeWorkspaceFoldersParams) -> None:
    bridge.take_folders()


async def _complete_inline(
    bridge: Bridge, params: types.InlineCompletionParams
) -> types.InlineCompletionList:
    context = params.context
    is_automatic = context.trigger_kind is types.InlineCompletionTriggerKind.Automatic
    answered = await bridge.complete(
        bridge.protocol.cursor.get(), _row(context.selected_completion_info), is_automatic
    )
    marked = [] if answered is None else bridge.items(*answered)
    items = [
        types.InlineCompletionItem(
            insert_text=item.text,
            filter_text=item.filter_text,
            range=_range(item),
            command=_command(mark),
        )
        for item, mark in marked
    ]
    return types.InlineCompletionList(items=items)


async def _complete_list(bridge: Bridge, params: types.CompletionParams) -> types.CompletionList:
    """For editors without inline completions. The list is asked for anew with every key."""
    answered = await bridge.complete(bridge.protocol.cursor.get(), None, is_automatic=True)
    row = None if answered is None else bridge.row(*answered)
    if answered is None or row is None:
        return types.CompletionList(is_incomplete=True, items=[])
    item, mark = row
    suggestion = answered[1].suggestion
    assert suggestion is not None
    first_line = item.text.strip().split("\n")[0].strip()
    listed = types.CompletionItem(
        label=first_line,
        kind=types.CompletionItemKind.Snippet,
        detail="Suture",
        documentation=suggestion.text,
        sort_text="\uffff",  # behind what a language server knows
        filter_text=item.filter_text,
        text_edit=types.TextEdit(range=_range(item), new_text=item.text),
        insert_text_mode=types.InsertTextMode.AsIs,
        command=_command(mark),
    )
    return types.CompletionList(is_incomplete=True, items=[listed])


def _count(bridge: Bridge, event: str, params: Any) -> None:
    bridge.counts[event] += 1
    if event in COUNTED and bridge.completions.options.stats:
        bridge.counting.told(COUNTED[event], params)
    if event == "rejected":
        bridge.completions.dismiss(_document_in(params))
    elif event == "focused":
        document = params.get("textDocument") if isinstance(params, dict) else None
        uri = document.get("uri") if isinstance(document, dict) else None
        if isinstance(uri, str):
            bridge.others.opened(uri)


def _document_in(params: Any) -> str | None:
    """The URI of the document that a client tells of, as it comes, if it names one."""
    document = params.get("textDocument") if isinstance(params, dict) else None
    uri = document.get("uri") if isinstance(document, dict) else None
    return uri if isinstance(uri, str) else None


def _accepted(bridge: Bridge, *arguments: Any) -> None:
    if not arguments or not bridge.counting.tally.knows(arguments[0]):
        return
    bridge.counts["accepted"] += 1
    if bridge.completions.options.stats:
        bridge.counting.accepted(arguments[0])


def _toggle(bridge: Bridge, *arguments: Any) -> Json:
    """One language, or everything, the other way round; whether it is on now."""
    completions = bridge.completions
    language = arguments[0] if arguments else None
    if not arguments or isinstance(language, str):
        completions.switches = completions.switches.toggled(completions.options, language)
        bridge.status.switched()
    if isinstance(language, str):
        return {"enabled": completions.switches.has_language(completions.options, language)}
    return {"enabled": completions.switches.is_on(completions.options)}


def _snooze(bridge: Bridge, *arguments: Any) -> Json:
    """Nothing for so many minutes; 0 ends that. How many it is now."""
    minutes = arguments[0] if arguments else DEFAULT_SNOOZE_MIN
    is_number = isinstance(minutes, int | float) and not isinstance(minutes, bool)
    # Not a number is not at least 0, either.
    if not is_number or not minutes >= 0:
        return {"minutes": bridge.completions.snoozed_s / 60}
    minutes = float(min(minutes, MAX_SNOOZE_MIN))
    bridge.completions.snooze(time.monotonic() + 60 * minutes)
    bridge.status.switched()
    return {"minutes": minutes}


def _status(bridge: Bridge, *arguments: Any) -> Json:
    known = {"version": VERSION, "server": bridge.client.url, "counts": dict(bridge.counts)}
    return bridge.status.shown | known


async def _explain_last(bridge: Bridge, *arguments: Any) -> Json:
    return await bridge.explained()


def _clear_cache(bridge: Bridge, *arguments: Any) -> None:
    bridge.completions.forget()


async def _warm_up(bridge: Bridge, *arguments: Any) -> Json:
    if not arguments:
        return await bridge.warm_up(None)
    # What is no URI names no document.
    return await bridge.warm_up(arguments[0] if isinstance(arguments[0], str) else "")


COMMANDS = {
    "accepted": _accepted,
    "toggle": _toggle,
    "snooze": _snooze,
    "status": _status,
    "explainLast": _explain_last,
    "clearCache": _clear_cache,
    "warmup": _warm_up,
}


def _row(info: types.SelectedCompletionInfo | None) -> Row | None:
    if info is None:
        return None
    start, end = info.range.start, info.range.end
    return Row(Position(start.line, start.character), Position(end.line, end.character), info.text)


def _command(mark: Mark) -> types.Command:
    """What runs with an item that was accepted, and says of what it is a part."""
    return types.Command(title="Accepted", command="suture.accepted", arguments=[mark.as_json()])


def _range(item: Item) -> types.Range:
    return types.Range(
        types.Position(item.start.line, item.start.character),
        types.Position(item.end.line, item.end.character),
    )
