"""After a restore, rows that were published after the backup cannot be claimed again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.ledger import Unit
from pvdm.ledger.work import claims
from pvdm.model.filter.claim import Claim
from pvdm.model.statements.core import Operation, RowCounts
from pvdm.steward.record.proofs import RecordedProof
from tests.support.steward.notary import core_of
from tests.support.steward.restore import Scene, refused, scene_at


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with scene_at(tmp_path / "steward") as made:
        yield made


def prove_append(scene: Scene, name: str, rows: int | None = 48_210) -> RecordedProof:
    """Record a PASS proof of an append of so many rows."""
    core = scene.stand.verifying(name)
    target = replace(core.target, operation=Operation.APPEND)
    files = replace(core.files, removed=())
    return scene.stand.record(replace(core, target=target, files=files, rows=RowCounts(rows, rows)))


def take_claim(scene: Scene, name: str) -> None:
    """Claim the whole target for the workload `work-<name>`."""
    target = core_of(name).target.table.uuid

    def work(unit: Unit) -> None:
        claims.take(unit, f"work-{name}", target=target, claim=Claim.everything())

    scene.notary.ledger.transact(work, at_micros=scene.notary.clock.now_micros())


def test_rows_whose_claim_is_lost_cannot_be_claimed_by_another_workload(scene: Scene) -> None:
    """The backup has the workload, but not its claim."""
    recorded = prove_append(scene, "day1")
    scene.wait_for_commit("day1")
    scene.back_up()
    take_claim(scene, "day1")
    scene.publish("day1", recorded)
    scene.lose_the_database()
    done = scene.restore()
    assert [each.workload_id for each in done.blocked] == [core_of("day1").attempt.workload_id]
    scene.start()
    scene.activate_new_epoch()
    scene.stand.verifying("day1-again")
    refused(lambda: take_claim(scene, "day1-again"), "claim_lost")


def test_if_the_workload_is_lost_too_claims_on_the_target_are_blocked(scene: Scene) -> None:
    scene.back_up()
    scene.publish("day1", prove_append(scene, "day1"))
    scene.lose_the_database()
    scene.restore()
    scene.start()
    scene.activate_new_epoch()
    scene.stand.verifying("day1-again")
    refused(lambda: take_claim(scene, "day1-again"), "claim_lost")


def test_a_claim_that_the_backup_has_stays_valid_and_nothing_else_is_blocked(scene: Scene) -> None:
    recorded = prove_append(scene, "day1")
    scene.wait_for_commit("day1")
    take_claim(scene, "day1")
    scene.back_up()
    scene.publish("day1", recorded)
    scene.lose_the_database()
    assert scene.restore().blocked == ()
    scene.start()
    scene.activate_new_epoch()
    scene.stand.verifying("other")
    refused(lambda: take_claim(scene, "other"), "claim_overlaps")


def test_a_publication_that_is_no_append_blocks_no_claims(scene: Scene) -> None:
    scene.back_up()
    scene.publish("replaced", scene.stand.proved("replaced"))
    scene.lose_the_database()
    assert scene.restore().blocked == ()


def test_an_append_without_rows_blocks_no_claims(scene: Scene) -> None:
    scene.back_up()
    scene.publish("empty", prove_append(scene, "empty", rows=0))
    scene.lose_the_database()
    assert scene.restore().blocked == ()


def test_an_append_whose_proof_is_missing_too_blocks_claims_on_the_target(scene: Scene) -> None:
    scene.back_up()
    recorded = prove_append(scene, "day1")
    scene.publish("day1", recorded)
    scene.lose_the_database()
    scene.lose_envelope(recorded.envelope)
    done = scene.restore(replace(scene.order, accept_missing=True))
    assert [each.workload_id for each in done.blocked] == [core_of("day1").attempt.workload_id]
