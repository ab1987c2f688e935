"""Healing inside a vLLM server, where a mask over the logits may be anything: the strict mode.

vLLM's structured outputs force the pending bytes, too, but as a grammar of text: what follows must
be UTF-8, and what is pending whole characters. A logits processor of one's own has no such bounds,
costs no compilation, and applies the very rule of `suture.healing.healer`. It has to be named when
the server is started, and this package must be importable there, which asks for nothing that vLLM
does not bring (``pip install --no-deps``):

    vllm serve MODEL --logits-processors suture.server.engine.remote.vllm_plugin.v1:Healing

with ``v2`` in place of ``v1`` where vLLM runs its model runner V2, as it does on GPUs. A request
then says what is pending as ``"vllm_xargs": {"heal_hex": "20757365724e61"}``; one that does not is
not touched. What is not UTF-8 may be pending.

  pending   what may come next, from the tokens that have come (pure)
  hosted    the vocabulary of the model that vLLM serves, a mask over its logits
  v1, v2    vLLM's two interfaces; they import vLLM, and nothing of ours imports them
"""
