"""Claim releases: an operator's signed statement releases exactly one lost claim. Later restores apply it again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from pvdm.errors import NotAllowedError, PvdmError, UnavailableError, VerificationError
from pvdm.ledger.record import restores
from pvdm.model.role import Role
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.receipt import Receipt
from pvdm.steward.notary import log_keys
from pvdm.steward.restore import reconcile, restore
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.log.fsck import fsck
from pvdm.trust.statement import read_unchecked
from pvdm.trust.verify import sign_statement
from tests.behaviour.gate.test_gate_sources import prove_day, publish_day
from tests.behaviour.steward.test_core_protections import at_once
from tests.behaviour.steward.test_restore_pointers import RestorableSteward
from tests.support import fault
from tests.support.audit.expiring_history import audit_orders
from tests.support.gate.approvals import reason_of, signed
from tests.support.gate.attacks import BEFORE, publish, refusal
from tests.support.gate.protected_tables import SOURCE, house_at
from tests.support.ledger.databases import memory_folder
from tests.support.steward import restore as restore_examples
from tests.support.steward.logged import entry_of
from tests.support.steward.notary import LOG_ORIGIN
from tools.proof_kit import SECOND, fixed

OTHER_UUID = "11111111-2222-4333-8444-555555555555"


@pytest.fixture(autouse=True, scope="module")
def unknown_claims() -> Iterator[None]:
    """Make restores derive no claims, as if the source were gone."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(restore, "derive_claims", lambda *_: {})
        yield


def steward_in(folder: Path) -> Iterator[RestorableSteward]:
    """A Steward that was restored from a backup without its publications `one` (day 5) and `two` (day 6)."""
    with house_at(folder, changed=lambda config: replace(config, archive=folder / "archive")) as house:
        house.table(rows=BEFORE)
        made = RestorableSteward(house, restore_examples.Scene(house.stand))
        made.recovery.back_up()
        made.publish("one", 5)
        made.publish("two", 6)
        made.lose_and_restore()
        yield made


@pytest.fixture
def steward() -> Iterator[RestorableSteward]:
    with memory_folder() as folder:
        yield from steward_in(folder)


@pytest.fixture(scope="module")
def shared_steward() -> Iterator[RestorableSteward]:
    """One Steward for all tests that change nothing. The claim of workload `three` on the table `held` is not lost."""
    with memory_folder() as folder:
        for made in steward_in(folder):
            made.house.stand.time.pass_by(SECOND)
            made.house.table("held", rows=BEFORE)
            made.house.open("three", name="held")
            publish(made.house, made.house.proved("three", [(30, 7, "Ulm")], name="held", opened=False), name="held")
            yield made


def list_lost_ids(steward: RestorableSteward) -> list[str]:
    """The ids of the receipts whose claims are lost and not released, sorted by workload id."""
    lost = steward.house.notary.claim_releases.list_lost(steward.house.scene.grant())
    by_workload = {each.workload_id: str(each.receipt_id) for each in lost if each.release is None}
    return [by_workload[workload_id] for workload_id in sorted(by_workload)]


def require_publication_refused(steward: RestorableSteward, workload_id: str, day: int) -> str:
    """Publish a row of the day under a new workload id. The gate must refuse; returns the reason of its refusal."""
    steward.house.stand.time.pass_by(SECOND)
    attempt = prove_day(steward.house, workload_id, day, SOURCE.uuid)
    return refusal(steward.house, lambda: publish_day(steward.house, attempt, day)).reason


def release_all(steward: RestorableSteward) -> None:
    for receipt_id in list_lost_ids(steward):
        steward.house.scene.release(steward.house.scene.claim_release(receipt_id))


# What a release allows


def test_after_the_release_of_every_lost_claim_the_rows_can_be_published_under_a_new_workload(
    steward: RestorableSteward,
) -> None:
    assert require_publication_refused(steward, "again", 5) == "claim_lost"
    release_all(steward)
    steward.house.stand.time.pass_by(SECOND)
    steward.publish("another", 5)
    assert steward.house.rows() == [1, 2, 15, 15, 16]


def test_a_release_leaves_the_other_lost_claim_of_the_table_in_force(steward: RestorableSteward) -> None:
    first, second = list_lost_ids(steward)
    steward.house.scene.release(steward.house.scene.claim_release(first))
    assert list_lost_ids(steward) == [second]
    assert require_publication_refused(steward, "again", 5) == "claim_lost"


def test_a_release_leaves_the_workload_id_of_the_publication_used_up(steward: RestorableSteward) -> None:
    release_all(steward)
    error = refusal(steward.house, lambda: prove_day(steward.house, "one", 5, SOURCE.uuid))
    assert error.reason == "workload_spent"


def test_a_release_is_logged_with_operator_reason_and_evidence(steward: RestorableSteward) -> None:
    receipt_id = list_lost_ids(steward)[0]
    view = steward.house.scene.release(steward.house.scene.claim_release(receipt_id))
    (stored,) = steward.recovery.statements(StatementKind.CLAIM_RELEASE)
    (restored,) = steward.recovery.statements(StatementKind.RESTORE)
    entry = json.loads(entry_of(steward.house.notary, view.log_index))
    assert (entry["kind"], stored.statement_id, stored.log_index) == ("claim-release", view.release_id, view.log_index)
    assert (view.operator, view.reason) == ("operator-tom", "compared with the source, day by day")
    assert (view.table, view.table_uuid) == ("sales.orders", steward.house.table_state().row.table_uuid)
    assert (view.workload_id, view.receipt_id, view.restore_id) == ("one", receipt_id, restored.statement_id)
    proofs = {each.statement_id for each in steward.recovery.statements(StatementKind.PROOF)}
    assert set(view.proof_ids) <= proofs
    assert len(view.proof_ids) == 1
    steward.house.notary.recorder.require_consistent()


def test_a_release_submitted_again_gives_the_same_answer(steward: RestorableSteward) -> None:
    envelope, releases = signed(steward.house.scene.claim_release()), steward.house.notary.claim_releases
    first, size = releases.submit(envelope, steward.house.scene.grant()), steward.house.notary.log.size()
    assert releases.submit(envelope, steward.house.scene.grant()) == first
    assert steward.house.notary.log.size() == size


def test_a_release_submitted_again_with_a_token_of_another_domain_is_refused(steward: RestorableSteward) -> None:
    envelope, scene = signed(steward.house.scene.claim_release()), steward.house.scene
    steward.house.notary.claim_releases.submit(envelope, scene.grant())
    other = scene.grant(domain="risk")
    assert reason_of(lambda: steward.house.notary.claim_releases.submit(envelope, other)) == "domain_wrong"


def test_a_second_release_of_one_claim_is_refused(steward: RestorableSteward) -> None:
    receipt_id = list_lost_ids(steward)[0]
    first, second = (steward.house.scene.claim_release(receipt_id) for _ in range(2))
    release_id = steward.house.scene.release(first).release_id
    with pytest.raises(NotAllowedError) as caught:
        steward.house.scene.release(second)
    assert (caught.value.reason, caught.value.got) == ("claim_released", f"released by {release_id}")


def test_a_release_with_the_nonce_of_another_is_refused_also_after_a_later_restore(steward: RestorableSteward) -> None:
    scene = steward.house.scene
    first, second = list_lost_ids(steward)
    used = scene.claim_release(first)
    scene.release(used)

    def submit_with_used_nonce() -> None:
        scene.release(replace(scene.claim_release(second), nonce=used.nonce))

    assert refusal_of(steward, submit_with_used_nonce) == "approval_replayed"
    scene.stand.time.pass_by(SECOND)
    steward.lose_and_restore()
    assert refusal_of(steward, submit_with_used_nonce) == "approval_replayed"


def test_of_two_releases_at_once_one_is_accepted(steward: RestorableSteward) -> None:
    receipt_id, grant = list_lost_ids(steward)[0], steward.house.scene.grant()
    envelopes = [signed(steward.house.scene.claim_release(receipt_id)) for _ in range(2)]
    releases = steward.house.notary.claim_releases
    answers = at_once(*[partial(releases.submit, data, grant) for data in envelopes])
    assert [answer for answer in answers if isinstance(answer, str)] == ["claim_released"]
    assert len(steward.recovery.statements(StatementKind.CLAIM_RELEASE)) == 1


def test_a_release_that_fails_before_its_commit_changes_nothing(steward: RestorableSteward) -> None:
    size, envelope = steward.house.notary.log.size(), signed(steward.house.scene.claim_release())
    releases, grant = steward.house.notary.claim_releases, steward.house.scene.grant()
    with (
        fault.armed("ledger.before_commit", fault.Raise(UnavailableError("no", "the database is gone"))),
        pytest.raises(UnavailableError),
    ):
        releases.submit(envelope, grant)
    assert (steward.house.notary.log.size(), len(list_lost_ids(steward))) == (size, 2)
    releases.submit(envelope, grant)
    assert len(list_lost_ids(steward)) == 1


def test_a_release_whose_answer_was_lost_is_logged_once_if_it_is_submitted_again(steward: RestorableSteward) -> None:
    envelope = signed(steward.house.scene.claim_release())
    with (
        fault.armed("steward.before_outside", fault.Raise(UnavailableError("lost", "the answer is lost"))),
        pytest.raises(UnavailableError),
    ):
        steward.house.notary.claim_releases.submit(envelope, steward.house.scene.grant())
    notary = steward.house.stand.reopen()
    notary.claim_releases.submit(envelope, steward.house.scene.grant())
    assert len(steward.recovery.statements(StatementKind.CLAIM_RELEASE)) == 1
    notary.recorder.require_consistent()


# What is refused


def refusal_of(steward: RestorableSteward, call: Callable[[], object], kind: type[PvdmError] = NotAllowedError) -> str:
    """Require that the call is refused and changes neither log nor lost claims. Returns the reason of the refusal."""
    before = steward.house.notary.log.size(), list_lost_ids(steward)
    reason = reason_of(call, kind)
    assert (steward.house.notary.log.size(), list_lost_ids(steward)) == before
    return reason


SIGNERS_REFUSED = {"rogue": "key_unknown", "operator-ruth": "key_is_break_glass", "source-payments": "key_role_wrong"}


@pytest.mark.parametrize("signer", sorted(SIGNERS_REFUSED))
def test_a_release_signed_with_a_key_that_is_no_operators_is_refused(
    shared_steward: RestorableSteward, signer: str
) -> None:
    release = replace(shared_steward.house.scene.claim_release(), operator=signer)
    call = partial(shared_steward.house.scene.release, release, signer=signer)
    assert refusal_of(shared_steward, call) == SIGNERS_REFUSED[signer]


def test_the_stewards_own_key_releases_nothing(shared_steward: RestorableSteward) -> None:
    notary, release = shared_steward.house.notary, shared_steward.house.scene.claim_release()
    signer = notary.keys.signer(KeyRole.SIGNING, notary.keys.epoch_for(None))
    data = sign_statement(replace(release, operator="steward-one"), signer).to_bytes()
    call = partial(notary.claim_releases.submit, data, shared_steward.house.scene.grant())
    assert refusal_of(shared_steward, call) == "approval_signed_by_steward"


def test_an_unsigned_release_is_refused(shared_steward: RestorableSteward) -> None:
    value = {**json.loads(signed(shared_steward.house.scene.claim_release())), "signatures": []}
    data = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
    call = partial(shared_steward.house.notary.claim_releases.submit, data, shared_steward.house.scene.grant())
    assert refusal_of(shared_steward, call) == "approval_unsigned"


def other_table(steward: RestorableSteward) -> Any:
    return steward.house.ref("held")


WRONG_FACTS: dict[str, tuple[Callable[[RestorableSteward], dict[str, Any]], str]] = {
    "another table of the catalog": (lambda steward: {"table": other_table(steward)}, "claim_release_differs"),
    "a table of no catalog": (
        lambda steward: {"table": replace(steward.house.ref(), uuid=OTHER_UUID)},
        "approval_wrong_table",
    ),
    "another name": (lambda steward: {"table": replace(steward.house.ref(), name="sales.x")}, "approval_wrong_name"),
    "another catalog": (lambda steward: {"table": replace(steward.house.ref(), catalog="x")}, "approval_wrong_catalog"),
    "another workload": (lambda _: {"workload_id": "two"}, "claim_release_differs"),
    "other proofs": (lambda _: {"proof_ids": (fixed("other proof"),)}, "claim_release_differs"),
    "the proof in place of the receipt": (lambda _: {"receipt_id": None}, "claim_not_lost"),
    "the receipt of the other lost claim": (
        lambda steward: {"receipt_id": list_lost_ids(steward)[1]},
        "claim_release_differs",
    ),
    "a receipt that does not exist": (lambda _: {"receipt_id": fixed("other receipt")}, "claim_not_lost"),
    "another restore": (lambda _: {"restore_id": fixed("other restore")}, "claim_release_differs"),
}


@pytest.mark.parametrize("wrong", sorted(WRONG_FACTS))
def test_a_release_with_other_facts_than_the_lost_claim_is_refused(
    shared_steward: RestorableSteward, wrong: str
) -> None:
    facts, reason = WRONG_FACTS[wrong]
    release = shared_steward.house.scene.claim_release(list_lost_ids(shared_steward)[0])
    call = partial(shared_steward.house.scene.release, replace(release, **facts(shared_steward)))
    assert refusal_of(shared_steward, call) == reason


def test_a_claim_that_is_not_lost_is_not_released(shared_steward: RestorableSteward) -> None:
    house = shared_steward.house
    *_, newest = shared_steward.recovery.statements(StatementKind.RECEIPT)
    receipt = read_unchecked(newest.envelope, Receipt)
    release = replace(
        house.scene.claim_release(),
        table=house.ref("held"),
        workload_id=receipt.workload_id,
        receipt_id=newest.statement_id,
        proof_ids=receipt.proof_ids,
    )
    assert receipt.workload_id == "three"
    assert refusal_of(shared_steward, partial(house.scene.release, release)) == "claim_not_lost"


def test_an_expired_release_is_refused(shared_steward: RestorableSteward) -> None:
    release = shared_steward.house.scene.claim_release()
    expired = replace(release, issued_at=release.issued_at - 2 * SECOND, expires_at=release.issued_at - SECOND)
    assert refusal_of(shared_steward, partial(shared_steward.house.scene.release, expired)) == "approval_expired"


def test_a_release_that_was_signed_before_the_restore_is_refused(shared_steward: RestorableSteward) -> None:
    release = shared_steward.house.scene.claim_release()
    with shared_steward.house.notary.ledger.read() as unit:
        restored = restores.find_newest_micros(unit)
    assert restored is not None
    call = partial(shared_steward.house.scene.release, replace(release, issued_at=restored))
    assert refusal_of(shared_steward, call) == "approval_before_restore"


def test_a_token_of_another_domain_releases_nothing_and_sees_no_lost_claim(shared_steward: RestorableSteward) -> None:
    scene = shared_steward.house.scene
    assert refusal_of(shared_steward, partial(scene.release, domain="risk")) == "domain_wrong"
    releases = shared_steward.house.notary.claim_releases
    assert releases.list_lost(scene.grant(Role.AUDITOR, "risk")) == []
    assert len(releases.list_lost(scene.grant(Role.AUDITOR, "sales"))) == 2


# Later restores


@pytest.mark.parametrize("backup", ["before the publication", "before the release", "after the release"])
def test_a_later_restore_applies_the_release_again(steward: RestorableSteward, backup: str) -> None:
    if backup == "before the release":
        steward.recovery.back_up()
    release_all(steward)
    if backup == "after the release":
        steward.recovery.back_up()
    envelope = steward.recovery.statements(StatementKind.CLAIM_RELEASE)[0].envelope
    steward.house.stand.time.pass_by(SECOND)
    steward.recovery.lose_the_database()
    done = steward.recovery.restore(replace(steward.recovery.order, again=True))
    steward.recovery.start()
    steward.recovery.activate_new_epoch()
    assert (done.blocked, list_lost_ids(steward)) == ((), [])
    listed = steward.house.notary.claim_releases.list_lost(steward.house.scene.grant())
    assert {each.release.operator for each in listed if each.release is not None} == {"operator-tom"}
    assert len(listed) == 2
    steward.house.notary.claim_releases.submit(envelope, steward.house.scene.grant())
    steward.house.stand.time.pass_by(SECOND)
    steward.publish("another", 5)
    assert steward.house.rows() == [1, 2, 15, 15, 16]


def test_a_later_restore_does_not_claim_again_what_was_released(
    steward: RestorableSteward, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later restore could derive the claims, because the source is back."""
    release_all(steward)
    steward.house.stand.time.pass_by(SECOND)
    steward.publish("another", 5)
    monkeypatch.setattr(restore, "derive_claims", reconcile.derive_claims)
    steward.house.stand.time.pass_by(SECOND)
    steward.lose_and_restore()
    assert list_lost_ids(steward) == []


def test_a_restore_from_an_archive_without_the_release_blocks_claims_again(steward: RestorableSteward) -> None:
    first, second = list_lost_ids(steward)
    release_all(steward)
    for each in steward.recovery.statements(StatementKind.CLAIM_RELEASE):
        steward.recovery.lose_envelope(each.envelope)
    steward.house.stand.time.pass_by(SECOND)
    done = steward.lose_and_restore(accept_missing=True)
    assert [each.receipt_id for each in done.blocked] == [first, second]


# The audit


def test_the_audit_lists_a_release_and_says_what_is_not_proved(steward: RestorableSteward) -> None:
    release_all(steward)
    report = audit_orders(steward.house)
    assert report.holds
    assert [(each.workload_id, each.operator) for each in report.claim_releases] == [
        ("one", "operator-tom"),
        ("two", "operator-tom"),
    ]
    assert any("rows of workload one were not published a second time" in each for each in report.not_proved)


def test_the_audit_finds_a_claim_that_was_released_in_the_ledger_without_a_release(steward: RestorableSteward) -> None:
    first, second = list_lost_ids(steward)
    view = steward.house.scene.release(steward.house.scene.claim_release(first))
    change = text("UPDATE lost_claims SET release_id = :release_id WHERE receipt_id = :receipt_id")
    steward.house.transact(lambda unit: unit.execute(change, {"release_id": view.release_id, "receipt_id": second}))
    report = audit_orders(steward.house)
    assert [each.code for each in report.findings] == ["audit_release_missing"]
    assert second in str(report.findings[0].expected)


def test_fsck_accepts_the_entry_of_a_release_and_finds_a_changed_one(steward: RestorableSteward) -> None:
    view = steward.house.scene.release()
    notary, archive = steward.house.notary, Path(str(steward.recovery.stand.config.archive))
    keys = [key.to_vkey() for key in log_keys(notary.epochs.book(), LOG_ORIGIN)]
    assert fsck(archive / "log", keys).size == notary.log.size() == view.log_index + 1
    sha256 = json.loads(entry_of(notary, view.log_index))["sha256"].encode()
    for path in (archive / "log" / "tile" / "entries").rglob("*"):
        if path.is_file() and sha256 in path.read_bytes():
            path.write_bytes(path.read_bytes().replace(sha256, fixed("other release").encode()))
    with pytest.raises(VerificationError) as caught:
        fsck(archive / "log", keys)
    assert caught.value.reason == "fsck_entry_hash"
