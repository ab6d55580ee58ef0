"""Manifests that PyIceberg writes are read, and PyIceberg reads ours: formats 1 and 2, all types of partitions."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import pytest
from pyiceberg import manifest as theirs
from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record

from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, IdMap, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.manifest import ManifestHeader, check_listed, inherit, read_manifest
from pvdm.lake.format.manifest.manifest_list import ListHeader, read_manifest_list
from pvdm.lake.format.manifest.write import write_manifest, write_manifest_list
from pvdm.lake.format.partition_spec import PartitionSpec as OurSpec

# Source type, transform, and partition values as both libraries have them.
COLUMNS: list[tuple[str, str, list[Any]]] = [
    ("boolean", "identity", [True, False, None]),
    ("int", "identity", [-5, 7, None]),
    ("long", "truncate[10]", [-10, 2**40, None]),
    ("float", "identity", [1.5, -0.25, None]),
    ("double", "identity", [2.0**100, -0.5, None]),
    ("date", "identity", [20_000, -1, None]),
    ("time", "identity", [1, 86_399_999_999, None]),
    ("timestamp", "identity", [-1, 10**15, None]),
    ("timestamptz", "identity", [-1, 10**15, None]),
    ("string", "identity", ["é", "𝄞", None]),
    ("uuid", "identity", [UUID(int=5), UUID(int=2**128 - 1), None]),
    ("fixed[3]", "identity", [b"abc", b"\xff\x00\x01", None]),
    ("binary", "truncate[2]", [b"", b"\xff\xfe", None]),
    ("decimal(9, 2)", "identity", [Decimal("12.50"), Decimal("-0.01"), None]),
    ("decimal(38, 10)", "identity", [Decimal("1.0000000001"), Decimal("-9.0000000000"), None]),
    ("string", "bucket[16]", [3, 15, None]),
    ("timestamp", "year", [-1, 54, None]),
    ("timestamptz", "month", [-1, 600, None]),
    ("date", "day", [-1, 20_000, None]),
    ("timestamp", "hour", [-1, 480_000, None]),
]
Version = Literal[1, 2]


class Example:
    """One table column, partitioned one way, for both libraries."""

    def __init__(self, kind: str, transform: str, version: Version, folder: Path) -> None:
        self.version = version
        self.folder = folder
        self.io = PyArrowFileIO()
        self.schema_text = json.dumps(
            {
                "type": "struct",
                "schema-id": 0,
                "fields": [{"id": 1, "name": "c", "required": False, "type": kind}],
            }
        )
        self.schema = Schema.model_validate_json(self.schema_text)
        field = PartitionField(source_id=1, field_id=1000, transform=parse_transform(transform), name="p")
        self.spec = PartitionSpec(field, spec_id=5)
        spec_text = json.dumps([{"name": "p", "transform": transform, "source-id": 1, "field-id": 1000}])
        self.header = ManifestHeader(
            format_version=version,
            content=ManifestContent.DATA,
            schema_text=self.schema_text,
            spec=OurSpec.from_text(5, spec_text),
            schema_id=0,
        )

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def their_file(self, value: Any, at: int) -> theirs.DataFile:
        return theirs.DataFile.from_args(
            content=theirs.DataFileContent.DATA,
            file_path=f"s3://lake/{at}.parquet",
            file_format=theirs.FileFormat.PARQUET,
            partition=Record(value),
            record_count=10 + at,
            file_size_in_bytes=1_000 + at,
            column_sizes={1: 80},
            value_counts={1: 10},
            null_value_counts={1: 0},
            nan_value_counts={},
            lower_bounds={1: b"\x00"},
            upper_bounds={1: b"\xff"},
            key_metadata=None,
            split_offsets=[4, 100],
            equality_ids=None,
            sort_order_id=None,
            spec_id=5,
        )

    def our_file(self, value: Any, at: int) -> DataFile:
        return DataFile(
            file_path=f"s3://lake/{at}.parquet",
            file_format="PARQUET",
            record_count=10 + at,
            file_size_in_bytes=1_000 + at,
            partition=IdMap([(1000, value)]),
            column_sizes=IdMap([(1, 80)]),
            value_counts=IdMap([(1, 10)]),
            null_value_counts=IdMap([(1, 0)]),
            nan_value_counts=IdMap(),
            lower_bounds=IdMap([(1, b"\x00")]),
            upper_bounds=IdMap([(1, b"\xff")]),
            split_offsets=(4, 100),
            block_size_in_bytes=67_108_864 if self.version == 1 else None,
        )

    def they_write(self, values: list[Any]) -> tuple[str, theirs.ManifestFile]:
        path = self.path("theirs-m0.avro")
        codec: AvroCompressionCodec = "deflate"
        writer = theirs.write_manifest(self.version, self.spec, self.schema, self.io.new_output(path), 55, codec)
        with writer as open_writer:
            for at, value in enumerate(values):
                open_writer.add(
                    theirs.ManifestEntry.from_args(
                        status=theirs.ManifestEntryStatus.ADDED, data_file=self.their_file(value, at)
                    )
                )
        list_entry = writer.to_manifest_file()
        listing = self.path("theirs-list.avro")
        number = 4 if self.version == 2 else 0
        with theirs.write_manifest_list(
            self.version, self.io.new_output(listing), 55, None, number, codec
        ) as list_writer:
            list_writer.add_manifests([list_entry])
        return listing, list_entry


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest) -> Version:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize(("kind", "transform", "values"), COLUMNS)
def test_a_manifest_of_pyiceberg_is_read(
    kind: str, transform: str, values: list[Any], version: Version, tmp_path: Path
) -> None:
    example = Example(kind, transform, version, tmp_path)
    listing, _ = example.they_write(values)
    found = read_manifest_list(Path(listing).read_bytes())
    data = Path(found.manifests[0].manifest_path).read_bytes()
    manifest = read_manifest(data)
    check_listed(manifest, found.manifests[0], size=len(data))
    entries = inherit(manifest, found.manifests[0])
    number = 4 if version == 2 else 0
    assert entries == tuple(
        ManifestEntry(
            status=EntryStatus.ADDED,
            data_file=example.our_file(value, at),
            snapshot_id=55,
            sequence_number=number,
            file_sequence_number=number,
        )
        for at, value in enumerate(values)
    )
    assert (found.header.snapshot_id, found.header.parent_snapshot_id) == (55, None)


@pytest.mark.parametrize(("kind", "transform", "values"), COLUMNS)
def test_pyiceberg_reads_our_manifests(
    kind: str, transform: str, values: list[Any], version: Version, tmp_path: Path
) -> None:
    example = Example(kind, transform, version, tmp_path)
    entries = [
        ManifestEntry(status=EntryStatus.ADDED, data_file=example.our_file(value, at), snapshot_id=55)
        for at, value in enumerate(values)
    ]
    written = write_manifest(example.header, entries)
    Path(example.path("m0.avro")).write_bytes(written.data)
    header = ListHeader(format_version=version, snapshot_id=55, sequence_number=4 if version == 2 else None)
    Path(example.path("list.avro")).write_bytes(
        write_manifest_list(header, [written.list_entry(example.path("m0.avro"), 55)]).data
    )
    (listed,) = theirs.read_manifest_list(example.io.new_input(example.path("list.avro")))
    found = listed.fetch_manifest_entry(example.io, discard_deleted=False)
    assert [each.data_file.partition[0] for each in found] == values
    for at, each in enumerate(found):
        expected = example.their_file(values[at], at)
        assert (each.status, each.snapshot_id) == (theirs.ManifestEntryStatus.ADDED, 55)
        assert each.sequence_number == (4 if version == 2 else 0)
        for name in FILE_FACTS:
            assert getattr(each.data_file, name) == getattr(expected, name), name


def test_a_manifest_of_format_3_is_read_by_pyiceberg_too(tmp_path: Path) -> None:
    example = Example("date", "identity", 2, tmp_path)
    files = [example.our_file(20_000, 0), replace(example.our_file(None, 1), first_row_id=70)]
    entries = [
        ManifestEntry(status=EntryStatus.ADDED, data_file=files[0], snapshot_id=55),
        ManifestEntry(
            status=EntryStatus.EXISTING, data_file=files[1], snapshot_id=44, sequence_number=2, file_sequence_number=2
        ),
    ]
    written = write_manifest(replace(example.header, format_version=3), entries)
    Path(example.path("m0.avro")).write_bytes(written.data)
    header = ListHeader(format_version=3, snapshot_id=55, sequence_number=4, first_row_id=0)
    listing = Path(example.path("list.avro"))
    listing.write_bytes(write_manifest_list(header, [written.list_entry(example.path("m0.avro"), 55)]).data)
    (listed,) = theirs.read_manifest_list(example.io.new_input(str(listing)))
    found = listed.fetch_manifest_entry(example.io)
    assert [(each.sequence_number, each.data_file.partition[0]) for each in found] == [(4, 20_000), (2, None)]


FILE_FACTS = (
    "file_path",
    "file_format",
    "record_count",
    "file_size_in_bytes",
    "column_sizes",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
    "split_offsets",
)
LISTED_FACTS = (
    "manifest_length",
    "partition_spec_id",
    "added_snapshot_id",
    "added_files_count",
    "existing_files_count",
    "deleted_files_count",
    "added_rows_count",
    "existing_rows_count",
    "deleted_rows_count",
)


@pytest.mark.parametrize(("kind", "transform", "values"), COLUMNS)
def test_both_libraries_list_the_same_facts_of_a_manifest(
    kind: str, transform: str, values: list[Any], tmp_path: Path
) -> None:
    example = Example(kind, transform, 2, tmp_path)
    _, list_entry = example.they_write(values)
    entries = [
        ManifestEntry(status=EntryStatus.ADDED, data_file=example.our_file(value, at), snapshot_id=55)
        for at, value in enumerate(values)
    ]
    ours = write_manifest(example.header, entries).list_entry("x", 55)
    names = LISTED_FACTS[1:]
    assert [getattr(ours, name) for name in names] == [getattr(list_entry, name) for name in names]
    (summary,), (expected,) = ours.partitions or (), list_entry.partitions or []
    # Readers order uuids in different ways, so our summary has no bounds for them.
    ends = (None, None) if kind == "uuid" else (expected.lower_bound, expected.upper_bound)
    assert (summary.contains_null, summary.lower_bound, summary.upper_bound) == (expected.contains_null, *ends)
