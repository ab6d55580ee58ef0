"""Small, honest manifests, manifest lists and their parts, and functions that change them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from pvdm.errors import InputError
from pvdm.lake.format.avro.container import MAGIC, AvroFile, encode_long, read_avro, write_avro
from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, FileContent, IdMap, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.manifest import ManifestHeader
from pvdm.lake.format.manifest.manifest_list import ManifestFile
from pvdm.lake.format.partition_spec import PartitionSpec
from pvdm.lake.format.schema.bounds import compare, decode_bound
from pvdm.lake.format.schema.single_value import Value
from pvdm.model.schema import Type

SYNC = bytes(range(16))
SCHEMA_TEXT = json.dumps(
    {
        "type": "struct",
        "schema-id": 3,
        "fields": [
            {"id": 1, "name": "id", "required": True, "type": "long"},
            {"id": 2, "name": "day", "required": False, "type": "date"},
            {"id": 3, "name": "price", "required": False, "type": "decimal(9, 2)", "doc": "with tax"},
        ],
    }
)
DAY_SPEC = PartitionSpec.from_text(7, '[{"name":"day","transform":"identity","source-id":2,"field-id":1000}]')


def refused(code: str) -> pytest.RaisesExc[InputError]:
    """The block must raise an InputError with this code."""
    return pytest.RaisesExc(InputError, check=lambda error: error.reason == code)


def header(version: int = 2, **changes: Any) -> ManifestHeader:
    base = ManifestHeader(
        format_version=version, content=ManifestContent.DATA, schema_text=SCHEMA_TEXT, spec=DAY_SPEC, schema_id=3
    )
    return replace(base, **changes)


def data_file(path: str = "s3://lake/a.parquet", **changes: Any) -> DataFile:
    base = DataFile(
        file_path=path,
        file_format="PARQUET",
        record_count=10,
        file_size_in_bytes=1_000,
        partition=IdMap([(1000, 20_000)]),
        column_sizes=IdMap([(1, 80), (2, 40)]),
        value_counts=IdMap([(1, 10), (2, 10)]),
        null_value_counts=IdMap([(1, 0), (2, 3)]),
        nan_value_counts=IdMap(),
        lower_bounds=IdMap([(1, (1).to_bytes(8, "little"))]),
        upper_bounds=IdMap([(1, (300).to_bytes(8, "little"))]),
        split_offsets=(4,),
        sort_order_id=0,
    )
    return replace(base, **changes)


def delete_file(**changes: Any) -> DataFile:
    return data_file("s3://lake/d.parquet", **{"content": FileContent.POSITION_DELETES, **changes})


def entry(status: EntryStatus = EntryStatus.ADDED, file: DataFile | None = None, **changes: Any) -> ManifestEntry:
    base = ManifestEntry(status=status, data_file=data_file() if file is None else file, snapshot_id=55)
    return replace(base, **changes)


def existing_entry(file: DataFile | None = None, **changes: Any) -> ManifestEntry:
    """An entry that was added in an older snapshot."""
    old = {"status": EntryStatus.EXISTING, "sequence_number": 2, "file_sequence_number": 2}
    return entry(file=file, **{**old, **changes})


def listed(path: str = "s3://lake/m.avro", **changes: Any) -> ManifestFile:
    base = ManifestFile(
        manifest_path=path,
        manifest_length=100,
        partition_spec_id=7,
        added_snapshot_id=55,
        sequence_number=4,
        min_sequence_number=4,
        added_files_count=1,
        existing_files_count=0,
        deleted_files_count=0,
        added_rows_count=10,
        existing_rows_count=0,
        deleted_rows_count=0,
        partitions=(),
    )
    return replace(base, **changes)


def edit_avro(
    data: bytes,
    *,
    schema: Callable[[Any], Any] | None = None,
    records: Callable[[tuple[Any, ...]], Iterable[Any]] | None = None,
    meta: dict[str, bytes | None] | None = None,
) -> bytes:
    """The Avro file with another schema, other records, or other header values (None removes one)."""
    file = read_avro(data)
    schema_text = file.schema_text if schema is None else json.dumps(schema(json.loads(file.schema_text)))
    pairs = {key: value for key, value in {**dict(extra_of(file)), **(meta or {})}.items() if value is not None}
    return write_avro(schema_text, pairs.items(), file.records if records is None else records(file.records))


def text(value: str | bytes) -> bytes:
    """A text or bytes in Avro's binary encoding."""
    data = value.encode() if isinstance(value, str) else value
    return encode_long(len(data)) + data


def container(
    schema: Any, *blocks: tuple[int, bytes], codec: str | None = None, extra: dict[str, bytes] | None = None
) -> bytes:
    """An Avro file built part by part, so that its parts may contradict each other."""
    pairs = {"avro.schema": (schema if isinstance(schema, str) else json.dumps(schema)).encode(), **(extra or {})}
    if codec is not None:
        pairs["avro.codec"] = codec.encode()
    head = b"".join((encode_long(len(pairs)), *(text(key) + text(value) for key, value in pairs.items()), b"\x00"))
    body = b"".join(encode_long(count) + text(stored) + SYNC for count, stored in blocks)
    return MAGIC + head + SYNC + body


def record(*types: Any) -> dict[str, Any]:
    """A record schema with fields f0, f1, …"""
    return {
        "type": "record",
        "name": "r",
        "fields": [{"name": f"f{at}", "type": kind} for at, kind in enumerate(types)],
    }


def lies_within(kind: Type, value: Value, lower: bytes | None, upper: bytes | None) -> bool:
    """Whether the bounds contain the value; an absent bound contains every value."""
    if lower is not None and compare(kind, decode_bound(kind, lower), value) > 0:
        return False
    return upper is None or compare(kind, value, decode_bound(kind, upper)) <= 0


def extra_of(file: AvroFile) -> tuple[tuple[str, bytes], ...]:
    """The key-value pairs of the file's header, without Avro's own keys."""
    return tuple((key, value) for key, value in file.metadata if not key.startswith("avro."))


def write_again(file: AvroFile) -> bytes:
    """Write a file with the same header, schema text and records."""
    return write_avro(file.schema_text, extra_of(file), file.records, codec=file.codec)
