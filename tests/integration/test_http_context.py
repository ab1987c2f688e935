"""Text from other files, paths and line ends over HTTP: what the model is shown of them."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.answering import answering_model
from support.http_server import Json, client, serving, settings
from support.scripted_completer import VOCABULARY, scripted
from suture.server.engine.protocol import Logits
from suture.server.engine.scripted import Model, random_model
from suture.server.local import local_completer
from suture.server.request import CompletionRequest

PREFIX, SUFFIX = "def f(w, h):\n    x = ", "\n    return x\n\nprint(f)\n"
BODY: Json = {"input_prefix": PREFIX, "input_suffix": SUFFIX, "temperature": 0, "n_predict": 4}
CHUNK: Json = {"text": "def area(w, h):\n    return w * h\n", "filename": "shapes.py"}
MIB = 2**20


class Shown:
    """A model that notes the text of the first prompt it is shown."""

    def __init__(self) -> None:
        self.prompt = ""
        self._model = random_model(VOCABULARY.n_vocab)

    def __call__(self, tokens: Sequence[int]) -> Logits:
        if not self.prompt:
            names = (VOCABULARY.bytes_of(i) or VOCABULARY.text_of(i).encode() for i in tokens)
            self.prompt = b"".join(names).decode("utf-8", "replace")
        return self._model(tokens)


@contextmanager
def asking(model: Model) -> Iterator[httpx2.Client]:
    with scripted(model, settings()) as completer, serving(completer) as url, client(url) as http:
        yield http


def asked(**fields: object) -> tuple[httpx2.Response, str]:
    """The answer, and the prompt as the model was shown it."""
    shown = Shown()
    with asking(shown) as http:
        return http.post("/infill", json=BODY | fields), shown.prompt


def test_chunks_stand_before_the_cursors_file_with_their_paths() -> None:
    response, prompt = asked(input_extra=[CHUNK], path="/home/user/site/app/views/main.py")
    assert prompt.startswith(
        f"<|repo_name|>repository\n<|file_sep|>shapes.py\n{CHUNK['text']}"
        "<|file_sep|>app/views/main.py\n<|fim_prefix|>def f(w, h):"
    )
    report = response.json()["suture"]["prompt"]
    assert not report["truncated"] and report["excluded"] == 0


SECRET = "AKIA" + "".join(random.Random(7).choices("ABCDEFGHJKLMNPQRSTUVWXYZ234567", k=16))


@pytest.mark.parametrize(
    "chunk",
    [
        {"text": "DEBUG=1\n", "filename": "site/.env"},
        {"text": "Host *\n", "filename": "C:\\Users\\ada\\.ssh\\config"},
        {"text": f"aws = connect('{SECRET}')\n", "filename": "cloud.py"},
        {"text": f"aws = connect('{SECRET}')\n"},
    ],
)
def test_secrets_are_left_out_and_counted(chunk: Json) -> None:
    """positron#7724: `.env` and keys used as context."""
    response, prompt = asked(input_extra=[CHUNK, chunk])
    report = response.json()["suture"]["prompt"]
    assert (report["excluded"], report["truncated"]) == (1, False)
    assert CHUNK["text"] in prompt
    assert chunk["text"] not in prompt and SECRET not in prompt


@pytest.mark.parametrize("healing", ["exact", "off"])
@pytest.mark.parametrize("layout", ["psm", "spm", "anchor"])
def test_every_layout_leaves_secrets_out(layout: str, healing: str) -> None:
    extra = [{"text": "K=1\n", "filename": ".env"}]
    response, prompt = asked(input_extra=extra, layout=layout, healing=healing)
    assert response.json()["suture"]["prompt"]["excluded"] == 1
    assert "K=1" not in prompt and ".env" not in prompt


def test_a_chunk_that_is_the_cursors_file_is_left_out() -> None:
    """What stands there twice is repeated, as the makers of llama.vim found."""
    response, prompt = asked(input_extra=[{"text": PREFIX + "w" + SUFFIX, "filename": "a.py"}])
    assert prompt.count("def f(w, h)") == 1
    assert response.json()["suture"]["prompt"]["truncated"]


REFUSED: list[tuple[Any, str]] = [
    ([{"filename": "a.py"}], "input_extra[0].text"),
    ([CHUNK, {"text": None}], "input_extra[1].text"),
    ([{"text": 1}], "input_extra[0].text"),
    ([{"text": ["x"]}], "input_extra[0].text"),
    ([{"text": "x", "filename": 1}], "input_extra[0].filename"),
    (["x"], "input_extra[0]"),
    ([None], "input_extra[0]"),
    ("x", "input_extra"),
    ({"text": "x"}, "input_extra"),
    (None, "input_extra"),
    ([CHUNK] * 10_000, "input_extra"),
]


@pytest.mark.parametrize(("extra", "field"), REFUSED)
def test_chunks_that_are_none_are_refused_by_name(extra: Any, field: str) -> None:
    with asking(Shown()) as http:
        response = http.post("/infill", json=BODY | {"input_extra": extra})
        assert http.post("/infill", json=BODY).status_code == 200
    error = response.json()["error"]
    assert response.status_code == 400 and error["type"] == "invalid_request_error"
    assert f'"{field}"' in error["message"] and len(error["message"]) < 200


def test_half_a_character_in_a_chunk_is_refused_by_name() -> None:
    raw = b'{"input_prefix":"a","input_suffix":"","input_extra":[{"text":"\\ud83d"}]}'
    with asking(Shown()) as http:
        response = http.post("/infill", content=raw)
    assert response.status_code == 400
    assert '"input_extra[0].text"' in response.json()["error"]["message"]


BLOB = random.Random(1).randbytes(MIB)


@pytest.mark.parametrize(
    ("text", "loses"),
    [
        ("", False),
        (" \n\t\r\n", False),
        ("\r" * MIB, False),
        ("\u2028" * 1000, False),
        ("\0" * 1000, True),
        (BLOB.decode("latin-1"), True),
        (BLOB.decode("utf-8", "replace"), True),
        ("x" * MIB, True),
        ("x = 1\n" * (MIB // 6), True),
        ("🎉" * 100_000, True),
        ("password=" * 100_000, True),
    ],
    ids=lambda value: ascii(value)[:12],
)
def test_any_text_of_a_chunk_is_trimmed_or_left_out(text: str, loses: bool) -> None:
    response, prompt = asked(input_extra=[{"text": text, "filename": "b.py"}, CHUNK])
    assert response.status_code == 200
    assert CHUNK["text"] in prompt and len(prompt) < 20_000
    report = response.json()["suture"]["prompt"]
    assert (report["truncated"], report["excluded"]) == (loses, 0)


def test_a_thousand_chunks_are_taken_and_the_newest_shown() -> None:
    chunks = [{"text": f"item_{n} = {n}\n" * 200, "filename": f"c{n}.py"} for n in range(1024)]
    response, prompt = asked(input_extra=chunks)
    assert response.status_code == 200 and "item_1023 = 1023\n" in prompt
    assert response.json()["suture"]["prompt"]["truncated"]


def test_megabytes_of_chunks_are_taken_and_a_body_over_the_limit_is_not() -> None:
    text = "".join(f"value_{n} = {n} * token_{n}\n" for n in range(4000))
    with asking(Shown()) as http:
        many = http.post("/infill", json=BODY | {"input_extra": [{"text": text}] * 200})
        over = http.post("/infill", json=BODY | {"input_extra": [{"text": "x" * (50 * MIB)}]})
        after = http.post("/infill", json=BODY)
    assert (many.status_code, over.status_code, after.status_code) == (200, 413, 200)
    assert "32 MiB" in over.json()["error"]["message"]


LINE = "    value = compute(value, 12)  # and so on\n"


@pytest.mark.parametrize("side", ["input_prefix", "input_suffix"])
@pytest.mark.parametrize("piece", [LINE, "x", "\r", "\r\n", "é🎉", ")", '"'])
def test_ten_megabytes_on_either_side_are_trimmed(piece: str, side: str) -> None:
    response, prompt = asked(**{side: piece * (10 * MIB // len(piece)), "layout": "anchor"})
    assert response.status_code == 200 and len(prompt) < 40_000
    assert response.json()["suture"]["prompt"]["truncated"]


@pytest.mark.parametrize("path", ["/infill", "/v1/completions"])
def test_others_are_answered_while_a_huge_body_is_planned(path: str) -> None:
    huge: Json = {
        "/infill": BODY | {"input_suffix": LINE * (20 * MIB // len(LINE)), "session": "s"},
        "/v1/completions": {"prompt": LINE * (10 * MIB // len(LINE)), "suffix": ")" * (10 * MIB)},
    }[path]
    n_answered = 0
    done = threading.Event()
    with asking(Shown()) as http:

        def probe() -> None:
            nonlocal n_answered
            with client(str(http.base_url)) as other:
                while not done.is_set():
                    n_answered += other.get("/health").status_code == 200

        probing = threading.Thread(target=probe)
        probing.start()
        statuses = [http.post(path, json=huge).status_code for _ in range(3)]
        done.set()
        probing.join(20)
    assert statuses == [200] * 3 and n_answered > 3


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("../../etc/passwd.py", "etc/passwd.py"),
        ("/home/user/../bob/a.py", "bob/a.py"),
        ("a\n<|fim_middle|>\x00\x1b[31m.py", "a <|fim_middle|> [31m.py"),
        ("x" * MIB, "x" * 256),
        ("/" * MIB + "a.py", "a.py"),
        ("../" * 10_000, "untitled"),
        ("\\\\server\\share\\a.py", "server/share/a.py"),
        ("", "untitled"),
    ],
    ids=lambda text: ascii(text[:12]),
)
def test_any_path_is_shown_in_one_line_from_inside_the_repository(path: str, shown: str) -> None:
    response, prompt = asked(input_extra=[CHUNK | {"filename": path}], path=path)
    assert response.status_code == 200
    assert prompt.count(f"<|file_sep|>{shown}\n") == 2


@pytest.mark.parametrize("language", ["klingon", "", "x" * MIB, "a\n\0<|fim_middle|>", "Python"])
def test_any_language_is_taken(language: str) -> None:
    response, prompt = asked(language=language, path="a.py", input_extra=[CHUNK])
    assert response.status_code == 200 and len(prompt) < 1000


@pytest.mark.parametrize("field", ["path", "language"])
@pytest.mark.parametrize("value", [1, ["a"], {"a": 1}, True])
@pytest.mark.parametrize("route", ["/infill", "/v1/completions"])
def test_what_is_no_text_is_refused_by_name(route: str, value: object, field: str) -> None:
    body = BODY if route == "/infill" else {"prompt": "a"}
    with asking(Shown()) as http:
        response = http.post(route, json=body | {field: value})
    assert response.status_code == 400
    assert f'"{field}"' in response.json()["error"]["message"]


HOLE = CompletionRequest(PREFIX, SUFFIX, infill=True, max_tokens=60)
SAYS = "w * h\n    y = x * x\n\n    z = y\n"


@pytest.mark.parametrize("layout", ["psm", "spm", "anchor"])
@pytest.mark.parametrize("line_end", ["\r\n", "\r"])
def test_the_same_hole_gives_the_same_text_up_to_its_line_ends(line_end: str, layout: str) -> None:
    """tabby#3279: completions are worse in files with CRLF."""
    extra = [CHUNK, {"text": "z = 1\ny = 2\n"}]
    hole: Json = BODY | {"n_predict": 60, "layout": layout, "input_extra": extra}
    lines = {
        "input_prefix": PREFIX.replace("\n", line_end),
        "input_suffix": SUFFIX.replace("\n", line_end),
        "input_extra": [one | {"text": one["text"].replace("\n", line_end)} for one in extra],
    }
    shown = Shown()
    with asking(shown) as http:
        lf = http.post("/infill", json=hole).json()
        prompt, shown.prompt = shown.prompt, ""
        other = http.post("/infill", json=hole | lines).json()
    assert "\r" not in shown.prompt + lf["content"]
    assert lf["content"] and other["content"] == lf["content"].replace("\n", line_end)
    assert (lf["suture"]["finish"], lf["tokens_predicted"]) == (
        other["suture"]["finish"],
        other["tokens_predicted"],
    )
    assert shown.prompt == prompt


def test_lines_of_an_answer_end_as_the_files_do() -> None:
    hole = BODY | {"n_predict": 60}
    crlf = {
        side: str(BODY[side]).replace("\n", "\r\n") for side in ("input_prefix", "input_suffix")
    }
    with asking(answering_model(HOLE, SAYS)) as http:
        lf = http.post("/infill", json=hole).json()
        other = http.post("/infill", json=hole | crlf).json()
    assert lf["content"].count("\n") >= 2
    assert other["content"] == lf["content"].replace("\n", "\r\n")


@pytest.mark.model
def test_a_real_model_says_the_same_in_crlf(small_model: Path) -> None:
    text = "import os\n\n\ndef list_files(folder):\n    names = []\n    for name in "
    body: Json = {"input_suffix": "", "temperature": 0, "n_predict": 24}
    with local_completer(settings(model=str(small_model))) as completer, serving(completer) as url:
        with client(url) as http:
            lf = http.post("/infill", json=body | {"input_prefix": text}).json()
            crlf = http.post(
                "/infill", json=body | {"input_prefix": text.replace("\n", "\r\n")}
            ).json()
    assert "\n" in lf["content"]
    assert crlf["content"] == lf["content"].replace("\n", "\r\n")
