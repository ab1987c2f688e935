"""What a vLLM server lets follow while bytes are pending. That it does: tests/real_vllm."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import pytest

from support.vocab import byte_level, of_pieces, with_specials, without_single_bytes
from suture.healing import Vocabulary
from suture.healing.reference import allowed_ids
from suture.server.engine.remote.vllm_plugin.pending import MAX_BYTES, PendingBytes, pending_of


def allowed(vocabulary: Vocabulary, pending: bytes, token_ids: list[int]) -> set[int] | None:
    ids = PendingBytes(vocabulary, pending).allowed(token_ids)
    return None if ids is None else set(ids.tolist())


@pytest.mark.parametrize("pending", [b" user", b"    re", "é".encode(), "我".encode()[:2], b"\n\t"])
def test_what_may_follow_is_what_the_recursive_rule_allows(pending: bytes) -> None:
    vocabulary, encode = byte_level()
    said: list[int] = []
    left = pending
    while left:
        assert allowed(vocabulary, pending, said) == allowed_ids(vocabulary, left)
        said.append(encode(left)[0] if left.isascii() else vocabulary.ids_of(left[:1])[0])
        left = left[len(vocabulary.bytes_of(said[-1])) :]
    assert allowed(vocabulary, pending, said) is None


def test_all_may_follow_once_the_pending_bytes_have_come() -> None:
    vocabulary = of_pieces([b"n", b"na", b"name", b"a", b"x"])

    assert allowed(vocabulary, b"na", []) == {0, 1, 2}
    assert allowed(vocabulary, b"na", [0]) == {3}
    assert allowed(vocabulary, b"na", [2]) is None
    assert allowed(vocabulary, b"na", [0, 3, 4, 4]) is None


def test_no_token_that_has_no_text_or_is_markup_may_say_what_is_pending() -> None:
    assert allowed(with_specials(), b"<", []) == {8}


def test_where_another_token_came_or_none_can_nothing_is_constrained() -> None:
    vocabulary = of_pieces([b"n", b"na", b"name", b"a", b"x"])

    assert allowed(vocabulary, b"na", [4]) is None
    assert allowed(vocabulary, b"na", [99]) is None
    assert allowed(without_single_bytes(), b"ab  d ", []) is None
    assert allowed(vocabulary, b"", []) is None


@pytest.mark.parametrize(
    ("extra_args", "pending"),
    [
        (None, b""),
        ({}, b""),
        ({"other": 1}, b""),
        ({"heal_hex": ""}, b""),
        ({"heal_hex": "20757365"}, b" use"),
        ({"heal_hex": "C3"}, b"\xc3"),
    ],
)
def test_a_request_says_in_hexadecimal_what_is_pending(
    extra_args: Mapping[str, object] | None, pending: bytes
) -> None:
    assert pending_of(extra_args) == pending


@pytest.mark.parametrize(
    "value", ["2", "user", 20, None, ["20"], b"20", "é", "00" * MAX_BYTES + "0a"]
)
def test_what_is_not_is_refused_before_it_is_in_the_engine(value: object) -> None:
    with pytest.raises(ValueError, match="heal_hex must"):
        pending_of({"heal_hex": value})


def test_the_rule_can_be_imported_where_only_vllm_is_installed() -> None:
    brought_by_vllm = {"numpy", "tiktoken", "tiktoken_ext", "regex", "requests"}
    code = (
        "import sys; before = set(sys.modules)\n"
        "import suture.server.engine.remote.vllm_plugin.pending\n"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before}"
        " - set(sys.stdlib_module_names))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "suture" in told
    assert not {name for name in told if not name.startswith("_")} - brought_by_vllm - {"suture"}
