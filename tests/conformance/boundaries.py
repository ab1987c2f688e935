"""5-A: what becomes of the text at the cursor, at the ends of a file, and around sentinels."""

from __future__ import annotations

from conformance.check import Failed, NotApplicable, check, enough, require
from conformance.dialects import Ask, OpenAI
from conformance.peer import Peer, llama_cpp_only

# Each is assigned from a parameter of its own name: who reads along knows what follows.
NAMES = (
    "customer_address", "invoice_number", "shipping_method", "discount_rate", "warehouse_code",
    "delivery_window", "payment_terms", "currency_symbol", "tracking_identifier", "billing_contact",
)  # fmt: skip
HEAD = f"class Order:\n    def __init__(self, {', '.join(NAMES)}):\n"
MARKED = "SECRET = {cursor}\nassert SECRET == {number}\n"
NUMBERS = (730451, 118642, 905377, 264819, 583906)


def assignments(n: int) -> str:
    """The first `n` lines of a constructor."""
    return HEAD + "".join(f"        self.{name} = {name}\n" for name in NAMES[:n])


@check(
    "A1",
    "llama.cpp#22678",
    sends="one text before the cursor in four ways: all of it as `input_prefix`, and cut at a line,"
    " in a blank and in a word, with the rest as `prompt`",
    passes="all four answers, eight tokens each and greedy, are the same",
    why="clients part the text as it suits their cache; the documentation says that `prompt` is"
    " behind the middle sentinel, the code puts it before",
)
async def prompt_is_the_end(peer: Peer) -> str:
    """The answer goes on with `prompt`, wherever a client parts the text."""
    llama_cpp_only(peer)
    before = assignments(4) + f"        self.{NAMES[4]} ="
    cuts = (len(before), before.rfind("\n") + 1, before.rfind(" "), before.rfind("house"))
    answers = [(await peer.hole(before[:cut], "\n", 8, prompt=before[cut:])).text for cut in cuts]
    n_same = sum(answer == answers[0] for answer in answers)
    return enough(n_same, len(cuts), 1.0, "the same")


@check(
    "A2",
    "llama.cpp#5765, llama.cpp#7187, llama.cpp#19238, llama.cpp#24247",
    sends="lines whose last word is known, cut behind every other of its letters; and uncut, as a"
    " control",
    passes="in 95 % of the cuts of words that the model writes when uncut, the greedy answer begins"
    " with the letters that were cut off",
    why="most cursors stand inside what is one token when the word is whole, and a prompt that ends"
    " with other tokens than the model was trained on derails it",
)
async def cut_words_are_finished(peer: Peer) -> str:
    """A word that is cut inside a token is finished."""
    peer.needs_sense()
    n_good, n_cuts, missed = 0, 0, []
    known = [n for n in range(2, len(NAMES)) if await _writes(peer, n, 0)]
    if not known:
        raise NotApplicable("the model writes none of the words")
    for n in known:
        for cut in (cuts := range(1, len(NAMES[n]) - 1, 2)):
            is_good = await _writes(peer, n, cut)
            n_good += is_good
            missed += [] if is_good else [f"{NAMES[n][:cut]}‸"]
        n_cuts += len(cuts)
    some = f"; not {', '.join(missed[:4])}" if missed else ""
    return enough(n_good, n_cuts, 0.95, "cuts go on with the word") + some


async def _writes(peer: Peer, n: int, cut: int) -> bool:
    """Whether the rest of name `n` follows its first `cut` letters."""
    name = NAMES[n]
    line = f"        self.{name} =" + (f" {name[:cut]}" if cut else "")
    rest = name[cut:] if cut else f" {name}"
    # Two letters a token are the least that is usual.
    answer = await peer.before(assignments(n) + line, len(rest) // 2 + 2)
    return answer.text.startswith(rest)


@check(
    "A3",
    "minuet-ai.nvim#140",
    sends="`name = value` lines, and another name with the cursor right behind it",
    passes="the answer begins with one blank and the equals sign",
    why="`foo‸` answered `= 1` without its blank is wrong text, and no client can tell",
)
async def leading_blank_is_kept(peer: Peer) -> str:
    """A blank that belongs to the answer is there."""
    peer.needs_sense()
    before = "".join(f"{name} = {len(name)}\n" for name in NAMES[:6]) + NAMES[6]
    answer = await peer.before(before, 6)
    require(answer.text.startswith(" = "), f"began with {answer.text[:12]!r}")
    return repr(answer.text[:8])


@check(
    "A5",
    "continue#4194",
    sends="no prefix with 2 and with 8 lines of suffix",
    passes="both are answered, and the prompt has a token more for each line more",
    why="the first line of a file is a place like any other",
)
async def hole_at_the_start(peer: Peer) -> str:
    """A hole at offset 0 is a hole."""
    two = "\nx0 = 0\nx1 = 1\n"
    eight = two + "".join(f"x{n} = {n}\n" for n in range(2, 8))
    short, long = await peer.n_tokens("", two), await peer.n_tokens("", eight)
    require(long >= short + 6, f"{short} and {long} tokens")
    return f"{short} and {long} tokens"


@check(
    "A7",
    "ollama: template/template.go",
    sends='the suffix "\\nx = 1\\n" behind no prefix, and behind the prefix "y"',
    passes="the prompt without a prefix is the shorter one",
    why="where an empty prompt falls back to a chat template the model is asked something else",
)
async def empty_prefix_is_no_chat(peer: Peer) -> str:
    """An empty prefix makes no other kind of prompt."""
    without, one = await peer.n_tokens("", "\nx = 1\n"), await peer.n_tokens("y", "\nx = 1\n")
    require(without <= one, f"{without} tokens without a prefix, {one} with a letter")
    return f"{without} and {one} tokens"


@check(
    "A8",
    "llama.cpp#11106, llama.cpp#11092",
    sends="a text to `/tokenize` with and without special tokens, and as a prompt; a hole whose"
    " answer quotes its prompt",
    passes="the prompt has as many tokens as the text with special tokens has, at most one more"
    " than without, and the quoted prompt of the hole has one BOS where the text has",
    why="CodeGemma answers otherwise with two",
)
async def exactly_one_bos(peer: Peer) -> str:
    """There is exactly one BOS, and none where the model wants none."""
    text = "def area(w, h):\n    return w * h\n"
    plain = await peer.tokens(text, add_special=False)
    special = await peer.tokens(text, add_special=True)
    n_bos = len(special) - len(plain)
    n_prompt = (await peer.text(text, 1, **peer.uncut)).n_prompt
    require(n_bos in (0, 1), f"{n_bos} tokens before the text")
    require(n_prompt == len(special), f"{n_prompt} tokens for a text of {len(special)}")
    quoted = await _bos_of_a_hole(peer, text)
    require(quoted in (None, n_bos), f"{quoted} BOS in the prompt of a hole, not {n_bos}")
    return f"{n_bos} BOS, left to right{'' if quoted is None else ' and in a hole'}"


async def _bos_of_a_hole(peer: Peer, text: str) -> int | None:
    """How many there are, where the server tells of prompts."""
    bos = ((await peer.told("/props")) or {}).get("bos_token") or ""
    if not peer.fills:
        return None
    path, body = llama_cpp_only(peer).request(Ask(text, "\n", 1), peer.model)
    answer = (await peer.http.post(path, json=body)).json()
    if bos and answer.get("prompt"):
        return int(answer["prompt"].count(bos))
    explained = await peer.told("/v1/explain", body)
    if explained is None:
        return None
    segments = explained["prompt"]["segments"]
    return sum(int(one["tokens"]) for one in segments if one["role"] == "bos")


@check(
    "A10",
    "llama-coder#34",
    sends='the suffixes "\\r\\n}\\r\\n" and "\\n}\\n"',
    passes="the prompt of the first has at most a token more for each line end",
    why="CodeLlama failed on Windows files: its sentinel came apart into letters",
)
async def carriage_return_behind_a_sentinel(peer: Peer) -> str:
    """A carriage return behind a sentinel changes no sentinel."""
    crlf = await peer.n_tokens("int main() {\r\n", "\r\n}\r\n")
    lf = await peer.n_tokens("int main() {\n", "\n}\n")
    require(crlf - lf <= 3, f"{crlf} tokens, {lf} with LF")
    return f"{crlf} tokens, {lf} with LF"


@check(
    "A11",
    "tabby#560",
    sends="a prefix with no suffix, and with a line end as suffix",
    passes="both are answered, and the prompt without a suffix is the shorter one",
    why="a line end that the file does not have is a hint that it goes on",
)
async def empty_suffix(peer: Peer) -> str:
    """An empty suffix is answered, and is not a line end."""
    none, line_end = await peer.n_tokens("x = 1\ny =", ""), await peer.n_tokens("x = 1\ny =", "\n")
    require(none < line_end, f"{none} tokens without, {line_end} with a line end")
    return f"{none} and {line_end} tokens"


@check(
    "A12, A14",
    "llama-cpp-python: llama_cpp/llama.py, twinny#377, twinny#317, continue#1552, llm-ls#111,"
    " zed#59092",
    sends="five holes whose text stands only in the suffix: `SECRET = ‸` above an assertion",
    passes="four of five answers are the number",
    why="with a wrong template a model writes nonsense, sentinels, or nothing, and nobody is told",
)
async def suffix_is_understood(peer: Peer) -> str:
    """The model sees its own sentinels in its own order."""
    peer.needs_sense()
    n_good = 0
    for number in NUMBERS:
        before, _, after = MARKED.format(cursor="\0", number=number).partition("\0")
        # A blank at the end would be another check's matter.
        answer = await peer.hole(before.rstrip(" "), after, 10)
        n_good += answer.text.split("\n")[0].strip() == str(number)
    return enough(n_good, len(NUMBERS), 0.8, "holes filled with what the suffix says")


@check(
    "A13",
    "llama.vscode#42, llama.qtcreator#3",
    sends="a hole, to a server whose model has no sentinels",
    passes="a 4xx, or a 501, that names the model, sentinels or infilling as the reason",
    why="users of chat models saw a bare 501",
)
async def no_sentinels_is_said(peer: Peer) -> str:
    """A model that cannot fill in is named as the reason."""
    if peer.fills:
        raise NotApplicable("the model fills in")
    path, body = peer.dialect.request(Ask("x = ", " + 1\n", 1), peer.model)
    response = await peer.http.post(path, json=body)
    status, text = response.status_code, response.text
    require(400 <= status < 500 or status == 501, f"answered {status}: {text[:120]}")
    words = ("infill", "fim", "fill", "insert", "sentinel", "suffix")
    require(any(word in text.lower() for word in words), f"{status}: {text[:120]}")
    return f"{status}: {text[:100]}"


@check(
    "A15",
    "ollama#6968, ollama#12387, ollama#8320, twinny#142",
    sends="`/v1/models`, `/props`, `/api/show`, and a hole",
    passes="one of them says yes or no, none says the opposite of what the server does",
    why="clients otherwise learn it from garbage",
)
async def capability_is_told(peer: Peer) -> str:
    """The server says whether it fills in, and it is true."""
    said = {
        "/v1/models": _of_models(await peer.told("/v1/models")),
        "/props": _of_props(await peer.told("/props")),
        "/api/show": _of_show(await peer.told("/api/show", {"model": peer.model})),
    }
    told = {path: yes for path, yes in said.items() if yes is not None}
    require(bool(told), "no route says so")
    wrong = [path for path, yes in told.items() if yes != peer.fills]
    require(not wrong, f"{', '.join(wrong)}: the opposite is true")
    return ", ".join(told)


def _of_models(answer: dict[str, object] | None) -> bool | None:
    match answer:
        case {"data": [{"fim": {"supported": bool(yes)}}, *_]}:
            return yes
        case {"data": [{"capabilities": [*named]}, *_]} if {"infill", "insert", "fim"} & {*named}:
            return True
    return None


def _of_props(answer: dict[str, object] | None) -> bool | None:
    for key, value in (answer or {}).items():
        if "infill" in key or "fim" in key:
            return bool(value)
    return None


def _of_show(answer: dict[str, object] | None) -> bool | None:
    match answer:
        case {"capabilities": [*named]}:
            return "insert" in named
    return None


@check(
    "A16",
    "minuet-ai.nvim#129, minuet-ai.el#21, model-runner#403, vllm#9976, lemonade#3, kronk#150",
    sends="`/v1/completions` with a `suffix` of one line and of nine",
    passes="both are answered, and the prompt has a token more for each line more",
    why="most clients can speak OpenAI's dialect, and most servers refuse `suffix` or ignore it",
)
async def suffix_of_openais_route(peer: Peer) -> str:
    """`suffix` of OpenAI's route has an effect."""
    if not peer.fills:
        raise NotApplicable("the server fills no holes with this model")
    if not any(dialect.hole == OpenAI.hole for dialect in peer.dialects):
        raise NotApplicable("there is no /v1/completions")
    lines = [f"\nprint({n})" for n in range(9)]
    asks = [Ask("x =", suffix, 1) for suffix in (lines[0], "".join(lines))]
    short, long = [(await peer.ask(ask, OpenAI())).n_prompt for ask in asks]
    said = f"{short} tokens in the prompt with one line, {long} with nine"
    require(long >= short + 8, said)
    return said


@check(
    "A18",
    "llm-vscode-inference-server#3",
    sends="each of the model's sentinels within the prefix and within the suffix of a hole",
    passes="the prompt has as many tokens more as `/tokenize` makes of the text, not those of the"
    " sentinel",
    why="a file about models ends the prompt early or begins another one",
)
async def sentinels_in_text_are_text(peer: Peer) -> str:
    """Sentinels in a user's text are text."""
    sentinels = await own_sentinels(peer)
    n_plain = await peer.n_tokens("a = ''\nb =", "\nc = ''\n")
    parsed = set()
    for sentinel in sentinels:
        before = await peer.n_tokens(f"a = '{sentinel}'\nb =", "\nc = ''\n")
        after = await peer.n_tokens("a = ''\nb =", f"\nc = '{sentinel}'\n")
        as_text, as_token = [await _more(peer, sentinel, flag) for flag in (False, True)]
        for n_more in (before - n_plain, after - n_plain):
            # Neighbours may join it: what is nearer.
            if abs(n_more - as_token) < abs(n_more - as_text):
                parsed.add(sentinel)
    if parsed:
        raise Failed(f"taken for tokens: {', '.join(sorted(parsed))}")
    return f"{len(sentinels)} sentinels"


async def _more(peer: Peer, sentinel: str, parse_special: bool) -> int:
    """By how many tokens a quoted sentinel is longer than empty quotes."""
    flags = {"parse_special": parse_special, "add_special": False}
    quoted = await peer.tokens(f"a = '{sentinel}'\n", **flags)
    return len(quoted) - len(await peer.tokens("a = ''\n", **flags))


# Those of all families that are known to be served with llama.cpp.
SENTINELS = (
    "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|repo_name|>",
    "<|file_sep|>", "<|endoftext|>", "<|im_end|>", "<|im_start|>", "<fim_prefix>", "<fim_suffix>",
    "<fim_middle>", "<fim_pad>", "<file_sep>", "<repo_name>", "<filename>", "<reponame>", "<PRE>",
    "<SUF>", "<MID>", "<EOT>", "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", "<|EOT|>",
    "<｜end▁of▁sentence｜>", "[PREFIX]", "[SUFFIX]", "</s>", "<s>", "<|file_separator|>", "<eos>",
    "<end_of_turn>", "<|end_of_text|>", "<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>",
)  # fmt: skip


async def own_sentinels(peer: Peer) -> dict[str, int]:
    """Those that are one token of this model, and which."""
    own = {}
    for sentinel in SENTINELS:
        ids = await peer.tokens(sentinel, parse_special=True, add_special=False)
        as_text = await peer.tokens(sentinel, parse_special=False, add_special=False)
        if len(ids) == 1 < len(as_text):
            own[sentinel] = int(ids[0])
    if not own:
        raise NotApplicable("the model has no sentinel that is known")
    return own
