"""Initial defaults of a schema's columns: what a file that is older than a column holds in it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from pvdm.lake.format.json.document import Number
from pvdm.lake.format.json.node import Node
from pvdm.lake.format.schema.document import TableSchema
from pvdm.lake.format.schema.logical import primitive
from pvdm.lake.format.schema.type_names import parse_type_name
from pvdm.model.filter.expression import LiteralValue
from pvdm.model.filter.literal import parse_literal

_SINGLE: Final = struct.Struct("<f")


def initial_defaults(schema: TableSchema) -> dict[int, LiteralValue]:
    """The defaults by field id, at any depth."""
    return dict(_of_struct(Node(schema.raw, schema.place)))


def _of_struct(node: Node) -> Iterator[tuple[int, LiteralValue]]:
    for field in node.nodes("fields"):
        kind = field.value("type")
        if not isinstance(kind, str):
            yield from _inside(field.node("type"))
        elif field.raw.get("initial-default") is not None:
            yield field.integer("id"), _value(field, kind)


def _inside(node: Node) -> Iterator[tuple[int, LiteralValue]]:
    match node.text("type"):
        case "struct":
            yield from _of_struct(node)
        case "list":
            yield from _part(node, "element")
        case _:
            yield from _part(node, "key")
            yield from _part(node, "value")


def _part(node: Node, part: str) -> Iterator[tuple[int, LiteralValue]]:
    if not isinstance(node.value(part), str):
        yield from _inside(node.node(part))


def _value(field: Node, kind: str) -> LiteralValue:
    """Whether it is one of the type was judged when the schema was read."""
    match field.value("initial-default"):
        case bool() as found:
            return found
        case Number(text):
            # Not as a filter's literal, which knows no negative zero.
            return float(text) if kind == "double" else float(_SINGLE.unpack(_SINGLE.pack(float(text)))[0])
        case found:
            return parse_literal(str(found), primitive(parse_type_name(kind, field.at("type"))))
