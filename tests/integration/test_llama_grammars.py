"""Grammars on llama.cpp: what was checked compiles there, and what it says is right.

Without weights: a grammar needs a vocabulary only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.driving import whole
from support.toy import toy_generation
from suture.healing import Vocabulary
from suture.server.decoding import gbnf
from suture.server.decoding.json_schema import schema_grammar
from suture.server.engine.grammar import Grammar, check_grammar
from suture.server.engine.scripted import Model, ScriptedEngine, random_model
from suture.server.engine.tokenizer import LlamaTokenizer
from suture.server.errors import InvalidRequest
from suture.server.request import CompletionRequest, GrammarScope, Healing

pytestmark = pytest.mark.model


class Tongue:
    """A real vocabulary and its tokenizer."""

    def __init__(self, path: Path) -> None:
        self.tokenizer = LlamaTokenizer(path)
        self.vocabulary = Vocabulary.from_gguf(path)
        self.vocab = self.tokenizer.vocab

    def engine(self, seed: int) -> ScriptedEngine:
        """Random logits over real tokens, under llama.cpp's own grammars."""
        return _RealGrammars(self, random_model(self.vocabulary.n_vocab, seed))

    def accepts(self, grammar: str, text: str) -> bool:
        """Whether `text` is all of one that the grammar describes."""
        state = Grammar(self.vocab, grammar, self.vocabulary)
        try:
            for token_id in self.tokenizer.encode(text.encode()):
                if not state.permits(token_id):
                    return False
                state.accept(token_id)
            return state.is_complete
        finally:
            state.close()

    def says(self, grammar: str, seed: int) -> str | None:
        """A random text of the grammar, token by token; None where it became too long."""
        rng = np.random.default_rng(seed)
        state = Grammar(self.vocab, grammar, self.vocabulary)
        said = b""
        try:
            for _ in range(80):
                row = rng.standard_normal(self.vocabulary.n_vocab).astype(np.float32)
                row[[i for c in b'"}],:{' for i in self.vocabulary.ids_of(bytes([c]))]] += 6
                row[list(self.vocabulary.silent_ids)] = -np.inf
                if state.is_complete:
                    return said.decode("utf-8", "replace")
                state.mask(row)
                token_id = int(row.argmax())
                assert np.isfinite(row[token_id])
                state.accept(token_id)
                said += self.vocabulary.bytes_of(token_id)
            return None
        finally:
            state.close()


class _RealGrammars(ScriptedEngine):
    def __init__(self, tongue: Tongue, model: Model) -> None:
        super().__init__(tongue.vocabulary, tongue.tokenizer.encode, model)
        self._vocab = tongue.vocab

    def check_grammar(self, gbnf: str) -> None:
        check_grammar(self._vocab, gbnf)

    def grammar(self, gbnf: str) -> Grammar:  # type: ignore[override]
        return Grammar(self._vocab, gbnf, self.vocabulary)


@pytest.fixture(scope="module")
def tongue(small_model: Path) -> Tongue:
    return Tongue(small_model)


PARTS = ['"a"', '"\\n"', "[a-z]", "[^\"]", ".", "x", "(", ")", "|", "*", "+", "?", "{2}", "{0,3}",
         "{2,}", "\n", "x ::= ", "y ::= ", "y", "# c", '""', "[]", "{1,2500}"]  # fmt: skip


@settings(max_examples=300)
@given(st.lists(st.sampled_from(PARTS), max_size=14))
def test_what_the_check_takes_llama_cpp_takes(tongue: Tongue, parts: list[str]) -> None:
    text = "root ::= " + " ".join(parts)
    if "x ::=" not in text:
        text += '\nx ::= "x"'
    if "y ::=" not in text:
        text += '\ny ::= "y" x?'
    try:
        gbnf.check(text)
    except InvalidRequest:
        return
    Grammar(tongue.vocab, text, tongue.vocabulary).close()


@pytest.mark.parametrize("text", ["root ::= x", 'root ::= "a', "nonsense", 'root ::= "a"{3,2}'])
def test_nothing_is_printed_of_a_bad_grammar(
    tongue: Tongue, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidRequest):
        check_grammar(tongue.vocab, text)
    assert capfd.readouterr() == ("", "")


def test_a_copy_goes_its_own_way(tongue: Tongue) -> None:
    grammar = Grammar(tongue.vocab, 'root ::= "(" [ab] ")"', tongue.vocabulary)
    [bracket], [a], [b] = (tongue.tokenizer.encode(text) for text in (b"(", b"a", b"b"))
    grammar.accept(bracket)
    copy = grammar.copy()
    copy.accept(a)
    assert grammar.permits(b) and not copy.permits(b)
    grammar.close()
    assert not copy.is_complete
    copy.close()


@pytest.mark.parametrize("scope", ["output", "prefill"])
@pytest.mark.parametrize("healing", ["exact", "recursive", "off"])
def test_c4_a_schemas_only_field_is_gone_on_with(
    tongue: Tongue, scope: GrammarScope, healing: Healing
) -> None:
    """Whatever the model thinks of it, and wherever the cut is."""
    schema = {"type": "object", "properties": {"name": {"const": 1}}, "required": ["name"]}
    gbnf_text = schema_grammar(schema) if scope == "prefill" else 'root ::= "me\\": 1}"'
    engine = tongue.engine(seed=len(healing))
    for give_back in (None, 1, 2):
        request = CompletionRequest(
            '{"na',
            max_tokens=20,
            healing=healing,
            give_back=give_back,
            grammar=gbnf_text,
            grammar_scope=scope,
        )
        text, result = whole(toy_generation(request, engine), engine)
        assert json.loads('{"na' + text) == {"name": 1} and result.finish == "eos"
        assert result.healing.level in ("none", healing)


def test_a_prefill_that_no_schema_describes_is_refused(tongue: Tongue) -> None:
    schema = {"type": "object", "properties": {"name": {"const": 1}}, "required": ["name"]}
    request = CompletionRequest(
        '{"xa', grammar=schema_grammar(schema), grammar_scope="prefill", max_tokens=9
    )
    with pytest.raises(InvalidRequest, match="grammar_scope"):
        toy_generation(request, tongue.engine(seed=0)).tree(0)


def test_a_long_token_with_too_many_readings_is_given_up(tongue: Tongue) -> None:
    """Each space doubles the readings, and one token is many spaces."""
    ambiguous = 'root ::= " " root "a" | " " root "b" | "z"'
    check_grammar(tongue.vocab, ambiguous)
    grammar = Grammar(tongue.vocab, ambiguous, tongue.vocabulary)
    pieces = {tongue.vocabulary.bytes_of(i): i for i in range(tongue.vocabulary.n_vocab)}
    longest = max((piece for piece in pieces if not piece.strip(b" ")), key=len)
    assert len(longest) > 20
    with pytest.raises(InvalidRequest, match="too ambiguous"):
        for _ in range(3):
            grammar.accept(pieces[longest])
    grammar.close()


def test_a_token_is_permitted_by_its_bytes_as_it_is_by_a_mask(tongue: Tongue) -> None:
    grammar = Grammar(
        tongue.vocab, 'root ::= [a-zé]* " "* [A-Z你]+ [^a-z]* "\\n"', tongue.vocabulary
    )
    for text in ("", "ab", "é", " ", "A", "\n"):
        for token_id in tongue.tokenizer.encode(text.encode()):
            grammar.accept(token_id)
        row = np.zeros(tongue.vocabulary.n_vocab, np.float32)
        row[list(tongue.vocabulary.silent_ids)] = -np.inf
        drawable = np.flatnonzero(np.isfinite(row))
        grammar.mask(row)
        asked = [grammar.permits(int(i)) for i in drawable[::7]]
        assert asked == np.isfinite(row[drawable[::7]]).tolist()
    grammar.close()


def test_a_grammar_with_too_many_readings_is_given_up(tongue: Tongue) -> None:
    ambiguous = 'root ::= "x" root "y" | "x" root "z" | ""'
    grammar = Grammar(tongue.vocab, ambiguous, tongue.vocabulary)
    [x] = tongue.tokenizer.encode(b"x")
    with pytest.raises(InvalidRequest, match="too ambiguous"):
        for _ in range(60):
            grammar.accept(x)
    grammar.close()


def is_kind(kind: type) -> Callable[[Any], bool]:
    return lambda value: type(value) is kind


SCHEMAS: list[tuple[Any, Callable[[Any], bool]]] = [
    ({}, is_kind(dict)),
    ({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
     lambda v: 2 <= len(v) <= 3 and all(type(item) is bool for item in v)),
    ({"properties": {"a": {"type": "null"}, "b": {"type": "integer"}}, "required": ["b"]},
     lambda v: type(v["b"]) is int and v.keys() <= {"a", "b"} and v.get("a") is None),
    ({"properties": {"a": {"type": "null"}, "b": {"type": "null"}}},
     lambda v: v.keys() <= {"a", "b"}),
    ({"additionalProperties": {"enum": [1, "é\n\"\\", None]}},
     lambda v: all(item in (1, "é\n\"\\", None) for item in v.values())),
    ({"type": "string", "minLength": 2, "maxLength": 4}, lambda v: 2 <= len(v) <= 4),
    ({"type": "string", "format": "date-time"},
     lambda v: re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?(Z|[+-]\d\d:\d\d)", v)
     is not None),
    ({"anyOf": [{"type": "number"}, {"const": {"k": [1]}}]},
     lambda v: type(v) in (int, float) or v == {"k": [1]}),
    ({"$ref": "#/$defs/t", "$defs": {"t": {"type": "array", "maxItems": 1,
                                           "items": {"$ref": "#/$defs/t"}}}},
     lambda v: type(v) is list and len(v) <= 1),
    ({"prefixItems": [{"type": "null"}, {"type": "string", "format": "uuid"}]},
     lambda v: v[0] is None and len(v[1]) == 36),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "satisfied"), SCHEMAS)
def test_what_a_schemas_grammar_says_is_json_that_satisfies_it(
    tongue: Tongue, schema: Any, satisfied: Callable[[Any], bool]
) -> None:
    grammar = schema_grammar(schema)
    texts = [text for seed in range(6) if (text := tongue.says(grammar, seed)) is not None]
    assert texts
    for text in texts:
        assert satisfied(json.loads(text)), text


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer"}, ["0", "-12", "7"], ["01", "1.5", "x", "", "+1"]),
        ({"type": "number"}, ["0", "-1.5e10", "2E+3"], [".5", "1.", "1e", "NaN"]),
        ({"type": "string"}, ['"a\\n\\u00e9é"', '""'], ['"a\nb"', '"\\q"', '"', "a"]),
        ({"enum": ['a"b\\', "\n"]}, ['"a\\"b\\\\"', '"\\n"'], ['"a"b"', '"\n"', "a"]),
        (
            {"properties": {"a": {}, "b": {}, "c": {}}},
            ["{}", '{"a": 1}', '{"b":[],"c":{}}', '{\n  "a": 1, "c": null\n}'],
            ['{"b": 1, "a": 1}', '{"a": 1,}', '{"d": 1}', '{,"a": 1}'],
        ),
        (
            {"properties": {"a": {}}, "required": ["b"], "additionalProperties": True},
            ['{"b": 1}', '{"b": 1, "a": 2, "z": 3, "y": 4}', '{ "b": 1, "z": 3 }'],
            ["{}", '{"a": 1}', '{"z": 1, "b": 2}'],
        ),
        (
            {"properties": {"a": {"type": "null"}, "ab]": {}}, "additionalProperties": True},
            ['{"a": null, "b": 1}', '{"": 1}', '{"ab": 1, "aé": 2}', '{"ab]": 1, "ab]c": 2}'],
            ['{"a": null, "a": 1}', '{"a": 1}', '{"\\u0061": 1}', '{"b": 1, "ab]": 2}'],
        ),
        ({"type": "array", "minItems": 1}, ["[1]", "[ 1, 2 ]"], ["[]", "[1,]", "[1 2]"]),
        ({"type": ["array", "null"], "maxItems": 2}, ["[]", "[1,2]", "null"], ["[1,2,3]"]),
    ],
)
def test_a_schemas_grammar_has_these_texts_and_not_those(
    tongue: Tongue, schema: Any, good: list[str], bad: list[str]
) -> None:
    grammar = schema_grammar(schema)
    check_grammar(tongue.vocab, grammar)
    assert [text for text in good if not tongue.accepts(grammar, text)] == []
    assert [text for text in bad if tongue.accepts(grammar, text)] == []
