"""Constraints against Python's `re` and a slow reader of grammars."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.gbnf_matcher import LLAMA, STRICT, matches
from support.toy import SPECIALS
from suture.server.decoding import gbnf
from suture.server.engine.remote.constraints import composed, gbnf_of, mistakable, regex_of

TEXTS = st.text(st.sampled_from("ab é我😀\n\t\r\\.+*?()|[]{}^$/-\"'#<>:=,;_0"), max_size=6)
PENDING = TEXTS.filter(bool)

GRAMMARS = [
    'root ::= "me"',
    "root ::= [a-b]+ .",
    'root ::= other | "[" [^\\]"]* "]"\nother ::= "a"{1,2}',
    'root ::= ( "a" | ) root-2? # a comment "with" root\nroot-2 ::= "root" | [root]',
    'root ::= 1st "\\"" \n1st ::= [\\[\\]\\-a] | "\\[\\]\\-"',
    'root ::=\n  "a" |\n  (\n "b"\n | "\\u00e9")*\n',
    'root ::= client-root\nclient-root ::= "x" | "" ',
    'root ::= | "a" |',
    'root ::= "::=" [:=|()#.]* other\nother ::= ".|("',
    'root ::= "\\x41b" [\\x61b] | "\\x41" [\\x5dc]',
    'root ::= [\\x5eab] "\\x0b" | [\\U0001F600\\x2da] | "\\U0001F600\\u00e9\\x5c"',
    'a ::= "a" root?\nroot ::= "b" a | [^a-b]',
]
SAID = st.text(st.sampled_from('ab[]"-.|(:=#rotxé😀 é\n'), max_size=5) | st.sampled_from(
    [
        "me",
        "^\x0b",
        "😀é\\",
        "-",
        "Abb",
        "Aba",
        "A]",
        "Ac",
        "aa",
        "root",
        "b\n",
        '[]-"',
        'a"',
        "::=.|(",
        "::=(.|(",
        "bab",
    ]
)


@given(PENDING, TEXTS)
def test_the_regex_matches_just_what_begins_with_the_pending_bytes(pending: str, text: str) -> None:
    regex = regex_of(pending.encode())
    assert regex is not None
    assert re.fullmatch(regex, pending + text)
    assert bool(re.fullmatch(regex, text)) == text.startswith(pending)


@given(PENDING, TEXTS)
def test_the_grammar_describes_just_what_begins_with_the_pending_bytes(
    pending: str, text: str
) -> None:
    grammar = gbnf_of(pending.encode())
    assert grammar is not None
    gbnf.check(grammar)
    for dialect in (LLAMA, STRICT):
        assert matches(grammar, pending + text, dialect)
        assert matches(grammar, text, dialect) == text.startswith(pending)


@given(st.binary(max_size=6))
def test_what_is_not_whole_text_has_no_constraint(pending: bytes) -> None:
    assert (regex_of(pending) is None) == (gbnf_of(pending) is None)
    try:
        pending.decode()
    except UnicodeDecodeError:
        assert regex_of(pending) is None


@pytest.mark.parametrize("refused", ["\0", "a\x01", "\x7f", "\x85", "\u2028", "\ufeff"])
def test_characters_that_engines_refuse_have_no_constraint(refused: str) -> None:
    assert regex_of(refused.encode()) is None
    assert gbnf_of(refused.encode()) is None
    assert composed(refused.encode(), GRAMMARS[0]) is None


@pytest.mark.parametrize("grammar", GRAMMARS)
@settings(max_examples=40)
@given(pending=TEXTS, said=SAID)
def test_composed_is_the_pending_bytes_and_then_what_the_grammar_describes(
    grammar: str, pending: str, said: str
) -> None:
    gbnf.check(grammar)
    both = composed(pending.encode(), grammar)
    assert both is not None
    gbnf.check(both)
    assert matches(both, pending + said, STRICT) == matches(grammar, said, LLAMA)
    assert matches(both, pending + said, LLAMA) == matches(grammar, said, LLAMA)


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_composed_once_more_is_as_good(grammar: str) -> None:
    once = composed(b"a", grammar)
    assert once is not None
    twice = composed(b"b", once)
    assert twice is not None
    gbnf.check(twice)


def test_an_empty_set_has_no_other_writing() -> None:
    assert composed(b"a", "root ::= [] | [a]") is None


@pytest.mark.parametrize(
    ("pending", "taken"),
    [
        ("x <|fim_p", ["<|fim_prefix|>", "<|fim_pad|>"]),
        ("x <", SPECIALS),
        ("<|im_end|> x", ["<|im_end|>"]),
        ("user", []),
        ("", []),
    ],
)
def test_specials_are_taken_for_text_that_they_begin_or_that_begins_them(
    pending: str, taken: list[str]
) -> None:
    assert [t for t in SPECIALS if mistakable(t.encode(), pending.encode())] == taken


@given(st.binary(max_size=4) | st.sampled_from([text.encode()[:4] for text in SPECIALS]))
def test_mistakable_is_what_begins_a_rest_of_the_pending_bytes_or_is_begun_by_one(
    pending: bytes,
) -> None:
    rests = [pending[start:] for start in range(len(pending))]
    for text in (*map(str.encode, SPECIALS), b"|", b"<a"):
        slowly = any(rest.startswith(text) or text.startswith(rest) for rest in rests)
        assert mistakable(text, pending) == slowly
