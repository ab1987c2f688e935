"""Inference servers of others as engines: vLLM, llama-server, SGLang, TGI, any OpenAI server."""
