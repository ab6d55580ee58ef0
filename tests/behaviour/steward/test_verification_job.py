"""Verification jobs: one is built anew for each run, and one Steward at a time runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm.errors import ConflictError, NotAllowedError, UnavailableError
from pvdm.ledger.work import nonces
from pvdm.model.states import AttemptState
from pvdm.verify.fetch import Fetched, Files, HashedFile
from tests.support.verify.attempts import ROWS, Bench, Doc, bench_at

pytest.importorskip("pvdm_kernel")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench_at(tmp_path_factory.mktemp("job")) as made:
        yield made


def test_loading_a_job_does_not_change_the_attempt(bench: Bench) -> None:
    attempt, _ = bench.staged(ROWS, workload_id="looked-at")
    jobs = [bench.verification.load_job(attempt.attempt_id) for _ in range(2)]
    assert [str(each.head.snapshot_id) for each in jobs if each.head] == [attempt.staged_snapshot_id] * 2
    assert bench.now(attempt).state is AttemptState.VERIFYING
    assert bench.verify(attempt).verdict.passed


def test_an_attempt_whose_verification_has_ended_has_no_job(bench: Bench) -> None:
    attempt, _ = bench.staged(ROWS, workload_id="proved")
    bench.verify(attempt)
    with pytest.raises(ConflictError) as caught:
        bench.verification.load_job(attempt.attempt_id)
    assert (caught.value.reason, caught.value.got) == ("attempt_moved", "COMMITTING")


@pytest.mark.parametrize("earlier_runs", [1, 2, 3, 6, 1_003])
def test_a_verification_that_was_stopped_many_times_can_be_run_again(bench: Bench, earlier_runs: int) -> None:
    """A Spark cluster may be away for a weekend, with one try a minute. The handle of an earlier run gives no keys."""
    attempt, _ = bench.staged(ROWS, workload_id=f"stopped-{earlier_runs}")
    handles = bench.scene.notary.handles
    with bench.scene.notary.ledger.read() as unit:
        current = nonces.find_current(unit, attempt.attempt_id)
    assert current is not None
    job_ids = [f"verify:{current.nonce}:{run}" for run in range(earlier_runs)]
    old_handles = [handles.issue(job_id, redemptions=1) for job_id in job_ids]
    for job_id in job_ids[:-1]:
        handles.end(job_id)
    assert bench.verification.load_job(attempt.attempt_id).job_id == f"verify:{current.nonce}:{earlier_runs}"
    with pytest.raises(NotAllowedError) as caught:
        handles.redeem(old_handles[-1], job_id=job_ids[-1], worker="late")
    assert caught.value.reason == "handle_ended"
    assert bench.verify(attempt).verdict.passed


BY_TOWN: list[Doc] = [
    {"action": "add-spec", "spec": {"fields": [{"name": "town", "transform": "identity", "source-id": 2}]}},
    {"action": "set-default-spec", "spec-id": -1},
]


def test_a_live_file_that_may_lie_in_the_declared_partition_or_not_is_a_finding(tmp_path: Path) -> None:
    """The file was written before the table was partitioned. No retry could tell."""
    declared = "{town: town 1}"
    with bench_at(
        tmp_path, shown=ROWS[:3], updates=BY_TOWN, operation="overwrite-partitions", partition=declared
    ) as made:
        attempt, _ = made.staged()
        assert made.classes(attempt) == ("metadata",)
        assert made.codes(attempt) == ["boundary_unclear"]
        assert made.now(attempt).state is AttemptState.VERIFICATION_FAILED
        assert made.state().metadata.current_snapshot_id is not None


def test_an_attempt_is_verified_by_one_steward_at_a_time(bench: Bench) -> None:
    """A second verification would end the keys of the first."""
    attempt, _ = bench.staged(ROWS, workload_id="one-at-a-time")
    refused: list[str] = []

    class SecondVerification(Files):
        def fetch_frozen(self, frozen: HashedFile) -> Fetched:
            with pytest.raises(UnavailableError) as caught:
                bench.verification.verify(attempt.attempt_id)
            refused.append(caught.value.reason)
            return super().fetch_frozen(frozen)

    bench.verifying(files=SecondVerification()).verify(attempt.attempt_id)
    assert set(refused) == {"work_held"}
    assert bench.now(attempt).state is AttemptState.COMMITTING
