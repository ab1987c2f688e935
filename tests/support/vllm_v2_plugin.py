"""Our logits processor for vLLM's model runner V2, on vLLM's own classes and a test's tensors.

Run as `python vllm_v2_plugin.py MODEL_FOLDER` by the Python that vLLM is installed in.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]
from vllm.sampling_params import SamplingParams  # type: ignore[import-not-found]
from vllm.v1.worker.gpu.sample.logits_processor import (  # type: ignore[import-not-found]
    LogitsContext,
)
from vllm.v1.worker.gpu.sample.logits_processor.loader import (  # type: ignore[import-not-found]
    build_custom_logits_processors,
    build_custom_logits_processors_params_validator,
)

from suture.healing import Vocabulary
from suture.healing.reference import allowed_ids

PLUGIN = "suture.server.engine.remote.vllm_plugin.v2:Healing"
HEALED, PLAIN = 3, 1
PENDING = b" userNa"


def main() -> None:
    folder = Path(sys.argv[1])
    vocabulary = Vocabulary.from_tokenizer_json(folder / "tokenizer.json")
    states = request_states(vocabulary.n_vocab)
    model = SimpleNamespace(tokenizer=str(folder), tokenizer_revision=None)
    config = SimpleNamespace(model_config=model)
    (plugin,) = build_custom_logits_processors(config, states, False, [PLUGIN])
    params = SamplingParams(extra_args={"heal_hex": PENDING.hex()})
    build_custom_logits_processors_params_validator([PLUGIN])(params)
    assert plugin.add_request(HEALED, params)
    assert not plugin.add_request(PLAIN, SamplingParams())

    (user,), (name,) = vocabulary.ids_of(b" user"), vocabulary.ids_of(b"Name")
    unfinished = allowed_ids(vocabulary, b"Na")
    # One row each, the prompt read.
    assert masked(plugin, states, [(PLAIN, 0), (HEALED, 0)], []) == [
        None,
        allowed_ids(vocabulary, PENDING),
    ]
    # Drafts: a row for each, and what is drafted is taken for said in the rows behind it.
    assert masked(plugin, states, [(HEALED, 0), (HEALED, 1), (HEALED, 2)], [user, name]) == [
        allowed_ids(vocabulary, PENDING),
        unfinished,
        None,
    ]
    say(states, user)
    assert masked(plugin, states, [(HEALED, 0), (PLAIN, 0)], []) == [unfinished, None]
    say(states, name)
    assert masked(plugin, states, [(HEALED, 0)], []) == [None]
    # Of the slot's next request nothing is pending any more.
    assert not plugin.add_request(HEALED, SamplingParams())
    assert masked(plugin, states, [(HEALED, 0)], []) == [None]
    print("as V1")


def request_states(n_vocab: int) -> Any:
    """Four slots with prompts of five tokens, as the runner's buffers hold them."""
    tokens = SimpleNamespace(gpu=torch.full((4, 32), 7, dtype=torch.int32))
    lengths = np.full(4, 5, np.int32)
    return SimpleNamespace(
        device=torch.device("cpu"),
        max_num_reqs=4,
        vocab_size=n_vocab,
        all_token_ids=tokens,
        prompt_len=SimpleNamespace(np=lengths.copy()),
        prefill_len=SimpleNamespace(np=lengths.copy()),
        total_len=SimpleNamespace(gpu=torch.from_numpy(lengths.copy())),
    )


def say(states: Any, token_id: int) -> None:
    """A token of the answer, taken."""
    end = int(states.total_len.gpu[HEALED])
    states.all_token_ids.gpu[HEALED, end] = token_id
    states.total_len.gpu[HEALED] = end + 1


def masked(
    plugin: Any, states: Any, rows: list[tuple[int, int]], drafted: list[int]
) -> list[set[int] | None]:
    """For each row, of a slot and so many drafts behind what is said, what it leaves; None: all."""
    slots, offsets = (torch.tensor(values) for values in zip(*rows, strict=True))
    batch = np.unique(slots.numpy())
    ids = [drafted[offset - 1] if offset else 7 for _, offset in rows]
    context = LogitsContext(
        expanded_idx_mapping=slots,
        idx_mapping=torch.from_numpy(batch),
        idx_mapping_np=batch,
        expanded_local_pos=offsets,
        input_ids=torch.tensor(ids, dtype=torch.int32),
        pos=states.total_len.gpu[slots] - 1 + offsets,
        seq_lens_upper_bound_np=states.total_len.gpu.numpy()[batch],
    )
    before = torch.randn(len(rows), states.vocab_size)
    after = plugin.apply(before.clone(), context)
    left = [torch.isfinite(row) for row in after]
    for row, was, kept in zip(after, before, left, strict=True):
        assert torch.equal(row[kept], was[kept])
    return [None if kept.all() else set(kept.nonzero().flatten().tolist()) for kept in left]


if __name__ == "__main__":
    main()
