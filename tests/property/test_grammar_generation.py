"""Generations under a grammar, on the scripted engine, where a grammar is a list of texts."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.driving import chunks_of, collect, whole
from support.toy import special, toy_encode, toy_generation, toy_vocabulary
from support.vocab import sentencepiece_like
from suture.healing import TokenKind, Vocabulary
from suture.server.decoding.drafts import DraftWidth
from suture.server.decoding.gbnf import refusal
from suture.server.decoding.generation import Generation
from suture.server.decoding.step_costs import StepCosts
from suture.server.engine.job import Job
from suture.server.engine.protocol import Logits
from suture.server.engine.scheduler import Scheduler
from suture.server.engine.scripted import Model, ScriptedEngine, random_model, speaking_model
from suture.server.engine.scripted_grammar import TextsGrammar
from suture.server.errors import InvalidRequest
from suture.server.request import CompletionRequest, GrammarScope, Healing, SamplingParams

VOCABULARY = toy_vocabulary()
PLAIN = CompletionRequest("def ", max_tokens=40)
RECURSIVE = replace(PLAIN, healing="recursive")
END = special("<|endoftext|>")


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    before = TextsGrammar.n_open
    yield
    assert TextsGrammar.n_open == before


def byte_vocabulary_with(pieces: Sequence[bytes]) -> Vocabulary:
    normal = [*(bytes([i]) for i in range(256)), *pieces]
    end = len(normal)
    return Vocabulary(
        [*normal, b"<|endoftext|>"],
        kinds=[*[TokenKind.NORMAL] * end, TokenKind.CONTROL],
        n_vocab=end + 1,
        bos_id=end,
        eos_id=end,
        eog_ids=frozenset({end}),
    )


def grammar_of(*texts: str) -> str:
    return "root ::= " + " | ".join(json.dumps(text) for text in texts)


def generation_of(request: CompletionRequest, model: Model) -> tuple[Generation, ScriptedEngine]:
    engine = ScriptedEngine(VOCABULARY, toy_encode, model)
    return toy_generation(request, engine), engine


def text_of(request: CompletionRequest, model: Model) -> str:
    return whole(*generation_of(request, model))[0]


def test_the_text_is_one_that_the_grammar_has() -> None:
    request = replace(PLAIN, healing="off", grammar=grammar_of("user()", "return x"))
    text, result = whole(*generation_of(request, random_model(VOCABULARY.n_vocab)))
    assert text in ("user()", "return x") and result.finish == "eos"


def test_what_the_model_wants_comes_where_the_grammar_has_it() -> None:
    model = speaking_model(VOCABULARY, b"def return x")
    request = replace(PLAIN, healing="off", grammar=grammar_of("return", "return x", "return y"))
    assert text_of(request, model) == "return x"


def test_the_end_comes_only_where_the_text_is_complete() -> None:
    def ends(tokens: Sequence[int]) -> Logits:
        row = np.zeros(VOCABULARY.n_vocab, np.float32)
        row[END] = 50.0
        return row

    request = replace(PLAIN, healing="off", grammar=grammar_of("a long text"))
    assert text_of(request, ends) == "a long text"
    # Whatever ends a text of this family does so for a grammar too.
    hole = replace(request, infill=True, suffix="\n")
    assert text_of(hole, ends) == "a long text"


def test_no_end_and_nothing_more_ends_the_text() -> None:
    request = replace(PLAIN, healing="off", grammar=grammar_of("()"))
    for early in (replace(request, min_tokens=9), replace(request, ignore_eos=True)):
        text, result = whole(*generation_of(early, random_model(VOCABULARY.n_vocab)))
        assert (text, result.finish) == ("()", "eos")


def test_a_banned_text_ends_at_once() -> None:
    bans = tuple((i, -np.inf) for i in range(256 + 20))
    request = replace(PLAIN, healing="off", grammar=grammar_of("()"))
    request = replace(request, sampling=SamplingParams(logit_bias=bans))
    text, result = whole(*generation_of(request, random_model(VOCABULARY.n_vocab)))
    assert (text, result.finish, result.reason) == ("", "eos", "EMPTY")


def test_c4_the_grammar_sees_only_the_overhang() -> None:
    # Only " user" is given back; " userName" says it and more, which "Name()" begins with.
    model = speaking_model(VOCABULARY, b"const userName()")
    request = replace(RECURSIVE, prefix="const user", grammar=grammar_of("Name()", "s"))
    text, result = whole(*generation_of(request, model))
    assert text == "Name()" and result.healing.level == "recursive"
    assert result.healing.pending == b" user"


def test_c4_the_next_best_healed_token_comes_where_the_best_is_forbidden() -> None:
    model = speaking_model(VOCABULARY, b"const userName()")
    request = replace(RECURSIVE, prefix="const user", grammar=grammar_of("s = ()"))
    text, result = whole(*generation_of(request, model))
    assert text == "s = ()" and result.healing.level == "recursive"


def test_c4_where_nothing_healed_is_permitted_healing_is_dropped() -> None:
    """A model that is set on tokens that run over, of which the vocabulary has many."""
    pieces = [b"user" + bytes([a, b]) for a in range(65, 91) for b in range(65, 91)]
    vocabulary = byte_vocabulary_with(pieces)
    first = 256

    def insists(tokens: Sequence[int]) -> Logits:
        row = np.zeros(vocabulary.n_vocab, np.float32)
        row[first : first + len(pieces)] = 20.0
        return row

    engine = ScriptedEngine(vocabulary, lambda piece: list(piece), insists)
    request = CompletionRequest(
        "user",
        give_back=4,
        max_tokens=9,
        grammar=grammar_of("()"),
        sampling=SamplingParams(logit_bias=((ord("u"), -np.inf),)),
        return_tokens=True,
    )
    chunks = list(chunks_of(toy_generation(request, engine), engine))
    result = chunks[-1].result
    assert result is not None and result.healing.level == "none"
    assert "".join(chunk.text for chunk in chunks) == "()"
    assert result.completion_tokens == 3  # the brackets and the end


def test_c4_a_token_that_says_just_what_is_pending_comes_where_all_others_are_forbidden() -> None:
    pieces = [b" " + bytes([a, b]) for a in range(65, 91) for b in range(65, 91)]
    vocabulary = byte_vocabulary_with(pieces)

    def insists(tokens: Sequence[int]) -> Logits:
        row = np.zeros(vocabulary.n_vocab, np.float32)
        row[256:] = 20.0
        return row

    engine = ScriptedEngine(vocabulary, lambda piece: list(piece), insists)
    request = replace(RECURSIVE, prefix="x ", give_back=1, max_tokens=9, grammar=grammar_of("7"))
    text, result = whole(toy_generation(request, engine), engine)
    assert (text, result.healing.level, result.healing.nodes) == ("7", "recursive", 1)


def test_c4_an_exact_end_comes_where_a_grammar_refuses_all_that_is_likelier() -> None:
    pieces = [b" " + bytes([a, b]) for a in range(65, 91) for b in range(65, 91)]
    vocabulary = byte_vocabulary_with(pieces)

    def insists(tokens: Sequence[int]) -> Logits:
        row = np.zeros(vocabulary.n_vocab, np.float32)
        row[256:] = 20.0
        return row

    engine = ScriptedEngine(vocabulary, lambda piece: list(piece), insists)
    for temperature in (0.0, 1.0):
        request = CompletionRequest(
            "x ",
            give_back=1,
            max_tokens=9,
            grammar=grammar_of("7"),
            sampling=SamplingParams(temperature=temperature),
        )
        text, result = whole(toy_generation(request, engine), engine)
        assert (text, result.healing.level) == ("7", "exact")


def test_c4_no_healed_token_ends_inside_a_character() -> None:
    """What is said of it alone would be a replacement character, which nothing goes on from."""
    vocabulary = byte_vocabulary_with([b"user\xc3"])

    def insists(tokens: Sequence[int]) -> Logits:
        row = np.zeros(vocabulary.n_vocab, np.float32)
        row[256] = 20.0
        return row

    def encode(text_bytes: bytes) -> list[int]:
        return list(text_bytes.decode("utf-8", "replace").encode())

    engine = ScriptedEngine(vocabulary, encode, insists)
    request = CompletionRequest(
        "user", give_back=4, max_tokens=9, grammar=grammar_of("\ufffd", "é"), return_tokens=True
    )
    chunks = list(chunks_of(toy_generation(request, engine), engine))
    said = b"".join(vocabulary.bytes_of(i) for chunk in chunks for i in chunk.token_ids)
    assert said.decode() in ("user\ufffd", "useré")


def spaced_vocabulary_insisting_on(piece: bytes) -> tuple[Vocabulary, ScriptedEngine]:
    """A SentencePiece vocabulary, whose tokenizer puts a space before every text."""
    vocabulary, encode = sentencepiece_like()
    row = np.zeros(vocabulary.n_vocab, np.float32)
    row[vocabulary.ids_of(piece)[0]] = 20.0
    return vocabulary, ScriptedEngine(vocabulary, encode, lambda tokens: row.copy())


def test_c4_the_grammar_sees_no_dummy_space_in_an_overhang() -> None:
    vocabulary, engine = spaced_vocabulary_insisting_on(b"self")
    request = CompletionRequest(
        "\nsel", give_back=1, max_tokens=1, grammar=grammar_of("f"), return_tokens=True
    )
    chunks = list(chunks_of(toy_generation(request, engine), engine))
    said = [vocabulary.bytes_of(i) for chunk in chunks for i in chunk.token_ids]
    assert said == [b"self"]


def test_c4_dropped_healing_says_what_is_pending_without_a_dummy_space() -> None:
    vocabulary, engine = spaced_vocabulary_insisting_on(b"self")
    bans = tuple((i, -np.inf) for piece in (b"s", b"se", b"sel") for i in vocabulary.ids_of(piece))
    request = CompletionRequest(
        "\nsel",
        give_back=1,
        max_tokens=9,
        grammar=grammar_of("()"),
        sampling=SamplingParams(logit_bias=bans),
        return_tokens=True,
    )
    chunks = list(chunks_of(toy_generation(request, engine), engine))
    result = chunks[-1].result
    assert result is not None and result.healing.level == "none"
    said = b"".join(vocabulary.bytes_of(i) for chunk in chunks for i in chunk.token_ids)
    assert said == b"sel()"


def test_c4_a_grammar_may_cover_what_stands_before_the_cursor() -> None:
    model = speaking_model(VOCABULARY, b'{"name": 1}')
    for healing in ("exact", "recursive", "off"):
        request = CompletionRequest('{"na', max_tokens=20, grammar=grammar_of('{"name": 1}'))
        prefilled = replace(request, grammar_scope="prefill", healing=healing)
        text, result = whole(*generation_of(prefilled, model))
        assert (text, result.finish) == ('me": 1}', "eos")
        rest = replace(prefilled, grammar_scope="output", grammar=grammar_of('me": 1}'))
        assert text_of(rest, model) == 'me": 1}'


@pytest.mark.parametrize("scope", ["output", "prefill"])
def test_c4_where_no_cover_goes_on_as_the_grammar_does_healing_is_dropped(
    scope: GrammarScope,
) -> None:
    """Whatever may come behind the exact end belongs to the last token there, and is banned."""
    pieces = [b"na", b"name", b"am"]
    vocabulary = byte_vocabulary_with(pieces)
    ids = {piece: 256 + n for n, piece in enumerate(pieces)}

    def encode(text_bytes: bytes) -> list[int]:
        token_ids: list[int] = []
        while text_bytes:
            n = vocabulary.longest_prefix(text_bytes)
            token_ids.append(vocabulary.ids_of(text_bytes[:n])[0])
            text_bytes = text_bytes[n:]
        return token_ids

    engine = ScriptedEngine(vocabulary, encode, random_model(vocabulary.n_vocab))
    # Of `name` as a token nothing is left, and `na` is no token that the model may say again.
    banned = (ids[b"name"], ids[b"na"], ord("n"))
    request = CompletionRequest(
        '{"na',
        give_back=1,
        max_tokens=9,
        grammar=grammar_of('{"name"}' if scope == "prefill" else 'me"}'),
        grammar_scope=scope,
        sampling=SamplingParams(logit_bias=tuple((i, -np.inf) for i in banned)),
    )
    text, result = whole(toy_generation(request, engine), engine)
    assert (text, result.healing.level, result.healing.tv_bound) == ('me"}', "none", 1.0)
    assert result.healing.pending == b"na"


def test_c4_a_cover_that_a_grammar_cannot_go_on_behind_is_none() -> None:
    """An exact end is likely, and all that may follow it there is what the tokenizer would join."""
    model = speaking_model(VOCABULARY, b"const userNa = x")
    for temperature in (0.0, 1.0):
        request = CompletionRequest(
            "const userNa",
            max_tokens=9,
            grammar=grammar_of("me()"),
            sampling=SamplingParams(temperature=temperature, seed=1),
            grammar_scope="output",
        )
        text, result = whole(*generation_of(request, model))
        assert text == "me()" and result.healing.level == "exact"


@pytest.mark.parametrize("prefix", ['{"na', '{"nm', "x"])
def test_a_prefill_that_does_not_begin_what_the_grammar_describes_is_refused(prefix: str) -> None:
    request = CompletionRequest(prefix, grammar=grammar_of("[1]"), grammar_scope="prefill")
    generation, engine = generation_of(request, random_model(VOCABULARY.n_vocab))
    with pytest.raises(InvalidRequest, match="does not begin anything") as caught:
        generation.tree(0)
    assert caught.value.field == "grammar_scope"
    scheduler = Scheduler(lambda: engine)
    scheduler.start()
    scheduler.wait_ready()
    for told in (queue.Queue[object](), queue.Queue[object]()):
        scheduler.submit(Job(toy_generation(request, engine), told.put))
        with pytest.raises(InvalidRequest, match="grammar_scope"):
            collect(told)
    free: queue.Queue[object] = queue.Queue()
    scheduler.submit(Job(toy_generation(PLAIN, engine), free.put))
    assert collect(free)[1].finish
    scheduler.close()


def test_v1_no_sampler_makes_a_grammar_ask_for_ever() -> None:
    model = random_model(VOCABULARY.n_vocab)
    repeated = replace(PLAIN, prefix="a b c a b c a b c", healing="off", grammar=grammar_of("xyz"))
    for params in (
        SamplingParams(temperature=1.0, xtc_probability=1.0, xtc_threshold=0.0, seed=1),
        SamplingParams(dry_multiplier=-1e30, dry_base=1e30),
    ):
        assert text_of(replace(repeated, sampling=params), model) == "xyz"


def test_a_draw_that_is_refused_after_the_mask_ends_the_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TextsGrammar, "permits", lambda grammar, token_id: False)
    request = replace(PLAIN, healing="off", grammar=grammar_of("xyz"))
    for temperature in (0.0, 1.0):
        sampled = replace(request, sampling=SamplingParams(temperature=temperature))
        text, result = whole(*generation_of(sampled, random_model(VOCABULARY.n_vocab)))
        assert (text, result.finish) == ("", "eos")


def test_v1_nothing_is_drawn_where_everything_is_banned() -> None:
    bans = tuple((i, -np.inf) for i in range(VOCABULARY.n_vocab))
    for temperature in (0.0, 1.0):
        params = SamplingParams(temperature=temperature, logit_bias=bans)
        for healing in ("off", "recursive", "exact"):
            request = CompletionRequest("const us", healing=healing, sampling=params)
            text, result = whole(*generation_of(request, random_model(VOCABULARY.n_vocab)))
            assert (text, result.finish) == ("", "eos")


WORDS = ["user", "userName", "Name", " x", " = ", "()", "return", "\n", "é", "ret"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=5).map("".join), min_size=1, max_size=4)
PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 1.0]),
    top_k=st.integers(0, 5),
    top_p=st.sampled_from([0.5, 1.0]),
    repeat_penalty=st.sampled_from([1.0, 1.3]),
    dry_multiplier=st.sampled_from([0.0, 1.0]),
    logit_bias=st.lists(
        st.tuples(st.integers(0, 275), st.sampled_from([-np.inf, 5.0])), max_size=3
    ).map(tuple),
    seed=st.integers(0, 1000),
)


@settings(max_examples=150)
@given(
    TEXTS,
    PARAMS,
    st.sampled_from(["def ", "const us", "return user", ""]),
    st.sampled_from(["off", "recursive", "exact"]),
    st.integers(0, 4),
    st.booleans(),
    st.integers(0, 99),
)
def test_any_request_says_the_beginning_of_a_text(
    texts: list[str],
    params: SamplingParams,
    prefix: str,
    healing: Healing,
    min_tokens: int,
    ignore_eos: bool,
    seed: int,
) -> None:
    request = CompletionRequest(
        prefix,
        healing=healing,
        sampling=params,
        min_tokens=min_tokens,
        ignore_eos=ignore_eos,
        max_tokens=30,
        grammar=grammar_of(*texts),
    )
    text, result = whole(*generation_of(request, random_model(VOCABULARY.n_vocab, seed)))
    if not params.logit_bias:
        assert text in texts or result.finish == "length"
    assert any(whole_text.startswith(text.rstrip("\ufffd")) for whole_text in texts)


@settings(max_examples=60)
@given(PARAMS, st.integers(0, 99))
def test_g1_drafted_and_not_the_text_is_the_same(params: SamplingParams, seed: int) -> None:
    unit = " user = ()\n"
    request = CompletionRequest(
        unit * 4,
        healing="off",
        sampling=replace(params, logit_bias=()),
        max_tokens=60,
        grammar=grammar_of(unit * 3, unit * 2 + "return x", "return" + unit * 2),
    )
    model = random_model(VOCABULARY.n_vocab, seed)
    plain = text_of(request, model)
    generation, engine = generation_of(request, model)
    assert drafted(generation, engine) == plain


def drafted(generation: Generation, engine: ScriptedEngine) -> str:
    """The text with drafts of any width, whatever they cost."""
    width = DraftWidth(StepCosts())
    width.best = lambda n_matched, n_available: min(n_available, 3)  # type: ignore[method-assign]
    sequence, text = engine.open(), ""
    while not generation.finished:
        tree = generation.tree(len(engine.tokens(sequence)), width)
        [rows] = engine.evaluate([(sequence, tree)])
        chunk = generation.feed(rows)
        engine.commit(sequence, generation.kept)
        text += chunk.text if chunk is not None else ""
    return text


def test_a_greedy_draw_asks_about_the_next_best_before_it_masks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    masked: list[int] = []
    monkeypatch.setattr(TextsGrammar, "mask", lambda grammar, row: masked.append(1))

    def prefers(tokens: Sequence[int]) -> Logits:
        row = np.zeros(VOCABULARY.n_vocab, np.float32)
        for rank, piece in enumerate((b"const", b"def", b"return")):
            row[VOCABULARY.ids_of(piece)[0]] = 20 - rank
        return row

    request = replace(PLAIN, healing="off", max_tokens=1, grammar=grammar_of("return"))
    assert text_of(request, prefers) == "return"
    assert not masked


def test_a_grammar_that_is_none_is_refused_before_anything_runs() -> None:
    with pytest.raises(InvalidRequest, match="grammar"):
        generation_of(replace(PLAIN, grammar="root ::="), random_model(VOCABULARY.n_vocab))


def test_what_ends_early_frees_its_grammar() -> None:
    request = replace(PLAIN, healing="off", grammar=grammar_of("user = ()"))
    generation, engine = generation_of(request, random_model(VOCABULARY.n_vocab))
    n_before = TextsGrammar.n_open
    sequence = engine.open()
    [rows] = engine.evaluate([(sequence, generation.tree(0))])
    generation.feed(rows)
    assert TextsGrammar.n_open == n_before + 1
    generation.finish("cancelled")
    assert TextsGrammar.n_open == n_before


def test_what_fails_frees_its_grammar_and_tells_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(grammar: TextsGrammar, token_id: int) -> bool:
        raise refusal("is too ambiguous")

    monkeypatch.setattr(TextsGrammar, "permits", fail)
    request = replace(PLAIN, healing="off", grammar=grammar_of("user = ()"))
    generation, engine = generation_of(request, random_model(VOCABULARY.n_vocab))
    scheduler = Scheduler(lambda: engine)
    scheduler.start()
    scheduler.wait_ready()
    told: queue.Queue[object] = queue.Queue()
    scheduler.submit(Job(generation, told.put))
    with pytest.raises(InvalidRequest, match="too ambiguous"):
        collect(told)
    scheduler.close()
