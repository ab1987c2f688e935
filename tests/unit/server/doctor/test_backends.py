"""What the doctor says of a model that other servers run."""

from __future__ import annotations

from pathlib import Path

from support.fake_backend import FakeBackend, playing
from support.http_server import settings
from support.toy import toy_vocabulary
from support.vocabularies import pulled
from suture.server.doctor.backends import backends
from suture.server.doctor.finding import Finding
from suture.server.engine.scripted import random_model
from suture.server.settings import load_settings

VOCABULARY = toy_vocabulary()
NAME = "vocab-qwen2"


def found(*urls: str, **flags: object) -> list[Finding]:
    # Where the fixtures keep models; the test's own settings have no home.
    file = pulled([NAME], load_settings().model_store)[NAME]
    given: dict[str, object] = {"model": str(file)} | flags
    return list(backends(settings(engine="remote", engine_url=urls, **given)))


def test_servers_say_what_they_are() -> None:
    backend = FakeBackend(random_model(VOCABULARY.n_vocab))
    with playing(backend) as url:
        tokenizer, server = found(url)
    assert (tokenizer.kind, server.kind) == ("ok", "ok")
    assert " tokens, by " in tokenizer.text
    assert server.text == f"{url}: vllm 0.32.0, model toy"
    assert not backend.completions


def test_one_that_is_away_and_one_without_the_model_are_problems() -> None:
    backend = FakeBackend(random_model(VOCABULARY.n_vocab))
    with playing(backend) as away:
        pass
    with playing(backend) as url:
        _, first, second = found(away, url, engine_model="other")
    assert (first.kind, second.kind) == ("problem", "problem")
    assert first.text.startswith(f"{away}: ") and first.fix == f"curl {away}/v1/models"
    assert "other" in second.text and "toy" in second.text


def test_wrong_urls_and_none_are_problems() -> None:
    assert [one.kind for one in found()] == ["ok", "problem"]
    assert [one.kind for one in found("ftp://x")] == ["ok", "problem"]


def test_a_tokenizer_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    broken = tmp_path / "tokenizer.json"
    broken.write_text("{")
    first = found("http://127.0.0.1:1", model=str(broken))[0]
    assert first.kind == "problem" and "tokenizer.json" in first.text
