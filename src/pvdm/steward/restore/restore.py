"""Completes a ledger that was brought back from a backup: refills it, ends its open work, and logs the restore."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

from pydantic import TypeAdapter

from pvdm import fault
from pvdm.errors import Code, UnavailableError, expect
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import monotonic_micros, wall_micros
from pvdm.ledger.record import restores, shared_settings, statements
from pvdm.ledger.record.events import LedgerLog
from pvdm.ledger.record.restores import Restore
from pvdm.model.statements.epoch import EpochStage, EpochStatement, RestoreStatement
from pvdm.model.statements.kind import StatementKind
from pvdm.steward.config.ledger_agreement import require_shared_settings
from pvdm.steward.config.resources import outside_file
from pvdm.steward.config.steward import StewardConfig
from pvdm.steward.locks import serve_alone
from pvdm.steward.notary import Clock, Notary, assemble_notary
from pvdm.steward.record.log import LedgerLogReader, PinnedLogReader
from pvdm.steward.record.recorder import Document, signing_epoch
from pvdm.steward.restore import refill
from pvdm.steward.restore.lineage import LostPublication
from pvdm.steward.restore.pointers import prepare_pointers
from pvdm.steward.restore.reconcile import apply_restore, derive_claims
from pvdm.steward.restore.refill import RestoreRequest
from pvdm.steward.restore.refill_statements import RemadeMigration, ReprotectedObject, UnprotectedTable
from pvdm.steward.restore.table_report import BehindTable, UnreadableTable, UnregisteredTable
from pvdm.trust.keys.epochs import Epoch, KeyRole
from pvdm.trust.keys.service import KeyService
from pvdm.trust.log.checkpoint import Checkpoint, read_unverified
from pvdm.trust.log.disk import sync_folder, write_atomically
from pvdm.trust.log.entry import LogEntry
from pvdm.trust.log.log import Log
from pvdm.trust.log.outside import hold_lock
from pvdm.trust.statement import read_unchecked
from pvdm.trust.verify import sign_statement

__all__ = ["RestoreRequest", "RestoreResult", "restore"]


@dataclass(frozen=True, slots=True)
class AdvancedTable:
    """A table that shows newer metadata than the backup named; `created`: whether the backup lacked the table."""

    table: str
    table_uuid: str
    snapshot_id: str | None
    created: bool


@dataclass(frozen=True, slots=True)
class BlockedClaim:
    """A publication whose claim (reserved rows) is lost. Its table gets no claims until an operator releases this."""

    table: str
    receipt_id: str
    workload_id: str


@dataclass(frozen=True, slots=True)
class UnreceiptedChunk:
    """A chunk that a table shows although its receipt is missing. A later publication was based on its snapshot."""

    table: str
    snapshot_id: str
    workload_id: str
    chunk_id: str
    proof_id: str


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The result of a restore.

    `refilled`: number of log entries that came from the archive. `missing`: number of these that lack their envelope.
    `lost`: number of log entries that are given up.
    `abandoned`: the backup's open workloads, which are abandoned now; those in `published` are listed there only.
    `published`: open workloads that were published after the backup, at least in part.
    `settled`: attempts that are committed now. `spent`: workloads whose ids cannot be used again.
    `blocked`: publications whose claims are lost.
    `protected`, `remade`: tables and namespaces protected again, and migrations in force again.
    `unmigrated`: names of tables that lack a migration from after the backup; it must be proposed again.
    `unreceipted`: chunks shown without a receipt; their workload ids cannot be used again.
    `lost_publications`: publications with a receipt that their tables do not show.
    `nonces`, `tokens`: the numbers of nonces that were voided and of tokens that were revoked.
    `repeated`: this is the result of an earlier restore of the same ledger; nothing was changed.
    The classes of the other fields describe them.
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
    protected: tuple[ReprotectedObject, ...]
    remade: tuple[RemadeMigration, ...]
    unmigrated: tuple[str, ...]
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
    config: StewardConfig, request: RestoreRequest, *, wall: Clock = wall_micros, monotonic: Clock = monotonic_micros
) -> RestoreResult:
    """Refill the log from the archive, end open work, open a new epoch, and log the restore.

    With `lost_origin`, the old name of the log, missing entries are given up, and the log continues under the new name
    in the configuration. Without it missing entries are an error. An interrupted restore leaves its marker, a row of
    the ledger. Then the Steward does not start until the next call finishes it, with the first call's operator. A
    ledger that was restored before and lacks nothing is left alone without `again`.
    """
    with contextlib.ExitStack() as undo:
        notary = assemble_notary(config, undo, wall=wall, monotonic=monotonic)
        undo.enter_context(serve_alone(notary.ledger))
        require_shared_settings(notary.ledger, config, ignores_origin=True)
        _require_clock(notary, request)
        with notary.ledger.read() as unit:
            newest = restores.find_newest(unit)
        marker = newest if newest is not None and newest.finished_micros is None else None
        if marker is None:
            plan = refill.plan_refill(notary, request)
            if newest is not None and not plan.archived and not plan.lost and not request.again:
                # The log lacks nothing, so this ledger was restored before and is no backup.
                return replace(_result(notary, newest), repeated=True)
            pointers = prepare_pointers(notary, plan, request)
            claims = derive_claims(notary, plan.archived, pointers)
            marker = apply_restore(notary, request, plan, pointers, claims)
            fault.point("steward.restore.after_refill")
        _require_same_origin(config, marker)
        return _complete(notary, marker)


def _require_clock(notary: Notary, request: RestoreRequest) -> None:
    """Raise if the clock is in doubt and the operator does not confirm it: downtime looks like a clock jump."""
    if notary.clock.is_ready():
        return
    if request.confirm_clock:
        notary.clock.confirm(operator=request.operator, reason=request.reason)
        return
    try:
        notary.clock.now_micros()
    except UnavailableError as error:
        error.hint = "set the host's clock right; if it is right now, restore with --confirm-clock, which is recorded"
        raise


def _require_same_origin(config: StewardConfig, marker: Restore) -> None:
    """Raise if the restore would continue under another origin (name of the log) than it began with."""
    origin = _outside_checkpoint(marker).origin
    if marker.outcome["lost"]:
        refill.require_archive_free(config)
    if (origin != config.origin) != bool(marker.outcome["lost"]):
        raise Code.RESTORE_REQUEST_INVALID(
            reason="restore_origin_changed",
            expected=f"another origin than {origin}" if marker.outcome["lost"] else origin,
            got=config.origin,
        )


def _complete(notary: Notary, marker: Restore) -> RestoreResult:
    """Open the new epoch and log the restore, unless an interrupted call has done so already."""
    lost = bool(marker.outcome["lost"])
    note = expect(LedgerLogReader(notary.ledger).newest_checkpoint(), "a log that was backed up has a checkpoint")
    # If entries are lost, the log has the new origin once the restore is logged.
    is_logged = lost and read_unverified(note).checkpoint.origin == notary.config.origin
    if not is_logged:
        new_epoch = open_new_epoch(notary.ledger, notary.keys, marker)
        fault.point("steward.restore.after_epoch")
        _log_restore(notary, marker, new_epoch)
    if lost:
        fault.point("steward.restore.before_swap")
        _replace_outside(notary, marker)
        notary.ledger.transact(lambda unit: _finish(unit, notary, marker), at_micros=notary.clock.now_micros())
    notary.epochs.log_missing(marker.reason)
    return _result(notary, marker)


def _finish(unit: Unit, notary: Notary, marker: Restore) -> None:
    """Finish the restore, and store the log's origin for all Stewards of the ledger."""
    restores.finish(unit, marker.restore_id)
    shared_settings.set_log_origin(unit, notary.config.origin)


def _result(notary: Notary, marker: Restore) -> RestoreResult:
    with notary.ledger.read() as unit:
        logged = statements.list_by_kind(unit, StatementKind.RESTORE)[-1]
    facts = {
        **marker.outcome,
        "backup_size": marker.backup_size,
        "outside_size": _outside_checkpoint(marker).size,
        "new_epoch": read_unchecked(logged.envelope, RestoreStatement).new_epoch,
        "log_size": notary.log.size(),
    }
    return TypeAdapter(RestoreResult).validate_python(facts)


def _outside_checkpoint(marker: Restore) -> Checkpoint:
    return read_unverified(marker.outside_note).checkpoint


def _log_restore(notary: Notary, marker: Restore, new_epoch: int) -> None:
    """Sign and log the restore; this also finishes it, unless the outside checkpoint must be replaced."""
    outside, outcome = _outside_checkpoint(marker), marker.outcome
    epoch = signing_epoch(notary.keys.book())
    statement = RestoreStatement(
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
    envelope = sign_statement(statement, notary.keys.signer(KeyRole.SIGNING, epoch))
    document = Document(StatementKind.RESTORE, envelope.payload_sha256, envelope.to_bytes())
    if statement.lost:
        _begin_new_origin(notary, document, epoch=epoch, old_origin=outside.origin)
        return

    def work(unit: Unit, log_indexes: Sequence[int]) -> None:
        document.store(unit, log_indexes[0])
        _finish(unit, notary, marker)

    notary.recorder.check_at_start()
    notary.recorder.record([document], work)


def _begin_new_origin(notary: Notary, document: Document, *, epoch: int, old_origin: str) -> None:
    """Continue the log under the new origin; its first entry there is the restore statement."""
    signer = notary.keys.signer(KeyRole.LOG, epoch)
    pinned = PinnedLogReader.pin_now(notary.ledger)
    log = Log(pinned, origin=notary.config.origin, signer=signer, continues=old_origin)
    notary.clock.synchronize()
    at = notary.clock.now_micros()
    prepared = log.prepare([LogEntry(StatementKind.RESTORE, hashlib.sha256(document.envelope).hexdigest(), at)])
    notary.ledger.transact(lambda unit: document.store(unit, prepared.store(LedgerLog(unit)).index), at_micros=at)


def _replace_outside(notary: Notary, marker: Restore) -> None:
    """Replace the outside checkpoint by the newest one; the old one is kept beside it as `….lost-<number>`."""
    path = outside_file(notary.config)
    note = LedgerLogReader(notary.ledger).newest_checkpoint() or b""
    try:
        with hold_lock(path):
            old_note = path.read_bytes() if path.exists() else marker.outside_note
            if old_note == note:
                return
            copies = (path.with_name(f"{path.name}.lost-{number}") for number in count(1))
            copy = next(each for each in copies if not each.exists() or each.read_bytes() == old_note)
            if not copy.exists():
                write_atomically(copy, old_note)
                sync_folder(path.parent)
            fault.point("steward.restore.after_keep")
            write_atomically(path, note)
            sync_folder(path.parent)
    except OSError as error:
        raise Code.STORAGE_UNAVAILABLE(
            f"the outside checkpoint cannot be reached: {error.strerror or error}",
            reason="outside_checkpoint_unavailable",
        ) from None


def open_new_epoch(ledger: Ledger, keys: KeyService, marker: Restore) -> int:
    """Create an epoch, retire or revoke the old ones, and return the new one's number.

    A second call continues the first. If log entries are lost, all old epochs are revoked, since a lost entry may
    have revoked one of them.
    """
    with ledger.read() as unit:
        stored = statements.list_by_kind(unit, StatementKind.EPOCH)
    steps = [read_unchecked(each.envelope, EpochStatement) for each in stored]
    logged = {each.epoch: each.after for each in steps}  # the last stage of each epoch in the refilled log
    lost = bool(marker.outcome["lost"])

    def old_epochs() -> list[Epoch]:
        return [epoch for epoch in keys.book().epochs if epoch.number <= marker.epoch_before]

    def is_revoked(epoch: Epoch) -> bool:
        return lost or logged.get(epoch.number) is EpochStage.REVOKED

    for epoch in old_epochs():
        was_active = logged.get(epoch.number, EpochStage.CREATED) is not EpochStage.CREATED
        # Only an active epoch can be retired or revoked; nothing is signed with it meanwhile.
        if epoch.state is EpochStage.CREATED and (lost or was_active):
            keys.activate_epoch(epoch.number, marker.reason)
    new, last_logged = keys.book().epochs[-1].number, max(logged, default=0)
    if new <= max(marker.epoch_before, last_logged):  # else an interrupted restore has created it
        new = keys.create_epoch(marker.reason, above=last_logged)[0].epoch
    old_can_sign = any(epoch.can_sign and not is_revoked(epoch) for epoch in old_epochs())
    if not old_can_sign and keys.book().epoch(new).state is EpochStage.CREATED:
        # No other epoch can sign; the Steward is not ready until a trust root names the new keys.
        keys.activate_epoch(new, marker.reason)
    for epoch in old_epochs():
        if epoch.can_sign and is_revoked(epoch):
            keys.revoke_epoch(epoch.number, marker.reason)
    active = keys.book().active
    if active is not None and active.number != new:
        keys.retire_epoch(active.number, marker.reason)
    return new
