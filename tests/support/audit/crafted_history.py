"""A table whose history is proved, with real keys, log and manifests, in which a test can falsify single facts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pvdm.digest.plan import fingerprint
from pvdm.lake.format.avro.container import write_avro
from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, FileContent, IdMap, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.manifest_list import ManifestFile, read_manifest_list
from pvdm.lake.format.manifest.write import write_manifest, write_manifest_list
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.commit_request import apply_updates
from pvdm.lake.format.table.new_table import new_table
from pvdm.lake.next_snapshot import NewSnapshot, SnapshotChange, next_snapshot
from pvdm.lake.read.entries import header_of
from pvdm.lake.read.found_manifests import FOUND_KEY, MANIFESTS_KEY
from pvdm.metadata.audit.audit import AuditTrust, audit
from pvdm.metadata.audit.evidence import AuditBundle, Evidence, LoggedStatement, MetadataFile
from pvdm.metadata.audit.report import AuditReport, Standing
from pvdm.metadata.gate.state import state_of, target_of
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.claim_release import ClaimRelease
from pvdm.model.statements.core import AddedFile, FileSet, Operation, ProofCore, RowCounts, StagedBranch, Target
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.migration import Migration, Protection, ProtectionAction, contract_sha256
from pvdm.model.statements.proof import NotaryPart, Proof
from pvdm.model.statements.receipt import Receipt
from pvdm.model.statements.table import TableRef
from pvdm.model.statements.verdict import FailureClass, Verdict
from pvdm.trust.log.entry import LogEntry
from pvdm.trust.root import TrustRoot
from pvdm.trust.statement import Predicate
from pvdm.trust.verify import sign_statement
from pvdm.verify.fetch import Files
from tests.support.catalog.core import request
from tests.support.lake.manifests import extra_of
from tests.support.ledger.log_storage import MemoryStorage, open_log
from tests.support.stores.places import file_at, files
from tools.proof_kit import CORE, EPOCH, NOW, ORIGIN, ROOT, SECOND, SIGNERS, failed_part, fixed, notary_part

CONTRACT = "product: orders\nowner: sales\n"
HASH = contract_sha256(CONTRACT)
UUID = "4f0c2d5e-1111-4222-8333-9a8b7c6d5e4f"
TABLE = TableRef("lake", UUID, "sales.orders")

KINDS = {
    Receipt: StatementKind.RECEIPT,
    Proof: StatementKind.PROOF,
    BreakGlass: StatementKind.BREAK_GLASS,
    Protection: StatementKind.PROTECTION,
    Migration: StatementKind.MIGRATION,
    ClaimRelease: StatementKind.CLAIM_RELEASE,
}


def unchanged(value: Any) -> Any:
    """A change that changes nothing, for parameters that take a change."""
    return value


@dataclass(frozen=True)
class Local:
    """Reads manifests from disk."""

    def read(self, _snapshot_id: int, location: str, /, *, max_bytes: int) -> bytes:
        return files().read(location, max_bytes=max_bytes)


@dataclass
class History:
    """A table with its statements and its log. Its clock moves by a second with each step."""

    folder: Path
    version: int = 2
    now: int = NOW - 1_000 * SECOND
    counter: int = 0
    storage: MemoryStorage = field(default_factory=MemoryStorage)
    statements: list[LoggedStatement] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder = self.folder.resolve()
        self.metadata = new_table(
            request(self.version),
            location=f"file://{self.folder}/orders",
            table_uuid=UUID,
            now_ms=self.now // 1_000,
        )
        self.path = f"file://{self.folder}/metadata/00000.metadata.json"
        self.log = open_log(self.storage, SIGNERS["log-keeper"])

    # What happens to the table

    def tick(self) -> int:
        self.now += SECOND
        self.counter += 1
        return self.counter

    def commit(self, updates: Sequence[Any]) -> None:
        self.metadata = apply_updates(self.metadata, updates, now_ms=self.now // 1_000, previous_location=self.path)
        self.path = f"file://{self.folder}/metadata/{self.counter:05d}.metadata.json"

    def data_file(self, name: str, rows: int = 10) -> DataFile:
        """A data file on disk, as a manifest lists it."""
        path = self.folder / "orders" / "data" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"rows of {name}".encode() * rows)
        return DataFile(
            file_path=f"file://{path}",
            file_format="PARQUET",
            record_count=rows,
            file_size_in_bytes=path.stat().st_size,
            partition=IdMap([(1000, 20_000)]),
        )

    def snapshot(
        self,
        added: Sequence[DataFile] = (),
        removed: Sequence[str] = (),
        *,
        relist: Callable[[bytes], bytes] | None = None,
        said: Callable[[Any], Any] = unchanged,
        by_steward: bool = False,
    ) -> NewSnapshot:
        """Commit the next snapshot of `main`, and write its files.

        `relist` changes its manifest list, and `said` its entry in the metadata.
        """
        number = self.tick()
        folder = self.folder / "vault"
        folder.mkdir(exist_ok=True)
        snapshot = next_snapshot(
            self.metadata,
            SnapshotChange(tuple(added), frozenset(removed), {}),
            branch="main",
            snapshot_id=1_000 + number,
            now_ms=self.now // 1_000,
            place=lambda name: f"file://{folder}/{name}",
            reader=Files(),
            in_vault=by_steward,
        )
        if relist is not None:
            snapshot = relisted(snapshot, relist)
        for file in snapshot.files:
            (folder / file.name).write_bytes(file.data)
        add, move = snapshot.updates
        assert isinstance(add, dict)
        self.commit([{**add, "snapshot": said(add["snapshot"])}, move])
        return snapshot

    # Statements about the table

    def say(self, predicate: Predicate, signer: str) -> str:
        """Sign and log a statement; returns its id."""
        self.tick()
        envelope = sign_statement(predicate, SIGNERS[signer])
        data = envelope.to_bytes()
        kind = KINDS[type(predicate)]
        index = self.storage.size()
        self.log.append([LogEntry(kind, hashlib.sha256(data).hexdigest(), self.now)])
        self.statements.append(LoggedStatement(kind, data, self.now, index, ()))
        return envelope.payload_sha256

    def protection(self, action: ProtectionAction = ProtectionAction.PROTECT) -> Protection:
        contract = CONTRACT if action is ProtectionAction.PROTECT else None
        return Protection(
            "operator-tom",
            "orders go live",
            action,
            target_of(TABLE, self.metadata, HASH),
            contract,
            fixed(f"approval {self.counter}", 16),
            self.now,
            self.now + 3_600 * SECOND,
        )

    def protect(self, action: ProtectionAction = ProtectionAction.PROTECT) -> str:
        return self.say(self.protection(action), "operator-tom")

    def expire(self, *snapshot_ids: int) -> None:
        self.commit([{"action": "remove-snapshots", "snapshot-ids": list(snapshot_ids)}])

    @property
    def head(self) -> int:
        found = self.metadata.current_snapshot_id
        assert found is not None
        return found

    def migrate(self, updates: Sequence[Any]) -> str:
        before = self.metadata
        self.commit(updates)
        statement = Migration(
            "operator-tom",
            "the table has to say more",
            TABLE,
            state_of(before, HASH),
            state_of(self.metadata, HASH),
            "[]",
            None,
            fixed(f"approval {self.counter}", 16),
            self.now,
            self.now + 3_600 * SECOND,
        )
        return self.say(statement, "operator-tom")

    def claim_release(self, workload_id: str, receipt_id: str | None, proof_id: str) -> ClaimRelease:
        """The operator's statement that releases the lost claim of a publication."""
        return ClaimRelease(
            "operator-tom",
            "compared, day by day",
            TABLE,
            workload_id,
            receipt_id,
            (proof_id,),
            fixed("restore"),
            fixed(f"approval {self.counter}", 16),
            self.now,
            self.now + 3_600 * SECOND,
        )

    def core(self, added: Sequence[DataFile], removed: Sequence[str] = (), *, chunk: str = "all") -> ProofCore:
        """The core of a PASS proof of these files."""
        metadata, number = self.metadata, self.counter
        attempt = replace(
            CORE.attempt,
            contract_sha256=HASH,
            workload_id=f"work-{number}",
            chunk_id=chunk,
            attempt_id=fixed(f"attempt {number} {chunk}", 16),
            nonce=fixed(f"nonce {number} {chunk}", 16),
        )
        target = Target(
            TABLE,
            "main",
            metadata.current_snapshot_id,
            Operation.OVERWRITE if removed else Operation.APPEND,
            (),
            fingerprint(to_model(metadata.current_schema)).hex(),
            metadata.default_spec_id,
            metadata.format_version,
        )
        files = sorted((bound(file) for file in added), key=lambda file: file.published_path)
        rows = sum(file.record_count for file in added)
        return replace(
            CORE,
            attempt=attempt,
            target=target,
            staged=StagedBranch(f"pvdm_{attempt.attempt_id}", 77),
            files=FileSet(tuple(files), tuple(sorted(removed))),
            rows=RowCounts(rows, rows),
        )

    def part(self, core: ProofCore, signer: str = "notary-a") -> NotaryPart:
        part = notary_part() if core.verdict.passed else failed_part()
        return replace(part, notary=signer, issued_at=self.now, expires_at=self.now + 3_600 * SECOND)

    def prove(self, core: ProofCore, signer: str = "notary-a") -> str:
        return self.say(Proof(core, self.part(core, signer)), signer)

    def override(self, core: ProofCore, fail_proof_id: str) -> str:
        statement = BreakGlass(
            "operator-ruth",
            "known and explained in incident 4711",
            TABLE,
            core.target.base_snapshot_id,
            fail_proof_id,
            core.files.staged_hashes,
            fixed(f"break {self.counter}", 16),
            self.now,
            self.now + 3_600 * SECOND,
        )
        return self.say(statement, "operator-ruth")

    def receipt(
        self, snapshot: NewSnapshot, core: ProofCore, proof_ids: Sequence[str], override_id: str | None = None
    ) -> Receipt:
        """The receipt of the publication that was just committed."""
        head = self.metadata.current_snapshot
        assert head is not None
        return Receipt(
            "notary-a",
            EPOCH,
            core.attempt.workload_id,
            tuple(sorted(proof_ids)),
            override_id,
            TABLE,
            "main",
            head.parent_id,
            snapshot.snapshot_id,
            snapshot.manifest_list_sha256,
            self.path,
            hashlib.sha256(self.metadata.to_bytes()).hexdigest(),
            self.now,
        )

    def publish(
        self,
        *added: DataFile,
        removed: Sequence[str] = (),
        core: Callable[[ProofCore], ProofCore] = unchanged,
        receipt: Callable[[Receipt], Receipt] = unchanged,
        shown: Sequence[DataFile] | None = None,
        gone: Sequence[str] | None = None,
        signer: str = "notary-a",
        passed: bool = True,
        waived: bool = False,
        **more: Any,
    ) -> int:
        """Record a proof of these files, commit a snapshot, and record its receipt; returns the snapshot's id.

        `core` and `receipt` change statements before they are signed. `shown` and `gone` are the files that the
        snapshot adds and removes, by default those of the proof.
        """
        self.tick()
        proved = core(self.core(added, removed))
        if not passed:
            proved = replace(proved, verdict=Verdict.failed(FailureClass.MODIFIED))
        proof_id = self.prove(proved, signer)
        override_id = self.override(proved, proof_id) if waived else None
        files_added = added if shown is None else shown
        files_removed = removed if gone is None else gone
        snapshot = self.snapshot(files_added, files_removed, by_steward=True, **more)
        self.say(receipt(self.receipt(snapshot, proved, [proof_id], override_id)), "notary-a")
        return snapshot.snapshot_id

    # The evidence of an audit, and the audit

    def logged(self) -> tuple[LoggedStatement, ...]:
        size = self.storage.size()
        return tuple(
            replace(each, hashes=self.log.prove_inclusion(each.index, size).hashes) for each in self.statements
        )

    def evidence(self) -> Evidence:
        assert self.storage.note is not None
        return Evidence(
            TABLE, HASH, MetadataFile(self.path, self.metadata.to_bytes()), self.storage.note, self.logged(), ()
        )

    def audit(
        self,
        *,
        again: bool = False,
        root: TrustRoot = ROOT,
        evidence: Evidence | None = None,
        accepted: Sequence[str] = (),
        accept_lost: frozenset[int] = frozenset(),
    ) -> AuditReport:
        """Audit the table; with `again` its data files are hashed again."""
        trust, found = AuditTrust(root, ORIGIN, NOW), evidence or self.evidence()
        files = Files() if again else None
        return audit(found, Local(), trust, data_files=files, accepted=accepted, accept_lost=accept_lost)

    def bundle(self) -> AuditBundle:
        """The bundle that an export of this table gives."""
        files = {f"file://{path}": path.read_bytes() for path in (self.folder / "vault").iterdir()}
        return AuditBundle(self.evidence(), files)


def listing(change: Callable[[list[ManifestFile]], list[ManifestFile]]) -> Callable[[bytes], bytes]:
    """A change of a manifest list: its manifests are changed by `change`."""

    def relist(data: bytes) -> bytes:
        read = read_manifest_list(data)
        return write_manifest_list(read.header, change(list(read.manifests))).data

    return relist


def with_deletes(history: History) -> Callable[[bytes], bytes]:
    """A change of a manifest list: it also has a manifest with a delete file, as if the snapshot had written it."""

    def change(listed: list[ManifestFile]) -> list[ManifestFile]:
        snapshot_id = listed[0].added_snapshot_id
        header = header_of(history.metadata, history.metadata.default_spec_id, ManifestContent.DELETES)
        file = replace(history.data_file("deletes"), content=FileContent.POSITION_DELETES)
        entry = ManifestEntry(status=EntryStatus.ADDED, data_file=file, snapshot_id=snapshot_id)
        written = write_manifest(header, [entry])
        path = history.folder / "vault" / "deletes.avro"
        path.write_bytes(written.data)
        number = listed[0].sequence_number
        return [*listed, replace(written.list_entry(f"file://{path}", snapshot_id), sequence_number=number)]

    return listing(change)


def relisted(snapshot: NewSnapshot, relist: Callable[[bytes], bytes]) -> NewSnapshot:
    """The snapshot with another manifest list, whose header has the hashes of its manifests."""
    *others, last = snapshot.files
    read = read_manifest_list(relist(last.data))
    known = {file.location: file.data for file in others}
    paths = [each.manifest_path for each in read.manifests]
    hashes = "".join(sha256(known.get(path) or present(path)) for path in paths)
    extra = [(key, value) for key, value in extra_of(read.file) if key not in (MANIFESTS_KEY, FOUND_KEY)]
    extra += [(key, value) for key, value in extra_of(read_manifest_list(last.data).file) if key == FOUND_KEY]
    bound_to = [*extra, (MANIFESTS_KEY, hashes.encode())]
    data = write_avro(read.file.schema_text, bound_to, read.file.records, codec=read.file.codec)
    return replace(snapshot, files=(*others, replace(last, data=data)), manifest_list_sha256=sha256(data))


def local(location: str) -> Path:
    return file_at(location)


def present(location: str) -> bytes:
    """The file's bytes; empty if there is no such file."""
    return local(location).read_bytes() if local(location).exists() else b""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def bound(file: DataFile) -> AddedFile:
    """The file as a proof binds it: with the size and hash of its bytes."""
    data = local(file.file_path).read_bytes()
    return AddedFile.in_place(file.file_path, len(data), hashlib.sha256(data).hexdigest())


def standings(report: AuditReport) -> list[Standing]:
    return [each.standing for each in report.snapshots]


def codes(report: AuditReport) -> set[str]:
    """The codes of all findings of a report."""
    found = [*report.findings, *(finding for each in report.snapshots for finding in each.findings)]
    return {finding.code for finding in found}


def change_statements(evidence: Evidence, change: Callable[[LoggedStatement], LoggedStatement | None]) -> Evidence:
    """The evidence with every statement changed; those for which `change` returns None are left out."""
    changed = (change(each) for each in evidence.statements)
    return replace(evidence, statements=tuple(each for each in changed if each is not None))
