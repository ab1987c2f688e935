"""What a text defines, by a parse of tree-sitter's. PURE, but for the time it takes.

Its parsers hold the interpreter while they work: they are fed in pieces, so that others have their
turn in between. Import this module on the thread that parses, and not before: the parsers take
memory.

One table serves all grammars, for their names of nodes say the same by the same words. What a
grammar calls otherwise is not found, and a file without definitions is shown as text.

D1  A member's rows are within its owner's, and no head is empty.
D2  Nothing raises, whatever the text; one that takes too long to parse defines nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from tree_sitter import Node, Parser, Point
from tree_sitter_language_pack import SupportedLanguage, get_language

from suture.lsp.context.excerpts import Definition
from suture.server.shaping.syntax import grammar_of as grammar_of

MAX_PARSED = 128 * 1024
_PIECE = 4096
# Code of 128 KiB takes some 800 of the steps that tree-sitter reports.
_MAX_STEPS = 4000
_MAX_DEPTH = 3

# Whose members are looked at, too.
_OWNERS = frozenset(
    """
    abstract_class_declaration class class_declaration class_definition class_specifier
    contract_declaration enum_declaration enum_definition enum_item enum_specifier impl_item
    interface_declaration message mod_item module object_declaration object_definition
    protocol_declaration record_declaration service struct_declaration struct_item
    struct_specifier trait_declaration trait_definition trait_item union_item union_specifier
    """.split()
)
# Whose bodies are code.
_ROUTINES = frozenset(
    """
    abstract_method_signature constructor_declaration function_declaration function_definition
    function_definition_statement function_item function_signature function_signature_item
    generator_function_declaration init_declaration macro_definition method method_declaration
    method_definition method_signature rpc singleton_method
    """.split()
)
# Whose first lines say all.
_VALUES = frozenset(
    """
    assignment const_declaration const_item declaration expression_statement field
    field_declaration field_definition lexical_declaration preproc_def preproc_function_def
    property_declaration property_signature public_field_definition static_item
    type_alias_declaration type_declaration type_definition type_item var_declaration
    variable_declaration
    """.split()
)
# Around definitions, which begin where these do.
_WRAPPERS = frozenset(
    """
    ambient_declaration decorated_definition export_statement template_declaration
    """.split()
)
# And what has them among its own nodes.
_BLOCKS = frozenset(
    """
    declaration_list file_scoped_namespace_declaration internal_module linkage_specification
    namespace_declaration namespace_definition preproc_else preproc_if preproc_ifdef
    """.split()
)
# What some grammars have inside a statement.
_STATED = frozenset({"assignment", "internal_module"})
_BODIES = ("body", "block", "list", "statement_block", "compound_statement")
_NAME_FIELDS = ("name", "declarator", "left", "type", "pattern")
_MAX_VALUE_ROWS = 8


def definitions_of(grammar: str, lines: Sequence[str]) -> tuple[Definition, ...]:
    """What a text defines, in its order (D1, D2)."""
    source = "\n".join(lines).encode("utf-8", "replace")
    root = _parsed(grammar, source) if len(source) <= MAX_PARSED else None
    try:
        return () if root is None else tuple(_Reader(source).definitions(root, 0))
    except RecursionError:  # nobody nests so deep
        return ()


def _parsed(grammar: str, source: bytes) -> Node | None:
    steps = 0

    def read(offset: int, _: Point) -> bytes:
        return source[offset : offset + _PIECE]

    def is_too_much(_: int, __: bool) -> bool:
        nonlocal steps
        steps += 1
        return steps > _MAX_STEPS

    try:
        parser = Parser(get_language(cast(SupportedLanguage, grammar)))
        return parser.parse(read, progress_callback=is_too_much).root_node
    except (LookupError, ValueError):  # no such grammar; or it was stopped
        return None


class _Reader:
    """Reads definitions off the nodes of one text."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._lines = source.split(b"\n")

    def definitions(self, node: Node, depth: int) -> Iterator[Definition]:
        """Those directly in a node."""
        for child in node.named_children:
            yield from self._in(child, child.start_point.row, depth)

    def _in(self, node: Node, start: int, depth: int) -> Iterator[Definition]:
        kind = node.type
        if kind in _WRAPPERS:
            for child in node.named_children:
                yield from self._in(child, start, depth)
        elif kind in _BLOCKS:
            body = node.child_by_field_name("body")
            yield from self.definitions(node if body is None else body, depth)
        elif kind in _OWNERS:
            yield from self._owner(node, start, depth)
        elif kind in _ROUTINES:
            yield from self._made(node, start, self._head_end(node, start))
        elif kind in _VALUES:
            end = min(_end(node), start + _MAX_VALUE_ROWS)
            yield from self._value(node, start, end, depth)

    def _owner(
        self, node: Node, start: int, depth: int, named: Node | None = None
    ) -> Iterator[Definition]:
        body = _body(node)
        if body is None and node.type.endswith("_specifier"):
            return  # it only says that there is one
        members: tuple[Definition, ...] = ()
        if body is not None and depth < _MAX_DEPTH:
            members = tuple(self.definitions(body, depth + 1))
        # Without any they are of another kind, as of enumerations: the lines themselves.
        head_end = self._head_end(node, start)
        if not members:
            head_end = max(head_end, min(_end(node), start + _MAX_VALUE_ROWS))
        yield from self._made(named or node, start, head_end, members)

    def _value(self, node: Node, start: int, end: int, depth: int) -> Iterator[Definition]:
        if node.type == "expression_statement":
            for inner in node.named_children[:1]:
                if inner.type in _STATED:
                    yield from self._in(inner, start, depth)
            return
        owner = node.child_by_field_name("type")
        if owner is not None and owner.type in _OWNERS and _body(owner) is not None:
            # As C has it: `typedef struct { … } point;`
            yield from self._owner(owner, start, depth, named=node)
        else:
            yield from self._made(node, start, end)

    def _made(
        self, node: Node, start: int, head_end: int, members: tuple[Definition, ...] = ()
    ) -> Iterator[Definition]:
        name = self._name(node)
        if name:
            end = max(_end(node), head_end, *(member.end for member in members))
            yield Definition(name, start, head_end, end, members)

    def _head_end(self, node: Node, start: int) -> int:
        """The row behind a definition's head: its body may begin in the head's last row."""
        body = _body(node)
        if body is None:
            return max(_end(node), start + 1)
        row, column = body.start_point
        is_in_head = self._lines[row][:column].strip()
        return max(row + 1 if is_in_head else row, start + 1)

    def _name(self, node: Node, depth: int = 0) -> str:
        for field in _NAME_FIELDS:
            if (child := node.child_by_field_name(field)) is not None:
                return (
                    self._name(child, depth + 1) if child.named_child_count else self._text(child)
                )
        for child in node.named_children:
            if child.type.endswith("identifier") and not child.named_child_count:
                return self._text(child)
        for child in node.named_children[:2] if depth < _MAX_DEPTH else ():
            if name := self._name(child, depth + 1):
                return name
        return ""

    def _text(self, node: Node) -> str:
        text = self._source[node.start_byte : node.end_byte].decode("utf-8", "replace")
        return text.rpartition("::")[2]


def _body(node: Node) -> Node | None:
    if (body := node.child_by_field_name("body")) is not None:
        return body
    return next((child for child in node.named_children if child.type.endswith(_BODIES)), None)


def _end(node: Node) -> int:
    """The row behind a node, which may end with its line's end."""
    row, column = node.end_point
    return row + 1 if column else max(row, node.start_point.row + 1)


def names_of(definitions: Sequence[Definition]) -> frozenset[str]:
    """The names of what is defined at the top level."""
    return frozenset(one.name for one in definitions)
