"""Healing by the interface of vLLM's model runner V1."""

from __future__ import annotations

from typing import Any

from vllm.v1.sample.logits_processor import (  # type: ignore[import-not-found]
    AdapterLogitsProcessor,
)

from suture.server.engine.remote.vllm_plugin.hosted import hosted_vocabulary, keep_only
from suture.server.engine.remote.vllm_plugin.pending import PendingBytes, pending_of


class Healing(AdapterLogitsProcessor):  # type: ignore[misc]
    """Masks what cannot say the pending bytes of those requests that name some."""

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        pending_of(sampling_params.extra_args)

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self._vocabulary = hosted_vocabulary(vllm_config)

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: Any) -> Any:
        pending = pending_of(params.extra_args)
        if not pending:
            return None
        rule = PendingBytes(self._vocabulary, pending)

        def mask(output_ids: list[int], row: Any) -> Any:
            # No more tokens than bytes are needed to say them.
            allowed = rule.allowed(output_ids[: len(pending)])
            if allowed is not None:
                keep_only(row, allowed)
            return row

        return mask
