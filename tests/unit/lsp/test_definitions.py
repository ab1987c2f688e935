"""What files define, in the languages that people complete most."""

from __future__ import annotations

import pytest

from suture.lsp.context.definitions import definitions_of
from suture.lsp.context.excerpts import Definition

PYTHON = """\
import os

LIMIT = 3

@lru_cache
def area(w: int,
         h: int) -> int:
    return w * h

class Shape(Base):
    '''A shape.'''

    name: str = ""

    async def draw(self, to):
        pass
"""
TYPESCRIPT = """\
export interface Shape { name: string; area(): number }
export abstract class Box implements Shape {
  private w = 1;
  area(): number {
    return 1;
  }
}
export const scale = (x: number) => {
  return x;
};
type Id = string;
enum Kind { A, B }
namespace geo { export function f(): void {} }
"""
GO = """\
package x

const Max = 3

type Peer struct {
	Name string
}

func (p *Peer) Send(b []byte) error {
	return nil
}

func New() *Peer {
	return nil
}
"""
RUST = """\
pub struct Frame { len: usize }
impl Frame {
    pub fn new() -> Self {
        Self { len: 0 }
    }
}
pub trait Codec { fn encode(&self) -> u8; }
pub fn decode(b: &[u8]) -> Frame {
    Frame::new()
}
"""
C = """\
#ifndef A_H
#define A_H
#define AREA(w, h) ((w) * (h))
typedef struct point { int x, y; } point_t;
struct box;
int area(int w, int h);
static int *grown(int n)
{
  return 0;
}
#endif
"""
CPP = """\
namespace geo {
template <class T>
class Box : public Shape {
 public:
  Box(int w);
  T area() const { return w; }
};
int Box::grow(int n) {
  return n;
}
}
"""
JAVA = """\
package x;
public class Box extends Shape {
  private int w = 1;
  public Box(int w) { this.w = w; }
  @Override
  public int area() {
    return w;
  }
}
"""


def names(definitions: tuple[Definition, ...]) -> list[str | tuple[str, list[str]]]:
    return [
        (one.name, [member.name for member in one.members]) if one.members else one.name
        for one in definitions
    ]


@pytest.mark.parametrize(
    ("grammar", "text", "expected"),
    [
        ("python", PYTHON, ["LIMIT", "area", ("Shape", ["name", "draw"])]),
        (
            "typescript",
            TYPESCRIPT,
            [("Shape", ["name", "area"]), ("Box", ["w", "area"]), "scale", "Id", "Kind", "f"],
        ),
        ("go", GO, ["Max", "Peer", "Send", "New"]),
        ("rust", RUST, [("Frame", ["len"]), ("Frame", ["new"]), ("Codec", ["encode"]), "decode"]),
        ("c", C, ["A_H", "AREA", ("point_t", ["x"]), "area", "grown"]),
        ("cpp", CPP, [("Box", ["Box", "area"]), "grow"]),
        ("java", JAVA, [("Box", ["w", "Box", "area"])]),
    ],
)
def test_definitions_are_found_by_name(grammar: str, text: str, expected: object) -> None:
    assert names(definitions_of(grammar, text.split("\n"))) == expected


def head(grammar: str, text: str, name: str) -> str:
    """The head of a definition at the top level, or of a member."""
    lines = text.split("\n")
    tops = definitions_of(grammar, lines)
    every = [*tops, *(member for one in tops for member in one.members)]
    found = next(one for one in every if one.name == name)
    return "\n".join(lines[found.start : found.head_end])


@pytest.mark.parametrize(
    ("grammar", "text", "name", "expected"),
    [
        ("python", PYTHON, "area", "@lru_cache\ndef area(w: int,\n         h: int) -> int:"),
        ("python", PYTHON, "Shape", "class Shape(Base):"),
        ("python", PYTHON, "draw", "    async def draw(self, to):"),
        ("typescript", TYPESCRIPT, "Box", "export abstract class Box implements Shape {"),
        ("go", GO, "Send", "func (p *Peer) Send(b []byte) error {"),
        ("go", GO, "Peer", "type Peer struct {\n\tName string\n}"),
        ("c", C, "grown", "static int *grown(int n)"),
        ("cpp", CPP, "Box", "template <class T>\nclass Box : public Shape {"),
        ("java", JAVA, "area", "  @Override\n  public int area() {"),
    ],
)
def test_a_head_is_what_stands_before_the_body(
    grammar: str, text: str, name: str, expected: str
) -> None:
    assert head(grammar, text, name) == expected


def test_a_text_that_is_too_long_or_of_no_known_language_defines_nothing() -> None:
    assert definitions_of("python", ["def f(): pass"] * 20_000) == ()
    assert definitions_of("no such grammar", ["def f(): pass"]) == ()


def test_d2_what_is_nested_without_end_defines_nothing() -> None:
    assert definitions_of("cpp", ["namespace a {"] * 5000) == ()
