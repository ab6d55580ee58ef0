"""What a source says that engines read differently is refused: none of the readings is the source."""

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


def test_a_delete_file_that_bounds_rule_out_may_stand_where_no_row_matches(tmp_path: Path) -> None:
    made = lake(tmp_path / "t")
    made.data(table_of(COLUMNS, ROWS), changes=longs(1, 8))
    made.equalities(keys(100), [1], changes=longs(100, 100, values=1))
    made.equalities(keys(2), [1], changes=longs(2, 2, values=1))
    assert [row["id"] for row in made.rows()] == [1, 3, 4, 5, 6, 7, 8]


def test_rows_of_nan_that_bounds_leave_out_are_refused(tmp_path: Path) -> None:
    """Bounds leave NaN out, so that Iceberg's index takes two files of NaN for files without a value in common."""
    columns = Schema((Field("f", PrimitiveType(Kind.DOUBLE), field_id=1),))

    def metrics(value: float) -> dict[str, Any]:
        end = IdMap([(1, struct.pack("<d", value))])
        counts = {"value_counts": IdMap([(1, 2)]), "null_value_counts": IdMap([(1, 0)])}
        return {"lower_bounds": end, "upper_bounds": end, **counts}

    made = lake(tmp_path / "t", schema(0, column(1, "f", "double")))
    made.data(table_of(columns, [{"f": math.nan}, {"f": 100.0}]), changes=metrics(100.0))
    made.equalities(table_of(columns, [{"f": math.nan}, {"f": 5.0}]), [1], changes=metrics(5.0))
    with pytest.raises(InputError) as caught:
        made.rows()
    assert caught.value.reason == "equality_delete_hidden"


def test_null_structs_around_a_partition_column_are_no_lie(tmp_path: Path) -> None:
    made = lake(tmp_path / "t", NESTED_DOC, specs={0: identity_spec(4, "s_x")})
    rows: list[dict[str, Any]] = [{"id": 1, "s": None}, {"id": 2, "s": {"x": None, "y": 2}}]
    made.data(table_of(NESTED, rows), partition={1000: None})
    assert made.rows() == rows


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zeros_in_the_partition_of_their_own_sign_are_read(tmp_path: Path, zero: float) -> None:
    columns = Schema(
        (Field("id", PrimitiveType(Kind.LONG), field_id=1), Field("f", PrimitiveType(Kind.FLOAT), field_id=2))
    )
    made = lake(tmp_path / "t", schema(0, column(1, "id"), column(2, "f", "float")), specs={0: identity_spec(2, "f")})
    made.data(table_of(columns, [{"id": 1, "f": zero}] * 3), partition={1000: zero})
    assert [math.copysign(1, row["f"]) for row in made.rows()] == [math.copysign(1, zero)] * 3


def left_out(kind: Kind, data: DataFile, deletes: DataFile, *, required: bool = False) -> bool:
    slots = slots_of([Schema((Field("x", PrimitiveType(kind), field_id=1, required=required),))])
    return may_be_left_out([1], slots, data, deletes)


def ends(
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
    assert left_out(Kind.LONG, ends(eight(1), eight(2)), ends(eight(3), eight(4)))
    assert left_out(Kind.LONG, ends(eight(3), eight(4)), ends(eight(1), eight(2)))
    assert not left_out(Kind.LONG, ends(eight(1), eight(3)), ends(eight(3), eight(4)))
    assert not left_out(Kind.LONG, ends(four(1), four(3)), ends(eight(3), eight(4)))  # from before a promotion
    assert left_out(Kind.STRING, ends(b"a", b"b"), ends(b"c", b"d"))
    assert not left_out(Kind.STRING, ends(b"a", b"c"), ends(b"b", b"d"))
    nan, one = struct.pack("<d", math.nan), struct.pack("<d", 1.0)
    assert left_out(Kind.DOUBLE, ends(nan, nan), ends(one, one))
    assert left_out(Kind.LONG, ends(b"?", b"?"), ends(eight(3), eight(4)))
    assert left_out(Kind.UUID, ends(uuid.UUID(int=1).bytes, uuid.UUID(int=1).bytes), ends(bytes(16), b"\xff" * 16))


def test_nulls_are_counted_as_iceberg_counts_them() -> None:
    apart = struct.pack("<q", 1), struct.pack("<q", 2), struct.pack("<q", 3), struct.pack("<q", 4)
    nulls, none = ends(*apart[:2], nulls=2), ends(*apart[2:], nulls=0)
    assert not left_out(Kind.LONG, nulls, ends(*apart[2:], nulls=1))
    assert not left_out(Kind.LONG, nulls, ends(*apart[2:], nulls=None))  # what is not told may be there
    assert left_out(Kind.LONG, nulls, none)
    assert left_out(Kind.LONG, ends(*apart[:2], nulls=2), ends(*apart[2:], nulls=2), required=True)
    only, silent = ends(nulls=4), ends(nulls=None, values=None)
    assert left_out(Kind.LONG, only, ends(nulls=0, values=1))
    assert left_out(Kind.LONG, ends(nulls=0, values=1), only)
    assert not left_out(Kind.LONG, only, silent)
    assert not left_out(Kind.LONG, silent, silent)
    assert not may_be_left_out([9], {}, only, only)  # a column that no schema has is refused elsewhere
