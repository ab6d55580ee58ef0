"""The audit of claim releases: each is signed, logged, and about a publication of the table, and none is missing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pvdm.metadata.audit.evidence import LoggedStatement
from pvdm.model.statements.claim_release import ClaimRelease
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.table import TableRef
from pvdm.model.statements.verdict import FailureClass, Verdict
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.verify import sign_statement
from tests.support.audit.crafted_history import TABLE, History, change_statements, codes
from tools.proof_kit import SIGNERS, fixed

OTHER_TABLE = TableRef(TABLE.catalog, "11111111-2222-4333-8444-555555555555", TABLE.name)


@dataclass(frozen=True)
class PublishedHistory:
    """A history with one publication, whose receipt and proof a test releases."""

    history: History
    receipt_id: str
    proof_id: str
    workload_id: str

    def release(self, **facts: Any) -> ClaimRelease:
        found = self.history.claim_release(self.workload_id, self.receipt_id, self.proof_id)
        return replace(found, **facts)

    def audit_codes(self, *, released: tuple[str, ...] | None = None) -> set[str]:
        """Audit with evidence that lists `released` as the released claims (default: the receipt's claim).

        Returns the finding codes.
        """
        claims = (self.receipt_id,) if released is None else released
        return codes(self.history.audit(evidence=replace(self.history.evidence(), released_claims=claims)))


@pytest.fixture
def case(tmp_path: Path) -> PublishedHistory:
    history = History(tmp_path)
    history.protect()
    history.publish(history.data_file("first"))
    line = history.audit().snapshots[-1]
    (proof_id,) = line.proof_ids
    return PublishedHistory(history, str(line.receipt_id), proof_id, str(line.workload_id))


def test_a_release_of_a_receipt_is_listed_and_is_no_finding(case: PublishedHistory) -> None:
    release_id = case.history.say(case.release(), "operator-tom")
    assert case.audit_codes() == set()
    (entry,) = case.history.audit().claim_releases
    assert (entry.statement_id, entry.publication_id, entry.workload_id) == (
        release_id,
        case.receipt_id,
        case.workload_id,
    )
    assert (entry.operator, entry.reason, entry.restore_id) == (
        "operator-tom",
        "compared, day by day",
        fixed("restore"),
    )


def test_a_release_of_a_proof_without_a_receipt_is_listed_and_is_no_finding(case: PublishedHistory) -> None:
    proof_id = release_second(case, case.history.core([case.history.data_file("second")]))
    assert case.audit_codes(released=(proof_id,)) == set()


def release_second(case: PublishedHistory, core: ProofCore, *, signer: str = "notary-a") -> str:
    """Release the claim of a second publication, which has this proof and no receipt. Returns the proof's id."""
    proof_id = case.history.prove(core, signer)
    release = case.release(receipt_id=None, proof_ids=(proof_id,), workload_id=core.attempt.workload_id)
    case.history.say(release, "operator-tom")
    return proof_id


def test_a_release_of_a_proof_that_no_notary_signed_is_found(case: PublishedHistory) -> None:
    proof_id = release_second(case, case.history.core([case.history.data_file("second")]), signer="rogue")
    assert case.audit_codes(released=(proof_id,)) == {"key_unknown", "audit_release_missing"}


def test_a_release_of_a_proof_that_is_not_in_the_log_is_found(case: PublishedHistory) -> None:
    proof_id = release_second(case, case.history.core([case.history.data_file("second")]))

    def change(each: LoggedStatement) -> LoggedStatement:
        return replace(each, hashes=()) if parse_envelope(each.envelope).payload_sha256 == proof_id else each

    evidence = change_statements(replace(case.history.evidence(), released_claims=(proof_id,)), change)
    assert codes(case.history.audit(evidence=evidence)) == {"inclusion_length", "audit_release_missing"}


def test_a_release_of_a_fail_without_a_receipt_is_found(case: PublishedHistory) -> None:
    passed = case.history.core([case.history.data_file("second")])
    proof_id = release_second(case, replace(passed, verdict=Verdict.failed(FailureClass.MISSING)))
    assert case.audit_codes(released=(proof_id,)) == {"verdict_not_pass", "audit_release_missing"}


def test_a_release_without_a_receipt_of_a_proof_that_has_one_is_found(case: PublishedHistory) -> None:
    case.history.say(case.release(receipt_id=None), "operator-tom")
    assert case.audit_codes(released=(case.proof_id,)) == {"audit_release_wrong_publication", "audit_release_missing"}


def test_a_released_claim_without_a_release_is_found(case: PublishedHistory) -> None:
    assert case.audit_codes() == {"audit_release_missing"}


def test_a_release_of_one_claim_does_not_cover_another_released_claim(case: PublishedHistory) -> None:
    case.history.say(case.release(), "operator-tom")
    assert case.audit_codes(released=tuple(sorted([case.receipt_id, fixed("other receipt")]))) == {
        "audit_release_missing"
    }


WRONG_FACTS: dict[str, tuple[dict[str, Any], str]] = {
    "another table": ({"table": OTHER_TABLE}, "audit_release_wrong_table"),
    "another workload": ({"workload_id": "work-of-another"}, "audit_release_wrong_publication"),
    "other proofs": ({"proof_ids": (fixed("other proof"),)}, "audit_release_wrong_publication"),
    "an unknown receipt": ({"receipt_id": fixed("other receipt")}, "audit_release_wrong_publication"),
    "an unknown proof": (
        {"receipt_id": None, "proof_ids": (fixed("other proof"),)},
        "audit_proof_missing",
    ),
}


@pytest.mark.parametrize("wrong", sorted(WRONG_FACTS))
def test_a_release_with_wrong_facts_is_found_and_releases_nothing(case: PublishedHistory, wrong: str) -> None:
    facts, code = WRONG_FACTS[wrong]
    case.history.say(case.release(**facts), "operator-tom")
    assert case.audit_codes() == {code, "audit_release_missing"}
    assert case.history.audit().claim_releases == ()


@pytest.mark.parametrize(
    ("signer", "code"),
    [("notary-a", "approval_signed_by_steward"), ("operator-ruth", "key_is_break_glass"), ("rogue", "key_unknown")],
)
def test_a_release_that_no_operator_signed_is_found(case: PublishedHistory, signer: str, code: str) -> None:
    case.history.say(case.release(operator=signer), signer)
    assert case.audit_codes() == {code, "audit_release_missing"}


def test_a_release_that_was_changed_after_it_was_logged_is_found(case: PublishedHistory) -> None:
    case.history.say(case.release(), "operator-tom")
    other = sign_statement(case.release(reason="another reason"), SIGNERS["operator-tom"]).to_bytes()
    evidence = change_statements(
        replace(case.history.evidence(), released_claims=(case.receipt_id,)),
        lambda each: replace(each, envelope=other) if each.kind is StatementKind.CLAIM_RELEASE else each,
    )
    assert codes(case.history.audit(evidence=evidence)) == {"inclusion_root", "audit_release_missing"}
