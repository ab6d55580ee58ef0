"""Readers that know only the old annotations of a schema, and readers that believe the new ones, find the same columns.

Without the old one DuckDB shows 125.00 for 1.25 and bytes for text, while Spark and PyArrow show what was digested.
"""

from __future__ import annotations

import datetime as dt
import functools
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.support.lake.metadata import Doc, column
from tests.support.parquet.edit import I32, STRUCT, Struct, drop, edited, get, put
from tests.support.parquet.lies import field
from tests.support.verify.staged import NAME, metadata, observe_file, parquet

pytestmark = pytest.mark.usefixtures("kernel")

CONVERTED, LOGICAL = 6, 10
LIST: Doc = {"type": "list", "element-id": 2, "element": "long", "element-required": False}
MAP: Doc = {"type": "map", "key-id": 2, "key": "long", "value-id": 3, "value": "long", "value-required": False}
KEY: Any = pa.field("key", pa.int64(), nullable=False, metadata={NAME: "2"})
MOMENT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

KINDS: dict[str, tuple[Doc | str, Any, Any]] = {
    "a text": ("string", pa.string(), "é"),
    "a decimal": ("decimal(12, 2)", pa.decimal128(12, 2), Decimal("1.25")),
    "a date": ("date", pa.date32(), MOMENT.date()),
    "a moment": ("timestamptz", pa.timestamp("us", "UTC"), MOMENT),
    "a short number": ("int", pa.int8(), 7),
    "a number": ("int", pa.int16(), 7),
    "a list": (LIST, pa.list_(field("element", pa.int64(), 2)), [1, None]),
    "a map": (MAP, pa.map_(KEY, field("value", pa.int64(), 3)), [(1, None)]),
}


def made(name: str) -> bytes:
    _, kind, value = KINDS[name]
    table = pa.Table.from_arrays([pa.array([value, None], kind)], schema=pa.schema([field("v", kind, 1)]))
    return parquet(table, store_schema=False, store_decimal_as_integer=True)


def changed(name: str, change: Any, element: int = 1) -> list[tuple[str, str]]:
    """What is found where the element of the schema was changed."""
    data = edited(made(name), lambda footer: change(get(footer, 2)[1][element]))
    table = metadata(column(1, "v", KINDS[name][0]))
    return [(each.code, each.message) for each in observe_file(data, table, record_count=2).findings]


REFUSED = [("parquet_ambiguous", "column 'v' is refused")]


@pytest.mark.parametrize("name", KINDS)
def test_a_column_with_both_annotations_or_the_old_one_passes(name: str) -> None:
    assert changed(name, lambda _: None) == []
    # Of a moment the old one says nothing of UTC to DuckDB, which then shows it by its own time zone.
    assert changed(name, lambda element: drop(element, LOGICAL)) == (REFUSED if name == "a moment" else [])


@pytest.mark.parametrize("name", KINDS)
def test_a_column_without_the_old_annotation_is_refused_unless_it_is_a_moment(name: str) -> None:
    # Polars writes the new annotation of a moment alone, and every engine reads it.
    assert changed(name, lambda element: drop(element, CONVERTED)) == ([] if name == "a moment" else REFUSED)


@pytest.mark.parametrize("annotation", [0, 1, 3, 9, 21])
def test_an_old_annotation_of_another_physical_type_is_refused(annotation: int) -> None:
    """PyArrow and Polars cannot read it."""
    rows = pa.Table.from_arrays([pa.array([7, None], pa.int32())], schema=pa.schema([field("v", pa.int32(), 1)]))
    honest = parquet(rows, store_schema=False)
    table = metadata(column(1, "v", "int"))
    annotated = edited(honest, lambda footer: put(get(footer, 2)[1][1], CONVERTED, I32, annotation))
    assert observe_file(honest, table, record_count=2).findings == ()
    assert len(observe_file(annotated, table, record_count=2).findings) == 1


@pytest.mark.parametrize("name", KINDS)
def test_an_old_annotation_that_nobody_knows_is_refused(name: str) -> None:
    """DuckDB cannot read it."""
    assert changed(name, lambda element: put(element, CONVERTED, I32, -1)) == REFUSED

    def alone(element: Struct) -> None:
        drop(element, LOGICAL)
        put(element, CONVERTED, I32, -1)

    assert changed(name, alone) == REFUSED


@pytest.mark.parametrize("name", KINDS)
def test_an_old_annotation_of_another_type_is_refused(name: str) -> None:
    """Some of these our decoder does not read itself."""
    for number in range(22):

        def change(element: Struct, number: int = number) -> None:
            honest = get(element, CONVERTED)
            put(element, CONVERTED, I32, number if number != honest else -1)

        ((code, _),) = changed(name, change)
        assert code in ("parquet_ambiguous", "parquet_unreadable")


@pytest.mark.parametrize(("number", "value"), [(7, 3), (8, 11)])
def test_a_decimal_of_another_scale_or_precision_for_readers_of_the_old_annotation_is_refused(
    number: int, value: int
) -> None:
    ((code, _),) = changed("a decimal", lambda element: put(element, number, I32, value))
    assert code in ("parquet_ambiguous", "parquet_unreadable")


def test_a_local_time_needs_no_old_annotation() -> None:
    """It would say that it is in UTC: PyArrow gives one to timestamps and none to times, Java to both."""
    for doc, kind, number in (("timestamp", pa.timestamp("us"), 10), ("time", pa.time64("us"), 8)):
        array: Any = pa.array([0, None], kind)
        table = pa.Table.from_arrays([array], schema=pa.schema([field("v", kind, 1)]))
        data = parquet(table, store_schema=False)

        def change(footer: Struct, number: int | None) -> None:
            drop(get(footer, 2)[1][1], CONVERTED)
            if number is not None:
                put(get(footer, 2)[1][1], CONVERTED, I32, number)

        for old in (None, number):
            changed = edited(data, functools.partial(change, number=old))
            assert observe_file(changed, metadata(column(1, "v", doc))).findings == ()


@pytest.mark.parametrize(("old", "new"), [(4, 4), (20, 13)], ids=["ENUM", "BSON"])
def test_bytes_that_are_text_for_some_are_refused(old: int, new: int) -> None:
    r"""DuckDB takes an enumeration for text, and turns its `\x41` into the byte `A`; BSON it does not know."""
    values: Any = pa.array([b"\\x41"])
    table = pa.Table.from_arrays([values], schema=pa.schema([field("v", pa.binary(), 1)]))
    honest = parquet(table, store_schema=False)
    for logical in (True, False):

        def change(footer: Struct, logical: bool = logical) -> None:
            put(get(footer, 2)[1][1], CONVERTED, I32, old)
            if logical:
                put(get(footer, 2)[1][1], LOGICAL, STRUCT, [[new, STRUCT, []]])

        found = observe_file(edited(honest, change), metadata(column(1, "v", "binary"))).findings
        assert [(each.code, each.message) for each in found] == REFUSED
    assert observe_file(honest, metadata(column(1, "v", "binary"))).findings == ()


def test_a_map_that_has_the_name_of_its_entries_is_refused() -> None:
    """Spark and DuckDB cannot read it."""

    def change(element: Struct) -> None:
        drop(element, LOGICAL)
        put(element, CONVERTED, I32, 2)

    assert changed("a map", change) == REFUSED
    # Of the entries themselves Java's writers say it.
    assert changed("a map", lambda element: put(element, CONVERTED, I32, 2), element=2) == []


@pytest.mark.parametrize("name", ["a list", "a map"])
def test_an_id_between_a_column_and_what_is_in_it_is_refused(name: str) -> None:
    """DuckDB looks for a column of that id, and shows nulls."""
    assert changed(name, lambda element: put(element, 9, I32, 77), element=2) == [
        ("parquet_ambiguous", "the file is refused")
    ]


def test_a_group_that_is_a_leaf_for_some_is_refused() -> None:
    assert changed("a list", lambda element: put(element, 1, I32, 2)) == REFUSED


@pytest.mark.parametrize("change", [lambda each: drop(each, 3), lambda each: put(each, 3, I32, 3)])
def test_a_column_that_is_neither_required_nor_optional_nor_repeated_is_refused(change: Any) -> None:
    ((code, _),) = changed("a text", change)
    assert code in ("parquet_ambiguous", "parquet_unreadable")


def test_a_type_that_is_new_is_refused() -> None:
    ((code, _),) = changed("a text", lambda element: put(element, LOGICAL, STRUCT, [[30, STRUCT, []]]))
    assert code in ("parquet_ambiguous", "parquet_unreadable")


def test_the_place_of_an_element_inside_another_is_named() -> None:
    inside = pa.struct([field("t", pa.string(), 2)])
    table = pa.Table.from_arrays([pa.array([{"t": "a"}], inside)], schema=pa.schema([field("v", inside, 1)]))
    data = edited(parquet(table, store_schema=False), lambda footer: drop(get(footer, 2)[1][2], CONVERTED))
    doc: Doc = {"type": "struct", "fields": [column(2, "t", "string")]}
    (only,) = observe_file(data, metadata(column(1, "v", doc))).findings
    assert only.message == "column 'v.t' is refused"
