from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.server.client import parse_events
from suture.server.sse import DONE, encode_json, event


@given(st.lists(st.text(st.sampled_from("a\n\r\u2028\x85é🎉"), max_size=4)), st.integers(1, 9))
def test_events_are_read_back_however_the_stream_is_cut(texts: list[str], size: int) -> None:
    stream = b"".join(event({"text": text}) for text in texts)
    pieces = [stream[i : i + size] for i in range(0, len(stream), size)]
    assert [read["text"] for read in parse_events(pieces)] == texts


def test_what_is_no_json_object_reads_as_an_empty_one() -> None:
    assert list(parse_events([DONE, b"data: [1]\n\n", b"data: {"])) == [{}, {}]


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\n\0"])
def test_any_text_is_encoded_as_json_that_reads_back(text: str) -> None:
    assert json.loads(encode_json({"text": text}).decode()) == {"text": text}
