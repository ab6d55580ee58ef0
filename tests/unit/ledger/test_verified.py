"""The ledger's records of verified attempts and of their clean-up: a record cannot change after its proof."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pvdm.errors import ConflictError, InputError
from pvdm.ledger.record import proofs
from pvdm.ledger.record.proofs import ProofRecord
from pvdm.ledger.schema.work import DisposalOutcome
from pvdm.ledger.unit import Unit
from pvdm.ledger.work import attempts, disposals, verified
from pvdm.ledger.work.disposals import DisposalRecord
from pvdm.ledger.work.verified import FINDINGS_KEPT_MAX, StoredFinding, VerifiedRecord
from pvdm.model.statements.verdict import Outcome
from pvdm.model.states import AttemptState
from tests.support.ledger.rows import append_entry, attempt_in_state, hex64, newest_verified, nonce_of, open_workload

FINDING = StoredFinding("metadata", "record_count_lies", "it lies", "100", "99", "file:///a")


def new_record(unit: Unit) -> VerifiedRecord:
    open_workload(unit)
    attempt = attempt_in_state(unit, AttemptState.VERIFYING)
    return VerifiedRecord(nonce_of(1, 1), attempt.attempt_id, hex64("core"), "file:///m", hex64("m"), 2, 100)


def prove(unit: Unit, stored: VerifiedRecord) -> None:
    proof = ProofRecord(hex64("proof"), stored.attempt_id, stored.nonce, Outcome.PASS, "one", 1)
    proofs.put(unit, proof, b"envelope", log_index=append_entry(unit))


def test_a_verified_record_is_read_back(scratch: Unit) -> None:
    stored = new_record(scratch)
    verified.put(scratch, stored)
    assert verified.get(scratch, stored.nonce) == stored
    assert newest_verified(scratch, stored.attempt_id) == stored


def test_findings_are_kept_without_a_manifest(scratch: Unit) -> None:
    stored = replace(new_record(scratch), location=None, sha256=None, rows=None, findings=(FINDING, FINDING))
    verified.put(scratch, stored)
    assert verified.get(scratch, stored.nonce).findings == (FINDING, FINDING)


def test_an_unknown_nonce_is_refused(scratch: Unit) -> None:
    with pytest.raises(InputError) as caught:
        verified.get(scratch, "ab" * 16)
    assert caught.value.reason == "verified_unknown"


def test_before_the_proof_another_record_replaces_it(scratch: Unit) -> None:
    stored = new_record(scratch)
    verified.put(scratch, stored)
    verified.put(scratch, replace(stored, core_sha256=hex64("other"), rows=99))
    assert verified.get(scratch, stored.nonce).rows == 99


def test_after_the_proof_the_same_record_is_accepted_and_another_is_refused(scratch: Unit) -> None:
    stored = replace(new_record(scratch), findings=(FINDING,) * (FINDINGS_KEPT_MAX + 5))
    verified.put(scratch, stored)
    prove(scratch, stored)
    verified.put(scratch, stored)
    with pytest.raises(ConflictError) as caught:
        verified.put(scratch, replace(stored, core_sha256=hex64("other")))
    assert caught.value.reason == "verified_differs"


def test_findings_that_are_not_kept_are_counted(scratch: Unit) -> None:
    stored = replace(new_record(scratch), findings=(FINDING,) * (FINDINGS_KEPT_MAX + 5))
    verified.put(scratch, stored)
    found = verified.find_by_nonces(scratch, [stored.nonce, "ab" * 16])
    assert list(found) == [stored.nonce]
    assert (len(found[stored.nonce].findings), found[stored.nonce].findings_more) == (FINDINGS_KEPT_MAX, 5)


def test_texts_from_files_are_shortened_and_escaped(scratch: Unit) -> None:
    wild = StoredFinding("physical", "x", "m" * 5_000, "\0\ud800", None, "f" * 5_000)
    stored = replace(new_record(scratch), findings=(wild,))
    verified.put(scratch, stored)
    (found,) = verified.get(scratch, stored.nonce).findings
    assert len(found.message) == 1_000
    assert found.expected == "\\x00\\ud800"


def test_a_manifest_without_its_hash_cannot_be_stored(scratch: Unit) -> None:
    stored = new_record(scratch)
    with pytest.raises(ConflictError):
        verified.put(scratch, replace(stored, sha256=None))


def test_an_ended_attempt_is_listed_until_it_is_cleaned_up(scratch: Unit) -> None:
    open_workload(scratch)
    attempt = attempt_in_state(scratch, AttemptState.ROLLED_BACK)
    assert [each.attempt_id for each in disposals.list_undisposed(scratch)] == [attempt.attempt_id]
    disposal = DisposalRecord(attempt.attempt_id, DisposalOutcome.DELETED, 3, 1, "note")
    assert disposals.put_disposal(scratch, disposal) == disposal
    assert disposals.put_disposal(scratch, replace(disposal, removed=0)) == disposal
    assert disposals.list_undisposed(scratch) == []


def test_a_live_attempt_is_not_listed_for_clean_up(scratch: Unit) -> None:
    open_workload(scratch)
    attempt_in_state(scratch, AttemptState.VERIFYING)
    assert disposals.list_undisposed(scratch) == []


def test_an_attempt_that_staged_nothing_is_verified_without_a_snapshot(scratch: Unit) -> None:
    open_workload(scratch)
    attempt = attempt_in_state(scratch, AttemptState.STAGING)
    verifying = attempts.begin_verifying(
        scratch, attempt.attempt_id, nonce=nonce_of(1, 1), staged_snapshot_id=None, reason="staged"
    )
    assert (verifying.state, verifying.staged_snapshot_id) == (AttemptState.VERIFYING, None)
