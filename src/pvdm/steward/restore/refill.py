"""Plans a restore: the archive's entries that the backup lacks, with verified envelopes."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final

from pvdm.errors import Code, VerificationError
from pvdm.lake.stores.stores import FilePath
from pvdm.ledger.record import statements
from pvdm.ledger.record.log_storage import LedgerLog
from pvdm.ledger.schema.record import StatementKind
from pvdm.model.fields import require_form
from pvdm.model.printable import counted, list_first
from pvdm.model.statements.epoch import EpochStage, EpochStatement
from pvdm.steward.config.resources import archive_folder, outside_file
from pvdm.steward.config.steward import StewardConfig
from pvdm.steward.notary import Notary, known_log_keys
from pvdm.steward.record.archive import ArchivedLog, archived_size, log_folder
from pvdm.steward.record.log import LogEdge
from pvdm.steward.restore.refill_check import ArchivedEntry, require_statements
from pvdm.trust.keys.epochs import KeyRole, judge_reason
from pvdm.trust.log import merkle
from pvdm.trust.log.checkpoint import SignedCheckpoint, open_checkpoint, read_unverified
from pvdm.trust.log.entry import EntryKind, parse_entry
from pvdm.trust.log.export import CHECKPOINT_FILE
from pvdm.trust.log.merkle import Node
from pvdm.trust.log.note import NoteKey
from pvdm.trust.log.outside import FileOutsideCheckpoint
from pvdm.trust.log.tiles import StaticTiles
from pvdm.trust.statement import read_signed

_LOG_KEYS_HINT: Final = (
    "nothing was changed; bring the newest keystore, or the public half of each log key that it lacks: "
    "--log-key FILE.pub, once for each"
)


@dataclass(frozen=True, slots=True)
class Order:
    """A request for a restore: operator, reason, archive, and the losses that are accepted."""

    operator: str
    reason: str
    archive: FilePath | None = None
    lost_origin: str | None = None
    log_keys: tuple[bytes, ...] = ()
    accept_missing: bool = False
    accept_lost: bool = False
    accept_unreadable: bool = False
    again: bool = False
    confirm_clock: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The entries to put back onto the backup; making the plan writes nothing."""

    backup_size: int
    outside: SignedCheckpoint
    note: bytes
    entries: tuple[bytes, ...]
    hashes: dict[Node, bytes]
    found: tuple[ArchivedEntry, ...]
    lost: int

    @property
    def missing(self) -> int:
        """How many entries have lost their envelope."""
        return sum(each.envelope is None for each in self.found)


def plan_refill(notary: Notary, order: Order) -> Plan:
    """Check everything that can refuse the restore, before anything changes."""
    config = notary.config
    # Both are signed at the end, when the restore must not fail any more.
    require_form(order.operator, "identity", "the operator")
    judge_reason(order.reason)
    outside = _load_outside(notary, order)
    if order.lost_origin is not None:
        require_archive_free(config)
    size = notary.log.size()
    if size >= outside.checkpoint.size:
        _require_root(notary, outside)
    held = _archive_checkpoint(notary, order, outside)
    target = held if held is not None and held.checkpoint.size > size else None
    reached = size if target is None else target.checkpoint.size
    lost = max(0, outside.checkpoint.size - reached)
    _require_accepted_loss(order, size, outside, reached, lost)
    _require_archive_reached(config, reached)
    if target is None or order.archive is None:
        return Plan(size, outside, b"", (), {}, (), lost)
    archive = ArchivedLog(order.archive)
    entries = tuple(archive.entries(size, target.checkpoint.size))
    hashes = _verify_growth(notary, entries, target)
    found = []
    for place, data in enumerate(entries, start=size):
        entry = parse_entry(data)
        found.append(ArchivedEntry(place, entry, archive.envelope(entry.sha256)))
    if target.note != outside.note:
        _require_trusted_checkpoint(notary, order, target, found, outside.checkpoint.size)
    _require_envelopes(order, found)
    require_statements(notary, found, covered=outside.checkpoint.size)
    return Plan(size, outside, target.note, entries, hashes, tuple(found), lost)


def _require_archive_reached(config: StewardConfig, reached: int) -> None:
    """Refuse if the configured archive is longer than the restored log, which continues in it."""
    archive = archive_folder(config)
    if archive is not None and archived_size(archive) > reached:
        raise Code.RESTORE_REFUSED(
            "the configured archive has more entries than the restored log would have",
            reason="restore_entries_missing",
            expected=f"{archived_size(archive)} entries",
            got=str(reached),
            hint=f"nothing was changed; restore with --archive {archive}",
        )


def require_archive_free(config: StewardConfig) -> None:
    """Refuse an archive that holds the log under its old name, where it continues under a new one."""
    archive = archive_folder(config)
    if archive is None or not (log_folder(archive) / CHECKPOINT_FILE).exists():
        return
    shown = read_unverified((log_folder(archive) / CHECKPOINT_FILE).read_bytes()).checkpoint
    if shown.origin != config.origin:
        raise Code.RESTORE_REQUEST_INVALID(reason="restore_archive_taken", got=f"{archive}, of {shown.origin}")


def _load_outside(notary: Notary, order: Order) -> SignedCheckpoint:
    """The outside checkpoint; with a lost origin it is that of the old log."""
    config = notary.config
    origin = order.lost_origin or config.origin
    if order.lost_origin == config.origin:
        raise Code.RESTORE_REQUEST_INVALID(
            reason="restore_origin_same",
            expected=f"another origin in the configuration than {config.origin}",
            got=config.origin,
        )
    kept = FileOutsideCheckpoint(outside_file(config), origin=origin, keys=lambda: _keys(notary, order, origin))
    with _log_key_hint():
        newest = kept.load()
    if newest is None:
        raise Code.OUTSIDE_CHECKPOINT_MISSING(
            "no checkpoint is kept outside",
            got="none",
            hint="restore the file; without it what the backup lacks is unknown",
        )
    return newest


def _keys(notary: Notary, order: Order, origin: str) -> list[NoteKey]:
    known = known_log_keys(notary.ledger, notary.keys.book(), origin)
    return [*known, *(NoteKey(origin, der) for der in order.log_keys)]


@contextlib.contextmanager
def _log_key_hint() -> Iterator[None]:
    """Replace the hint to fetch a trust root, which is impossible while the Steward is down."""
    try:
        yield
    except VerificationError as error:
        if error.code == Code.NOTE_KEY_UNKNOWN and "root fetch" in str(error.hint):
            error.hint = _LOG_KEYS_HINT
        raise


def _require_accepted_loss(order: Order, size: int, outside: SignedCheckpoint, reached: int, lost: int) -> None:
    if lost and order.lost_origin is None:
        raise Code.RESTORE_REFUSED(
            "the archive does not have what the backup lacks",
            reason="restore_entries_missing",
            expected=f"entries {size} to {outside.checkpoint.size - 1}",
            got="no archive" if order.archive is None else f"{reached} entries",
            hint="bring the newest archive; or give the entries up by going on under a new origin",
        )
    if not lost and order.lost_origin is not None:
        raise Code.RESTORE_REQUEST_INVALID(reason="restore_nothing_lost", got=order.lost_origin)


def _archive_checkpoint(notary: Notary, order: Order, outside: SignedCheckpoint) -> SignedCheckpoint | None:
    """The archive's checkpoint, or the outside one where both are of one size; None without an archive."""
    if order.archive is None or not (log_folder(order.archive) / CHECKPOINT_FILE).exists():
        return None
    origin = outside.checkpoint.origin
    note = (log_folder(order.archive) / CHECKPOINT_FILE).read_bytes()
    with _log_key_hint():
        held = open_checkpoint(note, origin=origin, keys=_keys(notary, order, origin))
    if held.checkpoint.size == outside.checkpoint.size:
        return outside
    if held.checkpoint.size > outside.checkpoint.size:
        _require_archive_extends(order.archive, held, outside)
    return held


def _require_archive_extends(archive: FilePath, held: SignedCheckpoint, outside: SignedCheckpoint) -> None:
    """Refuse a longer archive that does not begin with the log of the outside checkpoint."""
    tiles = StaticTiles(log_folder(archive), held.checkpoint.size)
    root = merkle.root_at(tiles, outside.checkpoint.size)
    if not compare_digest(root, outside.checkpoint.root):
        raise Code.LOG_FORKED(
            "the archive shows another history than the checkpoint outside",
            expected=f"root {outside.checkpoint.root.hex()}",
            got=root.hex(),
            hint="two histories exist under one key; keep both and tell every consumer",
        )


def _require_trusted_checkpoint(
    notary: Notary, order: Order, target: SignedCheckpoint, found: Iterable[ArchivedEntry], covered: int
) -> None:
    """Refuse entries beyond the outside checkpoint that only a revoked log key has signed."""
    origin = target.checkpoint.origin
    revoked = _revoked_log_keys(notary, found, covered)
    keys = [key for key in _keys(notary, order, origin) if hashlib.sha256(key.der).hexdigest() not in revoked]
    try:
        open_checkpoint(target.note, origin=origin, keys=keys)
    except VerificationError as error:
        if error.code != Code.NOTE_KEY_UNKNOWN:
            raise
        raise Code.RESTORE_REFUSED(
            reason="restore_archive_unbelieved",
            expected=f"{covered} entries, or the signature of a key in use",
            got=f"{target.checkpoint.size} entries under a revoked key",
        ) from None


def _revoked_log_keys(notary: Notary, found: Iterable[ArchivedEntry], covered: int) -> set[str]:
    book = notary.keys.book()
    numbers = {epoch.number for epoch in book.epochs if epoch.state is EpochStage.REVOKED}
    with notary.ledger.read() as unit:
        envelopes = [statement.envelope for statement in statements.of_kind(unit, StatementKind.EPOCH)]
    for each in found:
        if each.envelope is not None and each.entry.kind is EntryKind.EPOCH and each.index < covered:
            envelopes.append(each.envelope)
    named: set[str] = set()
    for envelope in envelopes:
        said = read_signed(envelope, EpochStatement)
        if said.after is EpochStage.REVOKED:
            numbers.add(said.epoch)
            named.update(key_id for role, key_id in said.key_ids if role == KeyRole.LOG.value and key_id)
    for epoch in book.epochs:
        public = epoch.key(KeyRole.LOG).public
        if epoch.number in numbers and public is not None:
            named.add(public.key_id)
    return named


def _require_envelopes(order: Order, found: Sequence[ArchivedEntry]) -> None:
    """Refuse missing envelopes unless the operator accepts them: one may be a receipt or a revocation."""
    missing = [each for each in found if each.envelope is None]
    if not missing or order.accept_missing:
        return
    raise Code.RESTORE_REFUSED(
        f"the archive lacks the envelopes of {counted(len(missing), 'entry', 'entries')}",
        reason="restore_envelopes_missing",
        got=list_first([f"{each.entry.kind.value} {each.index}" for each in missing]),
        missing=len(missing),
    )


def _verify_growth(notary: Notary, entries: Sequence[bytes], target: SignedCheckpoint) -> dict[Node, bytes]:
    edge = LogEdge.of(notary.ledger)
    nodes = merkle.frontier(edge.size())
    hashes: dict[Node, bytes] = {}
    grown = merkle.grow(
        edge.read_hashes(nodes) if nodes else [], edge.size(), map(merkle.leaf_hash, entries), hashes.__setitem__
    )
    if not compare_digest(grown, target.checkpoint.root):
        raise Code.LOG_FORKED(
            "backup and archive together do not make the log that was signed",
            expected=f"root {target.checkpoint.root.hex()}",
            got=grown.hex(),
            hint="the backup has grown on its own, or the archive was changed; keep both and look",
        )
    return hashes


def _require_root(notary: Notary, outside: SignedCheckpoint) -> None:
    """Refuse a backup that is as long as the outside checkpoint but has another root: it has grown on its own."""
    with notary.ledger.read() as unit:
        root = merkle.root_at(LedgerLog(unit), outside.checkpoint.size)
    if not compare_digest(root, outside.checkpoint.root):
        raise Code.LOG_FORKED(
            f"the log's first {outside.checkpoint.size} entries are not those that were signed",
            expected=f"root {outside.checkpoint.root.hex()}",
            got=root.hex(),
            hint="the backup has grown on its own; bring it back as it was made, and restore that",
        )
