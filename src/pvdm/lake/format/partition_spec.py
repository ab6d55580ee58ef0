"""Partition specs and transforms: their result types, and transforms applied to values."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.json_document import parse_json
from pvdm.lake.format.schema import single_value
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
_WITH_PARAMETER: Final = re.compile(r"(\w+)\[(\d{1,10})\]", re.ASCII)
_WITHOUT_PARAMETER: Final = frozenset({"identity", "year", "month", "day", "hour", "void"})
INT: Final = PrimitiveType(Kind.INT)
DATE: Final = PrimitiveType(Kind.DATE)
UNKNOWN: Final = PrimitiveType(Kind.UNKNOWN)
_TIMESTAMPS: Final = frozenset({Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.TIMESTAMP_NS, Kind.TIMESTAMPTZ_NS})
_INTEGERS: Final = _TIMESTAMPS | {Kind.INT, Kind.LONG, Kind.DATE, Kind.TIME}
# The types that each transform accepts: primitive types in `_SOURCE_KINDS`, decimal and fixed in `_SOURCE_CLASSES`.
_SOURCE_KINDS: Final[dict[str, frozenset[Kind]]] = {
    "identity": frozenset(Kind) - {Kind.VARIANT},
    "bucket": _INTEGERS | {Kind.STRING, Kind.UUID, Kind.BINARY},
    "truncate": frozenset({Kind.INT, Kind.LONG, Kind.STRING, Kind.BINARY}),
    **dict.fromkeys(("year", "month", "day"), _TIMESTAMPS | {Kind.DATE}),
    "hour": _TIMESTAMPS,
}
_SOURCE_CLASSES: Final[dict[str, tuple[type, ...]]] = {
    "identity": (DecimalType, FixedType),
    "bucket": (DecimalType, FixedType),
    "truncate": (DecimalType,),
}


def _invalid(expected: str, got: object) -> PvdmError:
    return Code.PARTITION_SPEC_INVALID("a partition spec is not valid", expected=expected, got=repr(got)[:120])


@dataclass(frozen=True, slots=True)
class Transform:
    """A transform. `parameter` is the number of buckets or the width. An unknown transform has its text as `name`."""

    name: str
    parameter: int | None = None
    is_known: bool = True

    @classmethod
    def parse(cls, text: str) -> Transform:
        """The transform that a spec's JSON names."""
        lower = text.lower()
        if lower in _WITHOUT_PARAMETER:
            return cls(lower)
        match = _WITH_PARAMETER.fullmatch(lower)
        if match is None or match[1] not in {"bucket", "truncate"}:
            return cls(text, is_known=False)
        parameter = int(match[2])
        if not 1 <= parameter < 2**31:
            raise _invalid("a width of 1 to 2^31 − 1", text)
        return cls(match[1], parameter)

    def __str__(self) -> str:
        return self.name if self.parameter is None else f"{self.name}[{self.parameter}]"

    def accepts(self, source: Type) -> bool:
        """Whether the transform is defined for values of this type."""
        if isinstance(source, PrimitiveType) and self.name in _SOURCE_KINDS:
            return source.kind in _SOURCE_KINDS[self.name]
        return self.name == "void" or isinstance(source, _SOURCE_CLASSES.get(self.name, ()))

    def result_type(self, source: Type | None) -> Type | None:
        """The type of the transform's values; None if only a manifest's Avro schema gives it.

        `source` is None if the schema no longer has the column. Raises if the transform is not defined for this type.
        """
        if not self.is_known:
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
            expected, got = f"at most {PARTITION_FIELDS_MAX}", str(len(self.fields))
            raise Code.PARTITION_SPEC_INVALID(reason="partition_too_many_fields", expected=expected, got=got)
        ids, names = {field.field_id for field in self.fields}, {field.name for field in self.fields}
        if len(ids) != len(self.fields) or len(names) != len(self.fields):
            raise _invalid("distinct names and field ids", [field.name for field in self.fields])

    @classmethod
    def from_text(cls, spec_id: int, text: str) -> PartitionSpec:
        """The spec whose fields are this JSON array."""
        value = parse_json(text.encode(), what="the partition spec in the header")
        if not isinstance(value, list):
            raise _invalid("an array of fields", value)
        return cls(spec_id, tuple(_read_field(field, index) for index, field in enumerate(value)))

    @property
    def is_unpartitioned(self) -> bool:
        """Whether every field has the transform `void`, so that all files have the same partition."""
        return all(field.transform.name == "void" for field in self.fields)

    def to_text(self) -> str:
        """The JSON array of the fields."""
        return json.dumps([field.to_json() for field in self.fields], separators=(",", ":"), ensure_ascii=False)

    def result_types(self, schema: Schema) -> tuple[Type | None, ...]:
        """The type of each field's values over this schema."""
        sources = source_types(schema)
        return tuple(
            field.transform.result_type(sources.get(field.source_ids[0])) if len(field.source_ids) == 1 else None
            for field in self.fields
        )


def source_types(schema: Schema) -> dict[int, Type]:
    """The types of the columns that can be a source, by id: those at the top and inside structs."""
    types: dict[int, Type] = {}
    pending: list[Field] = list(schema.fields)
    while pending:
        field = pending.pop()
        if field.field_id is not None:
            types[field.field_id] = field.type
        if isinstance(field.type, StructType):
            pending.extend(field.type.fields)
    return types


def _read_field(value: Any, index: int) -> PartitionField:
    match value:
        case {"name": str(name), "transform": str(transform)} if _fits_a_name(name) and _fits_a_name(transform):
            field_id = _FIRST_FIELD_ID + index if "field-id" not in value else _read_id(value["field-id"])
            return PartitionField(name, Transform.parse(transform), _read_source_ids(value), field_id)
        case _:
            raise _invalid("a field with name and transform", value)


def _fits_a_name(value: str) -> bool:
    return 1 <= len(value.encode()) <= NAME_MAX_BYTES


def _read_source_ids(value: dict[str, Any]) -> tuple[int, ...]:
    if "source-id" in value:
        return (_read_id(value["source-id"]),)
    source_ids = value.get("source-ids")
    if not isinstance(source_ids, list) or not source_ids:
        raise _invalid("source-id or source-ids", value)
    return tuple(_read_id(each) for each in source_ids)


def _read_id(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise _invalid("an id", value)
    return value


_32_BITS: Final = 0xFFFFFFFF
_EPOCH: Final = date(1970, 1, 1)
_HOUR_MICROS: Final = 3_600_000_000
_DAY_MICROS: Final = 24 * _HOUR_MICROS
_NANOS: Final = frozenset({Kind.TIMESTAMP_NS, Kind.TIMESTAMPTZ_NS})
# The calendar repeats after this many days and years. So years outside of Python's range, 1 to 9999, can be computed.
_CYCLE_DAYS: Final = 146_097
_CYCLE_YEARS: Final = 400


def apply_transform(transform: Transform, source: Type, value: single_value.Value) -> single_value.Value:
    """The partition value of a source value; null stays null. Raises if the transform is unknown."""
    result = transform.result_type(source)
    if result is None:
        raise Code.PARTITION_SPEC_INVALID(reason="partition_transform_unknown", got=str(transform)[:120])
    if value is None or transform.name == "void":
        return None
    single_value.check_value(source, value)
    match transform.name:  # `or 1` is only for the type checker: `bucket` and `truncate` have a parameter
        case "identity":
            return value
        case "bucket":
            return (bucket_hash(source, value) & 0x7FFFFFFF) % (transform.parameter or 1)
        case "truncate":
            return _truncate(source, value, transform.parameter or 1)
        case name:
            return _count_since_epoch(name, source, value)


def _truncate(source: Type, value: single_value.Value, width: int) -> single_value.Value:
    if isinstance(source, DecimalType):
        number = single_value.unscaled(source, value)
        return single_value.from_unscaled(source, number - number % width)
    if isinstance(value, int):
        floor = value - value % width
        single_value.check_value(source, floor)
        return floor
    return value[:width]


def _to_micros(source: Type, value: int) -> int:
    """A timestamp of nanoseconds in microseconds; other values as they are."""
    return value // 1_000 if isinstance(source, PrimitiveType) and source.kind in _NANOS else value


def _count_since_epoch(unit: str, source: Type, value: int) -> int:
    """The years, months, days or hours from 1970 to a date or timestamp."""
    if source == DATE:
        days = value
    else:
        micros = _to_micros(source, value)
        if unit == "hour":
            hours = micros // _HOUR_MICROS
            single_value.check_value(INT, hours)
            return hours
        days = micros // _DAY_MICROS
    if unit == "day":
        return days
    cycles, days_in_cycle = divmod(days, _CYCLE_DAYS)
    day = _EPOCH + timedelta(days=days_in_cycle)
    years = day.year - 1970 + cycles * _CYCLE_YEARS
    return years if unit == "year" else years * 12 + day.month - 1


def bucket_hash(source: Type, value: single_value.Value) -> int:
    """The 32-bit hash of a value (Appendix B of the Iceberg specification), as an unsigned number."""
    match source:
        case DecimalType():
            return murmur3(single_value.minimal_bytes(single_value.unscaled(source, value)))
        case PrimitiveType(kind) if kind in _INTEGERS:
            return murmur3(_to_micros(source, value).to_bytes(8, "little", signed=True))
        case _:
            return murmur3(single_value.encode_value(source, value))


def murmur3(data: bytes) -> int:
    """Murmur3 for x86, 32 bits, seed 0."""
    state = 0
    aligned_size = len(data) & ~3
    for start in range(0, aligned_size, 4):
        state ^= _mix(int.from_bytes(data[start : start + 4], "little"))
        state = ((state << 13) | (state >> 19)) & _32_BITS
        state = (state * 5 + 0xE6546B64) & _32_BITS
    if aligned_size < len(data):
        state ^= _mix(int.from_bytes(data[aligned_size:], "little"))
    state ^= len(data)
    state = ((state ^ (state >> 16)) * 0x85EBCA6B) & _32_BITS
    state = ((state ^ (state >> 13)) * 0xC2B2AE35) & _32_BITS
    return state ^ (state >> 16)


def _mix(part: int) -> int:
    part = (part * 0xCC9E2D51) & _32_BITS
    part = ((part << 15) | (part >> 17)) & _32_BITS
    return (part * 0x1B873593) & _32_BITS
