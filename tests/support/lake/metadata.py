"""Metadata documents of tables and their parts, for tests of the table format."""

from __future__ import annotations

import copy
from typing import Any

from pvdm.lake.format.json_document import Json
from pvdm.lake.format.table.metadata import TableMetadata

UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
LOCATION = "s3://bucket/test/location"
NOW = 1_700_000_000_000
FILE = f"{LOCATION}/metadata/00001.metadata.json"

Doc = dict[str, Any]


def column(field_id: int, name: str, kind: object = "long", /, **more: object) -> Doc:
    return {"id": field_id, "name": name, "required": False, "type": kind, **more}


def schema(schema_id: int, /, *fields: Doc, **more: object) -> Doc:
    return {"type": "struct", "schema-id": schema_id, "fields": list(fields), **more}


def snapshot(snapshot_id: int, sequence_number: int, parent: int | None = None, /, **more: object) -> Doc:
    made: Doc = {
        "snapshot-id": snapshot_id,
        "sequence-number": sequence_number,
        "timestamp-ms": NOW + sequence_number,
        "summary": {"operation": "append", "added-records": "3"},
        "manifest-list": f"{LOCATION}/metadata/snap-{snapshot_id}.avro",
        "schema-id": 1,
        **more,
    }
    if parent is not None:
        made["parent-snapshot-id"] = parent
    return made


def document(version: int = 2) -> Doc:
    """A table with two snapshots on `main`, one on a branch, and one tag. Every optional list is filled."""
    narrow = schema(0, column(1, "id", required=True))
    wide = schema(
        1,
        column(1, "id", required=True),
        column(2, "day", "date", doc="the day"),
        column(3, "place", {"type": "struct", "fields": [column(4, "town", "string")]}),
        **{"identifier-field-ids": [1]},
    )
    spec = [{"name": "day", "transform": "identity", "source-id": 2, "field-id": 1000}]
    table: Doc = {
        "format-version": version,
        "table-uuid": UUID,
        "location": LOCATION,
        "last-sequence-number": 3,
        "last-updated-ms": NOW + 10,
        "last-column-id": 4,
        "current-schema-id": 1,
        "schemas": [narrow, wide],
        "default-spec-id": 1,
        "partition-specs": [{"spec-id": 0, "fields": []}, {"spec-id": 1, "fields": spec}],
        "last-partition-id": 1000,
        "default-sort-order-id": 3,
        "sort-orders": [
            {"order-id": 0, "fields": []},
            {
                "order-id": 3,
                "fields": [
                    {"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-first"},
                ],
            },
        ],
        "properties": {"owner": "orders"},
        "current-snapshot-id": 12,
        "snapshots": [
            snapshot(11, 1, **{"schema-id": 0}),
            snapshot(12, 2, 11),
            snapshot(13, 3, 12),
        ],
        "refs": {
            "main": {"snapshot-id": 12, "type": "branch"},
            "stage": {"snapshot-id": 13, "type": "branch", "min-snapshots-to-keep": 2, "max-snapshot-age-ms": 5},
            "v1": {"snapshot-id": 11, "type": "tag", "max-ref-age-ms": 7},
        },
        "snapshot-log": [
            {"snapshot-id": 11, "timestamp-ms": NOW + 1},
            {"snapshot-id": 12, "timestamp-ms": NOW + 2},
        ],
        "metadata-log": [{"metadata-file": f"{LOCATION}/metadata/00000.metadata.json", "timestamp-ms": NOW}],
        "statistics": [statistics(11)],
        "partition-statistics": [partition_statistics(11)],
    }
    if version == 1:
        del table["last-sequence-number"]
        for each in table["snapshots"]:
            del each["sequence-number"]
        table["schema"], table["partition-spec"] = wide, spec
    if version == 3:
        table["next-row-id"] = 9
        for place, each in enumerate(table["snapshots"]):
            each |= {"first-row-id": 3 * place, "added-rows": 3}
        table["encryption-keys"] = [{"key-id": "k1", "encrypted-key-metadata": "AAEC"}]
    return table


def statistics(snapshot_id: int) -> Doc:
    # PyIceberg reads no table whose statistics have a blob of another type.
    blob = {"type": "apache-datasketches-theta-v1", "snapshot-id": snapshot_id, "sequence-number": 1, "fields": [1]}
    return {
        "snapshot-id": snapshot_id,
        "statistics-path": f"{LOCATION}/stats-{snapshot_id}.puffin",
        "file-size-in-bytes": 413,
        "file-footer-size-in-bytes": 42,
        "blob-metadata": [blob],
    }


def partition_statistics(snapshot_id: int) -> Doc:
    return {
        "snapshot-id": snapshot_id,
        "statistics-path": f"{LOCATION}/partitions-{snapshot_id}.parquet",
        "file-size-in-bytes": 43,
    }


def table(version: int = 2, /, **changes: object) -> TableMetadata:
    return TableMetadata.from_json(copy.deepcopy(document(version) | changes))


def document_of(metadata: TableMetadata) -> dict[str, Json]:
    """A copy of the table's document, which may be changed."""
    return copy.deepcopy(dict(metadata.raw))


def create_request(**more: object) -> Doc:
    """A request for CREATE TABLE with column ids that the new table must replace."""
    place = {"type": "struct", "fields": [column(60, "town", "string", required=True)]}
    tags = {"type": "list", "element-id": 71, "element": "string", "element-required": True}
    facts = {
        "type": "map",
        "key-id": 81,
        "key": "string",
        "value-id": 82,
        "value": {"type": "struct", "fields": [column(83, "n", "int")]},
        "value-required": False,
    }
    return {
        "name": "orders",
        "schema": schema(
            7,
            column(0, "id", required=True, doc="key"),
            column(50, "day", "date"),
            column(55, "place", place, required=True),
            column(70, "tags", tags),
            column(80, "facts", facts),
            **{"identifier-field-ids": [60, 0]},
        ),
        "partition-spec": {
            "spec-id": 4,
            "fields": [
                {"name": "day", "transform": "identity", "source-id": 50, "field-id": 2000},
                {"name": "id_bucket", "transform": "bucket[16]", "source-id": 0, "field-id": 2001},
            ],
        },
        "write-order": {
            "order-id": 9,
            "fields": [{"transform": "identity", "source-id": 60, "direction": "desc", "null-order": "nulls-last"}],
        },
        "properties": {"owner": "orders", "format-version": "2", "uuid": "mine"},
        **more,
    }
