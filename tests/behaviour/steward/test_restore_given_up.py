"""A restore gives up a table that was made after the backup and whose metadata file is gone."""

from __future__ import annotations

from pvdm.ledger.record import restores
from pvdm.ledger.work import workloads
from pvdm.model.states import WorkloadState
from tests.behaviour.steward.test_restore_pointers import RestorableSteward, steward
from tests.support.gate.attacks import BEFORE, publish
from tests.support.steward.restore import refused
from tests.support.stores.places import file_at
from tools.proof_kit import SECOND

__all__ = ["steward"]


def publish_to_later(steward: RestorableSteward) -> str:
    """Make and protect `sales.later`, and publish workload `one` to it. Returns the table's UUID."""
    steward.house.table("later", rows=BEFORE)
    steward.house.open("one", name="later")
    publish(steward.house, steward.house.proved("one", [(15, 5, "Ulm")], name="later", opened=False), name="later")
    return steward.house.table_state("later").row.table_uuid


def test_a_workload_of_a_table_that_was_given_up_is_published_again_under_its_id(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    old = publish_to_later(steward)
    file_at(steward.house.table_state("later").row.pointer.location).unlink()
    done = steward.lose_and_restore(accept_lost=True)
    assert [each.workload_id for each in done.lost_publications] == ["one"]
    assert (done.spent, done.blocked) == ((), ())
    steward.house.stand.time.pass_by(SECOND)
    assert publish_to_later(steward) != old
    assert steward.house.rows("later") == [1, 2, 15]
    with steward.house.notary.ledger.read() as unit:
        assert workloads.get(unit, "one").state is WorkloadState.COMPLETE


def test_claims_on_a_table_that_was_given_up_are_blocked_in_case_it_is_registered_again(
    steward: RestorableSteward,
) -> None:
    steward.recovery.back_up()
    old = publish_to_later(steward)
    file_at(steward.house.table_state("later").row.pointer.location).unlink()
    steward.lose_and_restore(accept_lost=True)
    with steward.house.notary.ledger.read() as unit:
        refused(lambda: restores.require_no_lost_claim(unit, target=old), "claim_lost")
