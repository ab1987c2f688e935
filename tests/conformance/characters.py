"""5-C: characters of several bytes and line ends, whole and in streams."""

from __future__ import annotations

from conformance.answers import CALLS
from conformance.check import Failed, NotApplicable, check, enough, require
from conformance.dialects import Ask
from conformance.peer import Peer, llama_cpp_only

REPLACEMENT = "\ufffd"
MIXED = "# μ-law 🫠 щука 文字 é\nπ = '👩‍👩‍👧 ﷽'\nprint(π)\n"
LINES = ("🫠 🎉 🦀 щука борщ 文字列 ñandú\n", "Ωμέγα 🧵🪡 たこ焼き жук ﷽ ḉ\n")


@check(
    "C1, C2",
    "tabby#2663, lsp-ai#50",
    sends="a hole at every place of a text with characters of one to four bytes, one token each",
    passes="all are answered without a replacement character that the text does not have",
    why="a cursor behind an emoji is no reason to fail, or to lose what stands before it",
)
async def every_cursor_is_answered(peer: Peer) -> str:
    """Every cursor of a text of mixed width is answered."""
    for at in range(len(MIXED) + 1):
        answer = await peer.hole(MIXED[:at], MIXED[at:], 2)
        # The last character may be cut off by the length, which is another matter.
        text = answer.text.rstrip(REPLACEMENT)
        require(REPLACEMENT not in text, f"U+FFFD behind {MIXED[:at][-8:]!r}")
    return f"{len(MIXED) + 1} places"


@check(
    "C6, C9",
    "llama.cpp#4036, ik_llama.cpp#780, llama-cpp-python#55",
    sends="lines of emoji, Cyrillic, Greek and Japanese that a model repeats, as streams",
    passes="no event has U+FFFD, and together they are the text of the answer that is not streamed",
    why="a character comes in several tokens, and half a character is none",
)
async def streams_hold_whole_characters(peer: Peer) -> str:
    """A stream has whole characters, and is the text."""
    peer.needs_sense()
    n_wide = 0
    for line in LINES:
        ask = Ask(4 * line + line[:4], None, 24)
        streamed, whole = await peer.streamed(ask), await peer.ask(ask)
        # The last character may be cut off by the length, which is another matter.
        require(REPLACEMENT not in streamed.text[:-3], f"U+FFFD in {streamed.text!r}")
        require(
            _same_but_for_an_end(streamed.text, whole.text),
            f"{streamed.text!r} streamed, {whole.text!r} not",
        )
        n_wide += sum(ord(character) > 127 for character in whole.text)
    if not n_wide:
        raise NotApplicable("the model says none of them")
    return f"{n_wide} characters"


def _same_but_for_an_end(one: str, other: str) -> bool:
    return one.rstrip(REPLACEMENT) == other.rstrip(REPLACEMENT)


@check(
    "C7",
    "llama.cpp#11738, ramalama#752, llama.cpp#19992",
    sends="a text in which the first part of an emoji is made the likeliest token by far, whole and"
    " as a stream",
    passes="both are answered, in UTF-8, and are the same text",
    why="bytes that are no text ended the server",
)
async def no_text_is_answered(peer: Peer) -> str:
    """Bytes that are no text are answered."""
    llama_cpp_only(peer)
    pieces = await peer.tokens("🫠", add_special=False, with_pieces=True)
    parts = [one for one in pieces if isinstance(one["piece"], list)]
    if not parts:
        raise NotApplicable("the model has whole characters only")
    ask = Ask("x = '", None, 6, more={"logit_bias": [[parts[0]["id"], 100]]})
    whole, streamed = await peer.ask(ask), await peer.streamed(ask)
    require(whole.text == streamed.text, f"{whole.text!r}, streamed {streamed.text!r}")
    return repr(whole.text)


@check(
    "C10",
    "tabby#3279",
    sends="six holes, in LF and in CRLF",
    passes="four pairs of answers are the same but for their line ends",
    why="a file's line ends are no reason for worse answers",
)
async def line_ends_change_nothing(peer: Peer) -> str:
    """A file in CRLF gets the answers of the file in LF."""
    n_same = 0
    for call in CALLS:
        head = "import os\n\n\n" + call[0]
        lf = await peer.hole(head, call[1], 12)
        crlf = await peer.hole(head.replace("\n", "\r\n"), call[1].replace("\n", "\r\n"), 12)
        n_same += lf.text == crlf.text.replace("\r\n", "\n")
    return enough(n_same, len(CALLS), 0.66, "the same")


@check(
    "B5",
    "continue#3591, continue#3567, tabby#3261",
    sends="a file in CRLF whose next lines are known",
    passes="the answer has several lines, and all of its line ends are CRLF",
    why="mixed line ends in a file are found weeks later",
)
async def line_ends_are_the_files(peer: Peer) -> str:
    """The line ends of an answer are those of the file."""
    peer.needs_sense()
    block = "first = 1\r\nsecond = 2\r\nthird = 3\r\n\r\n"
    before = 4 * block + "first ="
    answer = await (peer.hole(before, "\r\n", 24) if peer.fills else peer.text(before, 24))
    n_crlf, n_lf = answer.text.count("\r\n"), answer.text.count("\n")
    if not n_lf:
        raise NotApplicable(f"the answer {answer.text!r} has one line")
    if n_crlf != n_lf:
        raise Failed(f"{n_lf - n_crlf} of {n_lf} line ends are LF")
    return f"{n_lf} line ends"


@check(
    "B7",
    "vscode-copilot-release#13140, copilot-cmp#95",
    sends="a file indented with tabs whose next lines are known",
    passes="no line of the answer begins with a space",
    why="indentation of two kinds is a syntax error in Python and a nuisance everywhere",
)
async def indentation_is_the_files(peer: Peer) -> str:
    """A file with tabs gets no spaces."""
    peer.needs_sense()
    block = "def f{n}():\n\tfor i in x:\n\t\tif i:\n\t\t\treturn i\n\n\n"
    before = "".join(block.format(n=n) for n in range(4)) + "def f4():"
    answer = await (peer.hole(before, "\n", 24) if peer.fills else peer.text(before, 24))
    lines = answer.text.split("\n")[1:]
    if not any(lines):
        raise NotApplicable(f"the answer {answer.text!r} has one line")
    require(not any(line.startswith(" ") for line in lines), f"{answer.text!r}")
    return f"{len(lines)} lines"
