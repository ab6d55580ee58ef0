"""The suite finds lies that verification refuses: without the gate, some engine shows other rows or fails.

tests/long/test_readers_long.py has the two lies that only Trino shows.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.readers.engines import quick_readers
from tests.readers.generation import Case, Change
from tests.readers.lies import LIES, honest, rows
from tests.readers.publishing import Lane, Publisher, publisher_at
from tests.readers.suite import Report, read_by_all
from tests.readers.writers import WRITERS

pytestmark = [
    pytest.mark.usefixtures("kernel"),
    # The engines' own: a warning that is raised would count as a file that the engine cannot read.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def publisher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publisher]:
    with publisher_at(tmp_path_factory.mktemp("lies")) as made:
        yield made


def read(publisher: Publisher, data: bytes, *about: str) -> Report:
    """Put the file on a table without a gate, and ask the engines about these columns, or about all."""
    report = Report("no gate", "", changes={0: "the lie"})
    case = Case(0, Change(WRITERS[0], (), None), data, rows())
    read_by_all(publisher.publish_ungated(Lane(), {0: data}), [case], quick_readers, report, thorough=True, about=about)
    return report


def engines_with_other_rows(report: Report) -> set[str]:
    return {each.engine for each in report.differences}


def test_the_honest_file_is_read_as_it_is(publisher: Publisher) -> None:
    report = read(publisher, honest())
    assert (report.lines(), report.unreadable) == ([], {})


def test_the_suite_finds_statistics_longer_than_the_type(publisher: Publisher) -> None:
    assert "pyiceberg" in engines_with_other_rows(read(publisher, LIES["statistics_longer_than_the_type"](), "price38"))


def test_the_suite_finds_map_children_named_the_other_way_round(publisher: Publisher) -> None:
    assert "duckdb iceberg" in engines_with_other_rows(
        read(publisher, LIES["map_children_named_the_other_way_round"](), "counts")
    )


def test_the_suite_finds_names_that_are_not_the_table_s(publisher: Publisher) -> None:
    assert {"duckdb", "datafusion"} <= engines_with_other_rows(
        read(publisher, LIES["names_that_are_not_the_table_s"](), "amount", "odd")
    )


def test_the_suite_finds_names_equal_in_lower_case(publisher: Publisher) -> None:
    assert "duckdb" in engines_with_other_rows(read(publisher, LIES["names_equal_in_lower_case"](), "amount", "odd"))


def test_the_suite_finds_a_bloom_filter_of_bytes(publisher: Publisher) -> None:
    assert "duckdb iceberg" in engines_with_other_rows(read(publisher, LIES["a_bloom_filter_of_bytes"](), "code"))


def test_the_suite_finds_statistics_in_one_row_group_only(publisher: Publisher) -> None:
    assert "datafusion" in engines_with_other_rows(read(publisher, LIES["statistics_in_one_row_group_only"](), "small"))


def test_the_suite_finds_an_arrow_schema_that_contradicts(publisher: Publisher) -> None:
    """Polars takes the type from the Arrow schema, and shows other values or cannot read the column."""
    report = read(publisher, LIES["an_arrow_schema_that_contradicts"](), "town")
    assert "polars" in {*engines_with_other_rows(report), *report.unreadable}


@pytest.mark.parametrize("sign", ["?", "#"])
def test_the_suite_finds_a_file_name_that_an_engine_cannot_open(sign: str, publisher: Publisher) -> None:
    report = Report("no gate", "", changes={0: "the lie"})
    case = Case(0, Change(WRITERS[0], (), None), honest(), rows())
    found = publisher.publish_ungated(Lane(), {0: case.data}, f"a{sign}b-{{}}.parquet")
    read_by_all(found, [case], quick_readers, report, thorough=True, about=("id",))
    assert "pyiceberg" in report.unreadable
