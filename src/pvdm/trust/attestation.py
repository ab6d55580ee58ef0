"""Source attestations: the source domain's signed statement on the pinned snapshot, by a registered attestor."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pvdm.errors import Code
from pvdm.model.statements.attestation import SourceAttestation
from pvdm.trust.refusal import refused
from pvdm.trust.root import TrustRoot
from pvdm.trust.verify import Verified, verify_statement


@dataclass(frozen=True, slots=True)
class WantedAttestation:
    """The requirements of the contract and the pinned source for an attestation."""

    attestors: Collection[str]
    catalog: str
    table_uuid: str
    snapshot_id: int
    nonce: str
    epoch: int
    age_max_micros: int


def verify_attestation(
    data: bytes, root: TrustRoot, wanted: WantedAttestation, *, now: int
) -> Verified[SourceAttestation]:
    """The attestation, if a registered attestor signed it recently for the pinned source snapshot."""
    attestation = verify_statement(data, root, SourceAttestation, now=now)
    found = attestation.predicate
    require_registered(found, wanted)
    for what, expected, got in (
        ("source", f"{wanted.catalog} {wanted.table_uuid}", f"{found.table.catalog} {found.table.uuid}"),
        ("snapshot", wanted.snapshot_id, found.snapshot_id),
        ("nonce", wanted.nonce, found.nonce),
        ("epoch", wanted.epoch, found.epoch),
    ):
        require_same(f"attestation_wrong_{what}", expected, got)
    require_fresh(found, wanted, now)
    return attestation


def require_registered(found: SourceAttestation, wanted: WantedAttestation) -> None:
    """The contract names this attestor."""
    if found.attestor not in wanted.attestors:
        known = ", ".join(sorted(wanted.attestors)) or "none"
        raise refused(Code.ATTESTOR_NOT_REGISTERED, known, found.attestor)


def require_same(code: str, expected: object, got: object) -> None:
    """The attestation is for the pinned source snapshot, and answers the challenge of the shared key's epoch."""
    if expected != got:
        raise refused(code, expected, got)


def require_fresh(found: SourceAttestation, wanted: WantedAttestation, now: int) -> None:
    """The attestation is not older than the contract allows."""
    age = now - found.issued_at
    if age > wanted.age_max_micros:
        raise refused("attestation_stale", f"at most {wanted.age_max_micros} microseconds", age)
