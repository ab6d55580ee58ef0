"""The path of a chunk without a JVM: staged over REST, verified from the files, published, read by PyIceberg."""

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
from tests.support.steward.leases import abort_attempt, open_attempt
from tests.support.steward.pipeline import (
    BY_DAY_AND_NONE,
    DAY_CHUNKS,
    REASON,
    ROWS,
    Line,
    Row,
    contract,
    line_at,
    table_of,
)
from tests.support.stores.places import ON_S3, file_at, location_of, stores
from tests.support.waiting import wait_for_jobs

# The warnings are PyIceberg's own.
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


def consumer_rows(line: Line) -> list[Row]:
    """The rows that a consumer reads from the target, sorted."""
    token = line.token(Role.CONSUMER)
    catalog = RestCatalog("lake", uri=f"{line.url}/catalog", token=token.text)
    rows = catalog.load_table(("sales", "orders")).scan().to_arrow().to_pylist()
    return sorted((row["id"], row["day"].isoformat(), row["town"]) for row in rows)


def run_attempt(
    line: Line, client: StewardClient, rows: Sequence[Row], workload_id: str = "run-1", chunk_id: str = "all"
) -> AttemptView:
    """Open the workload, make one attempt at a chunk, and wait until it ends or waits for the other chunks."""
    client.open_workload(workload_id, TARGET, {})
    attempt = open_attempt(client, workload_id, chunk_id, REASON)
    if rows:
        line.stage(client, attempt, rows)
    client.staged(attempt.attempt_id)
    return client.await_attempt(attempt.attempt_id, seconds=SECONDS)


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def prefix_of(attempt: AttemptView) -> Path:
    return file_at(attempt.prefix)


def require_clean_up(line: Line, attempt: AttemptView) -> None:
    """Wait for all jobs; then the attempt's branch must be gone."""
    assert wait_for_jobs(line.notary.jobs, SECONDS)
    assert attempt.branch not in line.scene.table_state().metadata.refs


def test_rows_as_intended_become_visible(line: Line, producer: StewardClient) -> None:
    line.protect()
    attempt = run_attempt(line, producer, ROWS)
    assert (attempt.state, attempt.verdict, attempt.classes) == (AttemptState.COMMITTED, Outcome.PASS, ())
    assert consumer_rows(line) == sorted(ROWS)
    assert line.scene.table_state().metadata.current_snapshot_id == attempt.snapshot_id
    assert producer.workload("run-1").workload.state is WorkloadState.COMPLETE
    with line.notary.ledger.read() as unit:
        (receipt,) = receipts_of(unit, "run-1")
    assert receipt.snapshot_id == str(attempt.snapshot_id)
    require_clean_up(line, attempt)


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
    attempt = run_attempt(line, producer, rows)
    assert (attempt.state, attempt.verdict) == (AttemptState.VERIFICATION_FAILED, Outcome.FAIL)
    assert failure in attempt.classes
    assert attempt.refusal is not None
    assert attempt.refusal.reason == "verification_failed"
    assert consumer_rows(line) == []
    require_clean_up(line, attempt)
    assert files_below(prefix_of(attempt)) == []


def test_after_a_fail_another_attempt_publishes(line: Line, producer: StewardClient) -> None:
    line.protect()
    assert run_attempt(line, producer, ROWS[1:]).state is AttemptState.VERIFICATION_FAILED
    again = run_attempt(line, producer, ROWS)
    assert (again.state, again.number, consumer_rows(line)) == (AttemptState.COMMITTED, 2, sorted(ROWS))


def test_chunks_are_published_one_by_one_and_an_empty_one_too(line: Line, producer: StewardClient) -> None:
    line.protect(contract(BY_DAY_AND_NONE))
    first = run_attempt(line, producer, ROWS[:2], chunk_id=DAY_CHUNKS[0])
    assert (first.state, consumer_rows(line)) == (AttemptState.COMMITTED, sorted(ROWS[:2]))
    assert run_attempt(line, producer, ROWS[2:], chunk_id=DAY_CHUNKS[1]).state is AttemptState.COMMITTED
    assert run_attempt(line, producer, (), chunk_id=DAY_CHUNKS[2]).state is AttemptState.COMMITTED
    assert consumer_rows(line) == sorted(ROWS)
    assert producer.workload("run-1").workload.state is WorkloadState.COMPLETE


def test_all_chunks_of_an_atomic_workload_become_visible_at_once(line: Line, producer: StewardClient) -> None:
    line.protect(contract(BY_DAY_AND_NONE, "atomicity: workload"))
    waiting = [
        run_attempt(line, producer, ROWS[:2], chunk_id=DAY_CHUNKS[0]),
        run_attempt(line, producer, (), chunk_id=DAY_CHUNKS[2]),
    ]
    assert [(each.state, each.waiting) for each in waiting] == [(AttemptState.COMMITTING, True)] * 2
    assert consumer_rows(line) == []
    last = run_attempt(line, producer, ROWS[2:], chunk_id=DAY_CHUNKS[1])
    assert (last.state, last.waiting, consumer_rows(line)) == (AttemptState.COMMITTED, False, sorted(ROWS))
    assert {producer.attempt(each.attempt_id).snapshot_id for each in waiting} == {last.snapshot_id}


def test_the_same_rows_under_another_id_are_refused_before_anything_is_staged(
    line: Line, producer: StewardClient
) -> None:
    line.protect(contract(where=ONE_DAY, claim="{column: day}"))
    run_attempt(line, producer, ROWS[:2])
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


def test_the_gate_refuses_the_same_rows_of_a_workload_that_was_opened_before_they_were_published(
    line: Line, producer: StewardClient
) -> None:
    line.protect()
    producer.open_workload("run-2", TARGET, {})
    run_attempt(line, producer, ROWS)
    again = run_attempt(line, producer, ROWS, "run-2")
    assert (again.state, again.verdict) == (AttemptState.VERIFICATION_FAILED, Outcome.PASS)
    assert again.refusal is not None
    assert again.refusal.reason == "claim_overlaps"
    assert "run-1" in again.refusal.message
    assert consumer_rows(line) == sorted(ROWS)


def test_a_source_that_was_empty_can_be_published_when_its_rows_are_there(line: Line, producer: StewardClient) -> None:
    line.protect(contract(where=LATE_DAY, claim="{column: day}"))
    assert run_attempt(line, producer, ()).state is AttemptState.COMMITTED
    late = (7, "2026-11-15", "Kiel")
    line.write((late,))
    assert run_attempt(line, producer, [late], "run-2").state is AttemptState.COMMITTED
    assert consumer_rows(line) == [late]


def test_an_overwrite_needs_no_claim(line: Line, producer: StewardClient) -> None:
    """Even if a workload of an earlier contract has claimed everything."""
    line.protect(contract(operation="overwrite"))
    producer.open_workload("run-1", TARGET, {})

    def claim_everything(unit: Unit) -> None:
        opening = workloads.get(unit, "run-1").opening
        claims.take(unit, "run-1", target=opening.table_uuid, claim=Claim.everything())

    line.notary.ledger.transact(claim_everything, at_micros=line.notary.clock.now_micros())
    assert producer.open_workload("run-2", TARGET, {}).state is WorkloadState.OPEN


@pytest.mark.skipif(ON_S3, reason="on a protected table only an attempt's token gets credentials to write")
def test_a_branch_that_was_staged_without_an_attempt_is_published_as_the_stewards_copies(
    line: Line, producer: StewardClient
) -> None:
    line.write(((9, "2026-11-12", "Jena"),), TARGET)
    line.protect()
    line.write(ROWS, TARGET, "wap")
    adopted = producer.publish_branch("run-1", TARGET, "wap", {})
    attempt = producer.await_attempt(adopted.attempt_id, seconds=SECONDS)
    assert (attempt.state, attempt.branch) == (AttemptState.COMMITTED, "wap")
    assert consumer_rows(line) == sorted((*ROWS, (9, "2026-11-12", "Jena")))
    vault = line.notary.config.catalog
    assert vault is not None
    assert [path for path in files_below(file_at(Vault(vault.vault, stores()).root)) if path.suffix == ".parquet"] != []
    require_clean_up(line, attempt)


@pytest.mark.skipif(ON_S3, reason="on a protected table only an attempt's token gets credentials to write")
def test_all_files_of_a_job_whose_branch_was_published_are_listed_and_removed_as_orphans(
    line: Line, producer: StewardClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyIceberg wrote data files, manifests and manifest lists in two commits; the table shows copies of the data."""
    clock = SimpleNamespace(time=lambda: line.scene.now / 1_000_000)
    monkeypatch.setattr("pyiceberg.table.snapshots.time", clock)
    row = (9, "2026-11-12", "Jena")
    line.write((row,), TARGET)
    folder = file_at(line.scene.table_state().metadata.location)
    before = files_below(folder)
    line.protect()
    catalog = RestCatalog("lake", uri=f"{line.url}/catalog", token=line.token(Role.PRODUCER).text)
    for rows in (ROWS[:1], ROWS[1:]):
        catalog.load_table(("sales", "orders")).append(table_of(rows), branch="wap")
    wrote = {location_of(path) for path in files_below(folder) if path not in before}
    assert {path.rpartition(".")[2] for path in wrote} == {"parquet", "avro"}
    assert producer.orphans(TARGET) == ()
    adopted = producer.publish_branch("run-1", TARGET, "wap", {})
    require_clean_up(line, producer.await_attempt(adopted.attempt_id, seconds=SECONDS))
    assert {each.location for each in producer.orphans(TARGET)} == wrote
    assert {each.location for each in producer.remove_orphans(TARGET)} == wrote
    assert (files_below(folder), producer.orphans(TARGET)) == (before, ())
    assert consumer_rows(line) == sorted((*ROWS, row))


def test_an_aborted_attempt_leaves_neither_branch_nor_files(line: Line, producer: StewardClient) -> None:
    line.protect()
    _, attempt = line.attempt(producer)
    line.stage(producer, attempt, ROWS)
    assert files_below(prefix_of(attempt)) != []
    assert abort_attempt(producer, attempt, "stopped").state is AttemptState.ROLLED_BACK
    require_clean_up(line, attempt)
    assert files_below(prefix_of(attempt)) == []
    assert producer.orphans(TARGET) == ()


def test_a_late_file_of_a_killed_job_is_found_and_removed(line: Line, producer: StewardClient) -> None:
    line.protect()
    _, attempt = line.attempt(producer)
    abort_attempt(producer, attempt, "killed")
    require_clean_up(line, attempt)
    late = prefix_of(attempt) / "data" / "late.parquet"
    late.parent.mkdir(parents=True)
    late.write_bytes(b"left behind")
    assert [each.location for each in producer.orphans(TARGET)] == [location_of(late)]
    assert [each.size for each in producer.remove_orphans(TARGET)] == [11]
    assert (late.exists(), producer.orphans(TARGET)) == (False, ())


def test_a_receipt_that_cannot_be_signed_at_once_is_signed_later_without_a_restart(
    line: Line, producer: StewardClient
) -> None:
    """As if the disk were full, or the database unreachable, just after the commit."""
    line.protect()
    away = UnavailableError("ledger_unreachable", "away for a while")
    with fault.armed("gate.before_receipt", fault.Raise(away)):
        attempt = run_attempt(line, producer, ROWS)
        assert wait_for_jobs(line.notary.jobs, SECONDS)
        with line.notary.ledger.read() as unit:
            assert len(receipts.list_missing(unit)) == 1
    assert attempt.state is AttemptState.COMMITTED
    ends = time.monotonic() + SECONDS
    missing = True
    while missing and time.monotonic() < ends:
        time.sleep(0.1)
        with line.notary.ledger.read() as unit:
            missing = bool(receipts.list_missing(unit))
    assert not missing
    require_clean_up(line, attempt)
    assert consumer_rows(line) == sorted(ROWS)


def test_rows_that_were_staged_when_the_steward_stopped_are_published_after_its_restart(
    line: Line, producer: StewardClient
) -> None:
    line.protect()
    line.notary.jobs.stop()
    _, attempt = line.attempt(producer)
    line.stage(producer, attempt, ROWS)
    producer.staged(attempt.attempt_id)
    line.served.server.stop()
    notary = line.served.stand.reopen()
    notary.jobs.start()
    ends = time.monotonic() + SECONDS
    state = AttemptState.VERIFYING
    while state is not AttemptState.COMMITTED and time.monotonic() < ends:
        time.sleep(0.01)
        with notary.ledger.read() as unit:
            state = attempts.get(unit, attempt.attempt_id).state
    with notary.ledger.read() as unit:
        assert workloads.get(unit, "run-1").state is WorkloadState.COMPLETE
    assert state is AttemptState.COMMITTED


def test_a_source_that_was_set_back_behind_what_was_published_opens_no_workload(
    line: Line, producer: StewardClient
) -> None:
    """Open workloads stay pinned. A new one must not read an older snapshot than the last one that was published."""
    older = line.scene.table_state(levels=("raw",)).metadata.current_snapshot_id
    line.write(((5, "2026-11-14", "Trier"),))
    line.protect()
    assert run_attempt(line, producer, (*ROWS, (5, "2026-11-14", "Trier"))).state is AttemptState.COMMITTED
    back = [{"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": older}]
    line.scene.commit(back, levels=("raw",))
    with pytest.raises(Exception, match="descend"):
        producer.open_workload("run-2", TARGET, {})
