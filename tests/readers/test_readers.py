"""Files that were changed field by field and accepted all the same read as the kernel read them, in every engine."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.readers.engines import quick_readers
from tests.readers.generation import Case, Change
from tests.readers.publishing import Lane, Publisher, publisher_at
from tests.readers.rows import arrow_rows, rows_of_case
from tests.readers.suite import Report, note, read_by_all, rows_of, run_lane
from tests.readers.writers import WRITERS

pytestmark = [
    pytest.mark.usefixtures("kernel"),
    # The engines' own: a warning that is raised would count as a file that the engine cannot read.
    pytest.mark.filterwarnings("ignore"),
]
SEED = os.environ.get("PVDM_READERS_SEED", "17")
FILES = 135
LANES = (Lane("open", 2), Lane("open", 3), Lane("copied", 2), Lane("copied", 3))


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


@pytest.mark.parametrize("storage", ["open", "copied"])
def test_honest_files_of_every_writer_read_the_same_in_every_engine(storage: str, publisher: Publisher) -> None:
    lane = Lane(storage)
    cases = [
        Case(number, Change(writer, (), None), writer.file(number), arrow_rows(rows_of_case(number), (), writer.lacks))
        for number, writer in enumerate(WRITERS)
    ]
    report = Report("honest", SEED)
    note(cases, report)
    found = publisher.publish(lane, {each.number: each.data for each in cases}, rows_of(cases))
    read_by_all(found, cases, quick_readers, report, every=True)
    assert report.lines() == []
    assert report.unreadable == {}
