"""Files that verification has to refuse since some engine reads other rows: each an honest file with one lie."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import pyarrow as pa

from tests.readers.rows import arrow_rows, rows_of_case
from tests.readers.writers import pyarrow
from tests.support.parquet.edit import (
    BINARY,
    I64,
    LIST,
    STRUCT,
    Struct,
    columns,
    drop,
    edit_footer,
    get,
    groups,
    metadata_of,
    put,
    statistics,
)
from tests.support.parquet.field_ids import ColumnField, FooterField, GroupField, SchemaField, StatisticsField

Lie = Callable[[], bytes]


def rows(without: Collection[str] = ()) -> pa.Table:
    """The suite's rows; maps have no null, so that an engine that swaps keys and values shows them."""
    listed = [
        {**row, "counts": row["counts"] and [(key, value or "v") for key, value in row["counts"]]}
        for row in rows_of_case(0)
    ]
    return arrow_rows(listed, without)


def honest(without: Collection[str] = (), **options: Any) -> bytes:
    return pyarrow(**{"store_schema": False, "write_page_index": True, **options})(rows(without))


def leaf(data: bytes, *path: str) -> int:
    """Which column chunk holds this leaf."""
    footer = _footer(data)
    wanted = [name.encode() for name in path]
    found = [get(metadata_of(chunk), ColumnField.PATH_IN_SCHEMA)[1] for chunk in columns(groups(footer)[0])]
    return found.index(wanted)


def _footer(data: bytes) -> Struct:
    made: list[Struct] = []
    edit_footer(data, made.append)
    return made[0]


def statistics_longer() -> bytes:
    """The bounds of a decimal in fixed-length bytes have four more bytes, which repeat the sign."""
    data = honest()
    position = leaf(data, "price38")

    def change(footer: Struct) -> None:
        for group in range(len(groups(footer))):
            found = statistics(footer, position, group)
            for bound in (StatisticsField.MAX_VALUE, StatisticsField.MIN_VALUE):
                value = get(found, bound)
                is_negative = value[0] & 128
                put(found, bound, BINARY, (b"\xff" if is_negative else b"\0") * 4 + value)
            drop(found, StatisticsField.MAX, StatisticsField.MIN)

    return edit_footer(data, change)


def map_children_renamed() -> bytes:
    """The key of a map is named `value`, and its value `key`; ids are right."""
    data = honest()

    def change(footer: Struct) -> None:
        elements = get(footer, FooterField.SCHEMA)[1]
        at = next(place for place, each in enumerate(elements) if get(each, SchemaField.NAME) == b"counts")
        key, value = elements[at + 2], elements[at + 3]  # after the map and its repeated group
        put(key, SchemaField.NAME, BINARY, b"value")
        put(value, SchemaField.NAME, BINARY, b"key")
        for group in groups(footer):
            for chunk in columns(group):
                path = get(metadata_of(chunk), ColumnField.PATH_IN_SCHEMA)[1]
                if path[0] == b"counts":
                    path[2] = b"value" if path[2] == b"key" else b"key"

    return edit_footer(data, change)


def names_swapped() -> bytes:
    """Two columns of one type have each other's names; ids are right."""
    return _renamed(honest(), {"amount": "odd", "odd": "amount"})


def names_differ_in_case() -> bytes:
    """A column has the name of another in capital letters; ids are right."""
    return _renamed(honest(), {"odd": "AMOUNT"})


def _renamed(data: bytes, names: Mapping[str, str]) -> bytes:
    known = {old.encode(): new.encode() for old, new in names.items()}

    def change(footer: Struct) -> None:
        for each in get(footer, FooterField.SCHEMA)[1]:
            name = get(each, SchemaField.NAME)
            put(each, SchemaField.NAME, BINARY, known.get(name, name))
        for group in groups(footer):
            for chunk in columns(group):
                path = get(metadata_of(chunk), ColumnField.PATH_IN_SCHEMA)[1]
                path[0] = known.get(path[0], path[0])

    return edit_footer(data, change)


def group_offset() -> bytes:
    """The second row group is said to begin far behind the file."""

    def change(footer: Struct) -> None:
        put(groups(footer)[1], GroupField.FILE_OFFSET, I64, 10**9)

    return edit_footer(honest(), change)


def filter_of_another_width() -> bytes:
    """A column of longs is written as ints, and its bloom filter hashes their four bytes."""
    table = rows()
    at = table.column_names.index("id")
    narrow = pa.field("id", pa.int32(), metadata=table.schema.field("id").metadata)
    table = table.set_column(at, narrow, table["id"].cast(pa.int32()))
    return pyarrow(store_schema=False, bloom_filter_options={"id": {"ndv": 24, "fpp": 0.01}})(table)


def filter_of_bytes() -> bytes:
    """An honest bloom filter of a binary column: DuckDB finds no row by it."""
    return honest(bloom_filter_options={"code": {"ndv": 24, "fpp": 0.01}})


def statistics_in_one_group() -> bytes:
    """The first row group has no statistics of a column, the second has."""
    data = honest(write_page_index=False)
    position = leaf(data, "small")

    def change(footer: Struct) -> None:
        drop(metadata_of(columns(groups(footer)[0])[position]), ColumnField.STATISTICS)

    return edit_footer(data, change)


def arrow_schema() -> bytes:
    """`ARROW:schema` says that texts are bytes."""
    table = rows()
    others: dict[str, Any] = {"town": pa.binary()}
    fields = [pa.field(each.name, others.get(each.name, each.type), metadata=each.metadata) for each in table.schema]
    text = base64.b64encode(pa.schema(fields).serialize().to_pybytes())

    def change(footer: Struct) -> None:
        pair = [[1, BINARY, b"ARROW:schema"], [2, BINARY, text]]  # key and value
        put(footer, FooterField.KEY_VALUE_METADATA, LIST, (STRUCT, [pair]))

    return edit_footer(honest(), change)


LIES: Final[Mapping[str, Lie]] = {
    "statistics_longer_than_the_type": statistics_longer,
    "map_children_named_the_other_way_round": map_children_renamed,
    "names_that_are_not_the_table_s": names_swapped,
    "names_equal_in_lower_case": names_differ_in_case,
    "a_row_group_said_to_be_elsewhere": group_offset,
    "a_bloom_filter_of_another_width": filter_of_another_width,
    "a_bloom_filter_of_bytes": filter_of_bytes,
    "statistics_in_one_row_group_only": statistics_in_one_group,
    "an_arrow_schema_that_contradicts": arrow_schema,
}
