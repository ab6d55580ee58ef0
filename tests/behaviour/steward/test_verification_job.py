"""The job of an attempt, as somebody sees it who only looks: made anew each time, and nothing moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pvdm.errors import ConflictError
from pvdm.model.states import AttemptState
from tests.verify_examples import ROWS, Bench, bench_at

pytest.importorskip("pvdm_kernel")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench_at(tmp_path_factory.mktemp("job")) as made:
        yield made


def test_looking_at_the_job_changes_nothing(bench: Bench) -> None:
    attempt, _ = bench.staged(ROWS, workload_id="looked-at")
    jobs = [bench.verification.job(attempt.attempt_id) for _ in range(2)]
    assert [str(each.head.snapshot_id) for each in jobs if each.head] == [attempt.staged_snapshot_id] * 2
    assert bench.now(attempt).state is AttemptState.VERIFYING
    assert bench.verify(attempt).verdict.passed


def test_an_attempt_that_is_not_verified_any_more_has_no_job(bench: Bench) -> None:
    attempt, _ = bench.staged(ROWS, workload_id="proved")
    bench.verify(attempt)
    with pytest.raises(ConflictError) as caught:
        bench.verification.job(attempt.attempt_id)
    assert (caught.value.code, caught.value.got) == ("attempt_moved", "COMMITTING")
