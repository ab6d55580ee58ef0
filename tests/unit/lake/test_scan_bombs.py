"""Small files of a source with very many rows: reading ends at the listed number of rows or bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pvdm.errors import InputError, VerificationError
from pvdm.lake.format.manifest.entry import FileContent
from pvdm.lake.format.manifest.manifest import MANIFEST_MAX_BYTES
from pvdm.lake.read.deletes import DELETED_ROW_ID, FILE_PATH_ID, POSITION_ID
from pvdm.lake.read.entries import listed_manifests, read_listed
from pvdm.verify.fetch import Files
from tests.support.lake.metadata import column, schema
from tests.support.lake.scans import NAME, Lake
from tests.support.parquet.edit import I64, groups, join_footer, put, split_footer, varint
from tests.support.parquet.pages import RLE_DICTIONARY, Page, dictionary_page, longs, page, rebuild, run
from tests.support.verify.staged import parquet

pytestmark = pytest.mark.usefixtures("kernel")

PAGE_ROWS, PAGES = 50_000_000, 2_000
PATH: Any = pa.field("file_path", pa.string(), metadata={NAME: str(FILE_PATH_ID)})
PLACE: Any = pa.field("pos", pa.int64(), metadata={NAME: str(POSITION_ID)})


def lake_at(folder: Path) -> Lake:
    return Lake(folder, (schema(0, column(1, "id")),))


def numbers(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values)}, schema=pa.schema([pa.field("id", pa.int64(), metadata={NAME: "1"})]))


def pages_of_one_value(value: bytes) -> list[Page]:
    """The pages of a column with this value in all of PAGES * PAGE_ROWS (100 billion) rows."""
    runs = page(PAGE_ROWS, b"\0" + varint(PAGE_ROWS << 1), run(PAGE_ROWS, 1), encoding=RLE_DICTIONARY)
    return [dictionary_page(1, value), *[runs] * PAGES]


def file_of_one_repeated_row(table: pa.Table, values: Sequence[bytes]) -> bytes:
    """A Parquet file that repeats the table's only row as often; `values` has its value for each column."""
    honest = parquet(table, store_schema=False, use_dictionary=False, compression="none")
    body, footer = split_footer(rebuild(honest, {at: pages_of_one_value(value) for at, value in enumerate(values)}))
    for place in (footer, groups(footer)[0]):
        put(place, 3, I64, PAGES * PAGE_ROWS)
    return join_footer(body, footer)


def add_file(lake: Lake, data: bytes, content: FileContent, sequence: int) -> None:
    path = lake.folder / f"large-{sequence}.parquet"
    path.write_bytes(data)
    lake.entry(f"file://{path}", len(data), 2, content, sequence, 0, None)


def require_refused_row_count(lake: Lake) -> None:
    with pytest.RaisesExc(VerificationError, check=lambda error: error.reason == "record_count_lies"):
        lake.rows()


def test_a_data_file_of_more_rows_than_are_listed_is_not_read_to_its_end(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    add_file(lake, file_of_one_repeated_row(numbers(7), [longs(7)]), FileContent.DATA, 1)
    require_refused_row_count(lake)


def test_a_position_delete_file_of_more_rows_than_are_listed_is_not_read_to_its_end(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(numbers(0, 1, 2))
    columns: list[Any] = [pa.array([location]), pa.array([1])]
    places = pa.Table.from_arrays(columns, schema=pa.schema([PATH, PLACE]))
    path = struct.pack("<I", len(location)) + location.encode()
    add_file(lake, file_of_one_repeated_row(places, [path, longs(1)]), FileContent.POSITION_DELETES, 2)
    require_refused_row_count(lake)


def test_a_position_delete_file_may_also_have_the_deleted_rows(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(numbers(0, 1, 2))
    row = pa.struct([pa.field("id", pa.int64(), metadata={NAME: "1"})])
    fields = [PATH, PLACE, pa.field("row", row, metadata={NAME: str(DELETED_ROW_ID)})]
    columns: list[Any] = [pa.array([location]), pa.array([1]), pa.array([{"id": 1}], row)]
    path, size = lake.write(pa.Table.from_arrays(columns, schema=pa.schema(fields)))
    lake.entry(path, size, 1, FileContent.POSITION_DELETES, 2, 0, None)
    assert [each["id"] for each in lake.rows()] == [0, 2]


class LimitRecorder:
    """Reads files, and records the limit in bytes of each call."""

    def __init__(self) -> None:
        self.limits: list[int] = []

    def read(self, location: str, *, max_bytes: int) -> bytes:
        self.limits.append(max_bytes)
        return Files().read(location, max_bytes=max_bytes)


def test_a_manifest_is_read_only_up_to_the_maximum_size(tmp_path: Path) -> None:
    """The manifest list says that it is longer. A sparse file can be so long without using space on a disk."""
    lake = lake_at(tmp_path)
    lake.data(numbers(1))
    metadata = lake.metadata()
    snapshot = metadata.current_snapshot
    assert snapshot is not None
    (listed,) = listed_manifests(metadata, snapshot, Files())
    path = Path(listed.manifest_path.removeprefix("file://"))
    with path.open("r+b") as file:
        file.truncate(10 * MANIFEST_MAX_BYTES)
    reader = LimitRecorder()
    longer = type(listed)(
        manifest_path=listed.manifest_path,
        manifest_length=10 * MANIFEST_MAX_BYTES,
        partition_spec_id=listed.partition_spec_id,
        added_snapshot_id=listed.added_snapshot_id,
    )
    with pytest.RaisesExc((InputError, VerificationError), check=lambda error: error.reason == "file_too_large"):
        read_listed(metadata, longer, reader)
    assert reader.limits == [MANIFEST_MAX_BYTES]
