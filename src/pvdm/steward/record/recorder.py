"""Appends to the log: stores entries and documents in one transaction, then updates the outside checkpoint."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pvdm import fault
from pvdm.errors import Code, ConflictError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import statements
from pvdm.ledger.record.events import LedgerLog
from pvdm.model.statements.kind import StatementKind
from pvdm.steward.record.log import Archive, LedgerLogReader, PinnedLogReader
from pvdm.trust.keys.epochs import EpochBook, KeyRole
from pvdm.trust.keys.service import KeyService
from pvdm.trust.log.checkpoint import read_unverified
from pvdm.trust.log.entry import LogEntry
from pvdm.trust.log.log import AppendedEntries, Log, PreparedAppend
from pvdm.trust.log.outside import FileOutsideCheckpoint, acknowledge, check_at_start, require_consistent

RECORD_TRIES_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Document:
    """A signed document for the log; its id is the SHA-256 of the signed payload."""

    kind: StatementKind
    statement_id: str
    envelope: bytes

    def store(self, unit: Unit, log_index: int) -> None:
        """Store the document in the ledger, as the statement of the log entry with this index."""
        statements.put(unit, self.kind, self.statement_id, self.envelope, log_index=log_index)


class RecordedMeanwhileError(Exception):
    """Raised in the transaction of an append: another thread or Steward has recorded the same statement."""

    def __init__(self, statement_id: str) -> None:
        super().__init__(statement_id)
        self.statement_id = statement_id


Work = Callable[[Unit, Sequence[int]], None]
"""Runs in the transaction of the append, with the log indexes of the documents."""


@dataclass(eq=False)
class Recorder:
    """Appends to the log; after `record` returns, archive and outside checkpoint cover the entry."""

    ledger: Ledger
    clock: LedgerClock
    keys: KeyService
    outside: FileOutsideCheckpoint
    archive: Archive | None
    origin: str
    _append_lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _covered_size: int = field(default=0, init=False)

    def check_at_start(self) -> None:
        """Refuse a log that lacks or contradicts entries of outside checkpoint or archive; then update these two."""
        check_at_start(self.outside, self._log(PinnedLogReader(self.ledger)))
        if self.archive is not None and LedgerLogReader(self.ledger).size():
            self.archive.follow()

    def require_consistent(self) -> None:
        """Require that the log still contains the entries of the outside checkpoint."""
        require_consistent(self.outside, self._log(LedgerLogReader(self.ledger)))

    def record(self, documents: Sequence[Document], work: Work) -> tuple[int, ...]:
        """Log the documents and run `work` in one transaction; `work` gets the log indexes and stores the documents."""
        appended = self.store(documents, work)
        self._cover_appended(appended)
        return tuple(range(appended.index, appended.size))

    def cover(self) -> None:
        """Make archive and outside checkpoint cover the whole log, before a response that relies on stored entries."""
        note = LedgerLogReader(self.ledger).newest_checkpoint()
        if note is not None:
            newest = read_unverified(note)
            size = newest.checkpoint.size
            self._cover_appended(AppendedEntries(size, size, newest))  # no new entries

    def require_covered(self, size: int) -> None:
        """Call `cover` unless the outside checkpoint covers this log size, since uncovered entries could be lost."""
        if size > self._covered_size:
            self.cover()

    def _cover_appended(self, appended: AppendedEntries) -> None:
        fault.point("steward.before_outside")
        if self.archive is not None:
            self.archive.cover(appended.size)
        covered = acknowledge(self.outside, self._log(LedgerLogReader(self.ledger)), appended)
        self._covered_size = max(self._covered_size, covered)
        fault.point("steward.after_outside")

    def store(self, documents: Sequence[Document], work: Work) -> AppendedEntries:
        """As `record`, but without updating archive and outside checkpoint; the caller calls `cover` later."""
        for tried in range(1, RECORD_TRIES_MAX + 1):
            with self._append_lock:
                # The log is read before the clock, so that times never run backwards along the log.
                pinned = PinnedLogReader.pin_now(self.ledger)
                # Raises after a rollback of the database: a second history of the log must not be signed.
                self.require_consistent()
                self.clock.synchronize()
                at = self.clock.now_micros()
                entries = [LogEntry(each.kind, hashlib.sha256(each.envelope).hexdigest(), at) for each in documents]
                prepared = self._log(pinned).prepare(entries)
                try:
                    return self.ledger.transact(partial(_store_and_work, prepared, work), at_micros=at)
                except ConflictError as error:
                    if error.code != Code.LOG_MOVED or tried == RECORD_TRIES_MAX:
                        raise
        raise AssertionError("unreachable")

    def _log(self, reader: LedgerLogReader) -> Log:
        return Log(reader, origin=self.origin, signer=self.keys.signer(KeyRole.LOG, signing_epoch(self.keys.book())))


def signing_epoch(book: EpochBook) -> int:
    """The epoch whose keys sign for the Steward: the active one, or the newest that may still sign."""
    if book.active is not None:
        return book.active.number
    for epoch in reversed(book.epochs):
        if epoch.can_sign:
            return epoch.number
    return book.epoch_for(None)  # raises, since no epoch is active


def _store_and_work(prepared: PreparedAppend, work: Work, unit: Unit) -> AppendedEntries:
    appended = prepared.store(LedgerLog(unit))
    work(unit, range(appended.index, appended.size))
    return appended
