"""Grammars are read as llama.cpp reads them, and what it would choke on is refused, at once."""

from __future__ import annotations

import tracemalloc

import pytest

from suture.server.decoding.gbnf import MAX_BYTES, MAX_NESTING, check
from suture.server.errors import InvalidRequest

GOOD = [
    "root ::= " + " | ".join(f'"a{i}" root2 "b"' for i in range(2000)) + '\nroot2 ::= "x"',
    "root ::= [0-9] any\nany ::= " + " | ".join(f'"a{i}"' for i in range(2000)),
    'root ::= e\ne ::= "-" e ws | "1" ws\nws ::= (" " | "\\n")*',
    'root ::= "a"',
    '# a comment\nroot ::= a | b # another\n\na ::= [a-z]+\nb ::= [^\\]\\x00-\\x1F"-]*\n',
    'root ::= (\n  "a" |\n  "b"\n)? root2\nroot2 ::= "\\"\\n\\u00e9\\U0001F600" .',
    'root ::= "a"{3} "b"{2,} "c"{0,4} ("d" "e"){1,2}\r\nx ::= "ü"',
    'root ::= "x" root | ""',
    "root ::= a\na ::=\n",
    'root ::= "a"{3,5000}',
    'root ::= "a"\nroot ::= "b"',
    "root ::= " + "(" * 400 + '"a"' + ")" * 400,
]
BAD = {
    "": "must have rules",
    " \n\t": "must have rules",
    'root ::= "a\0"': "no NUL",
    "root": "expected ::= at line 1 column 5",
    "root ::= (": "expected \\)",
    'root ::= "a")': "expected the end of the line at line 1 column 13",
    'root ::= "a': "expected a literal",
    'root ::= "\\q"': "expected a literal",
    'root ::= "\\x1"': "expected a literal",
    "root ::= [a": "expected a class",
    'root ::= "a"\n| "b"': "expected a rule's name at line 2 column 1",
    "root ::= *": "expected something to repeat",
    'root ::= ""*': "expected something to repeat",
    'root ::= "a"{': "expected a number of repetitions",
    'root ::= "a"{3,2}': r"cannot repeat \{3,2\}",
    'root ::= "a"{2001}': "cannot repeat",
    'root ::= ("a" "b"?){1500}': "repeats more than 2000 rules",
    'word ::= "a"': "rule `root`",
    "root ::= word": "rule word is not defined",
    "root ::= <[1]>": "single tokens",
    "root ::= !<think>": "single tokens",
}
SLOW = {
    "left recursion": 'root ::= root "a"',
    "left recursion behind what may be empty": 'root ::= a root "x"\na ::= b\nb ::= "y"?',
    "a repetition of what may be empty": "root ::= [0-9]*+",
    "left recursion through groups": 'root ::= ("a"? (root))',
    "many ways to look for it": "\n".join(
        ["root ::= a0", *(f"a{i} ::= a{i + 1} | a{i + 1}" for i in range(60)), 'a60 ::= "x"']
    ),
    "a long way to look for it": "\n".join(
        ["root ::= a0", *(f"a{i} ::= a{i + 1}" for i in range(2000)), 'a2000 ::= "x"']
    ),
    "many ways behind a character": "root ::= " + " | ".join(['"a"root"b"'] * 4500),
    "some ways behind a character": "root ::= " + " | ".join(['"a"root"b"'] * 400),
    "many ways behind a rule": "root ::= " + " | ".join(['x root"b"'] * 400) + "\nx ::= ((y))\n"
    'y ::= "a"',
    "many readings at the start": "root ::= " + "a " * 5000 + '\na ::= "x"?',
    "deep brackets": "root ::= " + "(" * (MAX_NESTING + 1) + '"a"' + ")" * (MAX_NESTING + 1),
    "deeper brackets": "root ::= " + "(" * 60_000,
    "much text": 'root ::= "' + "a" * MAX_BYTES + '"',
    "much text after all": f'root ::= "{"a" * 1000}"{{2000}}',
    "very much text after all": f'root ::= "{"a" * 60_000}"{{2000}}',
    "much text inside much text": 'root ::= a{2000}\na ::= ("aaaaaaaaaaaaaaaaaaaa"{0,2000}){2000}',
}


@pytest.mark.parametrize("text", GOOD)
def test_a_grammar_is_taken(text: str) -> None:
    check(text)


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_grammar_is_refused_with_the_place(text: str) -> None:
    with pytest.raises(InvalidRequest, match=BAD[text]) as caught:
        check(text)
    assert caught.value.field == "grammar" and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", SLOW)
def test_what_llama_cpp_would_choke_on_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check(SLOW[name])
    assert len(str(caught.value)) < 200


def test_repetitions_are_counted_before_they_are_made() -> None:
    tracemalloc.start()
    with pytest.raises(InvalidRequest, match="elements"):
        check(f'root ::= "{"a" * 60_000}"{{2000}}')
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20e6
