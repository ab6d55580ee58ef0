"""Proofs: one for each nonce, shown to their domain, checked offline; keys are released after the attempt has ended."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pvdm.errors import PvdmError
from pvdm.ledger.record import events
from pvdm.ledger.work import attempts
from pvdm.model.projection import ProjectionName
from pvdm.model.role import Role
from pvdm.model.statements.core import Profile, ProofCore
from pvdm.model.statements.proof import Storage
from pvdm.model.statements.verdict import FailureClass, Outcome
from pvdm.model.states import AttemptState
from pvdm.steward.notary import log_keys
from pvdm.steward.record.proofs import RecordedProof
from pvdm.trust.bundle import check_bundle
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.log.proof import KnownLog
from pvdm.trust.root import TrustRoot
from pvdm.trust.verify import require_epoch, verify_threshold
from tests.support.ledger.databases import memory_folder
from tests.support.steward.notary import (
    LOG_ORIGIN,
    NOTARY,
    Stand,
    attempt_token,
    commitments,
    context_of,
    core_of,
    failed,
    root_naming,
    signed_root,
    stand_at,
)
from tools.proof_kit import SECOND, fixed


@pytest.fixture
def stand() -> Iterator[Stand]:
    with memory_folder() as folder, stand_at(folder) as made:
        yield made


def reason_of(call: Callable[[], object]) -> str:
    with pytest.raises(PvdmError) as caught:
        call()
    return caught.value.reason


def record(stand: Stand, core: ProofCore, *, epoch: int = 1, **changes: Any) -> RecordedProof:
    """As `Stand.record`, for a workload of that epoch."""
    options: dict[str, Any] = {"context": context_of(core, epoch), "lifetime_micros": 3_600 * SECOND} | changes
    passed = core.verdict.passed
    return stand.notary.proofs.record(core, commitments(passed=passed), storage=Storage.OPEN, **options)


def end(stand: Stand, core: ProofCore, to: AttemptState = AttemptState.VERIFICATION_FAILED) -> None:
    stand.notary.ledger.transact(
        lambda unit: attempts.end(unit, core.attempt.attempt_id, to, reason="over"),
        at_micros=stand.notary.clock.now_micros(),
    )


def count(stand: Stand) -> tuple[int, int]:
    """How many proofs are listed, and how many entries the log has."""
    return len(stand.notary.proofs.list_proofs(stand.grant())), stand.notary.log.size()


def test_a_recorded_proof_verifies_under_the_trust_root(stand: Stand) -> None:
    recorded = stand.proved()
    root = stand.notary.trust.current()
    proof = verify_threshold([recorded.envelope], root, threshold=1, now=stand.time.wall)
    assert (proof.core, proof.proof_ids) == (core_of("one"), (recorded.statement_id,))


def test_a_proof_has_the_notarys_name_epoch_isolation_storage_and_lifetime(stand: Stand) -> None:
    recorded = stand.proved()
    root = stand.notary.trust.current()
    (statement,) = verify_threshold([recorded.envelope], root, threshold=1, now=stand.time.wall).statements
    part = statement.predicate.notary
    assert (part.notary, part.epoch, part.isolation, part.storage) == (NOTARY, 1, stand.config.isolation, Storage.OPEN)
    assert part.expires_at - part.issued_at == 3_600 * SECOND


def test_recording_a_proof_again_returns_it_and_adds_no_entry(stand: Stand) -> None:
    first = stand.proved()
    before = count(stand)
    stand.time.pass_by(SECOND)
    assert (stand.record(core_of("one")), count(stand)) == (first, before)


def test_recording_a_proof_again_returns_it_even_after_the_attempt_has_ended(stand: Stand) -> None:
    first = stand.proved()
    end(stand, core_of("one"), AttemptState.ROLLED_BACK)
    assert stand.record(core_of("one")) == first


def test_a_proof_that_several_threads_record_at_once_is_stored_once(stand: Stand) -> None:
    core = stand.verifying()
    barrier = threading.Barrier(4)
    answers: list[object] = []

    def record_one() -> None:
        barrier.wait()
        try:
            answers.append(stand.record(core))
        except PvdmError as error:
            answers.append(error.reason)

    threads = [threading.Thread(target=record_one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [answers[0]] * 4
    assert count(stand) == (1, 4)


def test_another_core_for_the_same_nonce_is_refused(stand: Stand) -> None:
    stand.proved()
    assert reason_of(lambda: stand.record(failed(core_of("one")))) == "proof_exists"


def test_a_proof_of_an_attempt_that_is_not_being_verified_is_refused(stand: Stand) -> None:
    core = stand.verifying()
    end(stand, core, AttemptState.ROLLED_BACK)
    assert reason_of(lambda: stand.record(core)) == "attempt_moved"
    assert count(stand) == (0, 3)


def test_a_proof_under_the_nonce_of_another_attempt_is_refused(stand: Stand) -> None:
    core, other = stand.verifying("one"), stand.verifying("two")
    stolen = replace(core, attempt=replace(core.attempt, nonce=other.attempt.nonce))
    assert reason_of(lambda: stand.record(stolen)) == "nonce_of_other_attempt"


def test_a_proof_under_an_unknown_nonce_is_refused(stand: Stand) -> None:
    core = stand.verifying()
    invented = replace(core, attempt=replace(core.attempt, nonce=fixed("invented", 16)))
    assert reason_of(lambda: stand.record(invented)) == "nonce_of_other_attempt"


def test_a_proof_under_the_attempts_aborted_nonce_is_refused(stand: Stand) -> None:
    core = stand.verifying()
    first = replace(core, attempt=replace(core.attempt, nonce=fixed("first nonce one", 16)))
    assert reason_of(lambda: stand.record(first)) == "nonce_of_other_attempt"


@pytest.mark.parametrize("change", [{"workload_id": "work-two"}, {"chunk_id": "2026-11-15"}, {"number": 2}])
def test_a_proof_that_names_another_workload_chunk_or_number_is_refused(stand: Stand, change: dict[str, Any]) -> None:
    core = stand.verifying("one")
    stand.verifying("two")
    other = replace(core, attempt=replace(core.attempt, **change))
    assert reason_of(lambda: record(stand, other)) == "proof_of_other_attempt"


@pytest.mark.parametrize("field", ["epoch", "workload_id", "chunk_id", "attempt_id", "nonce"])
def test_a_proof_with_the_key_context_of_another_attempt_is_refused(stand: Stand, field: str) -> None:
    core = stand.verifying()
    others: dict[str, Any] = {"epoch": 2, "attempt_id": fixed("x", 16), "nonce": fixed("y", 16)}
    context = replace(context_of(core, 1), **{field: others.get(field, "x")})
    assert reason_of(lambda: record(stand, core, context=context)) == "context_differs"


def test_a_fail_proof_is_kept_like_any_other(stand: Stand) -> None:
    recorded = stand.proved(passed=False)
    view = stand.notary.proofs.get(recorded.statement_id, stand.grant())
    assert (view.verdict, view.classes, view.log_index) == (Outcome.FAIL, (FailureClass.MODIFIED,), recorded.log_index)
    assert stand.notary.proofs.envelope(recorded.statement_id, stand.grant()) == recorded.envelope


def test_a_view_has_the_facts_of_its_proof(stand: Stand) -> None:
    recorded = stand.proved()
    view = stand.notary.proofs.get(recorded.statement_id, stand.grant())
    core = core_of("one")
    assert (view.proof_id, view.workload_id, view.chunk_id) == (
        recorded.statement_id,
        core.attempt.workload_id,
        core.attempt.chunk_id,
    )
    assert (view.attempt_id, view.nonce, view.notary, view.epoch) == (
        core.attempt.attempt_id,
        core.attempt.nonce,
        NOTARY,
        1,
    )
    assert (view.rows_intent, view.rows_staged, view.profile) == (48_210, 48_210, "A")
    assert (view.issued_at, view.expires_at) == (stand.time.wall, stand.time.wall + 3_600 * SECOND)
    assert view.override_id is None


def test_a_listing_shows_the_own_domain_newest_first(stand: Stand) -> None:
    one, two = stand.proved("one", domain="sales"), stand.proved("two", domain="sales")
    risk = stand.proved("three", domain="risk")
    assert list_proof_ids(stand, "sales") == [two.statement_id, one.statement_id]
    assert list_proof_ids(stand, "risk") == [risk.statement_id]
    assert list_proof_ids(stand, "*") == [risk.statement_id, two.statement_id, one.statement_id]


def list_proof_ids(stand: Stand, domain: str, **options: Any) -> list[str]:
    grant = stand.grant(Role.PUBLISHER, domain, "someone")
    return [view.proof_id for view in stand.notary.proofs.list_proofs(grant, **options)]


def test_proofs_can_be_listed_by_workload_attempt_and_position(stand: Stand) -> None:
    one, two = stand.proved("one"), stand.proved("two")
    assert list_proof_ids(stand, "*", workload_id="work-one") == [one.statement_id]
    assert list_proof_ids(stand, "*", attempt_id=core_of("two").attempt.attempt_id) == [two.statement_id]
    assert list_proof_ids(stand, "*", after=two.log_index) == [one.statement_id]
    assert list_proof_ids(stand, "*", count=1) == [two.statement_id]


@pytest.mark.parametrize("method", ["get", "envelope", "bundle"])
def test_a_proof_of_another_domain_is_refused(stand: Stand, method: str) -> None:
    recorded = stand.proved(domain="sales")
    read = getattr(stand.notary.proofs, method)
    assert reason_of(lambda: read(recorded.statement_id, stand.grant(Role.PUBLISHER, "risk"))) == "domain_wrong"


@pytest.mark.parametrize("method", ["get", "envelope", "bundle"])
def test_an_unknown_proof_is_an_error(stand: Stand, method: str) -> None:
    read = getattr(stand.notary.proofs, method)
    assert reason_of(lambda: read(fixed("no proof"), stand.grant())) == "proof_unknown"


def test_a_token_for_one_attempt_sees_the_proofs_of_that_attempt_only(stand: Stand) -> None:
    one, two = stand.proved("one"), stand.proved("two")
    own = core_of("one").attempt.attempt_id
    _, grant = attempt_token(stand.notary.access, stand.grant(Role.PRODUCER, "sales"), own)
    assert [view.proof_id for view in stand.notary.proofs.list_proofs(grant)] == [one.statement_id]
    assert reason_of(lambda: stand.notary.proofs.get(two.statement_id, grant)) == "token_of_other_attempt"
    other = core_of("two").attempt.attempt_id
    assert reason_of(lambda: stand.notary.proofs.list_proofs(grant, attempt_id=other)) == "token_of_other_attempt"


@pytest.mark.parametrize(
    ("profile", "role", "rows"),
    [
        (Profile.T, Role.PRODUCER, None),
        (Profile.T, Role.AUDITOR, 48_210),
        (Profile.A, Role.PRODUCER, 48_210),
        (Profile.O, Role.PRODUCER, 48_210),
    ],
    ids=lambda value: getattr(value, "value", str(value)),
)
def test_under_profile_t_a_producer_sees_no_row_counts(
    stand: Stand, profile: Profile, role: Role, rows: int | None
) -> None:
    core = stand.verifying()
    recorded = stand.record(replace(core, method=replace(core.method, profile=profile)))
    grant = stand.grant(role, "sales", "someone")
    (view,) = stand.notary.proofs.list_proofs(grant)
    assert view == stand.notary.proofs.get(recorded.statement_id, grant)
    assert (view.rows_intent, view.rows_staged, view.profile) == (rows, rows, profile.value)


def known_log(stand: Stand) -> KnownLog:
    return KnownLog(LOG_ORIGIN, tuple(log_keys(stand.notary.epochs.book(), LOG_ORIGIN)))


def test_a_bundle_is_checked_offline(stand: Stand) -> None:
    recorded = stand.proved("one")
    stand.proved("two")
    bundle = stand.notary.proofs.bundle(recorded.statement_id, stand.grant())
    root = stand.notary.trust.current()
    checked = check_bundle(bundle, root, known_log(stand), threshold=1, now=stand.time.wall)
    assert checked.proof.proof_ids == (recorded.statement_id,)
    assert checked.logged_at == (stand.time.wall,)


def test_a_bundle_from_another_log_is_refused(stand: Stand, tmp_path: Path) -> None:
    bundle = stand.notary.proofs.bundle(stand.proved().statement_id, stand.grant())
    with stand_at(tmp_path / "other", own_keys=True) as other:
        root = stand.notary.trust.current()
        reason = reason_of(lambda: check_bundle(bundle, root, known_log(other), threshold=1, now=stand.time.wall))
    assert reason == "note_key_unknown"


def test_the_keys_of_an_ended_attempt_are_those_derived_directly(stand: Stand) -> None:
    recorded = stand.proved(passed=False)
    end(stand, core_of("one"))
    context, keys = stand.notary.proofs.open(recorded.statement_id, stand.grant(Role.AUDITOR), reason="audit 12")
    assert context == context_of(core_of("one"), 1)
    service = stand.notary.keys
    assert [name for name, _ in keys.row_hash] == [name for name, _ in keys.commitment] == list(ProjectionName)
    for name, row_hash in keys.row_hash:
        assert hmac.compare_digest(row_hash.reveal(), service.row_hash_key(context, name).reveal())
    for name, commitment in keys.commitment:
        assert hmac.compare_digest(commitment.reveal(), service.commitment_key(context, name).reveal())


def test_opening_a_proof_is_recorded_in_the_step_log(stand: Stand) -> None:
    recorded = stand.proved(passed=False)
    end(stand, core_of("one"))
    grant = stand.grant(Role.AUDITOR, "*", "auditor-ann")
    stand.notary.proofs.open(recorded.statement_id, grant, reason="audit 12")
    with stand.notary.ledger.read() as unit:
        last = events.history(unit, "proofs", recorded.statement_id)[-1]
    assert (last.kind, last.new) == (
        "proof_opened",
        {"by": "auditor-ann", "token_id": grant.token_id, "reason": "audit 12"},
    )


def test_the_keys_of_an_attempt_that_has_not_ended_are_not_released(stand: Stand) -> None:
    recorded = stand.proved()
    open_proof = stand.notary.proofs.open
    assert reason_of(lambda: open_proof(recorded.statement_id, stand.grant(), reason="early")) == "attempt_not_closed"
    with stand.notary.ledger.read() as unit:
        assert [event.kind for event in events.history(unit, "proofs", recorded.statement_id)] == ["insert"]


@pytest.mark.parametrize("reason", ["", "  "])
def test_opening_a_proof_needs_a_reason(stand: Stand, reason: str) -> None:
    recorded = stand.proved(passed=False)
    end(stand, core_of("one"))
    open_proof = stand.notary.proofs.open
    assert reason_of(lambda: open_proof(recorded.statement_id, stand.grant(), reason=reason)) == "reason_missing"


def test_another_domains_proof_is_not_opened(stand: Stand) -> None:
    recorded = stand.proved(passed=False, domain="sales")
    end(stand, core_of("one"))
    grant = stand.grant(Role.AUDITOR, "risk")
    assert reason_of(lambda: stand.notary.proofs.open(recorded.statement_id, grant, reason="audit")) == "domain_wrong"


def test_a_proof_without_a_digest_has_nothing_to_open(stand: Stand) -> None:
    core = stand.verifying()
    recorded = record(stand, failed(core), context=None)
    end(stand, core)
    open_proof = stand.notary.proofs.open
    assert reason_of(lambda: open_proof(recorded.statement_id, stand.grant(), reason="audit")) == "proof_without_digest"


def rotate(stand: Stand) -> TrustRoot:
    """Make epoch 2 ACTIVE and epoch 1 RETIRED; returns the trust root, which names both."""
    notary = stand.notary
    notary.epochs.create("rotation")
    book, current = notary.epochs.book(), notary.trust.current()
    root = root_naming(*book.epochs, version=2, previous=current.sha256)
    notary.trust.accept(signed_root(root))
    notary.epochs.activate(2, "rotation")
    return root


def test_a_workload_stays_on_its_epoch_through_a_rotation(stand: Stand) -> None:
    core = stand.verifying()
    root = rotate(stand)
    recorded = record(stand, core, epoch=1)
    proof = verify_threshold([recorded.envelope], root, threshold=1, now=stand.time.wall)
    (statement,) = proof.statements
    assert (statement.predicate.notary.epoch, statement.key.public) == (
        1,
        stand.notary.keys.public_key(KeyRole.SIGNING, 1),
    )
    require_epoch(proof, 1)


def test_a_workload_that_opens_after_the_rotation_is_of_the_new_epoch(stand: Stand) -> None:
    rotate(stand)
    recorded = record(stand, stand.verifying("two"), epoch=2)
    assert stand.notary.proofs.get(recorded.statement_id, stand.grant()).epoch == 2


def test_a_proof_of_a_revoked_epoch_is_not_recorded(stand: Stand) -> None:
    core = stand.verifying()
    rotate(stand)
    stand.notary.epochs.revoke(1, "leaked")
    before = stand.notary.log.size()
    assert reason_of(lambda: record(stand, core, epoch=1)) == "epoch_revoked"
    assert stand.notary.log.size() == before


def test_a_proof_of_an_earlier_epoch_does_not_count_for_a_later_one(stand: Stand) -> None:
    recorded = stand.proved()
    root = rotate(stand)
    proof = verify_threshold([recorded.envelope], root, threshold=1, now=stand.time.wall)
    assert reason_of(lambda: require_epoch(proof, 2)) == "proof_wrong_epoch"


def test_an_unused_proof_is_refused_after_its_key_was_revoked(stand: Stand) -> None:
    recorded = stand.proved()
    root = rotate(stand)
    stand.notary.epochs.revoke(1, "leaked")
    old = stand.notary.keys.public_key(KeyRole.SIGNING, 1).key_id
    keys = tuple(replace(key, revoked_at=stand.time.wall) if key.key_id == old else key for key in root.keys)
    revoking = replace(root, version=3, previous_sha256=root.sha256, keys=keys)
    stand.notary.trust.accept(signed_root(revoking))
    current = stand.notary.trust.current()
    envelopes = [recorded.envelope]
    assert reason_of(lambda: verify_threshold(envelopes, current, threshold=1, now=stand.time.wall)) == "key_revoked"
