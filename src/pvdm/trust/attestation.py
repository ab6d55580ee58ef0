"""Source attestations: the source domain's own word, from a registered attestor, fresh, on the pinned snapshot."""

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
    """What the contract and the pinned source ask of an attestation."""

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
    """The attestation, once it is a registered attestor's fresh word on the pinned source snapshot."""
    attestation = verify_statement(data, root, SourceAttestation, now=now)
    said = attestation.predicate
    require_registered(said, wanted)
    require_source(said, wanted)
    require_snapshot(said, wanted)
    require_challenge(said, wanted)
    require_shared_epoch(said, wanted)
    require_fresh(said, wanted, now)
    return attestation


def require_registered(said: SourceAttestation, wanted: WantedAttestation) -> None:
    """The contract names who may attest; another attestor's word does not count for it."""
    if said.attestor not in wanted.attestors:
        known = ", ".join(sorted(wanted.attestors)) or "nobody"
        raise refused(
            Code.ATTESTOR_NOT_REGISTERED, "this attestor is not registered for the source", known, said.attestor
        )


def require_source(said: SourceAttestation, wanted: WantedAttestation) -> None:
    """The source table, by catalog and UUID."""
    if (said.table.catalog, said.table.uuid) != (wanted.catalog, wanted.table_uuid):
        raise refused(
            "attestation_wrong_source", "the attestation is for another table", wanted.table_uuid, said.table.uuid
        )


def require_snapshot(said: SourceAttestation, wanted: WantedAttestation) -> None:
    """The snapshot that the workload pinned."""
    if said.snapshot_id != wanted.snapshot_id:
        raise refused(
            "attestation_wrong_snapshot",
            "the attestation is for another snapshot",
            wanted.snapshot_id,
            said.snapshot_id,
        )


def require_challenge(said: SourceAttestation, wanted: WantedAttestation) -> None:
    """The nonce under which the shared key was derived."""
    if said.nonce != wanted.nonce:
        raise refused("attestation_wrong_nonce", "the attestation answers another challenge", wanted.nonce, said.nonce)


def require_shared_epoch(said: SourceAttestation, wanted: WantedAttestation) -> None:
    """The epoch of the shared key."""
    if said.epoch != wanted.epoch:
        raise refused("attestation_wrong_epoch", "the attestation is of another epoch", wanted.epoch, said.epoch)


def require_fresh(said: SourceAttestation, wanted: WantedAttestation, now: int) -> None:
    """Not older than the contract allows."""
    if now - said.issued_at > wanted.age_max_micros:
        raise refused(
            "attestation_stale",
            "the attestation is too old",
            f"at most {wanted.age_max_micros} microseconds",
            now - said.issued_at,
        )
