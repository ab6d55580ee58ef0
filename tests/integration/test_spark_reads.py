"""Reads by unmodified Spark: time travel and metadata tables, with staged data for some roles only."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from pvdm.model.role import Role
from tests.support.spark.catalog import NO_BRANCH, SparkLake, spark_lake_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONSUMER = Role.CONSUMER
SEES_STAGED = (Role.PRODUCER, Role.STEWARD)
SNAPSHOT_TABLES = {
    "snapshots": "snapshot_id",
    "history": "snapshot_id",
    "refs": "snapshot_id",
    "entries": "snapshot_id",
}
FILE_TABLES = {
    "files": "file_path",
    "all_files": "file_path",
    "all_data_files": "file_path",
    "all_delete_files": "file_path",
    "all_entries": "data_file.file_path",
    "manifests": "path",
    "all_manifests": "path",
}


@dataclass(frozen=True, slots=True)
class Story:
    """A table with two published snapshots, a tag on the first, and two staged ones; format 3 with deletes."""

    lake: SparkLake
    name: str
    first: int
    second: int
    between: str
    staged: int
    files: frozenset[str]

    def file_names(self, role: Role, table: str) -> set[str]:
        """What a metadata table names, without the folders: Spark spells those in more than one way."""
        found = self.read(role, f".{table}", FILE_TABLES[table])
        return {str(path).rpartition("/")[2] for (path,) in found}

    def read(self, role: Role, what: str, column: str = "id") -> list[tuple[object, ...]]:
        return self.lake.run(f"select {column} from {{me}}.sales.{self.name}{what}", role)


@pytest.fixture(scope="module", params=[2, 3])
def story(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Story]:
    version, name = request.param, f"story{request.param}"
    with spark_lake_at(tmp_path_factory.mktemp(name), spark) as lake:
        lake.published(name, version, write_delete_mode="merge-on-read")
        first = lake.metadata(name).current_snapshot_id
        assert first is not None
        between = datetime.fromtimestamp(time.time(), UTC)
        lake.run(f"alter table {{me}}.sales.{name} create tag released as of version {first}", Role.OPERATOR)
        lake.run(f"insert into {{me}}.sales.{name}.branch_stage values (3, 'c')")
        second = lake.publish(name)
        before = lake.files()
        lake.run(f"insert into {{me}}.sales.{name}.branch_stage values (4, 'd')")
        lake.run(f"delete from {{me}}.sales.{name}.branch_stage where id = 1")
        staged = lake.metadata(name).refs["stage"].snapshot_id
        written = frozenset(path.name for path in lake.files() - before)
        yield Story(lake, name, first, second, f"{between:%Y-%m-%d %H:%M:%S.%f}", staged, written)


@pytest.mark.parametrize("role", [CONSUMER, *SEES_STAGED])
def test_every_role_reads_what_was_published(story: Story, role: Role) -> None:
    assert story.read(role, "") == [(1,), (2,), (3,)]
    assert story.read(role, f" version as of {story.first}") == [(1,), (2,)]
    assert story.read(role, f" version as of {story.second}") == [(1,), (2,), (3,)]
    assert story.read(role, f" timestamp as of '{story.between}'") == [(1,), (2,)]
    assert story.read(role, " version as of 'released'") == [(1,), (2,)]
    assert story.read(role, ".tag_released") == [(1,), (2,)]


@pytest.mark.parametrize("role", SEES_STAGED)
def test_those_who_stage_read_what_is_staged(story: Story, role: Role) -> None:
    for what in (".branch_stage", " version as of 'stage'", f" version as of {story.staged}"):
        assert story.read(role, what) == [(2,), (3,), (4,)]


def test_time_travel_of_a_consumer_to_what_is_staged_fails(story: Story) -> None:
    with pytest.raises(Exception, match=NO_BRANCH):
        story.read(CONSUMER, ".branch_stage")
    for what in ("'stage'", str(story.staged)):
        with pytest.raises(Exception, match=r"Cannot find (matching )?snapshot|snapshot ID or reference"):
            story.read(CONSUMER, f" version as of {what}")
    assert story.read(CONSUMER, " timestamp as of current_timestamp()") == [(1,), (2,), (3,)]


@pytest.mark.parametrize("table", SNAPSHOT_TABLES)
def test_a_consumers_metadata_tables_name_no_staged_snapshot(story: Story, table: str) -> None:
    shown = {found for (found,) in story.read(CONSUMER, f".{table}", SNAPSHOT_TABLES[table])}
    assert shown == {story.first, story.second}


@pytest.mark.parametrize("table", FILE_TABLES)
def test_a_consumers_metadata_tables_name_no_staged_file(story: Story, table: str) -> None:
    shown = story.file_names(CONSUMER, table)
    assert shown & story.files == set()
    assert bool(shown) is (table != "all_delete_files")


def test_the_steward_sees_staged_snapshots_and_files_in_them(story: Story) -> None:
    assert (story.staged,) in story.read(Role.STEWARD, ".snapshots", "snapshot_id")
    assert ("stage",) in story.read(Role.STEWARD, ".refs", "name")
    for table in ("all_data_files", "all_delete_files", "all_manifests"):
        assert story.file_names(Role.STEWARD, table) & story.files


def test_a_consumers_log_of_metadata_files_holds_the_one_it_was_given(story: Story) -> None:
    ((file, snapshot),) = story.read(CONSUMER, ".metadata_log_entries", "file, latest_snapshot_id")
    assert snapshot == story.second
    assert file != story.read(Role.STEWARD, ".metadata_log_entries", "max_by(file, timestamp)")[0][0]
