"""A source that engines read differently is refused, because no reading is the right one."""

from __future__ import annotations

import math
import struct
import uuid
from pathlib import Path
from typing import Any

import pytest

from pvdm.errors import InputError, PvdmError
from pvdm.lake.format.manifest.entry import DataFile, IdMap
from pvdm.lake.read.deletes import may_be_left_out, slots_of
from pvdm.model.schema import Field, Kind, PrimitiveType, Schema
from tests.support.lake.manifests import data_file
from tests.support.lake.metadata import column, schema
from tests.support.lake.scans import identity_spec, table_of
from tests.support.lake.source_lies import COLUMNS, LIES, NESTED, NESTED_DOC, ROWS, Lie, keys, lake, longs

pytestmark = pytest.mark.usefixtures("kernel")


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_a_source_that_engines_read_differently_is_refused(tmp_path: Path, lie: Lie) -> None:
    with pytest.raises(PvdmError) as caught:
        lie.make(tmp_path / "lies", True).rows()
    assert caught.value.reason == lie.code
    assert lie.make(tmp_path / "honest", False).rows()


def test_a_delete_file_outside_the_bounds_is_accepted_if_no_row_matches(tmp_path: Path) -> None:
    table = lake(tmp_path / "t")
    table.data(table_of(COLUMNS, ROWS), changes=longs(1, 8))
    table.equalities(keys(100), [1], changes=longs(100, 100, values=1))
    table.equalities(keys(2), [1], changes=longs(2, 2, values=1))
    assert [row["id"] for row in table.rows()] == [1, 3, 4, 5, 6, 7, 8]


def test_an_equality_delete_of_nan_outside_the_bounds_is_refused(tmp_path: Path) -> None:
    """Bounds leave NaN out. So Iceberg assumes that two files have no value in common, though both have NaN."""
    columns = Schema((Field("f", PrimitiveType(Kind.DOUBLE), field_id=1),))

    def metrics(value: float) -> dict[str, Any]:
        end = IdMap([(1, struct.pack("<d", value))])
        counts = {"value_counts": IdMap([(1, 2)]), "null_value_counts": IdMap([(1, 0)])}
        return {"lower_bounds": end, "upper_bounds": end, **counts}

    table = lake(tmp_path / "t", schema(0, column(1, "f", "double")))
    table.data(table_of(columns, [{"f": math.nan}, {"f": 100.0}]), changes=metrics(100.0))
    table.equalities(table_of(columns, [{"f": math.nan}, {"f": 5.0}]), [1], changes=metrics(5.0))
    with pytest.raises(InputError) as caught:
        table.rows()
    assert caught.value.reason == "equality_delete_hidden"


def test_null_structs_around_a_partition_column_are_read(tmp_path: Path) -> None:
    table = lake(tmp_path / "t", NESTED_DOC, specs={0: identity_spec(4, "s_x")})
    rows: list[dict[str, Any]] = [{"id": 1, "s": None}, {"id": 2, "s": {"x": None, "y": 2}}]
    table.data(table_of(NESTED, rows), partition={1000: None})
    assert table.rows() == rows


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zeros_in_the_partition_of_their_own_sign_are_read(tmp_path: Path, zero: float) -> None:
    columns = Schema(
        (Field("id", PrimitiveType(Kind.LONG), field_id=1), Field("f", PrimitiveType(Kind.FLOAT), field_id=2))
    )
    table = lake(tmp_path / "t", schema(0, column(1, "id"), column(2, "f", "float")), specs={0: identity_spec(2, "f")})
    table.data(table_of(columns, [{"id": 1, "f": zero}] * 3), partition={1000: zero})
    assert [math.copysign(1, row["f"]) for row in table.rows()] == [math.copysign(1, zero)] * 3


def is_left_out(kind: Kind, data: DataFile, deletes: DataFile, *, required: bool = False) -> bool:
    """Whether Iceberg may leave the delete file out for this data file, by the bounds and counts of both."""
    slots = slots_of([Schema((Field("x", PrimitiveType(kind), field_id=1, required=required),))])
    return may_be_left_out([1], slots, data, deletes)


def file_of(
    low: bytes | None = None, high: bytes | None = None, nulls: int | None = 0, values: int | None = 4
) -> DataFile:
    return data_file(
        lower_bounds=None if low is None else IdMap([(1, low)]),
        upper_bounds=None if high is None else IdMap([(1, high)]),
        value_counts=None if values is None else IdMap([(1, values)]),
        null_value_counts=None if nulls is None else IdMap([(1, nulls)]),
    )


def test_ranges_are_compared_as_iceberg_compares_them() -> None:
    four, eight = struct.Struct("<i").pack, struct.Struct("<q").pack
    assert is_left_out(Kind.LONG, file_of(eight(1), eight(2)), file_of(eight(3), eight(4)))
    assert is_left_out(Kind.LONG, file_of(eight(3), eight(4)), file_of(eight(1), eight(2)))
    assert not is_left_out(Kind.LONG, file_of(eight(1), eight(3)), file_of(eight(3), eight(4)))
    assert not is_left_out(Kind.LONG, file_of(four(1), four(3)), file_of(eight(3), eight(4)))  # before it was widened
    assert is_left_out(Kind.STRING, file_of(b"a", b"b"), file_of(b"c", b"d"))
    assert not is_left_out(Kind.STRING, file_of(b"a", b"c"), file_of(b"b", b"d"))
    nan, one = struct.pack("<d", math.nan), struct.pack("<d", 1.0)
    assert is_left_out(Kind.DOUBLE, file_of(nan, nan), file_of(one, one))
    assert is_left_out(Kind.LONG, file_of(b"?", b"?"), file_of(eight(3), eight(4)))
    one_id = uuid.UUID(int=1).bytes
    assert is_left_out(Kind.UUID, file_of(one_id, one_id), file_of(bytes(16), b"\xff" * 16))


def test_nulls_are_counted_as_iceberg_counts_them() -> None:
    packed = struct.pack("<q", 1), struct.pack("<q", 2), struct.pack("<q", 3), struct.pack("<q", 4)
    nulls, none = file_of(*packed[:2], nulls=2), file_of(*packed[2:], nulls=0)
    assert not is_left_out(Kind.LONG, nulls, file_of(*packed[2:], nulls=1))
    assert not is_left_out(Kind.LONG, nulls, file_of(*packed[2:], nulls=None))  # without a count there may be nulls
    assert is_left_out(Kind.LONG, nulls, none)
    assert is_left_out(Kind.LONG, file_of(*packed[:2], nulls=2), file_of(*packed[2:], nulls=2), required=True)
    only_nulls, without_counts = file_of(nulls=4), file_of(nulls=None, values=None)
    assert is_left_out(Kind.LONG, only_nulls, file_of(nulls=0, values=1))
    assert is_left_out(Kind.LONG, file_of(nulls=0, values=1), only_nulls)
    assert not is_left_out(Kind.LONG, only_nulls, without_counts)
    assert not is_left_out(Kind.LONG, without_counts, without_counts)
    assert not may_be_left_out([9], {}, only_nulls, only_nulls)  # a column that no schema has is refused elsewhere
