"""The job of an attempt, as somebody sees it who only looks: made anew each time, and nothing moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pvdm.errors import ConflictError, NotAllowedError, UnavailableError
from pvdm.ledger.work import nonces
from pvdm.model.states import AttemptState
from pvdm.verify.fetch import Fetched, Files, HashedFile
from tests.support.verify.attempts import ROWS, Bench, bench_at

pytest.importorskip("pvdm_kernel")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench_at(tmp_path_factory.mktemp("job")) as made:
        yield made


def test_looking_at_the_job_changes_nothing(bench: Bench) -> None:
    attempt, _ = bench.staged(ROWS, workload_id="looked-at")
    jobs = [bench.verification.load_job(attempt.attempt_id) for _ in range(2)]
    assert [str(each.head.snapshot_id) for each in jobs if each.head] == [attempt.staged_snapshot_id] * 2
    assert bench.now(attempt).state is AttemptState.VERIFYING
    assert bench.verify(attempt).verdict.passed


def test_an_attempt_that_is_not_verified_any_more_has_no_job(bench: Bench) -> None:
    attempt, _ = bench.staged(ROWS, workload_id="proved")
    bench.verify(attempt)
    with pytest.raises(ConflictError) as caught:
        bench.verification.load_job(attempt.attempt_id)
    assert (caught.value.reason, caught.value.got) == ("attempt_moved", "COMMITTING")


@pytest.mark.parametrize("before", [1, 2, 3, 6, 1_003])
def test_a_verification_that_was_stopped_many_times_goes_on(bench: Bench, before: int) -> None:
    """A cluster that is away for a weekend costs a try every minute; what they left opens nothing any more."""
    attempt, _ = bench.staged(ROWS, workload_id=f"stopped-{before}")
    handles = bench.scene.notary.handles
    with bench.scene.notary.ledger.read() as unit:
        held = nonces.find_current(unit, attempt.attempt_id)
    assert held is not None
    names = [f"verify:{held.nonce}:{run}" for run in range(before)]
    left = [handles.issue(name, redemptions=1) for name in names]
    for name in names[:-1]:
        handles.end(name)
    assert bench.verification.load_job(attempt.attempt_id).job_id == f"verify:{held.nonce}:{before}"
    with pytest.raises(NotAllowedError) as caught:
        handles.redeem(left[-1], job_id=names[-1], worker="late")
    assert caught.value.reason == "handle_ended"
    assert bench.verify(attempt).verdict.passed


def test_an_attempt_is_verified_by_one_steward_at_a_time(bench: Bench) -> None:
    """A second verification would end the keys of the first."""
    attempt, _ = bench.staged(ROWS, workload_id="one-at-a-time")
    refused: list[str] = []

    class Intruding(Files):
        def fetch_frozen(self, frozen: HashedFile) -> Fetched:
            with pytest.raises(UnavailableError) as caught:
                bench.verification.verify(attempt.attempt_id)
            refused.append(caught.value.reason)
            return super().fetch_frozen(frozen)

    bench.verifying(files=Intruding()).verify(attempt.attempt_id)
    assert set(refused) == {"work_held"}
    assert bench.now(attempt).state is AttemptState.COMMITTING
