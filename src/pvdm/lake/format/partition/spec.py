"""Partition specs: fields, transforms and the types that transforms give (spec, Partition Transforms)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pvdm.errors import Code, InputError
from pvdm.lake.format.json.document import parse_json
from pvdm.model.schema import (
    NAME_MAX_BYTES,
    DecimalType,
    Field,
    FixedType,
    Kind,
    PrimitiveType,
    Schema,
    StructType,
    Type,
)

PARTITION_FIELDS_MAX: Final = 1_000
_FIRST_FIELD_ID: Final = 1_000
_PARAMETER: Final = re.compile(r"(\w+)\[(\d{1,10})\]", re.ASCII)
_PLAIN: Final = frozenset({"identity", "year", "month", "day", "hour", "void"})
INT: Final = PrimitiveType(Kind.INT)
DATE: Final = PrimitiveType(Kind.DATE)
UNKNOWN: Final = PrimitiveType(Kind.UNKNOWN)
_ZONED: Final = frozenset({Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.TIMESTAMP_NS, Kind.TIMESTAMPTZ_NS})
_BUCKETED: Final = _ZONED | {Kind.INT, Kind.LONG, Kind.DATE, Kind.TIME, Kind.STRING, Kind.UUID, Kind.BINARY}
_TRUNCATED: Final = frozenset({Kind.INT, Kind.LONG, Kind.STRING, Kind.BINARY})


def _invalid(expected: str, got: object) -> InputError:
    return InputError(
        Code.PARTITION_SPEC_INVALID, "a partition spec cannot be accepted", expected=expected, got=repr(got)[:120]
    )


@dataclass(frozen=True, slots=True)
class Transform:
    """A transform by name, with its number of buckets or width; one that is not known keeps its text."""

    name: str
    parameter: int | None = None
    known: bool = True

    @classmethod
    def parse(cls, text: str) -> Transform:
        """The transform that a spec's JSON names."""
        lower = text.lower()
        if lower in _PLAIN:
            return cls(lower)
        match = _PARAMETER.fullmatch(lower)
        if match is None or match[1] not in {"bucket", "truncate"}:
            return cls(text, known=False)
        parameter = int(match[2])
        if not 1 <= parameter < 2**31:
            raise _invalid("a width of 1 to 2^31 − 1", text)
        return cls(match[1], parameter)

    def __str__(self) -> str:
        return self.name if self.parameter is None else f"{self.name}[{self.parameter}]"

    def accepts(self, source: Type) -> bool:
        """Whether the transform is defined for values of this type."""
        match self.name, source:
            case ("void", _):
                return True
            case ("identity", PrimitiveType(kind)):
                return kind is not Kind.VARIANT
            case ("identity", DecimalType() | FixedType()):
                return True
            case ("bucket", PrimitiveType(kind)):
                return kind in _BUCKETED
            case ("bucket", DecimalType() | FixedType()) | ("truncate", DecimalType()):
                return True
            case ("truncate", PrimitiveType(kind)):
                return kind in _TRUNCATED
            case (("year" | "month" | "day"), PrimitiveType(kind)):
                return kind is Kind.DATE or kind in _ZONED
            case ("hour", PrimitiveType(kind)):
                return kind in _ZONED
            case _:
                return False

    def result(self, source: Type | None) -> Type | None:
        """The type of the transform's values; None where only the file can tell."""
        if not self.known:
            return None
        if source is not None and not self.accepts(source):
            raise Code.PARTITION_SPEC_INVALID(
                f"transform {self} is not defined for its source", reason="partition_source_refused", got=str(source)
            )
        match self.name:
            case "bucket" | "year" | "month" | "hour":
                return INT
            case "day":
                return DATE
            case _:
                return source


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of a spec."""

    name: str
    transform: Transform
    source_ids: tuple[int, ...]
    field_id: int

    def to_json(self) -> dict[str, object]:
        """As Iceberg's Java library writes it."""
        source: dict[str, object] = (
            {"source-id": self.source_ids[0]} if len(self.source_ids) == 1 else {"source-ids": list(self.source_ids)}
        )
        return {"name": self.name, "transform": str(self.transform), **source, "field-id": self.field_id}


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """The fields of a spec, and its id."""

    spec_id: int
    fields: tuple[PartitionField, ...] = ()

    def __post_init__(self) -> None:
        if len(self.fields) > PARTITION_FIELDS_MAX:
            raise Code.PARTITION_SPEC_INVALID(
                reason="partition_too_many_fields",
                expected=f"at most {PARTITION_FIELDS_MAX}",
                got=str(len(self.fields)),
            )
        ids, names = {field.field_id for field in self.fields}, {field.name for field in self.fields}
        if len(ids) != len(self.fields) or len(names) != len(self.fields):
            raise _invalid("distinct names and field ids", [field.name for field in self.fields])

    @classmethod
    def from_text(cls, spec_id: int, text: str) -> PartitionSpec:
        """The spec whose fields are this JSON array."""
        value = parse_json(text.encode(), what="the partition spec in the header")
        if not isinstance(value, list):
            raise _invalid("an array of fields", value)
        return cls(spec_id, tuple(_field(field, index) for index, field in enumerate(value)))

    def to_text(self) -> str:
        """The JSON array of the fields."""
        return json.dumps([field.to_json() for field in self.fields], separators=(",", ":"), ensure_ascii=False)

    def result_types(self, schema: Schema) -> tuple[Type | None, ...]:
        """The type of each field's values over this schema."""
        sources = source_types(schema)
        return tuple(_result(field, sources) for field in self.fields)


def _result(field: PartitionField, sources: Mapping[int, Type]) -> Type | None:
    if len(field.source_ids) != 1:
        return None
    return field.transform.result(sources.get(field.source_ids[0]))


def source_types(schema: Schema) -> dict[int, Type]:
    """The columns that can be a source: those at the top and inside structs, by id."""
    found: dict[int, Type] = {}
    pending: list[Field] = list(schema.fields)
    while pending:
        field = pending.pop()
        if field.field_id is not None:
            found[field.field_id] = field.type
        if isinstance(field.type, StructType):
            pending.extend(field.type.fields)
    return found


def _field(value: Any, index: int) -> PartitionField:
    match value:
        case {"name": str(name), "transform": str(transform)} if _is_text(name) and _is_text(transform):
            field_id = _FIRST_FIELD_ID + index if "field-id" not in value else _number(value["field-id"])
            return PartitionField(name, Transform.parse(transform), _sources(value), field_id)
        case _:
            raise _invalid("a field with name and transform", value)


def _is_text(value: str) -> bool:
    return 1 <= len(value.encode()) <= NAME_MAX_BYTES


def _sources(value: dict[str, Any]) -> tuple[int, ...]:
    if "source-id" in value:
        return (_number(value["source-id"]),)
    listed = value.get("source-ids")
    if not isinstance(listed, list) or not listed:
        raise _invalid("source-id or source-ids", value)
    return tuple(_number(each) for each in listed)


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise _invalid("an id", value)
    return value
