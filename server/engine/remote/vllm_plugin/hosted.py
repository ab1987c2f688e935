"""What both of vLLM's interfaces need: the vocabulary of the model served, a mask over a row.

This runs in vLLM's process, with what vLLM brings.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found]
from transformers.utils import cached_file  # type: ignore[import-not-found]

from suture.healing import Vocabulary
from suture.healing.vocabulary import TokenIds


def hosted_vocabulary(vllm_config: Any) -> Vocabulary:
    """The vocabulary of the served model, out of its `tokenizer.json`.

    Raises what the file or its lack gives rise to: the server does not start then.
    """
    model = vllm_config.model_config
    path = cached_file(model.tokenizer, "tokenizer.json", revision=model.tokenizer_revision)
    return Vocabulary.from_tokenizer_json(Path(path))


def keep_only(row: Any, token_ids: TokenIds) -> None:
    """Leave in a row of logits what these tokens have; tokens without a logit are passed over."""
    kept = torch.from_numpy(token_ids[token_ids < row.shape[-1]]).to(row.device)
    values = row[kept]
    row.fill_(float("-inf"))
    row[kept] = values
