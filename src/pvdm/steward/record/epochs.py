"""Epochs (key generations): changes the epoch book, logs each step, and stores book and key handles in the ledger."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pvdm import fault
from pvdm.errors import Code, ConflictError, InputError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import shared_settings, statements
from pvdm.ledger.record.shared_settings import StoredHandle
from pvdm.model import canonical_json
from pvdm.model.statements.epoch import EpochStage, EpochStatement
from pvdm.model.statements.kind import StatementKind
from pvdm.steward.record.recorder import Document, Recorder, signing_epoch
from pvdm.steward.record.roots import TrustRoots
from pvdm.trust.keys.context import AttemptContext
from pvdm.trust.keys.epochs import Epoch, EpochBook, EpochChange, KeyRole
from pvdm.trust.keys.handles import HandleRecord
from pvdm.trust.keys.service import KeyService
from pvdm.trust.statement import read_unchecked
from pvdm.trust.verify import sign_statement

_STAGES = tuple(EpochStage)


@dataclass(eq=False)
class Epochs:
    """Creates, activates, retires and revokes epochs; each call returns once its step is in the log."""

    ledger: Ledger
    clock: LedgerClock
    keys: KeyService
    recorder: Recorder
    trust: TrustRoots
    notary: str

    def book(self) -> EpochBook:
        """The epoch book, which holds all epochs, as it is now."""
        return self.keys.book()

    def create(self, reason: str) -> tuple[EpochChange, ...]:
        """Create the next epoch with four new keys, CREATED; its keys sign nothing before it is activated."""
        last_logged = max(self._require_book_current(), default=0)  # a restored book may lack this epoch
        return self._log_after(self.keys.create_epoch(reason, above=last_logged), reason)

    def activate(self, number: int, reason: str) -> tuple[EpochChange, ...]:
        """Make a CREATED epoch ACTIVE. The trust root must name its keys, so that others can check its signatures."""
        self._require_book_current()
        self.trust.require_trusted(number)
        return self._log_after(self.keys.activate_epoch(number, reason), reason)

    def retire(self, number: int, reason: str) -> tuple[EpochChange, ...]:
        """Make an ACTIVE epoch RETIRED."""
        self._require_book_current()
        return self._log_after(self.keys.retire_epoch(number, reason), reason)

    def revoke(self, number: int, reason: str) -> tuple[EpochChange, ...]:
        """Make an epoch REVOKED; raises if no other epoch can sign, since the revocation could not be logged then."""
        self._require_book_current()
        return self._log_after(self.keys.revoke_epoch(number, reason, keep_a_signing_epoch=True), reason)

    def _log_after(self, changes: tuple[EpochChange, ...], reason: str) -> tuple[EpochChange, ...]:
        self.log_missing(reason)
        return changes

    def log_missing(self, reason: str) -> None:
        """Log every step of the book that a crash kept out of the log. Does nothing if no epoch can sign."""
        fault.point("steward.after_epoch_step")
        book = self.keys.book()
        if not any(epoch.can_sign for epoch in book.epochs):
            return
        seen, logged = self._read_log()
        require_not_behind(book, logged)
        steps = missing_steps(book, {number: last.stage for number, last in logged.items()})
        if not steps:
            self.recorder.cover()
            return
        documents = [self._sign_step(epoch, before, after, reason) for epoch, before, after in steps]

        def work(unit: Unit, log_indexes: Sequence[int]) -> None:
            # The log's lock is held here, so no other Steward can log these steps meanwhile.
            if statements.list_ids_by_kind(unit, StatementKind.EPOCH) != seen:
                raise Code.EPOCH_STEPS_MOVED()
            for document, log_index in zip(documents, log_indexes, strict=True):
                document.store(unit, log_index)

        try:
            self.recorder.record(documents, work)
        except ConflictError as error:
            if error.code != Code.EPOCH_STEPS_MOVED:
                raise
            self.log_missing(reason)  # another Steward has logged steps first: compare book and log once more

    def _sign_step(self, epoch: Epoch, before: EpochStage | None, after: EpochStage, reason: str) -> Document:
        statement = EpochStatement(
            notary=self.notary,
            epoch=epoch.number,
            before=before,
            after=after,
            reason=reason,
            key_ids=_key_ids(epoch),
            issued_at=self.clock.now_micros(),
        )
        envelope = sign_statement(statement, self.keys.signer(KeyRole.SIGNING, signing_epoch(self.keys.book())))
        return Document(StatementKind.EPOCH, envelope.payload_sha256, envelope.to_bytes())

    def _require_book_current(self) -> dict[int, LoggedEpoch]:
        """Refuse to change a book that was replaced by an old copy; returns the last statement about each epoch."""
        _, logged = self._read_log()
        require_not_behind(self.keys.book(), logged)
        return logged

    def _read_log(self) -> tuple[tuple[str, ...], dict[int, LoggedEpoch]]:
        """The ids of all epoch statements in the log, and the last one about each epoch."""
        with self.ledger.read() as unit:
            stored = statements.list_by_kind(unit, StatementKind.EPOCH)
            restored = statements.list_by_kind(unit, StatementKind.RESTORE)
        last_restore = max((statement.log_index for statement in restored), default=-1)
        found: dict[int, LoggedEpoch] = {}
        for statement in stored:
            step = read_unchecked(statement.envelope, EpochStatement)
            found[step.epoch] = LoggedEpoch(step.after, step.key_ids, statement.log_index < last_restore)
        return tuple(statement.statement_id for statement in stored), found


@dataclass(frozen=True, slots=True)
class LoggedEpoch:
    """The last statement of the log about an epoch."""

    stage: EpochStage
    key_ids: tuple[tuple[str, str | None], ...]
    may_be_lost: bool  # whether a later restore may have lost the epoch's keys


def require_not_behind(book: EpochBook, logged: Mapping[int, LoggedEpoch]) -> None:
    """Refuse a book that lacks a logged epoch, or has it with other keys or an earlier stage, unless `may_be_lost`."""
    in_book = {epoch.number: epoch for epoch in book.epochs}
    for number, last in logged.items():
        epoch = in_book.get(number)
        if epoch is None:
            is_behind = not last.may_be_lost
        else:
            is_earlier = _STAGES.index(epoch.state) < _STAGES.index(last.stage)
            is_revived = is_earlier and last.stage is EpochStage.REVOKED  # not even a restore may revive an epoch
            is_behind = is_revived or ((is_earlier or _key_ids(epoch) != last.key_ids) and not last.may_be_lost)
        if is_behind:
            raise Code.KEY_FILES_DAMAGED(
                "the epoch book is older than the log",
                reason="epoch_book_rolled_back",
                expected=f"epoch {number} {last.stage.value} with the keys that were logged",
                got="no such epoch" if epoch is None else f"{epoch.state.value}, or other keys",
                hint="the epoch book (in the keystore file or the ledger) is an old copy; restore the newest one",
            )


def _key_ids(epoch: Epoch) -> tuple[tuple[str, str | None], ...]:
    return tuple(sorted((key.role.value, key.public.key_id) for key in epoch.keys if key.public))


def missing_steps(book: EpochBook, logged: dict[int, EpochStage]) -> list[tuple[Epoch, EpochStage | None, EpochStage]]:
    """The steps that are not logged yet, in their order: the epoch, its stage before and its stage after."""
    found = []
    for epoch in book.epochs:
        before = logged.get(epoch.number)
        first = 0 if before is None else _STAGES.index(before) + 1
        for after in _STAGES[first : _STAGES.index(epoch.state) + 1]:
            found.append((epoch, before, after))
            before = after
    return found


class LedgerEpochs:
    """Stores the epoch book in the ledger; all revisions are kept, and the newest is used."""

    def __init__(self, ledger: Ledger, clock: LedgerClock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._lock = threading.Lock()
        self._seen_revision = 0

    def load(self) -> EpochBook:
        """The newest book. Raises if it is older than a book that this process has seen."""
        # `seen` is read first. Otherwise a newer book that another thread loads meanwhile would look like a rollback.
        seen = self._seen_revision
        with self._ledger.read() as unit:
            data = shared_settings.find_newest_epoch_book(unit)
        try:
            book = EpochBook() if data is None else EpochBook.parse(data)
        except InputError as error:
            raise Code.KEY_FILES_DAMAGED(reason="epoch_book_damaged", expected=error.expected, got=error.got) from None
        if book.revision < seen:
            raise Code.KEY_FILES_DAMAGED(
                "the ledger's epoch book is older than what this process has seen",
                reason="epoch_book_rolled_back",
                expected=f"revision {seen} or later",
                got=f"revision {book.revision}",
                hint="the database was rolled back under a running Steward; stop it and run `pvdm steward restore`",
            )
        with self._lock:
            self._seen_revision = max(self._seen_revision, book.revision)
        return book

    def replace(self, book: EpochBook) -> bool:
        """Store this book if the newest stored book is the revision before it; returns whether it was stored."""
        data, at = book.to_bytes(), self._clock.now_micros()
        return self._ledger.transact(
            lambda unit: shared_settings.add_epoch_book(unit, book.revision, data), at_micros=at
        )


class LedgerHandles:
    """Stores handles (the random ids that workers exchange for a job's digest keys), each in one row of the ledger."""

    def __init__(self, ledger: Ledger, clock: LedgerClock) -> None:
        self._ledger = ledger
        self._clock = clock

    def add(self, record: HandleRecord) -> None:
        """Store a new handle. Raises if its job has one already."""
        stored = _to_stored(record)
        self._ledger.transact(lambda unit: shared_settings.add_handle(unit, stored), at_micros=self._clock.now_micros())

    def find(self, handle_sha256: str) -> HandleRecord | None:
        """The handle whose SHA-256 this is, if it was ever issued."""
        with self._ledger.read() as unit:
            found = shared_settings.find_handle(unit, handle_sha256)
        return None if found is None else _from_stored(found)

    def find_job(self, job_id: str) -> HandleRecord | None:
        """The handle of this job, if the job has one."""
        with self._ledger.read() as unit:
            found = shared_settings.find_handle_of_job(unit, job_id)
        return None if found is None else _from_stored(found)

    def change(self, handle_sha256: str, step: Callable[[HandleRecord], HandleRecord]) -> None:
        """Replace the record by the result of `step`, with its row locked. If `step` raises, nothing changes."""

        def work(unit: Unit) -> None:
            old = shared_settings.lock_handle(unit, handle_sha256)
            if old is None:
                raise Code.HANDLE_UNKNOWN(got="another")
            shared_settings.change_handle(unit, old, _to_stored(step(_from_stored(old))))

        self._ledger.transact(work, at_micros=self._clock.now_micros())


def _to_stored(record: HandleRecord) -> StoredHandle:
    context = None if record.context is None else canonical_json.dump(record.context.to_json()).decode()
    return StoredHandle(record.handle_sha256, record.job_id, record.redemptions, record.state, context, record.workers)


def _from_stored(stored: StoredHandle) -> HandleRecord:
    context = None
    if stored.context is not None:
        data = stored.context.encode()
        context = AttemptContext.parse(canonical_json.parse(data, size_max_bytes=len(data)))
    return HandleRecord(stored.handle_sha256, stored.job_id, stored.redemptions, stored.state, context, stored.workers)
