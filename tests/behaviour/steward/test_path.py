"""The whole way of a chunk without a JVM: staged over REST, verified from the files, published, read by PyIceberg."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyiceberg.catalog.rest import RestCatalog

from pvdm.api.work import AttemptView
from pvdm.client import StewardClient
from pvdm.errors import InputError, UnavailableError, VerificationError
from pvdm.lake.vault import Vault
from pvdm.ledger import Unit
from pvdm.ledger.record import receipts
from pvdm.ledger.work import attempts, claims, workloads
from pvdm.model.filter.claim import Claim
from pvdm.model.role import Role
from pvdm.model.statements.verdict import FailureClass, Outcome
from pvdm.model.states import AttemptState, WorkloadState
from tests.support import fault
from tests.support.ledger.databases import memory_folder
from tests.support.ledger.rows import receipts_of
from tests.support.steward.pipeline import BY_DAY, REASON, ROWS, Line, Row, contract, line_at, table_of
from tests.support.stores.places import ON_S3, file_at, stores, where
from tests.support.waiting import wait_for_jobs

# PyIceberg's own.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg")
TARGET = "sales.orders"
SECONDS = 60.0
ONE_DAY = "day = '2026-11-13'"
LATE_DAY = "day = '2026-11-15'"


@pytest.fixture
def line() -> Iterator[Line]:
    with memory_folder() as folder, line_at(folder) as made:
        yield made


@pytest.fixture
def producer(line: Line) -> Iterator[StewardClient]:
    with line.client() as client:
        yield client


def seen(line: Line) -> list[Row]:
    """What a consumer reads of the target."""
    token = line.token(Role.CONSUMER)
    catalog = RestCatalog("lake", uri=f"{line.url}/catalog", token=token.text)
    rows = catalog.load_table(("sales", "orders")).scan().to_arrow().to_pylist()
    return sorted((row["id"], row["day"].isoformat(), row["town"]) for row in rows)


def run(
    line: Line, client: StewardClient, rows: Sequence[Row], workload_id: str = "run-1", chunk_id: str = "all"
) -> AttemptView:
    """One attempt at a chunk of the workload, from its opening to where it settles."""
    client.open_workload(workload_id, TARGET, {})
    tried = client.next_attempt(workload_id, chunk_id, REASON)
    if rows:
        line.stage(client, tried, rows)
    client.staged(tried.attempt_id)
    return client.await_attempt(tried.attempt_id, seconds=SECONDS)


def left(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def prefix_of(found: AttemptView) -> Path:
    return file_at(found.prefix)


def cleaned(line: Line, found: AttemptView) -> None:
    """Its branch is gone, as soon as the job that cleans up had its turn."""
    assert wait_for_jobs(line.notary.jobs, SECONDS)
    assert found.branch not in line.scene.found().metadata.refs


def test_rows_as_intended_become_visible(line: Line, producer: StewardClient) -> None:
    line.protect()
    found = run(line, producer, ROWS)
    assert (found.state, found.verdict, found.classes) == (AttemptState.COMMITTED, Outcome.PASS, ())
    assert seen(line) == sorted(ROWS)
    assert line.scene.found().metadata.current_snapshot_id == found.snapshot_id
    assert producer.workload("run-1").workload.state is WorkloadState.COMPLETE
    with line.notary.ledger.read() as unit:
        (receipt,) = receipts_of(unit, "run-1")
    assert receipt.snapshot_id == str(found.snapshot_id)
    cleaned(line, found)


@pytest.mark.parametrize(
    ("rows", "failure"),
    [
        (ROWS[:3], FailureClass.MISSING),
        ((*ROWS, (5, "2026-11-14", "Trier")), FailureClass.ADDED),
        ((*ROWS[:3], (4, "2026-11-14", "Neu-Ulm")), FailureClass.MODIFIED),
    ],
    ids=["dropped", "added", "changed"],
)
def test_rows_that_are_not_as_intended_are_never_seen(
    line: Line, producer: StewardClient, rows: Sequence[Row], failure: FailureClass
) -> None:
    line.protect()
    found = run(line, producer, rows)
    assert (found.state, found.verdict) == (AttemptState.VERIFICATION_FAILED, Outcome.FAIL)
    assert failure in found.classes
    assert found.refusal is not None
    assert found.refusal.reason == "verification_failed"
    assert seen(line) == []
    cleaned(line, found)
    assert left(prefix_of(found)) == []


def test_after_a_fail_another_attempt_publishes(line: Line, producer: StewardClient) -> None:
    line.protect()
    assert run(line, producer, ROWS[1:]).state is AttemptState.VERIFICATION_FAILED
    again = run(line, producer, ROWS)
    assert (again.state, again.number, seen(line)) == (AttemptState.COMMITTED, 2, sorted(ROWS))


def test_chunks_are_published_one_by_one_and_an_empty_one_too(line: Line, producer: StewardClient) -> None:
    line.protect(contract(BY_DAY))
    first = run(line, producer, ROWS[:2], chunk_id="day=2026-11-13")
    assert (first.state, seen(line)) == (AttemptState.COMMITTED, sorted(ROWS[:2]))
    assert run(line, producer, ROWS[2:], chunk_id="day=2026-11-14").state is AttemptState.COMMITTED
    assert run(line, producer, (), chunk_id="day=~other").state is AttemptState.COMMITTED
    assert seen(line) == sorted(ROWS)
    assert producer.workload("run-1").workload.state is WorkloadState.COMPLETE


def test_a_workload_becomes_visible_whole(line: Line, producer: StewardClient) -> None:
    line.protect(contract(BY_DAY, "atomicity: workload"))
    waiting = [run(line, producer, ROWS[:2], chunk_id="day=2026-11-13"), run(line, producer, (), chunk_id="day=~other")]
    assert [(each.state, each.waiting) for each in waiting] == [(AttemptState.COMMITTING, True)] * 2
    assert seen(line) == []
    last = run(line, producer, ROWS[2:], chunk_id="day=2026-11-14")
    assert (last.state, last.waiting, seen(line)) == (AttemptState.COMMITTED, False, sorted(ROWS))
    assert {producer.attempt(each.attempt_id).snapshot_id for each in waiting} == {last.snapshot_id}


def test_the_same_rows_under_another_id_are_refused_before_anything_is_staged(
    line: Line, producer: StewardClient
) -> None:
    line.protect(contract(where=ONE_DAY, claim="{column: day}"))
    run(line, producer, ROWS[:2])
    with pytest.raises(VerificationError) as caught:
        producer.open_workload("run-2", TARGET, {})
    error = caught.value
    assert (error.reason, error.details["workload_id"]) == ("claim_overlaps", "run-1")
    assert "run-1" in str(error.hint)
    assert (error.expected, error.got) == (
        "a part that shares nothing with: day = 2026-11-13",
        "day = 2026-11-13",
    )
    with pytest.raises(InputError) as unknown:
        producer.workload("run-2")
    assert unknown.value.reason == "workload_unknown"
    assert producer.open_workload("run-1", TARGET, {}).state is WorkloadState.COMPLETE


def test_the_same_rows_that_were_opened_in_time_are_refused_by_the_gate(line: Line, producer: StewardClient) -> None:
    line.protect()
    producer.open_workload("run-2", TARGET, {})
    run(line, producer, ROWS)
    again = run(line, producer, ROWS, "run-2")
    assert (again.state, again.verdict) == (AttemptState.VERIFICATION_FAILED, Outcome.PASS)
    assert again.refusal is not None
    assert again.refusal.reason == "claim_overlaps"
    assert "run-1" in again.refusal.message
    assert seen(line) == sorted(ROWS)


def test_a_source_that_was_empty_can_be_published_when_its_rows_are_there(line: Line, producer: StewardClient) -> None:
    line.protect(contract(where=LATE_DAY, claim="{column: day}"))
    assert run(line, producer, ()).state is AttemptState.COMMITTED
    late = (7, "2026-11-15", "Kiel")
    line.write((late,))
    assert run(line, producer, [late], "run-2").state is AttemptState.COMMITTED
    assert seen(line) == [late]


def test_an_overwrite_asks_for_no_claim(line: Line, producer: StewardClient) -> None:
    """Though a workload of an earlier contract has one."""
    line.protect(contract(operation="overwrite"))
    producer.open_workload("run-1", TARGET, {})

    def claimed(unit: Unit) -> None:
        opening = workloads.get(unit, "run-1").opening
        claims.take(unit, "run-1", target=opening.table_uuid, claim=Claim.everything())

    line.notary.ledger.transact(claimed, at_micros=line.notary.clock.now_micros())
    assert producer.open_workload("run-2", TARGET, {}).state is WorkloadState.OPEN


@pytest.mark.skipif(ON_S3, reason="on a protected table only an attempt's token gets credentials to write")
def test_a_branch_that_was_staged_before_is_published_as_the_stewards_copies(
    line: Line, producer: StewardClient
) -> None:
    line.write(((9, "2026-11-12", "Jena"),), TARGET)
    line.protect()
    line.write(ROWS, TARGET, "wap")
    adopted = producer.publish_branch("run-1", TARGET, "wap", {})
    found = producer.await_attempt(adopted.attempt_id, seconds=SECONDS)
    assert (found.state, found.branch) == (AttemptState.COMMITTED, "wap")
    assert seen(line) == sorted((*ROWS, (9, "2026-11-12", "Jena")))
    vault = line.notary.config.catalog
    assert vault is not None
    assert [path for path in left(file_at(Vault(vault.vault, stores()).root)) if path.suffix == ".parquet"] != []
    cleaned(line, found)


@pytest.mark.skipif(ON_S3, reason="on a protected table only an attempt's token gets credentials to write")
def test_all_files_of_a_job_whose_branch_was_published_are_listed_and_removed(
    line: Line, producer: StewardClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyIceberg wrote data, manifests and lists of two commits; the table shows copies of the data."""
    clock = SimpleNamespace(time=lambda: line.scene.now / 1_000_000)
    monkeypatch.setattr("pyiceberg.table.snapshots.time", clock)
    found = (9, "2026-11-12", "Jena")
    line.write((found,), TARGET)
    folder = file_at(line.scene.found().metadata.location)
    before = left(folder)
    line.protect()
    catalog = RestCatalog("lake", uri=f"{line.url}/catalog", token=line.token(Role.PRODUCER).text)
    for rows in (ROWS[:1], ROWS[1:]):
        catalog.load_table(("sales", "orders")).append(table_of(rows), branch="wap")
    wrote = {where(path) for path in left(folder) if path not in before}
    assert {path.rpartition(".")[2] for path in wrote} == {"parquet", "avro"}
    assert producer.orphans(TARGET) == ()
    adopted = producer.publish_branch("run-1", TARGET, "wap", {})
    cleaned(line, producer.await_attempt(adopted.attempt_id, seconds=SECONDS))
    assert {each.location for each in producer.orphans(TARGET)} == wrote
    assert {each.location for each in producer.remove_orphans(TARGET)} == wrote
    assert (left(folder), producer.orphans(TARGET)) == (before, ())
    assert seen(line) == sorted((*ROWS, found))


def test_what_is_given_up_leaves_neither_branch_nor_files(line: Line, producer: StewardClient) -> None:
    line.protect()
    _, tried = line.attempt(producer)
    line.stage(producer, tried, ROWS)
    assert left(prefix_of(tried)) != []
    assert producer.abort_attempt(tried.attempt_id, "stopped").state is AttemptState.ROLLED_BACK
    cleaned(line, tried)
    assert left(prefix_of(tried)) == []
    assert producer.orphans(TARGET) == ()


def test_what_a_killed_job_left_is_found_and_removed(line: Line, producer: StewardClient) -> None:
    line.protect()
    _, tried = line.attempt(producer)
    producer.abort_attempt(tried.attempt_id, "killed")
    cleaned(line, tried)
    late = prefix_of(tried) / "data" / "late.parquet"
    late.parent.mkdir(parents=True)
    late.write_bytes(b"left behind")
    assert [each.location for each in producer.orphans(TARGET)] == [where(late)]
    assert [each.size for each in producer.remove_orphans(TARGET)] == [11]
    assert (late.exists(), producer.orphans(TARGET)) == (False, ())


def test_a_receipt_that_cannot_be_signed_at_once_is_signed_without_a_new_start(
    line: Line, producer: StewardClient
) -> None:
    """The disk is full, or the database away, just after the commit."""
    line.protect()
    away = UnavailableError("ledger_unreachable", "away for a while")
    with fault.armed("gate.before_receipt", fault.Raise(away)):
        found = run(line, producer, ROWS)
        assert wait_for_jobs(line.notary.jobs, SECONDS)
        with line.notary.ledger.read() as unit:
            assert len(receipts.list_missing(unit)) == 1
    assert found.state is AttemptState.COMMITTED
    ends = time.monotonic() + SECONDS
    missing = True
    while missing and time.monotonic() < ends:
        time.sleep(0.1)
        with line.notary.ledger.read() as unit:
            missing = bool(receipts.list_missing(unit))
    assert not missing
    cleaned(line, found)
    assert seen(line) == sorted(ROWS)


def test_what_was_staged_when_the_steward_stopped_is_published_by_the_next_one(
    line: Line, producer: StewardClient
) -> None:
    line.protect()
    line.notary.jobs.stop()
    _, tried = line.attempt(producer)
    line.stage(producer, tried, ROWS)
    producer.staged(tried.attempt_id)
    line.served.server.stop()
    notary = line.served.stand.reopen()
    notary.jobs.start()
    ends = time.monotonic() + SECONDS
    state = AttemptState.VERIFYING
    while state is not AttemptState.COMMITTED and time.monotonic() < ends:
        time.sleep(0.01)
        with notary.ledger.read() as unit:
            state = attempts.get(unit, tried.attempt_id).state
    with notary.ledger.read() as unit:
        assert workloads.get(unit, "run-1").state is WorkloadState.COMPLETE
    assert state is AttemptState.COMMITTED


def test_a_source_that_went_back_is_not_published_from(line: Line, producer: StewardClient) -> None:
    """The pin holds for what is open; who opens anew must not go behind what was published."""
    older = line.scene.found(levels=("raw",)).metadata.current_snapshot_id
    line.write(((5, "2026-11-14", "Trier"),))
    line.protect()
    assert run(line, producer, (*ROWS, (5, "2026-11-14", "Trier"))).state is AttemptState.COMMITTED
    back = [{"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": older}]
    line.scene.commit(back, levels=("raw",))
    with pytest.raises(Exception, match="descend"):
        producer.open_workload("run-2", TARGET, {})
