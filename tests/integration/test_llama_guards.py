"""What kills the process instead of raising, and that the engine refuses it.

Each case runs twice, each time in a process of its own: made straight on llama.cpp it must die
(else the guard guards nothing), made through the engine it must be refused and do no harm.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import guarded_llama, raw_llama
from suture.server.engine import libllama
from suture.server.engine.grammar import Grammar
from suture.server.engine.llama import LlamaEngine
from suture.server.errors import InvalidRequest, ModelError

pytestmark = pytest.mark.model

SUPPORT = Path(raw_llama.__file__).parent


def run(script: str, model: Path, case: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SUPPORT / script), str(model), case]
    # Core dumps of a deliberate abort are of no use to anybody.
    limited = ["sh", "-c", 'ulimit -c 0; exec "$@"', "sh", *command]
    return subprocess.run(limited, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("case", raw_llama.CASES)
def test_the_unguarded_call_kills_the_process(small_model: Path, case: str) -> None:
    outcome = run("raw_llama.py", small_model, case)
    assert outcome.returncode < 0, f"llama.cpp survives it now: {outcome.stdout}"


@pytest.mark.parametrize("case", guarded_llama.CASES)
def test_the_engine_refuses_it_and_lives(small_model: Path, case: str) -> None:
    outcome = run("guarded_llama.py", small_model, case)
    assert outcome.returncode == 0, outcome.stderr
    assert "refused: " in outcome.stdout
    assert outcome.stdout.endswith("lives\n")


def test_every_deadly_case_has_a_guard() -> None:
    assert set(raw_llama.CASES) == set(guarded_llama.CASES)


def test_no_debugger_is_started_on_an_abort() -> None:
    libllama.load()
    assert os.environ["GGML_NO_BACKTRACE"] == "1"


@pytest.mark.parametrize("n_bytes", [0, 3, 100, 2_000_000])
def test_a_truncated_model_file_is_one_line(
    small_model: Path, tmp_path: Path, n_bytes: int
) -> None:
    broken = tmp_path / "broken.gguf"
    with small_model.open("rb") as source:
        broken.write_bytes(source.read(n_bytes))
    with pytest.raises(ModelError, match=r"broken\.gguf") as caught:
        LlamaEngine(broken, n_threads=1)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_model_is_one_line(tmp_path: Path) -> None:
    text = tmp_path / "notes.gguf"
    text.write_text("not a model\n" * 100)
    with pytest.raises(ModelError, match=r"notes\.gguf"):
        LlamaEngine(text, n_threads=1)


@pytest.mark.parametrize(
    "gbnf", ["", " \n", "root =", "nonsense", 'word ::= "a"', 'root ::= "a\0"']
)
def test_a_grammar_that_does_not_compile_is_an_error(engine: LlamaEngine, gbnf: str) -> None:
    with pytest.raises(InvalidRequest, match="grammar"):
        Grammar(engine.vocab, gbnf, engine.vocabulary)


def test_a_grammar_permits_what_it_describes(engine: LlamaEngine) -> None:
    grammar = Grammar(engine.vocab, 'root ::= "yes" | "no"', engine.vocabulary)
    yes, maybe = engine.encode(b"yes"), engine.encode(b"maybe")
    assert grammar.permits(yes[0]) and not grammar.permits(maybe[0])
    for token_id in yes:
        grammar.accept(token_id)
    assert not grammar.permits(yes[0])
    grammar.close()
