"""Stores epoch book and key handles in the ledger, so that all Stewards of one ledger share them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pvdm.errors import Code, InputError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import shared_settings
from pvdm.ledger.schema.work import HandleWord
from pvdm.ledger.work import handles
from pvdm.ledger.work.handles import StoredHandle
from pvdm.model import canonical_json
from pvdm.trust.keys.context import AttemptContext
from pvdm.trust.keys.epochs import EpochBook
from pvdm.trust.keys.handles import HandleRecord, HandleState


class LedgerEpochs:
    """An epoch store in the ledger; all revisions are kept, and the newest counts."""

    def __init__(self, ledger: Ledger, clock: LedgerClock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._lock = threading.Lock()
        self._seen = 0

    def load(self) -> EpochBook:
        """The newest book; one that is older than what this process has seen is refused."""
        # Read before the book, so that a newer book of another thread does not look like a rollback.
        seen = self._seen
        with self._ledger.read() as unit:
            data = shared_settings.newest_epoch_book(unit)
        book = EpochBook() if data is None else _parsed(data)
        if book.revision < seen:
            raise Code.EPOCH_BOOK_ROLLED_BACK(
                "the ledger's epoch book is older than what this process has seen",
                expected=f"revision {seen} or later",
                got=f"revision {book.revision}",
                hint="the database was rolled back under a running Steward; stop it and run `pvdm steward restore`",
            )
        with self._lock:
            self._seen = max(self._seen, book.revision)
        return book

    def replace(self, book: EpochBook) -> bool:
        """Keep this book if the newest one is the revision just before it."""
        data = book.dump()
        at = self._clock.now_micros()
        return self._ledger.transact(
            lambda unit: shared_settings.add_epoch_book(unit, book.revision, data), at_micros=at
        )


class LedgerHandles:
    """A handle registry over the ledger; a change is one transaction with the handle's row locked."""

    def __init__(self, ledger: Ledger, clock: LedgerClock) -> None:
        self._ledger = ledger
        self._clock = clock

    def add(self, record: HandleRecord) -> None:
        """Keep a new handle; a job that has one already is refused."""
        stored = _stored(record)
        self._ledger.transact(lambda unit: handles.add(unit, stored), at_micros=self._clock.now_micros())

    def find(self, handle_sha256: str) -> HandleRecord | None:
        """The handle of that hash, if it was ever issued."""
        with self._ledger.read() as unit:
            found = handles.find(unit, handle_sha256)
        return None if found is None else _record(found)

    def find_job(self, job_id: str) -> HandleRecord | None:
        """The handle of that job, if it has one."""
        with self._ledger.read() as unit:
            found = handles.find_job(unit, job_id)
        return None if found is None else _record(found)

    def change(self, handle_sha256: str, step: Callable[[HandleRecord], HandleRecord]) -> HandleRecord:
        """Replace the record by what `step` makes of it; if `step` raises, nothing changes."""

        def work(unit: Unit) -> HandleRecord:
            old = handles.lock(unit, handle_sha256)
            if old is None:
                raise Code.HANDLE_UNKNOWN(got="another")
            changed = step(_record(old))
            handles.change(unit, old, _stored(changed))
            return changed

        return self._ledger.transact(work, at_micros=self._clock.now_micros())


def _parsed(data: bytes) -> EpochBook:
    try:
        return EpochBook.parse(data)
    except InputError as error:
        raise Code.EPOCH_BOOK_DAMAGED(
            "the ledger's epoch book was changed",
            expected=error.expected,
            got=error.got,
            hint="stop the Steward and bring the last good backup back with `pvdm steward restore`",
        ) from None


def _stored(record: HandleRecord) -> StoredHandle:
    context = None if record.context is None else canonical_json.dump(record.context.to_json()).decode()
    state = HandleWord(record.state.value)
    return StoredHandle(record.handle_sha256, record.job_id, record.redemptions, state, context, record.workers)


def _record(stored: StoredHandle) -> HandleRecord:
    context = None
    if stored.context is not None:
        value = canonical_json.parse(stored.context.encode(), size_max_bytes=len(stored.context.encode()))
        context = AttemptContext.from_json(value)
    state = HandleState(stored.state.value)
    return HandleRecord(stored.handle_sha256, stored.job_id, stored.redemptions, state, context, stored.workers)
