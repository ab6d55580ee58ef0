"""Two clean-ups of one attempt: only one takes effect, and what an operator removed from quarantine does not return."""

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
from tests.support.verify.attempts import ROWS, Bench, bench_at, with_changed_row

pytest.importorskip("pvdm_kernel")

WRONG = with_changed_row(ROWS, 5, amount=17.0)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with bench_at(tmp_path, shown=ROWS[:3]) as made:
        yield made


def fail_attempt(bench: Bench) -> Attempt:
    """An attempt that failed verification and was not cleaned up."""
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


def quarantine_of(bench: Bench) -> QuarantineFiles:
    notary = bench.scene.notary
    return QuarantineFiles(notary.ledger, notary.clock, notary.catalog, bench.vault)


def remove_quarantined(bench: Bench, attempt: Attempt, reason: str = "personal data") -> int:
    return quarantine_of(bench).remove(bench.scene.grant(), [attempt.attempt_id], reason)[0].files


def list_quarantined(bench: Bench) -> list[tuple[str, int]]:
    return [(each.attempt_id, each.files) for each in quarantine_of(bench).list_page(bench.scene.grant())]


class _StallingVault(Vault):
    """Waits for `go` before or after it puts a file into quarantine."""

    def __init__(self, root: Path, when: str) -> None:
        super().__init__(root)
        self._when = when
        self.reached, self.go = threading.Event(), threading.Event()

    def quarantine(self, table_uuid: str, attempt_id: str, data: bytes) -> str:
        if self._when == "before":
            self._wait_for_go()
        location = super().quarantine(table_uuid, attempt_id, data)
        if self._when == "after":
            self._wait_for_go()
        return location

    def _wait_for_go(self) -> None:
        self.reached.set()
        assert self.go.wait(30)


@contextmanager
def stalled_clean_up(bench: Bench, attempt: Attempt, when: str = "before") -> Iterator[Callable[[], DisposalRecord]]:
    """The clean-up of another Steward, which waits inside. Yields a function that ends it and returns its record."""
    notary, vault = bench.scene.notary, _StallingVault(bench.folder / "vault", when)
    disposal = Disposal(
        notary.ledger, notary.clock, notary.catalog, vault, bench.files, notary.recorder.require_consistent
    )
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(disposal.dispose(attempt.attempt_id))
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def finish() -> DisposalRecord:
        vault.go.set()
        thread.join(30)
        (result,) = results
        if isinstance(result, BaseException):
            raise result
        assert isinstance(result, DisposalRecord)
        return result

    try:
        assert vault.reached.wait(20)
        yield finish
    finally:
        vault.go.set()
        thread.join(30)


@pytest.fixture
def lost_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every caller gets the lock, as if its holder had lost it with its connection."""

    @contextmanager
    def grant_always(self: Ledger, name: str) -> Iterator[bool]:
        yield True

    monkeypatch.setattr(Ledger, "try_lock", grant_always)


def abandon_workload(bench: Bench) -> None:
    bench.workloads.abandon(bench.scene.grant(), "work", "it is not wanted")


def test_an_attempt_that_another_steward_is_cleaning_up_is_refused_until_it_is_done(bench: Bench) -> None:
    attempt = fail_attempt(bench)
    with stalled_clean_up(bench, attempt) as finish:
        with pytest.raises(UnavailableError) as caught:
            bench.disposal.dispose(attempt.attempt_id)
        assert caught.value.reason == "work_held"
        with pytest.raises(UnavailableError) as caught:
            bench.disposal.settle()
        assert caught.value.reason == "work_held", "settling must be retried: the other Steward may die"
        with pytest.raises(InputError) as unknown:
            remove_quarantined(bench, attempt)
        assert unknown.value.reason == "quarantine_unknown"
        assert finish().outcome is DisposalOutcome.QUARANTINED
    assert bench.disposal.dispose(attempt.attempt_id).outcome is DisposalOutcome.QUARANTINED
    assert len(bench.quarantined(attempt)) == 1


def test_several_threads_of_one_steward_clean_up_an_attempt_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = fail_attempt(bench)
    vault = _StallingVault(bench.folder / "vault", "before")
    monkeypatch.setattr(bench.disposal, "vault", vault)
    records: list[object] = []
    threads = [
        threading.Thread(target=lambda: records.append(bench.disposal.dispose(attempt.attempt_id))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    assert vault.reached.wait(20)
    vault.go.set()
    for thread in threads:
        thread.join(30)
    assert records == [bench.disposed(attempt)] * 3


@pytest.mark.usefixtures("lost_locks")
@pytest.mark.parametrize("when", ["before", "after"])
def test_rows_that_an_operator_removed_do_not_return_to_quarantine(when: str, bench: Bench) -> None:
    """The stalled Steward has lost its lock. Another one cleans up, and an operator removes the quarantined file."""
    attempt = fail_attempt(bench)
    with stalled_clean_up(bench, attempt, when) as finish:
        done = bench.disposal.dispose(attempt.attempt_id)
        abandon_workload(bench)
        assert remove_quarantined(bench, attempt) == 1
        assert bench.quarantined(attempt) == []
        assert finish() == done
    assert bench.quarantined(attempt) == []
    assert list_quarantined(bench) == []


@pytest.mark.usefixtures("lost_locks")
def test_a_file_that_is_quarantined_during_a_removal_is_removed_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer looked for a removal before this one was recorded, and so does not delete its file."""
    attempt = fail_attempt(bench)
    bench.disposal.dispose(attempt.attempt_id)
    abandon_workload(bench)
    quarantine, uuid = quarantine_of(bench), bench.state().row.table_uuid
    list_files = quarantine._list_files

    def list_then_quarantine_another(table_uuid: str, attempt_id: str) -> object:
        files = list_files(table_uuid, attempt_id)
        if len(files) == 1:
            bench.vault.quarantine(uuid, attempt.attempt_id, b"a row that failed")
        return files

    monkeypatch.setattr(quarantine, "_list_files", list_then_quarantine_another)
    quarantine.remove(bench.scene.grant(), [attempt.attempt_id], "personal data")
    assert bench.quarantined(attempt) == []


def test_files_that_return_after_their_removal_are_listed_and_can_be_removed(bench: Bench) -> None:
    attempt = fail_attempt(bench)
    bench.disposal.dispose(attempt.attempt_id)
    abandon_workload(bench)
    remove_quarantined(bench, attempt)
    assert list_quarantined(bench) == []
    with pytest.raises(InputError) as caught:
        remove_quarantined(bench, attempt)
    assert caught.value.reason == "quarantine_unknown"
    bench.vault.quarantine(bench.state().row.table_uuid, attempt.attempt_id, b"a row that failed")
    assert list_quarantined(bench) == [(attempt.attempt_id, 1)]
    quarantine, others = quarantine_of(bench), bench.scene.grant(Role.OPERATOR, "others")
    assert quarantine.list_page(others) == []
    assert [each.files for each in quarantine.list_page(bench.scene.grant(), table="sales.sums")] == [1]
    assert remove_quarantined(bench, attempt, "it came back") == 1
    assert bench.quarantined(attempt) == []
    assert list_quarantined(bench) == []
    with bench.scene.notary.ledger.read() as unit:
        event = events.find_newest(unit, "quarantine_removed_again", "quarantine_removals", attempt.attempt_id)
    assert event is not None
    assert event.new is not None
    assert (event.new["reason"], event.new["files"]) == ("it came back", 1)


UNKNOWN = "ab" * 16


def test_files_of_an_attempt_that_the_ledger_does_not_know_are_listed_last_and_can_be_removed(bench: Bench) -> None:
    attempt = fail_attempt(bench)
    bench.disposal.dispose(attempt.attempt_id)
    uuid = bench.state().row.table_uuid
    bench.vault.quarantine(uuid, UNKNOWN, b"a row that failed")
    bench.vault.quarantine(uuid, "not-an-attempt", b"no attempt has such an id")
    assert list_quarantined(bench) == [(attempt.attempt_id, 1), (UNKNOWN, 1)]
    quarantine, grant = quarantine_of(bench), bench.scene.grant()
    found = quarantine.list_page(grant, table="sales.sums")[-1]
    assert (found.workload_id, found.verdict, found.undecided, found.bytes) == (None, None, None, 17)
    assert [each.attempt_id for each in quarantine.list_page(grant, after=attempt.attempt_id)] == [UNKNOWN]
    assert quarantine.list_page(grant, after=UNKNOWN) == []
    assert quarantine.remove(grant, [UNKNOWN], "the backup was older")[0].files == 1
    assert list_quarantined(bench) == [(attempt.attempt_id, 1)]
    with bench.scene.notary.ledger.read() as unit:
        event = events.find_newest(unit, "quarantine_removed_unknown", "quarantine_removals", UNKNOWN)
    assert event is not None
    assert event.new is not None
    assert (event.new["reason"], event.new["files"]) == ("the backup was older", 1)


def test_files_of_an_unknown_attempt_are_listed_for_callers_of_the_tables_domain(bench: Bench) -> None:
    """If the ledger does not know the table either, only callers with a token for all domains see them."""
    known, unknown = bench.state().row.table_uuid, "11111111-2222-4333-8444-555555555555"
    bench.vault.quarantine(known, UNKNOWN, b"a row that failed")
    bench.vault.quarantine(unknown, "cd" * 16, b"a row that failed")
    quarantine = quarantine_of(bench)
    assert [each.attempt_id for each in quarantine.list_page(bench.scene.grant(Role.OPERATOR, "*"))] == [
        UNKNOWN,
        "cd" * 16,
    ]
    assert [each.attempt_id for each in quarantine.list_page(bench.scene.grant(Role.OPERATOR, "sales"))] == [UNKNOWN]
    assert quarantine.list_page(bench.scene.grant(Role.OPERATOR, "others")) == []
    with pytest.raises(InputError) as caught:
        quarantine.remove(bench.scene.grant(Role.OPERATOR, "others"), [UNKNOWN], "not mine")
    assert caught.value.reason == "attempt_unknown"
