"""Unmodified Spark writes through the catalog: what each role can do on a branch, and what happens at main's gate."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pvdm.model.role import Role
from tests.support.spark.catalog import GATED, NO_BRANCH, READS_ONLY, SparkLake, spark_lake_at
from tests.support.spark.session import add_catalog_with_token, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PRODUCER, CONSUMER, STEWARD = Role.PRODUCER, Role.CONSUMER, Role.STEWARD
MERGE_ON_READ = {f"write_{command}_mode": "merge-on-read" for command in ("delete", "update", "merge")}
COMMANDS = {
    "insert": "insert into {table} values (9, 'n')",
    "overwrite": "insert overwrite {table} values (9, 'n')",
    "update": "update {table} set note = 'n' where id = 1",
    "delete rows": "delete from {table} where note = 'a'",
    "merge": "merge into {table} t using (select 1L as id, 'n' as note) s on t.id = s.id "
    "when matched then update set note = s.note when not matched then insert *",
}
TABLE_COMMANDS = {
    "truncate": "truncate table {table}",
    "delete all": "delete from {table}",
    "add column": "alter table {table} add column more string",
    "property": "alter table {table} set tblproperties ('a' = 'b')",
    "rename": "alter table {table} rename to {me}.sales.other",
    "drop": "drop table {table}",
    "rewrite": "call {me}.system.rewrite_data_files(table => 'sales.gate', options => map('rewrite-all', 'true'))",
}


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkLake]:
    with spark_lake_at(tmp_path_factory.mktemp("writes"), spark) as made:
        made.published("gate")
        yield made


@contextlib.contextmanager
def setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    spark.conf.set(key, value)
    try:
        yield
    finally:
        spark.conf.unset(key)


@pytest.mark.parametrize("role", [CONSUMER, STEWARD])
def test_a_consumer_and_the_steward_cannot_create_tables(lake: SparkLake, role: Role) -> None:
    with pytest.raises(Exception, match=READS_ONLY):
        lake.run("create table {me}.sales.mine (id bigint) using iceberg", role)
    with pytest.raises(Exception, match=READS_ONLY):
        lake.run("create table {me}.sales.mine using iceberg as select 1L as id", role)
    assert "mine" not in {name for _, name, _ in lake.run("show tables in {me}.sales")}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_first_write_to_an_empty_table_can_go_to_a_branch(lake: SparkLake, version: int) -> None:
    name = f"first{version}"
    lake.table(name, version, write_wap_enabled="true")
    with setting(lake.spark, "spark.wap.branch", "audit"):
        lake.run(f"insert into {{me}}.sales.{name} values (1, 'a')")
    found = lake.metadata(name)
    assert (found.current_snapshot_id, set(found.refs)) == (None, {"audit"})
    (only,) = found.snapshots
    assert (only.parent_id, only.snapshot_id) == (None, found.refs["audit"].snapshot_id)


def test_spark_reads_the_branch_that_it_writes_by_wap_and_consumers_read_main(lake: SparkLake) -> None:
    lake.published("wapped", write_wap_enabled="true")
    with setting(lake.spark, "spark.wap.branch", "audit"):
        lake.run("insert into {me}.sales.wapped values (3, 'c')", STEWARD)
        assert lake.run("select id from {me}.sales.wapped", PRODUCER) == [(1,), (2,), (3,)]
        assert lake.run("select id from {me}.sales.wapped", CONSUMER) == [(1,), (2,)]
        with pytest.raises(Exception, match=READS_ONLY):
            lake.run("insert into {me}.sales.wapped values (4, 'd')", CONSUMER)


def test_wap_by_id_is_refused_since_no_branch_would_hold_the_snapshot(lake: SparkLake) -> None:
    lake.published("by_id", write_wap_enabled="true")
    before = lake.files()
    with (
        setting(lake.spark, "spark.wap.id", "one"),
        pytest.raises(Exception, match="by_id is protected: a snapshot would be added that is on no branch"),
    ):
        lake.run("insert into {me}.sales.by_id values (3, 'c')")
    assert lake.files() == before


@pytest.mark.parametrize(("version", "one", "other"), [(1, PRODUCER, STEWARD), (2, STEWARD, PRODUCER)])
def test_rows_are_changed_on_a_branch_and_main_stays(lake: SparkLake, version: int, one: Role, other: Role) -> None:
    name = f"rows{version}"
    lake.published(name, version)
    table = f"{{me}}.sales.{name}.branch_stage"
    for command, role in (("insert", one), ("update", other), ("delete rows", one)):
        lake.run(COMMANDS[command].replace("{table}", table), role)
    lake.run(COMMANDS["merge"].replace("{table}", table).replace("1L", "2L"), other)
    assert lake.run(f"select * from {table}", one) == [(1, "n"), (2, "n"), (9, "n")]
    assert lake.run(f"select * from {{me}}.sales.{name}", CONSUMER) == [(1, "a"), (2, "b")]


def test_format_3_stages_deletion_vectors_and_keeps_row_lineage(lake: SparkLake) -> None:
    lake.published("lineage", 3, **MERGE_ON_READ)
    table = "{me}.sales.lineage.branch_stage"
    lake.run(f"insert into {table} values (3, 'c')", PRODUCER)
    lake.run(f"delete from {table} where id = 2", STEWARD)
    lake.run(f"update {table} set note = 'n' where id = 1", PRODUCER)
    merge = "merge into {table} t using (select 4L as id) s on t.id = s.id when not matched then insert (id) values (4)"
    lake.run(merge.replace("{table}", table), STEWARD)
    # Row 1 was the table's first row and keeps its row id. Its update was the last commit but one.
    found = lake.run(f"select id, _row_id, _last_updated_sequence_number from {table}")
    assert [row[:2] for row in found][:1] == [(1, 0)]
    assert len({row[1] for row in found}) == 3
    assert found[0][2] == lake.metadata("lineage").last_sequence_number - 1
    kinds = lake.run("select distinct content, file_format from {me}.sales.lineage.all_files", STEWARD)
    assert kinds == [(0, "PARQUET"), (1, "PUFFIN")]
    assert lake.run("select * from {me}.sales.lineage", CONSUMER) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("command", [*COMMANDS, *TABLE_COMMANDS])
def test_a_producers_change_of_main_is_refused_and_leaves_no_file(lake: SparkLake, command: str) -> None:
    statement = {**COMMANDS, **TABLE_COMMANDS}[command].replace("{table}", "{me}.sales.gate")
    document, files = lake.metadata("gate").to_bytes(), lake.files()
    with pytest.raises(Exception, match=GATED):
        lake.run(statement, PRODUCER)
    assert lake.metadata("gate").to_bytes() == document
    assert lake.files() == files


@pytest.mark.parametrize("command", COMMANDS)
def test_a_consumer_changes_no_row_and_leaves_no_file(lake: SparkLake, command: str) -> None:
    files = lake.files()
    with pytest.raises(Exception, match=READS_ONLY):
        lake.run(COMMANDS[command].replace("{table}", "{me}.sales.gate"), CONSUMER)
    with pytest.raises(Exception, match=NO_BRANCH):
        lake.run(COMMANDS[command].replace("{table}", "{me}.sales.gate.branch_stage"), CONSUMER)
    assert lake.files() == files


def test_the_steward_is_held_to_the_gate_as_well(lake: SparkLake) -> None:
    files = lake.files()
    with pytest.raises(Exception, match=GATED):
        lake.run("insert into {me}.sales.gate values (9, 'n')", STEWARD)
    with pytest.raises(Exception, match=GATED):
        lake.run("alter table {me}.sales.gate add column more string", STEWARD)
    assert lake.files() == files


def test_files_are_rewritten_on_a_branch(lake: SparkLake) -> None:
    lake.published("rewritten")
    shown = lake.metadata("rewritten").current_snapshot_id
    for role in (PRODUCER, STEWARD):
        lake.run("insert into {me}.sales.rewritten.branch_stage values (3, 'x')", role)
        ((old, new, *_),) = lake.run(
            "call {me}.system.rewrite_data_files(table => 'sales.rewritten', branch => 'stage', "
            "options => map('rewrite-all', 'true'))",
            role,
        )
        assert (old, new) == (2, 1)
    assert len(lake.run("select * from {me}.sales.rewritten.branch_stage")) == 4
    assert lake.metadata("rewritten").current_snapshot_id == shown


def test_a_branch_of_one_table_is_filled_from_the_branch_of_another(lake: SparkLake) -> None:
    lake.published("source")
    lake.published("target")
    lake.run("insert into {me}.sales.source.branch_stage values (3, 'c')")
    lake.run(
        "insert into {me}.sales.target.branch_stage select s.id + 10, t.note from {me}.sales.source.branch_stage s "
        "left join {me}.sales.target t on s.id = t.id"
    )
    assert lake.run("select id from {me}.sales.target.branch_stage") == [(1,), (11,), (12,), (13,), (2,)]
    assert lake.run("select id from {me}.sales.target", CONSUMER) == [(1,), (2,)]


def test_an_attempts_token_writes_under_the_attempts_prefix(spark: SparkSession, lake: SparkLake) -> None:
    lake.published("attempted", 3)
    table = lake.metadata("attempted")
    prefix = f"{table.location}/attempts/one"
    lake.run("alter table {me}.sales.attempted create branch one")
    caller = lake.lake.attempt(str(table.table_uuid), prefix, "one")
    me = add_catalog_with_token(
        spark, f"{lake.lake.steward.server.url}/catalog", caller.headers["authorization"].split()[1]
    )
    before = lake.files()
    spark.sql(f"insert into {me}.sales.attempted.branch_one values (3, 'c')")
    place = prefix.removeprefix("file://")
    written = lake.files() - before
    assert written
    assert {path for path in written if not str(path).startswith(f"{place}/")} == set()
    assert rows(spark.sql(f"select id from {me}.sales.attempted.branch_one")) == [(1,), (2,), (3,)]
    assert not any(key.startswith("write.") and key.endswith(".path") for key in lake.metadata("attempted").properties)
    for refused, sentence in (("branch_stage", "one attempt's branch only"), ("branch_main", GATED)):
        with pytest.raises(Exception, match=sentence):
            spark.sql(f"insert into {me}.sales.attempted.{refused} values (4, 'd')")
    assert lake.files() - before == written
