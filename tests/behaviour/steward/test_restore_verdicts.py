"""After a restore every verdict and override from after the backup is listed again, and none can be used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.ledger.work import attempts, nonces
from pvdm.model.role import Role
from pvdm.model.statements.verdict import Outcome
from pvdm.model.states import AttemptState, NonceState
from tests.support.steward.notary import core_of, override_of, signed_override
from tests.support.steward.restore import Scene, refused, scene_at
from tools.proof_kit import SECOND


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with scene_at(tmp_path / "steward") as made:
        yield made


def lose_and_restore(scene: Scene) -> None:
    scene.lose_the_database()
    scene.restore()
    scene.start()


def test_a_fail_from_after_the_backup_is_listed_again(scene: Scene) -> None:
    scene.back_up()
    recorded = scene.stand.proved("failed", passed=False)
    before = scene.notary.proofs.get(recorded.statement_id, scene.stand.grant())
    lose_and_restore(scene)
    assert scene.notary.proofs.get(recorded.statement_id, scene.stand.grant()) == before
    (listed,) = scene.notary.proofs.list_proofs(scene.stand.grant(), workload_id=core_of("failed").attempt.workload_id)
    assert (listed.verdict, listed.proof_id) == (Outcome.FAIL, recorded.statement_id)
    assert scene.notary.proofs.envelope(recorded.statement_id, scene.stand.grant()) == recorded.envelope


def test_a_verdict_whose_table_the_ledger_lacks_is_not_shown_to_an_auditor_of_one_domain(scene: Scene) -> None:
    scene.back_up()
    recorded = scene.stand.proved("failed", passed=False)
    lose_and_restore(scene)
    auditor = scene.stand.grant(Role.AUDITOR, "sales", "eve")
    refused(lambda: scene.notary.proofs.get(recorded.statement_id, auditor), "domain_wrong")


def test_a_fail_of_an_attempt_that_the_backup_has_keeps_its_domain(scene: Scene) -> None:
    core = scene.stand.verifying("failed")
    scene.back_up()
    recorded = scene.stand.record(replace(core, verdict=core_of("failed").verdict))
    lose_and_restore(scene)
    auditor = scene.stand.grant(Role.AUDITOR, "sales", "eve")
    assert scene.notary.proofs.get(recorded.statement_id, auditor).attempt_id == core.attempt.attempt_id
    with scene.notary.ledger.read() as unit:
        assert attempts.get(unit, core.attempt.attempt_id).state is AttemptState.ROLLED_BACK


def test_the_keys_of_an_attempt_that_the_backup_lacks_are_not_released(scene: Scene) -> None:
    scene.back_up()
    recorded = scene.stand.proved("failed", passed=False)
    lose_and_restore(scene)
    auditor = scene.stand.grant(Role.AUDITOR, "*", "eve")
    call = scene.notary.proofs.open
    refused(lambda: call(recorded.statement_id, auditor, reason="audit"), "proof_without_digest")


def test_an_override_from_after_the_backup_is_listed_again_and_is_void(scene: Scene) -> None:
    scene.back_up()
    recorded = scene.stand.proved("failed", passed=False)
    override = override_of(recorded, core_of("failed"), scene.notary.clock.now_micros())
    view = scene.notary.overrides.submit(signed_override(override), scene.stand.grant())
    lose_and_restore(scene)
    aborted = view.model_copy(update={"state": NonceState.ABORTED})
    assert scene.notary.overrides.list_overrides(scene.stand.grant()) == [aborted]
    shown = scene.notary.proofs.get(recorded.statement_id, scene.stand.grant())
    assert shown.override_id == view.override_id


def test_an_override_that_published_a_snapshot_after_the_backup_is_listed_as_used(scene: Scene) -> None:
    recorded = scene.stand.proved("failed", passed=False)
    now = scene.notary.clock.now_micros()
    view = scene.notary.overrides.submit(
        signed_override(override_of(recorded, core_of("failed"), now)), scene.stand.grant()
    )
    scene.back_up()
    snapshot = scene.publish("failed", recorded, override_id=view.override_id)
    lose_and_restore(scene)
    (listed,) = scene.notary.overrides.list_overrides(scene.stand.grant())
    assert listed.state == NonceState.COMMITTED.value
    with scene.notary.ledger.read() as unit:
        found = nonces.find(unit, view.nonce)
    assert found is not None
    assert found.snapshot_id == snapshot


def test_an_override_whose_fail_proof_is_missing_is_not_listed(scene: Scene) -> None:
    scene.back_up()
    recorded = scene.stand.proved("failed", passed=False)
    override = override_of(recorded, core_of("failed"), scene.notary.clock.now_micros())
    scene.notary.overrides.submit(signed_override(override), scene.stand.grant())
    scene.stand.time.pass_by(SECOND)
    scene.lose_envelope(recorded.envelope)
    scene.lose_the_database()
    assert scene.restore(replace(scene.order, accept_missing=True)).missing == 1
    scene.start()
    assert scene.notary.overrides.list_overrides(scene.stand.grant()) == []
