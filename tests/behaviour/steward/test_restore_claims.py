"""Rows that were published in a time which the ledger forgot are not claimed again until somebody has looked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.ledger import Unit
from pvdm.ledger.record import restores
from pvdm.ledger.work import claims
from pvdm.model.filter.claim import Claim
from pvdm.model.statements.core import Operation, RowCounts
from pvdm.model.statements.kind import StatementKind
from pvdm.steward.record.proofs import RecordedProof
from tests.support.steward.notary import core_of
from tests.support.steward.restore import Scene, refused, scene_at


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with scene_at(tmp_path / "steward") as made:
        yield made


def append(scene: Scene, name: str, rows: int | None = 48_210) -> RecordedProof:
    """The PASS of an append."""
    core = scene.stand.verifying(name)
    target = replace(core.target, operation=Operation.APPEND)
    files = replace(core.files, removed=())
    return scene.stand.record(replace(core, target=target, files=files, rows=RowCounts(rows, rows)))


def take(scene: Scene, name: str) -> None:
    target = core_of(name).target.table.uuid

    def work(unit: Unit) -> None:
        claims.take(unit, f"work-{name}", target=target, claim=Claim.everything())

    scene.notary.ledger.transact(work, at_micros=scene.notary.clock.now_micros())


def test_rows_whose_claim_is_lost_are_not_claimed_under_another_name(scene: Scene) -> None:
    """The workload is in the backup, its claim is not."""
    recorded = append(scene, "day1")
    scene.wait_for_commit("day1")
    scene.back_up()
    take(scene, "day1")
    scene.publish("day1", recorded)
    scene.lose_the_database()
    done = scene.restore()
    assert [each.workload_id for each in done.blocked] == [core_of("day1").attempt.workload_id]
    scene.start()
    scene.activate_new_epoch()
    scene.stand.verifying("day1-again")
    refused(lambda: take(scene, "day1-again"), "claim_lost")


def test_where_the_workload_is_lost_too_claims_on_the_target_are_blocked_until_released(scene: Scene) -> None:
    scene.back_up()
    scene.publish("day1", append(scene, "day1"))
    (receipt,) = scene.statements(StatementKind.RECEIPT)
    scene.lose_the_database()
    scene.restore()
    notary = scene.start()
    scene.activate_new_epoch()
    scene.stand.verifying("day1-again")
    refused(lambda: take(scene, "day1-again"), "claim_lost")

    def work(unit: Unit) -> None:
        restores.release_lost_claim(unit, receipt.statement_id, operator="operator-tom", reason="compared by hand")

    notary.ledger.transact(work, at_micros=notary.clock.now_micros())
    take(scene, "day1-again")


def test_a_claim_of_the_backup_blocks_no_other_claim(scene: Scene) -> None:
    recorded = append(scene, "day1")
    scene.wait_for_commit("day1")
    take(scene, "day1")
    scene.back_up()
    scene.publish("day1", recorded)
    scene.lose_the_database()
    assert scene.restore().blocked == ()
    scene.start()
    scene.activate_new_epoch()
    scene.stand.verifying("other")
    refused(lambda: take(scene, "other"), "claim_overlaps")


def test_a_claim_that_no_restore_lost_is_not_released(scene: Scene) -> None:
    def work(unit: Unit) -> None:
        restores.release_lost_claim(unit, "ab" * 32, operator="operator-tom", reason="a guess")

    refused(lambda: scene.notary.ledger.transact(work, at_micros=scene.notary.clock.now_micros()), "receipt_unknown")


def test_what_is_no_append_had_no_claim_to_lose(scene: Scene) -> None:
    scene.back_up()
    scene.publish("replaced", scene.stand.proved("replaced"))
    scene.lose_the_database()
    assert scene.restore().blocked == ()


def test_an_append_without_a_row_had_no_claim_to_lose(scene: Scene) -> None:
    scene.back_up()
    scene.publish("empty", append(scene, "empty", rows=0))
    scene.lose_the_database()
    assert scene.restore().blocked == ()


def test_an_append_whose_proof_is_missing_as_well_blocks_the_target(scene: Scene) -> None:
    scene.back_up()
    recorded = append(scene, "day1")
    scene.publish("day1", recorded)
    scene.lose_the_database()
    scene.lose_envelope(recorded.envelope)
    done = scene.restore(replace(scene.order, accept_missing=True))
    assert [each.workload_id for each in done.blocked] == [core_of("day1").attempt.workload_id]
