"""A table of a real Steward, whose proofs, commits and receipts the Steward's own code makes, without the gate."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from pvdm.catalog.commit import Change
from pvdm.catalog.state import TableState
from pvdm.digest.plan import fingerprint
from pvdm.lake.format.manifest.entry import DataFile, IdMap
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.next_snapshot import SnapshotChange, next_snapshot
from pvdm.lake.vault import Vault, VaultKind
from pvdm.ledger import Unit
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.work import attempts, workloads
from pvdm.ledger.work.attempts import AttemptOpening
from pvdm.ledger.work.chunks import Chunk
from pvdm.ledger.work.workloads import Opening, PinnedWorkload
from pvdm.metadata.audit.evidence import Evidence, LoggedStatement
from pvdm.metadata.gate.proposal import PublishedSnapshot
from pvdm.metadata.gate.target import Permit
from pvdm.model.contract import Atomicity
from pvdm.model.role import Role
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.core import FileSet, Operation, ProofCore, RowCounts, StagedBranch, Target
from pvdm.model.statements.migration import contract_sha256
from pvdm.model.statements.receipt import Receipt
from pvdm.steward.notary import Notary
from pvdm.steward.pipeline.proposals import StatementSigner
from pvdm.trust.log.checkpoint import read_unverified
from pvdm.trust.statement import read_unchecked
from tests.support.audit.crafted_history import bound
from tests.support.gate.approvals import SALES, Scene, contract_for
from tests.support.steward.notary import NOTARY
from tests.support.stores.places import file_at, files, location_of, stores
from tools.proof_kit import CORE, SECOND, fixed

NAME = "sold"
FULL_NAME = "sales.sold"
CONTRACT = contract_for(NAME)


@dataclass
class Audited:
    """The table `sales.sold` of a scene. The clock moves by a second with each step."""

    scene: Scene
    counter: int = 0

    @property
    def vault(self) -> Vault:
        config = self.scene.notary.config.catalog
        assert config is not None
        return Vault(config.vault, stores())

    @property
    def state(self) -> TableState:
        return self.scene.table_state(NAME)

    def tick(self) -> int:
        self.counter += 1
        self.scene.stand.time.pass_by(SECOND)
        return self.counter

    def open(self) -> Audited:
        """Create the table, and protect it."""
        self.scene.make(NAME)
        self.tick()
        self.scene.protect(self.scene.protection(NAME, contract=CONTRACT))
        return self

    def data_file(self, name: str) -> DataFile:
        place = file_at(self.state.metadata.location) / "data" / f"{name}.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(f"rows of {name}".encode())
        return DataFile(
            file_path=location_of(place),
            file_format="PARQUET",
            record_count=10,
            file_size_in_bytes=place.stat().st_size,
            partition=IdMap([(1000, 20_000)]),
        )

    def publish(self, name: str, *, witnessed: bool = True) -> int:
        """Publish one file: a proof, a snapshot and, if `witnessed`, a receipt. Returns the snapshot's id."""
        self.tick()
        file = self.data_file(name)
        core = self._verifying(name, file)
        recorded = self.scene.stand.record(core)
        snapshot_id = self.show(file, by_steward=True)
        if witnessed:
            self.witness(core, recorded.statement_id, snapshot_id)
        return snapshot_id

    def show(self, file: DataFile, *, now_ms: int | None = None, by_steward: bool = False) -> int:
        """Commit a snapshot of `main` with one more file, without any check; `now_ms` is the snapshot's time."""
        number = self.tick()
        before = self.state
        snapshot = next_snapshot(
            before.metadata,
            SnapshotChange((file,), frozenset(), {}),
            branch="main",
            snapshot_id=5_000 + number,
            now_ms=self.scene.now // 1_000 if now_ms is None else now_ms,
            place=lambda name: self.vault.location(before.row.table_uuid, VaultKind.METADATA, name),
            reader=files(),
            in_vault=by_steward,
        )
        for each in snapshot.files:
            self.vault.write(before.row.table_uuid, VaultKind.METADATA, each.name, each.data)
        is_protected = before.row.protected
        grant = self.scene.grant(Role.STEWARD if is_protected else Role.OPERATOR)
        permit = permitted if is_protected else None
        self.scene.notary.catalog.commits.commit(grant, [Change(SALES, NAME, (), snapshot.updates)], make_permit=permit)
        return snapshot.snapshot_id

    def witness(self, core: ProofCore, proof_id: str, snapshot_id: int) -> None:
        """Sign and log the receipt of the current snapshot."""
        state, notary = self.state, self.scene.notary
        snapshot = state.metadata.current_snapshot
        assert snapshot is not None
        assert snapshot.manifest_list is not None
        data = files().read(snapshot.manifest_list, max_bytes=10_000_000)
        published = PublishedSnapshot(
            core.attempt.workload_id,
            (proof_id,),
            None,
            self.scene.ref(NAME),
            "main",
            snapshot.parent_id,
            snapshot_id,
            hashlib.sha256(data).hexdigest(),
            state.row.pointer.location,
            state.row.pointer.sha256,
            self.scene.now,
        )
        StatementSigner(notary.ledger, notary.keys, notary.recorder, notary=NOTARY).sign_receipt(published)

    def _verifying(self, name: str, file: DataFile) -> ProofCore:
        """Open a workload with one attempt in the state VERIFYING; returns the core of a PASS proof for it."""
        metadata, notary = self.state.metadata, self.scene.notary
        core = self._core(name, file, metadata)
        attempt, epoch = core.attempt, notary.keys.epoch_for(None)
        opening = Opening(
            attempt.workload_id,
            attempt.contract_sha256,
            self.state.row.table_uuid,
            "raw.sold",
            b"{}",
            Atomicity.CHUNK,
            "sales",
        )

        def work(unit: Unit) -> None:
            planned = [Chunk(attempt.chunk_id, b"{}")]
            workloads.open_once(unit, opening, PinnedWorkload("77", attempt.plan_sha256, epoch, planned))
            attempts.open_next(
                unit,
                AttemptOpening(
                    attempt.attempt_id,
                    attempt.workload_id,
                    attempt.chunk_id,
                    core.staged.branch,
                    f"{metadata.location}/pvdm/{attempt.attempt_id}",
                    fixed(f"first {name}", 16),
                    "opened",
                ),
            )
            attempts.begin_verifying(
                unit, attempt.attempt_id, nonce=attempt.nonce, staged_snapshot_id="77", reason="staged"
            )

        notary.ledger.transact(work, at_micros=notary.clock.now_micros())
        return core

    def _core(self, name: str, file: DataFile, metadata: TableMetadata) -> ProofCore:
        attempt = replace(
            CORE.attempt,
            contract_sha256=contract_sha256(CONTRACT),
            workload_id=f"sold-{name}",
            attempt_id=fixed(f"attempt {name}", 16),
            nonce=fixed(f"nonce {name}", 16),
        )
        target = Target(
            self.scene.ref(NAME),
            "main",
            metadata.current_snapshot_id,
            Operation.APPEND,
            (),
            fingerprint(to_model(metadata.current_schema)).hex(),
            metadata.default_spec_id,
            metadata.format_version,
        )
        return replace(
            CORE,
            attempt=attempt,
            target=target,
            staged=StagedBranch(f"pvdm_{attempt.attempt_id}", 77),
            files=FileSet((bound(file),)),
            rows=RowCounts(10, 10),
        )


def permitted(before: TableState, _: TableMetadata, data: bytes) -> Permit:
    """The permit that the gate would create after its checks; nothing is checked here."""
    return Permit(before.row.table_uuid, before.row.pointer.sha256, hashlib.sha256(data).hexdigest())


def gather_evidence(notary: Notary, grant: Grant, name: str, *, page: int = 100) -> Evidence:
    """All evidence about a table of the namespace `sales`, read from the Steward page by page."""
    desk, place = notary.audits, (SALES, name)
    head = desk.read_evidence(grant, *place)
    size = read_unverified(head.checkpoint).checkpoint.size
    receipts: list[LoggedStatement] = []
    after: int | None = None
    while found := desk.read_receipts(grant, *place, size=size, after=after, count=page):
        receipts.extend(found)
        after = found[-1].index
    read_receipts = [read_unchecked(each.envelope, Receipt) for each in receipts]
    waived = desk.read_statements(
        grant, *place, [each.override_id for each in read_receipts if each.override_id], size=size
    )
    ids = {proof_id for each in read_receipts for proof_id in each.proof_ids}
    ids |= {read_unchecked(each.envelope, BreakGlass).fail_proof_id for each in waived}
    proofs = desk.read_statements(grant, *place, sorted(ids), size=size)
    statements = (*head.statements, *receipts, *waived, *proofs)
    return Evidence(head.table, head.contract_sha256, head.metadata, head.checkpoint, statements, head.released_claims)
