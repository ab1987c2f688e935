"""Stop strings as one automaton over bytes (Aho and Corasick), shared by all that use them.

A state is the longest suffix of what was read that begins some stop string. Bytes are enough:
a stop string begins with a whole character, so it is never found inside another one.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

MAX_STOPS = 128
MAX_STOP_BYTES = 8192


class OnStop(enum.Enum):
    """Whether the stop string that ends the text is part of it."""

    EXCLUDE = enum.auto()
    INCLUDE = enum.auto()


class StopSet:
    """The automaton of some stop strings; state 0 has read nothing of any.

    Raises `ValueError` for an empty stop string, one with a lone surrogate, more than 128, or
    more than 8 KiB of them.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = tuple(dict.fromkeys(stops))
        patterns = [_pattern(stop) for stop in self.stops]
        if len(patterns) > MAX_STOPS:
            raise ValueError(f"{len(patterns)} stop strings, and at most {MAX_STOPS} are taken")
        n_bytes = sum(map(len, patterns))
        if n_bytes > MAX_STOP_BYTES:
            raise ValueError(
                f"stop strings of {n_bytes} bytes, and at most {MAX_STOP_BYTES} together are taken"
            )
        children, depths = _trie(patterns)
        self.rows, fails = _rows(children)
        # Per state: the stop that is complete there (the longest), else -1.
        self.completed = [-1] * len(children)
        for index, pattern in enumerate(patterns):
            self.completed[self._walk(pattern)] = index
        # Per state: how many of the last bytes may yet become a stop, not counting whole ones.
        self.holds = [-1] * len(children)
        for state, depth in enumerate(depths):
            if children[state] or not state:
                self.holds[state] = depth
        for state in _breadth_first(children):
            if self.completed[state] < 0:
                self.completed[state] = self.completed[fails[state]]
            if self.holds[state] < 0:
                self.holds[state] = self.holds[fails[state]]
        self.lengths = [len(pattern) for pattern in patterns]

    def _walk(self, data: bytes) -> int:
        state = 0
        for byte in data:
            state = self.rows[state][byte]
        return state


def _pattern(stop: str) -> bytes:
    if not stop:
        raise ValueError("a stop string is empty, and must have a character or more")
    try:
        return stop.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"stop string {stop!a} has a lone surrogate at {error.start}") from None


def _trie(patterns: Sequence[bytes]) -> tuple[list[dict[int, int]], list[int]]:
    """Children and depth of every state."""
    children: list[dict[int, int]] = [{}]
    depths = [0]
    for pattern in patterns:
        state = 0
        for byte in pattern:
            if byte not in children[state]:
                children[state][byte] = len(children)
                children.append({})
                depths.append(depths[state] + 1)
            state = children[state][byte]
    return children, depths


def _rows(children: Sequence[dict[int, int]]) -> tuple[list[list[int]], list[int]]:
    """The next state for every state and byte, and the state of the next shorter suffix."""
    rows = [[0] * 256 for _ in children]
    fails = [0] * len(children)
    for state in _breadth_first(children):
        rows[state] = rows[fails[state]][:] if state else rows[0]
        for byte, child in children[state].items():
            fails[child] = rows[fails[state]][byte] if state else 0
            rows[state][byte] = child
    return rows, fails


def _breadth_first(children: Sequence[dict[int, int]]) -> list[int]:
    order = [0]
    for state in order:
        order.extend(children[state].values())
    return order
