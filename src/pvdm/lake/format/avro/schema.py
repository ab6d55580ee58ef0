"""Avro schemas as checked trees with field ids. Only unions of null and one type are accepted, and no recursion."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.json_document import parse_json

AVRO_SCHEMA_MAX_BYTES: Final = 4_194_304
AVRO_SCHEMA_NODES_MAX: Final = 20_000
AVRO_NESTING_DEPTH_MAX: Final = 32
AVRO_FIXED_MAX_BYTES: Final = 1_048_576
AVRO_NAME_MAX_CHARACTERS: Final = 1_024

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_CACHED_TEXT_MAX_CHARACTERS: Final = 65_536  # longer schemas are parsed each time
_LEAST_BYTES: Final = {"null": 0, "float": 4, "double": 8}  # other primitive types have values of one byte or more


@dataclass(frozen=True, slots=True)
class PrimitiveNode:
    """A type without parts, with the annotations that Iceberg uses."""

    kind: str
    logical: str | None = None
    adjust_to_utc: bool = False


@dataclass(frozen=True, slots=True)
class FixedNode:
    """Exactly `size` bytes."""

    size: int
    logical: str | None = None
    precision: int | None = None
    scale: int | None = None


@dataclass(frozen=True, slots=True)
class ArrayNode:
    """Items in order; with logical type `map` the items are records of key and value."""

    items: Node
    element_id: int | None = None
    logical: str | None = None


@dataclass(frozen=True, slots=True)
class MapNode:
    """Avro's own map, whose keys are strings."""

    values: Node
    key_id: int | None = None
    value_id: int | None = None


@dataclass(frozen=True, slots=True)
class OptionNode:
    """A union of null and one other type; `null_first` says whether null is the first of the two."""

    inner: Node
    null_first: bool = True


@dataclass(frozen=True, slots=True)
class FieldNode:
    """A field of a record. Iceberg does not read fields without an id."""

    name: str
    type: Node
    field_id: int | None = None


@dataclass(frozen=True, slots=True)
class RecordNode:
    """Fields in the order of their values."""

    fields: tuple[FieldNode, ...]

    def position(self, field_id: int) -> int | None:
        """The position of the field with this id; None if the record does not have it."""
        for index, field in enumerate(self.fields):
            if field.field_id == field_id:
                return index
        return None


Node: TypeAlias = PrimitiveNode | FixedNode | ArrayNode | MapNode | OptionNode | RecordNode


def min_byte_count(node: Node) -> int:
    """The minimum number of bytes of a value of this type. Readers check the counts of items with it."""
    match node:
        case PrimitiveNode(kind):
            return _LEAST_BYTES.get(kind, 1)
        case FixedNode(size):
            return size
        case RecordNode(fields):
            return sum(min_byte_count(field.type) for field in fields)
        case _:
            return 1


def min_value_count(node: Node) -> int:
    """The minimum number of values in a value of this type: itself, and those of a record's fields."""
    return 1 + sum(min_value_count(field.type) for field in node.fields) if isinstance(node, RecordNode) else 1


def parse_avro_schema(text: str) -> RecordNode:
    """Parse a file's schema. Raises if its root is not a record."""
    return _parse_cached(text) if len(text) <= _CACHED_TEXT_MAX_CHARACTERS else _parse(text)


def _parse(text: str) -> RecordNode:
    data = text.encode()
    if len(data) > AVRO_SCHEMA_MAX_BYTES:
        expected = f"at most {AVRO_SCHEMA_MAX_BYTES} bytes"
        raise Code.AVRO_INVALID(reason="avro_schema_too_large", expected=expected, got=str(len(data)))
    root = _Parser().parse(parse_json(data, what="the Avro schema"), namespace="", depth=1)
    if not isinstance(root, RecordNode):
        raise _unsupported("a record at the root", type(root).__name__)
    return root


# Manifests of one table have the same schema text, and parsing it takes longer than reading a short manifest.
_parse_cached: Final = functools.lru_cache(maxsize=64)(_parse)


def _unsupported(expected: str, got: object) -> PvdmError:
    return Code.AVRO_INVALID(reason="avro_schema_unsupported", expected=expected, got=repr(got)[:120])


class _Parser:
    """Parses a schema in one pass. At each use of a named type, all nodes of the type count for the limit on nodes.

    `_defined` has the named types by full name, `_unfinished` the names of the records that enclose the current node.
    """

    def __init__(self) -> None:
        self._defined: dict[str, Node] = {}
        self._unfinished: set[str] = set()
        self._nodes = 0

    def parse(self, value: Any, namespace: str, depth: int) -> Node:
        if depth > AVRO_NESTING_DEPTH_MAX:
            expected = f"at most {AVRO_NESTING_DEPTH_MAX} levels"
            raise Code.AVRO_INVALID(reason="avro_schema_too_deep", expected=expected, got="more")
        if isinstance(value, str):
            return self._resolve_name(value, namespace)
        self._count_nodes(1)
        if isinstance(value, list):
            return self._parse_option(value, namespace, depth)
        if not isinstance(value, dict):
            raise _unsupported("a name, a union or an object", value)
        return self._parse_object(value, namespace, depth)

    def _count_nodes(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > AVRO_SCHEMA_NODES_MAX:
            expected = f"at most {AVRO_SCHEMA_NODES_MAX}"
            raise Code.AVRO_INVALID(reason="avro_schema_too_many_nodes", expected=expected, got="more")

    def _resolve_name(self, name: str, namespace: str) -> Node:
        if name in PRIMITIVES:
            self._count_nodes(1)
            return PrimitiveNode(name)
        full_name = _full_name(name, namespace)
        if full_name in self._unfinished:
            raise Code.AVRO_INVALID(reason="avro_schema_recursive", got=repr(full_name)[:120])
        node = self._defined.get(full_name)
        if node is None:
            raise _unsupported("a type that is defined before it is named", name)
        self._count_nodes(_count_tree(node))
        return node

    def _parse_option(self, branches: list[Any], namespace: str, depth: int) -> Node:
        if len(branches) != 2 or branches.count("null") != 1:
            raise Code.AVRO_INVALID(reason="avro_union_unsupported", got=repr(branches)[:120])
        null_first = branches[0] == "null"
        inner = self.parse(branches[1 if null_first else 0], namespace, depth + 1)
        if isinstance(inner, OptionNode):
            raise _unsupported("a union without a union in it", branches)
        return OptionNode(inner, null_first)

    def _parse_object(self, value: dict[str, Any], namespace: str, depth: int) -> Node:
        kind = value.get("type")
        match kind:
            case "record":
                return self._parse_record(value, namespace, depth)
            case "fixed":
                return self._parse_fixed(value, namespace)
            case "array":
                items = self.parse(_require_key(value, "items"), namespace, depth + 1)
                return ArrayNode(items, _read_id(value, "element-id"), _read_logical_type(value))
            case "map":
                values = self.parse(_require_key(value, "values"), namespace, depth + 1)
                return MapNode(values, _read_id(value, "key-id"), _read_id(value, "value-id"))
            case str() if kind in PRIMITIVES:
                adjusted = value.get("adjust-to-utc", False)
                if not isinstance(adjusted, bool):
                    raise _unsupported("adjust-to-utc as true or false", adjusted)
                return PrimitiveNode(kind, _read_logical_type(value), adjusted)
            case dict() | list() | str():
                return self.parse(kind, namespace, depth + 1)
            case _:
                raise _unsupported("an object with a type", value)

    def _read_new_name(self, value: dict[str, Any], namespace: str) -> str:
        """The full name of the type that is defined here. Raises if another type has it."""
        name, own_namespace = value.get("name"), value.get("namespace", namespace)
        if not isinstance(name, str) or not name or not isinstance(own_namespace, str):
            raise _unsupported("a name", name)
        full_name = _full_name(name, own_namespace)
        if full_name in self._defined or full_name in self._unfinished:
            raise _unsupported("each name once", full_name)
        return full_name

    def _parse_fixed(self, value: dict[str, Any], namespace: str) -> Node:
        full_name = self._read_new_name(value, namespace)
        size = _read_integer(value, "size")
        if size is None or not 0 <= size <= AVRO_FIXED_MAX_BYTES:
            expected = f"0 to {AVRO_FIXED_MAX_BYTES} bytes"
            raise Code.AVRO_INVALID(reason="avro_fixed_too_large", expected=expected, got=repr(size)[:40])
        precision, scale = _read_integer(value, "precision"), _read_integer(value, "scale")
        node = FixedNode(size, _read_logical_type(value), precision, scale)
        self._defined[full_name] = node
        return node

    def _parse_record(self, value: dict[str, Any], namespace: str, depth: int) -> Node:
        full_name = self._read_new_name(value, namespace)
        fields = value.get("fields")
        if not isinstance(fields, list):
            raise _unsupported("a record with fields", value.keys())
        self._unfinished.add(full_name)
        own_namespace = full_name.rpartition(".")[0]
        node = RecordNode(tuple(self._parse_field(field, own_namespace, depth + 1) for field in fields))
        self._unfinished.remove(full_name)
        names = [field.name for field in node.fields]
        ids = [field.field_id for field in node.fields if field.field_id is not None]
        if len(set(names)) != len(names) or len(set(ids)) != len(ids):
            raise Code.AVRO_INVALID(reason="avro_field_repeated", got=repr(names)[:120])
        self._defined[full_name] = node
        return node

    def _parse_field(self, value: Any, namespace: str, depth: int) -> FieldNode:
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            raise _unsupported("a field with a name", value)
        kind = self.parse(_require_key(value, "type"), namespace, depth)
        return FieldNode(value["name"], kind, _read_id(value, "field-id"))


def _count_tree(node: Node) -> int:
    """The number of nodes in the tree."""
    match node:
        case RecordNode(fields):
            return 1 + sum(_count_tree(field.type) for field in fields)
        case ArrayNode(items):
            return 1 + _count_tree(items)
        case MapNode(values):
            return 1 + _count_tree(values)
        case OptionNode(inner):
            return 1 + _count_tree(inner)
        case _:
            return 1


def _full_name(name: str, namespace: str) -> str:
    full_name = name if "." in name or not namespace else f"{namespace}.{name}"
    if len(full_name) > AVRO_NAME_MAX_CHARACTERS:
        raise _unsupported(f"a full name of at most {AVRO_NAME_MAX_CHARACTERS} characters", full_name)
    return full_name


def _require_key(value: dict[str, Any], key: str) -> Any:
    if key not in value:
        raise _unsupported(f"an object with {key}", value)
    return value[key]


def _read_integer(value: dict[str, Any], key: str) -> int | None:
    number = value.get(key)
    if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
        raise _unsupported(f"{key} as an integer", number)
    return number


def _read_id(value: dict[str, Any], key: str) -> int | None:
    number = _read_integer(value, key)
    if number is not None and not 0 <= number < 2**31:
        raise _unsupported(f"{key} in 0 to 2^31 − 1", number)
    return number


def _read_logical_type(value: dict[str, Any]) -> str | None:
    name = value.get("logicalType")
    if name is not None and not isinstance(name, str):
        raise _unsupported("logicalType as text", name)
    return name
