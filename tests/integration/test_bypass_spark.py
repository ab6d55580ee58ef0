"""Attempts through unmodified Spark and PyIceberg to change what main shows, or to see what is not published."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import ForbiddenError, UnauthorizedError

from pvdm.catalog.commit import Change
from pvdm.lake.format.table.main_state import MainState
from pvdm.lake.paths import parse_location
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.tables import TableRow
from pvdm.metadata.gate.target import Permit
from pvdm.model.role import Role
from tests.support.catalog.http import Lake, lake_at, set_ref
from tests.support.spark.session import as_role, rows
from tests.support.steward.notary import RealTime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = "/namespaces/sales/tables/t"
SHOWN = [(1, "a"), (2, "b"), (3, "c")]
GATED = "protected"  # in the message of every refusal by the gate


@dataclass(slots=True)
class Stage:
    """A lake with the protected table `sales.t`, whose branch `secretwork` no consumer may see."""

    spark: SparkSession
    lake: Lake
    names: dict[str, str]
    words: dict[str, Any] = field(default_factory=dict)
    before: dict[str, object] = field(default_factory=dict)

    def snapshot(self, name: str) -> int:
        """The id of a snapshot by the word that statements have for it."""
        return int(str(self.words[name]))

    def sql(self, text: str, by: str = "producer") -> Any:
        """Run a statement; returns its rows. `{c}` is the caller's catalog, `{t}` its table `sales.t`."""
        catalog = self.names[by]
        return rows(self.spark.sql(text.format(c=catalog, t=f"{catalog}.sales.t", **self.words)))

    def row(self, name: str = "t") -> TableRow:
        with self.lake.steward.stand.notary.ledger.read() as unit:
            row = tables.find(unit, namespaces.get(unit, ("sales",)).namespace_id, name)
        assert row is not None, "the table is gone"
        return row

    @property
    def home(self) -> str:
        return self.row().location

    def main(self) -> dict[str, object]:
        """What main shows, to the ledger, to a consumer's client, and on disk."""
        row = self.row()
        metadata = self.lake.steward.stand.notary.catalog.states.load(row).metadata
        answer = self.lake.caller(Role.CONSUMER, "sales").ask("GET", T)
        return {
            "row": (row.table_id, row.name, row.table_uuid, row.location, row.contract_hash),
            "main state": json.dumps(sorted(MainState.of(metadata).facts.items())).encode(),
            "answer": (answer.content, answer.headers["etag"]),
            "file": Path(answer.json()["metadata-location"].removeprefix("file://")).read_bytes(),
            "data files": {path: each for path, each in self.files().items() if path in self.words["data files"]},
        }

    def require_main(self) -> None:
        """Require that `main` shows what it showed before all attacks."""
        after = self.main()
        for name, value in self.before.items():
            assert after[name] == value, f"{name} is not what it was"

    def require_rows(self) -> None:
        """Require that Spark reads the rows of `main` as a consumer."""
        assert self.sql("select * from {t}", "consumer") == SHOWN

    def files(self) -> dict[str, str]:
        """Every file in the table's place."""
        found = sorted(path for path in Path(self.home.removeprefix("file://")).rglob("*") if path.is_file())
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}

    def referenced(self) -> list[str]:
        """The data files of every snapshot, as paths."""
        return [str(parse_location(row[0]).local) for row in self.sql("select file_path from {t}.all_files")]

    def staged_traces(self) -> list[str]:
        """Texts that show staging: the branch's name, its snapshot, its files, and the Steward's full documents."""
        metadata = self.lake.caller().done("GET", T)["metadata"]
        hidden, snapshots = self.snapshot("hidden"), metadata["snapshots"]
        staged = [each["manifest-list"] for each in snapshots if each["snapshot-id"] == hidden]
        logged = [each["metadata-file"] for each in metadata["metadata-log"]]
        return ["secretwork", str(hidden), str(self.words["file"]), *staged, *logged]

    def pyiceberg(self, role: Role, domain: str = "sales") -> Catalog:
        token, _ = self.lake.steward.stand.token(role, domain, f"pyiceberg-{role}")
        return load_catalog(f"py{role}", type="rest", uri=f"{self.lake.steward.server.url}/catalog", token=token)


def publish(lake: Lake, snapshot_id: int) -> None:
    """Move `main` as the gate does: with a permit for exactly this change."""

    def permit(before: Any, _: Any, data: bytes) -> Permit:
        return Permit(before.row.table_uuid, before.row.pointer.sha256, hashlib.sha256(data).hexdigest())

    grant = lake.steward.stand.grant(Role.STEWARD, "*", "the-gate")
    change = Change(("sales",), "t", (), [set_ref("main", snapshot_id)])
    lake.steward.stand.notary.catalog.commits.commit(grant, [change], make_permit=permit)


@pytest.fixture(scope="module")
def stage(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with lake_at(tmp_path_factory.mktemp("bypass"), clock=RealTime()) as lake:
        names = {role.value: as_role(spark, lake, role) for role in (Role.PRODUCER, Role.CONSUMER, Role.STEWARD)}
        names["operator"] = as_role(spark, lake, Role.OPERATOR, "*")
        names["stranger"] = as_role(spark, lake, Role.PRODUCER, "risk")
        attacked = Stage(spark, lake, names)
        _prepare(attacked)
        files = attacked.files()
        yield attacked
        attacked.require_main()
        attacked.require_rows()
        after = attacked.files()
        assert {path: after.get(path) for path in files} == files


def _prepare(made: Stage) -> None:
    """Real files on main, the last of them published by a permit, and a row that is staged."""
    made.sql(
        "create table {t} (id bigint not null, note string) using iceberg partitioned by (note)"
        " tblproperties ('team' = 'sales')"
    )
    made.sql("insert into {t} values (1, 'a')")
    made.words["between"] = made.sql("select current_timestamp()")[0][0]
    made.sql("insert into {t} values (2, 'b')")
    made.lake.protect("t")
    made.sql("alter table {t} create branch third")
    made.sql("insert into {c}.sales.t.branch_third values (3, 'c')")
    metadata = made.lake.caller().done("GET", T)["metadata"]
    head = metadata["refs"]["third"]["snapshot-id"]
    publish(made.lake, head)
    made.sql("alter table {t} drop branch third")
    made.sql("alter table {t} create branch secretwork")
    made.sql("insert into {c}.sales.t.branch_secretwork values (66, 'secret')")
    refs = made.lake.caller().done("GET", T)["metadata"]["refs"]
    first, second = (entry["snapshot-id"] for entry in metadata["snapshot-log"])
    made.words |= {"first": first, "second": second, "head": head, "hidden": refs["secretwork"]["snapshot-id"]}
    made.words["old"] = made.row().pointer.location
    made.words["file"] = made.sql("select _file from {c}.sales.t.branch_secretwork where id = 66")[0][0]
    made.sql("alter table {t} create tag v1 as of version {first}", "operator")
    shown = made.sql("select file_path from {t}.files", "consumer")
    made.words["data files"] = {str(parse_location(row[0]).local) for row in shown}
    made.before = made.main()
    assert len(made.words["data files"]) == len(SHOWN)
    made.require_rows()


WRITES = {
    "insert": "insert into {t} values (9, 'x')",
    "insert to branch main": "insert into {c}.sales.t.branch_main values (9, 'x')",
    "insert overwrite": "insert overwrite {t} values (9, 'x')",
    "delete": "delete from {t} where id = 1",
    "delete all": "delete from {t}",
    "truncate": "truncate table {t}",
    "update": "update {t} set note = 'x' where id = 1",
    "merge": "merge into {t} using (select 1L as id) s on {t}.id = s.id when matched then delete",
    "add column": "alter table {t} add column extra string",
    "drop column": "alter table {t} drop column id",
    "rename column": "alter table {t} rename column note to words",
    "column comment": "alter table {t} alter column note comment 'x'",
    "column order": "alter table {t} alter column note first",
    "identifier fields": "alter table {t} set identifier fields id",
    "properties": "alter table {t} set tblproperties ('write.wap.enabled' = 'true')",
    "expiry property": "alter table {t} set tblproperties ('history.expire.max-snapshot-age-ms' = '1')",
    "take property away": "alter table {t} unset tblproperties ('team')",
    "format version": "alter table {t} set tblproperties ('format-version' = '3')",
    "location": "alter table {t} set location 'file:///tmp/elsewhere'",
    "sort order": "alter table {t} write ordered by id",
    "distribution": "alter table {t} write distributed by partition",
    "add partition field": "alter table {t} add partition field id",
    "replace partition field": "alter table {t} replace partition field note with truncate(1, note)",
    "drop partition field": "alter table {t} drop partition field note",
    "rename": "alter table {t} rename to sales.u",
    "drop": "drop table {t}",
    "purge": "drop table {t} purge",
    "rtas": "replace table {t} using iceberg as select 9L as id, 'x' as note",
    "create or replace": "create or replace table {t} (id bigint) using iceberg",
    "create or replace as": "create or replace table {t} using iceberg as select 9L as id",
    "replace branch": "alter table {t} replace branch main as of version {hidden}",
    "create or replace branch": "alter table {t} create or replace branch main as of version {hidden}",
    "retention": "alter table {t} replace branch main as of version {head} retain 1 days",
    "snapshot retention": "alter table {t} create or replace branch main with snapshot retention 1 snapshots",
    "drop branch": "alter table {t} drop branch main",
    "drop tag": "alter table {t} drop tag v1",
    "replace tag": "alter table {t} replace tag v1 as of version {hidden}",
    "tag": "alter table {t} create tag v2 as of version {hidden}",
    "rollback": "call {c}.system.rollback_to_snapshot('sales.t', {first})",
    "rollback in time": "call {c}.system.rollback_to_timestamp('sales.t', timestamp '{between}')",
    "set current": "call {c}.system.set_current_snapshot('sales.t', {hidden})",
    "set current by ref": "call {c}.system.set_current_snapshot(table => 'sales.t', ref => 'secretwork')",
    "fast forward": "call {c}.system.fast_forward('sales.t', 'main', 'secretwork')",
    "cherrypick": "call {c}.system.cherrypick_snapshot('sales.t', {hidden})",
    "expire": "call {c}.system.expire_snapshots(table => 'sales.t', snapshot_ids => array({second}))",
    "rewrite data": "call {c}.system.rewrite_data_files(table => 'sales.t', options => map('rewrite-all', 'true'))",
    "rewrite manifests": "call {c}.system.rewrite_manifests('sales.t')",
    "table statistics": "call {c}.system.compute_table_stats('sales.t')",
    "partition statistics": "call {c}.system.compute_partition_stats('sales.t')",
    "register over": "call {c}.system.register_table('sales.t', '{old}')",
    "register beside": "call {c}.system.register_table('sales.u', '{old}')",
}
OTHER_MESSAGES = {
    "location": "outside the warehouse",
    "drop branch": "Cannot remove main branch",
    "drop tag": "tag",
    "replace tag": "tag",
    "tag": "tag",
    "register over": "already exists",
    "register beside": "outside the warehouse",
}


# Statements of `make test-long`: Spark sends the same kind of update as for another statement, or
# tests/behaviour/catalog/test_bypass_rest*.py has a request of the same form.
LONG = frozenset(
    {
        "insert to branch main", "delete all", "truncate", "column comment", "column order", "expiry property",
        "take property away", "distribution", "replace partition field", "drop partition field", "create or replace",
        "create or replace as", "create or replace branch", "snapshot retention", "rollback in time",
        "set current by ref", "partition statistics", "register beside", "sort order", "rename column",
    }
)  # fmt: skip


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=pytest.mark.long) if what in LONG else what for what in WRITES]
)
def test_no_statement_changes_what_main_shows(stage: Stage, what: str) -> None:
    with pytest.raises(Exception, match=OTHER_MESSAGES.get(what, GATED)):
        stage.sql(WRITES[what])
    stage.require_main()


@pytest.mark.parametrize("by", ["operator", "steward", "consumer", "stranger"])
@pytest.mark.parametrize("what", ["insert", "drop column", "drop", "create or replace as", "fast forward"])
def test_no_token_of_another_role_or_domain_changes_what_main_shows(stage: Stage, what: str, by: str) -> None:
    with pytest.raises(Exception, match=r"protected|role|domain|only reads|Forbidden|not allow|not exist"):
        stage.sql(WRITES[what], by)
    stage.require_main()


WRITERS: dict[str, Callable[[Any, str], None]] = {
    "append": lambda frame, table: frame.writeTo(table).append(),
    "overwrite partitions": lambda frame, table: frame.writeTo(table).overwritePartitions(),
    "replace": lambda frame, table: frame.writeTo(table).using("iceberg").replace(),
    "create or replace": lambda frame, table: frame.writeTo(table).using("iceberg").createOrReplace(),
    "save": lambda frame, table: frame.write.mode("append").saveAsTable(table),
    "save, with a branch that Spark forgets": lambda frame, table: (
        frame.write.option("branch", "secretwork").mode("append").saveAsTable(table)
    ),
    "write, with a branch that Spark forgets": lambda frame, table: (
        frame.writeTo(table).option("branch", "secretwork").append()
    ),
}


@pytest.mark.parametrize("what", WRITERS)
def test_no_frame_is_written_to_main(stage: Stage, what: str) -> None:
    frame = stage.spark.sql("select 9L as id, 'x' as note")
    with pytest.raises(Exception, match=GATED):
        WRITERS[what](frame, f"{stage.names['producer']}.sales.t")
    stage.require_main()


def test_a_write_under_a_wap_id_is_refused_and_nothing_is_there_to_publish(stage: Stage) -> None:
    with _set(stage.spark, "spark.wap.id", "one"), pytest.raises(Exception, match=GATED):
        stage.sql("insert into {t} values (9, 'x')")
    with pytest.raises(Exception, match=r"[Cc]annot|unknown|WAP"):
        stage.sql("call {c}.system.publish_changes('sales.t', 'one')")
    stage.require_main()


def test_sparks_clean_up_procedures_remove_nothing_of_main(stage: Stage) -> None:
    files = stage.files()
    for path in files:
        os.utime(path, (1_600_000_000, 1_600_000_000))  # old enough to be an orphan, if nothing named it
    stage.sql("call {c}.system.remove_orphan_files(table => 'sales.t')")
    stage.sql("call {c}.system.expire_snapshots(table => 'sales.t', older_than => timestamp '2020-01-01 00:00:00')")
    stage.require_main()
    stage.require_rows()
    assert set(stage.referenced()) <= set(stage.files())


READS_OF_STAGED_ROWS = {
    "a branch": "select * from {c}.sales.t.branch_secretwork",
    "a branch by version": "select * from {t} version as of 'secretwork'",
    "a snapshot": "select * from {t} version as of {hidden}",
    "ancestors": "call {c}.system.ancestors_of('sales.t', {hidden})",
}


@pytest.mark.parametrize("what", READS_OF_STAGED_ROWS)
def test_a_consumer_does_not_read_what_is_hidden(stage: Stage, what: str) -> None:
    assert stage.sql(READS_OF_STAGED_ROWS[what], "producer"), "it is there"
    with pytest.raises(Exception, match=r"[Cc]annot|[Cc]ould not|not find|NOT_FOUND|unknown|not exist"):
        stage.sql(READS_OF_STAGED_ROWS[what], "consumer")


def test_the_files_table_of_a_hidden_snapshot_shows_a_consumer_no_staging(stage: Stage) -> None:
    answer = str(stage.sql("select * from {t}.files version as of {hidden}", "consumer"))
    assert not [word for word in stage.staged_traces() if word in answer]


METADATA_TABLES = (
    "refs", "snapshots", "history", "metadata_log_entries", "files", "all_files", "data_files", "all_data_files",
    "delete_files", "all_delete_files", "manifests", "all_manifests", "entries", "all_entries", "partitions",
    "position_deletes",
)  # fmt: skip


@pytest.mark.parametrize("table", METADATA_TABLES)
def test_no_metadata_table_tells_a_consumer_of_staging(stage: Stage, table: str) -> None:
    whole, seen = (str(stage.sql(f"select * from {{t}}.{table}", by)) for by in ("producer", "consumer"))
    staged = set(stage.staged_traces())
    assert not [word for word in staged if word in seen]
    if table in ("refs", "snapshots", "all_files", "all_entries", "metadata_log_entries"):
        assert [word for word in staged if word in whole], "the producer sees what the consumer does not"


def test_a_consumer_sees_only_main_by_time_travel(stage: Stage) -> None:
    assert stage.sql("select * from {t} timestamp as of now()", "consumer") == SHOWN
    assert stage.sql("select * from {t} version as of 'v1'", "consumer") == SHOWN[:1]
    assert stage.sql("select * from {t} version as of {first}", "consumer") == SHOWN[:1]


FIELDS: list[pa.Field[Any]] = [pa.field("id", pa.int64(), nullable=False), pa.field("note", pa.string())]
ROWS = pa.table({"id": [9], "note": ["x"]}, schema=pa.schema(FIELDS))
PYICEBERG: dict[str, Callable[[Catalog, Stage], object]] = {
    "append": lambda catalog, _: catalog.load_table("sales.t").append(ROWS),
    "overwrite": lambda catalog, _: catalog.load_table("sales.t").overwrite(ROWS),
    "delete": lambda catalog, _: catalog.load_table("sales.t").delete("id = 1"),
    "set current": lambda catalog, stage: (
        catalog.load_table("sales.t").manage_snapshots().set_current_snapshot(stage.snapshot("hidden")).commit()
    ),
    "tag": lambda catalog, stage: (
        catalog.load_table("sales.t").manage_snapshots().create_tag(stage.snapshot("hidden"), "v2").commit()
    ),
    "expire": lambda catalog, stage: (
        catalog.load_table("sales.t").maintenance.expire_snapshots().by_id(stage.snapshot("second")).commit()
    ),
    "schema": lambda catalog, _: _schema(catalog),
    "properties": lambda catalog, _: (
        catalog.load_table("sales.t").transaction().set_properties(a="b").commit_transaction()
    ),
    "drop": lambda catalog, _: catalog.drop_table("sales.t"),
    "purge": lambda catalog, _: catalog.purge_table("sales.t"),
    "rename": lambda catalog, _: catalog.rename_table("sales.t", "sales.u"),
    "register": lambda catalog, stage: catalog.register_table("sales.u", str(stage.words["old"])),
}


@pytest.mark.parametrize("what", PYICEBERG)
def test_pyiceberg_changes_nothing_of_main(stage: Stage, what: str) -> None:
    with pytest.raises(ForbiddenError):
        PYICEBERG[what](stage.pyiceberg(Role.PRODUCER), stage)
    stage.require_main()


def test_pyiceberg_without_a_token_sees_nothing(stage: Stage) -> None:
    with pytest.raises(UnauthorizedError):
        load_catalog("nobody", type="rest", uri=f"{stage.lake.steward.server.url}/catalog").load_table("sales.t")


def test_pyiceberg_with_a_consumers_token_sees_only_main(stage: Stage) -> None:
    table = stage.pyiceberg(Role.CONSUMER).load_table("sales.t")
    assert sorted(table.refs()) == ["main", "v1"]
    assert table.scan().to_arrow().sort_by("id")["id"].to_pylist() == [1, 2, 3]
    for found in (table.inspect.refs(), table.inspect.snapshots(), table.inspect.history(), table.inspect.all_files()):
        assert not [word for word in stage.staged_traces() if word in str(found.to_pylist())]
    assert not [word for word in stage.staged_traces() if word in str(table.inspect.metadata_log_entries().to_pylist())]
    assert table.snapshot_by_id(stage.snapshot("hidden")) is None
    with pytest.raises(ValueError, match="not found"):
        table.scan(snapshot_id=stage.snapshot("hidden")).to_arrow()


def _schema(catalog: Catalog) -> None:
    with catalog.load_table("sales.t").update_schema() as update:
        update.delete_column("id")


@contextlib.contextmanager
def _set(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    spark.conf.set(key, value)
    try:
        yield
    finally:
        spark.conf.unset(key)
