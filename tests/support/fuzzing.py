"""Requests that schemathesis makes of a server's document, and what is said of the answers."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import schemathesis
from schemathesis import Case, CheckContext, CheckFunction, Response

from support.openapi import Document

# What is refused though the schema lets it through, as none can say it.
_BEYOND_SCHEMAS = re.compile(
    "|".join(
        (
            "token ids from 0",
            "must be whole text: it ends inside a character",
            "must be text: its tokens' bytes are not UTF-8",
            "item .* is a token that no text has",
            "grammar",  # what is none, one beside another, and all but texts, without a model
            "the tokens asked for",
            "bytes together",
            "last line of the file|end of the line",
            "the model that is served",
            "post_sampling_probs",  # beside n_probs
            "there is no chat here|beside .*raw",
            "cannot be unloaded",  # but by the server that runs it
            "must name no sampler twice",  # some have several names
            "with several prompts|control tokens in no order|other than .*n.* is not supported",
        )
    )
)


# In the place of the last stands `accepted_or_beyond_schemas`.
LEFT_OUT = "positive_data_acceptance"


def config(max_examples: int, at_every_limit: Collection[str]) -> schemathesis.Config:
    """Data that a document allows, and data that it forbids; the same each time.

    On the paths `at_every_limit` each field is also asked for at and over its limits.
    """
    elsewhere = {"exclude-path": [*at_every_limit], "phases": {"coverage": {"enabled": False}}}
    return schemathesis.Config.from_dict(
        {
            # There are no keys to guess.
            "generation": {
                "max-examples": max_examples,
                "deterministic": True,
                "with-security-parameters": False,
            },
            "checks": {LEFT_OUT: {"enabled": False}},
            "operations": [elsewhere],
        }
    )


def make_sensible(case: Case[Any], n_vocab: int) -> None:
    """What no schema can say of a body, so that what it asks for is more than to be refused."""
    body: Any = case.body
    if not isinstance(body, dict) or case.meta is None or not case.meta.generation.mode.is_positive:
        return
    if case.path.startswith("/api/") and body.get("model"):
        body["model"] = "toy"
    for field in ("tokens", "prompt", "stop_token_ids"):
        if isinstance(body.get(field), list):
            body[field] = [_known(item, n_vocab) for item in body[field]]
    if case.path == "/v1/code-completion":
        sources, cursor = body["inputs"]["sources"], body["inputs"]["cursor"]
        sources.setdefault(cursor["file"], "def area(w, h):\n    return \n")
        cursor["line"] %= 1 + len(sources[cursor["file"]].splitlines())


def _known(token: Any, n_vocab: int) -> Any:
    return token % n_vocab if type(token) is int else token


def described() -> CheckFunction:
    """Checks that streams too are as described, and that an answer has nothing else in it."""
    documents: list[Document] = []

    def described_to_the_letter(_: CheckContext, response: Response, case: Case[Any]) -> None:
        if not documents:
            documents.append(Document(case.operation.schema.raw_schema))
        asked = documents[0].operation(case.operation.path, case.method.lower())
        if asked is not None:
            content_type = response.headers.get("content-type", [""])[0]
            content = response.content
            documents[0].check_content(asked, response.status_code, content_type, content)

    return described_to_the_letter


def accepted_or_beyond_schemas(_: CheckContext, response: Response, case: Case[Any]) -> None:
    """What the document allows is refused only for what no schema can say."""
    if case.meta and case.meta.generation.mode.is_positive and response.status_code == 400:
        assert _BEYOND_SCHEMAS.search(response.text), response.text
