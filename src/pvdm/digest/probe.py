"""The coverage probe: changes every leaf of a schema in turn and checks which digests change."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from pvdm.digest.digester import Engine, digest
from pvdm.digest.partial import Partial
from pvdm.digest.plan import Mode, Plan
from pvdm.errors import Code, PvdmError
from pvdm.model.projection import ProjectionName
from pvdm.model.schema import (
    DecimalType,
    Field,
    FixedType,
    GeoType,
    Inner,
    Kind,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
    StructType,
    Type,
)
from pvdm.model.secret import DigestKey

_DECIMAL128_DIGITS: Final = 38


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One leaf: the changes that were tried, and the projections whose digests changed with each of them.

    `changes` has `value` (another value) and `null` (a null instead of a value), as far as the type allows them. It is
    empty for a leaf that has only one possible value, such as `unknown`.
    """

    leaf: str
    type: str
    changes: tuple[str, ...]
    noticed_by: tuple[ProjectionName, ...]


def probe_coverage(plan: Plan, *, engine: Engine | None = None) -> tuple[ProbeResult, ...]:
    """Change each leaf of each column; raises unless exactly the digests of projections with that column change."""
    keys = {projection.name: DigestKey(secrets.token_bytes(32), epoch=0) for projection in plan.projections}
    target = arrow_schema(plan.schema)
    base = [_sample(field, plan.mode) for field in plan.schema.fields]

    def digest_of(row: list[Any]) -> dict[ProjectionName, Partial]:
        columns = [pa.array([value], type=field.type) for value, field in zip(row, target, strict=True)]
        return digest(pa.RecordBatch.from_arrays(columns, schema=target), plan, keys, engine=engine)

    before = digest_of(base)
    results: list[ProbeResult] = []
    for index, column in enumerate(plan.schema.fields):
        covering = tuple(projection.name for projection in plan.projections if column.name in projection.columns)
        for leaf, slot, variations in _variations(column.name, column, plan.mode):
            for change, value in variations.items():
                after = digest_of([*base[:index], value, *base[index + 1 :]])
                for name, partial in before.items():
                    if partial.matches(after[name]) == (name in covering):
                        raise _probe_failed(f"a changed {change} of {leaf!r}", leaf, name, covering)
            results.append(ProbeResult(leaf, str(slot.type), tuple(variations), covering if variations else ()))
    return tuple(results)


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema that is read as this schema (spec/canonical.md section 7.1)."""
    return pa.schema(_arrow_fields(schema.fields))


def _arrow_type(kind: Type) -> pa.DataType:
    match kind:
        case PrimitiveType(name):
            return _PRIMITIVE[name]
        case DecimalType(precision, scale, _) if precision <= _DECIMAL128_DIGITS:
            return pa.decimal128(precision, scale)
        case DecimalType(precision, scale, _):
            return pa.decimal256(precision, scale)
        case FixedType(length):
            return pa.binary(length)
        case GeoType():
            return pa.binary()
        case StructType(fields):
            return pa.struct(_arrow_fields(fields))
        case ListType(element):
            return pa.list_(_arrow_field("element", element))
        case MapType(key, value):
            # The type hints of `map_` do not know that it takes fields, which have nullability.
            parts: tuple[Any, Any] = _arrow_field("key", key), _arrow_field("value", value)
            return pa.map_(*parts)


_PRIMITIVE: Final[dict[Kind, pa.DataType]] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int32(),
    Kind.LONG: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.DATE: pa.date32(),
    Kind.TIME: pa.time64("us"),
    Kind.TIME_NS: pa.time64("ns"),
    Kind.TIMESTAMP: pa.timestamp("us"),
    Kind.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    Kind.TIMESTAMP_NS: pa.timestamp("ns"),
    Kind.TIMESTAMPTZ_NS: pa.timestamp("ns", "UTC"),
    Kind.STRING: pa.string(),
    Kind.UUID: pa.binary(16),
    Kind.BINARY: pa.binary(),
    Kind.UNKNOWN: pa.null(),
    Kind.VARIANT: pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)]),
}


def _arrow_fields(fields: tuple[Field, ...]) -> list[pa.Field[Any]]:
    return [_arrow_field(field.name, field) for field in fields]


def _arrow_field(name: str, slot: Field | Inner) -> pa.Field[Any]:
    return pa.field(name, _arrow_type(slot.type), nullable=not slot.required)


def _variant(number: int) -> dict[str, bytes]:
    """A variant that holds an int8: metadata version 1 with an empty dictionary, then type 3 and the byte."""
    return {"metadata": bytes((1, 0, 0)), "value": bytes((3 << 2, number))}


# Two neighbouring values of each type, which is the smallest change.
_VALUES: Final[dict[Kind, tuple[Any, ...]]] = {
    Kind.BOOLEAN: (False, True),
    Kind.FLOAT: (1.0, 1.0 + 2**-23),
    Kind.DOUBLE: (1.0, 1.0 + 2**-52),
    Kind.STRING: ("a", "b"),
    Kind.UUID: (bytes(16), bytes(15) + b"\x01"),
    Kind.BINARY: (b"", b"\x00"),
    Kind.UNKNOWN: (),
    Kind.VARIANT: (_variant(0), _variant(1)),
}


def _leaf_values(kind: Type, mode: Mode) -> tuple[Any, ...]:
    """Two values of a type without parts, or fewer if the type has only one or none."""
    match kind:
        case PrimitiveType(name):
            return _VALUES.get(name, (0, 1))
        case DecimalType(precision, scale, declared):
            # Zero, and the smallest step that both the type and the declared scale can hold.
            written = scale if mode is Mode.STORED or declared is None else declared
            step = min(scale, written)
            digits = max(scale, written) - step + 1
            # decimal(2,2) at declared scale 0 has no exact value but zero.
            return (Decimal(0), Decimal(1).scaleb(-step)) if digits <= precision else (Decimal(0),)
        case FixedType(length):
            return bytes(length), bytes(length - 1) + b"\x01"
        case GeoType():
            # A point in WKB, little endian. Its x is 0 or the smallest number above.
            point = bytes((1, 1, 0, 0, 0))
            return point + bytes(16), point + b"\x01" + bytes(15)
        case StructType(()):
            return ({},)
        case _:
            return ()


def _sample(slot: Field | Inner, mode: Mode) -> Any:
    """A value with one entry in every list and map; null only for the type `unknown`, which has no other value."""
    match slot.type:
        case PrimitiveType(Kind.UNKNOWN):
            return None
        case StructType(fields):
            return {field.name: _sample(field, mode) for field in fields}
        case ListType(element):
            return [_sample(element, mode)]
        case MapType(key, value):
            return [(_sample(key, mode), _sample(value, mode))]
        case kind:
            return _leaf_values(kind, mode)[0]


def _variations(path: str, slot: Field | Inner, mode: Mode) -> Iterator[tuple[str, Field | Inner, dict[str, Any]]]:
    """For each leaf: its path, its slot, and by change (`value`, `null`) the sample with only this leaf changed."""
    match slot.type:
        case StructType(fields) if fields:
            whole = _sample(slot, mode)
            for field in fields:
                for leaf, inner, changed in _variations(f"{path}.{field.name}", field, mode):
                    yield leaf, inner, {change: {**whole, field.name: part} for change, part in changed.items()}
        case ListType(element):
            for leaf, inner, changed in _variations(f"{path}.element", element, mode):
                yield leaf, inner, {change: [part] for change, part in changed.items()}
        case MapType(key, value):
            for leaf, inner, changed in _variations(f"{path}.key", key, mode):
                yield leaf, inner, {change: [(part, _sample(value, mode))] for change, part in changed.items()}
            for leaf, inner, changed in _variations(f"{path}.value", value, mode):
                yield leaf, inner, {change: [(_sample(key, mode), part)] for change, part in changed.items()}
        case kind:
            values = _leaf_values(kind, mode)
            changes: dict[str, Any] = {"value": values[1]} if len(values) > 1 else {}
            yield path, slot, changes if slot.required or not values else {**changes, "null": None}


def _probe_failed(change: str, leaf: str, name: ProjectionName, covering: tuple[ProjectionName, ...]) -> PvdmError:
    covered = name in covering
    return Code.COVERAGE_PROBE_FAILED(
        f"after {change} the digest of the {name.value} projection is wrong",
        expected="another digest" if covered else "the same digest, since the projection leaves it out",
        got="the same digest" if covered else "another digest",
        leaf=leaf,
        projection=name.value,
    )
