"""5-D: clients that leave, several at once, caches, and files larger than any context.

What a server still computes for those that left is told by how long the next request takes,
beside the same request to the idle server. Where all of the abandoned work would hardly take
longer than that, nothing can be told.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import statistics
from collections.abc import Sequence
from dataclasses import replace

from conformance.boundaries import MARKED, NUMBERS, assignments
from conformance.check import Failed, NotApplicable, check, enough, require
from conformance.dialects import Ask, LlamaCpp
from conformance.peer import Answer, Peer

N_LEFT = 12
# Nobody's patience is finer than this, and no machine's clock under load.
GRACE_S = 1.0
# Nats between two tokens that any batch may swap.
NEAR_TIE = 0.3


def filler(n_characters: int) -> str:
    """A module of small functions, so long."""
    numbers = range(n_characters // 35)
    functions = (f"def f{n}(x, y):\n    return x + y * {n}\n\n\n" for n in numbers)
    return "".join(functions)[:n_characters]


def fresh(n_words: int) -> str:
    """Text that no cache has."""
    return " ".join(secrets.token_hex(2) for _ in range(n_words)) + "\n"


async def idle_s(peer: Peer) -> float:
    """How long a small request takes that nobody disturbs, in seconds."""
    return statistics.median([await small_s(peer) for _ in range(3)])


async def small_s(peer: Peer) -> float:
    return (await peer.text(fresh(3) + "1 2 3 4", 4)).seconds


async def leave(asking: Sequence[asyncio.Task[Answer]]) -> None:
    """Closes their connections."""
    for one in asking:
        one.cancel()
    await asyncio.gather(*asking, return_exceptions=True)


def ask_all(peer: Peer, asks: Sequence[Ask]) -> list[asyncio.Task[Answer]]:
    """Asks all at once, every other one as a stream."""
    askers = [peer.streamed if n % 2 else peer.ask for n in range(len(asks))]
    return [asyncio.ensure_future(asker(ask)) for asker, ask in zip(askers, asks, strict=True)]


def bound_s(idle: float, abandoned_s: float) -> float:
    """What the next request may take; raises where that would tell nothing."""
    bound = 3 * idle + GRACE_S
    if abandoned_s < 3 * bound:
        raise NotApplicable(
            f"the model is too fast to tell: {abandoned_s:.1f} s of work were abandoned"
        )
    return bound


async def next_in_time(peer: Peer, idle: float, abandoned_s: float) -> str:
    bound = bound_s(idle, abandoned_s)
    took = await small_s(peer)
    said = f"{took:.2f} s, idle {idle:.2f} s; {abandoned_s:.0f} s of work or more were abandoned"
    require(took <= bound, said)
    return said


def n_words_that_fit(peer: Peer, share: float) -> int:
    """Words of `fresh` text that take about such a share of a context, three tokens each."""
    return int(share * min(peer.n_ctx or 4096, 8192) / 3)


@check(
    "D1",
    "llama.cpp#24496, llama.cpp#13262, llama.cpp#15232, llama.cpp#7418, llama-cpp-python#313",
    sends=f"{N_LEFT} long texts at once, half of them streams; all are left once the first has text"
    " and the others had a moment, and a small request is sent",
    passes="it takes at most three times as long as when the server is idle, and a second",
    why="an editor leaves at every key: what goes on for nobody is taken from the next answer",
)
async def leaving_ends_the_work(peer: Peer) -> str:
    """Who leaves while text is written, or waits, takes nothing from the next."""
    idle = await idle_s(peer)
    n_long = 800
    alone = await peer.ask(Ask(fresh(3), None, 64, endless=True))
    n_rounds = N_LEFT / min(peer.n_slots or N_LEFT, N_LEFT)
    n_said = alone.part.n_generated or 64
    asks = [Ask(fresh(3), None, n_long, endless=True) for _ in range(N_LEFT)]
    bound_s(idle, abandoned_s := n_rounds * alone.seconds * n_long / n_said)
    async with contextlib.aclosing(peer.stream(asks[0])) as events:
        await anext(events)
        asking = ask_all(peer, asks[1:])
        await asyncio.sleep(0.1)
        await leave(asking)
    return await next_in_time(peer, idle, abandoned_s)


@check(
    "D2, D3",
    "ollama#11889, ollama#2876, llama-cpp-python#599, llama-cpp-python#733",
    sends="four long prompts at once, half of them streams; all are left after half a second, and a"
    " small request is sent",
    passes="it takes at most three times as long as when the server is idle, and a second",
    why="a server that notices only when it writes reads the whole prompt for nobody",
)
async def leaving_ends_the_reading(peer: Peer) -> str:
    """Who leaves while the prompt is read takes nothing from the next."""
    idle = await idle_s(peer)
    n_words = n_words_that_fit(peer, 0.2)
    alone = await peer.text(fresh(n_words // 8), 1)
    bound_s(idle, abandoned_s := 4 * 8 * alone.seconds)
    asking = ask_all(peer, [Ask(fresh(n_words), None, 1) for _ in range(4)])
    await asyncio.sleep(0.5)
    await leave(asking)
    return await next_in_time(peer, idle, abandoned_s)


@check(
    "D4",
    "llama-cpp-python#867, llama-cpp-python#897, llama-cpp-python#873",
    sends="two streams at once",
    passes="both end as they should, with all of their tokens",
    why="in one server the second request ended the first",
)
async def two_streams_complete(peer: Peer) -> str:
    """Two streams at once both complete."""
    asks = [Ask(3 * f"{word}, " + word, None, 32) for word in ("red", "blue")]
    both = await asyncio.gather(*(peer.streamed(ask) for ask in asks))
    for answer in both:
        n, finish = answer.part.n_generated, answer.part.finish
        require(finish is not None, f"a stream ended without an end: {answer.text!r}")
        require(finish == "stop" or n in (None, 32), f"{n} tokens of 32")
    return "both"


@check(
    "D5",
    "continue#2935, cody#2967, zed-zeta-server#1",
    sends="twenty requests in half a second, a key more each, each of which leaves for the next",
    passes="the last takes at most three times as long as alone on an idle server, and a second",
    why="one request a key swamps a server that computes them all",
)
async def bursts_compute_the_last(peer: Peer) -> str:
    """Of a burst of requests that supersede each other the last one is quick."""
    typed = "total = compute_total(order, discount_rate)"
    head = fresh(8)
    alone = await peer.ask(Ask(fresh(8) + typed, None, 32, endless=True))
    n_rounds = 19 / min(peer.n_slots or 19, 19)
    bound = bound_s(alone.seconds, n_rounds * alone.seconds)
    for n in range(19):
        ask = Ask(head + typed[: len(typed) - 20 + n], None, 32, endless=True)
        [asking] = ask_all(peer, [ask])
        await asyncio.sleep(0.025)
        await leave([asking])
    last = await peer.ask(Ask(head + typed, None, 32, endless=True))
    said = f"{last.seconds:.2f} s, alone {alone.seconds:.2f} s"
    require(last.seconds <= bound, said)
    return said


@check(
    "D7",
    "tabby#3367",
    sends="requests from before the model is loaded, where the kit was started as early",
    passes="they are answered 503 with a Retry-After",
    why="a client that is told when to come back neither gives up nor asks all the time",
)
async def loading_is_told(peer: Peer) -> str:
    """A server whose model is loading says when to come back."""
    if not peer.while_loading:
        raise NotApplicable("the model was there first")
    n, told = (
        len(peer.while_loading),
        [one.headers.get("retry-after") for one in peer.while_loading],
    )
    require(all(told), f"{n} answers of 503, {n - sum(map(bool, told))} without Retry-After")
    return f"{n} answers of 503, Retry-After {told[0]}"


@check(
    "D8",
    "tabby#570, tabby#942, tabby#965, tabby#4356",
    sends="a text of 48 tokens, as a stream; the prompt was read before",
    passes="it comes in ten parts or more, the first within half of the time",
    why="on slow machines text that is shown as it is made is the difference to nothing",
)
async def text_comes_as_it_is_made(peer: Peer) -> str:
    """A stream's text comes as it is made."""
    prompt = fresh(3) + assignments(6)
    # Reading it is no part of the time.
    await peer.text(prompt, 1)
    answer = await peer.streamed(Ask(prompt, None, 48, endless=True))
    said = f"{answer.n_texts} parts, the first after {answer.first_s:.2f} of {answer.seconds:.2f} s"
    require(answer.n_texts >= 10 and answer.first_s <= answer.seconds / 2, said)
    return said


@check(
    "D10, D11",
    "llama.vscode#155, llama.cpp#22083, llama.cpp#19794, llama.cpp#20153, llama.cpp#14157",
    sends="two texts in turns, three times each, a word longer each time",
    passes="from the second time on at most half of a prompt is evaluated",
    why="who reads all of a file again at each key is slow for no reason",
)
async def prompts_are_reused(peer: Peer) -> str:
    """Two files in turns are not read anew each time."""
    texts = [fresh(60) for _ in range(2)]
    shares = []
    for _ in range(3):
        for n in range(2):
            answer = await peer.text(texts[n], 1)
            shares.append(answer.n_evaluated / answer.n_prompt)
            texts[n] += fresh(1)
    said = f"{100 * max(shares[2:]):.0f} % of a prompt evaluated at most"
    require(max(shares[2:]) <= 0.5, said)
    return said


@check(
    "D12",
    "cody#969, cody#298, cody#4817, cody#4902",
    sends="one prefix with two suffixes in turns: `SECRET = ‸` above assertions of two numbers",
    passes="the answers to the two differ, each time, and neither holds the other's number",
    why="caches whose key is the prefix answer with what belonged elsewhere",
)
async def no_stale_answer(peer: Peer) -> str:
    """Another suffix gets another answer."""
    n_apart, n_rounds = 0, 3
    texts: list[str] = []
    for _ in range(n_rounds):
        texts = []
        for number in NUMBERS[:2]:
            _, _, after = MARKED.format(cursor="\0", number=number).partition("\0")
            texts.append((await peer.hole("SECRET =", after, 10)).text)
        n_apart += texts[0] != texts[1]
    said = enough(n_apart, n_rounds, 1.0, "pairs differ")
    if not peer.has_sense:
        return said
    crossed = str(NUMBERS[0]) in texts[1] or str(NUMBERS[1]) in texts[0]
    require(not crossed, f"answers of the other suffix: {texts}")
    return said


@check(
    "D14",
    "ollama#17427, ollama#3839, roo-code#1372",
    sends="two holes whose text stands in the line behind the cursor, with 200,000 characters"
    " before and behind",
    passes="both answers hold the number of that line, and where the dialect can say that text was"
    " left out it is said",
    why="a prompt that is cut at the wrong end, or through a sentinel, is another prompt",
)
async def huge_files_keep_the_cursor(peer: Peer) -> str:
    """Of a huge file what is nearest to the cursor is kept, and the cut is told."""
    peer.needs_sense()
    n_good, told, around = 0, True, filler(200_000)
    for number in NUMBERS[:2]:
        before, _, after = MARKED.format(cursor="\0", number=number).partition("\0")
        ask = Ask(around + before.rstrip(" "), after + around, 10)
        path, body = peer.dialect.request(ask, peer.model)
        if not peer.fills:
            raise NotApplicable("the server fills no holes with this model")
        n_good += str(number) in (await peer.ask(ask)).text
        if isinstance(peer.dialect, LlamaCpp):
            told = told and (await peer.http.post(path, json=body)).json()["truncated"]
    said = enough(n_good, 2, 1.0, "with what the next line says")
    require(told, f"{said}, but `truncated` is false")
    return said


@check(
    "D15",
    "llama.cpp#17284, tabby#416",
    sends="a file of 10 MB with the cursor in the middle",
    passes="it is answered",
    why="generated files, tables and logs are edited, too",
)
async def ten_megabytes_are_answered(peer: Peer) -> str:
    """A file of 10 MB is answered."""
    half = filler(5 * 10**6)
    answer = await peer.hole(half, "\n" + half, 1)
    return f"in {answer.seconds:.1f} s"


@check(
    "D19",
    "llama.cpp#10072",
    sends="eight texts one after the other, then all at once, then all at once as streams",
    passes="each answer is that of the serial run up to a token that was nearly as likely as"
    f" another (within {NEAR_TIE} nats), where the dialect tells, and no text is another prompt's",
    why="answers went to the wrong clients",
)
async def eight_at_once_get_their_own(peer: Peer) -> str:
    """Eight texts at once get the answers that they get alone."""
    words = ("red", "blue", "one", "left", "north", "apple", "open", "true")
    prompts = [f"{word}: {word} {word}, {word} {word}, {word}" for word in words]
    serial = [await _with_margins(peer, prompt) for prompt in prompts]
    asks = [Ask(prompt, None, 12) for prompt in prompts]
    at_once = await asyncio.gather(*(peer.ask(ask) for ask in asks))
    streams = await asyncio.gather(*(peer.streamed(ask) for ask in asks))
    n_tied = 0
    for answers in (at_once, streams):
        for n, answer in enumerate(answers):
            text, ties = serial[n]
            if answer.text == text:
                continue
            same = _n_same(answer.text, text)
            if not any(start <= same <= end for start, end in ties):
                raise Failed(f"{words[n]}: {answer.text!r}, alone {text!r}")
            n_tied += 1
    return f"{2 * len(words) - n_tied} of {2 * len(words)} the same, {n_tied} up to a near tie"


async def _with_margins(peer: Peer, prompt: str) -> tuple[str, list[tuple[int, int]]]:
    """The text, and the ranges of tokens that others were nearly as likely as."""
    if not isinstance(peer.dialect, LlamaCpp):
        return (await peer.text(prompt, 12)).text, []
    ask = replace(Ask(prompt, None, 12), more={"n_probs": 2})
    path, body = peer.dialect.request(ask, peer.model)
    answer = (await peer.http.post(path, json=body)).json()
    ties, at = [], 0
    for token in answer.get("completion_probabilities", ()):
        best = sorted((one["logprob"] for one in token["top_logprobs"]), reverse=True)
        end = at + len(token["token"])
        if len(best) > 1 and best[0] - best[1] < NEAR_TIE:
            ties.append((at, end))
        at = end
    return str(answer["content"]), ties


def _n_same(one: str, other: str) -> int:
    """Characters that both begin with."""
    pairs = zip(one, other, strict=False)
    return next(
        (n for n, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other))
    )
