"""Healing by the interface of vLLM's model runner V2, which is the default on GPUs.

Written to what vLLM 0.32 documents and does, and tested on its classes; never run by a server, for
which that runner wants a GPU.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.worker.gpu.sample.logits_processor import (  # type: ignore[import-not-found]
    LogitsProcessor,
)

from suture.server.engine.remote.vllm_plugin.hosted import hosted_vocabulary, keep_only
from suture.server.engine.remote.vllm_plugin.pending import PendingBytes, pending_of


class Healing(LogitsProcessor):  # type: ignore[misc]
    """Masks what cannot say the pending bytes, by the slot of the request that named them.

    The tokens that have come lie on the device: they are read back while something is pending, one
    or two steps of a request, and not afterwards.
    """

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        self._vocabulary = hosted_vocabulary(vllm_config)
        self._states = req_states
        self._rules: dict[int, PendingBytes] = {}

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        pending_of(sampling_params.extra_args)

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        pending = pending_of(sampling_params.extra_args)
        self._rules.pop(req_idx, None)
        if pending:
            self._rules[req_idx] = PendingBytes(self._vocabulary, pending)
        return bool(pending)

    def apply(self, logits: Any, ctx: Any) -> Any:
        if not any(slot in self._rules for slot in ctx.idx_mapping_np.tolist()):
            return logits
        slots = ctx.expanded_idx_mapping.tolist()
        offsets = ctx.expanded_local_pos.tolist()
        for row, (slot, offset) in enumerate(zip(slots, offsets, strict=True)):
            rule = self._rules.get(slot)
            if rule is None:
                continue
            drafted = ctx.input_ids[row - offset + 1 : row + 1].tolist()
            allowed = rule.allowed([*self._said(slot), *drafted])
            if allowed is not None:
                keep_only(logits[row], allowed)
            elif not offset:
                # What has come is not taken back; what is only drafted may be.
                del self._rules[slot]
        return logits

    def _said(self, slot: int) -> list[int]:
        """The tokens of a request's answer so far."""
        begin, end = int(self._states.prompt_len.np[slot]), int(self._states.total_len.gpu[slot])
        said: list[int] = self._states.all_token_ids.gpu[slot, begin:end].tolist()
        return said
