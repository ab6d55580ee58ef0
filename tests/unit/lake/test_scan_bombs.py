"""Small files of a source that stand for very many rows: they are read no further than they are listed."""

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
from tests.support.parquet.edit import I64, groups, joined, put, split, varint
from tests.support.parquet.pages import RLE_DICTIONARY, Page, dictionary, longs, page, rebuilt, run
from tests.support.verify.staged import parquet

pytestmark = pytest.mark.usefixtures("kernel")

PAGE_ROWS, PAGES = 50_000_000, 2_000
PATH: Any = pa.field("file_path", pa.string(), metadata={NAME: str(FILE_PATH_ID)})
PLACE: Any = pa.field("pos", pa.int64(), metadata={NAME: str(POSITION_ID)})


def lake_at(folder: Path) -> Lake:
    return Lake(folder, (schema(0, column(1, "id")),))


def numbers(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values)}, schema=pa.schema([pa.field("id", pa.int64(), metadata={NAME: "1"})]))


def repeated(value: bytes) -> list[Page]:
    """One value in a hundred thousand million rows."""
    runs = page(PAGE_ROWS, b"\0" + varint(PAGE_ROWS << 1), run(PAGE_ROWS, 1), encoding=RLE_DICTIONARY)
    return [dictionary(1, value), *[runs] * PAGES]


def swollen(table: pa.Table, values: Sequence[bytes]) -> bytes:
    """The table's only row so many times."""
    honest = parquet(table, store_schema=False, use_dictionary=False, compression="none")
    body, footer = split(rebuilt(honest, {at: repeated(value) for at, value in enumerate(values)}))
    for told in (footer, groups(footer)[0]):
        put(told, 3, I64, PAGES * PAGE_ROWS)
    return joined(body, footer)


def put_file(lake: Lake, data: bytes, content: FileContent, sequence: int) -> None:
    path = lake.folder / f"large-{sequence}.parquet"
    path.write_bytes(data)
    lake.entry(f"file://{path}", len(data), 2, content, sequence, 0, None)


def refused_for_its_rows(lake: Lake) -> None:
    with pytest.RaisesExc(VerificationError, check=lambda error: error.reason == "record_count_lies"):
        lake.rows()


def test_a_data_file_of_more_rows_than_are_listed_is_not_read_to_its_end(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    put_file(lake, swollen(numbers(7), [longs(7)]), FileContent.DATA, 1)
    refused_for_its_rows(lake)


def test_a_position_delete_file_of_more_rows_than_are_listed_is_not_read_to_its_end(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(numbers(0, 1, 2))
    columns: list[Any] = [pa.array([location]), pa.array([1])]
    places = pa.Table.from_arrays(columns, schema=pa.schema([PATH, PLACE]))
    path = struct.pack("<I", len(location)) + location.encode()
    put_file(lake, swollen(places, [path, longs(1)]), FileContent.POSITION_DELETES, 2)
    refused_for_its_rows(lake)


def test_a_position_delete_file_may_have_the_rows_beside_their_places(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(numbers(0, 1, 2))
    row = pa.struct([pa.field("id", pa.int64(), metadata={NAME: "1"})])
    fields = [PATH, PLACE, pa.field("row", row, metadata={NAME: str(DELETED_ROW_ID)})]
    columns: list[Any] = [pa.array([location]), pa.array([1]), pa.array([{"id": 1}], row)]
    path, size = lake.write(pa.Table.from_arrays(columns, schema=pa.schema(fields)))
    lake.entry(path, size, 1, FileContent.POSITION_DELETES, 2, 0, None)
    assert [each["id"] for each in lake.rows()] == [0, 2]


class Asked:
    """Reads files, and keeps how many bytes it was asked for at most."""

    def __init__(self) -> None:
        self.most: list[int] = []

    def read(self, location: str, *, max_bytes: int) -> bytes:
        self.most.append(max_bytes)
        return Files().read(location, max_bytes=max_bytes)


def test_a_manifest_is_read_no_further_than_one_may_be_long(tmp_path: Path) -> None:
    """However long its list says that it is: the file may be as long as that, and take no place on a disk."""
    lake = lake_at(tmp_path)
    lake.data(numbers(1))
    metadata = lake.metadata()
    snapshot = metadata.current_snapshot
    assert snapshot is not None
    (listed,) = listed_manifests(metadata, snapshot, Files())
    path = Path(listed.manifest_path.removeprefix("file://"))
    with path.open("r+b") as file:
        file.truncate(10 * MANIFEST_MAX_BYTES)
    reader = Asked()
    longer = type(listed)(
        manifest_path=listed.manifest_path,
        manifest_length=10 * MANIFEST_MAX_BYTES,
        partition_spec_id=listed.partition_spec_id,
        added_snapshot_id=listed.added_snapshot_id,
    )
    with pytest.RaisesExc((InputError, VerificationError), check=lambda error: error.reason == "file_too_large"):
        read_listed(metadata, longer, reader)
    assert reader.most == [MANIFEST_MAX_BYTES]
