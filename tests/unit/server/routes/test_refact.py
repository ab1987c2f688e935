"""Refact's bodies, field by field, and places in files."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fake_completer import MODEL
from support.http_server import Json, settings
from suture.server.errors import InvalidRequest
from suture.server.request import CompletionRequest, ExtraText
from suture.server.routes.refact import MAX_SOURCES, Cursor, CursorPlace, RefactDialect, place_of

FILE = "/home/user/site/a.py"
TEXT = "def f():\n    return \n\nprint(f())\n"


def body(inputs: Json | None = None, **fields: Any) -> Json:
    cursor = {"file": FILE, "line": 1, "character": 11}
    return {
        "inputs": {"sources": {FILE: TEXT}, "cursor": cursor, "multiline": False} | (inputs or {})
    } | fields


def parse(inputs: Json | None = None, **fields: Any) -> CompletionRequest:
    return RefactDialect().parse(body(inputs, **fields), settings(), MODEL).request


def at(line: int, character: int, text: str) -> CursorPlace:
    return place_of(Cursor(file="a", line=line, character=character), text)


def test_a_place_in_a_file_is_a_hole() -> None:
    request = parse()
    assert (request.prefix, request.suffix) == ("def f():\n    return ", "\n\nprint(f())\n")
    assert request.infill and request.path == FILE and request.extra == ()
    assert (request.shape, request.on_incomplete, request.max_tokens) == ("line", "drop", 50)
    assert (request.sampling.temperature, request.sampling.top_p, request.n) == (0.2, 1, 1)
    assert parse({"multiline": True}).shape == "auto"


def test_parameters_are_taken_over() -> None:
    parameters = {"temperature": 0, "max_new_tokens": 9, "stop": ["x", ""], "top_p": 0.5, "n": 2}
    request = parse(parameters=parameters)
    assert (request.sampling.temperature, request.sampling.top_p) == (0, 0.5)
    assert (request.max_tokens, request.stop, request.n) == (9, ("x",), 2)
    assert parse(parameters={"max_new_tokens": 0}).max_tokens == 50
    assert parse(parameters={"max_new_tokens": 10**9}).max_tokens == MODEL.n_ctx
    assert parse(parameters=dict.fromkeys(parameters)) == parse(parameters={}) == parse()


def test_the_other_sources_are_text_from_other_files() -> None:
    sources = {"/home/user/site/b.py": "b", FILE: TEXT, "c.py": "c"}
    extra = (ExtraText("b", "/home/user/site/b.py"), ExtraText("c", "c.py"))
    assert parse({"sources": sources}).extra == extra


def test_what_refact_has_an_index_or_a_cache_for_changes_nothing() -> None:
    ignored: Json = {"no_cache": True, "use_ast": True, "use_vecdb": True, "rag_tokens_n": 500}
    assert parse(**ignored, model="other", client="vscode-6.5.0") == parse()


def test_extension_fields_are_taken_over() -> None:
    request = parse(shape="block", healing="off", language="python", path="b.py")
    assert (request.shape, request.healing) == ("block", "off")
    assert (request.language, request.path) == ("python", "b.py")


@pytest.mark.parametrize(
    ("line", "character", "text", "place"),
    [
        (0, 0, "", ("", "", 0)),
        (0, 3, "abc", ("abc", "", 0)),
        (1, 0, "abc\n", ("abc\n", "", 0)),
        (1, 1, "a\r\nb\r\nc", ("a\r\nb", "\r\nc", 0)),
        (2, 1, "a\rb\rcd", ("a\rb\rc", "d", 0)),
        # A code point each, where others count one as two.
        (0, 2, "\U0001f600\u00e9x", ("\U0001f600\u00e9", "x", 0)),
        # No editor ends a line there.
        (0, 4, "a\fb\u2028c", ("a\fb\u2028", "c", 0)),
        # What the client replaces is not shown.
        (0, 3, 'f("")\nx', ('f("', "\nx", 2)),
        (0, 2, "f()  \nx", ("f(", "\nx", 3)),
        (0, 0, "    \r\nx", ("", "\r\nx", 4)),
        (0, 2, "f(a)\n", ("f(", "a)\n", 0)),
    ],
)
def test_lines_and_characters_count_from_zero(
    line: int, character: int, text: str, place: tuple[str, str, int]
) -> None:
    assert at(line, character, text) == CursorPlace(*place)


@given(st.text(st.sampled_from("ab(\n\r\U0001f600\u2028"), max_size=12), st.data())
def test_every_place_of_a_text_can_be_asked_for(text: str, data: st.DataObject) -> None:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    line = data.draw(st.integers(0, len(lines) - 1))
    character = data.draw(st.integers(0, len(lines[line])))
    place = at(line, character, text)
    before = place.prefix.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert (len(before) - 1, before[-1]) == (line, lines[line][:character])
    assert text.startswith(place.prefix) and text.endswith(place.suffix)
    assert len(place.prefix) + place.replaced + len(place.suffix) == len(text)
    with pytest.raises(InvalidRequest, match=f"must be at most {len(lines[line])}, the end of"):
        at(line, len(lines[line]) + 1, text)
    with pytest.raises(InvalidRequest, match=f"must be at most {len(lines) - 1}, the last line"):
        at(len(lines), 0, text)


@pytest.mark.parametrize(
    ("inputs", "field"),
    [
        ({"multiline": None}, "inputs.multiline"),
        ({"multiline": 1}, "inputs.multiline"),
        ({"sources": None}, "inputs.sources"),
        ({"sources": [TEXT]}, "inputs.sources"),
        ({"sources": {FILE: None}}, "inputs.sources"),
        ({"sources": {FILE: "\ud800"}}, "inputs.sources"),
        ({"sources": {FILE: TEXT, "\ud800": ""}}, "inputs.sources"),
        ({"sources": {}}, "inputs.cursor.file"),
        ({"sources": {str(i): "" for i in range(MAX_SOURCES + 1)}}, "inputs.sources"),
        ({"cursor": None}, "inputs.cursor"),
        ({"cursor": {"file": FILE, "line": 0}}, "inputs.cursor.character"),
        ({"cursor": {"file": FILE, "line": -1, "character": 0}}, "inputs.cursor.line"),
        ({"cursor": {"file": FILE, "line": 5, "character": 0}}, "inputs.cursor.line"),
        ({"cursor": {"file": FILE, "line": 2**31 - 1, "character": 0}}, "inputs.cursor.line"),
        ({"cursor": {"file": FILE, "line": 0, "character": 9}}, "inputs.cursor.character"),
        ({"cursor": {"file": FILE, "line": 0, "character": -1}}, "inputs.cursor.character"),
        ({"cursor": {"file": FILE, "line": "0", "character": 0}}, "inputs.cursor.line"),
        ({"cursor": {"file": "b.py", "line": 0, "character": 0}}, "inputs.cursor.file"),
    ],
)
def test_a_place_that_is_none_is_refused_by_name(inputs: Json, field: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse(inputs)
    assert raised.value.field == field
    assert FILE not in str(raised.value) and len(str(raised.value)) < 200


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"parameters": []}, "parameters"),
        ({"parameters": {"temperature": -1}}, "parameters.temperature"),
        ({"parameters": {"max_new_tokens": -1}}, "parameters.max_new_tokens"),
        ({"parameters": {"stop": {}}}, "parameters.stop"),
        ({"parameters": {"stop": [1]}}, "parameters.stop[0]"),
        ({"parameters": {"n": 17}}, "parameters.n"),
        ({"stream": 1}, "stream"),
        ({"shape": "wide"}, "shape"),
        ({"min_tokens": 51}, "min_tokens"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(fields: Json, field: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse(**fields)
    assert raised.value.field == field


@pytest.mark.parametrize("without", [{}, {"inputs": None}, {"inputs": []}, {"inputs": "x"}])
def test_a_body_without_inputs_is_refused(without: Json) -> None:
    with pytest.raises(InvalidRequest) as raised:
        RefactDialect().parse(without, settings(), MODEL)
    assert raised.value.field == "inputs"
