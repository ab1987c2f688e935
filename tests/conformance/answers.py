"""5-B: where answers end, what is in them, and that equal questions get equal answers."""

from __future__ import annotations

from conformance.boundaries import NAMES, SENTINELS, assignments, own_sentinels
from conformance.check import Failed, NotApplicable, check, enough, require
from conformance.dialects import Ask, LlamaCpp
from conformance.peer import Peer, llama_cpp_only

COUNTING = "one two three four five six seven eight nine ten\n"
CALLS = (
    ("total = sum(", ")\nprint(total)\n"),
    ("print(len(", "))\n"),
    ("items = [", "]\nprint(items[0])\n"),
    ('user = {"name": "Ada", ', "}\nprint(user)\n"),
    ("def area(width, ", "):\n    return width * height\n"),
    ("for i in range(", "):\n    print(i)\n"),
)
PAIRS = {")": "(", "]": "[", "}": "{"}


@check(
    "B1",
    "continue#4721, continue#10751, refact#68",
    sends="six holes in brackets whose closers stand right behind the cursor: `sum(‸)`",
    passes="no answer closes more than it opens in its first line, where the closers are",
    why="doubled closing brackets are what users of completions complain about second most",
)
async def no_doubled_closers(peer: Peer) -> str:
    """No bracket is closed twice."""
    peer.needs_sense()
    lines = [(await peer.hole(*call, 24)).text.split("\n")[0] for call in CALLS]
    doubled = [line for line in lines if _lowest_depth(line) < 0]
    if doubled:
        raise Failed(f"{len(doubled)} of {len(CALLS)} close too much, as {doubled[0]!r}")
    return f"{len(CALLS)} holes"


def _lowest_depth(line: str) -> int:
    lowest = depth = 0
    for character in line:
        depth += character in PAIRS.values()
        depth -= character in PAIRS
        lowest = min(lowest, depth)
    return lowest


@check(
    "B9, B18",
    "llama.cpp#12254, tabby#3877",
    sends="a text for two tokens, and for nothing but a millisecond where the dialect has a limit",
    passes="the first says that its length ended it; the second says so, or ends with a line",
    why="half a line that does not say so looks like a bad model",
)
async def a_cut_is_told(peer: Peer) -> str:
    """What a limit cut off says so."""
    answer = await peer.text(3 * COUNTING + "one two", 2)
    require(answer.part.finish == "length", f"finish {answer.part.finish!r} at two tokens")
    if not isinstance(peer.dialect, LlamaCpp):
        return "a length"
    timed = await peer.text(3 * COUNTING + "one two", 200, t_max_predict_ms=1)
    is_told = timed.part.finish == "length" or timed.text.endswith("\n")
    require(is_told, f"a deadline's answer ends with {timed.text[-12:]!r}, {timed.part.finish}")
    return "a length, and a deadline"


@check(
    "B10, B11",
    "llama.cpp#9606, Qwen3-Coder#101, Seed-Coder#3, continue#2953, llama.vim#90",
    sends="text and holes in which each of the model's sentinels in turn is made the likeliest"
    " token by far, by a bias",
    passes="no text of any sentinel is in an answer",
    why="`<|file_sep|>` in an editor is what a user sees of a server that does not know its model",
)
async def sentinels_do_not_leak(peer: Peer) -> str:
    """No sentinel is shown."""
    llama_cpp_only(peer)
    own = await own_sentinels(peer)
    leaked = []
    for sentinel, token_id in own.items():
        bias = [[token_id, 100]]
        texts = [(await peer.text("x = 1\ny =", 4, logit_bias=bias)).text]
        if peer.fills:
            texts.append((await peer.hole("x = 1\ny =", "\n", 4, logit_bias=bias)).text)
        leaked += [sentinel for text in texts if any(one in text for one in SENTINELS)]
    if leaked:
        raise Failed(f"shown: {', '.join(sorted(set(leaked)))}")
    return f"{len(own)} sentinels"


@check(
    "B12",
    "continue#2494, continue#3994",
    sends="lines that a model repeats, with an address, a path, a comment and a Markdown fence",
    passes="the line is in the answer as it was shown",
    why="stop lists that hold `//`, `/src/` or a fence cut what belongs there",
)
async def slashes_and_fences_survive(peer: Peer) -> str:
    """Addresses, comments and fences are no stops."""
    peer.needs_sense()
    lines = ('"http://a.org/src/b"  // see /src/b', "```python", "/* x */ // y")
    answers = []
    for line in lines:
        before = f"start\n{line}\nend\n" * 4 + "start\n"
        answers.append((await peer.text(before, 24)).text)
    n_good = sum(answer.startswith(line) for line, answer in zip(lines, answers, strict=True))
    return enough(n_good, len(lines), 1.0, "lines")


@check(
    "B13",
    "continue#1513",
    sends="a text with nine stop strings",
    passes="it is answered",
    why="clients send the stops of their language, and some servers refuse more than four",
)
async def nine_stops(peer: Peer) -> str:
    """Nine stop strings are taken."""
    stops = tuple(f"\n\n{word}" for word in COUNTING.split()[:9])
    await peer.ask(Ask("x =", None, 4, stops))
    return "200"


@check(
    "B-stop",
    "llama.cpp#9867, llama.cpp#10914, vllm#3574, sglang#11446",
    sends="a text; and the same with a stop string out of its middle, across tokens: whole and as a"
    " stream, for each of six places",
    passes="each answer is the text up to the first place where the stop string stands",
    why="held and released pieces of stops get lost, doubled or shown",
)
async def stops_cut_exactly(peer: Peer) -> str:
    """A text with a stop string ends right before it, streamed or not."""
    prompt = 3 * COUNTING + "one two"
    whole = (await peer.text(prompt, 24)).text
    starts = range(len(whole) // 3, len(whole) - 4, max(len(whole) // 9, 1))
    n_good = n = 0
    for start in list(starts)[:6]:
        stop = whole[start : start + 4]
        expected = whole[: whole.find(stop)]
        ask = Ask(prompt, None, 24, (stop,))
        for answer in (await peer.ask(ask), await peer.streamed(ask)):
            n_good, n = n_good + (answer.text == expected), n + 1
    if not n:
        raise NotApplicable(f"the model says only {whole!r}")
    return enough(n_good, n, 1.0, "texts end right before the stop")


@check(
    "B15",
    "llama.vim#113",
    sends="four texts and holes, one after the other, ten rounds",
    passes="from the second round on, 90 % of the answers are those of the second round",
    why="after a few answers everything was garbage: state of one request went into the next",
)
async def no_state_bleeds(peer: Peer) -> str:
    """Equal questions get equal answers, however many were asked between."""
    asks = [Ask(assignments(n) + f"        self.{NAMES[n]} =", None, 5) for n in (2, 5)]
    if peer.fills:
        asks += [Ask(before, after, 5) for before, after in CALLS[:2]]
    rounds = [[(await peer.ask(ask)).text for ask in asks] for _ in range(10)]
    n_same = sum(
        text == first for texts in rounds[2:] for text, first in zip(texts, rounds[1], strict=True)
    )
    return enough(n_same, 8 * len(asks), 0.9, "answers the same")


@check(
    "B19",
    "continue#1907",
    sends="six holes between brackets, in the middle of a line",
    passes="five have an answer that is not blank",
    why="some clients and servers say nothing inside a line",
)
async def inside_brackets_is_answered(peer: Peer) -> str:
    """A hole between brackets is answered."""
    peer.needs_sense()
    n_good = sum([bool((await peer.hole(*call, 16)).text.strip()) for call in CALLS])
    return enough(n_good, len(CALLS), 0.8, "answered")
