"""Brings a backup back: it is an older ledger, so nothing outstanding may count, and everybody can see that."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from hmac import compare_digest
from pathlib import Path

from pvdm.errors import InputError, VerificationError
from pvdm.model.core import Attempt
from pvdm.model.epoch import EpochStage, EpochStatement
from pvdm.model.proof import Proof
from pvdm.model.receipt import Receipt
from pvdm.model.restore import RestoreStatement
from pvdm.model.states import AttemptState, WorkloadState
from pvdm.steward.archive import ArchivedLog, log_folder
from pvdm.steward.config import StewardConfig
from pvdm.steward.log_reader import LedgerLogReader, LogEdge
from pvdm.steward.notary import Clock, Notary, join_notary, log_keys
from pvdm.steward.recorder import Document, signing_epoch
from pvdm.store import Unit, attempts, nonces, receipts, spent, statements, workloads
from pvdm.store.clock import monotonic_micros, wall_micros
from pvdm.store.log_storage import LedgerLog
from pvdm.store.receipts import ReceiptRecord
from pvdm.store.schema import StatementKind
from pvdm.trust.envelope import ROOT_SIGNATURES_MAX, TRUST_ROOT_TYPE, parse_envelope
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.keys.service import KeyService
from pvdm.trust.log import merkle
from pvdm.trust.log.checkpoint import SignedCheckpoint, open_checkpoint, read_unverified
from pvdm.trust.log.entry import EntryKind, LogEntry, parse_entry
from pvdm.trust.log.export import CHECKPOINT_FILE
from pvdm.trust.log.log import Log
from pvdm.trust.log.merkle import Node
from pvdm.trust.log.note import NoteKey
from pvdm.trust.log.outside import FileOutsideCheckpoint
from pvdm.trust.log.tiles import StaticTiles
from pvdm.trust.statement import read_statement
from pvdm.trust.verify import sign_statement


@dataclass(frozen=True, slots=True)
class Order:
    """Who wants the restore, why, and what is at hand for it."""

    operator: str
    reason: str
    archive: Path | None = None
    lost_origin: str | None = None
    log_keys: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did; `missing` counts refilled entries whose envelope is in no place."""

    backup_size: int
    outside_size: int
    refilled: int
    lost: int
    missing: int
    abandoned: tuple[str, ...]
    settled: tuple[str, ...]
    spent: tuple[str, ...]
    new_epoch: int
    log_size: int


@dataclass(frozen=True, slots=True)
class _Found:
    """An entry of the archive with its envelope, where that is there."""

    index: int
    entry: LogEntry
    envelope: bytes | None


def restore(
    config: StewardConfig, order: Order, *, wall: Clock = wall_micros, monotonic: Clock = monotonic_micros
) -> Restored:
    """Refill the log from the archive, end what was under way, open a new epoch, and log the restore itself.

    With `lost_origin` the entries that no archive has are given up: the log goes on under the configuration's new
    origin, and its first entry there says so. Without it, a gap is refused.
    """
    with contextlib.ExitStack() as undo:
        notary = join_notary(config, undo, wall=wall, monotonic=monotonic)
        if not notary.clock.is_ready():
            notary.clock.confirm(operator=order.operator, reason=order.reason)
        outside = _seen_outside(notary, order)
        backup_size = notary.log.size()
        lost, found = _refill(notary, order, outside)
        known = _reconcile(notary, found)
        abandoned = _end_what_was_open(notary)
        new_epoch = _bump_epoch(notary.keys, order, found)
        said = RestoreStatement(
            notary=config.notary,
            operator=order.operator,
            reason=order.reason,
            backup_size=backup_size,
            outside_origin=outside.checkpoint.origin,
            outside_size=outside.checkpoint.size,
            outside_root=outside.checkpoint.root.hex(),
            refilled=len(found),
            lost=lost,
            new_epoch=new_epoch,
            issued_at=notary.clock.now_micros(),
        )
        _log_itself(notary, order, said)
        return Restored(
            backup_size,
            outside.checkpoint.size,
            len(found),
            lost,
            sum(each.envelope is None for each in found),
            abandoned,
            *known,
            new_epoch,
            notary.log.size(),
        )


def _seen_outside(notary: Notary, order: Order) -> SignedCheckpoint:
    """The checkpoint kept outside; under a new origin it is still that of the old log."""
    config = notary.config
    origin = order.lost_origin or config.origin
    if order.lost_origin == config.origin:
        raise InputError(
            "restore_origin_same",
            "a log whose end is lost cannot go on under its own name",
            expected=f"another origin in the configuration than {config.origin}",
            got=config.origin,
        )

    def keys() -> list[NoteKey]:
        return [*log_keys(notary.keys.book(), origin), *(NoteKey(origin, der) for der in order.log_keys)]

    newest = FileOutsideCheckpoint(config.outside_path, origin=origin, keys=keys).load()
    if newest is None:
        raise VerificationError(
            "outside_checkpoint_missing",
            "no checkpoint is kept outside",
            expected="the newest checkpoint",
            got="none",
            hint="bring the file back; without it nobody can tell what the backup lacks",
        )
    return newest


def _refill(notary: Notary, order: Order, outside: SignedCheckpoint) -> tuple[int, list[_Found]]:
    """Bring the log up to the outside checkpoint, or to the archive's where that is newer; says how much is lost."""
    size = notary.log.size()
    if _is_renamed(notary, order):
        return max(1, outside.checkpoint.size - size), []
    if size >= outside.checkpoint.size:
        _require_root(notary, outside)
        return 0, []
    target = _target(notary, order, outside)
    reached = max(size, target.checkpoint.size if target else 0)
    lost = max(0, outside.checkpoint.size - reached)
    if lost and order.lost_origin is None:
        raise VerificationError(
            "restore_entries_missing",
            "the archive does not have what the backup lacks",
            expected=f"entries {size} to {outside.checkpoint.size - 1}",
            got="no archive" if target is None else f"{target.checkpoint.size} entries",
            hint="bring the newest archive; or give the entries up by going on under a new origin",
        )
    if target is None or order.archive is None or target.checkpoint.size <= size:
        return lost, []
    archive = ArchivedLog(order.archive)
    entries = archive.entries(size, target.checkpoint.size)
    found = []
    for place, data in enumerate(entries, start=size):
        entry = parse_entry(data)
        found.append(_Found(place, entry, archive.envelope(entry.sha256)))
    _store(notary, entries, found, target)
    return lost, found


def _is_renamed(notary: Notary, order: Order) -> bool:
    """Whether an interrupted restore has already begun the new origin."""
    note = LedgerLogReader(notary.ledger).newest_checkpoint()
    if order.lost_origin is None or note is None:
        return False
    return read_unverified(note).checkpoint.origin == notary.config.origin


def _target(notary: Notary, order: Order, outside: SignedCheckpoint) -> SignedCheckpoint | None:
    """The archive's signed checkpoint, or the outside's own where both are of one size; None without an archive."""
    if order.archive is None or not (log_folder(order.archive) / CHECKPOINT_FILE).exists():
        return None
    origin = outside.checkpoint.origin
    keys = [*log_keys(notary.keys.book(), origin), *(NoteKey(origin, der) for der in order.log_keys)]
    held = open_checkpoint((log_folder(order.archive) / CHECKPOINT_FILE).read_bytes(), origin=origin, keys=keys)
    if held.checkpoint.size == outside.checkpoint.size:
        return outside
    if held.checkpoint.size > outside.checkpoint.size:
        _require_goes_on(order.archive, held, outside)
    return held


def _require_goes_on(archive: Path, held: SignedCheckpoint, outside: SignedCheckpoint) -> None:
    """What is outside is the word that counts; a longer archive must begin with it."""
    tiles = StaticTiles(log_folder(archive), held.checkpoint.size)
    root = merkle.root_at(tiles, outside.checkpoint.size)
    if not compare_digest(root, outside.checkpoint.root):
        raise VerificationError(
            "log_forked",
            "the archive shows another history than the checkpoint outside",
            expected=f"root {outside.checkpoint.root.hex()}",
            got=root.hex(),
            hint="two histories exist under one key; keep both and tell every consumer",
        )


def _store(notary: Notary, entries: Sequence[bytes], found: Sequence[_Found], target: SignedCheckpoint) -> None:
    edge = LogEdge.of(notary.ledger)
    nodes = merkle.frontier(edge.size())
    hashes: dict[Node, bytes] = {}
    grown = merkle.grow(
        edge.read_hashes(nodes) if nodes else [], edge.size(), map(merkle.leaf_hash, entries), hashes.__setitem__
    )
    if not compare_digest(grown, target.checkpoint.root):
        raise VerificationError(
            "log_forked",
            "backup and archive together do not make the log that was signed",
            expected=f"root {target.checkpoint.root.hex()}",
            got=grown.hex(),
            hint="the backup has grown on its own, or the archive was changed; keep both and look",
        )

    def work(unit: Unit) -> None:
        LedgerLog(unit).append(at=edge.size(), entries=entries, hashes=hashes, checkpoint=target.note)
        for each in found:
            if each.envelope is not None:
                kind = StatementKind(each.entry.kind)
                statements.put(unit, kind, _statement_id(kind, each.envelope), each.envelope, log_index=each.index)

    notary.ledger.transact(work, at_micros=notary.clock.now_micros())


def _statement_id(kind: StatementKind, envelope: bytes) -> str:
    if kind is StatementKind.TRUST_ROOT:
        return parse_envelope(envelope, payload_type=TRUST_ROOT_TYPE, signatures_max=ROOT_SIGNATURES_MAX).payload_sha256
    return parse_envelope(envelope).payload_sha256


def _require_root(notary: Notary, outside: SignedCheckpoint) -> None:
    """A backup that is long enough must begin with what the outside saw: else it has grown on its own."""
    with notary.ledger.read() as unit:
        root = merkle.root_at(LedgerLog(unit), outside.checkpoint.size)
    if not compare_digest(root, outside.checkpoint.root):
        raise VerificationError(
            "log_forked",
            f"the log's first {outside.checkpoint.size} entries are not those that were signed",
            expected=f"root {outside.checkpoint.root.hex()}",
            got=root.hex(),
            hint="the backup has grown on its own; bring it back as it was made, and restore that",
        )


def _reconcile(notary: Notary, found: Sequence[_Found]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What receipts of the lost time say became visible: settled where the attempt is known, else its id is spent."""
    settled: list[str] = []
    used_up: set[str] = set()

    def work(unit: Unit) -> None:
        for each in found:
            if each.envelope is None or each.entry.kind is not EntryKind.RECEIPT:
                continue
            said = read_statement(parse_envelope(each.envelope).payload, Receipt)
            for proof_id in said.proof_ids:
                attempt_id = _settled(unit, proof_id, str(said.new_snapshot_id))
                if attempt_id is not None:
                    settled.append(attempt_id)
                    continue
                _spend(unit, each, said, proof_id)
                used_up.add(said.workload_id)
            if workloads.find(unit, said.workload_id) is not None:
                receipt_id, snapshot = parse_envelope(each.envelope).payload_sha256, str(said.new_snapshot_id)
                record = ReceiptRecord(receipt_id, said.workload_id, said.table.uuid, snapshot)
                receipts.put(unit, record, each.envelope, log_index=each.index)

    notary.ledger.transact(work, at_micros=notary.clock.now_micros())
    return tuple(settled), tuple(sorted(used_up))


def _proved(unit: Unit, proof_id: str) -> Attempt | None:
    held = statements.find(unit, proof_id)
    return None if held is None else read_statement(parse_envelope(held.envelope).payload, Proof).core.attempt


def _settled(unit: Unit, proof_id: str, snapshot_id: str) -> str | None:
    """The attempt that is now COMMITTED; None where the backup does not have it waiting for its commit."""
    proved = _proved(unit, proof_id)
    if proved is None:
        return None
    attempt, nonce = attempts.find(unit, proved.attempt_id), nonces.find(unit, proved.nonce)
    if attempt is None or nonce is None or attempt.state is not AttemptState.COMMITTING:
        return None
    attempts.settle(unit, proved.attempt_id, proved.nonce, nonces.CommittedAs(snapshot_id))
    return proved.attempt_id


def _spend(unit: Unit, each: _Found, said: Receipt, proof_id: str) -> None:
    proved = _proved(unit, proof_id)
    chunk_id = f"proof {proof_id}" if proved is None else proved.chunk_id
    receipt_id = parse_envelope(each.envelope or b"").payload_sha256
    spent.put(unit, said.workload_id, chunk_id, snapshot_id=str(said.new_snapshot_id), receipt_id=receipt_id)


def _end_what_was_open(notary: Notary) -> tuple[str, ...]:
    """Every live attempt is rolled back and every open workload abandoned: what they had may be known elsewhere."""
    why = "the ledger was restored from a backup"

    def work(unit: Unit) -> tuple[str, ...]:
        for attempt in attempts.live(unit):
            attempts.end(unit, attempt.attempt_id, AttemptState.ROLLED_BACK, reason=why)
        ended = workloads.still_open(unit)
        for workload in ended:
            workloads.move(unit, workload.opening.workload_id, WorkloadState.ABANDONED, reason=why)
        return tuple(workload.opening.workload_id for workload in ended)

    return notary.ledger.transact(work, at_micros=notary.clock.now_micros())


def _bump_epoch(keys: KeyService, order: Order, found: Sequence[_Found]) -> int:
    """Create the next epoch, catch up with what the log says of the others, retire the active one: proofs die."""
    stages: dict[int, EpochStage] = {}
    for each in found:
        if each.envelope is not None and each.entry.kind is EntryKind.EPOCH:
            said = read_statement(parse_envelope(each.envelope).payload, EpochStatement)
            stages[said.epoch] = said.after
    made = keys.create_epoch(order.reason, above=max(stages, default=0))[0].epoch
    for epoch in keys.book().epochs:
        usable = epoch.state in (EpochStage.ACTIVE, EpochStage.RETIRED)
        if usable and stages.get(epoch.number) is EpochStage.REVOKED:
            keys.revoke_epoch(epoch.number, order.reason)
    active = keys.book().active
    if active is not None:
        keys.retire_epoch(active.number, order.reason)
    if not any(epoch.state is EpochStage.RETIRED for epoch in keys.book().epochs):
        # Only the new keys are left to sign with; the Steward is not ready until a trust root names them.
        keys.activate_epoch(made, order.reason)
    return made


def _log_itself(notary: Notary, order: Order, said: RestoreStatement) -> None:
    envelope = sign_statement(said, notary.keys.signer(KeyRole.SIGNING, signing_epoch(notary.keys.book())))
    document = Document(StatementKind.RESTORE, envelope.payload_sha256, envelope.to_bytes())
    if said.lost:
        _begin_new_origin(notary, said, document)
    else:
        notary.recorder.begin()
        notary.recorder.record([document], lambda unit, places: _put(unit, document, places[0]))
    notary.epochs.log_missing(order.reason)


def _begin_new_origin(notary: Notary, said: RestoreStatement, document: Document) -> None:
    """The entries stay, the name changes: the first entry under the new name says what is lost."""
    signer = notary.keys.signer(KeyRole.LOG, signing_epoch(notary.keys.book()))
    edge = LogEdge.of(notary.ledger)
    log = Log(edge, origin=notary.config.origin, signer=signer, continues=said.outside_origin)
    at = notary.clock.now_micros()
    entry = LogEntry(EntryKind.RESTORE, hashlib.sha256(document.envelope).hexdigest(), at)
    prepared = log.prepare([entry])

    def work(unit: Unit) -> None:
        _put(unit, document, prepared.store(LedgerLog(unit)).index)

    notary.ledger.transact(work, at_micros=at)
    kept = notary.config.outside_path.with_name(f"{notary.config.outside_path.name}.lost")
    notary.config.outside_path.rename(kept)
    notary.outside.store(prepared.checkpoint)


def _put(unit: Unit, document: Document, log_index: int) -> None:
    statements.put(unit, document.kind, document.statement_id, document.envelope, log_index=log_index)
