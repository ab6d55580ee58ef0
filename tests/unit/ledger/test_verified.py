"""What verification found stays in the ledger as it was when its proof was signed."""

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

FOUND = StoredFinding("metadata", "record_count_lies", "it lies", "100", "99", "file:///a")


def record(unit: Unit) -> VerifiedRecord:
    open_workload(unit)
    attempt = attempt_in_state(unit, AttemptState.VERIFYING)
    return VerifiedRecord(nonce_of(1, 1), attempt.attempt_id, hex64("core"), "file:///m", hex64("m"), 2, 100)


def prove(unit: Unit, said: VerifiedRecord) -> None:
    proof = ProofRecord(hex64("proof"), said.attempt_id, said.nonce, Outcome.PASS, "one", 1)
    proofs.put(unit, proof, b"envelope", log_index=append_entry(unit))


def test_a_verified_record_is_read_back(scratch: Unit) -> None:
    said = record(scratch)
    verified.put(scratch, said)
    assert verified.get(scratch, said.nonce) == said
    assert newest_verified(scratch, said.attempt_id) == said


def test_findings_are_kept_without_a_manifest(scratch: Unit) -> None:
    said = replace(record(scratch), location=None, sha256=None, rows=None, findings=(FOUND, FOUND))
    verified.put(scratch, said)
    assert verified.get(scratch, said.nonce).findings == (FOUND, FOUND)


def test_nothing_is_found_under_an_unknown_nonce(scratch: Unit) -> None:
    with pytest.raises(InputError) as caught:
        verified.get(scratch, "ab" * 16)
    assert caught.value.reason == "verified_unknown"


def test_until_a_proof_is_signed_it_may_be_found_again_otherwise(scratch: Unit) -> None:
    said = record(scratch)
    verified.put(scratch, said)
    verified.put(scratch, replace(said, core_sha256=hex64("other"), rows=99))
    assert verified.get(scratch, said.nonce).rows == 99


def test_after_the_proof_the_same_changes_nothing_and_another_is_refused(scratch: Unit) -> None:
    said = replace(record(scratch), findings=(FOUND,) * (FINDINGS_KEPT_MAX + 5))
    verified.put(scratch, said)
    prove(scratch, said)
    verified.put(scratch, said)
    with pytest.raises(ConflictError) as caught:
        verified.put(scratch, replace(said, core_sha256=hex64("other")))
    assert caught.value.reason == "verified_differs"


def test_findings_that_are_not_kept_are_counted(scratch: Unit) -> None:
    said = replace(record(scratch), findings=(FOUND,) * (FINDINGS_KEPT_MAX + 5))
    verified.put(scratch, said)
    found = verified.of_nonces(scratch, [said.nonce, "ab" * 16])
    assert list(found) == [said.nonce]
    assert (len(found[said.nonce].findings), found[said.nonce].findings_more) == (FINDINGS_KEPT_MAX, 5)


def test_texts_from_files_are_shortened_and_escaped(scratch: Unit) -> None:
    wild = StoredFinding("physical", "x", "m" * 5_000, "\0\ud800", None, "f" * 5_000)
    said = replace(record(scratch), findings=(wild,))
    verified.put(scratch, said)
    (found,) = verified.get(scratch, said.nonce).findings
    assert len(found.message) == 1_000
    assert found.expected == "\\x00\\ud800"


def test_a_manifest_without_its_hash_cannot_be_stored(scratch: Unit) -> None:
    said = record(scratch)
    with pytest.raises(ConflictError):
        verified.put(scratch, replace(said, sha256=None))


def test_an_ended_attempt_waits_until_it_is_cleaned_up(scratch: Unit) -> None:
    open_workload(scratch)
    attempt = attempt_in_state(scratch, AttemptState.ROLLED_BACK)
    assert [each.attempt_id for each in disposals.list_undisposed(scratch)] == [attempt.attempt_id]
    done = DisposalRecord(attempt.attempt_id, DisposalOutcome.DELETED, 3, 1, "note")
    assert disposals.put_disposal(scratch, done) == done
    assert disposals.put_disposal(scratch, replace(done, removed=0)) == done
    assert disposals.list_undisposed(scratch) == []


def test_a_live_attempt_waits_for_no_cleaning(scratch: Unit) -> None:
    open_workload(scratch)
    attempt_in_state(scratch, AttemptState.VERIFYING)
    assert disposals.list_undisposed(scratch) == []


def test_an_attempt_that_staged_nothing_is_verified_without_a_snapshot(scratch: Unit) -> None:
    open_workload(scratch)
    attempt = attempt_in_state(scratch, AttemptState.STAGING)
    moved = attempts.begin_verifying(
        scratch, attempt.attempt_id, nonce=nonce_of(1, 1), staged_snapshot_id=None, reason="staged"
    )
    assert (moved.state, moved.staged_snapshot_id) == (AttemptState.VERIFYING, None)
