"""The epoch book (the list of key epochs) in the ledger works like one in a file; one that went back is refused."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from pvdm.errors import PvdmError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import shared_settings
from pvdm.model.statements.epoch import EpochStage
from pvdm.model.states import HandleState
from pvdm.steward.record.epochs import LedgerEpochs, LedgerHandles
from pvdm.trust.keys.epochs import EpochBook
from pvdm.trust.keys.handles import HandleRecord
from pvdm.trust.keys.service import EpochStore
from tests.support.ledger.databases import NOW, ledger_at
from tests.support.steward.epoch_file import FileEpochStore
from tests.support.steward.keys import attempt_context, keystore


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> list[EpochBook]:
    """A book of each revision from 0 on: created, activated, retired, revoked."""
    keys = keystore(tmp_path_factory.mktemp("keys") / "keys").book().epoch(1).keys
    revisions = [EpochBook()]
    revisions.append(revisions[-1].create(1, keys, "first")[0])
    revisions.append(revisions[-1].activate(1, "first")[0])
    revisions.append(revisions[-1].retire(1, "pause")[0])
    revisions.append(revisions[-1].revoke(1, "leaked")[0])
    return revisions


@pytest.fixture(params=["file", "sqlite", "postgresql"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], EpochStore]]:
    """A function that opens the same book, each time as another process would."""
    if request.param == "file":
        FileEpochStore.create(tmp_path / "book")
        yield lambda: FileEpochStore(tmp_path / "book")
        return
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/ledger.db"
    else:
        url = request.getfixturevalue("postgresql").create_database()
    with ledger_at(url) as ledger:
        yield lambda: ledger_epochs(ledger)


def ledger_epochs(ledger: Ledger) -> LedgerEpochs:
    return LedgerEpochs(ledger, LedgerClock(ledger, wall=lambda: NOW, monotonic=lambda: 0))


def reason_of(call: Callable[[], object]) -> str:
    with pytest.raises(PvdmError) as caught:
        call()
    return caught.value.reason


def test_a_new_store_has_an_empty_book(open_store: Callable[[], EpochStore]) -> None:
    assert open_store().load() == EpochBook()


def test_each_next_revision_is_stored(open_store: Callable[[], EpochStore], books: list[EpochBook]) -> None:
    store = open_store()
    for book in books[1:]:
        assert (store.replace(book), store.load(), open_store().load()) == (True, book, book)


@pytest.mark.parametrize("revision", [1, 2, 4])
def test_a_revision_that_does_not_follow_the_newest_is_not_stored(
    open_store: Callable[[], EpochStore], books: list[EpochBook], revision: int
) -> None:
    store = open_store()
    for book in books[1:3]:
        store.replace(book)
    assert (store.replace(books[revision]), store.load()) == (False, books[2])


def test_of_several_stores_that_write_one_revision_one_succeeds(
    open_store: Callable[[], EpochStore], books: list[EpochBook]
) -> None:
    barrier = threading.Barrier(4)
    succeeded: list[bool] = []

    def write(store: EpochStore) -> None:
        barrier.wait()
        succeeded.append(store.replace(books[1]))

    threads = [threading.Thread(target=write, args=(open_store(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(succeeded) == [False, False, False, True]


def change_without_triggers(ledger: Ledger, *statements: str) -> None:
    """Change the ledger as an administrator of the database could."""

    def work(unit: Unit) -> None:
        for name in ("no_update", "no_delete"):
            end = "" if unit.is_sqlite else " ON epoch_books"
            unit.execute(text(f"DROP TRIGGER epoch_books_{name}{end}"))
        for statement in statements:
            unit.execute(text(statement))

    ledger.transact(work, at_micros=NOW)


def test_a_book_that_was_rolled_back_is_refused(ledger: Ledger, books: list[EpochBook]) -> None:
    store = ledger_epochs(ledger)
    for book in books[1:]:
        store.replace(book)
    assert store.load().epoch(1).state is EpochStage.REVOKED
    change_without_triggers(ledger, "DELETE FROM epoch_books WHERE revision > 2")
    assert reason_of(store.load) == "epoch_book_rolled_back"


def test_a_changed_book_is_refused(ledger: Ledger, books: list[EpochBook]) -> None:
    store = ledger_epochs(ledger)
    store.replace(books[1])
    blob = "x'7b7d'" if ledger.dialect == "sqlite" else r"'\x7b7d'::bytea"
    change_without_triggers(ledger, f"UPDATE epoch_books SET book = {blob}")
    assert reason_of(store.load) == "epoch_book_damaged"


class _InterruptedLedger:
    """A ledger that calls a function just after its first read."""

    def __init__(self, ledger: Ledger, then: Callable[[], object]) -> None:
        self._ledger = ledger
        self._then: Callable[[], object] | None = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    @contextlib.contextmanager
    def read(self) -> Iterator[Unit]:
        with self._ledger.read() as unit:
            yield unit
        then, self._then = self._then, None
        if then is not None:
            then()


def test_a_slow_reader_is_not_taken_for_a_rollback(ledger: Ledger, books: list[EpochBook]) -> None:
    """One thread reads the old book, and compares it only after another thread has read the new one."""
    ledger_epochs(ledger).replace(books[1])

    def another_thread() -> None:
        store.replace(books[2])
        store.load()

    interrupted: Any = _InterruptedLedger(ledger, another_thread)
    store = LedgerEpochs(interrupted, LedgerClock(ledger, wall=lambda: NOW, monotonic=lambda: 0))
    assert (store.load(), store.load()) == (books[1], books[2])


def test_a_handle_is_the_same_for_every_steward(ledger: Ledger) -> None:
    clock = LedgerClock(ledger, wall=lambda: NOW, monotonic=lambda: 0)
    one, two = LedgerHandles(ledger, clock), LedgerHandles(ledger, clock)
    frozen = HandleRecord(
        "a" * 64, "job-1", 3, HandleState.FROZEN, attempt_context(), frozenset({"worker-1", "worker-2"})
    )
    one.add(HandleRecord("a" * 64, "job-1", 3))
    one.change("a" * 64, lambda _: frozen)
    assert two.find("a" * 64) == two.find_job("job-1") == frozen


def test_a_handle_that_was_never_issued_cannot_be_changed(ledger: Ledger) -> None:
    registry = LedgerHandles(ledger, LedgerClock(ledger, wall=lambda: NOW, monotonic=lambda: 0))
    assert reason_of(lambda: registry.change("a" * 64, lambda record: record)) == "handle_unknown"
    with ledger.read() as unit:
        assert shared_settings.find_handle(unit, "a" * 64) is None
