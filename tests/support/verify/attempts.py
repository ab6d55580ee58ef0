"""Attempts that are verified without HTTP and Spark: a Steward, a source, a protected target, and staged files."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pvdm.catalog.commit import Change
from pvdm.catalog.state import TableState
from pvdm.lake.format.manifest.entry import DataFile
from pvdm.lake.next_snapshot import SnapshotChange, next_snapshot
from pvdm.lake.paths import parse_location
from pvdm.lake.vault import Vault, VaultKind
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.ledger.record import proofs
from pvdm.ledger.work import attempts, disposals
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.disposals import DisposalRecord
from pvdm.ledger.work.verified import VerifiedRecord
from pvdm.metadata.gate.target import Permit
from pvdm.model.role import Role
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.proof import Proof
from pvdm.steward.access import STEWARD_GRANT
from pvdm.steward.cleanup.disposal import Disposal
from pvdm.steward.cleanup.orphan_search import OrphanSearch
from pvdm.steward.pipeline.break_glass import OverrideStaging
from pvdm.steward.pipeline.proposals import read_verified
from pvdm.steward.pipeline.verification import Verification
from pvdm.steward.work.opening import Queue, Workloads
from pvdm.steward.work.planning import Planner
from pvdm.steward.work.sources import Sources
from pvdm.trust.statement import read_unchecked
from pvdm.verify.fetch import Files
from pvdm.verify.job import Tools
from tests.support.gate.approvals import Scene, scene_at
from tests.support.ledger.rows import newest_verified
from tools.proof_kit import SECOND

Doc = dict[str, Any]
Row = tuple[int, str, float | None]

RAW: Levels = ("raw",)
SALES: Levels = ("sales",)
SCHEMA: Doc = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "town", "required": False, "type": "string"},
        {"id": 3, "name": "amount", "required": False, "type": "double"},
    ],
}
ROWS: tuple[Row, ...] = tuple((at, f"town {at % 3}", at / 4) for at in range(100))


def contract(
    *,
    storage: str = "open",
    on_fail: str = "quarantine",
    operation: str = "append",
    atomicity: str = "chunk",
    extraction: str = "direct",
    partition: str = "{}",
) -> str:
    return (
        "apiVersion: pvdm/v1\n"
        "kind: DataProduct\n"
        "metadata:\n  domain: sales\n  product: sums\n  owner: sales\n"
        f"boundary:\n  source:\n    table: raw.orders\n  target: sales.sums\n  operation: {operation}\n"
        f"  partition: {partition}\n"
        "projections:\n  identity: [id]\n"
        f"storage: {storage}\n"
        f"extraction: {extraction}\n"
        f"atomicity: {atomicity}\n"
        f"governance:\n  on-fail: {on_fail}\n"
    )


def arrow(rows: Sequence[Row]) -> pa.Table:
    """The rows as an Arrow table with field ids."""

    def column(name: str, kind: Any, at: int, nullable: bool) -> Any:
        return pa.field(name, kind, nullable=nullable, metadata={"PARQUET:field_id": str(at)})

    schema = pa.schema(
        [
            column("id", pa.int64(), 1, False),
            column("town", pa.string(), 2, True),
            column("amount", pa.float64(), 3, True),
        ]
    )
    return pa.Table.from_arrays(
        [pa.array([row[at] for row in rows], schema.types[at]) for at in range(3)], schema=schema
    )


def write(path: Path, rows: Sequence[Row]) -> DataFile:
    """Write a Parquet file; returns a manifest entry for it without optional values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(arrow(rows), path)
    return DataFile(
        file_path=f"file://{path}",
        file_format="PARQUET",
        record_count=len(rows),
        file_size_in_bytes=path.stat().st_size,
    )


@dataclass
class Bench:
    """A Steward's parts for workloads, verification and clean-up, with the source and the target that they work on."""

    scene: Scene
    folder: Path
    counter: int = field(default=5_000)

    def __post_init__(self) -> None:
        notary = self.scene.notary
        self.files = Files()
        self.vault = Vault(self.folder / "vault")
        self.sources = Sources(notary.ledger, notary.catalog, self.files)
        self.planner = Planner(
            notary.ledger,
            notary.clock,
            self.sources,
            self.files,
            epoch=lambda: notary.keys.epoch_for(None),
            begin=lambda _: None,
        )
        # There are no jobs, so the call that begins a plan makes it.
        self.planner.begin = lambda wanted: self.planner.run(wanted.workload_id)
        self.workloads = Workloads(
            notary.ledger,
            notary.clock,
            notary.catalog,
            self.sources,
            Queue(lambda _: None, lambda _: None, lambda _: None),
            planner=self.planner,
            files=self.files,
            spark_extraction=None if notary.spark is None else notary.spark.extraction,
        )
        self.disposal = Disposal(
            notary.ledger,
            notary.clock,
            notary.catalog,
            self.vault,
            self.files,
            notary.recorder.require_consistent,
        )
        self.orphans = OrphanSearch(notary.ledger, notary.catalog, self.files, self.disposal)
        self.waiving = OverrideStaging(
            notary.ledger, notary.clock, notary.catalog, self.workloads, self.vault, self.files, self.given_up
        )
        self.verification = self.verifying()

    def given_up(self, attempt_id: str, reason: str) -> None:
        self.scene.notary.work.abort(STEWARD_GRANT, attempt_id, reason, lease_number=1)

    def stage_override(self, override_id: str) -> Attempt:
        return self.waiving.stage_override(self.scene.grant(), override_id)

    def verifying(self, files: Files | None = None, tools: Tools | None = None) -> Verification:
        """The verification, with this access to files or these tools instead of the usual ones."""
        notary = self.scene.notary
        return Verification(
            notary.ledger,
            notary.clock,
            notary.catalog,
            self.sources,
            notary.proofs,
            self.vault,
            tools or Tools(files or self.files, notary.handles, notary.keys, self.vault, threads=2),
            self.disposal.dispose,
        )

    def restart(self) -> None:
        """Close the Steward and open it again on the same ledger and files."""
        self.scene.stand.reopen()
        self.__post_init__()

    def state(self, name: str = "sums", levels: Levels = SALES) -> TableState:
        return self.scene.notary.catalog.states.get(levels, name)

    def commit(self, name: str, levels: Levels, updates: Sequence[Any], role: Role = Role.OPERATOR) -> TableState:
        grant = self.scene.grant(role, "sales")
        return self.scene.notary.catalog.commits.commit(grant, [Change(levels, name, (), updates)])[0]

    def write_snapshot(
        self,
        name: str,
        levels: Levels,
        branch: str,
        added: Sequence[DataFile],
        *,
        removed: frozenset[str] = frozenset(),
        home: Path | None = None,
        role: Role = Role.OPERATOR,
    ) -> int:
        """Commit a snapshot with these files to a branch, with its manifests in `home`; returns its id."""
        metadata = self.state(name, levels).metadata
        self.counter += 1
        folder = home or Path(parse_location(metadata.location).local) / "metadata"
        snapshot = next_snapshot(
            metadata,
            SnapshotChange(tuple(added), removed, {}),
            branch=branch,
            snapshot_id=self.counter,
            now_ms=self.scene.now // 1_000,
            place=lambda file: f"file://{folder}/{self.counter}-{file}",
            reader=self.files,
        )
        for file in snapshot.files:
            path = parse_location(file.location).local
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.data)
        self.commit(name, levels, list(snapshot.updates), role)
        return self.counter

    def show(self, rows: Sequence[Row], name: str) -> DataFile:
        """Append rows to the target before it is protected."""
        place = Path(parse_location(self.state().metadata.location).local)
        file = write(place / "data" / f"{name}.parquet", rows)
        self.write_snapshot("sums", SALES, "main", [file])
        return file

    def attempt(self, workload_id: str = "work", reason: str = "first") -> Attempt:
        producer = self.scene.grant(Role.PRODUCER, "sales")
        workload = self.workloads.open(producer, workload_id, "sales.sums", {})
        return self.workloads.next_attempt(producer, workload.opening.workload_id, "all", reason)

    def stage(
        self,
        attempt: Attempt,
        *parts: Sequence[Row],
        change: Callable[[DataFile], DataFile] = lambda file: file,
        removed: frozenset[str] = frozenset(),
    ) -> list[Path]:
        """Stage each part as one file, in one commit to the attempt's branch; returns the paths."""
        prefix = parse_location(attempt.prefix).local
        paths = [prefix / "data" / f"part-{at}.parquet" for at in range(len(parts))]
        files = [change(write(path, rows)) for path, rows in zip(paths, parts, strict=True)]
        self.write_snapshot(
            "sums", SALES, attempt.branch, files, removed=removed, home=prefix / "metadata", role=Role.PRODUCER
        )
        return paths

    def staged(self, *parts: Sequence[Row], workload_id: str = "work", **more: Any) -> tuple[Attempt, list[Path]]:
        """Open an attempt, stage these parts, and end staging: the attempt is then VERIFYING."""
        attempt = self.attempt(workload_id)
        paths = self.stage(attempt, *parts, **more) if parts else []
        return self.hand_in(attempt), paths

    def hand_in(self, attempt: Attempt) -> Attempt:
        """End staging, as the producer."""
        return self.workloads.end_staging(self.scene.grant(Role.PRODUCER, "sales"), attempt.attempt_id)

    def now(self, attempt: Attempt) -> Attempt:
        """The attempt as the ledger has it now."""
        with self.scene.notary.ledger.read() as unit:
            return attempts.get(unit, attempt.attempt_id)

    def cores(self, attempt: Attempt) -> list[ProofCore]:
        with self.scene.notary.ledger.read() as unit:
            found = proofs.list_by_attempt(unit, attempt.attempt_id)
            return [read_unchecked(proofs.get_envelope(unit, each.proof_id), Proof).core for each in found]

    def record(self, attempt: Attempt) -> VerifiedRecord:
        with self.scene.notary.ledger.read() as unit:
            found = newest_verified(unit, attempt.attempt_id)
        assert found is not None
        return found

    def disposed(self, attempt: Attempt) -> DisposalRecord | None:
        with self.scene.notary.ledger.read() as unit:
            return disposals.find_disposal(unit, attempt.attempt_id)

    def verify(self, attempt: Attempt) -> ProofCore:
        """Verify the attempt; returns the core of its only proof."""
        self.verification.verify(attempt.attempt_id)
        (core,) = self.cores(attempt)
        return core

    def classes(self, attempt: Attempt) -> tuple[str, ...]:
        return tuple(each.value for each in self.verify(attempt).verdict.classes)

    def codes(self, attempt: Attempt) -> list[str]:
        return [each.code for each in self.record(attempt).findings]

    def publish(self, attempt: Attempt) -> None:
        """Publish the attempt's verified files as the gate does, without the gate's checks and without a receipt."""
        (core,) = self.cores(attempt)[-1:]
        state = self.state()
        record = self.record(attempt)
        self.counter += 1
        snapshot = next_snapshot(
            state.metadata,
            SnapshotChange(read_verified(self.vault, record), frozenset(core.files.removed), {}),
            branch="main",
            snapshot_id=self.counter,
            now_ms=self.scene.now // 1_000,
            place=lambda file: self.vault.location(state.row.table_uuid, VaultKind.METADATA, file),
            reader=self.files,
            in_vault=True,
        )
        for file in snapshot.files:
            self.vault.write(state.row.table_uuid, VaultKind.METADATA, file.name, file.data)

        def permit(before: TableState, after: Any, data: bytes) -> Permit:
            return Permit(before.row.table_uuid, before.row.pointer.sha256, hashlib.sha256(data).hexdigest())

        def settle(unit: Any, rows: Any) -> None:
            attempts.publish(unit, attempt.attempt_id, nonce=core.attempt.nonce, snapshot_id=str(snapshot.snapshot_id))

        change = Change(SALES, "sums", (), list(snapshot.updates))
        grant = self.scene.grant(Role.OPERATOR)
        self.scene.notary.catalog.commits.commit(grant, [change], make_permit=permit, hook=settle)

    def quarantined(self, attempt: Attempt) -> list[Path]:
        uuid = self.state().row.table_uuid
        found = self.vault.finished(uuid, VaultKind.QUARANTINE, attempt.attempt_id)
        return [parse_location(each).local for each in found]

    def copies(self, attempt: Attempt) -> list[Path]:
        uuid = self.state().row.table_uuid
        return [parse_location(each).local for each in self.vault.finished(uuid, VaultKind.DATA, attempt.attempt_id)]

    def left(self, attempt: Attempt) -> list[Path]:
        """The files that are still in the attempt's folder."""
        return sorted(path for path in parse_location(attempt.prefix).local.rglob("*") if not path.is_dir())


@contextlib.contextmanager
def bench_at(
    folder: Path,
    *,
    source: Sequence[Sequence[Row]] = (ROWS,),
    shown: Sequence[Row] = (),
    commits: int = 1,
    version: int = 2,
    updates: Sequence[Doc] = (),
    **contracted: str,
) -> Iterator[Bench]:
    """A Steward with the source `raw.orders`, one file for each part of `source`, and the protected `sales.sums`.

    The target has the rows `shown`, once for each of so many commits. Then the `updates` are applied to it.
    """
    with scene_at(folder) as scene:
        yield bench_on(
            scene, folder, source=source, shown=shown, commits=commits, version=version, updates=updates, **contracted
        )


def bench_on(
    scene: Scene,
    folder: Path,
    *,
    source: Sequence[Sequence[Row]] = (ROWS,),
    shown: Sequence[Row] = (),
    commits: int = 1,
    version: int = 2,
    updates: Sequence[Doc] = (),
    **contracted: str,
) -> Bench:
    """Like `bench_at`, on an existing scene."""
    operator = scene.grant()
    scene.notary.catalog.tables.drop(operator, RAW, "orders")  # it is created again with these columns
    body = {"schema": SCHEMA, "properties": {"format-version": str(version)}}
    scene.notary.catalog.tables.create(operator, RAW, {"name": "orders", **body})
    scene.notary.catalog.tables.create(operator, SALES, {"name": "sums", **body})
    bench = Bench(scene, folder.resolve())
    place = Path(parse_location(bench.state("orders", RAW).metadata.location).local)
    files = [write(place / "data" / f"{at}.parquet", rows) for at, rows in enumerate(source)]
    bench.write_snapshot("orders", RAW, "main", files)
    for at in range(commits if shown else 0):
        bench.show(shown, f"old-{at}")
    if updates:
        bench.commit("sums", SALES, updates)
    scene.protect(scene.protection("sums", contract=contract(**contracted)))
    scene.stand.time.pass_by(SECOND)
    return bench


def changed_row(row: Row, **changed: Any) -> Row:
    names = ("id", "town", "amount")
    return tuple(changed.get(name, value) for name, value in zip(names, row, strict=True))  # type: ignore[return-value]


def with_changed_row(rows: Sequence[Row], at: int, **changed: Any) -> list[Row]:
    """The rows with one of them changed."""
    return [changed_row(row, **changed) if place == at else row for place, row in enumerate(rows)]
