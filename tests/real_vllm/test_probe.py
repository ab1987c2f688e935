"""What Suture finds out of a vLLM before it says a level."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from e2e.conftest import TIMEOUT_S, Served
from support.remote_serving import STRICT, remote_serving
from support.same_text import Record
from support.twin_models import Twin
from support.vllm_servers import Backend

BODY = {"prompt": "import nump", "temperature": 0, "n_predict": 4, "healing": "recursive"}


@pytest.mark.parametrize("kind", ["remote", "strict", "routed"])
def test_a_real_vllm_heals_by_the_recursive_rule(
    kind: str, request: pytest.FixtureRequest, record_property: Record
) -> None:
    served: Served = request.getfixturevalue(kind)
    (backend,) = served.status()["backends"]
    assert (backend["kind"], backend["level"], backend["state"]) == ("vllm", "recursive", "healthy")
    record_property(kind, f"{backend['kind']} {backend['version']}, {backend['why']}")


def test_a_vllm_without_our_processor_is_found_out(backend: Backend, twin: Twin) -> None:
    with remote_serving(backend.url, twin.tokenizer, *STRICT) as served:
        (found,) = served.status()["backends"]
        assert found["level"] == "none"
        assert "held to" in found["why"]
        assert served.post("/completion", BODY)["suture"]["healing"]["level"] == "none"


def test_a_gguf_will_do_as_the_tokenizer(backend: Backend, twin: Twin, remote: Served) -> None:
    with remote_serving(backend.url, twin.gguf) as served:
        assert served.status()["backends"][0]["level"] == "recursive"
        assert (
            served.post("/completion", BODY)["content"]
            == remote.post("/completion", BODY)["content"]
        )


def test_a_tokenizer_of_another_model_is_found_out(
    backend: Backend, small_model: Path, record_property: Record
) -> None:
    with remote_serving(backend.url, small_model) as served:
        (found,) = served.status()["backends"]
        assert found["level"] is None
        assert "tokenizer is another" in found["why"]
        answer = httpx2.post(served.url + "/completion", json=BODY, timeout=TIMEOUT_S)
        assert answer.status_code == 503
        record_property("why", found["why"])


def test_a_model_that_is_not_served_is_found_out(backend: Backend, twin: Twin) -> None:
    with remote_serving(backend.url, twin.tokenizer, "--engine-model", "another") as served:
        (found,) = served.status()["backends"]
        assert found["level"] is None
        assert "no model" in found["why"]
