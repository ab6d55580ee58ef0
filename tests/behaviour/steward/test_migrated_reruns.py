"""A workload that is opened again after a migration of its contract is returned if it is complete, else refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm.errors import InputError, NotAllowedError, PvdmError
from pvdm.ledger import Unit
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.work import workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.workloads import Workload
from pvdm.model.role import Role
from pvdm.model.states import AttemptState, WorkloadState
from tests.behaviour.steward.test_orphan_search import publish_adopted, stage_and_adopt
from tests.support.verify.attempts import ROWS, Bench, bench_at, contract
from tools.proof_kit import SECOND

pytest.importorskip("pvdm_kernel")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with bench_at(tmp_path, shown=ROWS[:3]) as made:
        yield made


def migrate(bench: Bench) -> None:
    bench.scene.stand.time.pass_by(SECOND)
    change = {"action": "set-properties", "updates": {"owner": "sales"}}
    bench.scene.migrate(bench.scene.migration([change], "sums", contract=contract(on_fail="delete")))


def complete(bench: Bench, workload_id: str) -> None:
    """Complete the workload in the ledger, as the gate does after its last chunk."""
    notary = bench.scene.notary

    def work(unit: Unit) -> None:
        workloads.move(unit, workload_id, WorkloadState.COMPLETE, reason="every chunk is published")

    notary.ledger.transact(work, at_micros=notary.clock.now_micros())


def producer(bench: Bench) -> Grant:
    return bench.scene.grant(Role.PRODUCER, "sales")


def adopt(bench: Bench, branch: str = "mine", **parameters: str) -> Attempt:
    return bench.workloads.adopt(producer(bench), "job-own", "sales.sums", branch, parameters)


def open_again(bench: Bench, workload_id: str, **parameters: str) -> Workload:
    found = bench.workloads.open(producer(bench), workload_id, "sales.sums", parameters)
    assert isinstance(found, Workload)
    return found


def test_a_branch_that_was_published_before_the_migration_is_answered_as_published(bench: Bench) -> None:
    attempt, _ = publish_adopted(bench)
    complete(bench, "job-own")
    migrate(bench)
    again = adopt(bench)
    assert (again.attempt_id, again.state) == (attempt.attempt_id, AttemptState.COMMITTED)


def test_a_workload_that_was_published_before_the_migration_is_answered_as_complete(bench: Bench) -> None:
    attempt, _ = bench.staged(ROWS)
    bench.verify(attempt)
    bench.publish(attempt)
    complete(bench, "work")
    before = open_again(bench, "work")
    migrate(bench)
    again = open_again(bench, "work")
    assert again == before
    assert again.state is WorkloadState.COMPLETE


def test_a_workload_that_was_not_complete_before_the_migration_is_refused(bench: Bench) -> None:
    stage_and_adopt(bench)
    bench.attempt()
    migrate(bench)
    for call in (lambda: adopt(bench), lambda: open_again(bench, "work")):
        with pytest.raises(NotAllowedError) as caught:
            call()
        assert caught.value.reason == "contract_moved"
        assert "open another workload under the contract that the table has now" in str(caught.value.hint)


def test_another_branch_or_unknown_parameters_are_refused_after_the_migration(bench: Bench) -> None:
    """Another branch, and parameters that the first contract does not know."""
    publish_adopted(bench)
    complete(bench, "job-own")
    migrate(bench)
    with pytest.raises(InputError) as caught:
        adopt(bench, "another")
    assert caught.value.reason == "workload_parameters_differ"
    with pytest.raises(PvdmError) as unknown:
        adopt(bench, day="2026-11-14")
    assert unknown.value.reason == "parameters_differ"
