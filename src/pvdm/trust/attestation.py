"""Source attestations: the source domain's own word, from a registered attestor, fresh, on the pinned snapshot."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pvdm.digest.partial import Partial
from pvdm.errors import VerificationError
from pvdm.model.secret import CommitmentKey
from pvdm.model.statements.attestation import SourceAttestation
from pvdm.trust.commitment import require_opens
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
        raise refused("attestor_not_registered", "this attestor is not registered for the source", known, said.attestor)


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


def require_attested(said: SourceAttestation, key: CommitmentKey, seen: Partial) -> None:
    """What the Steward read of the source is what the source attested: rows, kind of digest, and the digest itself."""
    require_attested_rows(said, seen)
    require_attested_kind(said, seen)
    try:
        require_opens(said.commitment, key, seen)
    except VerificationError as error:
        raise refused(
            "attestation_commitment_differs", "the source attested other rows", error.expected, error.got
        ) from None


def require_attested_rows(said: SourceAttestation, seen: Partial) -> None:
    """The authenticated row count."""
    if said.row_count != seen.rows:
        raise refused("attestation_rows_differ", "the source attested another row count", said.row_count, seen.rows)


def require_attested_kind(said: SourceAttestation, seen: Partial) -> None:
    """Digests of different projections, schemas, modes or constructions are not compared."""
    attested = (said.projection.value, said.schema_fingerprint, said.mode, said.construction)
    ours = (seen.projection.value, seen.fingerprint.hex(), seen.mode.value, seen.construction.value)
    if attested != ours:
        raise refused(
            "attestation_kind_differs", "the source attested another kind of digest", " ".join(ours), " ".join(attested)
        )
