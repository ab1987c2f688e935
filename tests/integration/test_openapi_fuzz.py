"""What the document allows is answered as it says, what it forbids refused; nothing is a 5xx.

`benchmarks/schema_fuzz.py` asks for more of the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from schemathesis import Case
from starlette.testclient import TestClient

from support.fake_completer import FakeCompleter
from support.fuzzing import (
    accepted_or_beyond_schemas,
    config,
    described,
    make_sensible,
)
from support.http_server import serving, settings
from support.scripted_completer import VOCABULARY, scripted
from suture.server.app import create_app
from suture.server.engine.scripted import random_model

MAX_EXAMPLES = 15
# Elsewhere this takes thousands of cases, and schemas are held against their models without HTTP.
AT_EVERY_LIMIT = (
    "/v1/code-completion",
    "/api/show",
    "/tokenize",
    "/detokenize",
    "/v1/events",
    "/slots",
)

_client = TestClient(create_app(FakeCompleter(), settings()), base_url="http://127.0.0.1")
schema = schemathesis.openapi.from_dict(
    _client.get("/openapi.json").json(), config=config(MAX_EXAMPLES, AT_EVERY_LIMIT)
)
CHECKS = [accepted_or_beyond_schemas, described()]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    model = random_model(VOCABULARY.n_vocab, seed=3)
    with scripted(model, settings()) as completer, serving(completer) as url:
        yield url


@schema.parametrize()
def test_every_operation_does_as_it_is_described(case: Case[Any], url: str) -> None:
    make_sensible(case, VOCABULARY.n_vocab)
    case.call_and_validate(base_url=url, additional_checks=CHECKS)
