"""Checks source attestations: statements that a registered attestor signs about a snapshot of its source."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pvdm.model.statements.attestation import SourceAttestation
from pvdm.trust.refusal import refused, require_equal
from pvdm.trust.root import TrustRoot
from pvdm.trust.verify import verify_statement


@dataclass(frozen=True, slots=True)
class RequiredAttestation:
    """What an attestation must say to answer the Steward's challenge."""

    attestors: Collection[str]  # the identities that may sign
    catalog: str
    table_uuid: str
    snapshot_id: int
    nonce: str
    epoch: int
    age_max_micros: int


def verify_attestation(data: bytes, root: TrustRoot, wanted: RequiredAttestation, *, now: int) -> None:
    """Raise unless a registered attestor signed the attestation recently for the pinned source snapshot."""
    found = verify_statement(data, root, SourceAttestation, now=now).predicate
    require_registered(found, wanted)
    source = f"{found.table.catalog} {found.table.uuid}"
    require_equal("attestation_wrong_source", f"{wanted.catalog} {wanted.table_uuid}", source)
    require_equal("attestation_wrong_snapshot", wanted.snapshot_id, found.snapshot_id)
    require_equal("attestation_wrong_nonce", wanted.nonce, found.nonce)
    require_equal("attestation_wrong_epoch", wanted.epoch, found.epoch)
    require_fresh(found, wanted, now)


def require_registered(found: SourceAttestation, wanted: RequiredAttestation) -> None:
    """Raise unless the attestor is one of those that may answer the challenge."""
    if found.attestor not in wanted.attestors:
        registered = ", ".join(sorted(wanted.attestors)) or "none"
        raise refused("attestor_not_registered", registered, found.attestor)


def require_fresh(found: SourceAttestation, wanted: RequiredAttestation, now: int) -> None:
    """Raise if the attestation is older than its challenge allows."""
    age = now - found.issued_at
    if age > wanted.age_max_micros:
        raise refused("attestation_stale", f"at most {wanted.age_max_micros} microseconds", age)
