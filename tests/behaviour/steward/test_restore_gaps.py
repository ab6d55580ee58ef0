"""A publication without a receipt that later ones were made on: it is shown, so a restore lets nobody repeat it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pvdm.catalog.commit import Change
from pvdm.errors import VerificationError
from pvdm.ledger.record import restores
from pvdm.model.role import Role
from pvdm.model.statements.kind import StatementKind
from pvdm.steward.restore.restore import Restored
from tests.behaviour.gate.test_gate_sources import publish_day
from tests.behaviour.steward.test_restore_late import publish_without_receipt
from tests.behaviour.steward.test_restore_pointers import Lost
from tests.support.gate.approvals import SALES, Doc
from tests.support.gate.protected_tables import contract, house_at
from tests.support.ledger.databases import memory_folder
from tests.support.steward import restore
from tools.proof_kit import SECOND

KEPT_PROPERTY = "history.expire.min-snapshots-to-keep"


@pytest.fixture(params=["1", "50"], ids=["expired", "kept"])
def lost(request: pytest.FixtureRequest) -> Iterator[Lost]:
    """A table that keeps one snapshot, or all of them; its backup shows one publication."""
    with (
        memory_folder() as folder,
        house_at(folder, changed=lambda config: replace(config, archive=folder / "archive")) as house,
    ):
        house.scene.make("orders")
        settings = {KEPT_PROPERTY: request.param, "history.expire.max-snapshot-age-ms": "1"}
        update: Doc = {"action": "set-properties", "updates": settings}
        house.notary.catalog.commits.commit(house.scene.grant(Role.OPERATOR), [Change(SALES, "orders", (), [update])])
        house.contracts["orders"] = contract()
        house.scene.protect(house.scene.protection("orders", contract=contract()))
        made = Lost(house, restore.Scene(house.stand))
        publish(made, "one", 1)
        made.safe.back_up()
        yield made


def publish(lost: Lost, workload_id: str, day: int) -> None:
    lost.house.stand.time.pass_by(SECOND)
    lost.publish(workload_id, day)
    lost.house.stand.time.pass_by(SECOND)


def publish_gap(lost: Lost, kind: str) -> str:
    """Publish day 3 between others, so that no receipt of it is left; gives the snapshot."""
    publish(lost, "two", 2)
    if kind == "crash":
        snapshot = publish_without_receipt(lost, "three", 3)
    else:
        publish(lost, "three", 3)
        snapshot = lost.head()
        lost.safe.lose_envelope(lost.safe.statements(StatementKind.RECEIPT)[-1].envelope)
    for number, workload_id in ((4, "four"), (5, "five"), (6, "six")):
        publish(lost, workload_id, number)
    return str(snapshot)


def release_claims(lost: Lost, done: Restored) -> None:
    for each in done.blocked:
        lost.house.transact(
            lambda unit, each=each: restores.release_lost_claim(  # type: ignore[misc]
                unit, each.receipt_id, operator="operator-tom", reason="compared by hand"
            )
        )


@pytest.mark.parametrize("kind", ["crash", "missing"])
def test_what_is_shown_without_a_receipt_cannot_be_published_again(lost: Lost, kind: str) -> None:
    snapshot = publish_gap(lost, kind)
    done = lost.lose_and_restore(accept_missing=kind == "missing")
    assert lost.house.rows() == [11, 12, 13, 14, 15, 16]
    assert (done.lost_publications, set(done.spent)) == ((), {"two", "three", "four", "five", "six"})
    assert [(each.workload_id, each.chunk_id, each.snapshot_id) for each in done.unreceipted] == [
        ("three", "all", snapshot)
    ]
    assert "three" in {each.workload_id for each in done.blocked}
    release_claims(lost, done)
    with pytest.raises(VerificationError) as caught:
        lost.publish("three", 3)
    assert caught.value.reason == "workload_spent"
    error = restore.refused(
        lambda: lost.house.notary.work.workload(lost.house.scene.grant(), "three"), "workload_spent"
    )
    assert error.got == f"chunk all of sales.orders as snapshot {snapshot}"


def test_an_attempt_that_the_backup_has_is_committed_by_what_is_shown(lost: Lost) -> None:
    lost.house.open("three")
    attempt = lost.house.proved("three", [(13, 3, "Ulm")], opened=False)
    lost.safe.back_up()
    publish_day(lost.house, attempt, 3)
    lost.safe.lose_envelope(lost.safe.statements(StatementKind.RECEIPT)[-1].envelope)
    publish(lost, "four", 4)
    publish(lost, "five", 5)
    publish(lost, "six", 6)
    done = lost.lose_and_restore(accept_missing=True)
    assert (done.settled, done.abandoned) == ((attempt.attempt_id,), ())
    assert lost.house.rows() == [11, 13, 14, 15, 16]


def test_rows_that_nothing_proves_are_not_shown(lost: Lost) -> None:
    publish(lost, "two", 2)
    publish(lost, "three", 3)
    for kind in (StatementKind.PROOF, StatementKind.RECEIPT):
        lost.safe.lose_envelope(lost.safe.statements(kind)[-1].envelope)
    for number, workload_id in ((4, "four"), (5, "five"), (6, "six")):
        publish(lost, workload_id, number)
    done = lost.lose_and_restore(accept_missing=True, accept_lost=True)
    assert lost.house.rows() == [11, 12]
    assert [each.workload_id for each in done.lost_publications] == ["four", "five", "six"]
    assert {each.code for each in done.lost_publications} <= {"audit_proof_missing", "restore_rows_unproved"}


@pytest.mark.parametrize("lost", ["1"], indirect=True)
def test_a_gap_that_nothing_explains_stops_the_restore_and_blocks_claims(lost: Lost) -> None:
    """A publication without rows leaves no file by which it could be known."""
    lost.house.open("three")
    attempt = lost.house.proved("three", [], opened=False)
    publish_day(lost.house, attempt, 3)
    snapshot = lost.head()
    lost.safe.lose_envelope(lost.safe.statements(StatementKind.RECEIPT)[-1].envelope)
    for number, workload_id in ((4, "four"), (5, "five"), (6, "six")):
        publish(lost, workload_id, number)
    lost.safe.lose_the_database()
    order = replace(lost.safe.order, accept_missing=True)
    error = restore.refused(lambda: lost.safe.restore(order), "restore_publications_lost")
    assert f"snapshot {snapshot} of unknown (restore_receipt_missing)" in str(error.got)
    done = lost.lose_and_restore(accept_missing=True, accept_lost=True)
    assert lost.house.rows() == [11, 14, 15, 16]
    assert (done.unreceipted, set(done.spent)) == ((), {"three", "four", "five", "six"})
    with lost.house.notary.ledger.read() as unit, pytest.raises(VerificationError) as caught:
        restores.require_no_lost_claim(unit, target=done.advanced[0].table_uuid)
    assert caught.value.reason == "claim_lost"
