"""Partition specs and transforms: their result types, and transforms applied to values."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.json_document import parse_json
from pvdm.lake.format.schema.single_value import (
    Value,
    check_value,
    encode_value,
    from_unscaled,
    minimal_bytes,
    unscaled,
)
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
_INTEGERS: Final = _ZONED | {Kind.INT, Kind.LONG, Kind.DATE, Kind.TIME}
_BUCKETED: Final = _INTEGERS | {Kind.STRING, Kind.UUID, Kind.BINARY}
_TRUNCATED: Final = frozenset({Kind.INT, Kind.LONG, Kind.STRING, Kind.BINARY})


def _invalid(expected: str, got: object) -> PvdmError:
    return Code.PARTITION_SPEC_INVALID("a partition spec is not valid", expected=expected, got=repr(got)[:120])


@dataclass(frozen=True, slots=True)
class Transform:
    """A transform with its number of buckets or width; an unknown one keeps its text."""

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
        """The type of the transform's values; None if only the file's schema has it."""
        if not self.known:
            return None
        if source is not None and not self.accepts(source):
            words = f"transform {self} is not defined for its source"
            raise Code.PARTITION_SPEC_INVALID(words, reason="partition_source_refused", got=str(source))
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
        """The JSON as Iceberg's Java library writes it."""
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
            most, got = f"at most {PARTITION_FIELDS_MAX}", str(len(self.fields))
            raise Code.PARTITION_SPEC_INVALID(reason="partition_too_many_fields", expected=most, got=got)
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

    @property
    def is_unpartitioned(self) -> bool:
        """Whether all files have the same partition value."""
        return all(field.transform.name == "void" for field in self.fields)

    def to_text(self) -> str:
        """The JSON array of the fields."""
        return json.dumps([field.to_json() for field in self.fields], separators=(",", ":"), ensure_ascii=False)

    def result_types(self, schema: Schema) -> tuple[Type | None, ...]:
        """The type of each field's values over this schema."""
        sources = source_types(schema)
        return tuple(
            field.transform.result(sources.get(field.source_ids[0])) if len(field.source_ids) == 1 else None
            for field in self.fields
        )


def source_types(schema: Schema) -> dict[int, Type]:
    """The columns that can be a source, at the top and inside structs, by id."""
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


_MASK: Final = 0xFFFFFFFF
_EPOCH: Final = date(1970, 1, 1)
_HOUR_MICROS: Final = 3_600_000_000
_DAY_MICROS: Final = 24 * _HOUR_MICROS
_NANOS: Final = frozenset({Kind.TIMESTAMP_NS, Kind.TIMESTAMPTZ_NS})
# The Gregorian calendar repeats after this many days and years.
_CYCLE_DAYS: Final = 146_097
_CYCLE_YEARS: Final = 400


def apply(transform: Transform, source: Type, value: Value) -> Value:
    """The partition value of a source value; null stays null."""
    result = transform.result(source)
    if result is None:
        raise Code.PARTITION_SPEC_INVALID(reason="partition_transform_unknown", got=str(transform)[:120])
    if value is None or transform.name == "void":
        return None
    check_value(source, value)
    match transform.name:
        case "identity":
            return value
        case "bucket":
            return (bucket_hash(source, value) & 0x7FFFFFFF) % (transform.parameter or 1)
        case "truncate":
            return _truncated(source, value, transform.parameter or 1)
        case name:
            return _since_epoch(name, source, value)


def _truncated(source: Type, value: Value, width: int) -> Value:
    if isinstance(source, DecimalType):
        number = unscaled(source, value)
        return from_unscaled(source, number - number % width)
    if isinstance(value, int):
        floor = value - value % width
        check_value(source, floor)
        return floor
    return value[:width]


def _micros(source: Type, value: int) -> int:
    return value // 1_000 if isinstance(source, PrimitiveType) and source.kind in _NANOS else value


def _since_epoch(name: str, source: Type, value: int) -> int:
    if source == PrimitiveType(Kind.DATE):
        days = value
    else:
        micros = _micros(source, value)
        if name == "hour":
            check_value(INT, hours := micros // _HOUR_MICROS)
            return hours
        days = micros // _DAY_MICROS
    if name == "day":
        return days
    cycles, rest = divmod(days, _CYCLE_DAYS)
    day = _EPOCH + timedelta(days=rest)
    years = day.year - 1970 + cycles * _CYCLE_YEARS
    return years if name == "year" else years * 12 + day.month - 1


def bucket_hash(source: Type, value: Value) -> int:
    """The 32-bit hash of a value as Appendix B defines it, unsigned."""
    match source:
        case DecimalType():
            return murmur3(minimal_bytes(unscaled(source, value)))
        case PrimitiveType(kind) if kind in _INTEGERS:
            return murmur3(_micros(source, value).to_bytes(8, "little", signed=True))
        case _:
            return murmur3(encode_value(source, value))


def murmur3(data: bytes) -> int:
    """Murmur3 for x86, 32 bits, seed 0."""
    state = 0
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        state ^= _mixed(int.from_bytes(data[at : at + 4], "little"))
        state = ((state << 13) | (state >> 19)) & _MASK
        state = (state * 5 + 0xE6546B64) & _MASK
    if whole < len(data):
        state ^= _mixed(int.from_bytes(data[whole:], "little"))
    state ^= len(data)
    state = ((state ^ (state >> 16)) * 0x85EBCA6B) & _MASK
    state = ((state ^ (state >> 13)) * 0xC2B2AE35) & _MASK
    return state ^ (state >> 16)


def _mixed(part: int) -> int:
    part = (part * 0xCC9E2D51) & _MASK
    part = ((part << 15) | (part >> 17)) & _MASK
    return (part * 0x1B873593) & _MASK
