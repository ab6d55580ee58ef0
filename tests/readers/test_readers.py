"""Files that were changed field by field and accepted all the same read as the kernel read them, in every engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.readers.engines import DataFusion, DuckDB, NoAggregates, PyIceberg, iceberg_readers, quick_readers
from tests.readers.generation import Case, Change
from tests.readers.publishing import DELETED, Lane, Publisher, publisher_at, publisher_on_s3
from tests.readers.rows import arrow_rows, rows_of_case
from tests.readers.suite import Report, make_cases, read_by_all, record_cases, rows_of, run_lane
from tests.readers.writers import WRITERS
from tests.support.stores.s3_server import S3Server, s3_server

__all__ = ["s3_server"]
pytestmark = [
    pytest.mark.usefixtures("kernel"),
    # The engines' own: a warning that is raised would count as a file that the engine cannot read.
    pytest.mark.filterwarnings("ignore"),
]
SEED = os.environ.get("PVDM_READERS_SEED", "17")
LANES = (Lane("open", 2), Lane("open", 3), Lane("copied", 2), Lane("copied", 3))
FILES = int(os.environ.get("PVDM_READERS_FILES", "24")) // len(LANES)
"""Accepted files of each table; `make test-readers` has more of them."""
FEWER = max(6, FILES // 6)
"""Accepted files of the tables with deletes, and of those in an object store."""
OLD_CASE = 900_000
"""The number of the file that is on the table before it is protected: above the numbers of all other cases."""


@pytest.fixture(scope="module")
def publisher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publisher]:
    with publisher_at(tmp_path_factory.mktemp("readers")) as made:
        yield made


@pytest.mark.parametrize("lane", LANES, ids=lambda lane: f"{lane.storage}-{lane.version}")
def test_changed_files_that_are_accepted_read_the_same_in_every_engine(lane: Lane, publisher: Publisher) -> None:
    report = run_lane(publisher, lane, WRITERS, quick_readers, count=FILES, seed=SEED, share=LANES.index(lane))
    report.write(f"{lane.storage}-{lane.version}")
    assert report.accepted >= FILES * 0.95, report.to_json()
    assert report.lines() == []


@pytest.mark.parametrize(
    ("storage", "thorough"), [("open", False), ("copied", False), pytest.param("open", True, marks=pytest.mark.long)]
)
def test_honest_files_of_every_writer_read_the_same_in_every_engine(
    storage: str, thorough: bool, publisher: Publisher
) -> None:
    lane = Lane(storage)
    cases = [
        Case(number, Change(writer, (), None), writer.file(number), arrow_rows(rows_of_case(number), (), writer.lacks))
        for number, writer in enumerate(WRITERS)
    ]
    report = Report("honest", SEED)
    record_cases(cases, report)
    found = publisher.publish(lane, {each.number: each.data for each in cases}, rows_of(cases))
    read_by_all(found, cases, quick_readers, report, thorough=thorough)
    assert report.lines() == []
    assert report.unreadable == {}


@pytest.mark.parametrize(
    "lane", [Lane("open", 2), Lane("copied", 3)], ids=lambda lane: f"{lane.storage}-{lane.version}"
)
def test_files_beside_deleted_rows_read_the_same(lane: Lane, publisher: Publisher) -> None:
    """An old file has a delete file, or a deletion vector; neither hides a row of what is published."""
    report = Report(f"{lane.name}, with deletes", SEED)
    cases = make_cases(lane, WRITERS, FEWER, f"{SEED} deletes", report)
    old = Case(OLD_CASE, Change(WRITERS[0], (), None), WRITERS[0].file(OLD_CASE), arrow_rows(rows_of_case(OLD_CASE)))
    data = {each.number: each.data for each in cases}
    found = publisher.publish(lane, data, rows_of(cases), {OLD_CASE: old.data})
    read_by_all(found, cases, quick_readers, report)
    left = [position for position in range(old.rows.num_rows) if position not in DELETED]
    shown = replace(old, rows=old.rows.take(left))
    record_cases([shown], report)
    read_by_all(found, [shown], lambda each: [NoAggregates(reader) for reader in iceberg_readers(each)], report)
    report.write(f"deletes-{lane.storage}-{lane.version}")
    assert report.lines() == []
    assert OLD_CASE not in {case for cases in report.unreadable.values() for case in cases}


def test_files_in_an_object_store_read_the_same(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyIceberg reads them in the store; the other engines read copies of the objects."""
    lane = Lane("copied", 2)
    s3_server.lend_to(monkeypatch)
    report = Report(f"{lane.name}, S3", SEED)
    cases = make_cases(lane, WRITERS, FEWER, f"{SEED} s3", report)
    with publisher_on_s3(tmp_path, s3_server.bucket()) as publisher:
        found = publisher.publish(lane, {each.number: each.data for each in cases}, rows_of(cases))
        assert all(each.startswith("s3://") for each in found.locations.values())
        read_by_all(found, cases, lambda each: [PyIceberg(each), DuckDB(each, iceberg=False), DataFusion(each)], report)
    report.write("s3")
    assert report.lines() == []
