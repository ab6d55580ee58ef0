"""What the ledger stores for the Steward: tokens, overrides, challenges, attestations, epoch books, key handles."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import text

from pvdm.errors import InputError, NotAllowedError, PvdmError, VerificationError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.record import proofs, receipts, restores, shared_settings, statements, tokens
from pvdm.ledger.record.proofs import ProofRecord
from pvdm.ledger.record.receipts import ReceiptRecord
from pvdm.ledger.record.statements import AttestationRecord
from pvdm.ledger.record.tokens import BearerToken, Grant
from pvdm.ledger.schema.work import NoncePurpose
from pvdm.ledger.work import nonces, workloads
from pvdm.model.role import Role
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.verdict import Outcome
from pvdm.model.states import AttemptState, HandleState, NonceState
from tests.support.ledger.databases import NOW
from tests.support.ledger.rows import (
    ATTESTATION,
    CHALLENGE,
    HANDLE,
    append_entry,
    attempt_in_state,
    hex32,
    hex64,
    nonce_of,
    open_workload,
    override_of,
    pinned_workload,
    workload_opening,
)


@pytest.fixture
def unit(scratch: Unit) -> Unit:
    """A writing unit with one workload of chunks a and b; nothing of it is committed."""
    open_workload(scratch)
    return scratch


def reason_of(call: Callable[[], object]) -> str:
    with pytest.raises(PvdmError) as caught:
        call()
    return caught.value.reason


def issue_token(unit: Unit, *, until: int = 100, parent: Grant | None = None) -> tuple[BearerToken, Grant]:
    token = BearerToken.draw()
    return token, tokens.issue(
        unit,
        Role.PRODUCER,
        secret_sha256=token.sha256,
        domain="sales",
        name="etl",
        expires_micros=NOW + until,
        parent_id=None if parent is None else parent.token_id,
    )


def test_a_replaced_token_is_valid_until_its_end(unit: Unit) -> None:
    (token, grant), (_, new) = issue_token(unit), issue_token(unit)
    tokens.replace(unit, grant.token_id, new.token_id, from_micros=NOW + 10)
    assert tokens.check(unit, token, now_micros=NOW + 9).token_id == grant.token_id
    assert reason_of(lambda: tokens.check(unit, token, now_micros=NOW + 10)) == "token_rotated"


def test_the_last_token_of_a_holder_ends_when_the_successor_ends(unit: Unit) -> None:
    (_, grant), (_, new) = issue_token(unit, until=100), issue_token(unit, until=50)
    tokens.replace(unit, grant.token_id, new.token_id, from_micros=NOW + 10)
    assert [each.end_micros for each in tokens.list_ends(unit, now_micros=NOW)] == [NOW + 50]


def test_an_earlier_end_of_a_replaced_token_stays_and_the_successor_is_the_newest(unit: Unit) -> None:
    (_, grant), (_, new), (_, newer) = issue_token(unit), issue_token(unit), issue_token(unit)
    tokens.replace(unit, grant.token_id, new.token_id, from_micros=NOW + 10)
    tokens.replace(unit, grant.token_id, newer.token_id, from_micros=NOW + 20)
    found = tokens.get(unit, grant.token_id)
    assert (found.replaced_micros, found.successor_id) == (NOW + 10, newer.token_id)


def test_a_replaced_token_can_be_revoked_before_its_end(unit: Unit) -> None:
    (token, grant), (_, new) = issue_token(unit), issue_token(unit)
    tokens.replace(unit, grant.token_id, new.token_id, from_micros=NOW + 10)
    assert tokens.revoke(unit, grant.token_id).revoked_micros == NOW
    assert reason_of(lambda: tokens.check(unit, token, now_micros=NOW)) == "token_revoked"


def test_a_token_that_is_replaced_in_the_past_ends_now(unit: Unit) -> None:
    (token, grant), (_, new) = issue_token(unit), issue_token(unit)
    tokens.replace(unit, grant.token_id, new.token_id, from_micros=NOW - 10)
    assert tokens.get(unit, grant.token_id).replaced_micros == NOW
    # A clock that lags behind does not make the token valid again.
    assert reason_of(lambda: tokens.check(unit, token, now_micros=NOW - 10)) == "token_rotated"


@pytest.mark.parametrize("end", ["NULL", str(NOW + 11)], ids=["none", "later"])
def test_the_database_refuses_a_later_end_of_a_replaced_token(unit: Unit, end: str) -> None:
    (_, grant), (_, new) = issue_token(unit), issue_token(unit)
    tokens.replace(unit, grant.token_id, new.token_id, from_micros=NOW + 10)
    with pytest.raises(NotAllowedError, match="stays replaced"):
        unit.execute(text(f"UPDATE tokens SET replaced_micros = {end} WHERE token_id = '{grant.token_id}'"))


def test_the_database_refuses_a_later_revocation(unit: Unit) -> None:
    _, grant = issue_token(unit)
    tokens.revoke(unit, grant.token_id)
    with pytest.raises(NotAllowedError, match="stays revoked"):
        unit.execute(text(f"UPDATE tokens SET revoked_micros = {NOW + 11}"))


def test_revoking_an_unknown_token_is_an_error(unit: Unit) -> None:
    assert reason_of(lambda: tokens.revoke(unit, hex32("nobody's"))) == "token_unknown"


def test_a_token_ends_with_its_parents_revocation(unit: Unit) -> None:
    _, parent = issue_token(unit)
    token, _ = issue_token(unit, parent=parent)
    tokens.revoke(unit, parent.token_id)
    assert reason_of(lambda: tokens.check(unit, token, now_micros=NOW)) == "token_revoked"


def test_a_token_ends_with_its_parents_expiry(unit: Unit) -> None:
    _, parent = issue_token(unit, until=10)
    token, _ = issue_token(unit, until=100, parent=parent)
    assert reason_of(lambda: tokens.check(unit, token, now_micros=NOW + 10)) == "token_expired"


def test_a_token_ends_with_the_revocation_of_its_parents_parent(unit: Unit) -> None:
    _, first = issue_token(unit)
    _, second = issue_token(unit, parent=first)
    token, _ = issue_token(unit, parent=second)
    tokens.revoke(unit, first.token_id)
    assert reason_of(lambda: tokens.check(unit, token, now_micros=NOW)) == "token_revoked"


def test_a_token_whose_parent_is_valid_has_its_own_grant(unit: Unit) -> None:
    _, parent = issue_token(unit)
    token, grant = issue_token(unit, parent=parent)
    assert (tokens.check(unit, token, now_micros=NOW), grant.parent_id) == (grant, parent.token_id)


def test_a_token_of_a_parent_that_was_never_issued_is_refused(unit: Unit) -> None:
    never_issued = Grant(hex32("made up"), Role.PRODUCER, "sales", "etl", NOW + 10)
    assert reason_of(lambda: issue_token(unit, parent=never_issued)) == "ledger_constraint"


def put_fail_proof(unit: Unit) -> ProofRecord:
    attempt_id = attempt_in_state(unit, AttemptState.VERIFYING).attempt_id
    record = ProofRecord(hex64("proof"), attempt_id, nonce_of(1, 1), Outcome.FAIL, "notary-1", NOW + 60)
    proofs.put(unit, record, b"envelope", log_index=append_entry(unit))
    return record


def test_an_override_comes_back_with_its_nonce_reserved_and_its_domain(unit: Unit) -> None:
    override = override_of(put_fail_proof(unit))
    proofs.put_override(unit, override, b"override", log_index=append_entry(unit))
    found = proofs.find_override(unit, override.override_id)
    assert found is not None
    assert (found.record, found.state, found.domain) == (override, NonceState.RESERVED, "sales")


def test_an_override_shows_that_it_was_used(unit: Unit) -> None:
    override = override_of(put_fail_proof(unit))
    proofs.put_override(unit, override, b"override", log_index=append_entry(unit))
    nonces.commit(unit, override.nonce, snapshot_id="900")
    assert [found.state for found in proofs.list_newest_overrides(unit)] == [NonceState.COMMITTED]


def test_a_second_override_under_the_same_nonce_is_refused(unit: Unit) -> None:
    record = put_fail_proof(unit)
    override = override_of(record)
    proofs.put_override(unit, override, b"override", log_index=append_entry(unit))
    second = replace(override_of(record, "second"), nonce=override.nonce)
    assert (
        reason_of(lambda: proofs.put_override(unit, second, b"second", log_index=append_entry(unit))) == "nonce_taken"
    )


def test_an_override_of_a_proof_that_is_not_there_is_refused(unit: Unit) -> None:
    override = replace(override_of(put_fail_proof(unit)), fail_proof_id=hex64("no proof"))
    code = reason_of(lambda: proofs.put_override(unit, override, b"override", log_index=append_entry(unit)))
    assert code == "ledger_constraint"


def test_overrides_are_listed_by_domain(unit: Unit) -> None:
    override = override_of(put_fail_proof(unit))
    proofs.put_override(unit, override, b"override", log_index=append_entry(unit))
    assert len(proofs.list_newest_overrides(unit, domain="sales")) == 1
    assert proofs.list_newest_overrides(unit, domain="risk") == []


def test_the_override_of_a_proof_is_found_and_other_proofs_have_none(unit: Unit) -> None:
    record = put_fail_proof(unit)
    proofs.put_override(unit, override_of(record), b"override", log_index=append_entry(unit))
    found = proofs.find_overrides_of_proofs(unit, [record.proof_id, hex64("other")])
    assert found == {record.proof_id: override_of(record).override_id}


def test_adding_the_same_challenge_again_returns_the_first(unit: Unit) -> None:
    statements.add_challenge(unit, CHALLENGE)
    again = replace(CHALLENGE, epoch=CHALLENGE.epoch + 1, expires_micros=CHALLENGE.expires_micros + 1)
    assert statements.add_challenge(unit, again) == CHALLENGE


@pytest.mark.parametrize("change", [{"attestor": "source-other"}, {"request": '{"snapshot_id":"78"}'}])
def test_a_challenge_for_something_else_under_the_same_nonce_is_refused(unit: Unit, change: dict[str, str]) -> None:
    statements.add_challenge(unit, CHALLENGE)
    changed = replace(CHALLENGE, **change)  # type: ignore[arg-type]
    assert reason_of(lambda: statements.add_challenge(unit, changed)) == "nonce_taken"


def test_a_challenge_under_a_nonce_of_another_purpose_is_refused(unit: Unit) -> None:
    nonces.reserve(unit, CHALLENGE.nonce, purpose=NoncePurpose.BREAK_GLASS, holder="operator-ruth")
    assert reason_of(lambda: statements.add_challenge(unit, CHALLENGE)) == "nonce_taken"


def test_two_that_add_the_same_challenge_at_once_both_get_the_first(ledger: Ledger) -> None:
    barrier = threading.Barrier(2)
    found: list[object] = []

    def ask() -> None:
        barrier.wait()
        try:
            found.append(ledger.transact(lambda unit: statements.add_challenge(unit, CHALLENGE), at_micros=NOW))
        except PvdmError as error:
            found.append(error.reason)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [CHALLENGE, CHALLENGE]


def store_attestation(unit: Unit, record: AttestationRecord = ATTESTATION) -> None:
    envelope = b"attestation " + record.attestation_id.encode()
    statements.put_attestation(unit, record, envelope, log_index=append_entry(unit))


def test_an_attestation_commits_the_nonce_of_its_challenge(unit: Unit) -> None:
    statements.add_challenge(unit, CHALLENGE)
    store_attestation(unit)
    nonce = nonces.find(unit, CHALLENGE.nonce)
    assert nonce is not None
    assert (nonce.state, nonce.purpose) == (NonceState.COMMITTED, NoncePurpose.SOURCE_ATTESTATION)


def test_a_challenge_is_answered_once(unit: Unit) -> None:
    statements.add_challenge(unit, CHALLENGE)
    store_attestation(unit)
    second = replace(ATTESTATION, attestation_id=hex64("second"))
    assert reason_of(lambda: store_attestation(unit, second)) == "nonce_not_reserved"


def test_an_attestation_without_a_challenge_is_refused(unit: Unit) -> None:
    assert reason_of(lambda: store_attestation(unit)) == "nonce_unknown"


def test_an_attestation_under_a_nonce_of_another_purpose_is_refused(unit: Unit) -> None:
    nonces.reserve(unit, CHALLENGE.nonce, purpose=NoncePurpose.BREAK_GLASS, holder="operator-ruth")
    assert reason_of(lambda: store_attestation(unit)) == "ledger_constraint"


def test_an_unknown_challenge_is_an_error(unit: Unit) -> None:
    assert reason_of(lambda: statements.get_challenge(unit, CHALLENGE.nonce)) == "challenge_unknown"


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({}, 1),
        ({"attestor": "source-payments", "table_uuid": "u-1", "snapshot_id": "77"}, 1),
        ({"attestor": "source-other"}, 0),
        ({"table_uuid": "u-2"}, 0),
        ({"snapshot_id": "78"}, 0),
    ],
)
def test_attestations_are_found_by_attestor_and_source(unit: Unit, asked: dict[str, str], count: int) -> None:
    statements.add_challenge(unit, CHALLENGE)
    store_attestation(unit)
    assert statements.list_newest_attestations(unit, **asked) == [ATTESTATION] * count
    assert statements.find_attestation(unit, ATTESTATION.attestation_id) == ATTESTATION


def test_there_is_no_epoch_book_at_first(unit: Unit) -> None:
    assert shared_settings.find_newest_epoch_book(unit) is None


def test_the_epoch_book_of_the_highest_revision_is_the_newest(unit: Unit) -> None:
    assert (shared_settings.add_epoch_book(unit, 1, b"one"), shared_settings.add_epoch_book(unit, 2, b"two")) == (
        True,
        True,
    )
    assert shared_settings.find_newest_epoch_book(unit) == b"two"


@pytest.mark.parametrize("revision", [1, 3])
def test_an_epoch_book_that_does_not_follow_the_newest_is_not_kept(unit: Unit, revision: int) -> None:
    shared_settings.add_epoch_book(unit, 1, b"one")
    assert (shared_settings.add_epoch_book(unit, revision, b"other"), shared_settings.find_newest_epoch_book(unit)) == (
        False,
        b"one",
    )


def test_of_four_concurrent_epoch_books_of_one_revision_one_is_kept(ledger: Ledger) -> None:
    barrier = threading.Barrier(4)
    found: list[bool] = []

    def add(name: int) -> None:
        barrier.wait()
        found.append(ledger.transact(lambda unit: shared_settings.add_epoch_book(unit, 1, b"%d" % name), at_micros=NOW))

    threads = [threading.Thread(target=add, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [False, False, False, True]


def test_the_second_of_two_concurrent_epoch_books_is_not_kept(ledger: Ledger) -> None:
    found: list[object] = []

    def second() -> None:
        try:
            found.append(
                ledger.transact(lambda unit: shared_settings.add_epoch_book(unit, 1, b"second"), at_micros=NOW)
            )
        except PvdmError as error:
            found.append(error.reason)

    thread = threading.Thread(target=second)
    with ledger.write(at_micros=NOW) as unit:
        shared_settings.add_epoch_book(unit, 1, b"first")
        thread.start()
        thread.join(timeout=0.5)
        unit.commit()
    thread.join()
    assert found == [False]


def test_a_handle_comes_back_by_its_hash_and_by_its_job(unit: Unit) -> None:
    shared_settings.add_handle(unit, HANDLE)
    assert (
        shared_settings.find_handle(unit, HANDLE.handle_sha256)
        == shared_settings.find_handle_of_job(unit, "job-1")
        == HANDLE
    )


def test_a_second_handle_of_a_job_is_refused(unit: Unit) -> None:
    shared_settings.add_handle(unit, HANDLE)
    second = replace(HANDLE, handle_sha256=hex64("second"))
    assert reason_of(lambda: shared_settings.add_handle(unit, second)) == "handle_job_taken"


def test_a_handle_that_was_never_issued_is_not_found(unit: Unit) -> None:
    assert (
        shared_settings.find_handle(unit, hex64("x"))
        is shared_settings.find_handle_of_job(unit, "x")
        is shared_settings.lock_handle(unit, hex64("x"))
        is None
    )


def test_a_handle_changes_its_state_and_gains_workers(unit: Unit) -> None:
    shared_settings.add_handle(unit, HANDLE)
    frozen = replace(HANDLE, state=HandleState.FROZEN, context="{}")
    shared_settings.change_handle(unit, HANDLE, frozen)
    redeemed = replace(frozen, workers=frozenset({"a", "b"}))
    shared_settings.change_handle(unit, frozen, redeemed)
    assert shared_settings.lock_handle(unit, HANDLE.handle_sha256) == redeemed


def test_a_workers_redemption_is_not_taken_back(unit: Unit) -> None:
    shared_settings.add_handle(unit, HANDLE)
    redeemed = replace(HANDLE, workers=frozenset({"a"}))
    shared_settings.change_handle(unit, HANDLE, redeemed)
    assert reason_of(lambda: shared_settings.change_handle(unit, redeemed, HANDLE)) == "handle_changed"


def test_the_ids_of_statements_of_one_kind_come_in_the_logs_order(unit: Unit) -> None:
    record = put_fail_proof(unit)
    for name in ("first", "second"):
        proofs.put_override(unit, override_of(record, name), name.encode(), log_index=append_entry(unit))
    wanted = tuple(override_of(record, name).override_id for name in ("first", "second"))
    assert statements.list_ids_by_kind(unit, StatementKind.BREAK_GLASS) == wanted


def test_proofs_are_paged_back_from_the_newest_by_domain(unit: Unit) -> None:
    record = put_fail_proof(unit)
    assert proofs.page(unit, domain="sales") == proofs.page(unit, domain=None) == [(record, 0)]
    assert proofs.page(unit, domain="risk") == proofs.page(unit, domain=None, before_index=0) == []
    assert proofs.get_domain(unit, record.proof_id) == "sales"


def test_a_notarys_proof_for_a_nonce_is_found(unit: Unit) -> None:
    record = put_fail_proof(unit)
    assert proofs.find_by_notary(unit, record.nonce, "notary-1") == record
    assert proofs.find_by_notary(unit, record.nonce, "notary-2") is None
    assert proofs.list_by_nonce(unit, record.nonce) == [record]


def test_the_domain_of_a_proof_that_is_not_there_is_an_error(unit: Unit) -> None:
    with pytest.raises(InputError) as caught:
        proofs.get_domain(unit, hex64("x"))
    assert caught.value.reason == "proof_unknown"


def test_a_workload_that_was_published_after_the_backup_is_not_opened_again(unit: Unit) -> None:
    receipt = ReceiptRecord(hex64("receipt"), "lost-1", "t-1", "900")
    receipts.put(unit, receipt, b"receipt", log_index=append_entry(unit))
    restores.put_used_chunk(unit, "lost-1", "a", snapshot_id="900", receipt_id=hex64("receipt"))
    with pytest.raises(VerificationError) as caught:
        workloads.open_once(unit, workload_opening("lost-1"), pinned_workload())
    assert caught.value.reason == "workload_spent"
