"""Tabby's bodies, field by field, and what its health says of the machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.fake_completer import MODEL
from support.http_server import Json, settings
from suture.server.errors import InvalidRequest
from suture.server.request import CompletionRequest, ExtraText
from suture.server.routes.delivery import Asked
from suture.server.routes.openai import CompletionsAnswer
from suture.server.routes.tabby import (
    MAX_SNIPPETS,
    MAX_TOKENS,
    SegmentsAnswer,
    TabbyDialect,
    cpu_name,
    nvidia_gpus,
)


def asked(body: Json) -> Asked:
    return TabbyDialect().parse(body, settings(), MODEL)


def parse(segments: Json | None = None, **fields: Any) -> CompletionRequest:
    return asked({"segments": {"prefix": "a"} | (segments or {})} | fields).request


def snippet(name: str) -> Json:
    return {"filepath": f"{name}.py", "body": name, "score": 0.5}


def test_segments_are_a_hole() -> None:
    request = parse({"suffix": "b", "filepath": "lib/a.py"}, language="python")
    assert (request.prefix, request.suffix, request.infill) == ("a", "b", True)
    assert (request.path, request.language) == ("lib/a.py", "python")
    assert (request.shape, request.on_incomplete) == ("auto", "drop")
    assert request.max_tokens == MAX_TOKENS
    assert request.sampling.temperature == 0.1 and request.sampling.seed is None


def test_sampling_fields_are_taken_over() -> None:
    sampling = parse(temperature=0.8, seed=2**64 - 1).sampling
    assert (sampling.temperature, sampling.seed) == (0.8, 2**64 - 1)


@pytest.mark.parametrize("suffix", [{}, {"suffix": None}, {"suffix": ""}])
def test_no_suffix_is_the_end_of_the_file(suffix: Json) -> None:
    request = parse(suffix)
    assert (request.suffix, request.infill) == ("", True)


def test_of_the_snippets_the_most_wanted_is_the_last() -> None:
    """Where there is no room for all, the first ones go."""
    segments = {
        "declarations": [snippet("d1"), snippet("d2")],
        "relevant_snippets_from_changed_files": [snippet("c1"), snippet("c2")],
        "relevant_snippets_from_recently_opened_files": [snippet("o1")],
    }
    extra = [ExtraText(name, f"{name}.py") for name in ("o1", "c2", "c1", "d2", "d1")]
    assert parse(segments).extra == tuple(extra)
    without = {"disable_retrieval_augmented_code_completion": True}
    assert parse(segments, debug_options=without).extra == ()


def test_what_tabby_only_logs_or_searches_with_changes_nothing() -> None:
    ignored = {"git_url": "https://git.example/a.git", "clipboard": "x", "edit_history": None}
    assert parse(ignored, mode="standard", stream=True, prompt="p") == parse()
    assert parse(ignored, user="ada") == replace(parse(), user="ada")
    assert not asked({"segments": {"prefix": "a"}, "stream": True}).streamed


def test_extension_fields_are_taken_over() -> None:
    request = parse({"filepath": "a.py"}, shape="line", layout="psm", path="b.py", session="s")
    assert (request.shape, request.layout, request.path) == ("line", "psm", "b.py")
    assert request.session == "s"


@pytest.mark.parametrize("body", [{"prompt": "a"}, {"prompt": "a", "segments": None}])
def test_a_body_without_segments_is_openais(body: Json) -> None:
    openai = asked(body)
    assert isinstance(openai.answer, CompletionsAnswer)
    assert (openai.request.infill, openai.request.max_tokens) == (False, 16)
    with_segments = asked(body | {"segments": {"prefix": "b"}})
    assert isinstance(with_segments.answer, SegmentsAnswer)
    assert with_segments.request.prefix == "b"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"mode": "next_edit_suggestion"}, "mode"),
        ({"debug_options": {"raw_prompt": ""}}, "debug_options.raw_prompt"),
        ({"debug_options": {"return_snippets": True}}, "debug_options.return_snippets"),
        ({"debug_options": {"return_prompt": True}}, "debug_options.return_prompt"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(fields: Json, field: str) -> None:
    with pytest.raises(InvalidRequest, match="not supported") as raised:
        parse(**fields)
    assert raised.value.field == field


def test_debug_options_that_ask_for_nothing_are_none() -> None:
    off = {"raw_prompt": None, "return_snippets": False, "return_prompt": False}
    assert parse(debug_options=off) == parse(debug_options={}) == parse(mode="other") == parse()


@pytest.mark.parametrize(
    ("segments", "field"),
    [
        ({"prefix": None}, "segments.prefix"),
        ({"prefix": 1}, "segments.prefix"),
        ({"prefix": "\ud800"}, "segments.prefix"),
        ({"suffix": ["b"]}, "segments.suffix"),
        ({"filepath": 1}, "segments.filepath"),
        ({"declarations": "x"}, "segments.declarations"),
        ({"declarations": [{"filepath": "a"}]}, "segments.declarations[0].body"),
        ({"declarations": [None]}, "segments.declarations[0]"),
        ({"declarations": [snippet("a")] * (MAX_SNIPPETS + 1)}, "segments.declarations"),
        (
            {"relevant_snippets_from_changed_files": [snippet("a"), {"filepath": 1, "body": ""}]},
            "segments.relevant_snippets_from_changed_files[1].filepath",
        ),
    ],
)
def test_segments_that_do_not_fit_are_refused_by_name(segments: Json, field: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse(segments)
    assert raised.value.field == field
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize("segments", [1, "x", [], True, {}])
def test_segments_that_are_none_are_refused(segments: Any) -> None:
    with pytest.raises(InvalidRequest) as raised:
        asked({"segments": segments, "prompt": "a"})
    assert (raised.value.field or "").startswith("segments")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1),
        ("temperature", "0"),
        ("seed", -2),
        ("seed", 1.5),
        ("mode", 1),
        ("language", 1),
        ("debug_options", []),
        ("debug_options", {"return_prompt": 1}),
        ("shape", "wide"),
        ("min_tokens", MAX_TOKENS + 1),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse(**{field: value})
    assert raised.value.field is not None and raised.value.field.startswith(field)


def test_the_machine_is_named_as_the_kernel_names_it(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\nmodel name\t: other\n")
    assert cpu_name(info) == "Some CPU @ 3 GHz"
    assert cpu_name(tmp_path / "none") != ""
    for name, model in (("0000:01:00.0", "A"), ("0000:02:00.0", "B 2")):
        (tmp_path / "gpus" / name).mkdir(parents=True)
        (tmp_path / "gpus" / name / "information").write_text(f"Model: \t\t {model}\nIRQ: 1\n")
    assert nvidia_gpus(tmp_path / "gpus") == ["A", "B 2"]
    assert nvidia_gpus(tmp_path / "none") == []
