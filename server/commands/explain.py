"""`suture explain`: why a completion is what it is, and what is weak at the cursor.

Takes what `suture complete` takes. On a terminal it is in colour, unless NO_COLOR is set or TERM
says that it has none; bars are in ASCII where the encoding has no blocks. Characters that no
terminal should be sent are escaped.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from suture.server.client import ServerFailure
from suture.server.commands import exits
from suture.server.commands.asking import Json, add_question, choose, read_question
from suture.server.commands.flags import settings_of
from suture.server.request import EXPLAINED_TOKENS
from suture.server.settings import has_dumb_terminal

SUMMARY = "explain a completion: tokens, covers, methods, prompt"

_BAR = 24
# What is likelier than this is worth a word.
_SHOWN = 5e-4
_LISTED = 5e-6
_BLOCKS = " ▏▎▍▌▋▊▉█"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_question(parser, EXPLAINED_TOKENS)
    parser.add_argument("--json", action="store_true", help="print the answer of /v1/explain")


def run(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    _, body = read_question(args)
    with ExitStack() as stack:
        explanation = choose(args, settings, stack).explain(body)
    text = json.dumps(explanation, ensure_ascii=False) + "\n"
    encoding = "utf-8"
    if not args.json:
        console = Console(
            color_system=None if has_dumb_terminal() else "auto",
            highlight=False,
            emoji=False,
            markup=False,
        )
        encoding = console.encoding
        text = rendered(explanation, console)
    sys.stdout.buffer.write(text.encode(encoding, "backslashreplace"))
    sys.stdout.buffer.flush()
    return _status(explanation)


def _status(explanation: Json) -> int:
    if any(method["asked"] and method["text"] for method in explanation["methods"]):
        return exits.OK
    print(f"suture: no text: {explanation['reason'] or 'EMPTY'}", file=sys.stderr)
    return exits.NO_TEXT


def rendered(explanation: Json, console: Console) -> str:
    """An explanation as the console would show it. Raises `ServerFailure` where it is none."""
    try:
        parts = _View(console.encoding).parts(explanation)
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise ServerFailure(f"not an explanation: {type(error).__name__}") from None
    with console.capture() as captured:
        console.print(Group(*parts))
    return "\n".join(line.rstrip() for line in captured.get().split("\n"))


class _View:
    """An explanation's parts for a terminal of an encoding."""

    def __init__(self, encoding: str) -> None:
        self._has_blocks = _can_encode(_BLOCKS + "│‸", encoding)
        self._cursor, self._edge = ("‸", "│") if self._has_blocks else ("^", "|")

    def parts(self, explanation: Json) -> list[RenderableType]:
        parts = [*self._boundary(explanation), *self._covers(explanation)]
        parts += [*self._methods(explanation), *_diagnoses(explanation)]
        return [*parts, *self._prompt(explanation)]

    def _boundary(self, explanation: Json) -> list[RenderableType]:
        cursor, boundary = explanation["cursor"], explanation["boundary"]
        line = Text.assemble(
            visible(cursor["before"]), (self._cursor, "bold red"), visible(cursor["after"])
        )
        table = _grid()
        table.add_row("at the cursor", line)
        table.add_row("tokens as typed", self._tokens(boundary["typed"], "yellow"))
        kept = self._tokens(boundary["kept"], "green")
        if boundary["pending"]:
            kept = Text.assemble(kept, " ", (_quoted(boundary["pending"]), "bold magenta"))
            kept.append(f" pending, {_count(boundary['dropped_tokens'], 'token')} given back")
        table.add_row("tokens as kept", kept)
        return [table]

    def _tokens(self, tokens: list[Json], style: str) -> Text:
        if not tokens:
            return Text("none", "dim")
        shown = Text.assemble((self._edge, "dim"))
        for one in tokens:
            shown.append(visible(one["name"]), style)
            shown.append(f" {one['id']}{self._edge}", "dim")
        return shown

    def _covers(self, explanation: Json) -> list[RenderableType]:
        covers = explanation["covers"]
        if covers is None:
            return [_heading("covers"), Text("  none: nothing is healed exactly here", "dim")]
        evidence = covers["evidence"]
        table = _grid()
        likely = [one for one in covers["best"] if one["probability"] >= _LISTED]
        for cover in likely or covers["best"][:1]:
            spelled = Text(" + ").join(
                Text(_quoted(token["name"]), "cyan") for token in cover["tokens"]
            )
            end = Text.assemble("adds ", (_quoted(cover["overhang"]), "bold"))
            if cover["exact_end"]:
                likely = [one for one in cover["next"] if one["probability"] > _SHOWN]
                follows = [
                    f"{_quoted(one['token']['name'])} {_percent(one['probability'])}"
                    for one in likely or cover["next"][:1]
                ]
                end = Text("exact end: " + ", ".join(follows), "dim")
            share = cover["probability"]
            table.add_row(self._bar(share), _percent(share), spelled, end)
        if covers["others"] > _SHOWN:
            table.add_row(self._bar(covers["others"]), _percent(covers["others"]), "others", "")
        told = (
            f"  the model gives what is pending {_percent(evidence['probability'])}"
            f" ({evidence['bits_per_byte']:.1f} bits a byte);"
            f" {_count(len(covers['nodes']), 'node')}, tv_bound {covers['tv_bound']:.2g}"
        )
        return [_heading("covers"), table, Text(told, "dim"), *_tree(covers["nodes"])]

    def _bar(self, share: float) -> Text:
        n_eighths = round(max(0.0, min(1.0, share)) * _BAR * 8)
        if not self._has_blocks:
            return Text(("#" * round(n_eighths / 8)).ljust(_BAR), "blue")
        bar = _BLOCKS[-1] * (n_eighths // 8) + (_BLOCKS[n_eighths % 8] if n_eighths % 8 else "")
        return Text(bar.ljust(_BAR), "blue")

    def _methods(self, explanation: Json) -> list[RenderableType]:
        table = _grid()
        for method in explanation["methods"]:
            style = "bold" if method["asked"] else ""
            mark = "asked" if method["asked"] else ""
            why = method["reason"] or method["finish"]
            table.add_row(
                Text(method["name"], style),
                Text(mark, "bold green"),
                Text(method["level"], "dim"),
                Text(_quoted(method["text"]), style),
                Text(why, "dim"),
            )
        return [_heading("what each method makes of it"), table]

    def _prompt(self, explanation: Json) -> list[RenderableType]:
        prompt = explanation["prompt"]
        table = _grid()
        for segment in prompt["segments"]:
            share = segment["reused"] / segment["tokens"] if segment["tokens"] else 0.0
            n_tokens = _count(segment["tokens"], "token")
            table.add_row(segment["role"], n_tokens, f"{segment['reused']} from the cache")
            table.rows[-1].style = "green" if share == 1.0 else ""
        boundary = f", tail {prompt['boundary']}" if prompt["boundary"] else ""
        cut = ", text left out" if prompt["truncated"] else ""
        if prompt["excluded"]:
            cut += f", {_count(prompt['excluded'], 'chunk')} with secrets left out"
        told = (
            f"prompt: {prompt['layout']}{boundary}, {_count(prompt['tokens'], 'token')},"
            f" {prompt['reused']} from the cache{cut}"
        )
        return [_heading(told), table]


def _tree(nodes: list[Json]) -> list[RenderableType]:
    """The paths before the last token of every cover, each node with the probability of its own."""
    tree = Tree(Text("the cut", "dim"), guide_style="dim")
    branches: list[Tree] = []
    for node in nodes:
        at = branches[node["parent"]] if node["parent"] >= 0 else tree
        name, share = _quoted(node["token"]["name"]), _percent(node["probability"])
        branches.append(at.add(Text.assemble((name, "cyan"), f" {share}")))
    return [Padding(tree, (0, 0, 0, 2))] if nodes else []


def _diagnoses(explanation: Json) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for one in explanation["diagnoses"]:
        mark = ("healed ", "bold green") if one["healed"] else ("weak   ", "bold red")
        cure = "" if one["healed"] else f" {one['cure']}"
        parts.append(Text.assemble("  ", mark, (one["code"], "bold"), f": {one['found']}{cure}"))
    return [_heading("the boundary"), *parts] if parts else []


def _grid() -> Table:
    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.title_justify = "left"
    return table


def _heading(text: str) -> Text:
    return Text(f"\n{text}", "bold underline")


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _percent(share: float) -> str:
    percent = 100 * share
    if 0 < percent < 0.001:
        return "<0.001 %"
    return f"{percent:.1f} %" if percent >= 1 or not percent else f"{percent:.3f} %"


def _quoted(text: str) -> str:
    return f'"{visible(text)}"'


def visible(text: str) -> str:
    """`text` with what cannot be seen, or would move a terminal's cursor, as escapes."""
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _can_encode(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
