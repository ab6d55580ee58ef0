"""Differential reading with Spark and Trino: 20,000 accepted files, and lies that only these engines show."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import pvdm
from pvdm.model.role import Role
from tests.readers.engines import Reader, quick_readers
from tests.readers.generation import Case, Change
from tests.readers.jvm_engines import Spark, TrinoReader
from tests.readers.lies import LIES, honest, rows
from tests.readers.publishing import Lane, Published, Publisher, publisher_at
from tests.readers.suite import Report, read_by_all, run_lane
from tests.readers.writers import WRITERS, spark_writers
from tests.support.servers.trino import Trino, steward_catalog, trino_at
from tests.support.spark.session import compiled_queries, spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["compiled_queries", "spark"]
pytestmark = [
    pytest.mark.long,
    pytest.mark.usefixtures("kernel", "compiled_queries"),
    # The engines' own: a warning that is raised would count as a file that the engine cannot read.
    pytest.mark.filterwarnings("ignore"),
]
SEED = os.environ.get("PVDM_READERS_SEED", "17")
FILES = int(os.environ.get("PVDM_READERS_FILES", "20000"))
"""Accepted files of all tables together."""
BATCH = 1000
NO_TIME = ("clock",)
"""Spark has no times of day."""
LANES = (Lane("open", 2, NO_TIME), Lane("copied", 2, NO_TIME), Lane("open", 3, NO_TIME), Lane("copied", 3, NO_TIME))
Engines = Callable[[Published], Sequence[Reader]]


@pytest.fixture(scope="module")
def publisher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publisher]:
    with publisher_at(tmp_path_factory.mktemp("readers")) as made:
        yield made


@pytest.fixture(scope="module")
def trino(publisher: Publisher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    token = publisher.shop.steward.token_for(Role.CONSUMER, "sales").text
    catalogs = {"lake": steward_catalog(publisher.shop.steward.url, token)}
    with trino_at(tmp_path_factory.mktemp("trino"), catalogs) as running:
        yield running


@pytest.fixture(scope="module")
def jvm_readers(publisher: Publisher, spark: SparkSession, trino: Trino) -> Engines:
    """Spark twice, and Trino."""
    lake = f"readers_{publisher.shop.steward.url.rpartition(':')[2]}"
    pvdm.spark_session(publisher.shop.steward, Role.CONSUMER, "sales", name=lake)

    def open_readers(published: Published) -> Sequence[Reader]:
        return [
            Spark(spark, lake, published, vectorized=True),
            Spark(spark, lake, published, vectorized=False),
            TrinoReader(trino, published),
        ]

    return open_readers


@pytest.mark.parametrize("lane", LANES, ids=lambda lane: f"{lane.storage}-{lane.version}")
def test_changed_files_that_are_accepted_read_the_same_in_every_engine(
    lane: Lane, publisher: Publisher, spark: SparkSession, jvm_readers: Engines
) -> None:
    # Spark's vectorized reader has no booleans in pages of version 2.
    writers = [
        replace(each, lacks=(*each.lacks, "flag")) if each.name.endswith("v2") else each
        for each in (*WRITERS, *spark_writers(spark))
    ]
    lines: list[str] = []
    wanted, accepted = FILES // len(LANES), 0
    for batch in itertools.count():
        if accepted >= wanted:
            break
        report = run_lane(
            publisher,
            lane,
            writers,
            lambda found: [*quick_readers(found), *jvm_readers(found)],
            count=min(BATCH, wanted - accepted),
            seed=f"{SEED} {batch}",
            share=batch,
            sparing=True,
        )
        report.write(f"long-{lane.storage}-{lane.version}-{batch}")
        lines += report.lines()
        accepted += report.accepted
    assert lines == []


def failing_engines(publisher: Publisher, readers: Engines, name: str, *about: str) -> set[str]:
    """The engines that show other rows of a file with this lie, which nothing has verified, or fail on it."""
    report = Report("no gate", "", changes={0: name})
    case = Case(0, Change(WRITERS[0], (), None), LIES[name](), rows())
    found = publisher.publish_ungated(Lane(), {0: case.data})
    read_by_all(found, [case], readers, report, thorough=True, about=about)
    return {each.engine for each in report.differences} | {f"{engine} fails" for engine in report.unreadable}


@pytest.fixture(scope="module")
def trino_alone(trino: Trino) -> Engines:
    return lambda found: [TrinoReader(trino, found)]


def test_the_suite_finds_a_row_group_said_to_be_elsewhere(publisher: Publisher, trino_alone: Engines) -> None:
    assert "trino" in failing_engines(publisher, trino_alone, "a_row_group_said_to_be_elsewhere", "id")


def test_the_suite_finds_a_bloom_filter_of_another_width(publisher: Publisher, trino_alone: Engines) -> None:
    assert "trino" in failing_engines(publisher, trino_alone, "a_bloom_filter_of_another_width", "id")


def test_the_suite_finds_names_equal_in_lower_case(publisher: Publisher, trino_alone: Engines) -> None:
    assert "trino" in failing_engines(publisher, trino_alone, "names_equal_in_lower_case", "amount", "odd")


def read_named(publisher: Publisher, readers: Engines, name_pattern: str) -> Report:
    """Put an honest file with this name on a table without a gate, and ask the engines about the ids."""
    report = Report("no gate", "", changes={0: name_pattern})
    case = Case(0, Change(WRITERS[0], (), None), honest(NO_TIME), rows(NO_TIME))
    found = publisher.publish_ungated(Lane(without=NO_TIME), {0: case.data}, name_pattern)
    read_by_all(found, [case], readers, report, thorough=True, about=("id",))
    return report


def test_the_honest_file_is_read_as_it_is(publisher: Publisher, jvm_readers: Engines) -> None:
    report = read_named(publisher, jvm_readers, "a-b-{}.parquet")
    assert (report.lines(), report.unreadable) == ([], {})


def test_the_suite_finds_a_file_name_with_a_colon(publisher: Publisher, jvm_readers: Engines) -> None:
    report = read_named(publisher, jvm_readers, "a:b-{}.parquet")
    assert report.lines() == []
    assert set(report.unreadable) == {"spark", "spark by rows", "trino"}
