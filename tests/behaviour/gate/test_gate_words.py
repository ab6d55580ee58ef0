"""Gate checks 1 to 4, 6 and 11, each met by an attack on the signed words that it alone stops."""

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


def spaced(envelope: Envelope) -> bytes:
    return envelope.to_bytes() + b"\n"


def commented(envelope: Envelope) -> bytes:
    return canonical_json.dump({**envelope.to_json(), "comment": "mine"})


def signed_twice(envelope: Envelope) -> bytes:
    made = envelope.to_json()
    signatures: Any = made["signatures"]
    stranger = SIGNERS["rogue"]
    second = {"keyid": stranger.public.key_id, "sig": base64.b64encode(stranger.sign(envelope.message)).decode()}
    return canonical_json.dump({**made, "signatures": [*signatures, second]})


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (spaced, "json_trailing_bytes"),
        (commented, "document_key_unknown"),
        (signed_twice, "envelope_signatures_many"),
    ],
)
def test_an_envelope_that_is_spelled_otherwise_is_no_proof(
    orders: House, change: Callable[[Envelope], bytes], code: str
) -> None:
    proposal = orders.proposal(orders.proved("w", NEW))
    other = change(parse_envelope(proposal.parts[0].proofs[0].envelope))
    changed = with_proof(proposal, logged(orders, other))
    error = refusal(orders, lambda: validate_then_commit(changed, orders.gate()))
    assert code_and_check(error) == (code, 1)


# 2: signatures


def test_a_stranger_signs_no_proof(orders: House) -> None:
    proposal = orders.proposal(orders.proved("w", NEW))
    forged = resigned(orders, proposal, payload_of(proof_in(proposal)), SIGNERS["rogue"])
    assert code_and_check(refusal(orders, lambda: validate_then_commit(forged, orders.gate()))) == ("key_unknown", 2)


def test_a_signature_is_over_exactly_these_words(orders: House) -> None:
    proposal = orders.proposal(orders.proved("w", NEW))
    proof = proof_in(proposal)
    other = replace(proof, notary=replace(proof.notary, expires_at=proof.notary.expires_at + 1))
    envelope = parse_envelope(proposal.parts[0].proofs[0].envelope)
    forged = with_proof(proposal, logged(orders, replace(envelope, payload=payload_of(other)).to_bytes()))
    assert code_and_check(refusal(orders, lambda: validate_then_commit(forged, orders.gate()))) == (
        "signature_invalid",
        2,
    )


def another_root(
    house: House, change: Callable[[TrustedKey], TrustedKey], *more: TrustedKey, threshold: int = 1
) -> None:
    """The next trust root, with the notary's key changed."""
    epoch = house.notary.epochs.book().active
    assert epoch is not None
    old = house.notary.trust.current()
    made = root_naming(epoch, version=2, previous=old.sha256)
    keys = [change(key) if RootRole.NOTARY in key.roles else key for key in made.keys]
    ordered = tuple(sorted([*keys, *more], key=lambda key: key.key_id))
    house.notary.trust.accept(
        signed_root(replace(made, keys=ordered, thresholds=replace(made.thresholds, notary=threshold)))
    )


def revoked(key: TrustedKey) -> TrustedKey:
    return replace(key, revoked_at=NOW)


def test_a_revoked_notary_publishes_nothing_more(orders: House) -> None:
    proposal = orders.proposal(orders.proved("w", NEW))
    second = second_notary(orders)
    # Without a notary that may sign no root stands.
    another_root(orders, revoked, second)
    assert code_and_check(refusal(orders, lambda: validate_then_commit(proposal, orders.gate()))) == ("key_revoked", 2)


def second_notary(house: House) -> TrustedKey:
    epoch = house.notary.keys.epoch_for(None)
    return TrustedKey(SIGNERS["notary-b"].public, "notary-b", (RootRole.NOTARY,), (epoch,), NOW - DAY, NOW + 300 * DAY)


def test_too_few_notaries_publish_nothing(orders: House) -> None:
    proposal = orders.proposal(orders.proved("w", NEW))
    another_root(orders, lambda key: key, second_notary(orders), threshold=2)
    assert code_and_check(refusal(orders, lambda: validate_then_commit(proposal, orders.gate()))) == (
        "threshold_not_met",
        2,
    )


def two(house: House, proposal: Proposal, core: ProofCore) -> Proposal:
    """The proposal with a second notary's proof about this core."""
    proof = proof_in(proposal)
    other = replace(proof, core=core, notary=replace(proof.notary, notary="notary-b"))
    envelope = sign_envelope(payload_of(other), SIGNERS["notary-b"]).to_bytes()
    return with_proof(proposal, *proposal.parts[0].proofs, logged(house, envelope))


def test_two_notaries_that_agree_publish(orders: House) -> None:
    proposal = orders.proposal(orders.proved("w", NEW))
    another_root(orders, lambda key: key, second_notary(orders), threshold=2)
    done = validate_then_commit(two(orders, proposal, proof_in(proposal).core), orders.gate())
    assert (orders.rows(), len(done.shown.proof_ids)) == ([1, 2, 3, 4], 2)


def test_two_notaries_that_disagree_publish_nothing(orders: House) -> None:
    proposal = orders.proposal(orders.proved("w", NEW))
    another_root(orders, lambda key: key, second_notary(orders), threshold=2)
    core = proof_in(proposal).core
    odd = two(orders, proposal, replace(core, checks=("row-counts", "staged-paths")))
    assert code_and_check(refusal(orders, lambda: validate_then_commit(odd, orders.gate()))) == ("cores_differ", 2)


def test_one_notary_does_not_count_twice(orders: House) -> None:
    proposal = orders.proposal(orders.proved("w", NEW))
    another_root(orders, lambda key: key, second_notary(orders), threshold=2)
    twice = with_proof(proposal, *proposal.parts[0].proofs, *proposal.parts[0].proofs)
    assert code_and_check(refusal(orders, lambda: validate_then_commit(twice, orders.gate()))) == ("notary_repeated", 2)


def test_a_proof_of_another_epoch_than_its_workloads_publishes_nothing(orders: House) -> None:
    proposal = orders.proposal(orders.proved("w", NEW))
    later = replace(proposal, workload=replace(proposal.workload, epoch=proposal.workload.epoch + 1))
    assert code_and_check(refusal(orders, lambda: validate_then_commit(later, orders.gate()))) == (
        "proof_wrong_epoch",
        2,
    )


def test_a_root_that_comes_before_the_transaction_is_judged_by(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    second = second_notary(orders)
    with fault.armed("gate.after_files", fault.Call(lambda: another_root(orders, revoked, second))):
        error = refusal(orders, lambda: publish(orders, attempt), ConflictError)
    assert code_and_check(error) == ("trust_root_moved", 2)
    assert refusal(orders, lambda: publish(orders, attempt)).reason == "key_revoked"


# 3: statements


@pytest.mark.parametrize(
    ("kind", "code"),
    [("urn:pvdm:proof:v2", "predicate_version_unknown"), ("urn:pvdm:draft:v1", "predicate_type_wrong")],
)
def test_the_notarys_other_words_are_no_proofs(orders: House, kind: str, code: str) -> None:
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
    """Signed by the notary, with a place in the log that holds something else."""
    proposal = orders.proposal(orders.proved("w", NEW))
    proof = proof_in(proposal)
    other = replace(proof, notary=replace(proof.notary, expires_at=proof.notary.expires_at + 1))
    hidden = replace(proposal.parts[0].proofs[0], envelope=sign_envelope(payload_of(other), signer(orders)).to_bytes())
    error = refusal(orders, lambda: validate_then_commit(with_proof(proposal, hidden), orders.gate()))
    assert code_and_check(error) == ("statement_not_logged", 11)


@pytest.mark.parametrize("change", [{"index": 1}, {"index": 10_000}, {"at_micros": 5}])
def test_a_place_in_the_log_is_not_taken_on_trust(orders: House, change: dict[str, int]) -> None:
    proposal = orders.proposal(orders.proved("w", NEW))
    elsewhere_ = replace(proposal.parts[0].proofs[0], **change)  # type: ignore[arg-type]
    error = refusal(orders, lambda: validate_then_commit(with_proof(proposal, elsewhere_), orders.gate()))
    assert code_and_check(error) == ("statement_not_logged", 11)
