"""A source that cannot be read as the contract says is refused at the opening, or it ends the attempt."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pvdm.errors import InputError, PvdmError, UnavailableError
from pvdm.lake.paths import parse_location
from pvdm.lake.read.entries import listed_manifests
from pvdm.ledger.work import nonces, workloads
from pvdm.model.role import Role
from pvdm.model.states import AttemptState, WorkloadState
from pvdm.steward.work.opened import decode_refusal
from tests.support.gate.approvals import scene_at
from tests.support.verify.attempts import RAW, ROWS, SALES, SCHEMA, Bench, arrow, bench_at, contract, write

pytest.importorskip("pvdm_kernel")

FIELDS = [
    {"id": 1, "name": "id", "required": False, "type": "long"},
    {"id": 2, "name": "at", "required": False, "type": "timestamptz"},
    {"id": 3, "name": "more", "required": False, "type": "timestamptz"},
]
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


class FileSource:
    """A Steward, and a set of Parquet files from which its table `sales.times` is filled."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench = bench
        self.folder = folder
        self.manifest = folder / "manifest.json"
        self.paths: list[Path] = []

    def write(self, name: str, columns: dict[str, Any], **options: Any) -> Path:
        path = self.folder / name
        pq.write_table(pa.table(columns), path, **options)
        self.paths.append(path)
        return path

    def write_manifest(self) -> None:
        files = [
            {
                "path": str(path),
                "size": path.stat().st_size,
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for path in self.paths
        ]
        schema = {"type": "struct", "schema-id": 0, "fields": FIELDS}
        self.manifest.write_text(json.dumps({"kind": "pvdm/source-files/v1", "schema": schema, "files": files}))

    def open(self, workload_id: str = "work") -> Any:
        grant = self.bench.scene.grant(Role.PRODUCER, "sales")
        return self.bench.workloads.open(grant, workload_id, "sales.times", {})

    def open_refused(self) -> PvdmError:
        """Write the manifest and open a workload, which must be refused. Returns the error."""
        self.write_manifest()
        with pytest.raises(PvdmError) as caught:
            self.open()
        with self.bench.scene.notary.ledger.read() as unit:
            assert workloads.find(unit, "work") is None
        return caught.value


@pytest.fixture
def source(tmp_path: Path) -> Iterator[FileSource]:
    with scene_at(tmp_path) as scene:
        source = FileSource(Bench(scene, tmp_path), tmp_path)
        table: Any = {"name": "times", "schema": {**SCHEMA, "fields": FIELDS[:2]}}
        scene.notary.catalog.tables.create(scene.grant(), SALES, table)
        contract_text = contract().replace("table: raw.orders", f"files: {{manifest: {source.manifest}}}")
        contract_text = contract_text.replace("target: sales.sums", "columns: [id, at]\n  target: sales.times")
        source.write_manifest()
        scene.protect(scene.protection("times", contract=contract_text))
        yield source


def timestamps() -> Any:
    return pa.array([NOON], pa.timestamp("us", "UTC"))


def test_an_opening_reads_only_the_footers_of_files(source: FileSource) -> None:
    source.write("a.parquet", {"id": [1], "at": timestamps()})
    path = source.write("b.parquet", {"id": [2], "at": timestamps()})
    data = bytearray(path.read_bytes())
    data[4:40] = bytes(36)  # destroys pages, which the opening does not read
    path.write_bytes(data)
    source.write_manifest()
    assert source.open().state is WorkloadState.OPEN


def test_int96_is_refused_at_opening_with_the_setting_that_avoids_it(source: FileSource) -> None:
    source.write("a.parquet", {"id": [1], "at": timestamps()})
    path = source.write("b.parquet", {"id": [2], "at": timestamps()}, use_deprecated_int96_timestamps=True)
    error = source.open_refused()
    assert (error.reason, error.exit_code, error.details["column"]) == ("source_int96", 2, "at")
    assert str(path) in error.message
    assert "spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS" in str(error.hint)


def test_an_unread_column_may_be_of_any_type(source: FileSource) -> None:
    source.write("a.parquet", {"id": [1], "at": timestamps(), "more": ["x"]})
    source.write_manifest()
    assert source.open().state is WorkloadState.OPEN


@pytest.mark.parametrize(
    ("columns", "cause"),
    [
        ({"id": ["one"], "at": timestamps()}, "cast_refused"),
        ({"id": [1], "at": pa.array([NOON.replace(tzinfo=None)], pa.timestamp("us"))}, "cast_refused"),
        ({"id": [1], "when": timestamps()}, "field_name_unknown"),
    ],
)
def test_columns_that_do_not_fit_the_schema_are_refused_at_opening(
    source: FileSource, columns: dict[str, Any], cause: str
) -> None:
    path = source.write("a.parquet", columns)
    error = source.open_refused()
    assert (error.reason, error.exit_code, error.details["cause"]) == ("source_unusable", 2, cause)
    assert str(path) in error.message


def test_a_missing_file_makes_the_source_unreadable_at_opening(source: FileSource) -> None:
    path = source.write("a.parquet", {"id": [1], "at": timestamps()})
    source.write_manifest()
    path.unlink()
    with pytest.raises(UnavailableError) as caught:
        source.open()
    assert (caught.value.reason, caught.value.details["cause"]) == ("source_unreadable", "file_missing")


def test_a_file_that_is_not_parquet_makes_the_source_unreadable_at_opening(source: FileSource) -> None:
    source.write("a.parquet", {"id": [1], "at": timestamps()}).write_bytes(b"PAR1 and more")
    error = source.open_refused()
    assert (error.reason, error.details["cause"]) == ("source_unreadable", "parquet_unreadable")


def test_a_manifest_that_is_missing_or_wrong_is_named(source: FileSource) -> None:
    source.manifest.unlink()
    with pytest.raises(UnavailableError) as missing:
        source.open()
    assert missing.value.reason == "source_manifest_unreadable"
    assert str(source.manifest) in missing.value.message
    source.manifest.write_text("{}")
    with pytest.raises(InputError) as wrong:
        source.open()
    assert str(source.manifest) in wrong.value.message
    assert "pvdm source-files" in str(wrong.value.hint)


def test_a_manifest_above_the_limit_is_refused_at_opening_and_not_retried(
    source: FileSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pvdm.steward.work.sources.SOURCE_MANIFEST_MAX_BYTES", 40)
    error = source.open_refused()
    assert (error.reason, error.exit_code, error.expected) == ("source_manifest_invalid", 2, "at most 40 bytes")
    assert str(source.manifest) in error.message


def test_an_attempt_waits_while_the_manifest_is_changed(source: FileSource) -> None:
    source.write("a.parquet", {"id": [1], "at": timestamps()})
    source.write_manifest()
    source.open()
    bench = source.bench
    producer = bench.scene.grant(Role.PRODUCER, "sales")
    attempt = bench.workloads.next_attempt(producer, "work", "all", "first")
    bench.workloads.end_staging(producer, attempt.attempt_id)
    source.manifest.write_text("{}")
    with pytest.raises(UnavailableError) as caught:
        bench.verification.verify(attempt.attempt_id)
    assert caught.value.reason == "source_changed"
    assert bench.now(attempt).state is AttemptState.VERIFYING


def test_a_source_table_that_can_never_be_read_ends_the_attempt_and_not_the_workload(tmp_path: Path) -> None:
    with bench_at(tmp_path) as bench:
        path = parse_location(bench.state("orders", RAW).metadata.location).local / "data" / "odd.parquet"
        file = write(path, ROWS[:1])
        odd = arrow(ROWS[:1])
        field = odd.schema.field("amount").with_type(pa.string())
        pq.write_table(odd.set_column(2, field, pa.array(["x"])), path)
        bench.write_snapshot("orders", RAW, "main", [replace(file, file_size_in_bytes=path.stat().st_size)])
        attempt, _ = bench.staged(ROWS)
        bench.verification.verify(attempt.attempt_id)
        ended = bench.now(attempt)
        refusal = decode_refusal(ended.reason)
        assert ended.state is AttemptState.ROLLED_BACK
        assert refusal is not None
        assert refusal.reason == "source_unusable"
        assert bench.cores(attempt) == []
        with bench.scene.notary.ledger.read() as unit:
            assert nonces.find_current(unit, attempt.attempt_id) is None
            assert workloads.get(unit, "work").state is WorkloadState.OPEN
        assert bench.state().metadata.current_snapshot_id is None
        assert attempt.branch not in bench.state().metadata.refs


def test_a_source_file_above_the_limit_ends_the_attempt_and_not_the_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench_at(tmp_path) as bench:
        attempt, _ = bench.staged(ROWS[:1])
        source = next(parse_location(bench.state("orders", RAW).metadata.location).local.glob("data/*.parquet"))
        most = source.stat().st_size - 1
        monkeypatch.setattr("pvdm.verify.fetch.FETCH_SIZE_MAX_BYTES", most)
        bench.verification.verify(attempt.attempt_id)
        ended = bench.now(attempt)
        refusal = decode_refusal(ended.reason)
        assert ended.state is AttemptState.ROLLED_BACK
        assert refusal is not None
        assert (refusal.reason, refusal.expected) == ("source_unusable", f"at most {most} bytes")
        assert "too large" in refusal.message
        assert source.name in str(refusal.got)
        with bench.scene.notary.ledger.read() as unit:
            assert workloads.get(unit, "work").state is WorkloadState.OPEN


@pytest.mark.parametrize("of_list", [True, False], ids=["list", "manifest"])
@pytest.mark.parametrize("damage", [lambda _: b"", lambda data: data[:-20]], ids=["empty", "cut off"])
def test_manifests_of_the_pinned_source_that_are_damaged_for_a_while_end_no_attempt(
    tmp_path: Path, of_list: bool, damage: Callable[[bytes], bytes]
) -> None:
    """They were readable when the source was pinned, and Iceberg never changes them: the attempt waits."""
    with bench_at(tmp_path) as bench:
        attempt, paths = bench.staged(ROWS)
        metadata = bench.state("orders", RAW).metadata
        head = metadata.current_snapshot
        assert head is not None
        (listed,) = listed_manifests(metadata, head, bench.files)
        path = parse_location(str(head.manifest_list) if of_list else listed.manifest_path).local
        data = path.read_bytes()
        path.write_bytes(damage(data))
        with pytest.raises(UnavailableError) as caught:
            bench.verification.verify(attempt.attempt_id)
        assert caught.value.reason == "source_unreadable"
        assert bench.now(attempt).state is AttemptState.VERIFYING
        assert all(each.exists() for each in paths)
        path.write_bytes(data)
        assert bench.verify(attempt).verdict.passed
