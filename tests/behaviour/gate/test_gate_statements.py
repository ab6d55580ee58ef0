"""Gate checks 1 to 4, 6 and 11: for each an attack on a signed statement that only this check stops."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pvdm.errors import ConflictError
from pvdm.metadata.gate.gate import validate_then_commit
from pvdm.metadata.gate.proposal import Proposal
from pvdm.model import canonical_json
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.verdict import FailureClass, Verdict
from pvdm.trust.envelope import Envelope, parse_envelope, sign_envelope
from pvdm.trust.root import RootRole, TrustedKey
from pvdm.trust.statement import payload_of
from tests.support import fault
from tests.support.gate.attacks import (
    NEW,
    code_and_check,
    logged,
    proof_in,
    publish,
    refusal,
    resigned,
    signer,
    with_proof,
)
from tests.support.gate.protected_tables import HOUR, House
from tests.support.steward.notary import root_naming, signed_root
from tools.proof_kit import DAY, NOW, SIGNERS

# 1: envelopes


def with_trailing_newline(envelope: Envelope) -> bytes:
    return envelope.to_bytes() + b"\n"


def with_unknown_key(envelope: Envelope) -> bytes:
    return canonical_json.dump({**envelope.to_json(), "comment": "mine"})


def with_second_signature(envelope: Envelope) -> bytes:
    made = envelope.to_json()
    signatures: Any = made["signatures"]
    stranger = SIGNERS["rogue"]
    second = {"keyid": stranger.public.key_id, "sig": base64.b64encode(stranger.sign(envelope.message)).decode()}
    return canonical_json.dump({**made, "signatures": [*signatures, second]})


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (with_trailing_newline, "json_trailing_bytes"),
        (with_unknown_key, "document_key_unknown"),
        (with_second_signature, "envelope_signatures_many"),
    ],
)
def test_an_envelope_of_another_form_is_refused(orders: House, change: Callable[[Envelope], bytes], code: str) -> None:
    proposal = orders.proposal(orders.proved("w", NEW))
    other = change(parse_envelope(proposal.parts[0].proofs[0].envelope))
    changed = with_proof(proposal, logged(orders, other))
    error = refusal(orders, lambda: validate_then_commit(changed, orders.gate()))
    assert code_and_check(error) == (code, 1)


# 2: signatures


def test_a_proof_by_an_unknown_key_is_refused(orders: House) -> None:
    proposal = orders.proposal(orders.proved("w", NEW))
    forged = resigned(orders, proposal, payload_of(proof_in(proposal)), SIGNERS["rogue"])
    assert code_and_check(refusal(orders, lambda: validate_then_commit(forged, orders.gate()))) == ("key_unknown", 2)


def test_a_signature_over_another_payload_is_refused(orders: House) -> None:
    proposal = orders.proposal(orders.proved("w", NEW))
    proof = proof_in(proposal)
    other = replace(proof, notary=replace(proof.notary, expires_at=proof.notary.expires_at + 1))
    envelope = parse_envelope(proposal.parts[0].proofs[0].envelope)
    forged = with_proof(proposal, logged(orders, replace(envelope, payload=payload_of(other)).to_bytes()))
    assert code_and_check(refusal(orders, lambda: validate_then_commit(forged, orders.gate()))) == (
        "signature_invalid",
        2,
    )


def accept_next_root(
    house: House, change: Callable[[TrustedKey], TrustedKey], *more: TrustedKey, threshold: int = 1
) -> None:
    """Accept a next trust root, with the notary's key changed and more keys."""
    epoch = house.notary.epochs.book().active
    assert epoch is not None
    old = house.notary.trust.current()
    made = root_naming(epoch, version=2, previous=old.sha256)
    keys = [change(key) if RootRole.NOTARY in key.roles else key for key in made.keys]
    ordered = tuple(sorted([*keys, *more], key=lambda key: key.key_id))
    house.notary.trust.accept(
        signed_root(replace(made, keys=ordered, thresholds=replace(made.thresholds, notary=threshold)))
    )


def revoke(key: TrustedKey) -> TrustedKey:
    return replace(key, revoked_at=NOW)


def test_a_proof_by_a_revoked_key_is_refused(orders: House) -> None:
    proposal = orders.proposal(orders.proved("w", NEW))
    second = second_notary_key(orders)
    # A trust root needs a notary whose key is not revoked.
    accept_next_root(orders, revoke, second)
    assert code_and_check(refusal(orders, lambda: validate_then_commit(proposal, orders.gate()))) == ("key_revoked", 2)


def second_notary_key(house: House) -> TrustedKey:
    epoch = house.notary.keys.epoch_for(None)
    return TrustedKey(SIGNERS["notary-b"].public, "notary-b", (RootRole.NOTARY,), (epoch,), NOW - DAY, NOW + 300 * DAY)


def test_proofs_of_too_few_notaries_are_refused(orders: House) -> None:
    proposal = orders.proposal(orders.proved("w", NEW))
    accept_next_root(orders, lambda key: key, second_notary_key(orders), threshold=2)
    assert code_and_check(refusal(orders, lambda: validate_then_commit(proposal, orders.gate()))) == (
        "threshold_not_met",
        2,
    )


def with_second_proof(house: House, proposal: Proposal, core: ProofCore) -> Proposal:
    """The proposal with a second notary's proof about this core."""
    proof = proof_in(proposal)
    other = replace(proof, core=core, notary=replace(proof.notary, notary="notary-b"))
    envelope = sign_envelope(payload_of(other), SIGNERS["notary-b"]).to_bytes()
    return with_proof(proposal, *proposal.parts[0].proofs, logged(house, envelope))


def test_equal_proofs_of_two_notaries_are_published(orders: House) -> None:
    proposal = orders.proposal(orders.proved("w", NEW))
    accept_next_root(orders, lambda key: key, second_notary_key(orders), threshold=2)
    done = validate_then_commit(with_second_proof(orders, proposal, proof_in(proposal).core), orders.gate())
    assert (orders.rows(), len(done.shown.proof_ids)) == ([1, 2, 3, 4], 2)


def test_different_proofs_of_two_notaries_are_refused(orders: House) -> None:
    proposal = orders.proposal(orders.proved("w", NEW))
    accept_next_root(orders, lambda key: key, second_notary_key(orders), threshold=2)
    core = proof_in(proposal).core
    unequal = with_second_proof(orders, proposal, replace(core, checks=("row-counts", "staged-paths")))
    assert code_and_check(refusal(orders, lambda: validate_then_commit(unequal, orders.gate()))) == ("cores_differ", 2)


def test_two_proofs_of_one_notary_are_refused(orders: House) -> None:
    proposal = orders.proposal(orders.proved("w", NEW))
    accept_next_root(orders, lambda key: key, second_notary_key(orders), threshold=2)
    twice = with_proof(proposal, *proposal.parts[0].proofs, *proposal.parts[0].proofs)
    assert code_and_check(refusal(orders, lambda: validate_then_commit(twice, orders.gate()))) == ("notary_repeated", 2)


def test_a_proof_of_another_epoch_than_its_workloads_publishes_nothing(orders: House) -> None:
    proposal = orders.proposal(orders.proved("w", NEW))
    later = replace(proposal, workload=replace(proposal.workload, epoch=proposal.workload.epoch + 1))
    assert code_and_check(refusal(orders, lambda: validate_then_commit(later, orders.gate()))) == (
        "proof_wrong_epoch",
        2,
    )


def test_a_trust_root_that_comes_before_the_transaction_is_applied(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    second = second_notary_key(orders)
    with fault.armed("gate.after_files", fault.Call(lambda: accept_next_root(orders, revoke, second))):
        error = refusal(orders, lambda: publish(orders, attempt), ConflictError)
    assert code_and_check(error) == ("trust_root_moved", 2)
    assert refusal(orders, lambda: publish(orders, attempt)).reason == "key_revoked"


# 3: statements


@pytest.mark.parametrize(
    ("kind", "code"),
    [("urn:pvdm:proof:v2", "predicate_version_unknown"), ("urn:pvdm:draft:v1", "predicate_type_wrong")],
)
def test_other_statements_of_the_notary_are_refused_as_proofs(orders: House, kind: str, code: str) -> None:
    proposal = orders.proposal(orders.proved("w", NEW))
    payload = payload_of(proof_in(proposal)).replace(b"urn:pvdm:proof:v1", kind.encode())
    other = resigned(orders, proposal, payload)
    assert code_and_check(refusal(orders, lambda: validate_then_commit(other, orders.gate()))) == (code, 3)


# 4: the verdict


def test_a_fail_is_not_published(orders: House) -> None:
    failed = orders.proved("w", NEW, changed=lambda core: replace(core, verdict=Verdict.failed(FailureClass.MODIFIED)))
    assert code_and_check(refusal(orders, lambda: publish(orders, failed))) == ("verdict_not_pass", 4)


# 6: expiry


def test_an_expired_proof_publishes_nothing(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    orders.stand.time.pass_by(HOUR)
    assert code_and_check(refusal(orders, lambda: publish(orders, attempt))) == ("proof_expired", 6)


def test_a_proof_that_expires_before_the_transaction_publishes_nothing(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    with fault.armed("gate.after_files", fault.Call(lambda: orders.stand.time.pass_by(HOUR))):
        error = refusal(orders, lambda: publish(orders, attempt))
    assert code_and_check(error) == ("proof_expired", 6)


# 11: the log


def test_a_proof_that_is_in_no_log_publishes_nothing(orders: House) -> None:
    """The notary signed the proof, but its place in the log has another entry."""
    proposal = orders.proposal(orders.proved("w", NEW))
    proof = proof_in(proposal)
    other = replace(proof, notary=replace(proof.notary, expires_at=proof.notary.expires_at + 1))
    hidden = replace(proposal.parts[0].proofs[0], envelope=sign_envelope(payload_of(other), signer(orders)).to_bytes())
    error = refusal(orders, lambda: validate_then_commit(with_proof(proposal, hidden), orders.gate()))
    assert code_and_check(error) == ("statement_not_logged", 11)


@pytest.mark.parametrize("change", [{"index": 1}, {"index": 10_000}, {"at_micros": 5}])
def test_a_proof_with_a_wrong_place_in_the_log_is_refused(orders: House, change: dict[str, int]) -> None:
    proposal = orders.proposal(orders.proved("w", NEW))
    misplaced = replace(proposal.parts[0].proofs[0], **change)  # type: ignore[arg-type]
    error = refusal(orders, lambda: validate_then_commit(with_proof(proposal, misplaced), orders.gate()))
    assert code_and_check(error) == ("statement_not_logged", 11)
