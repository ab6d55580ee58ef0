"""A workload that a restored ledger knows by its receipt alone: whoever asks for it is told what it published."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pvdm.ledger.record.tokens import Grant
from pvdm.model.role import Role
from pvdm.model.states import WorkloadState
from tests.behaviour.gate.test_gate_sources import publish_day
from tests.behaviour.steward.test_restore_pointers import Lost, lost
from tests.support.steward.restore import refused

__all__ = ["lost"]


def status(lost: Lost, grant: Grant) -> object:
    return lost.house.notary.work.workload(grant, "one")


def abandon(lost: Lost, grant: Grant) -> object:
    return lost.house.notary.workloads.abandon(grant, "one", "not needed")


@pytest.mark.parametrize("ask", [status, abandon])
def test_a_spent_workload_is_refused_with_table_and_snapshot(lost: Lost, ask: Callable[[Lost, Grant], object]) -> None:
    lost.safe.back_up()
    head = lost.publish("one", 5)
    lost.lose_and_restore()
    error = refused(lambda: ask(lost, lost.house.scene.grant(Role.PRODUCER, "sales")), "workload_spent")
    assert error.got == f"chunk all of sales.orders as snapshot {head}"
    assert "Do not publish these chunks under another workload id" in str(error.hint)


def test_another_domain_does_not_see_a_spent_workload(lost: Lost) -> None:
    lost.safe.back_up()
    lost.publish("one", 5)
    lost.lose_and_restore()
    refused(lambda: status(lost, lost.house.scene.grant(Role.PRODUCER, "payments")), "domain_wrong")


def test_a_workload_that_was_never_opened_is_unknown_after_a_restore(lost: Lost) -> None:
    lost.safe.back_up()
    lost.publish("two", 5)
    lost.lose_and_restore()
    refused(lambda: status(lost, lost.house.scene.grant()), "workload_unknown")


def open_again(lost: Lost, grant: Grant) -> object:
    return lost.house.notary.workloads.open(grant, "one", "sales.orders", {})


@pytest.mark.parametrize("ask", [status, abandon, open_again])
def test_an_open_workload_of_the_backup_that_was_published_later_is_reported_as_published(
    lost: Lost, ask: Callable[[Lost, Grant], object]
) -> None:
    """The attempt is one that the backup lacks, as after a repair."""
    lost.house.open("one")
    lost.safe.back_up()
    attempt, base = lost.house.attempt("one"), lost.head()
    files = lost.house.stage(attempt, [(15, 5, "Ulm")])
    publish_day(lost.house, lost.house.prove(attempt, files, base), 5)
    head = lost.head()
    done = lost.lose_and_restore()
    assert (done.abandoned, done.published, done.spent) == ((), ("one",), ("one",))
    error = refused(lambda: ask(lost, lost.house.scene.grant(Role.PRODUCER, "sales")), "workload_spent")
    assert error.got == f"chunk all of sales.orders as snapshot {head}"


def test_one_that_was_not_published_is_abandoned_as_before(lost: Lost) -> None:
    lost.house.open("one")
    lost.safe.back_up()
    lost.publish("two", 6)
    done = lost.lose_and_restore()
    assert (done.abandoned, done.published) == (("one",), ())
    view = lost.house.notary.work.workload(lost.house.scene.grant(), "one")
    assert view.state is WorkloadState.ABANDONED
