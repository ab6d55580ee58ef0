"""A publication without a receipt, on which later ones are based, is visible after a restore and cannot be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pvdm.catalog.commit import Change
from pvdm.errors import StateUnknownError, VerificationError
from pvdm.ledger.record import receipts, restores
from pvdm.model.role import Role
from pvdm.model.statements.kind import StatementKind
from pvdm.steward.restore.restore import RestoreResult
from tests.behaviour.gate.test_gate_sources import publish_day
from tests.behaviour.steward.test_restore_late import publish_without_receipt
from tests.behaviour.steward.test_restore_pointers import RestorableSteward
from tests.support.gate.approvals import SALES, Doc
from tests.support.gate.protected_tables import contract, house_at
from tests.support.ledger.databases import memory_folder
from tests.support.steward import restore
from tests.support.waiting import wait_for_jobs
from tools.proof_kit import SECOND

SNAPSHOTS_TO_KEEP = "history.expire.min-snapshots-to-keep"


@pytest.fixture(params=["1", "50"], ids=["expired", "kept"])
def steward(request: pytest.FixtureRequest) -> Iterator[RestorableSteward]:
    """A Steward whose table keeps one snapshot, or all of them; its backup has one publication."""
    with (
        memory_folder() as folder,
        house_at(folder, changed=lambda config: replace(config, archive=folder / "archive")) as house,
    ):
        house.scene.make("orders")
        settings = {SNAPSHOTS_TO_KEEP: request.param, "history.expire.max-snapshot-age-ms": "1"}
        update: Doc = {"action": "set-properties", "updates": settings}
        house.notary.catalog.commits.commit(house.scene.grant(Role.OPERATOR), [Change(SALES, "orders", (), [update])])
        house.contracts["orders"] = contract()
        house.scene.protect(house.scene.protection("orders", contract=contract()))
        made = RestorableSteward(house, restore.Scene(house.stand))
        publish(made, "one", 1)
        made.recovery.back_up()
        yield made


def publish(steward: RestorableSteward, workload_id: str, day: int) -> None:
    steward.house.stand.time.pass_by(SECOND)
    steward.publish(workload_id, day)
    steward.house.stand.time.pass_by(SECOND)


def publish_gap(steward: RestorableSteward, kind: str) -> str:
    """Publish days 2 to 6. A crash or a lost envelope leaves day 3 without a receipt. Returns the snapshot of day 3."""
    publish(steward, "two", 2)
    if kind == "crash":
        snapshot = publish_without_receipt(steward, "three", 3)
    else:
        publish(steward, "three", 3)
        snapshot = steward.head()
        steward.recovery.lose_envelope(steward.recovery.statements(StatementKind.RECEIPT)[-1].envelope)
    for number, workload_id in ((4, "four"), (5, "five"), (6, "six")):
        publish(steward, workload_id, number)
    return str(snapshot)


def release_claims(steward: RestorableSteward, done: RestoreResult) -> None:
    for each in done.blocked:
        steward.house.scene.release(steward.house.scene.claim_release(each.receipt_id))


@pytest.mark.parametrize("kind", ["crash", "missing"])
def test_a_visible_publication_without_a_receipt_cannot_be_repeated(steward: RestorableSteward, kind: str) -> None:
    snapshot = publish_gap(steward, kind)
    done = steward.lose_and_restore(accept_missing=kind == "missing")
    assert steward.house.rows() == [11, 12, 13, 14, 15, 16]
    assert (done.lost_publications, set(done.spent)) == ((), {"two", "three", "four", "five", "six"})
    assert [(each.workload_id, each.chunk_id, each.snapshot_id) for each in done.unreceipted] == [
        ("three", "all", snapshot)
    ]
    assert "three" in {each.workload_id for each in done.blocked}
    release_claims(steward, done)
    with pytest.raises(VerificationError) as caught:
        steward.publish("three", 3)
    assert caught.value.reason == "workload_spent"
    error = restore.refused(
        lambda: steward.house.notary.work.get_workload_detail(steward.house.scene.grant(), "three"), "workload_spent"
    )
    assert error.got == f"chunk all of sales.orders as snapshot {snapshot}"


def test_an_attempt_of_the_backup_is_committed_if_its_rows_are_visible(steward: RestorableSteward) -> None:
    steward.house.open("three")
    attempt = steward.house.proved("three", [(13, 3, "Ulm")], opened=False)
    steward.recovery.back_up()
    publish_day(steward.house, attempt, 3)
    steward.recovery.lose_envelope(steward.recovery.statements(StatementKind.RECEIPT)[-1].envelope)
    publish(steward, "four", 4)
    publish(steward, "five", 5)
    publish(steward, "six", 6)
    done = steward.lose_and_restore(accept_missing=True)
    assert (done.settled, done.abandoned) == ((attempt.attempt_id,), ())
    assert steward.house.rows() == [11, 13, 14, 15, 16]


def test_a_publication_whose_receipt_is_lost_does_not_stop_other_work_after_a_restore(
    steward: RestorableSteward,
) -> None:
    steward.house.open("three")
    attempt = steward.house.proved("three", [(13, 3, "Ulm")], opened=False)
    steward.recovery.back_up()
    publish_day(steward.house, attempt, 3)
    lost = steward.head()
    steward.recovery.lose_envelope(steward.recovery.statements(StatementKind.RECEIPT)[-1].envelope)
    publish(steward, "four", 4)
    steward.lose_and_restore(accept_missing=True)
    notary, table_uuid = steward.house.notary, steward.house.table_state().row.table_uuid
    notary.start_work()
    try:
        assert wait_for_jobs(notary.jobs, 30)
        assert notary.jobs.list_jobs() == []
    finally:
        notary.stop_work()
    with notary.ledger.read() as unit:
        receipts.require_receipts(unit, table_uuid, {lost})  # does not raise: the snapshot may expire
    with pytest.raises(StateUnknownError) as caught:  # only a call for this publication raises
        steward.house.publishing().publish("three", [attempt.attempt_id])
    assert caught.value.reason == "receipt_not_signed"
    assert not steward.audit().holds


def test_a_publication_without_proof_and_receipt_is_lost_with_all_later_ones(steward: RestorableSteward) -> None:
    publish(steward, "two", 2)
    publish(steward, "three", 3)
    for kind in (StatementKind.PROOF, StatementKind.RECEIPT):
        steward.recovery.lose_envelope(steward.recovery.statements(kind)[-1].envelope)
    for number, workload_id in ((4, "four"), (5, "five"), (6, "six")):
        publish(steward, workload_id, number)
    done = steward.lose_and_restore(accept_missing=True, accept_lost=True)
    assert steward.house.rows() == [11, 12]
    assert [each.workload_id for each in done.lost_publications] == ["four", "five", "six"]
    assert {each.code for each in done.lost_publications} <= {"audit_proof_missing", "restore_rows_unproved"}


@pytest.mark.parametrize("steward", ["1"], indirect=True)
def test_a_snapshot_whose_workload_is_unknown_stops_the_restore_and_blocks_claims(steward: RestorableSteward) -> None:
    """The publication has no rows, so its workload cannot be found by its files."""
    steward.house.open("three")
    attempt = steward.house.proved("three", [], opened=False)
    publish_day(steward.house, attempt, 3)
    snapshot = steward.head()
    steward.recovery.lose_envelope(steward.recovery.statements(StatementKind.RECEIPT)[-1].envelope)
    for number, workload_id in ((4, "four"), (5, "five"), (6, "six")):
        publish(steward, workload_id, number)
    steward.recovery.lose_the_database()
    request = replace(steward.recovery.order, accept_missing=True)
    error = restore.refused(lambda: steward.recovery.restore(request), "restore_publications_lost")
    assert f"snapshot {snapshot} of unknown (restore_receipt_missing)" in str(error.got)
    done = steward.lose_and_restore(accept_missing=True, accept_lost=True)
    assert steward.house.rows() == [11, 14, 15, 16]
    assert (done.unreceipted, set(done.spent)) == ((), {"three", "four", "five", "six"})
    table_uuid = done.advanced[0].table_uuid
    require_claims_blocked(steward, table_uuid)
    release_claims(steward, done)
    with steward.house.notary.ledger.read() as unit:
        restores.require_no_lost_claim(unit, target=table_uuid)
    steward.house.stand.time.pass_by(SECOND)
    # A later restore cannot tell whether the release was about this unknown snapshot, so it does not apply the release.
    again = steward.lose_and_restore(accept_missing=True, accept_lost=True)
    assert [each.workload_id for each in again.blocked] == ["six"]
    require_claims_blocked(steward, table_uuid)
    release_claims(steward, again)
    with steward.house.notary.ledger.read() as unit:
        restores.require_no_lost_claim(unit, target=table_uuid)


def require_claims_blocked(steward: RestorableSteward, table_uuid: str) -> None:
    with steward.house.notary.ledger.read() as unit, pytest.raises(VerificationError) as caught:
        restores.require_no_lost_claim(unit, target=table_uuid)
    assert caught.value.reason == "claim_lost"
