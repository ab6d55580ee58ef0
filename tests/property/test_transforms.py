"""Partition transforms against PyIceberg's, and the kernel's tuple of a file against transforms of its values."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st
from pyiceberg import transforms as theirs
from pyiceberg import types as their_types

from pvdm.errors import InputError
from pvdm.lake.format.manifest.entry import IdMap
from pvdm.lake.format.partition_spec import Transform, apply_transform
from pvdm.lake.format.partition_value import tuple_key
from pvdm.lake.format.schema.logical import to_model, type_to_iceberg
from pvdm.lake.format.schema.single_value import check_value
from pvdm.model.schema import DecimalType, FixedType, Kind, PrimitiveType, Type
from tests.support.lake.metadata import column
from tests.support.lake.scans import table_of
from tests.support.verify.staged import codes, metadata, observe_file, parquet

INTEGERS = {Kind.INT: 31, Kind.DATE: 31, Kind.LONG: 63, Kind.TIMESTAMP: 63, Kind.TIMESTAMPTZ: 63}
NANOS = {Kind.TIMESTAMP_NS: 63, Kind.TIMESTAMPTZ_NS: 63}
THEIRS: dict[Kind, Any] = {
    Kind.INT: their_types.IntegerType(),
    Kind.LONG: their_types.LongType(),
    Kind.DATE: their_types.DateType(),
    Kind.TIME: their_types.TimeType(),
    Kind.TIMESTAMP: their_types.TimestampType(),
    Kind.TIMESTAMPTZ: their_types.TimestamptzType(),
    Kind.TIMESTAMP_NS: their_types.TimestampNanoType(),
    Kind.TIMESTAMPTZ_NS: their_types.TimestamptzNanoType(),
    Kind.STRING: their_types.StringType(),
    Kind.BINARY: their_types.BinaryType(),
    Kind.UUID: their_types.UUIDType(),
    Kind.BOOLEAN: their_types.BooleanType(),
    Kind.FLOAT: their_types.FloatType(),
    Kind.DOUBLE: their_types.DoubleType(),
}
KINDS: list[Type] = [*(PrimitiveType(kind) for kind in THEIRS), DecimalType(9, 2), DecimalType(38, 10), FixedType(4)]
SPREAD = st.sampled_from([10, 10**3, 10**6, 10**9, 10**12, 10**15, 2**63])


def values(kind: Type) -> st.SearchStrategy[Any]:
    """Values of a type, most of them near each other, so that some share a partition."""
    match kind:
        case PrimitiveType(Kind.TIME):
            return st.integers(0, 86_400_000_000 - 1)
        case PrimitiveType(name) if name in INTEGERS | NANOS:
            bits = (INTEGERS | NANOS)[name]
            return SPREAD.flatmap(lambda most: st.integers(-min(most, 2**bits), min(most, 2**bits) - 1))
        case PrimitiveType(Kind.BOOLEAN):
            return st.booleans()
        case PrimitiveType(Kind.FLOAT):
            return st.floats(width=32, allow_nan=True)
        case PrimitiveType(Kind.DOUBLE):
            return st.floats(allow_nan=True)
        case PrimitiveType(Kind.STRING):
            return st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
        case PrimitiveType(Kind.BINARY):
            return st.binary(max_size=6)
        case FixedType(length):
            return st.binary(min_size=length, max_size=length)
        case DecimalType(precision, scale):
            most = 10**precision - 1
            numbers = st.integers(-min(most, 500), min(most, 500)) | st.integers(-most, most)
            return numbers.map(lambda number: Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)))
        case _:
            return st.uuids()


TRANSFORMS = st.one_of(
    st.sampled_from(["identity", "year", "month", "day", "hour", "void"]),
    st.integers(1, 20).map("bucket[{}]".format),
    st.integers(1, 20).map("truncate[{}]".format),
)


def pyiceberg_transform(transform: Transform, kind: Type) -> Any:
    """PyIceberg's function for this transform and type."""
    named: Any = {
        "identity": theirs.IdentityTransform,
        "year": theirs.YearTransform,
        "month": theirs.MonthTransform,
        "day": theirs.DayTransform,
        "hour": theirs.HourTransform,
        "void": theirs.VoidTransform,
        "bucket": theirs.BucketTransform,
        "truncate": theirs.TruncateTransform,
    }[transform.name]
    match kind:
        case DecimalType(precision, scale):
            source: Any = their_types.DecimalType(precision, scale)
        case FixedType(length):
            source = their_types.FixedType(length)
        case PrimitiveType(name):
            source = THEIRS[name]
        case _:
            raise AssertionError(kind)
    return (named() if transform.parameter is None else named(transform.parameter)).transform(source)


@given(text=TRANSFORMS, kind=st.sampled_from(KINDS), data=st.data())
def test_a_transform_gives_what_pyiceberg_gives(text: str, kind: Type, data: st.DataObject) -> None:
    transform = Transform.parse(text)
    assume(transform.accepts(kind))
    value = data.draw(values(kind))
    try:
        mine = apply_transform(transform, kind, value)
    except InputError:
        # The truncated value would be below the type's range. Java overflows there, and PyIceberg exceeds the type.
        with pytest.raises(InputError):
            check_value(
                kind if transform.name == "truncate" else PrimitiveType(Kind.INT),
                pyiceberg_value(transform, kind, value),
            )
        return
    expected = pyiceberg_value(transform, kind, value)
    assert mine == expected or (mine != mine and expected != expected)  # noqa: PLR0124  NaN


def pyiceberg_value(transform: Transform, kind: Type, value: Any) -> Any:
    try:
        return pyiceberg_transform(transform, kind)(value)
    except OverflowError:
        # PyIceberg knows the years 1 to 9999 only.
        reject()


PARTITIONED = st.sampled_from([*KINDS]).flatmap(
    lambda kind: st.tuples(
        st.just(kind),
        TRANSFORMS.filter(lambda text: Transform.parse(text).accepts(kind)),
        st.lists(st.none() | values(kind), min_size=1, max_size=4),
        st.booleans(),
    )
)


def plain(value: Any) -> Any:
    return value.bytes if isinstance(value, UUID) else value


@pytest.mark.usefixtures("kernel")
@given(case=PARTITIONED)
def test_the_partition_of_a_file_is_the_transform_of_its_rows_or_a_finding_if_they_differ(
    case: tuple[Type, str, Sequence[Any], bool],
) -> None:
    kind, text, rows, nested = case
    iceberg = type_to_iceberg(kind)
    inner = {"type": "struct", "fields": [column(2, "v", iceberg)]}
    fields = [column(1, "s", inner)] if nested else [column(2, "v", iceberg)]
    spec = [{"name": "p", "transform": text, "source-id": 2, "field-id": 1000}]
    table = metadata(*fields, spec=spec, version=3)
    made = [{"s": {"v": plain(row)}} if nested else {"v": plain(row)} for row in rows]
    data = parquet(table_of(to_model(table.current_schema), made), version="2.6", coerce_timestamps=None)
    try:
        tuples = {tuple_key({1000: apply_transform(Transform.parse(text), kind, row)}): row for row in rows}
    except InputError:
        assume(False)
        return
    if len(tuples) > 1:
        assert codes(observe_file(data, table, partition=IdMap([(1000, None)])).findings) == ["partition_mixed"]
        return
    expected = apply_transform(Transform.parse(text), kind, rows[0])
    found = observe_file(data, table, partition=IdMap([(1000, expected)]))
    assert found.findings == ()
    assert found.data_file is not None
    assert tuple_key(found.data_file.partition) == tuple_key({1000: expected})
