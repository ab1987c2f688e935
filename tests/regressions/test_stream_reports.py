"""Reported faults of streaming detokenizers, each in its smallest form (T12).

A row: the public report, the tokens as hex, options, and the deltas a client should see; the
last one is what the flush releases. Reports about several tokens a step, log probabilities and
the loop around a detokenizer are in the other `test_stream_` modules.

Other projects report faults of these kinds too: shimmy#159, LocalAI#677, triton#8039,
java-llama.cpp#3, djl-serving#3085, TensorRT-LLM backend#332 and #423, textgen#1603,
turbo-fieldfare#118, SwiftLM#126 and #133, mlx-examples#524 and #651, ollama#442 and #2673.

What has no counterpart here, and why:

    vllm#48853, tokenizers          the prompt is no part of the stream: nothing of it is kept
    tokenizers#1705                 nor is there an index into it
    sglang#2812                     a stream's state is in its object; what is forgotten is only
                                    remembered steps, which are taken again (below)
    vllm#51641                      a parser of reasoning text; entries that wait with their text
                                    are in `test_stream_logprobs`
    llama.cpp#19992                 a chat parser that refuses ill-formed text; the text is below
    mlx-knife#68, mlx-knife#73      a table of pieces built for every token: a cost, no text
    Camelid#731                     the whole reply once more: a fault of a route
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from pydantic import TypeAdapter, ValidationError

from support.vocab import of_pieces, write_gguf
from suture.healing import Detokenizer, OnStop, TokenKind, TokenTransducer, Vocabulary
from suture.server.routes.fields import StopStrings


@dataclass(frozen=True)
class Report:
    where: str
    pieces: str
    deltas: list[str]
    stops: list[str] = field(default_factory=list)
    stop_match: str | None = None
    skip_bytes: int = 0
    min_tokens: int = 0
    include_stop: OnStop = OnStop.EXCLUDE
    on_incomplete: Literal["replace", "drop"] = "replace"

    @property
    def tokens(self) -> list[bytes]:
        return [bytes.fromhex(piece) for piece in self.pieces.split("|")]


def spelled(*texts: str) -> str:
    return "|".join(text.encode().hex() for text in texts)


REPORTS = [
    Report("vllm#931 Chinese character in two tokens", "E4BD|A0", ["", "你", ""]),
    Report("vllm#8627 character begins inside a word", "20E8|AEBF", [" ", "访", ""]),
    Report("vllm#17448 a run turns bad late", "20|E3|28|C2BB", [" ", "", "\ufffd(", "»", ""]),
    Report("vllm#48853 prompt ends inside a character", "F09F8C|B6", ["", "🌶", ""], skip_bytes=0),
    Report("tokenizers literal U+FFFD at the end", "61|EF|BF|BD", ["a", "", "", "\ufffd", ""]),
    Report("sglang#34740 bad bytes do not stall", "61|80|80|80", ["a", *["\ufffd"] * 3, ""]),
    Report("tokenizers#1811 emoji in three tokens", "F09F|A4|97", ["", "", "🤗", ""]),
    Report("TGI#333 characters split", "F09F|988A", ["", "😊", ""]),
    Report("TGI#1235 ends inside a character", "61|D8", ["a", "", "\ufffd"]),
    Report("TGI#1235 an editor drops the rest", "61|D8", ["a", "", ""], on_incomplete="drop"),
    Report("TGI#1039 stop ends inside a token", spelled(" Paris"), [" ", ""], ["Pari"], "Pari"),
    Report("TGI stop before a newline", spelled("a;\n"), ["a", ""], [";"], ";"),
    Report("TGI stop is followed by text", spelled("a; x"), ["a", ""], [";"], ";"),
    Report(
        "vllm#3574 beginning of a stop is not sent",
        spelled("ABC", "DEF", "G", "HI", "J"),
        ["ABC", "", "", "", "", ""],
        ["DEFGHIJ"],
        "DEFGHIJ",
    ),
    Report(
        "vllm#11089 nothing is held without need",
        spelled("some", " text"),
        ["some", " text", ""],
        ["a stop of twenty chars"],
    ),
    Report(
        "vllm#21987 stop before min_tokens",
        spelled("a", "\n", "b", "\n", "c"),
        ["a", "\n", "b", "", "", ""],
        ["\n"],
        "\n",
        min_tokens=3,
    ),
    Report(
        "vllm#22014 a match begun early counts",
        spelled("S", "T", "OP"),
        ["", "", "", ""],
        ["STOP"],
        "STOP",
        min_tokens=3,
    ),
    Report("sglang#31598 nothing is sent twice", "4120E4B896|E7|958C", ["A 世", "", "界", ""]),
    Report("sglang#8031 tokens without bytes", "||61|", ["", "", "a", "", ""]),
    Report("sglang#11446 half a stop", spelled("</", "a>"), ["", "", ""], ["</a>"], "</a>"),
    Report(
        "sglang#23802 stop in an early token",
        spelled("x", "STOP", "y"),
        ["x", "", "", ""],
        ["STOP"],
        "STOP",
    ),
    Report("llama.cpp#4036 emoji apart", "F09F|9880", ["", "😀", ""]),
    Report("llama.cpp#9867 text before a stop", spelled("?\n"), ["?", ""], ["\n"], "\n"),
    Report(
        "llama.cpp#10914 released text is not repeated",
        spelled(" Alice", "!"),
        [" ", "Alice!", ""],
        ["\n", "Alice:"],
    ),
    Report(
        "llama.cpp#15007 held text comes at the end",
        spelled("x", "TRE"),
        ["x", "", "TRE"],
        ["TRE\nAAAA"],
    ),
    Report(
        "llama.cpp stop in a token that ends inside a character",
        "6F6B|20F09F|8E|89",
        ["ok", "", "", "", ""],
        [" "],
        " ",
    ),
    Report("llama.cpp hopeless bytes are not held", "F5|62", ["\ufffd", "b", ""]),
    Report("llama.cpp overlong form is not held", "E080|62", ["\ufffd\ufffd", "b", ""]),
    Report("ik_llama.cpp#780 Cyrillic after a check", "D1|89|78", ["", "щ", "x", ""], ["zz"]),
    Report(
        "llama-cpp-python#2362 long pieces", spelled(" " * 64, " " * 300), [" " * 64, " " * 300, ""]
    ),
    Report("llama-cpp-python#372 emoji by bytes", "F0|9F|98|80", ["", "", "", "😀", ""]),
    Report("llama-cpp-python#1375 first character", spelled('{"'), ['{"', ""]),
    Report(
        "transformers#22710 leading space", spelled(" Hello", " world"), [" Hello", " world", ""]
    ),
    Report("transformers#35175 no clean-up", spelled("x", " !=", " y"), ["x", " !=", " y", ""]),
    Report("exllamav2 one stop hides another", spelled("abc"), ["a", ""], ["abcd", "bc"], "bc"),
    Report("exllamav2 healed prefix comes back", "666F6FF09F|988A", ["o", "😊", ""], skip_bytes=2),
    Report(
        "mlx-lm text repeated after a partial stop",
        spelled("a\n", "    return x"),
        ["a", "\n    return x", ""],
        ["\n\n"],
    ),
    Report("mlx-lm text lost", spelled("ab", "c"), ["", "abc", ""], ["abab"]),
    Report("mlx-lm nul", spelled("a\x00", "b\x00"), ["a\x00", "b\x00", ""]),
    Report("mlx-lm#1041 half a character before a space", "20E58D|2078", [" ", "\ufffd x", ""]),
    Report(
        "mlx-swift-lm#612 combining mark", spelled("e", "\u0301", "x"), ["e", "\u0301", "x", ""]
    ),
    Report(
        "koboldcpp#353 stop string in parts",
        spelled("ok", "\nUser", ":"),
        ["ok", "", "", ""],
        ["\nUser:"],
        "\nUser:",
    ),
    Report("transformers.js#853 one by one", "E58D|95", ["", "单", ""]),
    Report(
        "tokenizers a prompt that ends in U+FFFD is not sent", spelled("a", "b"), ["a", "b", ""]
    ),
    Report("tokenizers#1543 no clean-up", spelled("!", " !", " !"), ["!", " !", " !", ""]),
    Report("tokenizers#1705 a quote after a colon", spelled("':", " '"), ["':", " '", ""]),
    Report(
        "TGI a stop of 250 characters",
        spelled("x" + "s" * 100, "s" * 150 + "y"),
        ["x", "", ""],
        ["s" * 250],
        "s" * 250,
    ),
    Report(
        "vllm#13087 no empty beginning",
        spelled("one", " two", " three"),
        ["one", " two", " three", ""],
        ["<end of the answer>"],
    ),
    Report(
        "llama.cpp#13780 what is sent is the text",
        spelled("a\n", "b", "\n", "\nc"),
        ["a", "\nb", "", "", ""],
        ["\n\n"],
        "\n\n",
    ),
    Report("llama.cpp#19992 ends inside a character", "61|E4BD", ["a", "", "\ufffd"]),
    Report(
        "llama.cpp#19992 an editor drops the rest", "61|E4BD", ["a", "", ""], on_incomplete="drop"
    ),
    Report("llama.cpp#24008 no space is taken", spelled("", " final"), ["", " final", ""]),
    Report("ollama#15231 a letter of two bytes", "C4|85|C485", ["", "ą", "ą", ""]),
    Report("ollama nul is text", "00|6100", ["\x00", "a\x00", ""]),
    Report("Camelid#288 ends inside an emoji", "61|F09F98", ["a", "", "\ufffd"]),
    Report("harmony#83 text after bad bytes", "61|FF|62", ["a", "\ufffd", "b", ""]),
    Report(
        "smg#2203 the tail of a stop string is not sent",
        spelled("ok<|", "st", "ep|>"),
        ["ok", "", "", ""],
        ["<|step|>"],
        "<|step|>",
    ),
    Report(
        "omlx#2386 no half of a marker remains",
        spelled("x\n>>>", ">>>> UP", "DATED\n"),
        ["x", "", "", ""],
        ["\n>>>>>>> UPDATED"],
        "\n>>>>>>> UPDATED",
    ),
    Report(
        "vmlx-swift#109 nothing after a stop string",
        spelled("a;b", "c"),
        ["a", "", ""],
        [";"],
        ";",
    ),
    Report("ties go to the longest stop", spelled("xabc"), ["x", ""], ["c", "bc", "abc"], "abc"),
    Report(
        "the stop that completes first wins", spelled("xabcdY"), ["xa", ""], ["abcd", "bc"], "bc"
    ),
    Report(
        "an included stop ends the text",
        spelled("aEN", "Db"),
        ["aEN", "D", ""],
        ["END"],
        "END",
        include_stop=OnStop.INCLUDE,
    ),
    Report(
        "a stop never begins in healed bytes",
        spelled("ab", "c"),
        ["b", "c", ""],
        ["ab"],
        skip_bytes=1,
    ),
]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.where)
def test_t12_a_reported_fault_does_not_occur(report: Report) -> None:
    tokens = report.tokens
    detokenizer = Detokenizer(
        TokenTransducer(of_pieces(tokens), report.stops),
        skip_bytes=report.skip_bytes,
        min_tokens=report.min_tokens,
        include_stop=report.include_stop,
        on_incomplete=report.on_incomplete,
    )

    deltas = [detokenizer.feed(token_id) for token_id in range(len(tokens))]

    assert [*deltas, detokenizer.flush()] == report.deltas
    assert detokenizer.stop_match == report.stop_match


def test_t12_ids_outside_the_vocabulary_are_errors() -> None:
    """vllm#21951, vllm#24211: a negative id ended the loop, then gave silent empty text."""
    detokenizer = Detokenizer(TokenTransducer(of_pieces([b"a"])))

    for token_id in (-1, 1, 2**31):
        with pytest.raises(IndexError):
            detokenizer.feed(token_id)
    assert detokenizer.feed(0) == "a"


def specials() -> Vocabulary:
    kinds = [TokenKind.NORMAL, TokenKind.CONTROL, TokenKind.NORMAL, TokenKind.NORMAL]
    return Vocabulary([b"\xe4\xbd", b"<|eot_id|>", b"\xa0", b"x"], kinds=kinds)


def test_t9_a_skipped_special_token_does_not_break_a_character() -> None:
    """mistral-common decodes the runs between special tokens apart."""
    detokenizer = Detokenizer(TokenTransducer(specials()))

    assert [detokenizer.feed(token_id) for token_id in (0, 1, 2)] == ["", "", "你"]


def test_t9_a_shown_special_token_ends_a_character() -> None:
    detokenizer = Detokenizer(TokenTransducer(specials(), special_tokens="show"))

    assert [detokenizer.feed(token_id) for token_id in (0, 1)] == ["", "\ufffd<|eot_id|>"]


def test_a_stop_string_that_is_a_special_token_is_known_by_id() -> None:
    """llama.cpp#6772: the token has no text, so the stop string never matched."""
    assert TokenTransducer(specials(), ["<|eot_id|>", "x"]).stop_ids == {1}


def test_t9_an_added_token_is_its_text_and_not_bytes_in_an_alphabet(tmp_path: Path) -> None:
    """tokenizers#1392: added ``é!`` was read in the byte-level alphabet, and shown as U+FFFD."""
    metadata: dict[str, object] = {
        "general.architecture": "toy",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [b"a", "é!".encode(), "Ġnaïve".encode()],
        "tokenizer.ggml.token_type": [1, 4, 4],
    }
    vocabulary = Vocabulary.from_gguf(write_gguf(tmp_path / "model.gguf", metadata, {}))

    assert Detokenizer(TokenTransducer(vocabulary)).feed_all([0, 1, 2])[0] == "aé!Ġnaïve"


def test_t12_a_forgotten_step_is_taken_again() -> None:
    """sglang#2812: with more streams than expected, a stream's state was gone."""
    transducer = TokenTransducer(of_pieces([b"\xe4", b"\xbd", b"\xa0"]), memo_entries=2)
    streams = [Detokenizer(transducer) for _ in range(50)]

    deltas = [[stream.feed(token_id) for stream in streams] for token_id in (0, 1, 2)]

    assert deltas == [[""] * 50, [""] * 50, ["你"] * 50]


@pytest.mark.parametrize(
    ("stops", "limit", "given"),
    [
        (["a", ""], "a character or more", "empty"),
        (["a\ud83d"], "lone surrogate", "at 1"),
        ([chr(0x100 + n) for n in range(129)], "at most 128", "129 stop strings"),
        (["x" * 8000, "é" * 97], "at most 8192", "8194 bytes"),
    ],
)
def test_stop_strings_that_cannot_work_are_refused_with_the_limit_and_what_was_given(
    stops: list[str], limit: str, given: str
) -> None:
    with pytest.raises(ValueError, match=limit) as refused:
        TokenTransducer(of_pieces([b"a"]), stops)
    assert given in str(refused.value)


@pytest.mark.parametrize(
    ("stops", "message"),
    [
        ([chr(0x100 + n) for n in range(65)], "at most 64 strings, not 65"),
        (["x" * 4000, "é" * 50], "at most 4096 bytes together, not 4100"),
        (["a\ud83d"], "lone surrogate at 1"),
        (7, "a string or an array of strings"),
    ],
)
def test_a_request_is_told_which_limit_its_stop_strings_broke(stops: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TypeAdapter(StopStrings).validate_python(stops)


def test_repeated_stop_strings_count_once() -> None:
    transducer = TokenTransducer(of_pieces([b"a"]), ["a"] * 100)

    assert transducer.stops == ("a",)


def test_after_the_end_nothing_more_comes() -> None:
    detokenizer = Detokenizer(TokenTransducer(of_pieces([b"a", b"b"]), ["b"]))

    assert [detokenizer.feed(token_id) for token_id in (0, 1, 0)] == ["a", "", ""]
    assert detokenizer.stopped
    assert (detokenizer.flush(), detokenizer.flush()) == ("", "")
