"""What a model will take in memory, by the metadata of its file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.vocab import write_gguf
from suture.server.engine.footprint import context_bytes, file_context_length, model_bytes
from suture.server.errors import ModelError

# Qwen2.5-Coder 1.5B: 28.8 kB a token were measured.
QWEN: dict[str, object] = {
    "general.architecture": "qwen2",
    "qwen2.block_count": 28,
    "qwen2.context_length": 32768,
    "qwen2.embedding_length": 1536,
    "qwen2.attention.head_count": 12,
    "qwen2.attention.head_count_kv": 2,
}


def test_keys_and_values_of_each_layer_and_token_are_halves_of_a_word() -> None:
    assert context_bytes(QWEN, 4096) == 28 * 2 * (128 + 128) * 2 * 4096


def test_a_context_that_is_not_given_is_the_models_at_most_8192_in_steps_of_256() -> None:
    assert context_bytes(QWEN, 0) == context_bytes(QWEN, 8192)
    assert context_bytes(QWEN | {"qwen2.context_length": 512}, 0) == context_bytes(QWEN, 512)
    assert context_bytes(QWEN, 300) == context_bytes(QWEN, 512)


def test_a_file_says_what_its_context_will_be(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "qwen.gguf", QWEN, {})
    assert [file_context_length(path, "qwen2", n_ctx) for n_ctx in (0, 300)] == [8192, 512]
    small = write_gguf(tmp_path / "small.gguf", QWEN | {"qwen2.context_length": 2048}, {})
    assert [file_context_length(small, "qwen2", n_ctx) for n_ctx in (0, 4096)] == [2048, 4096]


def test_heads_may_be_wider_than_the_embedding_has_room_for_and_differ_by_layer() -> None:
    wide = {"qwen2.attention.key_length": 256, "qwen2.attention.value_length": 64}
    assert context_bytes(QWEN | wide, 256) == 28 * 2 * (256 + 64) * 2 * 256
    heads = {"qwen2.attention.head_count_kv": np.array([2] * 20 + [1] * 8, np.int32)}
    assert context_bytes(QWEN | heads, 256) == 48 * 256 * 2 * 256


def test_states_are_those_of_each_sequence_in_layers_without_heads() -> None:
    sizes = {"ssm.inner_size": 64, "ssm.state_size": 8, "ssm.conv_kernel": 4}
    mixed = {f"qwen2.{key}": value for key, value in sizes.items()}
    heads = {"qwen2.attention.head_count_kv": np.array([2] * 27 + [0], np.int32)}
    state = (64 * 8 + 3 * 64) * 4 * 9
    assert context_bytes(QWEN | mixed | heads, 256) == 54 * 256 * 2 * 256 + state


@pytest.mark.parametrize("metadata", [{}, {"general.architecture": "x", "x.block_count": "many"}])
def test_what_is_not_said_takes_nothing(metadata: dict[str, object]) -> None:
    assert context_bytes(metadata, 256) == 0


def test_a_file_that_is_no_model_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_text("no")
    for path, why in ((tmp_path / "x.gguf", "not a GGUF file"), (tmp_path / "y.gguf", "No such")):
        with pytest.raises(ModelError, match=why) as told:
            model_bytes(path, 0)
        with pytest.raises(ModelError, match=why):
            file_context_length(path, "qwen2", 0)
        assert "\n" not in str(told.value)
