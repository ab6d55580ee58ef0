"""Rows that `SmallStager` stages without a JVM: Parquet, manifests and one commit with the attempt's token."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pvdm.client import AccessToken, StewardClient
from pvdm.errors import InputError, NotAllowedError, PvdmError, StateUnknownError, UnavailableError
from pvdm.lake.format.manifest.entry import DataFile
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.paths import parse_location
from pvdm.lake.read.entries import live_entries
from pvdm.model.statements.core import Operation
from pvdm.physical.small import SmallStager
from pvdm.physical.stager import Destination
from tests.support.catalog.http import Lake, lake_at
from tests.support.steward.notary import RealTime

_NUMBERS = itertools.count(1)


def _column(number: int, name: str, kind: object, *, required: bool = False) -> dict[str, Any]:
    return {"id": number, "name": name, "required": required, "type": kind}


COLUMNS = [
    _column(1, "id", "long", required=True),
    _column(2, "region", "string"),
    _column(3, "at", "timestamptz"),
    _column(4, "amount", "decimal(9, 2)"),
]


def spec_by(*fields: tuple[int, str, str]) -> dict[str, Any]:
    return {
        "spec-id": 0,
        "fields": [
            {"source-id": source, "field-id": 1000 + at, "name": name, "transform": transform}
            for at, (source, name, transform) in enumerate(fields)
        ],
    }


REGION = spec_by((2, "region", "identity"))


def rows(*values: tuple[int, str | None]) -> pa.Table:
    at = datetime(2026, 11, 15, 9, 30, tzinfo=UTC)
    return pa.table(
        {
            "id": pa.array([number for number, _ in values], pa.int64()),
            "region": pa.array([region for _, region in values], pa.string()),
            "at": pa.array([at for _ in values], pa.timestamp("us", "UTC")),
            "amount": pa.array([Decimal(number) for number, _ in values], pa.decimal128(9, 2)),
        }
    )


@dataclass(slots=True)
class StagingAttempt:
    """An attempt at a table, with which tests stage rows and read its branch."""

    lake: Lake
    to: Destination
    client: StewardClient

    def stage(self, table: pa.Table, operation: Operation = Operation.APPEND, **partition: str | None) -> None:
        to = replace(self.to, operation=operation, partition=tuple(sorted(partition.items())))
        SmallStager(self.client).stage(lambda: table, to)

    def metadata(self) -> TableMetadata:
        return self.lake.steward.stand.notary.catalog.states.get(*self.to.table_parts).metadata

    def files(self) -> list[DataFile]:
        metadata = self.metadata()
        snapshot = metadata.snapshot(metadata.refs[self.to.branch].snapshot_id)
        assert snapshot is not None
        return [entry.data_file for entry in live_entries(metadata, snapshot, _Disk())]

    def read(self) -> pa.Table:
        return pa.concat_tables(
            [pq.ParquetFile(parse_location(file.file_path).local).read() for file in self.files()]
        ).sort_by("id")

    def ids(self) -> list[Any]:
        return [] if not self.files() else self.read().column("id").to_pylist()

    def files_on_disk(self) -> set[Path]:
        return {path for path in parse_location(self.metadata().location).local.rglob("*") if path.is_file()}


class _Disk:
    def read(self, location: str, *, max_bytes: int) -> bytes:
        return parse_location(location).local.read_bytes()[: max_bytes + 1]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with lake_at(tmp_path_factory.mktemp("lake"), clock=RealTime()) as made:
        yield made


@contextlib.contextmanager
def attempt_at(
    lake: Lake, spec: dict[str, Any] | None = None, *, columns: list[dict[str, Any]] = COLUMNS, version: int = 2
) -> Iterator[StagingAttempt]:
    """An attempt at a new, empty table."""
    name = f"t{next(_NUMBERS)}"
    schema = {"type": "struct", "schema-id": 0, "fields": columns}
    more: dict[str, Any] = {} if spec is None else {"partition-spec": spec}
    made = lake.caller().make(name, schema=schema, properties={"format-version": str(version)}, **more)["metadata"]
    lake.protect(name)
    branch, prefix = f"pvdm_{name}", f"{made['location']}/pvdm/{name}"
    caller = lake.attempt(made["table-uuid"], prefix, branch)
    token = AccessToken(caller.headers["authorization"].split()[1])
    url = lake.steward.server.url
    to = Destination(url, f"sales.{name}", branch, prefix, "work", "all", "00" * 16, token, Operation.APPEND)
    with StewardClient(url) as client:
        yield StagingAttempt(lake, to, client)


@pytest.mark.parametrize("version", [2, 3])
def test_the_first_rows_of_an_empty_table_are_on_the_branch_and_not_on_main(lake: Lake, version: int) -> None:
    with attempt_at(lake, version=version) as attempt:
        attempt.stage(rows((1, "eu"), (2, None)))
        assert attempt.ids() == [1, 2]
        metadata = attempt.metadata()
        assert metadata.current_snapshot_id is None
        head = metadata.snapshot(metadata.refs[attempt.to.branch].snapshot_id)
        assert head is not None
        assert {key: head.summary[key] for key in attempt.to.summary} == attempt.to.summary


def test_all_files_are_written_below_the_attempts_prefix(lake: Lake) -> None:
    with attempt_at(lake) as attempt:
        before = attempt.files_on_disk()
        attempt.stage(rows((1, "eu")))
        prefix = parse_location(attempt.to.prefix).local
        written = attempt.files_on_disk() - before
        assert {path.relative_to(prefix).parts[0] for path in written} == {"data", "metadata"}


def test_files_have_the_tables_field_ids(lake: Lake) -> None:
    with attempt_at(lake) as attempt:
        attempt.stage(rows((1, "eu")))
        schema = pq.ParquetFile(parse_location(attempt.files()[0].file_path).local).schema_arrow
        assert [(field.metadata or {}).get(b"PARQUET:field_id") for field in schema] == [b"1", b"2", b"3", b"4"]


def test_rows_are_split_by_partition(lake: Lake) -> None:
    with attempt_at(lake, REGION) as attempt:
        attempt.stage(rows((1, "eu"), (2, "us"), (3, "eu"), (4, None)))
        found = {file.partition[1000]: file.record_count for file in attempt.files()}
        assert found == {"eu": 2, "us": 1, None: 1}


@pytest.mark.parametrize(
    ("source", "transform", "value"),
    [
        (1, "bucket[4]", 3),
        (1, "truncate[10]", 0),
        (2, "truncate[1]", "e"),
        (3, "year", 56),
        (3, "month", 682),
        (3, "day", 20772),
        (3, "hour", 498537),
        (4, "identity", Decimal("7.00")),
        (2, "void", None),
    ],
)
def test_a_partition_value_is_that_of_the_transform(lake: Lake, source: int, transform: str, value: object) -> None:
    with attempt_at(lake, spec_by((source, "p", transform))) as attempt:
        attempt.stage(rows((7, "eu")))
        assert [file.partition[1000] for file in attempt.files()] == [value]


def test_a_second_append_keeps_the_first(lake: Lake) -> None:
    with attempt_at(lake, REGION) as attempt:
        attempt.stage(rows((1, "eu")))
        attempt.stage(rows((2, "eu")))
        assert attempt.ids() == [1, 2]


def test_an_overwrite_of_partitions_replaces_those_that_have_rows(lake: Lake) -> None:
    with attempt_at(lake, REGION) as attempt:
        attempt.stage(rows((1, "eu"), (2, "us"), (3, None)))
        attempt.stage(rows((4, "us"), (5, None)), Operation.OVERWRITE_PARTITIONS)
        assert attempt.ids() == [1, 4, 5]


def test_a_declared_partition_is_emptied_if_no_rows_are_staged(lake: Lake) -> None:
    with attempt_at(lake, REGION) as attempt:
        attempt.stage(rows((1, "eu"), (2, "us"), (3, None)))
        attempt.stage(rows().slice(0, 0), Operation.OVERWRITE_PARTITIONS, region="us")
        assert attempt.ids() == [1, 3]
        attempt.stage(rows().slice(0, 0), Operation.OVERWRITE_PARTITIONS, region=None)
        assert attempt.ids() == [1]


def test_an_overwrite_replaces_everything(lake: Lake) -> None:
    with attempt_at(lake, REGION) as attempt:
        attempt.stage(rows((1, "eu"), (2, "us")))
        attempt.stage(rows((3, "eu")), Operation.OVERWRITE)
        assert attempt.ids() == [3]


def test_an_append_without_rows_makes_no_snapshot(lake: Lake) -> None:
    with attempt_at(lake, REGION) as attempt:
        attempt.stage(rows().slice(0, 0))
        assert attempt.metadata().snapshots == ()


def test_columns_are_matched_by_name_and_widened(lake: Lake) -> None:
    with attempt_at(lake) as attempt:
        given = rows((1, "eu")).select(["amount", "region", "at", "id"])
        given = given.set_column(3, "id", given.column("id").cast(pa.int32()))
        given = given.set_column(1, "region", given.column("region").dictionary_encode())
        attempt.stage(given)
        assert attempt.read().select(["id", "region"]).to_pylist() == [{"id": 1, "region": "eu"}]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (rows((1, "eu")).drop_columns(["at"]), "rows_columns_differ"),
        (rows((1, "eu")).append_column("more", pa.array([1])), "rows_columns_differ"),
        (rows((1, "eu")).set_column(0, "id", pa.array([1.0])), "rows_type_differs"),
        (rows((1, "eu")).set_column(0, "id", pa.array(["1"])), "rows_type_differs"),
        (rows((1, "eu")).set_column(2, "at", pa.array([0], pa.timestamp("us"))), "rows_type_differs"),
        (
            rows((1, "eu")).set_column(3, "amount", pa.array([Decimal("0.001")], pa.decimal128(9, 3))),
            "rows_type_differs",
        ),
        (rows((1, "eu")).set_column(0, "id", pa.array([None], pa.int64())), "rows_null_required"),
        ([{"id": 1}], "rows_not_a_table"),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_nothing_is_left(lake: Lake, given: Any, code: str) -> None:
    with attempt_at(lake) as attempt:
        before = attempt.files_on_disk()
        with pytest.raises(InputError) as caught:
            attempt.stage(given)
        assert caught.value.reason == code
        assert attempt.files_on_disk() == before
        assert attempt.metadata().snapshots == ()


def test_a_commit_that_the_catalog_refuses_leaves_no_files(lake: Lake) -> None:
    with attempt_at(lake) as attempt:
        before = attempt.files_on_disk()
        attempt.to = replace(attempt.to, branch="pvdm_other")
        with pytest.raises(NotAllowedError) as caught:
            attempt.stage(rows((1, "eu")))
        assert caught.value.reason == "branch_of_other_attempt"
        assert attempt.files_on_disk() == before


def test_a_commit_is_made_again_if_the_branch_has_moved(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with attempt_at(lake) as attempt:
        from pvdm.client.table import TableClient

        moved: list[bool] = []
        whole = TableClient.commit

        def commit(self: TableClient, requirements: Any, updates: Any) -> Any:
            if not moved:
                moved.append(True)
                monkeypatch.setattr(TableClient, "commit", whole)
                attempt.stage(rows((9, "us")))  # to the same branch, so the required head is not its head any more
            return whole(self, requirements, updates)

        monkeypatch.setattr(TableClient, "commit", commit)
        attempt.stage(rows((1, "eu")))
        assert attempt.ids() == [1, 9]
        lists = {path.name for path in attempt.files_on_disk() if path.name.startswith("snap-")}
        assert len(lists) == 2


def test_a_commit_whose_answer_is_lost_counts(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with attempt_at(lake) as attempt:
        from pvdm.client.table import TableClient

        whole = TableClient.commit

        def commit(self: TableClient, requirements: Any, updates: Any) -> Any:
            whole(self, requirements, updates)
            raise StateUnknownError("answer_lost", "lost")

        monkeypatch.setattr(TableClient, "commit", commit)
        attempt.stage(rows((1, "eu")))
        assert attempt.ids() == [1]


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (UnavailableError("steward_unreachable", "it is away"), StateUnknownError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
    ids=["away", "interrupted"],
)
def test_a_commit_keeps_its_files_if_it_cannot_be_found_out_whether_it_happened(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, failure: BaseException, raised: type[BaseException]
) -> None:
    with attempt_at(lake) as attempt, monkeypatch.context() as patched:
        from pvdm.client.table import TableClient

        whole = TableClient.commit

        def lose_steward(*_: object, **__: object) -> None:
            raise failure

        def commit(self: TableClient, requirements: Any, updates: Any) -> Any:
            whole(self, requirements, updates)
            patched.setattr(TableClient, "load", lose_steward)
            raise StateUnknownError("answer_lost", "lost")

        patched.setattr(TableClient, "commit", commit)
        with pytest.raises(raised):
            attempt.stage(rows((1, "eu")))
        assert attempt.ids() == [1]


def test_a_commit_that_is_interrupted_while_it_is_answered_keeps_its_files(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with attempt_at(lake) as attempt, monkeypatch.context() as patched:
        from pvdm.client.table import TableClient

        whole = TableClient.commit

        def commit(self: TableClient, requirements: Any, updates: Any) -> Any:
            whole(self, requirements, updates)
            raise KeyboardInterrupt

        patched.setattr(TableClient, "commit", commit)
        with pytest.raises(KeyboardInterrupt):
            attempt.stage(rows((1, "eu")))
        assert attempt.ids() == [1]


def test_nested_columns_dates_and_uuids_are_written(lake: Lake) -> None:
    import uuid

    columns = [
        _column(1, "id", "long"),
        _column(2, "day", "date"),
        _column(3, "key", "uuid"),
        _column(4, "raw", "fixed[2]"),
        _column(5, "tags", {"type": "list", "element-id": 6, "element": "string", "element-required": False}),
        _column(
            7,
            "counts",
            {"type": "map", "key-id": 8, "key": "string", "value-id": 9, "value": "long", "value-required": False},
        ),
        _column(10, "at", {"type": "struct", "fields": [_column(11, "x", "double"), _column(12, "y", "double")]}),
    ]
    key = uuid.UUID(int=7)
    given = pa.table(
        {
            "id": [1],
            "day": [date(2026, 11, 15)],
            "key": pa.array([key.bytes], pa.binary(16)),
            "raw": pa.array([b"ab"], pa.binary(2)),
            "tags": [["a", None]],
            "counts": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
            "at": [{"x": 1.5, "y": None}],
        }
    )
    with attempt_at(lake, spec_by((2, "day", "identity"), (3, "key_bucket", "bucket[8]")), columns=columns) as attempt:
        attempt.stage(given)
        (found,) = attempt.read().to_pylist()
        assert (found["day"], found["tags"], found["counts"], found["at"]) == (
            date(2026, 11, 15),
            ["a", None],
            [("k", 1)],
            {"x": 1.5, "y": None},
        )
        schema = pq.ParquetFile(parse_location(attempt.files()[0].file_path).local).schema
        assert "UUID" in str(schema.column(2).logical_type)


def test_a_prefix_in_a_store_that_is_not_configured_is_refused(lake: Lake) -> None:
    with attempt_at(lake) as attempt:
        attempt.to = replace(attempt.to, prefix="s3://bucket/t")
        with pytest.raises(PvdmError) as caught:
            attempt.stage(rows((1, "eu")))
        assert caught.value.reason == "store_not_configured"
