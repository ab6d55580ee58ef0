"""Rows staged without a JVM: Parquet, manifests and one commit through the served catalog, with the attempt's token."""

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
from pvdm.errors import InputError, NotAllowedError, PvdmError
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


def _by(*fields: tuple[int, str, str]) -> dict[str, Any]:
    return {
        "spec-id": 0,
        "fields": [
            {"source-id": source, "field-id": 1000 + at, "name": name, "transform": transform}
            for at, (source, name, transform) in enumerate(fields)
        ],
    }


REGION = _by((2, "region", "identity"))


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
class Staged:
    """One attempt at a table, and what its branch shows."""

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

    def on_disk(self) -> set[Path]:
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
) -> Iterator[Staged]:
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
        yield Staged(lake, to, client)


@pytest.mark.parametrize("version", [2, 3])
def test_the_first_rows_of_an_empty_table_are_on_the_branch_and_not_on_main(lake: Lake, version: int) -> None:
    with attempt_at(lake, version=version) as staged:
        staged.stage(rows((1, "eu"), (2, None)))
        assert staged.ids() == [1, 2]
        metadata = staged.metadata()
        assert metadata.current_snapshot_id is None
        head = metadata.snapshot(metadata.refs[staged.to.branch].snapshot_id)
        assert head is not None
        assert {key: head.summary[key] for key in staged.to.summary} == staged.to.summary


def test_everything_lies_below_the_attempts_prefix(lake: Lake) -> None:
    with attempt_at(lake) as staged:
        before = staged.on_disk()
        staged.stage(rows((1, "eu")))
        prefix = parse_location(staged.to.prefix).local
        written = staged.on_disk() - before
        assert {path.relative_to(prefix).parts[0] for path in written} == {"data", "metadata"}


def test_files_carry_the_tables_field_ids(lake: Lake) -> None:
    with attempt_at(lake) as staged:
        staged.stage(rows((1, "eu")))
        schema = pq.ParquetFile(parse_location(staged.files()[0].file_path).local).schema_arrow
        assert [(field.metadata or {}).get(b"PARQUET:field_id") for field in schema] == [b"1", b"2", b"3", b"4"]


def test_rows_are_split_by_partition(lake: Lake) -> None:
    with attempt_at(lake, REGION) as staged:
        staged.stage(rows((1, "eu"), (2, "us"), (3, "eu"), (4, None)))
        found = {file.partition[1000]: file.record_count for file in staged.files()}
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
def test_a_partition_value_is_the_transforms(lake: Lake, source: int, transform: str, value: object) -> None:
    with attempt_at(lake, _by((source, "p", transform))) as staged:
        staged.stage(rows((7, "eu")))
        assert [file.partition[1000] for file in staged.files()] == [value]


def test_a_second_append_keeps_the_first(lake: Lake) -> None:
    with attempt_at(lake, REGION) as staged:
        staged.stage(rows((1, "eu")))
        staged.stage(rows((2, "eu")))
        assert staged.ids() == [1, 2]


def test_an_overwrite_of_partitions_replaces_those_that_have_rows(lake: Lake) -> None:
    with attempt_at(lake, REGION) as staged:
        staged.stage(rows((1, "eu"), (2, "us"), (3, None)))
        staged.stage(rows((4, "us"), (5, None)), Operation.OVERWRITE_PARTITIONS)
        assert staged.ids() == [1, 4, 5]


def test_declared_partitions_are_replaced_even_by_nothing(lake: Lake) -> None:
    with attempt_at(lake, REGION) as staged:
        staged.stage(rows((1, "eu"), (2, "us"), (3, None)))
        staged.stage(rows().slice(0, 0), Operation.OVERWRITE_PARTITIONS, region="us")
        assert staged.ids() == [1, 3]
        staged.stage(rows().slice(0, 0), Operation.OVERWRITE_PARTITIONS, region=None)
        assert staged.ids() == [1]


def test_an_overwrite_replaces_everything(lake: Lake) -> None:
    with attempt_at(lake, REGION) as staged:
        staged.stage(rows((1, "eu"), (2, "us")))
        staged.stage(rows((3, "eu")), Operation.OVERWRITE)
        assert staged.ids() == [3]


def test_no_rows_make_no_snapshot(lake: Lake) -> None:
    with attempt_at(lake, REGION) as staged:
        staged.stage(rows().slice(0, 0))
        assert staged.metadata().snapshots == ()


def test_columns_go_by_name_and_are_widened(lake: Lake) -> None:
    with attempt_at(lake) as staged:
        given = rows((1, "eu")).select(["amount", "region", "at", "id"])
        given = given.set_column(3, "id", given.column("id").cast(pa.int32()))
        given = given.set_column(1, "region", given.column("region").dictionary_encode())
        staged.stage(given)
        assert staged.read().select(["id", "region"]).to_pylist() == [{"id": 1, "region": "eu"}]


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
    with attempt_at(lake) as staged:
        before = staged.on_disk()
        with pytest.raises(InputError) as caught:
            staged.stage(given)
        assert caught.value.reason == code
        assert staged.on_disk() == before
        assert staged.metadata().snapshots == ()


def test_what_the_catalog_refuses_leaves_nothing(lake: Lake) -> None:
    with attempt_at(lake) as staged:
        before = staged.on_disk()
        staged.to = replace(staged.to, branch="pvdm_other")
        with pytest.raises(NotAllowedError) as caught:
            staged.stage(rows((1, "eu")))
        assert caught.value.reason == "branch_of_other_attempt"
        assert staged.on_disk() == before


def test_a_table_that_moves_meanwhile_is_met_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with attempt_at(lake) as staged:
        from pvdm.client.table import TableClient

        moved: list[bool] = []
        whole = TableClient.commit

        def commit(self: TableClient, requirements: Any, updates: Any) -> Any:
            if not moved:
                moved.append(True)
                monkeypatch.setattr(TableClient, "commit", whole)
                staged.stage(rows((9, "us")))  # the same branch, so the head that was required is another one
            return whole(self, requirements, updates)

        monkeypatch.setattr(TableClient, "commit", commit)
        staged.stage(rows((1, "eu")))
        assert staged.ids() == [1, 9]
        listed = {path.name for path in staged.on_disk() if path.name.startswith("snap-")}
        assert len(listed) == 2


def test_a_lost_answer_is_settled_by_looking(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with attempt_at(lake) as staged:
        from pvdm.client.table import TableClient
        from pvdm.errors import StateUnknownError

        whole = TableClient.commit

        def commit(self: TableClient, requirements: Any, updates: Any) -> Any:
            whole(self, requirements, updates)
            raise StateUnknownError("answer_lost", "lost")

        monkeypatch.setattr(TableClient, "commit", commit)
        staged.stage(rows((1, "eu")))
        assert staged.ids() == [1]


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
    with attempt_at(lake, _by((2, "day", "identity"), (3, "key_bucket", "bucket[8]")), columns=columns) as staged:
        staged.stage(given)
        (found,) = staged.read().to_pylist()
        assert (found["day"], found["tags"], found["counts"], found["at"]) == (
            date(2026, 11, 15),
            ["a", None],
            [("k", 1)],
            {"x": 1.5, "y": None},
        )
        schema = pq.ParquetFile(parse_location(staged.files()[0].file_path).local).schema
        assert "UUID" in str(schema.column(2).logical_type)


def test_a_store_that_the_steward_does_not_know_is_refused(lake: Lake) -> None:
    with attempt_at(lake) as staged:
        staged.to = replace(staged.to, prefix="s3://bucket/t")
        with pytest.raises(PvdmError) as caught:
            staged.stage(rows((1, "eu")))
        assert caught.value.reason == "store_not_configured"
