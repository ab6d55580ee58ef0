"""Writing manifests: the same schemas as Java writes, correct list entries, and entries that are refused."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from pvdm.lake.format.manifest.entry import EntryStatus, FileContent, IdMap, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.fields import avro_text, entry_fields, iceberg_text, list_fields
from pvdm.lake.format.manifest.manifest import ManifestHeader, check_listed, inherit, read_manifest
from pvdm.lake.format.manifest.manifest_list import FieldSummary
from pvdm.lake.format.manifest.write import as_deleted, as_existing, write_manifest
from pvdm.lake.format.partition_spec import PartitionSpec
from tests.support.for_each import for_each
from tests.support.lake.manifests import SYNC, data_file, delete_file, entry, existing_entry, header, listed, refused

UNPARTITIONED = PartitionSpec(0)


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("version", "avro", "iceberg"),
    [(1, "33cca0b2d9b584d8", "feba0abc913aa291"), (2, "d48a53a00ea68386", "206c34ae8d0b0cec")],
)
def test_the_schemas_of_a_manifest_equal_those_of_java(version: int, avro: str, iceberg: str) -> None:
    """The hashes are those of `avro.schema` and `iceberg.schema` in unpartitioned manifests that Spark wrote."""
    fields = entry_fields(version, UNPARTITIONED, ())
    assert (sha(avro_text(fields, "manifest_entry")), sha(iceberg_text(fields))) == (avro, iceberg)


@pytest.mark.parametrize(
    ("version", "avro", "iceberg"),
    [
        (1, "a6a19f5f37ca032a", "0555e24f7904dc40"),
        (2, "7263c20c3d8eb7b4", "876a7b09631c967e"),
        (3, "c777c2610375b244", "79a540ad1b523016"),
    ],
)
def test_the_schemas_of_a_manifest_list_equal_those_of_java(version: int, avro: str, iceberg: str) -> None:
    """The hashes are those of `avro.schema` and `iceberg.schema` in manifest lists that Java wrote."""
    fields = list_fields(version)
    assert (sha(avro_text(fields, "manifest_file")), sha(iceberg_text(fields))) == (avro, iceberg)


def test_format_3_adds_its_fields_at_the_end_of_format_2() -> None:
    def data_file_ids(version: int) -> list[int]:
        schema = json.loads(avro_text(entry_fields(version, UNPARTITIONED, ()), "m"))
        return [field["field-id"] for field in schema["fields"][4]["type"]["fields"]]

    assert data_file_ids(3) == [*data_file_ids(2)[:-1], 142, 143, 144, 145]


def entries_of(version: int) -> list[ManifestEntry]:
    if version == 1:
        return [entry(), entry(EntryStatus.DELETED), entry(EntryStatus.EXISTING)]
    row_id = {"first_row_id": 70} if version == 3 else {}
    return [
        entry(),
        entry(snapshot_id=None),
        entry(sequence_number=1),
        existing_entry(data_file("s3://lake/b.parquet", **row_id)),
        existing_entry(data_file("s3://lake/c.parquet", **row_id), status=EntryStatus.DELETED),
    ]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_entries_are_read_as_they_were_written(version: int) -> None:
    entries = entries_of(version)
    if version == 1:
        entries = [replace(each, data_file=replace(each.data_file, block_size_in_bytes=67_108_864)) for each in entries]
    found = read_manifest(write_manifest(header(version), entries).data)
    assert found.entries == tuple(entries)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_header_is_read_as_it_was_written(version: int) -> None:
    found = read_manifest(write_manifest(header(version), [entry()]).data).header
    assert found == header(version)


@pytest.mark.parametrize("version", [2, 3])
def test_delete_files_are_read_as_they_were_written(version: int) -> None:
    files = [
        delete_file(referenced_data_file="s3://lake/a.parquet"),
        delete_file(content=FileContent.EQUALITY_DELETES, equality_ids=(1, 2)),
    ]
    if version == 3:
        blob = {"content_offset": 4, "content_size_in_bytes": 40, "referenced_data_file": "s3://lake/a.parquet"}
        files.append(delete_file(file_format="PUFFIN", **blob))
    entries = tuple(entry(file=file) for file in files)
    written = write_manifest(header(version, content=ManifestContent.DELETES), entries)
    assert read_manifest(written.data).entries == entries


def test_equal_input_gives_equal_bytes() -> None:
    first, second = (write_manifest(header(), [entry(), existing_entry()]).data for _ in range(2))
    assert first == second


def test_a_given_marker_is_written() -> None:
    assert read_manifest(write_manifest(header(), [entry()], sync=SYNC).data).file.sync == SYNC


def test_the_list_entry_of_a_written_manifest_is_correct() -> None:
    file = data_file(record_count=5)
    written = write_manifest(
        header(), [entry(), existing_entry(file), existing_entry(file, status=EntryStatus.DELETED, sequence_number=1)]
    )
    list_entry = replace(written.list_entry("s3://lake/m.avro", 55), sequence_number=9)
    check_listed(read_manifest(written.data), list_entry, size=len(written.data))
    files_and_rows = (list_entry.added_files_count, list_entry.added_rows_count)
    other_rows = (list_entry.existing_rows_count, list_entry.deleted_rows_count)
    assert (*files_and_rows, *other_rows, list_entry.min_sequence_number) == (1, 10, 5, 5, 2)


EVERY: dict[str, list[Any]] = {
    "boolean": [True, False],
    "int": [3, -1],
    "long": [2**40, -1],
    "float": [1.5, -0.0],
    "double": [0.0, -0.0],
    "date": [20_000, -1],
    "time": [5, 1],
    "timestamp": [9, -9],
    "timestamptz": [9, -9],
    "timestamp_ns": [9, -9],
    "timestamptz_ns": [9, -9],
    "string": ["é", "a" * 40],
    "uuid": [UUID(int=2**127), UUID(int=1)],
    "fixed[3]": [b"\x80\x00\x00", b"\x7f\xff\xff"],
    "binary": [b"\xff", b""],
    "decimal(38, 10)": [Decimal("12.5000000000"), Decimal("-0.0000000001")],
    "decimal(9, 2)": [Decimal("12.50"), Decimal("-0.01")],
}


def one_column(kind: str, transform: str) -> ManifestHeader:
    fields = [{"id": 1, "name": "c", "required": False, "type": kind}]
    spec = f'[{{"name":"p","transform":"{transform}","source-id":1,"field-id":1000}}]'
    return header(
        3,
        schema_text=json.dumps({"type": "struct", "schema-id": 0, "fields": fields}),
        schema_id=0,
        spec=PartitionSpec.from_text(0, spec),
    )


@for_each("kind", EVERY)
def test_partition_values_of_every_type_are_read_back(kind: str) -> None:
    values = [*EVERY[kind], None]
    entries = [entry(file=data_file(partition=IdMap([(1000, value)]))) for value in values]
    found = read_manifest(write_manifest(one_column(kind, "identity"), entries).data)
    assert [each.data_file.partition[1000] for each in found.entries] == values


@pytest.mark.parametrize("transform", ["bucket[8]", "year", "month", "day", "hour"])
@pytest.mark.parametrize("kind", ["timestamp", "timestamptz_ns"])
def test_partition_values_of_bucket_and_time_transforms_are_read_back(kind: str, transform: str) -> None:
    file = data_file(partition=IdMap([(1000, 7)]))
    found = read_manifest(write_manifest(one_column(kind, transform), [entry(file=file)]).data)
    assert found.entries[0].data_file.partition[1000] == 7


@pytest.mark.parametrize("kind", ["string", "decimal(9, 2)", "geometry"])
def test_a_void_transform_has_null_as_its_value(kind: str) -> None:
    if kind == "geometry":
        with refused("partition_type_mismatch"):
            write_manifest(one_column(kind, "void"), [])
        return
    file = data_file(partition=IdMap([(1000, None)]))
    found = read_manifest(write_manifest(one_column(kind, "void"), [entry(file=file)]).data)
    assert found.entries[0].data_file.partition[1000] is None


def test_a_summary_has_the_exact_range_without_null_and_nan() -> None:
    values = [None, math.nan, 0.0, -0.0]
    entries = [entry(file=data_file(partition=IdMap([(1000, value)]))) for value in values]
    low, high = bytes.fromhex("0000000000000080"), bytes(8)
    expected = FieldSummary(contains_null=True, contains_nan=True, lower_bound=low, upper_bound=high)
    assert write_manifest(one_column("double", "identity"), entries).partitions == (expected,)


def test_a_summary_of_nulls_only_has_no_range() -> None:
    file = data_file(partition=IdMap([(1000, None)]))
    expected = FieldSummary(contains_null=True, contains_nan=False)
    assert write_manifest(one_column("string", "identity"), [entry(file=file)]).partitions == (expected,)


def test_a_summary_of_text_is_not_cut() -> None:
    file = data_file(partition=IdMap([(1000, "a" * 40)]))
    (summary,) = write_manifest(one_column("string", "identity"), [entry(file=file)]).partitions
    assert (summary.lower_bound, summary.upper_bound) == (b"a" * 40, b"a" * 40)


def test_an_entry_of_format_1_is_carried_into_a_manifest_of_format_3() -> None:
    old = read_manifest(write_manifest(header(1), [entry()]).data)
    (inherited,) = inherit(old, listed(sequence_number=0, min_sequence_number=0))
    (found,) = read_manifest(write_manifest(header(3), [as_existing(inherited, 3)]).data).entries
    assert found == existing_entry(data_file(), sequence_number=0, file_sequence_number=0)


def test_a_carried_entry_keeps_its_numbers_and_row_ids() -> None:
    first = read_manifest(write_manifest(header(3), [entry(snapshot_id=None)]).data)
    (inherited,) = inherit(first, listed(first_row_id=1_000))
    (found,) = read_manifest(write_manifest(header(3), [as_existing(inherited, 3)]).data).entries
    expected = existing_entry(data_file(first_row_id=1_000), sequence_number=4, file_sequence_number=4)
    assert found == expected


def test_a_removed_entry_names_the_snapshot_that_removes_it() -> None:
    (inherited,) = inherit(read_manifest(write_manifest(header(), [entry()]).data), listed())
    (found,) = read_manifest(write_manifest(header(), [as_deleted(inherited, 66, 2)]).data).entries
    assert (found.status, found.snapshot_id, found.sequence_number) == (EntryStatus.DELETED, 66, 4)


def test_a_row_id_of_a_delete_file_is_not_written() -> None:
    false_entry = delete_file(first_row_id=3)
    written = write_manifest(header(3, content=ManifestContent.DELETES), [entry(file=false_entry)])
    assert read_manifest(written.data).entries[0].data_file.first_row_id is None


@for_each(
    ("reason", "version", "false_entry"),
    [
        ("manifest_write_content_conflict", 2, entry(file=delete_file())),
        ("manifest_write_format_1", 1, entry(snapshot_id=None)),
        ("manifest_write_sequence_missing", 2, entry(EntryStatus.EXISTING)),
        ("manifest_write_sequence_missing", 3, existing_entry(status=EntryStatus.DELETED, file_sequence_number=None)),
        ("manifest_write_row_id_on_added", 3, entry(file=data_file(first_row_id=1))),
        ("manifest_write_partition_mismatch", 2, entry(file=data_file(partition=IdMap()))),
        ("manifest_write_field_too_new", 1, entry(file=data_file(equality_ids=(1,)))),
        ("manifest_write_field_too_new", 2, existing_entry(data_file(first_row_id=1))),
        ("manifest_write_field_deprecated", 2, entry(file=data_file(block_size_in_bytes=1))),
        ("manifest_write_field_deprecated", 3, entry(file=data_file(distinct_counts=IdMap()))),
        ("single_value_invalid", 2, entry(file=data_file(partition=IdMap([(1000, "text")])))),
        ("avro_value_invalid", 2, entry(file=data_file(record_count=2**63))),
    ],
)
def test_writing_an_invalid_entry_is_refused(reason: str, version: int, false_entry: ManifestEntry) -> None:
    with refused(reason):
        write_manifest(header(version), [false_entry])


def test_writing_a_value_for_a_void_transform_is_refused() -> None:
    with refused("manifest_write_void_not_null"):
        write_manifest(one_column("string", "void"), [entry(file=data_file(partition=IdMap([(1000, "x")])))])


def test_writing_an_unknown_transform_is_refused() -> None:
    with refused("manifest_transform_unknown"):
        write_manifest(one_column("string", "zorder[2]"), [])


def test_writing_a_delete_manifest_in_format_1_is_refused() -> None:
    with refused("manifest_write_format_1"):
        write_manifest(header(1, content=ManifestContent.DELETES), [entry(file=delete_file())])


def test_a_partition_field_may_have_any_name() -> None:
    """Names with U+0000 are safe here: Arrow, which ends a name there, does not read manifests."""
    head = header()
    (field,) = head.spec.fields
    spec = replace(head.spec, fields=(replace(field, name="day\0of order"),))
    found = read_manifest(write_manifest(replace(head, spec=spec), [existing_entry()]).data)
    assert [each.name for each in found.header.spec.fields] == ["day\0of order"]
