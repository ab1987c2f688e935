"""The adapter of each kind of server."""

from __future__ import annotations

from collections.abc import Mapping

from suture.server.engine.remote.llama_server import LlamaServer
from suture.server.engine.remote.openai import OpenAI
from suture.server.engine.remote.openai_chat import OpenAIChat, Prefill
from suture.server.engine.remote.protocol import Adapter, BackendKind
from suture.server.engine.remote.sglang import SGLang
from suture.server.engine.remote.vllm import Vllm
from suture.server.errors import SetupError

# Its own API takes text and no token ids, and each new regular expression costs it an index of the
# whole vocabulary, seconds at a time: with every key pressed there is a new one.
_NO_TGI = (
    "Text Generation Inference is not supported by its own API: it takes no token ids, and"
    " constraints that change with every request cost it seconds; its OpenAI API is (kind openai)"
)


# Whose chats let the assistant's turn be begun, by whom they say that models are owned, and how.
_PREFILLS: Mapping[str, Prefill] = {
    "vllm": "continue",
    "sglang": "continue",
    "mistralai": "prefix",
    "deepseek": "prefix",
}


def adapter_of(kind: BackendKind, owner: str = "") -> Adapter:
    """How servers of this kind are spoken to; `owner` is whom their models are owned by.

    Raises `SetupError` for a kind that is not supported.
    """
    match kind:
        case "vllm":
            return Vllm()
        case "llama-server":
            return LlamaServer()
        case "sglang":
            return SGLang()
        case "openai":
            return OpenAI()
        case "openai-chat":
            return OpenAIChat(_PREFILLS.get(owner, "none"))
        case "tgi":
            raise SetupError(_NO_TGI)
