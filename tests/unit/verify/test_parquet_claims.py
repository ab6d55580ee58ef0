"""Claims of a Parquet file about its own values (statistics, indexes, filters): false ones are refused."""

from __future__ import annotations

import math
import re
import struct
from typing import Any

import pytest

from pvdm.verify.findings import SHOWN_TO_ALL_ROLES, Finding
from tests.support.for_each import for_each
from tests.support.parquet.edit import BINARY, COLUMN_INDEX, edit_footer, edit_page_index, get, put, statistics
from tests.support.parquet.lies import HONEST, LIES, RATIO, SORTED, TABLE, TOWN, file, rows
from tests.support.parquet.rare_lies import RARE_LIES
from tests.support.verify.staged import observe_file

pytestmark = pytest.mark.usefixtures("kernel")
ALL = {**LIES, **RARE_LIES}


def findings(data: bytes, table: Any = TABLE) -> tuple[Finding, ...]:
    return observe_file(data, table).findings


@for_each("name", ALL)
def test_a_false_claim_is_refused_with_its_row_group_and_column(name: str) -> None:
    lie = ALL[name]
    (finding,) = findings(lie.data)
    place = f"column '{lie.column}'" if lie.column else "the file"
    where = place if lie.group is None else f"{place}, row group {lie.group}"
    assert finding.code == lie.code
    assert re.fullmatch(
        rf"{re.escape(where)}(, page \d+)?(, row \d+)?( is refused|: [\w ]+ does not hold)", finding.message
    )


@for_each(
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
def test_a_finding_names_the_claim_and_the_page_with_expected_and_got(
    name: str, message: str, expected: str, got: str
) -> None:
    (finding,) = findings(LIES[name].data)
    assert (finding.message, finding.expected, finding.got) == (message, expected, got)


@for_each("name", ALL)
def test_the_same_file_without_the_false_claim_is_accepted(name: str) -> None:
    assert findings(ALL[name].honest) == ()


def test_a_file_without_statistics_is_accepted() -> None:
    def change(footer: Any) -> None:
        for leaf in range(8):
            statistics(footer, leaf).clear()

    assert findings(edit_footer(HONEST, change)) == ()


def test_a_cut_text_bound_is_accepted_if_it_is_marked_inexact() -> None:
    def change(footer: Any) -> None:
        put(statistics(footer, TOWN), 5, BINARY, b"towo")
        put(statistics(footer, TOWN), 6, BINARY, b"tow")
        for number in (7, 8):
            put(statistics(footer, TOWN), number, 2, value=False)

    assert findings(edit_footer(HONEST, change)) == ()


def test_a_cut_text_in_the_page_index_is_accepted() -> None:
    def change(found: Any) -> None:
        get(found, 2)[1][:] = [b"to"] * 3
        get(found, 3)[1][:] = [b"tp"] * 3

    assert findings(edit_page_index(HONEST, COLUMN_INDEX, TOWN, change)) == ()


def test_zeros_of_either_sign_are_accepted_as_bounds() -> None:
    zeros = rows().to_pylist()
    for row in zeros:
        row["ratio"] = 0.0
    honest = file(type(rows()).from_pylist(zeros, schema=rows().schema), write_page_index=False)
    for low, high in ((b"\0" * 8, b"\0" * 8), (b"\0" * 7 + b"\x80", b"\0" * 7 + b"\x80")):

        def change(footer: Any, low: bytes = low, high: bytes = high) -> None:
            put(statistics(footer, RATIO), 5, BINARY, high)
            put(statistics(footer, RATIO), 6, BINARY, low)

        assert findings(edit_footer(honest, change)) == ()


def file_with_nan(*, least: bool) -> bytes:
    """A file with NaN in some rows, and NaN as the least or the greatest value, as Spark writes it."""
    with_nans = [{**row, "ratio": math.nan if row["id"] % 2 else row["ratio"]} for row in rows().to_pylist()]
    data = file(type(rows()).from_pylist(with_nans, schema=rows().schema), write_page_index=False)

    def change(footer: Any) -> None:
        for number in (2, 6) if least else (1, 5):
            put(statistics(footer, RATIO), number, BINARY, struct.pack("<d", math.nan))

    return edit_footer(data, change)


def test_nan_is_accepted_as_the_greatest_value_and_refused_as_the_least() -> None:
    assert findings(file_with_nan(least=False)) == ()
    assert [each.code for each in findings(file_with_nan(least=True))] == ["parquet_statistics_lie"]


def test_a_correct_sort_order_is_accepted() -> None:
    assert findings(SORTED) == ()


def test_findings_that_all_roles_see_show_no_values() -> None:
    bounds = {"parquet_statistics_lie", "parquet_page_index_lies"}
    assert not SHOWN_TO_ALL_ROLES & bounds
    shown = [finding for lie in ALL.values() if lie.code not in bounds for finding in findings(lie.data)]
    assert {each.code for each in shown} <= SHOWN_TO_ALL_ROLES
    assert not [each for each in shown if "town 0" in f"{each.expected}{each.got}"]
