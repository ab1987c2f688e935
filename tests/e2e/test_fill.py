"""The main job: the default model fills a hole in a real file, the same from every side."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from e2e.conftest import TIMEOUT_S, Served, run_suture

pytestmark = [pytest.mark.e2e, pytest.mark.model]

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "count_lines.py"
BEFORE, HOLE = "os.walk(", "folder"


@pytest.fixture
def holed(tmp_path: Path) -> tuple[Path, str, str]:
    """The example with a hole in it: the file, the text before the hole and the text after."""
    text = EXAMPLE.read_text("utf-8")
    cursor = text.index(BEFORE) + len(BEFORE)
    prefix, suffix = text[:cursor], text[cursor:].removeprefix(HOLE)
    file = tmp_path / "count_lines.py"
    file.write_text(prefix + suffix, "utf-8")
    return file, prefix, suffix


def position(file: Path, prefix: str) -> str:
    lines = prefix.split("\n")
    return f"{file}:{len(lines)}:{len(lines[-1]) + 1}"


def warm_up(server: Served, body: dict[str, object]) -> None:
    """Cache the prompt: texts may differ at a near-tie between a cold prompt and a warm one."""
    server.post("/infill", body | {"n_predict": 0})


def test_the_same_text_from_cli_infill_and_completions(
    coder_server: Served, holed: tuple[Path, str, str]
) -> None:
    file, prefix, suffix = holed
    body = {"input_prefix": prefix, "input_suffix": suffix, "temperature": 0, "n_predict": 64}
    warm_up(coder_server, body)
    infill = coder_server.post("/infill", body)["content"]
    body = {"prompt": prefix, "suffix": suffix, "temperature": 0, "max_tokens": 64}
    completions = coder_server.post("/v1/completions", body)["choices"][0]["text"]
    at = position(file, prefix)
    command = run_suture("complete", at, "--server", coder_server.url, "--max-tokens", "64")
    piped = run_suture(
        "complete", "-", "--server", coder_server.url, "--max-tokens", "64",
        stdin=f"{prefix}\0{suffix}".encode(),
    )  # fmt: skip
    assert command.returncode == 0, command.stderr
    assert infill == completions == command.stdout.decode() == piped.stdout.decode()
    assert infill.startswith(HOLE)


def test_a_stream_joins_to_the_same_text(
    coder_server: Served, holed: tuple[Path, str, str]
) -> None:
    _file, prefix, suffix = holed
    body = {"input_prefix": prefix, "input_suffix": suffix, "temperature": 0, "n_predict": 24}
    warm_up(coder_server, body)
    whole = coder_server.post("/infill", body)
    with httpx2.stream(
        "POST", coder_server.url + "/infill", json=body | {"stream": True}, timeout=TIMEOUT_S
    ) as response:
        blocks = response.read().decode().removesuffix("\n\n").split("\n\n")
    events = [json.loads(block.removeprefix("data: ")) for block in blocks]
    assert "".join(event["content"] for event in events) == whole["content"]
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    assert all(event["content"] for event in events[:-1])
    assert events[-1]["suture"]["finish"] == whole["suture"]["finish"]


def test_typing_on_reuses_what_is_before_the_cursor(coder_server: Served) -> None:
    lines = "".join(f"value_{i} = {i}\n" for i in range(20))
    first = {"input_prefix": lines + "total = ", "input_suffix": "", "n_predict": 1}
    coder_server.post("/infill", first)
    typed = first | {"input_prefix": lines + "total = value_1"}
    prompt = coder_server.post("/infill", typed)["suture"]["prompt"]
    assert prompt["reused"] + prompt["evaluated"] == prompt["tokens"]
    assert prompt["evaluated"] < 12


@pytest.mark.parametrize("layout", ["psm", "spm", "anchor"])
def test_all_layouts_fill(coder_server: Served, layout: str) -> None:
    body = {
        "input_prefix": "def area(width, height):\n    return width * ",
        "input_suffix": "\n\n\nprint(area(2, 3))\n",
        "temperature": 0,
        "n_predict": 8,
        "layout": layout,
    }
    answer = coder_server.post("/infill", body)
    assert answer["content"].startswith("height")
    assert answer["suture"]["prompt"]["layout"] == layout


def test_a_10_mb_file_works(coder_server: Served) -> None:
    line = "value = compute(1, 2, 3)  # 計算 🎉\n"
    half = line * (5_000_000 // len(line.encode()))
    body = {"input_prefix": half + "value = comp", "input_suffix": "\n" + half, "n_predict": 2}
    answer = coder_server.post("/infill", body)
    assert answer["truncated"] and answer["suture"]["prompt"]["tokens"] < 8192


def test_zero_tokens_warm_the_cache(coder_server: Served, holed: tuple[Path, str, str]) -> None:
    _file, prefix, suffix = holed
    body = {"input_prefix": prefix, "input_suffix": suffix, "n_predict": 0}
    assert coder_server.post("/infill", body)["content"] == ""
    warm = coder_server.post("/infill", body | {"n_predict": 1})
    assert warm["suture"]["prompt"]["evaluated"] == 1


def test_x1_a_client_that_leaves_during_the_prompt_frees_the_engine(coder_server: Served) -> None:
    """As in llama.cpp#24496 and ollama#11889, where the prompt is evaluated to its end."""
    long_prompt = "".join(f"def f{i}(x):\n    return x + {i}\n" for i in range(400))
    before = coder_server.status()["generated_tokens"]
    with pytest.raises(httpx2.TimeoutException):
        httpx2.post(
            coder_server.url + "/v1/completions",
            json={"prompt": long_prompt, "max_tokens": 200},
            timeout=httpx2.Timeout(1.0),
        )
    deadline = time.monotonic() + TIMEOUT_S
    while coder_server.status()["running"] and time.monotonic() < deadline:
        time.sleep(0.01)
    status = coder_server.status()
    # Nothing was generated for nobody, and the next request is served.
    assert not status["running"] and status["generated_tokens"] == before
    assert coder_server.post(
        "/infill", {"input_prefix": "x = ", "input_suffix": "", "n_predict": 1}
    )


def test_a_newer_request_of_a_session_supersedes_the_one_before(coder_server: Served) -> None:
    answers: list[dict[str, object]] = []
    body = {"input_prefix": "def f(", "input_suffix": "", "session": "one", "ignore_eos": True}

    def ask(seq: int, n_predict: int) -> None:
        answer = coder_server.post("/infill", body | {"seq": seq, "n_predict": n_predict})
        answers.append(answer["suture"])

    older = threading.Thread(target=ask, args=(5, 2000))
    older.start()
    while not coder_server.status()["running"]:
        time.sleep(0.01)
    ask(6, 1)
    older.join(TIMEOUT_S)
    ask(6, 1)
    finishes = [answer["finish"] for answer in answers]
    assert sorted(map(str, finishes)) == ["length", "superseded", "superseded"]
    assert finishes[-1] == "superseded"


def test_eight_at_once_get_their_own_answers(coder_server: Served) -> None:
    """As in llama.cpp#10072, where answers went to the wrong clients."""
    names = ["alpha", "bravo", "delta", "gamma", "omega", "sigma", "theta", "kappa"]
    bodies = [
        {"input_prefix": f"{name} = 1\nprint({name[:2]}", "input_suffix": ")\n",
         "temperature": 0, "n_predict": 3}
        for name in names
    ]  # fmt: skip
    together: dict[int, str] = {}

    def ask(index: int) -> None:
        together[index] = coder_server.post("/infill", bodies[index])["content"]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert all(together[i].startswith(name[2:]) for i, name in enumerate(names)), together


def test_with_an_anchor_a_key_evaluates_its_own_tokens(coder_server: Served) -> None:
    above = "import os\n\n\n" + "".join(f"value_{i} = {i}\n" for i in range(12))
    below = "\n\n\n" + "".join(f"print(value_{i})\n" for i in range(12))
    typed = "def total():\n    return value_1 + val"
    evaluated, text = [], ""
    for n in range(len(typed) + 1):
        body = {
            "input_prefix": above + typed[:n],
            "input_suffix": below,
            "temperature": 0,
            "n_predict": 2,
            "layout": "anchor",
        }
        answer = coder_server.post("/infill", body)
        evaluated.append(answer["suture"]["prompt"]["evaluated"])
        text = answer["content"]

    assert sorted(evaluated)[len(evaluated) // 2] <= 2
    assert max(evaluated[1:]) <= 12
    assert text.startswith("ue_")


def test_several_requests_at_once_each_get_their_own_answer(coder_server: Served) -> None:
    names = ["alpha", "bravo", "gamma", "delta", "omega", "sigma"]

    def ask(name: str) -> str:
        body = {
            "input_prefix": f"def area({name}, height):\n    return height * ",
            "input_suffix": "\n\n\nprint(area(2, 3))\n",
            "temperature": 0,
            "n_predict": 8,
        }
        return str(coder_server.post("/infill", body)["content"])

    with ThreadPoolExecutor(len(names)) as clients:
        answers = list(clients.map(ask, names))

    assert [answer.split()[0] for answer in answers] == names
