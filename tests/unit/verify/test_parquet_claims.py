"""What a Parquet file claims about its own values: each lie is refused, and the file without it is not."""

from __future__ import annotations

import math
import re
import struct
from typing import Any

import pytest

from pvdm.verify.findings import SHOWN_TO_ALL_ROLES, Finding
from tests.support.for_each import for_each
from tests.support.parquet.edit import BINARY, COLUMN_INDEX, edited, get, index_edited, put, statistics
from tests.support.parquet.lies import HONEST, LIES, RATIO, SORTED, TABLE, TOWN, file, rows
from tests.support.parquet.rare_lies import RARE
from tests.support.verify.staged import observe_file

pytestmark = pytest.mark.usefixtures("kernel")
ALL = {**LIES, **RARE}


def findings(data: bytes, table: Any = TABLE) -> tuple[Finding, ...]:
    return observe_file(data, table).findings


@for_each("name", ALL)
def test_a_lie_is_refused_with_its_row_group_and_column(name: str) -> None:
    lie = ALL[name]
    (only,) = findings(lie.data)
    place = f"column '{lie.column}'" if lie.column else "the file"
    where = place if lie.group is None else f"{place}, row group {lie.group}"
    assert only.code == lie.code
    assert re.fullmatch(
        rf"{re.escape(where)}(, page \d+)?(, row \d+)?( is refused|: [\w ]+ does not hold)", only.message
    )


@pytest.mark.parametrize(
    ("name", "message", "expected", "got"),
    [
        ("a greatest value too small", "column 'id', row group 0: max_value does not hold", "29", "3"),
        ("an old greatest value", "column 'id', row group 0: deprecated max does not hold", "29", "3"),
        ("a least text too large", "column 'town', row group 0: min_value does not hold", '"town 00"', '"town 01"'),
        ("no nulls", "column 'town', row group 0: null_count does not hold", "1", "0"),
        ("distinct values", "column 'town', row group 0: distinct_count does not hold", "7", "6"),
        ("a page's greatest value", "column 'id', row group 0, page 5: max_value does not hold", "59", "3"),
        (
            "a page's greatest value in the index",
            "column 'id', row group 0, page 1: max_values does not hold",
            "19",
            "12",
        ),
        ("a page of other rows", "column 'id', row group 0, page 1: first_row_index does not hold", "10", "5"),
        (
            "a codec that Spark lacks",
            "column 'id', row group 0 is refused",
            "no compression, SNAPPY, GZIP, ZSTD or LZ4_RAW, which every engine reads",
            "BROTLI",
        ),
    ],
)
def test_a_finding_says_which_claim_of_which_page_and_what_the_values_have(
    name: str, message: str, expected: str, got: str
) -> None:
    (only,) = findings(LIES[name].data)
    assert (only.message, only.expected, only.got) == (message, expected, got)


@for_each("name", ALL)
def test_the_same_file_without_the_lie_passes(name: str) -> None:
    assert findings(ALL[name].honest) == ()


def test_what_is_absent_is_no_claim() -> None:
    def change(footer: Any) -> None:
        for leaf in range(8):
            statistics(footer, leaf).clear()

    assert findings(edited(HONEST, change)) == ()


def test_a_text_may_be_cut_where_it_is_not_said_exact() -> None:
    def change(footer: Any) -> None:
        put(statistics(footer, TOWN), 5, BINARY, b"towo")
        put(statistics(footer, TOWN), 6, BINARY, b"tow")
        for number in (7, 8):
            put(statistics(footer, TOWN), number, 2, value=False)

    assert findings(edited(HONEST, change)) == ()


def test_a_cut_text_in_the_page_index_passes() -> None:
    def change(found: Any) -> None:
        get(found, 2)[1][:] = [b"to"] * 3
        get(found, 3)[1][:] = [b"tp"] * 3

    assert findings(index_edited(HONEST, COLUMN_INDEX, TOWN, change)) == ()


def test_either_zero_stands_for_both() -> None:
    zeros = rows().to_pylist()
    for row in zeros:
        row["ratio"] = 0.0
    honest = file(type(rows()).from_pylist(zeros, schema=rows().schema), write_page_index=False)
    for low, high in ((b"\0" * 8, b"\0" * 8), (b"\0" * 7 + b"\x80", b"\0" * 7 + b"\x80")):

        def change(footer: Any, low: bytes = low, high: bytes = high) -> None:
            put(statistics(footer, RATIO), 5, BINARY, high)
            put(statistics(footer, RATIO), 6, BINARY, low)

        assert findings(edited(honest, change)) == ()


def with_nan(*, least: bool) -> bytes:
    """Some rows are NaN, and the statistics say so as Spark does."""
    odd = [{**row, "ratio": math.nan if row["id"] % 2 else row["ratio"]} for row in rows().to_pylist()]
    data = file(type(rows()).from_pylist(odd, schema=rows().schema), write_page_index=False)

    def change(footer: Any) -> None:
        for number in (2, 6) if least else (1, 5):
            put(statistics(footer, RATIO), number, BINARY, struct.pack("<d", math.nan))

    return edited(data, change)


def test_nan_may_be_the_greatest_value_where_there_is_one_and_never_the_least_of_others() -> None:
    assert findings(with_nan(least=False)) == ()
    assert [each.code for each in findings(with_nan(least=True))] == ["parquet_statistics_lie"]


def test_rows_that_are_sorted_may_say_so() -> None:
    assert findings(SORTED) == ()


def test_a_bound_that_lies_is_not_told_to_producers() -> None:
    bounds = {"parquet_statistics_lie", "parquet_page_index_lies"}
    assert not SHOWN_TO_ALL_ROLES & bounds
    told = [only for lie in ALL.values() if lie.code not in bounds for only in findings(lie.data)]
    assert {each.code for each in told} <= SHOWN_TO_ALL_ROLES
    assert not [each for each in told if "town 0" in f"{each.expected}{each.got}"]
