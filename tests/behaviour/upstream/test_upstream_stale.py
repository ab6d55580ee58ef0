"""An upstream that gives old answers, as through a cache, ends no attempt that is staged or proved."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pvdm.api.work import JobState
from pvdm.errors import UnavailableError
from pvdm.ledger.work.attempts import Attempt
from pvdm.model.role import Role
from tests.support.catalog.upstream import NEW, Upstream, load_attempt, publish
from tests.support.gate.protected_tables import House
from tests.support.steward.job_tasks import queue_verification
from tests.support.waiting import wait_for_jobs

Doc = dict[str, Any]


class Cache:
    """Stores an answer of the upstream, and repeats it from `begin` to `end`."""

    def __init__(self, house: House, upstream: Upstream) -> None:
        self._upstream = upstream
        upstream.proxy.change_load = self._keep
        house.table_state()
        upstream.proxy.change_load = None

    def _keep(self, _: object, answer: Doc) -> Doc:
        self._kept = copy.deepcopy(answer)
        return answer

    def begin(self) -> None:
        self._upstream.proxy.change_load = lambda *_: copy.deepcopy(self._kept)

    def end(self) -> None:
        self._upstream.proxy.change_load = None


@pytest.fixture
def staging_attempt(house: House) -> Attempt:
    house.open("w")
    return house.attempt("w")


@pytest.fixture
def cache(house: House, upstream: Upstream, staging_attempt: Attempt) -> Iterator[Cache]:
    """A cache with the answer from after the branch was made, and before anything was staged."""
    yield Cache(house, upstream)
    upstream.proxy.change_load = None


def reason_of(work: Callable[[], object]) -> str:
    with pytest.raises(UnavailableError) as caught:
        work()
    return caught.value.reason


def test_an_old_answer_ends_no_proved_attempt(house: House, staging_attempt: Attempt, cache: Cache) -> None:
    base = house.table_state().metadata.current_snapshot_id
    attempt = house.prove(staging_attempt, house.stage(staging_attempt, NEW), base)
    cache.begin()
    assert reason_of(lambda: publish(house, attempt)) == "upstream_stale"
    assert load_attempt(house, attempt).state == "COMMITTING"
    cache.end()
    publish(house, attempt)
    assert house.rows() == [1, 2, 3, 4]


def test_an_old_answer_after_a_restart_ends_no_proved_attempt(
    house: House, staging_attempt: Attempt, cache: Cache
) -> None:
    base = house.table_state().metadata.current_snapshot_id
    attempt = house.prove(staging_attempt, house.stage(staging_attempt, NEW), base)
    cache.begin()
    house.stand.reopen()
    assert reason_of(lambda: publish(house, attempt)) == "table_in_doubt"
    assert load_attempt(house, attempt).state == "COMMITTING"
    cache.end()
    publish(house, attempt)
    assert house.rows() == [1, 2, 3, 4]


def test_a_hand_in_is_refused_while_the_answer_lacks_the_staged_snapshot(
    house: House, staging_attempt: Attempt, cache: Cache
) -> None:
    house.stage(staging_attempt, NEW)
    grant = house.scene.grant(Role.PRODUCER, "sales")
    cache.begin()
    assert reason_of(lambda: house.notary.workloads.end_staging(grant, staging_attempt.attempt_id)) == "upstream_stale"
    assert load_attempt(house, staging_attempt).state == "STAGING"
    cache.end()
    staged = house.table_state().metadata.refs[staging_attempt.branch].snapshot_id
    assert house.notary.workloads.end_staging(grant, staging_attempt.attempt_id).staged_snapshot_id == str(staged)


def test_a_verification_waits_while_the_answer_lacks_the_staged_snapshot(
    house: House, staging_attempt: Attempt, cache: Cache
) -> None:
    house.stage(staging_attempt, NEW)
    grant = house.scene.grant(Role.PRODUCER, "sales")
    house.notary.workloads.end_staging(grant, staging_attempt.attempt_id)
    cache.begin()
    house.stand.reopen()
    jobs = house.notary.jobs
    jobs.start()
    try:
        queue_verification(jobs, staging_attempt.attempt_id)
        assert wait_for_jobs(jobs, 30)
        found = jobs.find_job(load_attempt(house, staging_attempt))
    finally:
        jobs.stop()
    assert found is not None
    assert found.error is not None
    assert (found.state, found.error.reason) == (JobState.WAITING, "table_in_doubt")
    assert load_attempt(house, staging_attempt).state == "VERIFYING"


def test_consumers_are_shown_an_older_state_if_it_was_proved(house: House, upstream: Upstream) -> None:
    cache = Cache(house, upstream)
    publish(house, house.proved("w", NEW))
    house.table_state()
    cache.begin()
    grant = house.scene.grant(Role.CONSUMER, "sales")
    shown = house.notary.catalog.tables.load(grant, ("sales",), "orders").metadata
    assert len(list(shown.ancestry(shown.current_snapshot_id or 0))) == 1
