"""The epoch book in the ledger keeps the same promises as one in a file, and a rolled-back one is found out."""

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
from tests.support.steward.keys import attempt, keystore


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> list[EpochBook]:
    """A book of each revision from 0 on: created, activated, retired, revoked."""
    keys = keystore(tmp_path_factory.mktemp("keys") / "keys").book().epoch(1).keys
    made = [EpochBook()]
    made.append(made[-1].create(1, keys, "first")[0])
    made.append(made[-1].activate(1, "first")[0])
    made.append(made[-1].retire(1, "pause")[0])
    made.append(made[-1].revoke(1, "leaked")[0])
    return made


@pytest.fixture(params=["file", "sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], EpochStore]]:
    """Opens the same book again and again, as several processes would."""
    if request.param == "file":
        FileEpochStore.create(tmp_path / "book")
        yield lambda: FileEpochStore(tmp_path / "book")
        return
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/ledger.db"
    else:
        url = request.getfixturevalue("postgresql").fresh()
    with ledger_at(url) as ledger:
        yield lambda: in_ledger(ledger)


def in_ledger(ledger: Ledger) -> LedgerEpochs:
    return LedgerEpochs(ledger, LedgerClock(ledger, wall=lambda: NOW, monotonic=lambda: 0))


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(PvdmError) as caught:
        call()
    return caught.value.reason


def test_there_is_an_empty_book_at_first(stores: Callable[[], EpochStore]) -> None:
    assert stores().load() == EpochBook()


def test_each_next_revision_is_kept(stores: Callable[[], EpochStore], books: list[EpochBook]) -> None:
    store = stores()
    for book in books[1:]:
        assert (store.replace(book), store.load(), stores().load()) == (True, book, book)


@pytest.mark.parametrize("revision", [1, 2, 4])
def test_a_revision_that_does_not_follow_is_not_kept(
    stores: Callable[[], EpochStore], books: list[EpochBook], revision: int
) -> None:
    store = stores()
    for book in books[1:3]:
        store.replace(book)
    assert (store.replace(books[revision]), store.load()) == (False, books[2])


def test_of_several_that_write_one_revision_one_succeeds(
    stores: Callable[[], EpochStore], books: list[EpochBook]
) -> None:
    barrier = threading.Barrier(4)
    found: list[bool] = []

    def write(store: EpochStore) -> None:
        barrier.wait()
        found.append(store.replace(books[1]))

    threads = [threading.Thread(target=write, args=(stores(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [False, False, False, True]


def past_the_rules(ledger: Ledger, *statements: str) -> None:
    """Change the ledger as an administrator of the database could."""

    def work(unit: Unit) -> None:
        for name in ("no_update", "no_delete"):
            end = "" if unit.is_sqlite else " ON epoch_books"
            unit.execute(text(f"DROP TRIGGER epoch_books_{name}{end}"))
        for statement in statements:
            unit.execute(text(statement))

    ledger.transact(work, at_micros=NOW)


def test_an_old_book_put_back_is_refused(ledger: Ledger, books: list[EpochBook]) -> None:
    store = in_ledger(ledger)
    for book in books[1:]:
        store.replace(book)
    assert store.load().epoch(1).state is EpochStage.REVOKED
    past_the_rules(ledger, "DELETE FROM epoch_books WHERE revision > 2")
    assert code_of(store.load) == "epoch_book_rolled_back"


def test_a_changed_book_is_refused(ledger: Ledger, books: list[EpochBook]) -> None:
    store = in_ledger(ledger)
    store.replace(books[1])
    blob = "x'7b7d'" if ledger.dialect == "sqlite" else r"'\x7b7d'::bytea"
    past_the_rules(ledger, f"UPDATE epoch_books SET book = {blob}")
    assert code_of(store.load) == "epoch_book_damaged"


class _Meanwhile:
    """A ledger in which something happens just after a read is over."""

    def __init__(self, ledger: Ledger, happens: Callable[[], object]) -> None:
        self._ledger = ledger
        self._happens: Callable[[], object] | None = happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    @contextlib.contextmanager
    def read(self) -> Iterator[Unit]:
        with self._ledger.read() as unit:
            yield unit
        happens, self._happens = self._happens, None
        if happens is not None:
            happens()


def test_a_slow_reader_is_not_taken_for_a_rollback(ledger: Ledger, books: list[EpochBook]) -> None:
    """One thread read the old book, another one the new one, and the first only now compares."""
    in_ledger(ledger).replace(books[1])

    def another_thread() -> None:
        store.replace(books[2])
        store.load()

    slow: Any = _Meanwhile(ledger, another_thread)
    store = LedgerEpochs(slow, LedgerClock(ledger, wall=lambda: NOW, monotonic=lambda: 0))
    assert (store.load(), store.load()) == (books[1], books[2])


def test_a_handle_is_the_same_for_every_steward(ledger: Ledger) -> None:
    clock = LedgerClock(ledger, wall=lambda: NOW, monotonic=lambda: 0)
    one, two = LedgerHandles(ledger, clock), LedgerHandles(ledger, clock)
    frozen = HandleRecord("a" * 64, "job-1", 3, HandleState.FROZEN, attempt(), frozenset({"worker-1", "worker-2"}))
    one.add(HandleRecord("a" * 64, "job-1", 3))
    one.change("a" * 64, lambda _: frozen)
    assert two.find("a" * 64) == two.find_job("job-1") == frozen


def test_no_handle_is_changed_that_was_never_issued(ledger: Ledger) -> None:
    registry = LedgerHandles(ledger, LedgerClock(ledger, wall=lambda: NOW, monotonic=lambda: 0))
    assert code_of(lambda: registry.change("a" * 64, lambda record: record)) == "handle_unknown"
    with ledger.read() as unit:
        assert shared_settings.find_handle(unit, "a" * 64) is None
