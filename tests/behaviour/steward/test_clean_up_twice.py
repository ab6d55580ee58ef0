"""Two clean-ups after one attempt: one does it, and rows that an operator removed from quarantine do not come back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pvdm.errors import InputError, UnavailableError
from pvdm.lake.vault import Vault
from pvdm.ledger import Ledger
from pvdm.ledger.record import events
from pvdm.ledger.schema.work import DisposalOutcome
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.disposals import DisposalRecord
from pvdm.model.role import Role
from pvdm.steward.cleanup.disposal import Disposal
from pvdm.steward.cleanup.quarantine import QuarantineFiles
from pvdm.steward.pipeline.verification import Verification
from pvdm.verify.job import Tools
from tests.support.verify.attempts import ROWS, Bench, altered, bench_at

pytest.importorskip("pvdm_kernel")

WRONG = altered(ROWS, 5, amount=17.0)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with bench_at(tmp_path, shown=ROWS[:3]) as made:
        yield made


def failed(bench: Bench) -> Attempt:
    """An attempt that failed, and after which nobody has cleaned up."""
    notary = bench.scene.notary
    attempt, _ = bench.staged(WRONG)
    tools = Tools(bench.files, notary.handles, notary.keys, bench.vault, threads=2)
    Verification(
        notary.ledger,
        notary.clock,
        notary.catalog,
        bench.sources,
        notary.proofs,
        bench.vault,
        tools,
        lambda _: None,
    ).verify(attempt.attempt_id)
    return attempt


def desk_of(bench: Bench) -> QuarantineFiles:
    notary = bench.scene.notary
    return QuarantineFiles(notary.ledger, notary.clock, notary.catalog, bench.vault)


def remove(bench: Bench, attempt: Attempt, reason: str = "personal data") -> int:
    return desk_of(bench).remove(bench.scene.grant(), [attempt.attempt_id], reason)[0].files


def listed(bench: Bench) -> list[tuple[str, int]]:
    return [(each.attempt_id, each.files) for each in desk_of(bench).listed(bench.scene.grant())]


class _Stalled(Vault):
    """Stands still once, before or after a file is put into quarantine."""

    def __init__(self, root: Path, when: str) -> None:
        super().__init__(root)
        self._when = when
        self.reached, self.go = threading.Event(), threading.Event()

    def quarantine(self, table_uuid: str, attempt_id: str, data: bytes) -> str:
        if self._when == "before":
            self._stand_still()
        location = super().quarantine(table_uuid, attempt_id, data)
        if self._when == "after":
            self._stand_still()
        return location

    def _stand_still(self) -> None:
        self.reached.set()
        assert self.go.wait(30)


@contextmanager
def stalled(bench: Bench, attempt: Attempt, when: str = "before") -> Iterator[Callable[[], DisposalRecord]]:
    """A Steward that stands still inside its clean-up; what is given lets it go on, and gives what it made of it."""
    notary, vault = bench.scene.notary, _Stalled(bench.folder / "vault", when)
    disposal = Disposal(
        notary.ledger, notary.clock, notary.catalog, vault, bench.files, notary.recorder.require_consistent
    )
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(disposal.dispose(attempt.attempt_id))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def finish() -> DisposalRecord:
        vault.go.set()
        thread.join(30)
        (made,) = found
        if isinstance(made, BaseException):
            raise made
        assert isinstance(made, DisposalRecord)
        return made

    try:
        assert vault.reached.wait(20)
        yield finish
    finally:
        vault.go.set()
        thread.join(30)


@pytest.fixture
def lost_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks that are lost with their connections: everybody is given one."""

    @contextmanager
    def grant_always(self: Ledger, name: str) -> Iterator[bool]:
        yield True

    monkeypatch.setattr(Ledger, "try_lock", grant_always)


def give_up(bench: Bench) -> None:
    bench.workloads.abandon(bench.scene.grant(), "work", "it is not wanted")


def test_what_another_steward_is_cleaning_up_is_left_to_it(bench: Bench) -> None:
    attempt = failed(bench)
    with stalled(bench, attempt) as finish:
        with pytest.raises(UnavailableError) as caught:
            bench.disposal.dispose(attempt.attempt_id)
        assert caught.value.reason == "work_held"
        with pytest.raises(UnavailableError) as caught:
            bench.disposal.settle()
        assert caught.value.reason == "work_held", "settling is due again: that Steward may go away"
        with pytest.raises(InputError) as unknown:
            remove(bench, attempt)
        assert unknown.value.reason == "quarantine_unknown"
        assert finish().outcome is DisposalOutcome.QUARANTINED
    assert bench.disposal.dispose(attempt.attempt_id).outcome is DisposalOutcome.QUARANTINED
    assert len(bench.quarantined(attempt)) == 1


def test_threads_of_one_steward_wait_for_each_other(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = failed(bench)
    vault = _Stalled(bench.folder / "vault", "before")
    monkeypatch.setattr(bench.disposal, "vault", vault)
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(bench.disposal.dispose(attempt.attempt_id))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    assert vault.reached.wait(20)
    vault.go.set()
    for thread in threads:
        thread.join(30)
    assert found == [bench.disposed(attempt)] * 3


@pytest.mark.usefixtures("lost_locks")
@pytest.mark.parametrize("when", ["before", "after"])
def test_rows_that_an_operator_removed_do_not_come_back(when: str, bench: Bench) -> None:
    """The stalled Steward has lost its lock; another one cleans up, and what is in quarantine is removed."""
    attempt = failed(bench)
    with stalled(bench, attempt, when) as finish:
        done = bench.disposal.dispose(attempt.attempt_id)
        give_up(bench)
        assert remove(bench, attempt) == 1
        assert bench.quarantined(attempt) == []
        assert finish() == done
    assert bench.quarantined(attempt) == []
    assert listed(bench) == []


@pytest.mark.usefixtures("lost_locks")
def test_what_comes_into_quarantine_while_it_is_removed_goes_with_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer asked before the removal was noted, and is not there to take it back."""
    attempt = failed(bench)
    bench.disposal.dispose(attempt.attempt_id)
    give_up(bench)
    desk, uuid = desk_of(bench), bench.state().row.table_uuid
    list_files = desk._list_files

    def late(table_uuid: str, attempt_id: str) -> object:
        found = list_files(table_uuid, attempt_id)
        if len(found) == 1:
            bench.vault.quarantine(uuid, attempt.attempt_id, b"a row that failed")
        return found

    monkeypatch.setattr(desk, "_list_files", late)
    desk.remove(bench.scene.grant(), [attempt.attempt_id], "personal data")
    assert bench.quarantined(attempt) == []


def test_files_that_lie_there_though_they_were_removed_are_listed_and_can_be_removed(bench: Bench) -> None:
    attempt = failed(bench)
    bench.disposal.dispose(attempt.attempt_id)
    give_up(bench)
    remove(bench, attempt)
    assert listed(bench) == []
    with pytest.raises(InputError) as caught:
        remove(bench, attempt)
    assert caught.value.reason == "quarantine_unknown"
    bench.vault.quarantine(bench.state().row.table_uuid, attempt.attempt_id, b"a row that failed")
    assert listed(bench) == [(attempt.attempt_id, 1)]
    desk, others = desk_of(bench), bench.scene.grant(Role.OPERATOR, "others")
    assert desk.listed(others) == []
    assert [each.files for each in desk.listed(bench.scene.grant(), table="sales.sums")] == [1]
    assert remove(bench, attempt, "it came back") == 1
    assert bench.quarantined(attempt) == []
    assert listed(bench) == []
    with bench.scene.notary.ledger.read() as unit:
        told = events.newest(unit, "quarantine_removed_again", "quarantine_removals", attempt.attempt_id)
    assert told is not None
    assert told.new is not None
    assert (told.new["reason"], told.new["files"]) == ("it came back", 1)


LOST = "ab" * 16


def test_files_of_an_attempt_that_the_ledger_does_not_know_are_listed_last_and_can_be_removed(bench: Bench) -> None:
    attempt = failed(bench)
    bench.disposal.dispose(attempt.attempt_id)
    uuid = bench.state().row.table_uuid
    bench.vault.quarantine(uuid, LOST, b"a row that failed")
    bench.vault.quarantine(uuid, "not-an-attempt", b"no attempt has such an id")
    assert listed(bench) == [(attempt.attempt_id, 1), (LOST, 1)]
    desk, grant = desk_of(bench), bench.scene.grant()
    found = desk.listed(grant, table="sales.sums")[-1]
    assert (found.workload_id, found.verdict, found.undecided, found.bytes) == (None, None, None, 17)
    assert [each.attempt_id for each in desk.listed(grant, after=attempt.attempt_id)] == [LOST]
    assert desk.listed(grant, after=LOST) == []
    assert desk.remove(grant, [LOST], "the backup was older")[0].files == 1
    assert listed(bench) == [(attempt.attempt_id, 1)]
    with bench.scene.notary.ledger.read() as unit:
        told = events.newest(unit, "quarantine_removed_unknown", "quarantine_removals", LOST)
    assert told is not None
    assert told.new is not None
    assert (told.new["reason"], told.new["files"]) == ("the backup was older", 1)


def test_files_of_an_unknown_attempt_are_listed_for_callers_of_the_tables_domain(bench: Bench) -> None:
    """Of a table that nobody knows, that is only who reaches every domain."""
    known, gone = bench.state().row.table_uuid, "11111111-2222-4333-8444-555555555555"
    bench.vault.quarantine(known, LOST, b"a row that failed")
    bench.vault.quarantine(gone, "cd" * 16, b"a row that failed")
    desk = desk_of(bench)
    assert [each.attempt_id for each in desk.listed(bench.scene.grant(Role.OPERATOR, "*"))] == [LOST, "cd" * 16]
    assert [each.attempt_id for each in desk.listed(bench.scene.grant(Role.OPERATOR, "sales"))] == [LOST]
    assert desk.listed(bench.scene.grant(Role.OPERATOR, "others")) == []
    with pytest.raises(InputError) as caught:
        desk.remove(bench.scene.grant(Role.OPERATOR, "others"), [LOST], "not mine")
    assert caught.value.reason == "attempt_unknown"
