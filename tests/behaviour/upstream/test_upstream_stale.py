"""An upstream that shows what was, as a cache in front of it does: nothing that was staged or proved is lost by it."""

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
    """Keeps an answer, and gives it again as long as it is asked to."""

    def __init__(self, house: House, there: Upstream) -> None:
        self._there = there
        there.proxy.change_load = self._keep
        house.found()
        there.proxy.change_load = None

    def _keep(self, _: object, answer: Doc) -> Doc:
        self._kept = copy.deepcopy(answer)
        return answer

    def begin(self) -> None:
        self._there.proxy.change_load = lambda *_: copy.deepcopy(self._kept)

    def end(self) -> None:
        self._there.proxy.change_load = None


@pytest.fixture
def staging(house: House) -> Attempt:
    house.open("w")
    return house.attempt("w")


@pytest.fixture
def cache(house: House, there: Upstream, staging: Attempt) -> Iterator[Cache]:
    """What the upstream showed once the branch was made, and before anything was staged on it."""
    yield Cache(house, there)
    there.proxy.change_load = None


def code_of(work: Callable[[], object]) -> str:
    with pytest.raises(UnavailableError) as caught:
        work()
    return caught.value.reason


def test_an_old_answer_ends_no_proved_attempt(house: House, staging: Attempt, cache: Cache) -> None:
    base = house.found().metadata.current_snapshot_id
    attempt = house.prove(staging, house.stage(staging, NEW), base)
    cache.begin()
    assert code_of(lambda: publish(house, attempt)) == "upstream_stale"
    assert load_attempt(house, attempt).state == "COMMITTING"
    cache.end()
    publish(house, attempt)
    assert house.rows() == [1, 2, 3, 4]


def test_an_old_answer_to_a_steward_that_has_seen_nothing_else_ends_none_either(
    house: House, staging: Attempt, cache: Cache
) -> None:
    base = house.found().metadata.current_snapshot_id
    attempt = house.prove(staging, house.stage(staging, NEW), base)
    cache.begin()
    house.stand.reopen()
    assert code_of(lambda: publish(house, attempt)) == "table_in_doubt"
    assert load_attempt(house, attempt).state == "COMMITTING"
    cache.end()
    publish(house, attempt)
    assert house.rows() == [1, 2, 3, 4]


def test_what_is_handed_in_is_never_taken_for_nothing(house: House, staging: Attempt, cache: Cache) -> None:
    house.stage(staging, NEW)
    grant = house.scene.grant(Role.PRODUCER, "sales")
    cache.begin()
    assert code_of(lambda: house.notary.workloads.end_staging(grant, staging.attempt_id)) == "upstream_stale"
    assert load_attempt(house, staging).state == "STAGING"
    cache.end()
    staged = house.found().metadata.refs[staging.branch].snapshot_id
    assert house.notary.workloads.end_staging(grant, staging.attempt_id).staged_snapshot_id == str(staged)


def test_what_is_not_shown_is_not_judged_as_gone(house: House, staging: Attempt, cache: Cache) -> None:
    house.stage(staging, NEW)
    grant = house.scene.grant(Role.PRODUCER, "sales")
    house.notary.workloads.end_staging(grant, staging.attempt_id)
    cache.begin()
    house.stand.reopen()
    jobs = house.notary.jobs
    jobs.start()
    try:
        queue_verification(jobs, staging.attempt_id)
        assert wait_for_jobs(jobs, 30)
        found = jobs.of_attempt(load_attempt(house, staging))
    finally:
        jobs.stop()
    assert found is not None
    assert found.error is not None
    assert (found.state, found.error.reason) == (JobState.WAITING, "table_in_doubt")
    assert load_attempt(house, staging).state == "VERIFYING"


def test_consumers_are_shown_an_older_state_that_was_proved_as_well(house: House, there: Upstream) -> None:
    cache = Cache(house, there)
    publish(house, house.proved("w", NEW))
    house.found()
    cache.begin()
    grant = house.scene.grant(Role.CONSUMER, "sales")
    shown = house.notary.catalog.tables.load(grant, ("sales",), "orders").metadata
    assert len(list(shown.ancestry(shown.current_snapshot_id or 0))) == 1
