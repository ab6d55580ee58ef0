"""Scans of a snapshot: columns are matched by field id, and files that differ from their listing are refused."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pvdm.digest.parquet import read_batches
from pvdm.errors import InputError, VerificationError
from pvdm.lake.format.json_document import Node
from pvdm.lake.format.manifest.entry import FileContent
from pvdm.lake.format.schema.document import parse_schema
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.scan import Scan, plan_scan, scan_batches
from pvdm.model.schema import Schema
from pvdm.verify.fetch import Files
from tests.support.lake.metadata import column, document_of, schema
from tests.support.lake.scans import NAME, Lake, fetch, identity_spec, rows_of, table_of

pytestmark = pytest.mark.usefixtures("kernel")

OLD = schema(0, column(1, "id", "int"), column(2, "gone", "string"), column(3, "price", "decimal(5, 2)"))


def model_schema(lake: Lake, at: int) -> Schema:
    return to_model(parse_schema(Node(lake.schemas[at], "$")))


def raises_reason(reason: str) -> Any:
    return pytest.RaisesExc((InputError, VerificationError), check=lambda error: error.reason == reason)


def evolved_lake(folder: Path, *fields: dict[str, Any], version: int = 2, old: dict[str, Any] = OLD) -> Lake:
    """A table with the old schema, and one of these fields as its current schema."""
    return Lake(folder, (old, schema(1, *fields)), current=1, version=version)


def test_columns_are_found_by_id_after_rename_reorder_drop_and_widening(tmp_path: Path) -> None:
    fields = (column(3, "cost", "decimal(9, 2)"), column(1, "key", "long"), column(4, "new", "date"))
    lake = evolved_lake(tmp_path, *fields)
    lake.data(table_of(model_schema(lake, 0), [{"id": 7, "gone": "x", "price": Decimal("1.25")}, {}]))
    assert lake.rows() == [{"cost": Decimal("1.25"), "key": 7, "new": None}, {"cost": None, "key": None, "new": None}]
    (batch,) = batches(lake.scan())
    assert batch.schema.types == [pa.decimal128(9, 2), pa.int64(), pa.date32()]


def batches(scan: Scan) -> list[pa.RecordBatch]:
    return [batch for file in scan.files for batch in scan_batches(scan, file, fetch, read_batches)]


@pytest.mark.parametrize(
    ("kind", "default", "wanted"),
    [
        ("int", 5, 5),
        ("boolean", True, True),
        ("string", "é", "é"),
        ("decimal(5, 2)", "-1.50", Decimal("-1.50")),
        ("uuid", "00000000-0000-0000-0000-0000000000ff", bytes(15) + b"\xff"),
        ("fixed[2]", "00ff", b"\x00\xff"),
        ("date", "1970-01-03", date(1970, 1, 3)),
        ("long", -(2**63), -(2**63)),
        ("decimal(38, 0)", "9" * 38, Decimal("9" * 38)),
        ("binary", "00ff", b"\x00\xff"),
        ("time", "23:59:59.999999", time(23, 59, 59, 999_999)),
        ("timestamp", "1969-12-31T23:59:59.999999", datetime.fromisoformat("1969-12-31T23:59:59.999999")),
        ("timestamptz", "2026-11-15T01:02:03.000004+00:00", datetime(2026, 11, 15, 1, 2, 3, 4, UTC)),
    ],
)
def test_a_file_older_than_a_column_gets_its_initial_default(
    tmp_path: Path, kind: str, default: object, wanted: object
) -> None:
    added = column(9, "c", kind, **{"initial-default": default})
    lake = evolved_lake(tmp_path, column(1, "id", "int"), added, version=3)
    lake.data(table_of(model_schema(lake, 0), [{"id": 1}, {"id": 2}]))
    assert [row["c"] for row in lake.rows()] == [wanted, wanted]


@pytest.mark.parametrize(("kind", "zone"), [("timestamp_ns", ""), ("timestamptz_ns", "+00:00")])
def test_a_default_of_nanoseconds_is_exact(tmp_path: Path, kind: str, zone: str) -> None:
    default = f"1969-12-31T23:59:59.999999999{zone}"
    added = column(9, "c", kind, **{"initial-default": default})
    lake = evolved_lake(tmp_path, column(1, "id", "int"), added, version=3)
    lake.data(table_of(model_schema(lake, 0), [{"id": 1}]))
    (batch,) = batches(lake.scan())
    found: Any = batch.column("c")
    assert found.cast(pa.int64()).to_pylist() == [-1]


def test_a_required_column_with_a_default_may_be_missing_and_one_without_may_not(tmp_path: Path) -> None:
    added = column(9, "c", "int", required=True, **{"initial-default": 3})
    lake = evolved_lake(tmp_path, column(1, "id", "int"), added, version=3)
    lake.data(table_of(model_schema(lake, 0), [{"id": 1}]))
    assert lake.rows() == [{"id": 1, "c": 3}]
    lake.schemas = (OLD, schema(1, column(1, "id", "int"), column(9, "c", "int", required=True)))
    with raises_reason("field_required_missing"):
        lake.rows()


def test_a_written_null_is_not_replaced_by_the_default(tmp_path: Path) -> None:
    added = schema(1, column(1, "id", "int"), column(9, "c", "int", **{"initial-default": 3}))
    lake = Lake(tmp_path, (OLD, added), current=1, version=3)
    lake.data(table_of(model_schema(lake, 1), [{"id": 1, "c": None}]))
    assert lake.rows() == [{"id": 1, "c": None}]


def table_with_ids(**columns: tuple[int, Any]) -> pa.Table:
    """A table of these columns; each is given by its name, field id and array."""
    fields: list[Any] = [pa.field(name, array.type, metadata={NAME: str(at)}) for name, (at, array) in columns.items()]
    return pa.Table.from_arrays([array for _, array in columns.values()], schema=pa.schema(fields))


def test_nulls_without_a_type_are_not_replaced_by_the_default(tmp_path: Path) -> None:
    inside = {"type": "struct", "fields": [column(6, "zip", "int", **{"initial-default": 4})]}
    added = schema(1, column(5, "place", inside), column(9, "c", "int", **{"initial-default": 3}))
    lake = Lake(tmp_path, (OLD, added), current=1, version=3)
    place: Any = pa.StructArray.from_arrays([pa.nulls(1)], fields=[pa.field("zip", pa.null(), metadata={NAME: "6"})])
    lake.data(table_with_ids(place=(5, place), c=(9, pa.nulls(1))))
    assert lake.rows() == [{"place": {"zip": None}, "c": None}]
    (batch,) = batches(lake.scan())
    assert batch.schema.field("c").type == pa.int32()


def test_nulls_without_a_type_in_a_partition_with_a_value_are_refused(tmp_path: Path) -> None:
    both = schema(0, column(1, "id", "int"), column(2, "region", "string"))
    lake = Lake(tmp_path, (both,), specs={0: identity_spec(2, "region")})
    lake.data(table_with_ids(id=(1, pa.array([1], pa.int32())), region=(2, pa.nulls(1))), partition={1000: "eu"})
    with raises_reason("source_partition_lies"):
        lake.rows()


def test_row_ids_that_a_rewrite_put_beside_the_columns_are_ignored(tmp_path: Path) -> None:
    lake = Lake(tmp_path, (schema(0, column(1, "id", "int")),), version=3)
    lineage = {"_row_id": 2_147_483_540, "_last_updated_sequence_number": 2_147_483_539}
    more = {name: (at, pa.array([7], pa.int64())) for name, at in lineage.items()}
    lake.data(table_with_ids(id=(1, pa.array([1], pa.int32())), **more))
    assert lake.rows() == [{"id": 1}]


def test_another_reserved_column_of_iceberg_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path, (schema(0, column(1, "id", "int")),), version=3)
    lake.data(table_with_ids(id=(1, pa.array([1], pa.int32())), _pos=(2_147_483_645, pa.array([7], pa.int64()))))
    with raises_reason("field_id_reserved"):
        lake.rows()


def test_a_struct_whose_fields_were_all_replaced_keeps_its_nulls(tmp_path: Path) -> None:
    def place(at: int, *inside: dict[str, Any]) -> dict[str, Any]:
        return schema(at, column(5, "place", {"type": "struct", "fields": list(inside)}))

    old, new = place(0, column(6, "town", "string")), place(1, column(7, "zip", "int"))
    lake = Lake(tmp_path, (old, new), current=1)
    lake.data(table_of(model_schema(lake, 0), [{"place": {"town": "a"}}, {"place": None}, {"place": {"town": None}}]))
    assert [row["place"] for row in lake.rows()] == [{"zip": None}, None, {"zip": None}]


def test_a_default_inside_a_struct_fills_the_structs_that_are_not_null(tmp_path: Path) -> None:
    def place(*inside: dict[str, Any]) -> dict[str, Any]:
        return column(5, "place", {"type": "struct", "fields": [column(6, "town", "string"), *inside]})

    old = schema(0, column(1, "id", "int"), place())
    new = schema(1, column(1, "id", "long"), place(column(7, "zip", "int", **{"initial-default": 4})))
    lake = Lake(tmp_path, (old, new), current=1, version=3)
    lake.data(table_of(model_schema(lake, 0), [{"id": 1, "place": {"town": "a"}}, {"id": 2, "place": None}]))
    assert lake.rows() == [{"id": 1, "place": {"town": "a", "zip": 4}}, {"id": 2, "place": None}]


def test_elements_of_lists_and_maps_are_widened_and_filled(tmp_path: Path) -> None:
    def columns(at: int, kind: str, *more: dict[str, Any]) -> dict[str, Any]:
        inner = {"type": "struct", "fields": [column(10, "x", kind), *more]}
        listed = {"type": "list", "element-id": 11, "element": inner, "element-required": False}
        mapped = {
            "type": "map",
            "key-id": 12,
            "key": "string",
            "value-id": 13,
            "value": kind,
            "value-required": False,
        }
        return schema(at, column(1, "l", listed), column(2, "m", mapped))

    lake = Lake(
        tmp_path,
        (columns(0, "int"), columns(1, "long", column(14, "y", "int", **{"initial-default": 8}))),
        current=1,
        version=3,
    )
    rows: list[dict[str, Any]] = [
        {"l": [{"x": 1}, None], "m": [("a", 2), ("b", None)]},
        {"l": None, "m": None},
        {"l": [], "m": []},
    ]
    lake.data(table_of(model_schema(lake, 0), rows))
    assert lake.rows() == [
        {"l": [{"x": 1, "y": 8}, None], "m": [("a", 2), ("b", None)]},
        {"l": None, "m": None},
        {"l": [], "m": []},
    ]


def test_the_schema_of_the_snapshot_is_used_and_not_the_newest_one(tmp_path: Path) -> None:
    lake = evolved_lake(tmp_path, column(1, "key", "long"))
    lake.snapshot_schema = 0
    lake.data(table_of(model_schema(lake, 0), [{"id": 1, "gone": "x"}]))
    assert lake.rows() == [{"id": 1, "gone": "x", "price": None}]


def test_a_column_that_no_schema_names_any_more_is_ignored(tmp_path: Path) -> None:
    lake = Lake(tmp_path, (schema(1, column(1, "id", "int")),))
    lake.data(table_of(model_schema(Lake(tmp_path, (OLD,)), 0), [{"id": 1, "gone": "x"}]))
    assert lake.rows() == [{"id": 1}]


def test_a_field_id_above_the_tables_last_one_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path, (schema(1, column(1, "id", "int")),), last_column_id=1)
    lake.data(table_of(model_schema(Lake(tmp_path, (OLD,)), 0), [{"id": 1, "gone": "x"}]))
    with raises_reason("field_id_unknown"):
        lake.rows()


def test_a_partition_column_that_the_file_lacks_gets_the_partitions_value(tmp_path: Path) -> None:
    both = schema(0, column(1, "id", "int"), column(2, "region", "string", required=True))
    lake = Lake(tmp_path, (both,), specs={0: identity_spec(2, "region")})
    lake.data(table_of(Schema(model_schema(lake, 0).fields[:1]), [{"id": 1}]), partition={1000: "eu"})
    assert lake.rows() == [{"id": 1, "region": "eu"}]


@pytest.mark.parametrize("written", ["us", None])
def test_a_file_whose_rows_are_not_of_its_partition_is_refused(tmp_path: Path, written: str | None) -> None:
    both = schema(0, column(1, "id", "int"), column(2, "region", "string"))
    lake = Lake(tmp_path, (both,), specs={0: identity_spec(2, "region")})
    lake.data(table_of(model_schema(lake, 0), [{"id": 1, "region": written}]), partition={1000: "eu"})
    with raises_reason("source_partition_lies"):
        lake.rows()


def test_a_partition_whose_column_changed_its_type_is_refused(tmp_path: Path) -> None:
    old, new = (schema(at, column(1, "d", kind)) for at, kind in enumerate(("date", "timestamp")))
    lake = Lake(tmp_path, (old, new), version=3, specs={0: identity_spec(1, "d")}, snapshot_schema=1)
    lake.data(table_of(model_schema(lake, 0), [{"d": 1}]), partition={1000: 1})
    with raises_reason("partition_type_changed"):
        lake.scan()


def test_a_date_that_became_a_timestamp_is_midnight(tmp_path: Path) -> None:
    old, new = (schema(at, column(1, "d", kind)) for at, kind in enumerate(("date", "timestamp")))
    lake = Lake(tmp_path, (old, new), current=1, version=3)
    lake.data(table_of(model_schema(lake, 0), [{"d": 1}, {"d": None}]))
    assert lake.rows() == [{"d": datetime(1970, 1, 2)}, {"d": None}]  # noqa: DTZ001  a timestamp without a zone


@pytest.mark.parametrize("value", [float("nan"), -0.0, None, 1.5])
def test_a_partition_value_of_a_float_column_matches_its_rows(tmp_path: Path, value: float | None) -> None:
    both = schema(0, column(1, "id", "int"), column(2, "f", "double"))
    lake = Lake(tmp_path, (both,), specs={0: identity_spec(2, "f")})
    lake.data(table_of(model_schema(lake, 0), [{"id": 1, "f": value}] * 2), partition={1000: value})
    assert len(lake.rows()) == 2


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"record_count": 3}, "record_count_lies"),
        ({"file_size_in_bytes": 100}, "file_size_lies"),
        ({"file_format": "ORC"}, "source_format_unsupported"),
        ({"key_metadata": b"k"}, "source_encrypted"),
    ],
)
def test_a_file_that_is_not_as_it_is_listed_is_refused(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    lake = Lake(tmp_path, (OLD,))
    lake.data(table_of(model_schema(lake, 0), [{"id": 1}]), changes=changes)
    with raises_reason(reason):
        lake.rows()


def test_the_error_of_a_missing_file_names_it(tmp_path: Path) -> None:
    lake = Lake(tmp_path, (OLD,))
    location = lake.data(table_of(model_schema(lake, 0), [{"id": 1}]))
    Path(location.removeprefix("file://")).unlink()
    with pytest.raises(VerificationError) as caught:
        lake.rows()
    assert caught.value.reason == "file_missing"
    assert location.removeprefix("file://") in str(caught.value)


def test_the_error_of_bytes_that_are_no_parquet_names_the_file(tmp_path: Path) -> None:
    lake = Lake(tmp_path, (OLD,))
    path = tmp_path / "x.parquet"
    path.write_bytes(b"nothing")
    lake.entry(f"file://{path}", 7, 1, FileContent.DATA, 1, 0, None)
    with pytest.raises(VerificationError) as caught:
        lake.rows()
    assert caught.value.reason == "parquet_unreadable"
    assert caught.value.details["file"] == f"file://{path}"


def test_a_file_without_field_ids_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path, (OLD,))
    lake.data(pa.table({"id": pa.array([1], pa.int32())}))
    with pytest.raises(VerificationError) as caught:
        lake.rows()
    assert caught.value.reason == "field_id_missing"
    assert caught.value.hint


def test_a_file_that_is_listed_twice_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path, (OLD,))
    location = lake.data(table_of(model_schema(lake, 0), [{"id": 1}]))
    lake.entry(location, 1, 1, FileContent.DATA, 2, 0, None)
    with raises_reason("file_listed_twice"):
        lake.scan()


def test_a_table_without_a_snapshot_has_no_files(tmp_path: Path) -> None:
    metadata = Lake(tmp_path, (OLD,)).metadata()
    found = plan_scan(metadata, None, Files())
    assert found.files == ()
    assert found.schema.names == ("id", "gone", "price")


def test_the_locations_of_a_scan_include_its_delete_files(tmp_path: Path) -> None:
    lake = Lake(tmp_path, (OLD,))
    first, second = (lake.data(table_of(model_schema(lake, 0), [{"id": at}])) for at in (1, 2))
    delete = lake.positions([(first, 0), (second, 5)])
    found = lake.scan()
    assert found.locations() == tuple(sorted((first, second, delete)))
    assert rows_of(found) == [{"id": 2, "gone": None, "price": None}]


def test_a_scan_of_some_columns_returns_these_only(tmp_path: Path) -> None:
    lake = Lake(tmp_path, (OLD,))
    lake.data(table_of(model_schema(lake, 0), [{"id": 1, "gone": "x"}]))
    assert rows_of(lake.scan().select(["gone"])) == [{"gone": "x"}]


def lake_with_broken_column(folder: Path) -> Lake:
    """A table with a file in which the pages of the column `gone` cannot be decoded."""
    lake = Lake(folder, (schema(0, column(1, "id", "int"), column(2, "gone", "string"), column(3, "f", "int")),))
    table = table_of(model_schema(lake, 0), [{"id": at, "gone": "spoil this"} for at in range(3)])
    location = lake.data(table, use_dictionary=False, compression="none", write_statistics=False)
    path = Path(location.removeprefix("file://"))
    data = bytearray(path.read_bytes())
    data[data.index(b"spoil this") - 1] = 0xFF  # a value longer than its page
    path.write_bytes(data)
    return lake


def test_a_scan_of_some_columns_decodes_these_only(tmp_path: Path) -> None:
    found = lake_with_broken_column(tmp_path).scan()
    assert rows_of(found.select(["id"])) == [{"id": 0}, {"id": 1}, {"id": 2}]
    with raises_reason("parquet_unreadable"):
        rows_of(found)


def test_a_file_without_any_selected_column_still_has_its_rows(tmp_path: Path) -> None:
    lake = evolved_lake(tmp_path, column(1, "id", "int"), column(9, "c", "int", **{"initial-default": 3}), version=3)
    lake.data(table_of(model_schema(lake, 0), [{"id": 1}, {"id": 2}]))
    assert rows_of(lake.scan().select(["c"])) == [{"c": 3}, {"c": 3}]


def test_a_footer_with_another_row_count_than_the_pages_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path, (schema(0, column(1, "id", "int")),))
    location = lake.data(table_of(model_schema(lake, 0), [{"id": at} for at in range(3)]), changes={"record_count": 3})
    data = Path(location.removeprefix("file://")).read_bytes()
    # The number of rows of the whole file: its footer's third field, after the schema.
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    at = data.index(b"\x16\x06\x19", start)
    with raises_reason("parquet_rows_lie"):
        list(read_batches(data[:at] + b"\x16\x08\x19" + data[at + 3 :], model_schema(lake, 0)))


def test_a_variant_that_is_not_selected_is_ignored(tmp_path: Path) -> None:
    lake = Lake(tmp_path, (schema(0, column(1, "id", "int"), column(2, "v", "variant")),), version=3)
    parts: Any = pa.StructArray.from_arrays([pa.array([b"m"]), pa.array([b"v"])], names=["metadata", "value"])
    lake.data(table_with_ids(id=(1, pa.array([1], pa.int32())), v=(2, parts)))
    assert rows_of(lake.scan().select(["id"])) == [{"id": 1}]


def test_an_encrypted_manifest_list_is_refused_by_name(tmp_path: Path) -> None:
    lake = Lake(tmp_path, (schema(0, column(1, "id")),), version=3)
    document: Any = document_of(lake.metadata())
    document["snapshots"][0]["key-id"] = "k1"
    document["encryption-keys"] = [{"key-id": "k1", "encrypted-key-metadata": "AAEC"}]
    metadata = TableMetadata.from_json(document)
    with raises_reason("manifest_list_encrypted"):
        plan_scan(metadata, metadata.current_snapshot, Files())
