"""Where an answer rejoins the suffix: what a match may be, and what else ends an answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.answering import answered, answering_model
from support.driving import chunks_of
from support.toy import toy_encode, toy_generation, toy_vocabulary
from suture.server.decoding.drafts import DraftWidth
from suture.server.decoding.step_costs import StepCosts
from suture.server.engine.scripted import ScriptedEngine
from suture.server.request import CompletionRequest, Edit, SamplingParams
from suture.server.shaping.rejoin import Rejoin
from suture.server.shaping.surroundings import Surroundings
from suture.server.shaping.syntax import Syntax

VOCABULARY = toy_vocabulary()
HOLE = CompletionRequest(
    "def area(w, h):\n    x = ",
    "\n    return x\n\nprint(area)\n",
    infill=True,
    layout="psm",
    max_tokens=100,
)
SAYS = "w * h\n    return x\n\nprint"


class Always(DraftWidth):
    """Drafts all there is."""

    def best(self, n_matched: int, n_available: int) -> int:
        return n_available


def rejoined(prefix: str, text: str, suffix: str) -> str:
    rejoin = Rejoin(prefix, suffix)
    return rejoin.feed(text) + rejoin.flush()


def test_a_rejoin_ends_the_answer() -> None:
    text, result = answered(HOLE, SAYS)
    assert (text, result.finish, result.reason) == ("w * h", "suffix", None)
    assert (result.stop_match, result.edit) == (None, None)
    # It has seen the line, and no more.
    assert result.completion_tokens < len(toy_encode(SAYS.encode()))


@pytest.mark.parametrize(
    "request_",
    [
        replace(HOLE, shape="raw"),
        replace(HOLE, min_tokens=1),
        replace(HOLE, grammar='root ::= "w * h\\n    return x\\n\\nprint"'),
        CompletionRequest(HOLE.prefix, max_tokens=100),
    ],
)
def test_who_asks_for_the_text_itself_gets_all_of_it(request_: CompletionRequest) -> None:
    text, result = answered(request_, SAYS)
    assert (text, result.finish) == (SAYS, "eos")


def test_it_is_no_end_where_no_end_is_wanted() -> None:
    text, result = answered(replace(HOLE, ignore_eos=True, max_tokens=40), SAYS)
    assert text.startswith(SAYS) and result.finish == "length"


def test_without_detokenizing_nothing_is_looked_for() -> None:
    engine = ScriptedEngine(VOCABULARY, toy_encode, answering_model(HOLE, SAYS))
    generation = toy_generation(replace(HOLE, detokenize=False), engine)
    chunks = list(chunks_of(generation, engine))
    said = b"".join(VOCABULARY.bytes_of(i) for chunk in chunks for i in chunk.token_ids)
    assert said == SAYS.encode() and chunks[-1].result is not None
    assert chunks[-1].result.finish == "eos"


@pytest.mark.parametrize(
    ("stop", "text", "finish"),
    [
        ("w", "", "stop"),
        ("h\n", "w *", "stop"),
        ("return", "w * h", "stop"),
        ("return x\n", "w * h", "stop"),
        # Behind the whole line that is repeated a stop string comes too late.
        ("\n\n", "w * h", "suffix"),
        ("print", "w * h", "suffix"),
    ],
)
def test_what_comes_first_of_a_stop_string_and_a_rejoin_is_the_end(
    stop: str, text: str, finish: str
) -> None:
    answer = answered(replace(HOLE, stop=(stop,)), SAYS)
    assert (answer[0], answer[1].finish) == (text, finish)
    assert answer[1].stop_match == (stop if finish == "stop" else None)


def test_one_line_may_rejoin_the_rest_of_its_line() -> None:
    request = replace(HOLE, suffix=") + 1\n", prefix="x = f(", shape="line")
    text, result = answered(request, "a) + 1\ny = 2")
    assert (text, result.finish) == ("a", "suffix")


def test_what_is_held_comes_at_the_end_if_it_was_no_rejoin() -> None:
    for n_tokens in range(1, len(toy_encode(SAYS.encode()))):
        text, result = answered(replace(HOLE, max_tokens=n_tokens), SAYS)
        if result.finish == "length":
            said = b"".join(map(VOCABULARY.bytes_of, toy_encode(SAYS.encode())[:n_tokens]))
            assert text == said.decode().rstrip()
            continue
        assert (text, result.finish) == ("w * h", "suffix")


def test_what_a_deadline_ends_keeps_its_reason() -> None:
    request = replace(HOLE, suffix="\n    y\n")
    engine = ScriptedEngine(VOCABULARY, toy_encode, answering_model(request, "1\n    y"))
    generation = toy_generation(request, engine)
    for chunk in chunks_of(generation, engine):
        if generation.n_generated == 3:
            last = generation.finish("deadline")
            assert chunk.text + last.text in ("1", "") and last.result is not None
            assert last.result.finish == "deadline"


@given(st.integers(1, 9))
def test_j2_the_interval_changes_nothing(interval: int) -> None:
    text, result = answered(replace(HOLE, stream_interval=interval), SAYS)
    assert (text, result.finish) == ("w * h", "suffix")


def test_windows_rejoin_as_bytes_do() -> None:
    by_bytes, by_windows = answered(HOLE, SAYS), answered(HOLE, SAYS, "window")
    assert by_windows[0] == by_bytes[0] and by_windows[1].finish == "suffix"


@pytest.mark.parametrize("line_end", ["\r\n", "\r"])
def test_a_documents_line_ends_are_no_difference(line_end: str) -> None:
    def there(text: str) -> str:
        return text.replace("\n", line_end)

    request = replace(HOLE, prefix=there(HOLE.prefix), suffix=there(HOLE.suffix))
    text, result = answered(request, "w *\n        h\n    return x\n")
    assert (text, result.finish) == (there("w *\n        h"), "suffix")


def test_an_edit_over_closers_ends_before_the_suffix() -> None:
    request = replace(HOLE, prefix="foo(", suffix=")\nplot()\n", layout="anchor")
    text, result = answered(request, "a, b)\nplot()\nbaz")
    assert (text, result.finish) == ("a, b", "suffix")
    assert result.edit == Edit(1, "a, b)")


def test_each_candidate_has_an_end_of_its_own() -> None:
    engine = ScriptedEngine(VOCABULARY, toy_encode, answering_model(HOLE, SAYS))
    sampled = replace(HOLE, sampling=SamplingParams(temperature=0.01, seed=1))
    generations = [toy_generation(sampled, engine) for _ in range(2)]
    texts = ["".join(chunk.text for chunk in chunks_of(g, engine)) for g in generations]
    assert texts == ["w * h"] * 2


def test_g1_drafted_and_not_it_ends_at_the_same_place() -> None:
    engine = ScriptedEngine(VOCABULARY, toy_encode, answering_model(HOLE, SAYS))
    generation = toy_generation(HOLE, engine, expected=toy_encode(SAYS.encode()))
    sequence, text = engine.open(), ""
    while not generation.finished:
        tree = generation.tree(len(engine.tokens(sequence)), Always(StepCosts()))
        [rows] = engine.evaluate([(sequence, tree)])
        chunk = generation.feed(rows)
        engine.commit(sequence, len(tree) - 1 - generation.n_rejected)
        text += chunk.text if chunk else ""
        assert chunk is None or chunk.result is None or chunk.result.finish == "suffix"
    assert text == "w * h"


@pytest.mark.parametrize(
    ("prefix", "suffix", "other", "again"),
    [
        (
            "class A:\n    def f(self):",
            "\n        pass\n\n    def g(self):\n        pass\n",
            "\n        pass\n\n    def h(self):\n        return 1",
            "\n        pass\n\n    def g(self):\n",
        ),
        (
            "xs = [\n    1000,\n    ",
            "2000,\n    3000,\n    2000,\n]\n",
            "2000,\n    1500,\n",
            "2000,\n    3000,\n",
        ),
        (
            "class A:\n    name: str\n\n\nclass B:\n",
            "    name: str\n    size: int\n",
            "    name: str\n    what: int\n\n\nclass C:\n",
            "    name: str\n    size: int\n",
        ),
        ("a\n", "next()\nnext()\nb()\n", "next()\nc()\n", "next()\nnext()\nb()\n"),
    ],
)
def test_a_line_that_is_in_the_file_more_than_once_says_nothing_without_the_next(
    prefix: str, suffix: str, other: str, again: str
) -> None:
    assert rejoined(prefix, other, suffix) == other
    assert rejoined(prefix, again, suffix) == ""
    # And where the answer ends with it, it is left out.
    assert rejoined(prefix, again[: again.index("\n", 1) + 1], suffix) == ""


def test_a_suffix_that_was_cut_off_inside_a_line_is_watched_up_to_there() -> None:
    cut_off = Rejoin("x = ", "\nab\nreturn", is_cut_off=True)
    assert cut_off.feed("1\nab\nreturn 2") == "1\nab\nreturn 2"
    whole = Rejoin("x = ", "\nab\nreturn")
    assert whole.feed("1\nab\nreturn\n") == "1" and whole.found


def test_of_a_long_line_the_first_256_characters_are_enough() -> None:
    line = "a(b), " * 1000
    rejoin = Rejoin("x = ", "\n" + line)
    said = "1\n" + line[:256] + "!"
    held = [len(said[:end]) for end in range(len(said)) if not rejoin.feed(said[end])]
    assert rejoin.found and len(held) == len(said) - 1
    assert rejoined("x = ", "1\n" + line[:255] + "!", "\n" + line).endswith("!")


@pytest.mark.parametrize("blank", ["\n", " ", "\t\n"])
def test_j3_of_endless_blank_lines_no_more_than_512_characters_are_held(blank: str) -> None:
    rejoin = Rejoin("x = ", "\nreturn x\n")
    said, released = "\n" + blank * 1000, ""
    for end, character in enumerate(said, 1):
        released += rejoin.feed(character)
        assert end - len(released) <= 512
    assert released + rejoin.flush() == said and not rejoin.found
    assert rejoined("x = ", "\n" * 9 + "return x\n", "\nreturn x\n") == ""


def test_a_line_of_closers_is_not_enough_but_for_what_follows() -> None:
    suffix = "\n}\n\nfn c() {\n}\n"
    rejoin = Rejoin("fn a() {\n", suffix)
    assert rejoin.feed("b();") == "b();"
    assert rejoin.feed("\n}\n\nfn ") == ""
    assert rejoin.feed("d() {}") == "\n}\n\nfn d() {}"
    assert rejoined("fn a() {\n", "b();\n}\n\nfn c() {\n", suffix) == "b();"


@pytest.mark.parametrize("text", ["`)`\n", "(1)\n", "don't :)\n", "\n---\n", "a\n\n\nb\n"])
def test_prose_is_not_cut(text: str) -> None:
    for suffix in ("\n", "\n\n## Next\n", " and so on.\n", ""):
        assert rejoined("- A list\n- ", text, suffix) == text


def test_empty_texts_are_nothing() -> None:
    rejoin = Rejoin("", "x\n")
    assert (rejoin.feed(""), rejoin.flush(), rejoin.found, rejoin.is_all) == ("", "", False, False)


@pytest.mark.parametrize(
    ("path", "prefix", "says", "suffix", "left"),
    [
        # The blocks need their ends, as often as they stand there.
        ("a.rb", "def f\n", "if a\nb\nend", "\nend\n", "if a\nb\nend"),
        ("a.lua", "function f()\n", "if a then b() end", "\nend\n", "if a then b() end"),
        ("a.lua", "function f()\n", "if a then\nb()\nend", "\nend\n", "if a then\nb()\nend"),
        ("a.lua", "function f()\n", "b()\nend", "\nend\n", "b()"),
        ("a.sh", "if a; then\n", "if b; then\nc\nfi", "\nfi\n", "if b; then\nc\nfi"),
        ("a.sh", "if a; then\n", "c\nfi", "\nfi\n", "c"),
        # A comment's bracket does not make of the last one another.
        ("a.js", "// :(\nf() \n{\n  ", "b(\n);\n}", "\n}\n", "b(\n);"),
        ("a.js", "f(\n  ", "a, /* ) */\n  g(\n)", "\n)\n", "a, /* ) */\n  g(\n)"),
        # Where both are right, what stands there already is not said again.
        ("a.py", "def f(x):\n    if x:\n        ", "x += 1\n    return x", "\n    return x\n",
         "x += 1"),
        ("a.py", "try:\n    ", "f()\nexcept E:\n    pass", "\nexcept E:\n    pass\n", "f()"),
        # No opinion.
        ("a.txt", "if a\n", "if b\nc\nend", "\nend\n", "if b\nc"),
    ],
)  # fmt: skip
def test_j6_a_last_line_that_may_be_meant_is_judged_by_its_parse(
    path: str, prefix: str, says: str, suffix: str, left: str
) -> None:
    syntax = Syntax(Surroundings(prefix, suffix, path=path))
    for parts in ([says], list(says)):
        rejoin = Rejoin(prefix, suffix, better_cut=syntax.better_cut)
        assert "".join(map(rejoin.feed, parts)) + rejoin.flush() == left
