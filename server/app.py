"""The ASGI application: routes, access, and errors in the dialect of their path."""

from __future__ import annotations

from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from suture.server.counters import ShownCounters, TenantCounters
from suture.server.errors import EngineError, SutureError
from suture.server.one_model import OneModel
from suture.server.recent import Recent
from suture.server.routes.absent import absence
from suture.server.routes.access import OPEN_PATHS, Access
from suture.server.routes.completer import Completer, Pool
from suture.server.routes.deepseek import DeepSeekDialect
from suture.server.routes.delivery import CompletionRoute, Dialect, error_response, public_error
from suture.server.routes.docs import DocsPage, Document
from suture.server.routes.explain import Explain
from suture.server.routes.llama_cpp import Health, LlamaCppDialect, Slots
from suture.server.routes.llama_cpp_completion import LlamaCppCompletionDialect
from suture.server.routes.llama_cpp_models import ModelLoading
from suture.server.routes.llama_cpp_props import Props, lora_adapters
from suture.server.routes.llama_cpp_tokens import Detokenize, Tokenize
from suture.server.routes.mistral import MistralDialect
from suture.server.routes.ollama import OllamaDialect
from suture.server.routes.ollama_models import RunningModels, ShownModel, Tags, api_version
from suture.server.routes.openai import OpenAIDialect
from suture.server.routes.openai_models import Models
from suture.server.routes.pages import page_routes
from suture.server.routes.refact import RefactDialect
from suture.server.routes.refact_caps import Caps, ping
from suture.server.routes.status import MetricsPage, Status
from suture.server.routes.tabby import Events, ServerSetting, TabbyDialect, TabbyHealth
from suture.server.settings import Settings
from suture.server.sse import LINES, encode_json
from suture.server.tenants import read_tenants

_MESSAGES = {404: "no such route", 405: "this route does not take this method"}


def dialect_of(path: str) -> Dialect:
    """The dialect that a client of `path` speaks."""
    if path.startswith("/api/"):
        return OllamaDialect()
    if path.startswith("/v1/fim/"):
        return MistralDialect()
    if path in ("/v1/code-completion", "/v1/ping", "/v1/caps"):
        return RefactDialect()
    return OpenAIDialect() if path.startswith(("/v1/", "/v1beta/", "/beta/")) else LlamaCppDialect()


def create_app(served: Pool | Completer, settings: Settings) -> Starlette:
    """The application that answers with the models of a pool, or with the one of a completer.

    `settings` are the defaults of requests that say nothing. Raises `SetupError` where the files
    of API keys and tenants cannot be read.
    """
    tenants = read_tenants(settings)
    counted = TenantCounters()
    for tenant in tenants.all:  # so that there are rates from the start
        counted.requests.update({(tenant.name, "accepted"): 0, (tenant.name, "refused"): 0})
    pool = served if isinstance(served, Pool) else OneModel(served)
    models, loading = Models(pool), ModelLoading(pool)
    recent, shown = Recent(), ShownCounters()
    completions = partial(CompletionRoute, pool=pool, settings=settings, recent=recent)
    completion = completions(LlamaCppCompletionDialect())
    routes = [
        Route("/infill", completions(LlamaCppDialect()), methods=["POST"]),
        Route("/completion", completion, methods=["POST"]),
        Route("/completions", completion, methods=["POST"]),
        Route("/tokenize", Tokenize(pool), methods=["POST"]),
        Route("/detokenize", Detokenize(pool), methods=["POST"]),
        Route("/props", Props(pool).get),
        Route("/lora-adapters", lora_adapters),
        Route("/v1/completions", completions(TabbyDialect()), methods=["POST"]),
        Route("/v1/events", Events(shown).post, methods=["POST"]),
        Route("/v1/health", TabbyHealth(pool, settings).get, methods=["GET", "POST"]),
        Route("/v1beta/server_setting", ServerSetting().get),
        Route("/v1/code-completion", completions(RefactDialect()), methods=["POST"]),
        # As Refact's engine has it, its answer is no JSON, whatever its type says.
        Route("/v1/ping", ping, include_in_schema=False),
        Route("/v1/caps", Caps(pool).get),
        Route("/api/generate", completions(OllamaDialect(), framing=LINES), methods=["POST"]),
        Route("/api/show", ShownModel(pool).post, methods=["POST"]),
        Route("/api/tags", Tags(pool).get),
        Route("/api/ps", RunningModels(pool).get),
        Route("/api/version", api_version),
        Route("/v1/fim/completions", completions(MistralDialect()), methods=["POST"]),
        Route("/beta/completions", completions(DeepSeekDialect()), methods=["POST"]),
        Route("/v1/explain", Explain(OpenAIDialect(), pool, settings), methods=["POST"]),
        *page_routes(),
        Route("/openapi.json", Document(dialect_of, OPEN_PATHS).get),
        Route("/docs", DocsPage().get),
        Route("/health", Health(pool, settings).get),
        Route("/metrics", MetricsPage(pool, shown, counted).get),
        Route("/slots", Slots(pool).get),
        Route("/v1/models", models.get),
        # Names may have slashes in them.
        Route("/v1/models/{id:path}", models.get_one),
        Route("/models", models.get),
        Route("/models/load", loading.load, methods=["POST"]),
        Route("/models/unload", loading.unload, methods=["POST"]),
        Route("/v1/status", Status(pool, settings, recent, shown).get),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Access, settings, dialect_of, tenants, counted)],
        exception_handlers={
            HTTPException: _http_error,
            SutureError: _error,
            ClientDisconnect: _nobody,
            Exception: _unforeseen,
        },
    )


async def _http_error(request: Request, raised: Exception) -> Response:
    """No such route, or a wrong method."""
    assert isinstance(raised, HTTPException)
    absent = absence(request.url.path) if raised.status_code == 404 else None
    message = absent or _MESSAGES.get(raised.status_code, raised.detail)
    error = dialect_of(request.url.path).error_body(raised.status_code, message, None)
    return Response(
        encode_json(error), raised.status_code, raised.headers, media_type="application/json"
    )


async def _error(request: Request, raised: Exception) -> Response:
    return error_response(dialect_of(request.url.path), public_error(raised))


async def _unforeseen(request: Request, raised: Exception) -> Response:
    """What Starlette raises once more behind the answer, so that uvicorn logs it."""
    return error_response(dialect_of(request.url.path), EngineError("internal error"))


async def _nobody(request: Request, raised: Exception) -> Response:
    """The client left while its body was read: the answer goes nowhere."""
    return Response(status_code=499)
