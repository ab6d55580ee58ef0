"""A table of the lost time whose files are gone: what was published to it is free to be published once more."""

from __future__ import annotations

from pvdm.ledger.record import restores
from pvdm.ledger.work import workloads
from pvdm.model.states import WorkloadState
from tests.behaviour.steward.test_restore_pointers import Lost, lost
from tests.support.gate.attacks import BEFORE, publish
from tests.support.steward.restore import refused
from tests.support.stores.places import file_at
from tools.proof_kit import SECOND

__all__ = ["lost"]


def publish_to_later(lost: Lost) -> str:
    """Make and protect `sales.later`, and publish workload `one` to it; its UUID."""
    lost.house.table("later", rows=BEFORE)
    lost.house.open("one", name="later")
    publish(lost.house, lost.house.proved("one", [(15, 5, "Ulm")], name="later", opened=False), name="later")
    return lost.house.found("later").row.table_uuid


def test_a_workload_of_a_table_that_was_given_up_is_published_again_under_its_id(lost: Lost) -> None:
    lost.safe.back_up()
    old = publish_to_later(lost)
    file_at(lost.house.found("later").row.pointer.location).unlink()
    done = lost.lose_and_restore(accept_lost=True)
    assert [each.workload_id for each in done.lost_publications] == ["one"]
    assert (done.spent, done.blocked) == ((), ())
    lost.house.stand.time.pass_by(SECOND)
    assert publish_to_later(lost) != old
    assert lost.house.rows("later") == [1, 2, 15]
    with lost.house.notary.ledger.read() as unit:
        assert workloads.get(unit, "one").state is WorkloadState.COMPLETE


def test_nothing_is_claimed_unseen_where_its_document_is_registered_after_all(lost: Lost) -> None:
    lost.safe.back_up()
    old = publish_to_later(lost)
    file_at(lost.house.found("later").row.pointer.location).unlink()
    lost.lose_and_restore(accept_lost=True)
    with lost.house.notary.ledger.read() as unit:
        refused(lambda: restores.require_no_lost_claim(unit, target=old), "claim_lost")
