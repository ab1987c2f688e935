"""Server-sent events: however the bytes come, the same events, and never more than a bound."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.server.engine.remote.event_stream import EventParser, EventTooLarge

# What servers send, and what the format allows beside it.
LINES = st.one_of(
    st.sampled_from(
        [b"", b"data", b"data:", b"data: ", b":", b": ping", b"event: x", b"data: [DONE]", b"id"]
    ),
    st.builds(lambda data: b"data: " + data, st.binary(max_size=8)),
    st.binary(max_size=6),
)
STREAMS = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r", b"\r\n"]))).map(
    lambda lines: b"".join(line + end for line, end in lines)
)


def oracle(stream: bytes) -> list[bytes]:
    """The events of a stream that is there as a whole, as the specification has it."""
    lines = re.split(rb"\r\n|\r|\n", stream.removeprefix(b"\xef\xbb\xbf"))[:-1]
    events, data = [], []
    for line in lines:
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value[1:] if value[:1] == b" " else value)
        if line == b"" and data:
            events.append(b"\n".join(data))
            data = []
    return events


def read(pieces: list[bytes]) -> list[bytes]:
    parser = EventParser()
    return [data for piece in pieces for data in parser.feed(piece)]


def split(stream: bytes, at: list[int]) -> list[bytes]:
    cuts = [0, *sorted(at), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(cuts)]


@given(stream=STREAMS, data=st.data())
def test_events_do_not_depend_on_where_the_bytes_are_split(
    stream: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    assert read(split(stream, at)) == oracle(stream)


@given(stream=STREAMS)
def test_each_byte_may_come_alone(stream: bytes) -> None:
    assert read([bytes([byte]) for byte in stream]) == oracle(stream)


def test_data_of_several_lines_is_one_event() -> None:
    assert read([b'data: {"a":\r\ndata:  1}\r\n\r\n']) == [b'{"a":\n 1}']


def test_an_event_is_there_with_its_last_byte_and_not_later() -> None:
    parser = EventParser()
    assert list(parser.feed(b"data: 1\r\n")) == []
    assert list(parser.feed(b"\r")) == [b"1"]
    assert list(parser.feed(b"\ndata: 2\n\n")) == [b"2"]


def test_comments_and_other_fields_are_no_events() -> None:
    assert read([b": ping\n\nevent: x\nid: 4\nretry: 1\n\ndata: 1\n: ping\ndata: 2\n\n"]) == [
        b"1\n2"
    ]


def test_an_event_that_the_stream_ends_in_is_none() -> None:
    assert read([b"data: 1\n\ndata: 2\n"]) == [b"1"]


@pytest.mark.parametrize("line", [b"data: x\n", b": x\n", b"x" * 16])
def test_what_never_ends_is_given_up(line: bytes) -> None:
    parser = EventParser(max_bytes=1000)
    with pytest.raises(EventTooLarge):
        for _ in range(1000):
            list(parser.feed(line))


def test_many_events_may_be_more_than_one_may() -> None:
    parser = EventParser(max_bytes=20)
    assert sum(len(list(parser.feed(b"data: 12345\n\n"))) for _ in range(100)) == 100
