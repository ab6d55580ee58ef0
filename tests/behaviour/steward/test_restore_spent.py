"""After a restore, requests for a workload that was published after the backup are refused as `workload_spent`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pvdm.ledger.record.tokens import Grant
from pvdm.model.role import Role
from pvdm.model.states import WorkloadState
from tests.behaviour.gate.test_gate_sources import publish_day
from tests.behaviour.steward.test_restore_pointers import RestorableSteward, steward
from tests.support.steward.restore import refused

__all__ = ["steward"]


def get_status(steward: RestorableSteward, grant: Grant) -> object:
    return steward.house.notary.work.get_workload_detail(grant, "one")


def abandon(steward: RestorableSteward, grant: Grant) -> object:
    return steward.house.notary.workloads.abandon(grant, "one", "not needed")


@pytest.mark.parametrize("call", [get_status, abandon])
def test_a_spent_workload_is_refused_with_table_and_snapshot(
    steward: RestorableSteward, call: Callable[[RestorableSteward, Grant], object]
) -> None:
    steward.recovery.back_up()
    head = steward.publish("one", 5)
    steward.lose_and_restore()
    error = refused(lambda: call(steward, steward.house.scene.grant(Role.PRODUCER, "sales")), "workload_spent")
    assert error.got == f"chunk all of sales.orders as snapshot {head}"
    assert error.details["published_chunks"] == "all"
    assert "The ledger does not know whether chunks are missing: compare" in str(error.hint)


def test_adopting_a_missing_branch_for_a_spent_workload_is_refused_as_spent(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    steward.publish("one", 5)
    steward.lose_and_restore()
    grant = steward.house.scene.grant(Role.PRODUCER, "sales")
    workloads = steward.house.notary.workloads
    refused(lambda: workloads.adopt(grant, "one", "sales.orders", "gone", {}), "workload_spent")


def test_a_request_of_another_domain_for_a_spent_workload_is_refused(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    steward.publish("one", 5)
    steward.lose_and_restore()
    refused(lambda: get_status(steward, steward.house.scene.grant(Role.PRODUCER, "payments")), "domain_wrong")


def test_a_workload_that_was_never_opened_is_unknown_after_a_restore(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    steward.publish("two", 5)
    steward.lose_and_restore()
    refused(lambda: get_status(steward, steward.house.scene.grant()), "workload_unknown")


def open_again(steward: RestorableSteward, grant: Grant) -> object:
    return steward.house.notary.workloads.open(grant, "one", "sales.orders", {})


@pytest.mark.parametrize("call", [get_status, abandon, open_again])
def test_an_open_workload_of_the_backup_that_was_published_later_is_refused_as_spent(
    steward: RestorableSteward, call: Callable[[RestorableSteward, Grant], object]
) -> None:
    """The backup has the open workload, but not its attempt, which is opened after the backup."""
    steward.house.open("one")
    steward.recovery.back_up()
    attempt, base = steward.house.attempt("one"), steward.head()
    files = steward.house.stage(attempt, [(15, 5, "Ulm")])
    publish_day(steward.house, steward.house.prove(attempt, files, base), 5)
    head = steward.head()
    done = steward.lose_and_restore()
    assert (done.abandoned, done.published, done.spent) == ((), ("one",), ("one",))
    error = refused(lambda: call(steward, steward.house.scene.grant(Role.PRODUCER, "sales")), "workload_spent")
    assert error.got == f"chunk all of sales.orders as snapshot {head}"


def test_an_open_workload_of_the_backup_that_was_not_published_is_abandoned(steward: RestorableSteward) -> None:
    steward.house.open("one")
    steward.recovery.back_up()
    steward.publish("two", 6)
    done = steward.lose_and_restore()
    assert (done.abandoned, done.published) == (("one",), ())
    view = steward.house.notary.work.get_workload_detail(steward.house.scene.grant(), "one")
    assert view.state is WorkloadState.ABANDONED


def publish_chunk(steward: RestorableSteward, workload_id: str, chunk_id: str, number: int) -> str:
    """Publish a chunk of an open workload, with a claim on day 5; returns the snapshot."""
    attempt, base = steward.house.attempt(workload_id, chunk_id), steward.head()
    files = steward.house.stage(attempt, [(number, 5, "Ulm")])
    publish_day(steward.house, steward.house.prove(attempt, files, base), 5)
    return str(steward.head())


def test_a_workload_that_was_published_in_part_is_refused_with_its_missing_chunks_and_a_way_to_publish_them(
    steward: RestorableSteward,
) -> None:
    steward.house.open("one", chunk_ids=("a", "b", "c"))
    steward.recovery.back_up()
    snapshot = publish_chunk(steward, "one", "b", 15)
    steward.lose_and_restore()
    error = refused(lambda: get_status(steward, steward.house.scene.grant(Role.PRODUCER, "sales")), "workload_spent")
    assert error.got == f"chunk b of sales.orders as snapshot {snapshot}"
    assert (error.details["published_chunks"], error.details["missing_chunks"]) == ("b", "a, c")
    hint = str(error.hint)
    assert "Other chunks are missing" in hint
    assert "contract that overwrites, and you run the whole part under a new workload id" in hint


def test_a_workload_that_was_published_whole_is_refused_without_a_way_to_publish_more(
    steward: RestorableSteward,
) -> None:
    steward.house.open("one", chunk_ids=("a", "b"))
    steward.recovery.back_up()
    for number, chunk_id in enumerate(("a", "b")):
        steward.house.stand.time.pass_by(1_000_000)
        publish_chunk(steward, "one", chunk_id, 15 + number)
    steward.lose_and_restore()
    error = refused(lambda: get_status(steward, steward.house.scene.grant(Role.PRODUCER, "sales")), "workload_spent")
    assert (error.details["published_chunks"], error.details["missing_chunks"]) == ("a, b", "none")
    assert "Every chunk is published: do not publish them under another workload id" in str(error.hint)


def test_the_hint_for_a_spent_workload_names_the_release_until_its_lost_claim_is_released(
    steward: RestorableSteward, monkeypatch: pytest.MonkeyPatch
) -> None:
    steward.recovery.back_up()
    steward.publish("one", 5)
    with monkeypatch.context() as patched:
        patched.setattr("pvdm.ledger.work.claims.refill", lambda *_, **__: False)
        done = steward.lose_and_restore()
    assert [each.workload_id for each in done.blocked] == ["one"]
    grant = steward.house.scene.grant(Role.PRODUCER, "sales")
    error = refused(lambda: get_status(steward, grant), "workload_spent")
    assert "missing_chunks" not in error.details
    assert "release it (`pvdm claims release`), and then publish only the missing rows" in str(error.hint)
    steward.house.scene.release(steward.house.scene.claim_release(done.blocked[0].receipt_id))
    error = refused(lambda: get_status(steward, grant), "workload_spent")
    assert "the workload has no claim" in str(error.hint)


def test_while_no_epoch_is_active_after_a_restore_the_hint_names_the_new_epoch(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    steward.recovery.lose_the_database()
    done = steward.recovery.restore()
    steward.recovery.start()
    error = refused(lambda: steward.house.notary.epochs.book().epoch_for(None), "epoch_none_active")
    assert f"`pvdm keys activate {done.new_epoch} --reason TEXT`" in str(error.hint)
