"""What clients ask servers of their dialect for and there is none of here, and what there is.

A 404: clients try again after a 5xx, and again, and it is never going to be there.
"""

from __future__ import annotations

_CHAT = 'there is no chat here: send "prompt" and "suffix" to /v1/completions, or ask /infill'
_OLLAMA_CHAT = 'there is no chat here: send "prompt" and "suffix" to /api/generate'
_EMBEDDINGS = "there are no embeddings here: this server completes text"
_RERANKING = "nothing is ranked here: this server completes text"
_MODELS = "models are not pulled, made or deleted over HTTP: use suture pull"
_TGI = 'send "prompt" and "suffix" to /v1/completions: this is no text-generation-inference'
_AGENT = "there is no agent here: Refact's /v1/code-completion is all of it"

_REASONS: dict[str, str] = {
    **dict.fromkeys(
        (
            "/chat/completions",
            "/v1/chat/completions",
            "/beta/chat/completions",
            "/v1/messages",
            "/v1/responses",
            "/v1beta/chat/completions",
        ),
        _CHAT,
    ),
    "/api/chat": _OLLAMA_CHAT,
    **dict.fromkeys(
        ("/embedding", "/embeddings", "/v1/embeddings", "/api/embed", "/api/embeddings"),
        _EMBEDDINGS,
    ),
    **dict.fromkeys(("/rerank", "/reranking", "/v1/rerank", "/v1/reranking"), _RERANKING),
    "/apply-template": "there are no chat templates here: a prompt is sent as it is to /completion",
    **dict.fromkeys(("/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete"), _MODELS),
    **dict.fromkeys(("/generate", "/generate_stream"), _TGI),
    **dict.fromkeys(("/v1/chat", "/v1/tools", "/v1/customization", "/v1/rag-status"), _AGENT),
}


def absence(path: str) -> str | None:
    """One line about why there is nothing at `path`, and what to ask instead, if that is known."""
    if path.startswith("/slots/"):
        return "slots are not saved or erased: the cache keeps what it has room for"
    return _REASONS.get(path.rstrip("/"))
