"""Pinned sources: a snapshot of a table, or files that a manifest lists with their hashes."""

from __future__ import annotations

import hashlib
import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pvdm.errors import InputError, NotAllowedError, VerificationError
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.model.schema import Field, Inner, Kind, ListType, MapType, PrimitiveType, Schema, StructType
from pvdm.model.statements.table import TableRef
from pvdm.verify.fetch import Files
from pvdm.verify.source import PinnedSource, pin_files, pin_table, require_descends
from tests.support.for_each import for_each
from tests.support.lake.metadata import UUID, document
from tests.support.lake.scans import NAME, Lake, fetch, pinned, table_of, to_doc

COLUMNS = Schema((Field("id", PrimitiveType(Kind.LONG), field_id=1), Field("n", PrimitiveType(Kind.INT), field_id=2)))
WHERE = "file:///lake/manifest.json"


def manifest_of(folder: Path, *rows_of: list[dict[str, Any]]) -> dict[str, Any]:
    """Write one file for each list of rows; return a manifest that lists them."""
    lake = Lake(folder, (to_doc(COLUMNS),))
    files = []
    for each in rows_of:
        location, size = lake.write(table_of(COLUMNS, each))
        files.append({"path": location, "size": size, "sha256": hashlib.sha256(fetch(location)).hexdigest()})
    return {"kind": "pvdm/source-files/v1", "schema": to_doc(COLUMNS), "files": files}


def pin_manifest(manifest: dict[str, Any]) -> PinnedSource:
    return pin_files(WHERE, json.dumps(manifest).encode())


def rows_of(source: PinnedSource) -> list[Any]:
    return [row for file in source.scan.files for batch in source.batches(file, fetch) for row in batch.to_pylist()]


@pytest.mark.usefixtures("kernel")
def test_files_of_a_manifest_are_read(tmp_path: Path) -> None:
    expected: list[list[dict[str, Any]]] = [[{"id": 1, "n": 2}], [{"id": 3, "n": None}]]
    assert rows_of(pin_manifest(manifest_of(tmp_path, *expected))) == [*expected[0], *expected[1]]


def pin_tables(folder: Path, columns: Schema, *tables: pa.Table) -> PinnedSource:
    """Write these tables as files, mostly without field ids; return a source pinned to them."""
    lake = Lake(folder, (to_doc(columns),))
    files = []
    for table in tables:
        location, size = lake.write(table)
        files.append({"path": location, "size": size, "sha256": hashlib.sha256(fetch(location)).hexdigest()})
    return pin_manifest({"kind": "pvdm/source-files/v1", "schema": to_doc(columns), "files": files})


def table_of_integers(**columns: list[int]) -> pa.Table:
    kinds = {"id": pa.int64()}
    return pa.table({name: pa.array(values, kinds.get(name, pa.int32())) for name, values in columns.items()})


@pytest.mark.usefixtures("kernel")
def test_files_without_field_ids_are_read_by_name(tmp_path: Path) -> None:
    without_ids = (table_of_integers(n=[2], id=[1]), table_of_integers(id=[3]))
    source = pin_tables(tmp_path, COLUMNS, *without_ids, table_of(COLUMNS, [{"id": 5, "n": 6}]))
    assert rows_of(source) == [{"id": 1, "n": 2}, {"id": 3, "n": None}, {"id": 5, "n": 6}]
    assert rows_of(source.select(["n"])) == [{"n": 2}, {"n": None}, {"n": 6}]


@pytest.mark.usefixtures("kernel")
def test_fields_inside_structs_lists_and_maps_are_read_by_name(tmp_path: Path) -> None:
    string, whole = PrimitiveType(Kind.STRING), PrimitiveType(Kind.INT)
    place = StructType((Field("town", string, field_id=4), Field("zip", whole, field_id=5)))
    columns = Schema(
        (
            Field("place", place, field_id=1),
            Field("tags", ListType(Inner(StructType((Field("x", whole, field_id=6),)), field_id=7)), field_id=2),
            Field("marks", MapType(Inner(string, required=True, field_id=8), Inner(whole, field_id=9)), field_id=3),
        )
    )
    row = {"tags": [{"x": 1}, None], "place": {"zip": 7, "town": "a"}, "marks": [("k", 1)]}
    kinds: dict[str, Any] = {
        "tags": pa.list_(pa.struct([("x", pa.int32())])),
        "place": pa.struct([("zip", pa.int32()), ("town", pa.string())]),
        "marks": pa.map_(pa.string(), pa.int32()),
    }
    table = pa.table({name: pa.array([row[name]], kind) for name, kind in kinds.items()})
    source = pin_tables(tmp_path, columns, table)
    assert rows_of(source) == [row]
    assert rows_of(source.select(["place"])) == [{"place": row["place"]}]


def table_with_one_id() -> pa.Table:
    """A table whose first column has a field id and whose second has none."""
    fields: list[Any] = [pa.field("id", pa.int64(), metadata={NAME: "1"}), pa.field("n", pa.int32())]
    return pa.Table.from_arrays([pa.array([1]), pa.array([2], pa.int32())], schema=pa.schema(fields))


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (table_of_integers(id=[1], N=[2]), "field_name_unknown"),
        (table_of_integers(id=[1], more=[2]), "field_name_unknown"),
        (table_with_one_id(), "field_id_missing"),
    ],
    ids=["case", "unknown", "half"],
)
def test_unknown_names_or_ids_for_some_columns_only_are_refused(tmp_path: Path, table: pa.Table, reason: str) -> None:
    with pytest.raises(VerificationError) as caught:
        rows_of(pin_tables(tmp_path, COLUMNS, table))
    assert caught.value.reason == reason
    assert caught.value.hint


def test_a_source_of_files_is_identified_by_its_manifest(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, [{"id": 1}])
    data = json.dumps(manifest).encode()
    found = pin_files(WHERE, data)
    assert found.ref == TableRef("files", str(uuid.uuid5(uuid.NAMESPACE_URL, WHERE)), WHERE)
    assert found.snapshot_id == int(hashlib.sha256(data).hexdigest()[:16], 16) >> 1
    assert found.snapshot_id < 2**63
    assert pin_files(WHERE, data + b" ").snapshot_id != found.snapshot_id


@pytest.mark.usefixtures("kernel")
def test_a_file_with_other_bytes_than_listed_is_refused(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, [{"id": 1}], [{"id": 2}])
    first, second = manifest["files"]
    assert first["size"] == second["size"]
    first["sha256"], second["sha256"] = second["sha256"], first["sha256"]
    with pytest.raises(VerificationError) as caught:
        rows_of(pin_manifest(manifest))
    assert caught.value.reason == "source_file_changed"


@pytest.mark.usefixtures("kernel")
def test_a_file_of_another_size_than_listed_is_refused(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, [{"id": 1}])
    manifest["files"][0]["size"] += 1
    with pytest.raises(VerificationError) as caught:
        rows_of(pin_manifest(manifest))
    assert caught.value.reason == "file_size_lies"


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "pvdm/source-files/v2"},
        {"more": 1},
        {"files": [{"path": "file:///a", "size": 1}]},
        {"files": [{"path": "file:///a", "size": -1, "sha256": "0" * 64}]},
        {"files": [{"path": "file:///a", "size": 1, "sha256": "0" * 64, "rows": 3}]},
        {"files": [{"path": path, "size": 1, "sha256": "0" * 64} for path in ("file:///a", "file:/a")]},
    ],
)
def test_an_invalid_manifest_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        pin_manifest({**manifest_of(tmp_path), **change})
    assert caught.value.reason == "source_manifest_invalid"


@pytest.mark.parametrize("path", ["relative.parquet", "file:///a/../b", "file:///a%2e"])
def test_an_ambiguous_location_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(InputError) as caught:
        pin_manifest({**manifest_of(tmp_path), "files": [{"path": path, "size": 1, "sha256": "0" * 64}]})
    assert caught.value.reason == "location_invalid"


@pytest.mark.usefixtures("kernel")
def test_a_snapshot_of_a_table_is_pinned_by_its_id(tmp_path: Path) -> None:
    lake = Lake(tmp_path, (to_doc(COLUMNS),))
    lake.data(table_of(COLUMNS, [{"id": 5, "n": 6}]))
    assert rows_of(pinned(lake)) == [{"id": 5, "n": 6}]
    with pytest.raises(InputError) as caught:
        pin_table(TableRef("lake", UUID, "raw.orders"), lake.metadata(), 1, Files())
    assert caught.value.reason == "source_snapshot_unknown"


@for_each(("pinned_id", "last"), [(12, None), (12, 12), (12, 11), (13, 11), (12, 5)])
def test_a_snapshot_that_descends_from_the_last_published_one_is_accepted(pinned_id: int, last: int | None) -> None:
    doc = document()
    doc["snapshots"][0]["parent-snapshot-id"] = 5  # an expired snapshot that is still named as a parent
    require_descends(TableMetadata.from_json(doc), pinned_id, last)


@pytest.mark.parametrize(("pinned_id", "last"), [(11, 12), (12, 13), (12, 99)])
def test_a_snapshot_that_does_not_descend_from_the_last_published_one_is_refused(pinned_id: int, last: int) -> None:
    with pytest.raises(NotAllowedError) as caught:
        require_descends(TableMetadata.from_json(document()), pinned_id, last)
    assert caught.value.reason == "source_not_descended"
