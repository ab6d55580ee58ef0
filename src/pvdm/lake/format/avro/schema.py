"""Avro schemas as checked trees with field ids; recursion, deep nesting and unions other than optional are refused."""

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
# Longer texts are not cached.
_CACHED_MAX_CHARACTERS: Final = 65_536
_BYTES_AT_LEAST: Final = {"null": 0, "float": 4, "double": 8}


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
    """A union of null and one other type, in their order."""

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


def least_bytes(node: Node) -> int:
    """The least number of bytes of a value of this type, to check counts before items are read."""
    match node:
        case PrimitiveNode(kind):
            return _BYTES_AT_LEAST.get(kind, 1)
        case FixedNode(size):
            return size
        case RecordNode(fields):
            return sum(least_bytes(field.type) for field in fields)
        case _:
            return 1


def weight(node: Node) -> int:
    """The least number of values in a value of this type, itself included."""
    match node:
        case RecordNode(fields):
            return 1 + sum(weight(field.type) for field in fields)
        case _:
            return 1


def parse_avro_schema(text: str) -> RecordNode:
    """Parse a file's schema. Raises if its root is not a record."""
    return _parse_cached(text) if len(text) <= _CACHED_MAX_CHARACTERS else _parse(text)


def _parse(text: str) -> RecordNode:
    data = text.encode()
    if len(data) > AVRO_SCHEMA_MAX_BYTES:
        expected = f"at most {AVRO_SCHEMA_MAX_BYTES} bytes"
        raise Code.AVRO_INVALID(reason="avro_schema_too_large", expected=expected, got=str(len(data)))
    root = _Parser().parse(parse_json(data, what="the Avro schema"), namespace="", depth=1)
    if not isinstance(root, RecordNode):
        raise _unsupported("a record at the root", type(root).__name__)
    return root


# Manifests of one table share their schema's text, and to parse it costs more than to read a short manifest.
_parse_cached: Final = functools.lru_cache(maxsize=64)(_parse)


def _unsupported(expected: str, got: object) -> PvdmError:
    return Code.AVRO_INVALID(reason="avro_schema_unsupported", expected=expected, got=repr(got)[:120])


class _Parser:
    """Parses a schema in one pass. Named types are expanded, so that the limit on nodes counts them each time."""

    def __init__(self) -> None:
        self._named: dict[str, Node] = {}
        self._open: set[str] = set()
        self._nodes = 0

    def parse(self, value: Any, namespace: str, depth: int) -> Node:
        if depth > AVRO_NESTING_DEPTH_MAX:
            expected = f"at most {AVRO_NESTING_DEPTH_MAX} levels"
            raise Code.AVRO_INVALID(reason="avro_schema_too_deep", expected=expected, got="more")
        if isinstance(value, str):
            return self._reference(value, namespace)
        self._count(1)
        if isinstance(value, list):
            return self._option(value, namespace, depth)
        if not isinstance(value, dict):
            raise _unsupported("a name, a union or an object", value)
        return self._object(value, namespace, depth)

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > AVRO_SCHEMA_NODES_MAX:
            expected = f"at most {AVRO_SCHEMA_NODES_MAX}"
            raise Code.AVRO_INVALID(reason="avro_schema_too_many_nodes", expected=expected, got="more")

    def _reference(self, name: str, namespace: str) -> Node:
        if name in PRIMITIVES:
            self._count(1)
            return PrimitiveNode(name)
        full = _full_name(name, namespace)
        if full in self._open:
            raise Code.AVRO_INVALID(reason="avro_schema_recursive", got=repr(full)[:120])
        found = self._named.get(full)
        if found is None:
            raise _unsupported("a type that is defined before it is named", name)
        self._count(_size(found))
        return found

    def _option(self, branches: list[Any], namespace: str, depth: int) -> Node:
        if len(branches) != 2 or branches.count("null") != 1:
            raise Code.AVRO_INVALID(reason="avro_union_unsupported", got=repr(branches)[:120])
        null_first = branches[0] == "null"
        inner = self.parse(branches[1 if null_first else 0], namespace, depth + 1)
        if isinstance(inner, OptionNode):
            raise _unsupported("a union that holds no union", branches)
        return OptionNode(inner, null_first)

    def _object(self, value: dict[str, Any], namespace: str, depth: int) -> Node:
        kind = value.get("type")
        match kind:
            case "record":
                return self._record(value, namespace, depth)
            case "fixed":
                return self._fixed(value, namespace)
            case "array":
                items = self.parse(_part(value, "items"), namespace, depth + 1)
                return ArrayNode(items, _identifier(value, "element-id"), _logical(value))
            case "map":
                values = self.parse(_part(value, "values"), namespace, depth + 1)
                return MapNode(values, _identifier(value, "key-id"), _identifier(value, "value-id"))
            case str() if kind in PRIMITIVES:
                adjusted = value.get("adjust-to-utc", False)
                if not isinstance(adjusted, bool):
                    raise _unsupported("adjust-to-utc as true or false", adjusted)
                return PrimitiveNode(kind, _logical(value), adjusted)
            case dict() | list() | str():
                return self.parse(kind, namespace, depth + 1)
            case _:
                raise _unsupported("an object with a type", value)

    def _enter(self, value: dict[str, Any], namespace: str) -> tuple[str, str]:
        name, space = value.get("name"), value.get("namespace", namespace)
        if not isinstance(name, str) or not name or not isinstance(space, str):
            raise _unsupported("a name", name)
        full = _full_name(name, space)
        if full in self._named or full in self._open:
            raise _unsupported("each name once", full)
        return full, full.rpartition(".")[0]

    def _fixed(self, value: dict[str, Any], namespace: str) -> Node:
        full, _ = self._enter(value, namespace)
        size = _integer(value, "size")
        if size is None or not 0 <= size <= AVRO_FIXED_MAX_BYTES:
            expected = f"0 to {AVRO_FIXED_MAX_BYTES} bytes"
            raise Code.AVRO_INVALID(reason="avro_fixed_too_large", expected=expected, got=repr(size)[:40])
        node = FixedNode(size, _logical(value), _integer(value, "precision"), _integer(value, "scale"))
        self._named[full] = node
        return node

    def _record(self, value: dict[str, Any], namespace: str, depth: int) -> Node:
        full, space = self._enter(value, namespace)
        fields = value.get("fields")
        if not isinstance(fields, list):
            raise _unsupported("a record with fields", value.keys())
        self._open.add(full)
        node = RecordNode(tuple(self._field(field, space, depth + 1) for field in fields))
        self._open.remove(full)
        names = [field.name for field in node.fields]
        ids = [field.field_id for field in node.fields if field.field_id is not None]
        if len(set(names)) != len(names) or len(set(ids)) != len(ids):
            raise Code.AVRO_INVALID(reason="avro_field_repeated", got=repr(names)[:120])
        self._named[full] = node
        return node

    def _field(self, value: Any, namespace: str, depth: int) -> FieldNode:
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            raise _unsupported("a field with a name", value)
        kind = self.parse(_part(value, "type"), namespace, depth)
        return FieldNode(value["name"], kind, _identifier(value, "field-id"))


def _size(node: Node) -> int:
    match node:
        case RecordNode(fields):
            return 1 + sum(_size(field.type) for field in fields)
        case ArrayNode(items):
            return 1 + _size(items)
        case MapNode(values):
            return 1 + _size(values)
        case OptionNode(inner):
            return 1 + _size(inner)
        case _:
            return 1


def _full_name(name: str, namespace: str) -> str:
    full = name if "." in name or not namespace else f"{namespace}.{name}"
    if len(full) > AVRO_NAME_MAX_CHARACTERS:
        raise _unsupported(f"a full name of at most {AVRO_NAME_MAX_CHARACTERS} characters", full)
    return full


def _part(value: dict[str, Any], key: str) -> Any:
    if key not in value:
        raise _unsupported(f"an object with {key}", value)
    return value[key]


def _integer(value: dict[str, Any], key: str) -> int | None:
    found = value.get(key)
    if found is not None and (not isinstance(found, int) or isinstance(found, bool)):
        raise _unsupported(f"{key} as an integer", found)
    return found


def _identifier(value: dict[str, Any], key: str) -> int | None:
    found = _integer(value, key)
    if found is not None and not 0 <= found < 2**31:
        raise _unsupported(f"{key} in 0 to 2^31 − 1", found)
    return found


def _logical(value: dict[str, Any]) -> str | None:
    found = value.get("logicalType")
    if found is not None and not isinstance(found, str):
        raise _unsupported("logicalType as text", found)
    return found
