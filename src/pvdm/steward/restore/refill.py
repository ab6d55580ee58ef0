"""Plans a restore: the archive's log entries that the backup lacks, each verified by the trusted keys of its time."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any, Final, TypeVar

from pvdm.errors import Code, PvdmError, VerificationError
from pvdm.lake.stores.stores import FilePath
from pvdm.ledger.record import statements
from pvdm.ledger.record.events import LedgerLog
from pvdm.model.canonical_json import INTEGER_MAX
from pvdm.model.fields import require_form
from pvdm.model.printable import counted, list_first
from pvdm.model.statements.epoch import EpochStage, EpochStatement, RestoreStatement
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.proof import Proof, WorkloadStatement
from pvdm.model.statements.receipt import Receipt
from pvdm.steward.config.resources import archive_folder, outside_file
from pvdm.steward.config.steward import StewardConfig
from pvdm.steward.notary import Notary, known_log_keys
from pvdm.steward.record.log import ArchivedLog, PinnedLogReader, archived_size, log_folder
from pvdm.trust.envelope import ROOT_SIGNATURES_MAX, TRUST_ROOT_TYPE, parse_envelope, require_signature
from pvdm.trust.keys.epochs import KeyRole, require_printable_reason
from pvdm.trust.log import merkle
from pvdm.trust.log.checkpoint import SignedCheckpoint, open_checkpoint, read_unverified
from pvdm.trust.log.entry import LogEntry, parse_entry
from pvdm.trust.log.export import CHECKPOINT_FILE
from pvdm.trust.log.merkle import Node
from pvdm.trust.log.note import NoteKey
from pvdm.trust.log.outside import FileOutsideCheckpoint
from pvdm.trust.log.tiles import StaticTiles
from pvdm.trust.root import RootRole, TrustedKey, TrustRoot, advance_root, pin_root
from pvdm.trust.statement import SIGNING_RULES, read_statement, read_unchecked
from pvdm.trust.verify import require_key_epoch, require_signer_name, verify_statement

_STATEMENT_TYPES: Final = {rule.kind: statement_type for statement_type, rule in SIGNING_RULES.items()}
_S = TypeVar("_S", bound=Any)
_NOTARY_STATEMENTS: Final = (Proof, Receipt, WorkloadStatement, EpochStatement, RestoreStatement)


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """A request for a restore: operator, reason, archive, and the losses that are accepted."""

    operator: str
    reason: str
    archive: FilePath | None = None
    lost_origin: str | None = None  # the old name of the log, if its missing entries are given up
    log_keys: tuple[bytes, ...] = ()  # public keys of the log that the keystore lacks
    accept_missing: bool = False  # envelopes that the archive lacks
    accept_lost: bool = False  # publications that cannot be shown again
    accept_unreadable: bool = False  # tables whose metadata cannot be read
    again: bool = False  # restore even if the ledger was restored before and its log lacks nothing
    confirm_clock: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The entries to append to the backup's log, with their hashes; `note` is the signed checkpoint of the full log."""

    backup_size: int
    outside: SignedCheckpoint
    note: bytes
    entries: tuple[bytes, ...]
    hashes: dict[Node, bytes]
    archived: tuple[ArchivedEntry, ...]
    lost: int  # entries that neither the backup nor the archive has

    @property
    def missing(self) -> int:
        """The number of entries whose envelope the archive lacks."""
        return sum(each.envelope is None for each in self.archived)


def plan_refill(notary: Notary, request: RestoreRequest) -> Plan:
    """Plan the refill: check the request, both checkpoints, the archive and its statements. Changes nothing."""
    config = notary.config
    # Operator and reason are signed at the end, when the restore must not fail any more.
    require_form(request.operator, "identity", "the operator")
    require_printable_reason(request.reason)
    outside = _load_outside(notary, request)
    if request.lost_origin is not None:
        require_archive_free(config)
    size = notary.log.size()
    if size >= outside.checkpoint.size:
        _require_root(notary, outside)
    target = _load_archive_checkpoint(notary, request, outside)
    if target is not None and target.checkpoint.size <= size:
        target = None  # the archive has nothing that the backup lacks
    restored_size = size if target is None else target.checkpoint.size
    lost = max(0, outside.checkpoint.size - restored_size)
    _require_accepted_loss(request, size, outside, restored_size, lost)
    _require_archive_not_longer(config, restored_size)
    if target is None or request.archive is None:
        return Plan(size, outside, b"", (), {}, (), lost)
    archive = ArchivedLog(request.archive)
    entries = tuple(archive.entries(size, target.checkpoint.size))
    hashes = _verify_growth(notary, entries, target)
    parsed = enumerate(map(parse_entry, entries), start=size)
    archived = [ArchivedEntry(index, entry, archive.envelope(entry.sha256)) for index, entry in parsed]
    if target.note != outside.note:
        _require_trusted_checkpoint(notary, request, target, archived, outside.checkpoint.size)
    _require_envelopes(request, archived)
    require_statements(notary, archived, covered=outside.checkpoint.size)
    return Plan(size, outside, target.note, entries, hashes, tuple(archived), lost)


def _require_archive_not_longer(config: StewardConfig, restored_size: int) -> None:
    """Raise if the configured archive has more entries than the restored log, which continues in this archive."""
    archive = archive_folder(config)
    if archive is not None and archived_size(archive) > restored_size:
        raise Code.RESTORE_REFUSED(
            "the configured archive has more entries than the restored log would have",
            reason="restore_entries_missing",
            expected=f"{archived_size(archive)} entries",
            got=str(restored_size),
            hint=f"nothing was changed; restore with --archive {archive}",
        )


def require_archive_free(config: StewardConfig) -> None:
    """Raise if the configured archive has a log of another origin than the configuration's."""
    archive = archive_folder(config)
    if archive is None or not (log_folder(archive) / CHECKPOINT_FILE).exists():
        return
    archived = read_unverified((log_folder(archive) / CHECKPOINT_FILE).read_bytes()).checkpoint
    if archived.origin != config.origin:
        raise Code.RESTORE_REQUEST_INVALID(reason="restore_archive_taken", got=f"{archive}, of {archived.origin}")


def _load_outside(notary: Notary, request: RestoreRequest) -> SignedCheckpoint:
    """The outside checkpoint, of the old log if the request gives up entries. Raises if there is none."""
    config = notary.config
    origin = request.lost_origin or config.origin
    if request.lost_origin == config.origin:
        expected = f"another origin in the configuration than {config.origin}"
        raise Code.RESTORE_REQUEST_INVALID(reason="restore_origin_same", expected=expected, got=config.origin)
    outside = FileOutsideCheckpoint(
        outside_file(config), origin=origin, keys=lambda: _log_keys(notary, request, origin)
    )
    with _log_key_hint():
        newest = outside.load()
    if newest is None:
        raise Code.OUTSIDE_CHECKPOINT_MISSING(
            "there is no outside checkpoint",
            got="none",
            hint="restore its file; without it, what the backup lacks is unknown",
        )
    return newest


def _log_keys(notary: Notary, request: RestoreRequest, origin: str) -> list[NoteKey]:
    known = known_log_keys(notary.ledger, notary.keys.book(), origin)
    return [*known, *(NoteKey(origin, der) for der in request.log_keys)]


@contextlib.contextmanager
def _log_key_hint() -> Iterator[None]:
    """Replace the hint of `note_key_unknown`: while the Steward is down, no trust root can be fetched."""
    try:
        yield
    except VerificationError as error:
        if error.code == Code.NOTE_KEY_UNKNOWN and "root fetch" in str(error.hint):
            error.hint = (
                "nothing was changed; bring the newest keystore, or the public half of each log key that it lacks: "
                "--log-key FILE.pub, once for each"
            )
        raise


def _require_accepted_loss(
    request: RestoreRequest, size: int, outside: SignedCheckpoint, restored_size: int, lost: int
) -> None:
    """Raise if entries are lost and not given up, or if none is lost and the request gives entries up."""
    if lost and request.lost_origin is None:
        raise Code.RESTORE_REFUSED(
            "the archive does not have what the backup lacks",
            reason="restore_entries_missing",
            expected=f"entries {size} to {outside.checkpoint.size - 1}",
            got="no archive" if request.archive is None else f"{restored_size} entries",
            hint="bring the newest archive; or give the entries up by going on under a new origin",
        )
    if not lost and request.lost_origin is not None:
        raise Code.RESTORE_REQUEST_INVALID(reason="restore_nothing_lost", got=request.lost_origin)


def _load_archive_checkpoint(
    notary: Notary, request: RestoreRequest, outside: SignedCheckpoint
) -> SignedCheckpoint | None:
    """The archive's checkpoint, or the outside checkpoint if both have the same size; None without an archive."""
    if request.archive is None or not (log_folder(request.archive) / CHECKPOINT_FILE).exists():
        return None
    origin = outside.checkpoint.origin
    note = (log_folder(request.archive) / CHECKPOINT_FILE).read_bytes()
    with _log_key_hint():
        archived = open_checkpoint(note, origin=origin, keys=_log_keys(notary, request, origin))
    if archived.checkpoint.size == outside.checkpoint.size:
        return outside
    if archived.checkpoint.size > outside.checkpoint.size:
        tiles = StaticTiles(log_folder(request.archive), archived.checkpoint.size)
        _require_same_root(
            merkle.root_at(tiles, outside.checkpoint.size),
            outside,
            "the archive shows another history than the outside checkpoint",
            "two histories exist under one key; keep both and tell every consumer",
        )
    return archived


def _require_same_root(root: bytes, signed: SignedCheckpoint, message: str, hint: str) -> None:
    if not compare_digest(root, signed.checkpoint.root):
        raise Code.LOG_FORKED(message, expected=f"root {signed.checkpoint.root.hex()}", got=root.hex(), hint=hint)


def _require_trusted_checkpoint(
    notary: Notary, request: RestoreRequest, target: SignedCheckpoint, archived: Sequence[ArchivedEntry], covered: int
) -> None:
    """Raise if entries that the outside checkpoint does not cover are signed by revoked log keys only."""
    origin = target.checkpoint.origin
    revoked = _revoked_log_keys(notary, archived, covered)
    keys = [key for key in _log_keys(notary, request, origin) if hashlib.sha256(key.der).hexdigest() not in revoked]
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


def _revoked_log_keys(notary: Notary, archived: Sequence[ArchivedEntry], covered: int) -> set[str]:
    """The ids of log keys whose epochs are revoked, by the epoch book, the backup, or an entry before `covered`."""
    with notary.ledger.read() as unit:
        stored = statements.list_by_kind(unit, StatementKind.EPOCH)
    steps = [read_unchecked(each.envelope, EpochStatement) for each in stored]
    steps += [step for each, step in statements_of(archived, EpochStatement) if each.index < covered]
    revoked = [step for step in steps if step.after is EpochStage.REVOKED]
    key_ids = {key_id for step in revoked for role, key_id in step.key_ids if role == KeyRole.LOG.value and key_id}
    numbers = {step.epoch for step in revoked}
    for epoch in notary.keys.book().epochs:
        public = epoch.key(KeyRole.LOG).public
        if public is not None and (epoch.state is EpochStage.REVOKED or epoch.number in numbers):
            key_ids.add(public.key_id)
    return key_ids


def _require_envelopes(request: RestoreRequest, archived: Sequence[ArchivedEntry]) -> None:
    """Raise for missing envelopes unless the operator accepts them: one may be a receipt or a revocation."""
    missing = [each for each in archived if each.envelope is None]
    if not missing or request.accept_missing:
        return
    raise Code.RESTORE_REFUSED(
        f"the archive lacks the envelopes of {counted(len(missing), 'entry', 'entries')}",
        reason="restore_envelopes_missing",
        got=list_first([f"{each.entry.kind.value} {each.index}" for each in missing]),
        missing=len(missing),
    )


def _verify_growth(notary: Notary, entries: Sequence[bytes], target: SignedCheckpoint) -> dict[Node, bytes]:
    """Append the entries to the backup's log in memory; returns the new hashes. Raises if `target` has another root."""
    log = PinnedLogReader.pin_now(notary.ledger)
    frontier = log.read_hashes(merkle.frontier(log.size()))
    hashes: dict[Node, bytes] = {}
    root = merkle.grow(frontier, log.size(), map(merkle.leaf_hash, entries), hashes.__setitem__)
    _require_same_root(
        root,
        target,
        "backup and archive together do not make the log that was signed",
        "the backup has grown on its own, or the archive was changed; keep both, and compare them with other copies",
    )
    return hashes


def _require_root(notary: Notary, outside: SignedCheckpoint) -> None:
    """Raise if the backup's log does not begin with the log of the outside checkpoint."""
    with notary.ledger.read() as unit:
        root = merkle.root_at(LedgerLog(unit), outside.checkpoint.size)
    _require_same_root(
        root,
        outside,
        f"the log's first {outside.checkpoint.size} entries are not those that were signed",
        "the backup has grown on its own; bring it back as it was made, and restore that",
    )


@dataclass(frozen=True, slots=True)
class ArchivedEntry:
    """A log entry of the archive that the backup lacks; `envelope` is None if the archive has lost it."""

    index: int
    entry: LogEntry
    envelope: bytes | None

    def statement_id(self) -> str:
        """The id under which the ledger stores the envelope."""
        envelope = self.envelope or b""
        if self.entry.kind is not StatementKind.TRUST_ROOT:
            return parse_envelope(envelope).payload_sha256
        root = parse_envelope(envelope, payload_type=TRUST_ROOT_TYPE, signatures_max=ROOT_SIGNATURES_MAX)
        return root.payload_sha256


def statements_of(archived: Sequence[ArchivedEntry], statement_type: type[_S]) -> Iterator[tuple[ArchivedEntry, _S]]:
    """The statements of one type whose envelopes are in the archive, in the order of the log."""
    for each in archived:
        if each.envelope is not None and _STATEMENT_TYPES.get(each.entry.kind) is statement_type:
            yield each, read_unchecked(each.envelope, statement_type)


@dataclass(frozen=True, slots=True)
class _Signers:
    """Keys that may have signed: the notary's own by id, and the trust roots with their log indexes.

    `revoked` are the ids of own keys whose epoch is REVOKED.
    """

    notary: str
    own: Mapping[str, TrustedKey]
    revoked: frozenset[str]
    roots: Sequence[tuple[int, TrustRoot]]

    def roots_for(self, each: ArchivedEntry, statement_type: type[Any]) -> list[TrustRoot]:
        """The root in force at the entry; for epochs and restores also later roots, since those may name a new key."""
        roots = [root for index, root in self.roots if index < each.index][-1:]
        if statement_type in (EpochStatement, RestoreStatement):
            roots += [root for index, root in self.roots if index > each.index]
        return roots


def require_statements(notary: Notary, archived: Sequence[ArchivedEntry], *, covered: int) -> None:
    """Verify all envelopes. From index `covered` on, a key of a REVOKED epoch counts only if a root names it."""
    signers = _load_signers(notary, archived)
    for each in archived:
        if each.envelope is None or each.entry.kind is StatementKind.TRUST_ROOT:
            continue
        try:
            _verify(signers, each, each.envelope, covered)
        except PvdmError as error:
            raise _invalid_error(each, error) from None


def _load_signers(notary: Notary, archived: Sequence[ArchivedEntry]) -> _Signers:
    own: dict[str, TrustedKey] = {}
    revoked = set()
    name = notary.config.notary
    for epoch in notary.keys.book().epochs:
        public = epoch.key(KeyRole.SIGNING).public
        if public is not None:
            own[public.key_id] = TrustedKey(public, name, (RootRole.NOTARY,), (epoch.number,), 0, INTEGER_MAX)
            if epoch.state is EpochStage.REVOKED:
                revoked.add(public.key_id)
    return _Signers(name, own, frozenset(revoked), _verify_roots(notary, archived))


def _verify_roots(notary: Notary, archived: Sequence[ArchivedEntry]) -> list[tuple[int, TrustRoot]]:
    """The backup's trust root at index -1, and the later ones, each verified at the time of its log entry."""
    current = notary.trust.find()
    chain = [] if current is None else [(-1, current)]
    for each in archived:
        if each.envelope is None or each.entry.kind is not StatementKind.TRUST_ROOT:
            continue
        try:
            if chain:
                root = advance_root(chain[-1][1], each.envelope, now=each.entry.time)
            else:
                pin = notary.config.trust_root_sha256 or each.statement_id()
                root = pin_root(each.envelope, sha256=pin, now=each.entry.time)
        except PvdmError as error:
            raise _invalid_error(each, error) from None
        chain.append((each.index, root))
    return chain


def _verify(signers: _Signers, each: ArchivedEntry, envelope: bytes, covered: int) -> None:
    """Verify the statement by a key of the notary's epoch book, else by a trust root."""
    statement_type = _STATEMENT_TYPES[each.entry.kind]
    key_id = parse_envelope(envelope).signature.key_id
    own = signers.own.get(key_id) if statement_type in _NOTARY_STATEMENTS else None
    may_sign = each.index < covered or key_id not in signers.revoked
    if own is not None and may_sign:
        _verify_own(own, envelope, statement_type)
        return
    refusal: PvdmError | None = None
    for root in signers.roots_for(each, statement_type):
        try:
            verified = verify_statement(envelope, root, statement_type, now=each.entry.time)
        except PvdmError as error:
            refusal = error
            continue
        if statement_type in _NOTARY_STATEMENTS and verified.key.identity != signers.notary:
            break  # another notary's key does not count
        return
    raise refusal or Code.KEY_UNKNOWN("no known key has signed the statement", got=key_id)


def _verify_own(key: TrustedKey, data: bytes, statement_type: type[Any]) -> None:
    """Verify by a key of the notary's epoch book, which perhaps no trust root names yet."""
    envelope = parse_envelope(data)
    require_signature(key.public, envelope.signature.value, envelope.message)
    epoch: int | None
    match read_statement(envelope.payload, statement_type):
        case Proof(notary=part):
            signer, epoch = part.notary, part.epoch
        case Receipt() | WorkloadStatement() as signed:
            signer, epoch = signed.notary, signed.epoch
        case other:
            signer, epoch = other.notary, None
    require_signer_name(key, signer)
    require_key_epoch(key, epoch)


def _invalid_error(each: ArchivedEntry, error: PvdmError) -> PvdmError:
    return Code.RESTORE_REFUSED(
        f"entry {each.index} of the archive, a {each.entry.kind.value}, does not verify: {error.message}",
        reason="restore_statement_invalid",
        expected=error.expected,
        got=error.got,
        index=each.index,
        cause=error.reason,
    )
