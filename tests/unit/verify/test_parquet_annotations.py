"""Readers of a schema's old annotations (converted types) and of its new ones (logical types) see the same columns.

Without the old one DuckDB shows 125.00 for 1.25 and bytes for text, while Spark and PyArrow show what was digested.
"""

from __future__ import annotations

import datetime as dt
import functools
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.support.for_each import for_each
from tests.support.lake.metadata import Doc, column
from tests.support.parquet.edit import I32, STRUCT, Struct, drop, edit_footer, get, put
from tests.support.parquet.lies import field
from tests.support.verify.staged import NAME, metadata, observe_file, parquet

pytestmark = pytest.mark.usefixtures("kernel")

CONVERTED, LOGICAL = 6, 10  # numbers of the fields of a schema element
LIST: Doc = {"type": "list", "element-id": 2, "element": "long", "element-required": False}
MAP: Doc = {"type": "map", "key-id": 2, "key": "long", "value-id": 3, "value": "long", "value-required": False}
KEY: Any = pa.field("key", pa.int64(), nullable=False, metadata={NAME: "2"})
NEW_YEAR = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

KINDS: dict[str, tuple[Doc | str, Any, Any]] = {
    "a text": ("string", pa.string(), "é"),
    "a decimal": ("decimal(12, 2)", pa.decimal128(12, 2), Decimal("1.25")),
    "a date": ("date", pa.date32(), NEW_YEAR.date()),
    "a timestamp": ("timestamptz", pa.timestamp("us", "UTC"), NEW_YEAR),
    "a short number": ("int", pa.int8(), 7),
    "a number": ("int", pa.int16(), 7),
    "a list": (LIST, pa.list_(field("element", pa.int64(), 2)), [1, None]),
    "a map": (MAP, pa.map_(KEY, field("value", pa.int64(), 3)), [(1, None)]),
}


def file_of(name: str) -> bytes:
    """An honest file with one column of this kind: a value and a null."""
    _, kind, value = KINDS[name]
    table = pa.Table.from_arrays([pa.array([value, None], kind)], schema=pa.schema([field("v", kind, 1)]))
    return parquet(table, store_schema=False, store_decimal_as_integer=True)


def findings_of(name: str, change: Any, element: int = 1) -> list[tuple[str, str]]:
    """The findings for a file of this kind after the change of one element of its schema."""
    data = edit_footer(file_of(name), lambda footer: change(get(footer, 2)[1][element]))
    table = metadata(column(1, "v", KINDS[name][0]))
    return [(each.code, each.message) for each in observe_file(data, table, record_count=2).findings]


REFUSED = [("parquet_ambiguous", "column 'v' is refused")]


@for_each("name", KINDS)
def test_a_column_with_both_annotations_or_with_the_old_one_is_accepted(name: str) -> None:
    assert findings_of(name, lambda _: None) == []
    # The old annotation of a timestamp does not tell DuckDB of UTC: it then shows it by its own time zone.
    assert findings_of(name, lambda element: drop(element, LOGICAL)) == (REFUSED if name == "a timestamp" else [])


@for_each("name", KINDS)
def test_a_column_without_the_old_annotation_is_refused_unless_it_is_a_timestamp(name: str) -> None:
    # Polars writes only the new annotation of a timestamp, and every engine reads it.
    assert findings_of(name, lambda element: drop(element, CONVERTED)) == ([] if name == "a timestamp" else REFUSED)


@for_each("annotation", [0, 1, 3, 9, 21])
def test_an_old_annotation_of_another_physical_type_is_refused(annotation: int) -> None:
    """PyArrow and Polars cannot read it."""
    rows = pa.Table.from_arrays([pa.array([7, None], pa.int32())], schema=pa.schema([field("v", pa.int32(), 1)]))
    honest = parquet(rows, store_schema=False)
    table = metadata(column(1, "v", "int"))
    annotated = edit_footer(honest, lambda footer: put(get(footer, 2)[1][1], CONVERTED, I32, annotation))
    assert observe_file(honest, table, record_count=2).findings == ()
    assert len(observe_file(annotated, table, record_count=2).findings) == 1


@for_each("name", KINDS)
def test_an_unknown_old_annotation_is_refused(name: str) -> None:
    """DuckDB cannot read it."""
    assert findings_of(name, lambda element: put(element, CONVERTED, I32, -1)) == REFUSED

    def unknown_without_logical(element: Struct) -> None:
        drop(element, LOGICAL)
        put(element, CONVERTED, I32, -1)

    assert findings_of(name, unknown_without_logical) == REFUSED


@for_each("name", KINDS)
def test_an_old_annotation_of_another_type_is_refused(name: str) -> None:
    """Some of these files our own decoder does not read either, so the code may be another one."""
    for number in range(22):

        def change(element: Struct, number: int = number) -> None:
            honest = get(element, CONVERTED)
            put(element, CONVERTED, I32, number if number != honest else -1)

        ((code, _),) = findings_of(name, change)
        assert code in ("parquet_ambiguous", "parquet_unreadable")


@pytest.mark.parametrize(("number", "value"), [(7, 3), (8, 11)])
def test_a_decimal_of_another_scale_or_precision_for_readers_of_the_old_annotation_is_refused(
    number: int, value: int
) -> None:
    ((code, _),) = findings_of("a decimal", lambda element: put(element, number, I32, value))
    assert code in ("parquet_ambiguous", "parquet_unreadable")


def test_a_local_time_needs_no_old_annotation() -> None:
    """It would mean UTC. PyArrow writes one for timestamps and none for times, Java for both."""
    for doc, kind, number in (("timestamp", pa.timestamp("us"), 10), ("time", pa.time64("us"), 8)):
        array: Any = pa.array([0, None], kind)
        table = pa.Table.from_arrays([array], schema=pa.schema([field("v", kind, 1)]))
        data = parquet(table, store_schema=False)

        def change(footer: Struct, number: int | None) -> None:
            drop(get(footer, 2)[1][1], CONVERTED)
            if number is not None:
                put(get(footer, 2)[1][1], CONVERTED, I32, number)

        for old in (None, number):
            changed = edit_footer(data, functools.partial(change, number=old))
            assert observe_file(changed, metadata(column(1, "v", doc))).findings == ()


@pytest.mark.parametrize(("old", "new"), [(4, 4), (20, 13)], ids=["ENUM", "BSON"])
def test_bytes_annotated_as_an_enumeration_or_as_bson_are_refused(old: int, new: int) -> None:
    r"""DuckDB takes an enumeration for text, and turns its `\x41` into the byte `A`. It does not know BSON."""
    values: Any = pa.array([b"\\x41"])
    table = pa.Table.from_arrays([values], schema=pa.schema([field("v", pa.binary(), 1)]))
    honest = parquet(table, store_schema=False)
    for logical in (True, False):

        def change(footer: Struct, logical: bool = logical) -> None:
            put(get(footer, 2)[1][1], CONVERTED, I32, old)
            if logical:
                put(get(footer, 2)[1][1], LOGICAL, STRUCT, [[new, STRUCT, []]])

        found = observe_file(edit_footer(honest, change), metadata(column(1, "v", "binary"))).findings
        assert [(each.code, each.message) for each in found] == REFUSED
    assert observe_file(honest, metadata(column(1, "v", "binary"))).findings == ()


def test_a_map_annotated_as_the_entries_of_a_map_is_refused() -> None:
    """Spark and DuckDB cannot read it."""

    def change(element: Struct) -> None:
        drop(element, LOGICAL)
        put(element, CONVERTED, I32, 2)

    assert findings_of("a map", change) == REFUSED
    # Java's writers annotate the entries themselves so.
    assert findings_of("a map", lambda element: put(element, CONVERTED, I32, 2), element=2) == []


@pytest.mark.parametrize("name", ["a list", "a map"])
def test_a_field_id_on_the_repeated_group_of_a_list_or_map_is_refused(name: str) -> None:
    """DuckDB looks for a column with that id, and shows nulls."""
    assert findings_of(name, lambda element: put(element, 9, I32, 77), element=2) == [
        ("parquet_ambiguous", "the file is refused")
    ]


def test_a_group_with_a_physical_type_is_refused() -> None:
    assert findings_of("a list", lambda element: put(element, 1, I32, 2)) == REFUSED


@pytest.mark.parametrize("change", [lambda each: drop(each, 3), lambda each: put(each, 3, I32, 3)])
def test_a_column_that_is_neither_required_nor_optional_nor_repeated_is_refused(change: Any) -> None:
    ((code, _),) = findings_of("a text", change)
    assert code in ("parquet_ambiguous", "parquet_unreadable")


def test_an_unknown_logical_type_is_refused() -> None:
    ((code, _),) = findings_of("a text", lambda element: put(element, LOGICAL, STRUCT, [[30, STRUCT, []]]))
    assert code in ("parquet_ambiguous", "parquet_unreadable")


def test_a_finding_names_the_path_of_a_field_inside_a_struct() -> None:
    inside = pa.struct([field("t", pa.string(), 2)])
    table = pa.Table.from_arrays([pa.array([{"t": "a"}], inside)], schema=pa.schema([field("v", inside, 1)]))
    data = edit_footer(parquet(table, store_schema=False), lambda footer: drop(get(footer, 2)[1][2], CONVERTED))
    doc: Doc = {"type": "struct", "fields": [column(2, "t", "string")]}
    (only,) = observe_file(data, metadata(column(1, "v", doc))).findings
    assert only.message == "column 'v.t' is refused"
