"""Tables with one false claim, for which Iceberg in Java reads other rows than files and deletes say.

Each is made with the lie, or without it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from pvdm.lake.format.manifest.entry import FileContent, IdMap
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.model.schema import Field, Kind, PrimitiveType, Schema, StructType
from tests.support.lake.metadata import Doc, column, schema
from tests.support.lake.puffin import Listed, add_vectors
from tests.support.lake.scans import Lake, identity_spec, table_of
from tests.support.parquet.edit import BINARY, I64, Struct, edit_footer, groups, put, statistics
from tests.support.parquet.field_ids import GroupField, StatisticsField

ID: Final = Field("id", PrimitiveType(Kind.LONG), field_id=1)
TOWN: Final = Field("town", PrimitiveType(Kind.STRING), field_id=2)
COLUMNS: Final = Schema((ID, TOWN))
DOC: Final = schema(0, column(1, "id"), column(2, "town", "string"))
ROWS: Final = [{"id": number, "town": f"t{number}"} for number in range(1, 9)]
INSIDE: Final[Doc] = {"type": "struct", "fields": [column(4, "x", "string"), column(5, "y")]}
NESTED_DOC: Final = schema(0, column(1, "id"), column(3, "s", INSIDE))
NESTED: Final = Schema(
    (
        ID,
        Field(
            "s",
            StructType((Field("x", PrimitiveType(Kind.STRING), field_id=4), Field("y", ID.type, field_id=5))),
            field_id=3,
        ),
    )
)
TRUNCATED: Final[list[Doc]] = [{"name": "town", "transform": "truncate[1]", "source-id": 2, "field-id": 1000}]


@dataclass
class LakeWithOtherSpecs(Lake):
    """A table whose metadata has other partition specs (`declared_specs`) than its manifests."""

    declared_specs: Mapping[int, Sequence[Doc]] = field(default_factory=dict)

    def metadata(self) -> TableMetadata:
        raw = json.loads(super().metadata().to_bytes())
        specs = self.declared_specs.items()
        raw["partition-specs"] = [{"spec-id": spec, "fields": list(fields)} for spec, fields in specs]
        return TableMetadata.parse(json.dumps(raw).encode())


@dataclass(frozen=True)
class Lie:
    """A false claim: its name, a function that makes the table with or without it, and the code of the refusal."""

    name: str
    make: Callable[[Path, bool], Lake]
    code: str

    def __str__(self) -> str:
        return self.name


def longs(low: int, high: int, nulls: int = 0, values: int = 8) -> dict[str, Any]:
    """Values of a manifest entry: bounds and counts of the column `id`."""
    low_bytes, high_bytes = (struct.pack("<q", each) for each in (low, high))
    return {
        "lower_bounds": IdMap([(1, low_bytes)]),
        "upper_bounds": IdMap([(1, high_bytes)]),
        "value_counts": IdMap([(1, values)]),
        "null_value_counts": IdMap([(1, nulls)]),
    }


def keys(*ids: int) -> pa.Table:
    return table_of(Schema((ID,)), [{"id": number} for number in ids])


def lake(folder: Path, doc: Doc = DOC, **options: Any) -> Lake:
    folder.mkdir(parents=True)
    return Lake(folder, (doc,), **options)


def lake_with_other_specs(
    folder: Path, written: Mapping[int, Sequence[Doc]], declared: Mapping[int, Sequence[Doc]]
) -> Lake:
    folder.mkdir(parents=True)
    return LakeWithOtherSpecs(folder, (DOC,), specs=written, declared_specs=declared)


def delete_bounds(folder: Path, lies: bool) -> Lake:
    table = lake(folder)
    table.data(table_of(COLUMNS, ROWS), changes=longs(1, 8))
    table.equalities(keys(3), [1], changes=longs(100, 200, values=1) if lies else longs(3, 3, values=1))
    return table


def data_bounds(folder: Path, lies: bool) -> Lake:
    table = lake(folder)
    table.data(table_of(COLUMNS, ROWS), changes=longs(1_000, 2_000) if lies else longs(1, 8))
    table.equalities(keys(3), [1], changes=longs(3, 3, values=1))
    return table


def null_counts(folder: Path, lies: bool) -> Lake:
    table = lake(folder)
    counts = {"value_counts": IdMap([(1, 1)]), "null_value_counts": IdMap([(1, int(lies))])}
    no_nulls = {"value_counts": IdMap([(1, 8)]), "null_value_counts": IdMap([(1, 0)])}
    table.data(table_of(COLUMNS, ROWS), changes=no_nulls)
    table.equalities(keys(3), [1], changes=counts)
    return table


def path_statistics(folder: Path, lies: bool) -> Lake:
    table = lake(folder)
    data = table.data(table_of(COLUMNS, ROWS))
    location = table.positions([(data, 1), (data, 2)])
    bounds = (StatisticsField.MAX, StatisticsField.MIN, StatisticsField.MAX_VALUE, StatisticsField.MIN_VALUE)

    def change(footer: Struct) -> None:
        for bound in bounds if lies else ():
            put(statistics(footer, 0), bound, BINARY, b"zzz")

    _edit(table, location, change)
    return table


def group_size(folder: Path, lies: bool) -> Lake:
    table = lake(folder)
    location = table.data(table_of(COLUMNS, ROWS), row_group_size=4)

    def change(footer: Struct) -> None:
        if lies:
            put(groups(footer)[0], GroupField.TOTAL_COMPRESSED_SIZE, I64, 10**7)

    _edit(table, location, change)
    return table


def _edit(table: Lake, location: str, change: Callable[[Struct], None]) -> None:
    """Change the footer of a file, and the file's size in its manifest entry."""
    path = Path(location.removeprefix("file://"))
    path.write_bytes(edit_footer(path.read_bytes(), change))
    for entries in table.entries.values():
        for at, entry in enumerate(entries):
            if entry.data_file.file_path == location:
                file = replace(entry.data_file, file_size_in_bytes=path.stat().st_size)
                entries[at] = replace(entry, data_file=file)


def split_offsets(folder: Path, lies: bool) -> Lake:
    table = lake(folder)
    location, size = table.write(table_of(COLUMNS, ROWS), row_group_size=4)
    group = pq.ParquetFile(location.removeprefix("file://")).metadata.row_group(1).column(0)
    second = group.dictionary_page_offset or group.data_page_offset
    offsets = (second,) if lies else (4, second)
    table.entry(location, size, len(ROWS), FileContent.DATA, 1, 0, None, {"split_offsets": offsets})
    return table


def nested_partition(folder: Path, lies: bool) -> Lake:
    table = lake(folder, NESTED_DOC, specs={0: identity_spec(4, "s_x")})
    rows = [{"id": 1, "s": {"x": "a", "y": 1}}, {"id": 2, "s": {"x": "a", "y": None}}]
    table.data(table_of(NESTED, rows), partition={1000: "b" if lies else "a"})
    return table


def spec_is_identity(folder: Path, lies: bool) -> Lake:
    table = lake_with_other_specs(
        folder, {0: []} if lies else {0: TRUNCATED}, {0: identity_spec(2, "town")} if lies else {0: TRUNCATED}
    )
    table.data(table_of(COLUMNS, ROWS), partition={} if lies else {1000: "t"})
    return table


def spec_is_unpartitioned(folder: Path, lies: bool) -> Lake:
    town = identity_spec(2, "town")
    table = lake_with_other_specs(folder, {0: town}, {0: []} if lies else {0: town})
    for row in ROWS[:2]:
        table.data(table_of(COLUMNS, [row]), partition={1000: row["town"]})
    table.equalities(keys(1, 2), [1], partition={1000: "t1"})
    return table


def spec_is_another_transform(folder: Path, lies: bool) -> Lake:
    table = lake_with_other_specs(folder, {0: TRUNCATED}, {0: identity_spec(2, "town")} if lies else {0: TRUNCATED})
    table.data(table_of(COLUMNS, ROWS[:1]), partition={1000: "t"})
    return table


def positions_without_number(folder: Path, lies: bool) -> Lake:
    table = lake(folder)
    table.positions([(table.data(table_of(COLUMNS, ROWS), sequence=0), 1)], sequence=0 if lies else 1)
    return table


def vector_without_number(folder: Path, lies: bool) -> Lake:
    table = lake(folder, version=3)
    data = table.data(table_of(COLUMNS, ROWS), sequence=0, changes={"first_row_id": 0})
    add_vectors(table, [Listed(data, [1, 2])], sequence=0 if lies else 1)
    return table


def negative_zero(folder: Path, lies: bool) -> Lake:
    table = lake(folder, schema(0, column(1, "id"), column(2, "f", "double")), specs={0: identity_spec(2, "f")})
    columns = Schema((ID, Field("f", PrimitiveType(Kind.DOUBLE), field_id=2)))
    table.data(table_of(columns, [{"id": 1, "f": -0.0}]), partition={1000: 0.0 if lies else -0.0})
    return table


LIES: Final = (
    Lie("bounds of a delete file", delete_bounds, "equality_delete_hidden"),
    Lie("bounds of a data file", data_bounds, "equality_delete_hidden"),
    Lie("null counts", null_counts, "equality_delete_hidden"),
    Lie("statistics of paths in a delete file", path_statistics, "position_deletes_refused"),
    Lie("the size of a row group", group_size, "parquet_ambiguous"),
    Lie("split offsets", split_offsets, "parquet_ambiguous"),
    Lie("a partition inside a struct", nested_partition, "source_partition_lies"),
    Lie("a spec that is identity", spec_is_identity, "found_spec_differs"),
    Lie("a spec that is unpartitioned", spec_is_unpartitioned, "found_spec_differs"),
    Lie("a spec of another transform", spec_is_another_transform, "found_spec_differs"),
    Lie("positions without a number", positions_without_number, "delete_sequence_missing"),
    Lie("a vector without a number", vector_without_number, "delete_sequence_missing"),
    Lie("negative zero", negative_zero, "source_partition_lies"),
)
