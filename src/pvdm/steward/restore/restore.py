"""Brings a backup back: it is an older ledger, so nothing outstanding may count, and everybody can see that."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass, replace
from itertools import count

from pvdm import fault
from pvdm.errors import InputError, UnavailableError
from pvdm.lake.stores.object_path import FilePath
from pvdm.ledger import Unit
from pvdm.ledger.clock import monotonic_micros, wall_micros
from pvdm.ledger.record import restores, shared_settings, statements
from pvdm.ledger.record.log_storage import LedgerLog
from pvdm.ledger.record.restores import Restore
from pvdm.ledger.schema.record import StatementKind
from pvdm.model.statements.restore import RestoreStatement
from pvdm.steward.config.common_settings import require_common
from pvdm.steward.config.log_locations import outside_file
from pvdm.steward.config.steward import StewardConfig
from pvdm.steward.notary import Clock, Notary, join_notary
from pvdm.steward.process_lock import serving_alone
from pvdm.steward.record.log_reader import LedgerLogReader, LogEdge
from pvdm.steward.record.recorder import Document, signing_epoch
from pvdm.steward.restore import epochs, reconcile, refill
from pvdm.steward.restore.behind import BehindTable
from pvdm.steward.restore.claims import derive_claims
from pvdm.steward.restore.lineage import LostPublication
from pvdm.steward.restore.pointers import find_pointers
from pvdm.steward.restore.readable import UnreadableTable
from pvdm.steward.restore.refill import Order
from pvdm.steward.restore.refill_approvals import ProtectedAgain, RemadeMigration, UnprotectedTable
from pvdm.steward.restore.unregistered import UnregisteredTable
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.log.checkpoint import Checkpoint, read_unverified
from pvdm.trust.log.disk import sync_folder, write_atomically
from pvdm.trust.log.entry import EntryKind, LogEntry
from pvdm.trust.log.log import Log
from pvdm.trust.log.outside import locked
from pvdm.trust.statement import read_signed
from pvdm.trust.verify import sign_statement

__all__ = ["Order", "Restored", "restore"]


@dataclass(frozen=True, slots=True)
class AdvancedTable:
    """A table that shows a newer document than the backup named; `created` where the backup lacked the table."""

    table: str
    table_uuid: str
    snapshot_id: str | None
    created: bool


@dataclass(frozen=True, slots=True)
class BlockedClaim:
    """A publication whose claim is unknown: no workload claims rows of its table until it is released."""

    table: str
    receipt_id: str
    workload_id: str


@dataclass(frozen=True, slots=True)
class UnreceiptedChunk:
    """A chunk that a table shows though its publication has no receipt: a later publication was made on it."""

    table: str
    snapshot_id: str
    workload_id: str
    chunk_id: str
    proof_id: str


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did; `missing` counts refilled entries whose envelope is in no place.

    Workloads that the backup had open are `abandoned`; those in `published` were published after it, whole or in part.
    `tokens` were revoked, `nonces` of overrides and challenges voided; of those in `blocked` the claims are lost.
    What is in `protected` came under its contract again; the migrations in `remade` are in force again, and the tables
    in `migrated` lack one of the lost time. Tables in `advanced` show a newer document than the backup named;
    `unreceipted` are shown without a receipt, and their workload ids are used up like those of receipts;
    `lost_publications` have a receipt, and their tables do not show them; tables in `behind` are not protected, and
    newer documents than theirs lie in the catalog's folder; nobody can read those in `unreadable`, whose documents are
    gone. Documents of tables in `unregistered` lie in the catalog's folder, and the ledger has no such table. Tables in
    `unprotected` are there without their protection, which ended in the lost time: they may have been dropped since.
    `repeated` is the outcome of an earlier restore of this very ledger: nothing was missing, and nothing was changed.
    """

    backup_size: int
    outside_size: int
    refilled: int
    lost: int
    missing: int
    abandoned: tuple[str, ...]
    published: tuple[str, ...]
    settled: tuple[str, ...]
    spent: tuple[str, ...]
    blocked: tuple[BlockedClaim, ...]
    protected: tuple[ProtectedAgain, ...]
    remade: tuple[RemadeMigration, ...]
    migrated: tuple[str, ...]
    advanced: tuple[AdvancedTable, ...]
    unreceipted: tuple[UnreceiptedChunk, ...]
    lost_publications: tuple[LostPublication, ...]
    behind: tuple[BehindTable, ...]
    unreadable: tuple[UnreadableTable, ...]
    unregistered: tuple[UnregisteredTable, ...]
    unprotected: tuple[UnprotectedTable, ...]
    nonces: int
    tokens: int
    new_epoch: int
    log_size: int
    repeated: bool = False


def restore(
    config: StewardConfig, order: Order, *, wall: Clock = wall_micros, monotonic: Clock = monotonic_micros
) -> Restored:
    """Refill the log from the archive, end what was under way, open a new epoch, and log the restore itself.

    With `lost_origin` the entries that no archive has are given up: the log goes on under the configuration's new
    origin, and its first entry there says so. Without it, a gap is refused. One that was interrupted is finished by
    the next call, in the name of who began it; until then the Steward does not start. A ledger that was restored
    before and lacks nothing is left as it is, unless the order says `again`.
    """
    with contextlib.ExitStack() as undo:
        notary = join_notary(config, undo, wall=wall, monotonic=monotonic)
        undo.enter_context(serving_alone(notary.ledger))
        require_common(notary.ledger, config, renaming=True)
        _require_clock(notary, order)
        with notary.ledger.read() as unit:
            newest = restores.newest(unit)
        marker = newest if newest is not None and newest.finished_micros is None else None
        if marker is None:
            plan = refill.plan(notary, order)
            if newest is not None and not plan.found and not plan.lost and not order.again:
                # Nothing of the log is missing, so it is the ledger that was restored before, and not a backup.
                return replace(_result(notary, newest), repeated=True)
            pointers = find_pointers(notary, plan, order)
            claims = derive_claims(notary, plan.found, pointers)
            marker = reconcile.apply(notary, order, plan, pointers, claims)
            fault.point("steward.restore.after_refill")
        _require_name(config, marker)
        return _finished(notary, marker)


def _require_clock(notary: Notary, order: Order) -> None:
    """A long rest looks like a jump; whether it was one is a person's word, and not a restore's side effect."""
    if notary.clock.is_ready():
        return
    if order.confirm_clock:
        notary.clock.confirm(operator=order.operator, reason=order.reason)
        return
    try:
        notary.clock.now_micros()
    except UnavailableError as error:
        raise UnavailableError(
            error.code,
            error.message,
            expected=error.expected,
            got=error.got,
            hint="set the host's clock right; if it is right now, restore with --confirm-clock, which is noted",
        ) from None


def _require_name(config: StewardConfig, marker: Restore) -> None:
    """A restore goes on under the kind of name under which it began."""
    origin = _outside(marker).origin
    if marker.outcome["lost"]:
        refill.require_archive_free(config)
    if (origin != config.origin) != bool(marker.outcome["lost"]):
        raise InputError(
            "restore_origin_changed",
            "the configuration names another log than the restore that was interrupted",
            expected=f"another origin than {origin}" if marker.outcome["lost"] else origin,
            got=config.origin,
        )


def _finished(notary: Notary, marker: Restore) -> Restored:
    lost = bool(marker.outcome["lost"])
    if not (lost and _newest(notary).origin == notary.config.origin):
        new_epoch = epochs.bump(notary.ledger, notary.keys, marker)
        fault.point("steward.restore.after_epoch")
        _log_itself(notary, marker, new_epoch)
    if lost:
        fault.point("steward.restore.before_swap")
        _swap_outside(notary, marker)
        at = notary.clock.now_micros()
        notary.ledger.transact(lambda unit: _finish(unit, notary, marker), at_micros=at)
    notary.epochs.log_missing(marker.reason)
    return _result(notary, marker)


def _finish(unit: Unit, notary: Notary, marker: Restore) -> None:
    """From here on every Steward of the ledger has the log's name under which it was restored."""
    restores.finish(unit, marker.restore_id)
    shared_settings.set_log_origin(unit, notary.config.origin)


def _result(notary: Notary, marker: Restore) -> Restored:
    outcome = marker.outcome
    with notary.ledger.read() as unit:
        logged = statements.of_kind(unit, StatementKind.RESTORE)[-1]
    said = read_signed(logged.envelope, RestoreStatement)
    return Restored(
        backup_size=marker.backup_size,
        outside_size=_outside(marker).size,
        refilled=outcome["refilled"],
        lost=outcome["lost"],
        missing=outcome["missing"],
        abandoned=tuple(outcome["abandoned"]),
        published=tuple(outcome["published"]),
        settled=tuple(outcome["settled"]),
        spent=tuple(outcome["spent"]),
        blocked=tuple(BlockedClaim(**each) for each in outcome["blocked"]),
        protected=tuple(ProtectedAgain(**each) for each in outcome["protected"]),
        remade=tuple(RemadeMigration(**each) for each in outcome["remade"]),
        migrated=tuple(outcome["migrated"]),
        advanced=tuple(AdvancedTable(**each) for each in outcome["advanced"]),
        unreceipted=tuple(UnreceiptedChunk(**each) for each in outcome["unreceipted"]),
        lost_publications=tuple(
            LostPublication(**{**each, "chunk_ids": tuple(each["chunk_ids"])}) for each in outcome["lost_publications"]
        ),
        behind=tuple(BehindTable(**each) for each in outcome["behind"]),
        unreadable=tuple(UnreadableTable(**each) for each in outcome["unreadable"]),
        unregistered=tuple(UnregisteredTable(**each) for each in outcome["unregistered"]),
        unprotected=tuple(UnprotectedTable(**each) for each in outcome["unprotected"]),
        nonces=outcome["nonces"],
        tokens=outcome["tokens"],
        new_epoch=said.new_epoch,
        log_size=notary.log.size(),
    )


def _outside(marker: Restore) -> Checkpoint:
    return read_unverified(marker.outside_note).checkpoint


def _newest(notary: Notary) -> Checkpoint:
    note = LedgerLogReader(notary.ledger).newest_checkpoint()
    if note is None:
        raise AssertionError("a log that was backed up has a checkpoint")
    return read_unverified(note).checkpoint


def _log_itself(notary: Notary, marker: Restore, new_epoch: int) -> None:
    """The statement; in its transaction the restore is finished, unless the outside has to follow first."""
    outside, outcome = _outside(marker), marker.outcome
    said = RestoreStatement(
        notary=notary.config.notary,
        operator=marker.operator,
        reason=marker.reason,
        backup_size=marker.backup_size,
        outside_origin=outside.origin,
        outside_size=outside.size,
        outside_root=outside.root.hex(),
        refilled=outcome["refilled"],
        missing=outcome["missing"],
        lost=outcome["lost"],
        new_epoch=new_epoch,
        issued_at=notary.clock.now_micros(),
    )
    envelope = sign_statement(said, notary.keys.signer(KeyRole.SIGNING, signing_epoch(notary.keys.book())))
    document = Document(StatementKind.RESTORE, envelope.payload_sha256, envelope.to_bytes())
    if said.lost:
        _begin_new_origin(notary, said, document)
        return

    def work(unit: Unit, place: int) -> None:
        _put(unit, document, place)
        _finish(unit, notary, marker)

    notary.recorder.begin()
    notary.recorder.record([document], lambda unit, places: work(unit, places[0]))


def _begin_new_origin(notary: Notary, said: RestoreStatement, document: Document) -> None:
    """The entries stay, the name changes: the first entry under the new name says what is lost."""
    signer = notary.keys.signer(KeyRole.LOG, signing_epoch(notary.keys.book()))
    edge = LogEdge.of(notary.ledger)
    log = Log(edge, origin=notary.config.origin, signer=signer, continues=said.outside_origin)
    notary.clock.synchronize()
    at = notary.clock.now_micros()
    entry = LogEntry(EntryKind.RESTORE, hashlib.sha256(document.envelope).hexdigest(), at)
    prepared = log.prepare([entry])
    notary.ledger.transact(
        lambda unit: _put(unit, document, prepared.store(LedgerLog(unit)).index),
        at_micros=at,
    )


def _swap_outside(notary: Notary, marker: Restore) -> None:
    """The old log's last checkpoint is kept beside; at no moment is there none in its place."""
    path = outside_file(notary.config)
    note = LedgerLogReader(notary.ledger).newest_checkpoint() or b""
    try:
        _swap(path, marker.outside_note, note)
    except OSError as error:
        raise UnavailableError(
            "outside_checkpoint_unavailable",
            f"the outside checkpoint cannot be reached: {error.strerror or error}",
            hint="restore again when it can be written",
        ) from None


def _swap(path: FilePath, last: bytes, note: bytes) -> None:
    with locked(path):
        held = path.read_bytes() if path.exists() else last
        if held == note:
            return
        _keep(path, held)
        fault.point("steward.restore.after_keep")
        write_atomically(path, note)
        sync_folder(path.parent)


def _keep(path: FilePath, held: bytes) -> None:
    """Under the first free name; what was kept before is never overwritten."""
    for number in count(1):
        kept = path.with_name(f"{path.name}.lost-{number}")
        if not kept.exists():
            write_atomically(kept, held)
            sync_folder(path.parent)
            return
        if kept.read_bytes() == held:
            return


def _put(unit: Unit, document: Document, log_index: int) -> None:
    statements.put(unit, document.kind, document.statement_id, document.envelope, log_index=log_index)
