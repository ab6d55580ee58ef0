"""Protected tables with real files, staged and proved attempts, and the gate, for tests without Spark."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pvdm.catalog.commit import Change
from pvdm.catalog.state import TableState
from pvdm.digest.plan import fingerprint
from pvdm.lake.format.manifest.entry import DataFile, IdMap
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.next_snapshot import SnapshotChange, next_snapshot
from pvdm.lake.read.entries import live_entries
from pvdm.lake.vault import Vault, VaultKind
from pvdm.ledger import Unit
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.work import attempts, verified, workloads
from pvdm.ledger.work.attempts import Attempt, AttemptOpening
from pvdm.ledger.work.chunks import Chunk
from pvdm.ledger.work.verified import VerifiedRecord
from pvdm.ledger.work.workloads import Opening, PinnedWorkload
from pvdm.metadata.gate.context import Gate
from pvdm.metadata.gate.proposal import Proposal
from pvdm.model.contract import Atomicity, parse_contract
from pvdm.model.projection import content, identity
from pvdm.model.role import Role
from pvdm.model.statements.core import (
    AddedFile,
    ExtractionPath,
    FileSet,
    Method,
    Operation,
    Profile,
    ProofCore,
    ProvedProjection,
    RowCounts,
    StagedBranch,
    Target,
)
from pvdm.model.statements.core import Attempt as ProvedAttempt
from pvdm.model.statements.proof import Storage
from pvdm.model.statements.table import SourceSnapshot, TableRef
from pvdm.model.statements.verdict import Outcome, Verdict
from pvdm.steward.access import STEWARD_GRANT
from pvdm.steward.config.steward import StewardConfig
from pvdm.steward.pipeline.proposals import Proposals, StatementSigner, encode_verified
from pvdm.steward.pipeline.publishing import Publishing
from pvdm.steward.record.proofs import RecordedProof
from pvdm.steward.work.sources import Sources
from pvdm.verify.fetch import Files
from tests.support.gate.approvals import SALES, Scene, contract_for, with_catalog
from tests.support.lake.sources import empty_source
from tests.support.steward.notary import Stand, commitments, stand_at
from tests.support.stores.places import file_at, files, location_of, on_test_store, stores
from tools.proof_kit import SECOND, fixed

Doc = dict[str, Any]
Row = tuple[int, int, str]
"""Id, day of November 2026, and town."""

SOURCE = TableRef("lake", "0b6c1d8e-52b1-4c55-8a1f-6a1c0a7d4e22", "raw.orders")
HOUR = 3_600 * SECOND
_EPOCH = datetime.date(1970, 1, 1)


def day(number: int) -> int:
    """The partition value of a day of November 2026."""
    return (datetime.date(2026, 11, number) - _EPOCH).days


def contract(
    name: str = "orders", *, operation: str = "append", partition: Mapping[str, str] | None = None, more: str = ""
) -> str:
    """The example contract with this operation, partition and further lines; by default with storage `open`."""
    text = contract_for(name).replace("operation: append", f"operation: {operation}")
    if partition:
        pairs = ", ".join(f"{column}: '{value}'" for column, value in partition.items())
        text = text.replace("projections:", f"  partition: {{{pairs}}}\nprojections:")
    return text + ("" if "storage:" in more else "storage: open\n") + more


@dataclass(slots=True)
class House:
    """A Steward with protected tables, and methods for every step of a publication up to the gate.

    No verification runs: `prove` writes and signs the proof that the test wants.
    """

    stand: Stand
    scene: Scene
    contracts: dict[str, str] = field(default_factory=dict)
    counter: int = 0

    @property
    def notary(self) -> Any:
        return self.stand.notary

    @property
    def vault(self) -> Vault:
        config = self.stand.config.catalog
        assert config is not None
        return Vault(config.vault, stores())

    @property
    def files(self) -> Files:
        return files()

    def number(self) -> int:
        self.counter += 1
        return self.counter

    # Tables

    def table(
        self, name: str = "orders", *, text: str | None = None, rows: Sequence[Row] = (), version: int = 2
    ) -> None:
        """Create a protected table whose `main` has these rows, with one file for each day."""
        self.scene.make(name, version=version)
        if rows:
            place = f"{self.table_state(name).metadata.location}/data/before"
            self.commit(self.write_files(place, rows), "main", name=name)
        self.contracts[name] = text or contract(name)
        self.scene.protect(self.scene.protection(name, contract=self.contracts[name]))

    def protect(self, text: str | None = None) -> None:
        """Protect the existing table `orders` under this contract, or under the example contract."""
        self.stand.time.pass_by(SECOND)
        self.contracts["orders"] = text or contract()
        self.scene.protect(self.scene.protection("orders", contract=self.contracts["orders"]))

    def table_state(self, name: str = "orders") -> TableState:
        return self.scene.table_state(name)

    def ref(self, name: str = "orders") -> TableRef:
        return self.scene.ref(name)

    def write_files(self, place: str, rows: Sequence[Row]) -> tuple[DataFile, ...]:
        """Write Parquet files of these rows, one for each day; returns them as manifests list them."""
        days = sorted({row[1] for row in rows})
        return tuple(self._write_file(place, number, [row for row in rows if row[1] == number]) for number in days)

    def _write_file(self, place: str, number: int, rows: Sequence[Row]) -> DataFile:
        path = file_at(place) / f"{self.number():05d}-{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        kinds = (("id", pa.int64()), ("day", pa.date32()), ("town", pa.string()))
        schema = pa.schema(
            [
                pa.field(name, kind, metadata={"PARQUET:field_id": str(at)})
                for at, (name, kind) in enumerate(kinds, start=1)
            ]
        )
        columns = [[row[0] for row in rows], [datetime.date(2026, 11, row[1]) for row in rows], [r[2] for r in rows]]
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(columns, schema=schema), sink)
        path.write_bytes(sink.getvalue().to_pybytes())
        return DataFile(
            file_path=location_of(path),
            file_format="PARQUET",
            record_count=len(rows),
            file_size_in_bytes=path.stat().st_size,
            partition=IdMap([(1000, day(number))]),
        )

    def commit(
        self,
        files: Sequence[DataFile],
        branch: str,
        *,
        name: str = "orders",
        removed: Sequence[str] = (),
        by: Grant | None = None,
        place: str | None = None,
    ) -> int:
        """Commit a snapshot to a branch, with its manifests at `place`; returns its id."""
        state = self.table_state(name)
        home = place or f"{state.metadata.location}/metadata"
        file_at(home).mkdir(parents=True, exist_ok=True)
        snapshot = next_snapshot(
            state.metadata,
            SnapshotChange(tuple(files), frozenset(removed), {"engine-name": "a test"}),
            branch=branch,
            snapshot_id=7_000_000 + self.number(),
            now_ms=self.scene.now // 1_000,
            place=lambda file: f"{home}/{file}",
            reader=self.files,
        )
        for file in snapshot.files:
            file_at(file.location).write_bytes(file.data)
        grant = by or self.scene.grant(Role.OPERATOR)
        self.notary.catalog.commits.commit(grant, [Change(SALES, name, (), snapshot.updates)])
        return snapshot.snapshot_id

    def rows(self, name: str = "orders") -> list[int]:
        """The ids of all rows of `main`, read from its files."""
        metadata = self.table_state(name).metadata
        head = metadata.current_snapshot
        found: list[Any] = []
        for entry in () if head is None else live_entries(metadata, head, self.files):
            read = pq.read_table(io.BytesIO(file_at(entry.data_file.file_path).read_bytes()), partitioning=None)
            found += read.column("id").to_pylist()
        return sorted(found)

    def paths(self, name: str = "orders", *, of_day: int | None = None) -> list[str]:
        """The paths of the files of `main`, or of one day's."""
        metadata = self.table_state(name).metadata
        head = metadata.current_snapshot
        entries = () if head is None else live_entries(metadata, head, self.files)
        return sorted(
            entry.data_file.file_path
            for entry in entries
            if of_day is None or entry.data_file.partition[1000] == day(of_day)
        )

    # Attempts

    def source(self) -> str:
        """The UUID of `raw.orders`, the source of most contracts. It is created without rows if it does not exist."""
        return empty_source(self.notary, self.scene.grant())

    def open(
        self,
        workload_id: str,
        chunk_ids: Sequence[str] = ("all",),
        *,
        name: str = "orders",
        source: str = SOURCE.uuid,
    ) -> None:
        """Open a workload of the table, with these chunks, in the ledger."""
        row = self.table_state(name).row
        atomicity = Atomicity.WORKLOAD if "atomicity: workload" in self.contracts[name] else Atomicity.CHUNK
        opening = Opening(workload_id, str(row.contract_hash), row.table_uuid, source, b"{}", atomicity, "sales")
        planned = [Chunk(chunk_id, b'{"id":"%s","where":"true"}' % chunk_id.encode()) for chunk_id in chunk_ids]
        epoch = self.notary.keys.epoch_for(None)
        pinned = PinnedWorkload("77", fixed(f"plan {workload_id}"), epoch, planned)
        self.transact(lambda unit: workloads.open_once(unit, opening, pinned))

    def attempt(self, workload_id: str, chunk_id: str = "all", *, name: str = "orders") -> Attempt:
        """Open an attempt at the chunk, in the state STAGING, with its branch."""
        state = self.table_state(name)
        attempt_id = fixed(f"attempt {self.number()}", 16)
        opening = AttemptOpening(
            attempt_id,
            workload_id,
            chunk_id,
            f"pvdm_{attempt_id}",
            f"{state.metadata.location}/pvdm/{attempt_id}",
            fixed(f"first nonce {attempt_id}", 16),
            "opened",
        )
        opened: Attempt = self.transact(lambda unit: attempts.open_next(unit, opening))
        head = state.metadata.current_snapshot_id
        if head is not None:
            update: Doc = {
                "action": "set-snapshot-ref",
                "ref-name": opened.branch,
                "type": "branch",
                "snapshot-id": head,
            }
            self.notary.catalog.commits.commit(STEWARD_GRANT, [Change(SALES, name, (), [update])])
        return opened

    def stage(
        self, attempt: Attempt, rows: Sequence[Row], *, name: str = "orders", removed: Sequence[str] = ()
    ) -> tuple[DataFile, ...]:
        """Write files of these rows under the attempt's prefix, and commit them to its branch as its producer."""
        files = self.write_files(f"{attempt.prefix}/data", rows)
        by = replace(self.scene.grant(Role.PRODUCER, "sales"), attempt_id=attempt.attempt_id)
        self.commit(files, attempt.branch, name=name, removed=removed, by=by, place=f"{attempt.prefix}/metadata")
        return files

    def proved(
        self,
        workload_id: str,
        rows: Sequence[Row],
        *,
        chunk_id: str = "all",
        name: str = "orders",
        removed: Sequence[str] = (),
        changed: Callable[[ProofCore], ProofCore] = lambda core: core,
        opened: bool = True,
        copied: bool = False,
        lifetime: int = HOUR,
    ) -> Attempt:
        """Open an attempt, stage these rows, and record a PASS proof; the attempt is then COMMITTING."""
        if opened:
            self.open(workload_id, name=name)
        attempt = self.attempt(workload_id, chunk_id, name=name)
        base = self.table_state(name).metadata.current_snapshot_id
        files = self.stage(attempt, rows, name=name, removed=removed) if rows or removed else ()
        return self.prove(
            attempt, files, base, name=name, removed=removed, changed=changed, copied=copied, lifetime=lifetime
        )

    def prove(
        self,
        attempt: Attempt,
        files: Sequence[DataFile],
        base: int | None,
        *,
        name: str = "orders",
        removed: Sequence[str] = (),
        changed: Callable[[ProofCore], ProofCore] = lambda core: core,
        copied: bool = False,
        storage: Storage | None = None,
        lifetime: int = HOUR,
        listed: Sequence[DataFile] | None = None,
    ) -> Attempt:
        """Record a PASS proof of these files, and move the attempt from STAGING or VERIFYING to COMMITTING.

        `changed` changes the proof's core. `listed` are the entries of the verified manifest, by default the files.
        The proof names `storage`; by default `copied` or `open`, as the files are.
        """
        metadata = self.table_state(name).metadata
        ref = metadata.refs.get(attempt.branch)
        staged = None if ref is None or ref.snapshot_id == base else ref.snapshot_id
        nonce = fixed(f"nonce {attempt.attempt_id} {self.number()}", 16)
        self.transact(
            lambda unit: attempts.begin_verifying(
                unit,
                attempt.attempt_id,
                nonce=nonce,
                staged_snapshot_id=None if staged is None else str(staged),
                reason="staged",
            )
        )
        published = [self._copy(attempt, file, at) if copied else file for at, file in enumerate(files)]
        core = changed(self.core(attempt, nonce, base, staged, files, published, name=name, removed=removed))
        self._write_verified_manifest(core, published if listed is None else listed, name)
        self.record(core, storage=storage or (Storage.COPIED if copied else Storage.OPEN), lifetime=lifetime)
        moved: Attempt = self.transact(lambda unit: attempts.begin_committing(unit, attempt.attempt_id, reason="PASS"))
        return moved

    def record(self, core: ProofCore, *, storage: Storage = Storage.OPEN, lifetime: int = HOUR) -> RecordedProof:
        passed = core.verdict.passed
        recorded: RecordedProof = self.notary.proofs.record(
            core, commitments(passed=passed), storage=storage, lifetime_micros=lifetime, context=None
        )
        return recorded

    def _copy(self, attempt: Attempt, file: DataFile, at: int) -> DataFile:
        data = file_at(file.file_path).read_bytes()
        uuid = self.table_state().row.table_uuid
        location = self.vault.copy_in(uuid, attempt.attempt_id, at, data, hashlib.sha256(data).hexdigest())
        return replace(file, file_path=location)

    def _write_verified_manifest(self, core: ProofCore, files: Sequence[DataFile], name: str) -> None:
        state = self.table_state(name)
        nonce = core.attempt.nonce
        data = encode_verified(state.metadata, files, nonce)
        location = self.vault.write(state.row.table_uuid, VaultKind.METADATA, f"verified-{nonce}.avro", data)
        record = VerifiedRecord(
            nonce,
            core.attempt.attempt_id,
            hashlib.sha256(core.to_bytes()).hexdigest(),
            location,
            hashlib.sha256(data).hexdigest(),
            len(files),
            core.rows.staged,
        )
        self.transact(lambda unit: verified.put(unit, record))

    def core(
        self,
        attempt: Attempt,
        nonce: str,
        base: int | None,
        staged: int | None,
        files: Sequence[DataFile],
        published: Sequence[DataFile],
        *,
        name: str = "orders",
        removed: Sequence[str] = (),
    ) -> ProofCore:
        """The core of the proof that an honest notary signs."""
        state = self.table_state(name)
        with self.notary.ledger.read() as unit:
            workload = workloads.get(unit, attempt.workload_id)
        schema = to_model(state.metadata.current_schema)
        projections = [content(schema), identity(schema, ["id"])]
        operation, partition = _operation_and_partition(self.contracts[name])
        rows = sum(file.record_count for file in files)
        added = [
            AddedFile(
                file.file_path,
                file.file_size_in_bytes,
                _sha256(file.file_path),
                published_file.file_path,
                published_file.file_size_in_bytes,
                _sha256(file.file_path),
            )
            for file, published_file in zip(files, published, strict=True)
        ]
        return ProofCore(
            ProvedAttempt(
                workload.opening.contract_hash,
                (),
                attempt.workload_id,
                workload.plan_hash,
                attempt.chunk_id,
                attempt.attempt_id,
                attempt.number,
                nonce,
            ),
            Target(
                self.ref(name),
                "main",
                base,
                operation,
                partition,
                fingerprint(schema).hex(),
                state.metadata.default_spec_id,
                state.metadata.format_version,
            ),
            StagedBranch(attempt.branch, staged),
            FileSet(tuple(sorted(added, key=lambda file: file.published_path)), tuple(sorted(removed))),
            RowCounts(rows, rows),
            (SourceSnapshot(replace(SOURCE, uuid=workload.opening.source), 77, fixed("source")),),
            Method(Profile.A, "stored", "hmac-sha256", ExtractionPath.DIRECT, "kernel-1"),
            tuple(ProvedProjection(each, fingerprint(schema.select(each.columns)).hex()) for each in projections),
            ("row-counts",),
            Verdict(Outcome.PASS),
        )

    # The gate

    def publishing(self) -> Publishing:
        """The part of a Steward that publishes proved attempts; `disposed` gets the ids of attempts to clean up."""
        notary, vault, files = self.notary, self.vault, self.files
        signer = StatementSigner(notary.ledger, notary.keys, notary.recorder, notary=notary.config.notary)
        return Publishing(
            notary.ledger,
            notary.clock,
            notary.catalog,
            notary.trust,
            notary.log,
            vault,
            files,
            notary.config.origin,
            self.disposed.append,
            self.proposals(signer),
            signer,
        )

    disposed: list[str] = field(default_factory=list)

    def proposals(self, signer: StatementSigner | None = None) -> Proposals:
        notary = self.notary
        sources = Sources(notary.ledger, notary.catalog, self.files)
        signer = signer or StatementSigner(notary.ledger, notary.keys, notary.recorder, notary=notary.config.notary)
        return Proposals(notary.ledger, self.vault, sources, signer)

    def proposal(self, *found: Attempt) -> Proposal:
        return self.proposals().collect(found[0].workload_id, [attempt.attempt_id for attempt in found])

    def gate(self, name: str = "orders") -> Gate:
        gate: Gate = self.publishing()._gate(self.table_state(name).row.table_uuid)
        return gate

    def transact(self, work: Callable[[Unit], Any]) -> Any:
        return self.notary.ledger.transact(work, at_micros=self.notary.clock.now_micros())

    def state_of(self, attempt: Attempt) -> str:
        with self.notary.ledger.read() as unit:
            return str(attempts.get(unit, attempt.attempt_id).state)


def _operation_and_partition(text: str) -> tuple[Operation, tuple[tuple[str, str | None], ...]]:
    bound = parse_contract(text.encode()).bind({})
    return bound.contract.boundary.operation, bound.partition


def _sha256(location: str) -> str:
    return hashlib.sha256(file_at(location).read_bytes()).hexdigest()


@contextlib.contextmanager
def house_at(
    folder: Path,
    *,
    ledger_url: str | None = None,
    changed: Callable[[StewardConfig], StewardConfig] = lambda config: config,
) -> Iterator[House]:
    """A Steward in this folder with a catalog, the namespace `sales`, and no table yet."""
    folder = folder.resolve()
    catalog = on_test_store(with_catalog(folder))
    with stand_at(folder, ledger_url=ledger_url, changed=lambda config: changed(catalog(config))) as stand:
        scene = Scene(stand)
        stand.notary.catalog.namespaces.create(scene.grant(), SALES, {"pvdm.domain": "sales"})
        yield House(stand, scene)
