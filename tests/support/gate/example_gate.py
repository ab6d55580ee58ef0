"""The table of the example proofs, in memory, and a gate for it, to submit hostile proofs to `validate_then_commit`.

Storage, clock and catalog are replaced. The checks 1 to 11 are the gate's own, and so is the nonce's part of check 12.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from pvdm.lake.format.json_document import Json
from pvdm.lake.format.manifest.entry import DataFile, IdMap
from pvdm.lake.format.table.commit_request import apply_updates
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.next_snapshot import SnapshotChange, next_snapshot
from pvdm.lake.paths import Location, Pointer, parse_location
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.schema.work import NoncePurpose
from pvdm.ledger.unit import Unit
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.nonces import Nonce
from pvdm.ledger.work.workloads import Opening, Workload
from pvdm.metadata.gate.checks_table import require_reserved
from pvdm.metadata.gate.context import Gate, check
from pvdm.metadata.gate.gate import validate_then_commit
from pvdm.metadata.gate.ledger_changes import LedgerChanges
from pvdm.metadata.gate.proposal import LoggedEnvelope, Part, Proposal, PublishedSnapshot
from pvdm.metadata.gate.target import Base, NextCommit
from pvdm.model.contract import Atomicity, parse_contract
from pvdm.model.filter.claim import Claim
from pvdm.model.statements.kind import StatementKind
from pvdm.model.states import AttemptState, NonceState, WorkloadState
from pvdm.trust.log.entry import LogEntry
from pvdm.trust.log.proof import LogProof
from pvdm.trust.root import TrustRoot
from pvdm.verify.fetch import HashedFile
from tests.support.ledger.log_storage import MemoryStorage, open_log
from tools.proof_kit import (
    CONTRACT_TEXT,
    CORE,
    DAY,
    EMPTY_TABLE,
    EPOCH,
    FILES,
    ISSUED,
    NEWER_SNAPSHOT_ID,
    NOW,
    ORIGIN,
    PREFIX,
    ROOT,
    SIGNERS,
    SOURCE,
    TABLE,
    VAULT,
    fixed,
)

_ROWS: Final = 48_210 // len(FILES.added)  # the example proof has 48,210 rows
_MANIFESTS: Final[dict[str, bytes]] = {}


def _data_file(path: str, size: int, day: str) -> DataFile:
    value = (datetime.date.fromisoformat(day) - datetime.date(1970, 1, 1)).days
    return DataFile(
        file_path=path,
        file_format="PARQUET",
        record_count=_ROWS,
        file_size_in_bytes=size,
        partition=IdMap([(1000, value)]),
    )


@dataclass(frozen=True, slots=True)
class _MemoryFiles:
    """Manifests by their location. Published files have the size and hash that the good proof binds."""

    def read(self, location: str, *, max_bytes: int) -> bytes:
        data = _MANIFESTS[location]
        assert len(data) <= max_bytes
        return data

    def hash(self, location: str) -> HashedFile:
        size, sha256 = {file.published_path: file.published_size_and_hash for file in FILES.added}[location]
        return HashedFile(location, size, sha256)

    def make_durable(self, locations: Sequence[str]) -> None:
        """Memory has nothing to sync."""


def _commit(
    before: TableMetadata, snapshot_id: int, branch: str, added: Sequence[DataFile], removed: Sequence[str] = ()
) -> TableMetadata:
    """The table with one more snapshot on a branch; the snapshot's manifests are kept in memory."""
    snapshot = next_snapshot(
        before,
        SnapshotChange(tuple(added), frozenset(removed), {}),
        branch=branch,
        snapshot_id=snapshot_id,
        now_ms=before.last_updated_ms + 1_000,
        place=lambda name: f"{EMPTY_TABLE.location}/metadata/{name}",
        reader=_MemoryFiles(),
    )
    _MANIFESTS.update({file.location: file.data for file in snapshot.files})
    return apply_updates(
        before, snapshot.updates, now_ms=before.last_updated_ms + 1_000, previous_location="s3://lake/previous.json"
    )


def _build_table() -> TableMetadata:
    """`main` shows the base and a newer day. The branch descends from the base and replaces the day of the proof."""
    base_id, staged_id = CORE.target.base_snapshot_id, CORE.staged.snapshot_id
    assert base_id is not None
    assert staged_id is not None
    table = _commit(EMPTY_TABLE, base_id, "main", [_data_file(FILES.removed[0], 10, "2026-11-14")])
    ref: Json = {"action": "set-snapshot-ref", "ref-name": CORE.staged.branch, "type": "branch", "snapshot-id": base_id}
    table = apply_updates(table, [ref], now_ms=table.last_updated_ms, previous_location="s3://lake/previous.json")
    staged = [_data_file(file.staged_path, file.staged_size_bytes, "2026-11-14") for file in FILES.added]
    table = _commit(table, staged_id, CORE.staged.branch, staged, FILES.removed)
    newer = _data_file(f"{EMPTY_TABLE.location}/data/newer-0.parquet", 10, "2026-11-13")
    return _commit(table, NEWER_SNAPSHOT_ID, "main", [newer])


_CONTRACT: Final = parse_contract(CONTRACT_TEXT.encode())
_ROW: Final = TableRow(
    "orders",
    "curated",
    "orders",
    "sales",
    TABLE.uuid,
    EMPTY_TABLE.location,
    Pointer("s3://lake-metadata/orders.json", fixed("metadata")),
    None,
    1,
    _CONTRACT.sha256,
)
_BASE: Final = Base(TABLE, _ROW, _build_table())
_WORKLOAD: Final = Workload(
    Opening(CORE.attempt.workload_id, _CONTRACT.sha256, TABLE.uuid, SOURCE.uuid, b"{}", Atomicity.CHUNK, "sales"),
    str(CORE.sources[0].snapshot_id),
    CORE.attempt.plan_sha256,
    EPOCH,
    b"{}",
    WorkloadState.OPEN,
    "opened",
    NOW - DAY,
)
_ATTEMPT: Final = Attempt(
    CORE.attempt.attempt_id,
    CORE.attempt.workload_id,
    CORE.attempt.chunk_id,
    CORE.attempt.number,
    CORE.staged.branch,
    PREFIX,
    AttemptState.COMMITTING,
    str(CORE.staged.snapshot_id),
    "PASS",
    ISSUED,
    lease_number=1,
)


@dataclass(frozen=True, slots=True)
class _Clock:
    now: int

    def now_micros(self) -> int:
        return self.now


@dataclass(frozen=True, slots=True)
class _Trust:
    root: TrustRoot

    def current(self) -> TrustRoot:
        return self.root

    def ids(self) -> tuple[str, ...]:
        return (self.root.sha256,)


@dataclass(frozen=True, slots=True)
class _VaultRoot:
    root: Location


class Accepted(Exception):  # noqa: N818 - an outcome
    """The proposal passed every check up to the swap."""


@dataclass(frozen=True, slots=True)
class _Target:
    """Ends the publication at the swap, after the nonce of check 12."""

    nonce: Nonce
    removes_branches: bool = True

    def load(self) -> Base:
        return _BASE

    def publish(
        self,
        _make: Callable[[Base], NextCommit],
        _in_transaction: Callable[[Unit, TableRow], LedgerChanges],
        _then: Callable[[PublishedSnapshot], None],
        /,
    ) -> None:
        with check(12):
            require_reserved(CORE, self.nonce)
        raise Accepted

    def read_back(self) -> Base:
        raise AssertionError("nothing was committed")


def submit(envelopes: Sequence[bytes], *, now: int = NOW, nonce_used: bool = False, notaries: int = 1) -> None:
    """Submit these proofs of the example's attempt to the gate. Returns if the gate would publish, else raises."""
    log = open_log(MemoryStorage(), SIGNERS["log-keeper"])
    entries = [LogEntry(StatementKind.PROOF, hashlib.sha256(data).hexdigest(), now) for data in envelopes]
    note = log.append(entries or [LogEntry(StatementKind.PROOF, fixed("another"), now)])

    def log_proof(index: int) -> bytes:
        return LogProof(index, log.prove_inclusion(index, note.size).hashes, note.checkpoint.note).to_bytes()

    logged = tuple(LoggedEnvelope(StatementKind.PROOF, data, index, now) for index, data in enumerate(envelopes))
    listed = tuple(
        _data_file(file.published_path, file.published_size_bytes, CORE.attempt.chunk_id) for file in FILES.added
    )
    core_sha256 = hashlib.sha256(CORE.to_bytes()).hexdigest()
    part = Part(_ATTEMPT, CORE.attempt.nonce, core_sha256, logged, listed)
    bound = _CONTRACT.bind({name: str(value) for name, value in CORE.attempt.parameters})
    proposal = Proposal(_WORKLOAD, bound, frozenset({_ATTEMPT.chunk_id}), (part,), None, Claim.everything())
    state = NonceState.COMMITTED if nonce_used else NonceState.RESERVED
    nonce = Nonce(CORE.attempt.nonce, NoncePurpose.ATTEMPT, "steward", _ATTEMPT.attempt_id, state, None, "", NOW)
    gate = Gate(
        cast(Any, None),
        cast(Any, _Clock(now)),
        cast(Any, _Target(nonce)),
        _Trust(replace(ROOT, thresholds=replace(ROOT.thresholds, notary=notaries))),
        cast(Any, _VaultRoot(parse_location(VAULT))),
        cast(Any, _MemoryFiles()),
        ORIGIN,
        log_proof,
        cast(Any, None),
    )
    try:
        validate_then_commit(proposal, gate)
    except Accepted:
        return
    raise AssertionError("the example's target ends every publication")
