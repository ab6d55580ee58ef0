"""The schema of a footer that is published unchanged: names and annotations that engines misread are refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pvdm.lake.format.table.metadata import TableMetadata
from tests.support.for_each import for_each
from tests.support.lake.metadata import Doc, column
from tests.support.parquet.edit import BINARY, Struct, columns, drop, edit_footer, get, groups, metadata_of, put
from tests.support.parquet.footers import HONEST, LONGS, PLAIN, ROWS, codes, field, require_accepted, require_refused
from tests.support.verify.staged import NAME, metadata, parquet

pytestmark = pytest.mark.usefixtures("kernel")


def rename_in_file(data: bytes, **names: str) -> bytes:
    """The file with other names in its schema and in the paths of its columns."""
    new = {old.encode(): name.encode() for old, name in names.items()}

    def edit(footer: Struct) -> None:
        for element in get(footer, 2)[1]:
            put(element, 4, BINARY, new.get(get(element, 4), get(element, 4)))
        for group in groups(footer):
            for chunk in columns(group):
                kind, path = get(metadata_of(chunk), 3)
                put(metadata_of(chunk), 3, 9, (kind, [new.get(each, each) for each in path]))

    return edit_footer(data, edit)


def file_with_names(*names: str) -> tuple[bytes, TableMetadata]:
    """An honest file, and its table, of long columns with these names."""
    fields = [field(at, name, pa.int64()) for at, name in enumerate(names, 1)]
    table = pa.Table.from_arrays([pa.array(range(ROWS), pa.int64())] * len(names), schema=pa.schema(fields))
    return parquet(table, store_schema=False), metadata(*(column(at, name) for at, name in enumerate(names, 1)))


@for_each("names", [{"id": "ID"}, {"id": "other"}, {"id": "b", "b": "id"}, {"id": ""}])
def test_a_column_with_another_name_than_the_tables_is_refused(names: dict[str, str]) -> None:
    require_refused("field_renamed", rename_in_file(PLAIN, **names), LONGS)
    require_accepted(PLAIN, LONGS)


@for_each(
    ("of_table", "of_file"),
    [("a b", "a_x20b"), ("1st", "_1st"), ("a.b", "a_x2Eb"), ("größe", "größe"), ("😀", "_xD83D_xDE00")],
)
def test_a_name_in_icebergs_escaped_form_is_accepted(of_table: str, of_file: str) -> None:
    data, table = file_with_names(of_table, "b")
    require_accepted(data, table)
    require_accepted(rename_in_file(data, **{of_table: of_file}), table)
    require_refused("field_renamed", rename_in_file(data, **{of_table: f"{of_file}_"}), table)


@pytest.mark.parametrize("names", [("Ab", "aB"), ("\u0130", "i\u0307")])
def test_names_that_are_equal_in_lower_case_are_refused(names: tuple[str, str]) -> None:
    """Trino returns the values of one column for both."""
    require_refused("field_renamed", *file_with_names(*names))
    require_accepted(*file_with_names("Ab", "aC"))


def test_an_escaped_name_that_another_column_has_is_refused() -> None:
    data, table = file_with_names("a b", "a_x20b")
    swapped = rename_in_file(data, **{"a b": "a_x20b", "a_x20b": "c"})
    assert codes(swapped, table, footer_published=True) == ["field_renamed"]


PLACE: Doc = {"type": "struct", "fields": [column(3, "b")]}


def test_a_dotted_name_beside_a_struct_of_the_same_path_is_refused() -> None:
    """A table cannot have two equal paths, but two paths that are equal in lower case."""
    kind = pa.struct([field(3, "b", pa.int64())])
    schema = pa.schema([field(1, "a", kind), field(2, "A.b", pa.int64())])
    rows = pa.Table.from_arrays([pa.array([{"b": 1}] * ROWS, kind), pa.array(range(ROWS), pa.int64())], schema=schema)
    data, table = parquet(rows, store_schema=False), metadata(column(1, "a", PLACE), column(2, "A.b"))
    require_refused("field_renamed", data, table)
    require_accepted(rename_in_file(data, **{"A.b": "A_x2Eb"}), table)


LIST: Doc = {"type": "list", "element-id": 2, "element": "long", "element-required": False}
MAP: Doc = {"type": "map", "key-id": 2, "key": "long", "value-id": 3, "value": "long", "value-required": False}


def file_of_lists() -> bytes:
    kind = pa.list_(field(2, "element", pa.int64()))
    rows = pa.table({"a": [[1, 2]] * ROWS}, schema=pa.schema([field(1, "a", kind)]))
    return parquet(rows, store_schema=False)


def file_of_maps() -> bytes:
    key: Any = pa.field("key", pa.int64(), nullable=False, metadata={NAME: "2"})
    kind: Any = pa.map_(key, field(3, "value", pa.int64()))
    rows = pa.table({"a": [[(1, 10)]] * ROWS}, schema=pa.schema([field(1, "a", kind)]))
    return parquet(rows, store_schema=False)


@for_each("names", [{"key": "value", "value": "key"}, {"key": "k"}, {"value": "v"}, {"key_value": "pairs"}])
def test_a_map_whose_children_have_other_names_is_refused(names: dict[str, str]) -> None:
    """DuckDB finds keys and values by their names, and swaps them."""
    require_refused("field_renamed", rename_in_file(file_of_maps(), **names), metadata(column(1, "a", MAP)))
    require_accepted(file_of_maps(), metadata(column(1, "a", MAP)))
    require_accepted(rename_in_file(file_of_maps(), key_value="entries"), metadata(column(1, "a", MAP)))


@pytest.mark.parametrize("names", [{"list": "bag"}, {"element": "e"}])
def test_a_list_whose_groups_have_other_names_is_refused(names: dict[str, str]) -> None:
    require_refused("field_renamed", rename_in_file(file_of_lists(), **names), metadata(column(1, "a", LIST)))
    require_accepted(file_of_lists(), metadata(column(1, "a", LIST)))
    require_accepted(rename_in_file(file_of_lists(), element="item"), metadata(column(1, "a", LIST)))


# --- annotations

TEXT, MAP_GROUP, MAP_ENTRIES, LIST_GROUP, JSON = 0, 1, 2, 3, 19


def with_converted_type(data: bytes, at: int, converted: int) -> bytes:
    """Set the old annotation (converted type) of the schema's element at this position, and remove the new one."""

    def edit(footer: Struct) -> None:
        element = get(footer, 2)[1][at]
        drop(element, 10)
        put(element, 6, 5, converted)

    return edit_footer(data, edit)


@pytest.mark.parametrize("annotation", [MAP_GROUP, LIST_GROUP])
def test_an_annotation_of_the_group_inside_a_list_is_refused(annotation: int) -> None:
    """PyArrow, Polars and Trino cannot read such a file."""
    data = with_converted_type(file_of_lists(), 2, annotation)
    require_refused("parquet_ambiguous", data, metadata(column(1, "a", LIST)))


@pytest.mark.parametrize("annotation", [TEXT, JSON])
def test_an_annotation_of_the_root_is_refused(annotation: int) -> None:
    """PyArrow cannot read such a file."""
    require_refused("parquet_ambiguous", with_converted_type(HONEST, 0, annotation), LONGS)


def test_entries_of_a_map_may_be_annotated_as_entries() -> None:
    table = metadata(column(1, "a", MAP))
    require_refused("parquet_ambiguous", with_converted_type(file_of_maps(), 2, LIST_GROUP), table)
    require_accepted(with_converted_type(file_of_maps(), 2, MAP_ENTRIES), table)


def test_text_annotated_as_json_is_refused() -> None:
    """DuckDB and Polars read it as another type."""
    data = parquet(pa.table({"a": ["1"] * ROWS}, schema=pa.schema([field(1, "a", pa.string())])), store_schema=False)
    require_refused("parquet_ambiguous", with_converted_type(data, 1, JSON), metadata(column(1, "a", "string")))
    require_accepted(data, metadata(column(1, "a", "string")))
