"""llama.cpp's dialect: `POST /tokenize` and `POST /detokenize`.

Both are as llama-server has them: text in which control tokens stand by their own text is parsed
unless `parse_special` is false, and tokens are shown with the text of control tokens. A piece that
is no whole text is the list of its bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from suture.server.codec import Specials
from suture.server.errors import Loading
from suture.server.openapi.operation import Operation
from suture.server.routes.asker import user_of
from suture.server.routes.body import read_json, validate
from suture.server.routes.completer import Completer, Pool, model_asked_for
from suture.server.routes.delivery import error_response, public_error, while_connected
from suture.server.routes.fields import Count, ModelFields, Text, check_token_id
from suture.server.routes.limits import places_of
from suture.server.routes.llama_cpp import LlamaCppDialect
from suture.server.routes.shapes.llama_cpp import LlamaCppContent, LlamaCppTokens
from suture.server.sse import encode_json
from suture.server.token_texts import TokenTexts

# A second of the slowest tokenizer's time, perhaps.
MAX_CONTENT_BYTES = 2**20
MAX_TOKENS = 2**18


def _bounded(content: str) -> str:
    n_bytes = len(content.encode("utf-8", "replace"))
    if n_bytes > MAX_CONTENT_BYTES:
        raise ValueError(f"must be at most {MAX_CONTENT_BYTES} bytes, not {n_bytes}")
    return content


class TokenizeBody(ModelFields):
    """The body of `POST /tokenize`."""

    content: Annotated[
        Text,
        AfterValidator(_bounded),
        WithJsonSchema({"type": "string", "maxLength": MAX_CONTENT_BYTES}),
    ]
    add_special: bool = Field(
        default=False, description="The tokens begin as the model's prompts do."
    )
    parse_special: bool = Field(
        default=True, description="Control tokens that stand in the text are tokens, not text."
    )
    with_pieces: bool = Field(default=False, description="Each token with what it says.")


class DetokenizeBody(ModelFields):
    """The body of `POST /detokenize`."""

    tokens: Annotated[list[Count], Field(max_length=MAX_TOKENS, fail_fast=True)]


class _Question(ABC):
    """ASGI endpoint that answers a body with what the model's tokenizer says."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await read_json(Request(scope, receive))
            with places_of(scope).take(user=user_of(scope)):
                await while_connected(receive, self._respond(body, scope, receive, send))
        except ClientDisconnect:
            return
        except Exception as raised:
            error = public_error(raised)
            await error_response(LlamaCppDialect(), error)(scope, receive, send)

    async def _respond(
        self, body: dict[str, Any], scope: Scope, receive: Receive, send: Send
    ) -> None:
        with model_asked_for(self._pool, body).lease() as completer:
            answer = encode_json(await self._answer(body, completer))
        await Response(answer, media_type="application/json")(scope, receive, send)

    @abstractmethod
    async def _answer(self, body: dict[str, Any], completer: Completer) -> object:
        """The body of the response; raises a `SutureError`."""


class Tokenize(_Question):
    """`POST /tokenize`."""

    operation = Operation(
        "llama.cpp",
        "The tokens of a text",
        (TokenizeBody,),
        LlamaCppTokens,
        statuses=(503,),
        example={"content": "import numpy", "with_pieces": True},
    )

    async def _answer(self, body: dict[str, Any], completer: Completer) -> object:
        asked = validate(TokenizeBody, body)
        tokens = _tokens(completer)
        specials: Specials = "parse" if asked.parse_special else "spell"
        ids = [*await completer.tokenize(asked.content, specials)]
        if asked.add_special:
            ids = [*tokens.opening_ids, *ids]
        if not asked.with_pieces:
            return {"tokens": ids}
        return {"tokens": [{"id": i, "piece": _piece(tokens.shown(i))} for i in ids]}


class Detokenize(_Question):
    """`POST /detokenize`."""

    operation = Operation(
        "llama.cpp",
        "The text of tokens",
        (DetokenizeBody,),
        LlamaCppContent,
        statuses=(503,),
        example={"tokens": [1, 2, 3]},
    )

    async def _answer(self, body: dict[str, Any], completer: Completer) -> object:
        asked = validate(DetokenizeBody, body)
        tokens = _tokens(completer)
        n_vocab = tokens.vocabulary.n_vocab
        pieces = [tokens.shown(check_token_id(i, n_vocab, "tokens")) for i in asked.tokens]
        return {"content": b"".join(pieces).decode("utf-8", "replace")}


def _tokens(completer: Completer) -> TokenTexts:
    tokens = completer.model.tokens
    if tokens is None:
        raise Loading("Loading model", retry_after=2)
    return tokens


def _piece(piece: bytes) -> str | list[int]:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)
