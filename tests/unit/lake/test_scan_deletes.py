"""Delete files in a scan: to which data files they apply, and which rows they remove."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pvdm.errors import InputError, VerificationError
from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, FileContent, IdMap, ManifestEntry
from pvdm.lake.format.partition_spec import PartitionSpec
from pvdm.lake.read.deletes import FILE_PATH_ID, DeleteFile, DeleteIndex
from pvdm.model.schema import Field, Kind, PrimitiveType, Schema, StructType
from tests.support.lake.metadata import column, schema
from tests.support.lake.scans import Lake, identity_spec, rows_of, table_of

pytestmark = pytest.mark.usefixtures("kernel")

LONG, STRING, DOUBLE = (PrimitiveType(kind) for kind in (Kind.LONG, Kind.STRING, Kind.DOUBLE))
COLUMNS = Schema((Field("id", LONG, field_id=1), Field("name", STRING, field_id=2), Field("f", DOUBLE, field_id=3)))
DOC = schema(0, column(1, "id"), column(2, "name", "string"), column(3, "f", "double"))
SPECS = {0: [], 1: identity_spec(2, "name"), 2: identity_spec(1, "id", 1001)}


def lake_at(folder: Path, version: int = 2) -> Lake:
    return Lake(folder, (DOC,), version=version, specs=SPECS)


def table_with(*ids: int, name: str | None = None) -> pa.Table:
    return table_of(COLUMNS, [{"id": each, "name": name} for each in ids])


def key_table(ids: Sequence[int | None], *, columns: Schema | None = None, name: str = "id") -> pa.Table:
    return table_of(columns or Schema(COLUMNS.fields[:1]), [{name: each} for each in ids])


def remaining_ids(lake: Lake) -> list[Any]:
    return [row["id"] for row in lake.rows()]


def raises_reason(reason: str) -> Any:
    return pytest.RaisesExc((InputError, VerificationError), check=lambda error: error.reason == reason)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(("sequence", "wanted"), [(1, [0, 1, 2]), (2, [0, 2]), (3, [0, 2])])
def test_position_deletes_apply_to_files_of_the_same_or_an_earlier_commit(
    tmp_path: Path, version: int, sequence: int, wanted: list[int]
) -> None:
    lake = lake_at(tmp_path, version)
    location = lake.data(table_with(0, 1, 2), sequence=2)
    lake.positions([(location, 1)], sequence=sequence)
    assert remaining_ids(lake) == wanted


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(("sequence", "wanted"), [(1, [0, 1, 2]), (2, [0, 1, 2]), (3, [0, 2])])
def test_equality_deletes_apply_to_files_of_an_earlier_commit_only(
    tmp_path: Path, version: int, sequence: int, wanted: list[int]
) -> None:
    lake = lake_at(tmp_path, version)
    lake.data(table_with(0, 1, 2), sequence=2)
    lake.equalities(key_table([1]), [1], sequence=sequence)
    assert remaining_ids(lake) == wanted


def test_positions_of_several_files_and_delete_files_are_combined(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    first, second = lake.data(table_with(0, 1, 2)), lake.data(table_with(3, 4, 5))
    lake.positions([(first, 0), (second, 2), (first, 99)])
    lake.positions([(first, 0), (second, 0), ("file:///elsewhere", 1)])
    assert remaining_ids(lake) == [1, 2, 4]


def test_positions_count_across_the_batches_of_a_file(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    count = 50_000
    location = lake.data(table_with(*range(count)), row_group_size=7_001)
    gone = {0, 7_000, 7_001, 16_383, 16_384, 40_000, count - 1}
    lake.positions([(location, each) for each in gone])
    assert remaining_ids(lake) == [each for each in range(count) if each not in gone]


@pytest.mark.parametrize(
    ("spec", "partition", "wanted"),
    [(1, {1000: "a"}, [1]), (1, {1000: "b"}, [0, 1]), (1, {1000: None}, [0, 1]), (2, {1001: 0}, [0, 1])],
)
def test_position_deletes_apply_to_one_spec_and_partition(
    tmp_path: Path, spec: int, partition: dict[int, Any], wanted: list[int]
) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(0, 1, name="a"), spec=1, partition={1000: "a"})
    lake.positions([(location, 0), ("file:///z", 0)], spec=spec, partition=partition)
    assert remaining_ids(lake) == wanted


@pytest.mark.parametrize("by", ["name", "bounds"])
def test_position_deletes_for_one_file_apply_in_any_partition(tmp_path: Path, by: str) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(0, 1, name="a"), spec=1, partition={1000: "a"})
    bounds = IdMap([(FILE_PATH_ID, location.encode())])
    changes = {"referenced_data_file": location} if by == "name" else {"lower_bounds": bounds, "upper_bounds": bounds}
    lake.positions([(location, 0)], spec=2, partition={1001: 9}, changes=changes)
    assert remaining_ids(lake) == [1]


def test_position_deletes_listed_for_one_file_that_name_another_are_refused(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    first, second = lake.data(table_with(0, 1)), lake.data(table_with(2, 3))
    lake.positions([(first, 0), (second, 0)], changes={"referenced_data_file": first})
    with raises_reason("position_deletes_refused"):
        lake.rows()


@pytest.mark.parametrize(
    ("spec", "partition", "wanted"),
    [(1, {1000: "a"}, [1]), (1, {1000: "b"}, [0, 1]), (2, {1001: 0}, [0, 1]), (0, None, [1])],
)
def test_equality_deletes_apply_to_one_partition_or_the_whole_table(
    tmp_path: Path, spec: int, partition: dict[int, Any] | None, wanted: list[int]
) -> None:
    lake = lake_at(tmp_path)
    lake.data(table_with(0, 1, name="a"), spec=1, partition={1000: "a"})
    lake.equalities(key_table([0]), [1], spec=spec, partition=partition)
    assert remaining_ids(lake) == wanted


def test_equality_deletes_of_a_void_spec_apply_to_the_whole_table(tmp_path: Path) -> None:
    void = [{"name": "name", "transform": "void", "source-id": 2, "field-id": 1002}]
    lake = Lake(tmp_path, (DOC,), specs={**SPECS, 3: void})
    lake.data(table_with(0, 1, name="a"), spec=1, partition={1000: "a"})
    lake.equalities(key_table([0]), [1], spec=3, partition={1002: None})
    assert remaining_ids(lake) == [1]


def test_the_same_tuple_under_another_spec_is_another_partition() -> None:
    index = DeleteIndex()
    near, far = (PartitionSpec.from_text(each, json.dumps(identity_spec(2, "name"))) for each in (1, 4))
    partition: IdMap[Any] = IdMap([(1000, "a")])
    data = DataFile(
        file_path="file:///f", file_format="PARQUET", record_count=1, file_size_in_bytes=1, partition=partition
    )
    deletes = replace(data, file_path="file:///d", content=FileContent.POSITION_DELETES)
    index.add(ManifestEntry(status=EntryStatus.ADDED, data_file=deletes, sequence_number=5), near)
    entry = ManifestEntry(status=EntryStatus.ADDED, data_file=data, sequence_number=1)
    found = DeleteFile("file:///d", 1, 1, FileContent.POSITION_DELETES, 5)
    assert index.find_for(entry, near.spec_id) == (found,)
    assert index.find_for(entry, far.spec_id) == ()


NAN, OTHER_NAN = (struct.unpack("<d", bits.to_bytes(8, "little"))[0] for bits in (0x7FF8 << 48, (0xFFF8 << 48) + 5))


@pytest.mark.parametrize(
    ("deleted", "wanted"),
    [
        (None, [NAN, OTHER_NAN, 0.0, -0.0, 1.5]),
        (NAN, [None, 0.0, -0.0, 1.5]),
        (OTHER_NAN, [None, 0.0, -0.0, 1.5]),
        (0.0, [None, NAN, OTHER_NAN, -0.0, 1.5]),
        (-0.0, [None, NAN, OTHER_NAN, 0.0, 1.5]),
    ],
)
def test_equality_deletes_match_null_and_any_nan_and_distinguish_zeros(
    tmp_path: Path, deleted: float | None, wanted: list[Any]
) -> None:
    lake = lake_at(tmp_path)
    every = [None, NAN, OTHER_NAN, 0.0, -0.0, 1.5]
    lake.data(table_of(COLUMNS, [{"f": each} for each in every]))
    only = Schema((COLUMNS.fields[2],))
    lake.equalities(key_table([deleted], columns=only, name="f"), [3])  # type: ignore[list-item]
    assert [repr(row["f"]) for row in lake.rows()] == [repr(each) for each in wanted]


def test_a_row_is_deleted_only_if_every_key_column_is_equal(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    pairs = [(one, two) for one in (None, 1, 2) for two in (None, "a", "b")]
    lake.data(table_of(COLUMNS, [{"id": one, "name": two} for one, two in pairs]))
    two_columns = Schema(COLUMNS.fields[:2])
    gone = [(1, "a"), (2, "b"), (None, None), (1, None), (3, "a")]
    lake.equalities(table_of(two_columns, [{"id": one, "name": two} for one, two in gone]), [2, 1])
    assert [(row["id"], row["name"]) for row in lake.rows()] == [pair for pair in pairs if pair not in gone]


def test_an_equality_delete_file_may_have_other_columns(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    lake.data(table_with(0, 1, name="a"))
    lake.equalities(table_with(0, name="something else"), [1])
    assert remaining_ids(lake) == [1]


def test_a_key_is_compared_in_its_widened_type(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    lake.schemas = (schema(0, column(1, "id", "int")), {**DOC, "schema-id": 1})
    lake.current = 1
    narrow = Schema((Field("id", PrimitiveType(Kind.INT), field_id=1),))
    lake.data(table_with(0, 1), sequence=1)
    lake.data(table_of(narrow, [{"id": 0}, {"id": 2}]), sequence=1)
    lake.equalities(table_of(narrow, [{"id": 0}]), [1], sequence=2)
    assert remaining_ids(lake) == [1, 2]


def test_an_equality_delete_of_a_dropped_column_applies(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    lake.schemas = (DOC, schema(1, column(1, "id"), column(5, "name", "long")))
    lake.current = 1
    lake.specs = {0: []}
    lake.data(table_of(COLUMNS, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]))
    lake.equalities(key_table(["a"], columns=Schema((COLUMNS.fields[1],)), name="name"), [2])  # type: ignore[list-item]
    assert lake.rows() == [{"id": 2, "name": None}]


def test_a_key_column_that_the_file_lacks_is_null_or_its_default(tmp_path: Path) -> None:
    for default, gone in ((None, [None]), (8, [8])):
        folder = tmp_path / str(default)
        folder.mkdir()
        more = {} if default is None else {"initial-default": default}
        lake = Lake(folder, (DOC, schema(1, *DOC["fields"], column(6, "new", **more))), current=1, version=3)
        lake.data(table_with(1, 2))
        lake.equalities(key_table(gone, columns=Schema((Field("new", LONG, field_id=6),)), name="new"), [6])
        assert remaining_ids(lake) == []


def test_a_scan_of_some_columns_applies_deletes_by_other_columns(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    lake.data(table_of(COLUMNS, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]))
    lake.equalities(key_table([1]), [1])
    assert rows_of(lake.scan().select(["name"])) == [{"name": "b"}]


@pytest.mark.parametrize("value", [float("nan"), -0.0, 0.0])
def test_position_deletes_find_a_partition_of_floats(tmp_path: Path, value: float) -> None:
    lake = Lake(tmp_path, (DOC,), specs={0: identity_spec(3, "f")})
    location = lake.data(table_of(COLUMNS, [{"id": 0, "f": value}, {"id": 1, "f": value}]), partition={1000: value})
    lake.positions([(location, 0), ("file:///z", 0)], partition={1000: float(str(value))})
    lake.positions([(location, 1), ("file:///z", 0)], partition={1000: -value if value == 0 else 1.0})
    assert remaining_ids(lake) == [1]


def test_the_error_of_an_unreadable_equality_delete_file_names_it(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    lake.data(table_with(0, 1))
    deletes = lake.equalities(pa.table({"id": pa.array([1], pa.int64())}), [1])
    with pytest.raises(VerificationError) as caught:
        lake.rows()
    assert (caught.value.reason, caught.value.details["file"]) == ("field_id_missing", deletes)


def test_a_position_delete_file_with_a_null_is_refused(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(0, 1))
    lake.positions([(location, None)])  # type: ignore[list-item]
    with raises_reason("position_deletes_refused"):
        lake.rows()


def test_a_key_inside_a_struct_distinguishes_a_null_struct_from_a_null_field(tmp_path: Path) -> None:
    inner = StructType((Field("x", LONG, field_id=8), Field("y", LONG, field_id=9)))
    nested = Schema((Field("id", LONG, field_id=1), Field("s", inner, field_id=7)))
    struct_doc = {"type": "struct", "fields": [column(8, "x"), column(9, "y")]}
    lake = Lake(tmp_path, (schema(0, column(1, "id"), column(7, "s", struct_doc)),))
    values = [None, {"x": None, "y": 1}, {"x": 1, "y": 2}, {"x": 2, "y": 1}]
    lake.data(table_of(nested, [{"id": at, "s": value} for at, value in enumerate(values)]))
    only = Schema((Field("s", StructType((inner.fields[0],)), field_id=7),))
    lake.equalities(table_of(only, [{"s": {"x": None}}, {"s": {"x": 2}}]), [8])
    assert remaining_ids(lake) == [0, 2]


def test_keys_of_a_struct_that_lost_a_field_compare_both_fields(tmp_path: Path) -> None:
    """The field that is left has been renamed to the name of the removed one."""
    old = StructType((Field("x", LONG, field_id=8), Field("y", LONG, field_id=9)))
    nested = Schema((Field("id", LONG, field_id=1), Field("s", old, field_id=7)))
    docs = [
        {"type": "struct", "fields": [column(8, "x"), column(9, "y")]},
        {"type": "struct", "fields": [column(9, "x")]},
    ]
    schemas = tuple(schema(at, column(1, "id"), column(7, "s", doc)) for at, doc in enumerate(docs))
    lake = Lake(tmp_path, schemas, current=1)
    values = [{"x": 1, "y": 1}, {"x": 1, "y": 2}, {"x": 2, "y": 1}]
    lake.data(table_of(nested, [{"id": at, "s": value} for at, value in enumerate(values)]))
    lake.equalities(table_of(Schema((nested.fields[1],)), [{"s": {"x": 1, "y": 2}}]), [8, 9])
    assert lake.rows() == [{"id": 0, "s": {"x": 1}}, {"id": 2, "s": {"x": 1}}]


@pytest.mark.parametrize(("ids", "reason"), [([99], "equality_ids_unknown"), ([1, 99], "equality_ids_unknown")])
def test_an_unknown_key_column_is_refused(tmp_path: Path, ids: list[int], reason: str) -> None:
    lake = lake_at(tmp_path)
    lake.data(table_with(0, 1))
    lake.equalities(key_table([0]), ids)
    with raises_reason(reason):
        lake.rows()


def test_position_and_equality_deletes_are_both_applied(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(0, 1, 2, 3, 4))
    lake.positions([(location, 0), (location, 3)])
    lake.equalities(key_table([1, 3]), [1])
    lake.equalities(key_table([4]), [1], sequence=3)
    assert remaining_ids(lake) == [2]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"record_count": 2}, "record_count_lies"), ({"file_size_in_bytes": 9}, "file_size_lies")],
)
def test_a_position_delete_file_that_differs_from_its_listing_is_refused(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(0, 1))
    lake.positions([(location, 0)], changes=changes)
    with raises_reason(reason):
        lake.rows()


def test_an_equality_delete_file_with_another_row_count_is_refused(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    lake.data(table_with(0, 1))
    lake.equalities(key_table([0]), [1], changes={"record_count": 2})
    with raises_reason("record_count_lies"):
        lake.rows()


def test_a_missing_delete_file_is_refused(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(0, 1))
    deletes = lake.positions([(location, 0)])
    Path(deletes.removeprefix("file://")).unlink()
    with raises_reason("file_missing"):
        lake.rows()


def test_a_position_delete_file_without_its_columns_is_refused(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    lake.data(table_with(0, 1))
    location, size = lake.write(table_with(0))
    lake.entry(location, size, 1, FileContent.POSITION_DELETES, 2, 0, None)
    with raises_reason("position_deletes_refused"):
        lake.rows()
