"""Source attestations: gives a source keys for one snapshot, and accepts its signed row count and commitment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pvdm.api.proofs import AttestationView, Challenge, ProjectionKeys
from pvdm.digest.plan import Mode
from pvdm.errors import Code, ConflictError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import statements
from pvdm.ledger.record.statements import AttestationRecord, ChallengeRecord, Statement
from pvdm.ledger.record.tokens import Grant
from pvdm.model import canonical_json
from pvdm.model.fields import MICROS_PER_SECOND
from pvdm.model.statements.attestation import SourceAttestation
from pvdm.model.statements.kind import StatementKind
from pvdm.steward.record.recorder import Document, Recorder
from pvdm.steward.record.roots import TrustRoots
from pvdm.trust.attestation import RequiredAttestation, verify_attestation
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.keys.context import Fingerprints, SourceContext
from pvdm.trust.keys.service import KeyService
from pvdm.trust.root import RootRole, TrustRoot, require_root_current
from pvdm.trust.statement import read_statement, read_unchecked

CHALLENGE_SECONDS: Final = 86_400  # one day


@dataclass(frozen=True, slots=True)
class ChallengeRequest:
    """The snapshot that the source wants to attest, and how it will be digested; the source draws the nonce."""

    nonce: str
    catalog: str
    table_uuid: str
    snapshot_id: int
    mode: Mode
    fingerprints: Fingerprints


@dataclass(eq=False)
class Attestations:
    """Issues challenges (keys for one snapshot, valid for a day) and accepts the attestations that answer them."""

    ledger: Ledger
    clock: LedgerClock
    keys: KeyService
    recorder: Recorder
    trust: TrustRoots

    def challenge(self, grant: Grant, request: ChallengeRequest) -> Challenge:
        """Issue keys for one snapshot to an attestor of the trust root; a repeated request returns the same keys."""
        now = self.clock.now_micros()
        require_registered(self.trust.current(), grant.name, now)
        epoch = self.keys.epoch_for(None)
        table_uuid, snapshot_id, nonce = request.table_uuid, request.snapshot_id, request.nonce
        context = SourceContext(
            epoch, request.catalog, table_uuid, snapshot_id, grant.name, nonce, request.mode, request.fingerprints
        )
        expires_micros = now + CHALLENGE_SECONDS * MICROS_PER_SECOND
        record = ChallengeRecord(request.nonce, grant.name, epoch, _encode_request(context), expires_micros)
        stored = self.ledger.transact(lambda unit: statements.add_challenge(unit, record), at_micros=now)
        require_in_time(stored, now)
        context = replace(context, epoch=stored.epoch)
        return Challenge(
            nonce=stored.nonce,
            epoch=stored.epoch,
            expires_at=stored.expires_micros,
            keys={
                name: ProjectionKeys(self.keys.row_hash_key(context, name), self.keys.commitment_key(context, name))
                for name, _ in context.fingerprints
            },
        )

    def submit(self, envelope: bytes, grant: Grant) -> AttestationView:
        """Verify an attestation, use up its nonce, and log it. A repeated call changes nothing."""
        parsed = parse_envelope(envelope)
        attestation = read_statement(parsed.payload, SourceAttestation)
        if attestation.attestor != grant.name:
            raise Code.PERMISSION_DENIED(reason="attestor_differs", expected=grant.name, got=attestation.attestor)
        with self.ledger.read() as unit:
            challenge = statements.get_challenge(unit, attestation.nonce)
        earlier = self._find_view(parsed.payload_sha256)
        if earlier is not None:
            return earlier
        now = self.clock.now_micros()
        require_in_time(challenge, now)
        self.keys.epoch_for(challenge.epoch)  # raises if the epoch was revoked
        _verify(envelope, attestation, self.trust.current(), challenge, now)
        table, snapshot_id = attestation.table, str(attestation.snapshot_id)
        record = AttestationRecord(
            parsed.payload_sha256, attestation.nonce, attestation.attestor, table.catalog, table.uuid, snapshot_id
        )

        def work(unit: Unit, log_indexes: Sequence[int]) -> None:
            statements.put_attestation(unit, record, envelope, log_index=log_indexes[0])

        try:
            self.recorder.record([Document(StatementKind.SOURCE_ATTESTATION, record.attestation_id, envelope)], work)
        except ConflictError:
            # A concurrent call may have stored the same attestation first. Anything else is a conflict.
            earlier = self._find_view(record.attestation_id)
            if earlier is None:
                raise
            return earlier
        with self.ledger.read() as unit:
            return _make_view(statements.get(unit, record.attestation_id))

    def list_attestations(
        self, *, attestor: str | None = None, table_uuid: str | None = None, snapshot_id: int | None = None
    ) -> list[AttestationView]:
        """The newest attestations; if attestor, table or snapshot are given, only the attestations that match them."""
        snapshot = None if snapshot_id is None else str(snapshot_id)
        with self.ledger.read() as unit:
            found = statements.list_newest_attestations(
                unit, attestor=attestor, table_uuid=table_uuid, snapshot_id=snapshot
            )
            return [_make_view(statements.get(unit, record.attestation_id)) for record in found]

    def _find_view(self, attestation_id: str) -> AttestationView | None:
        with self.ledger.read() as unit:
            if statements.find_attestation(unit, attestation_id) is None:
                return None
            stored = statements.get(unit, attestation_id)
        self.recorder.cover()
        return _make_view(stored)


def _make_view(statement: Statement) -> AttestationView:
    attestation = read_unchecked(statement.envelope, SourceAttestation)
    return AttestationView(
        statement_id=statement.statement_id,
        attestor=attestation.attestor,
        catalog=attestation.table.catalog,
        table_uuid=attestation.table.uuid,
        snapshot_id=attestation.snapshot_id,
        row_count=attestation.row_count,
        projection=attestation.projection,
        issued_at=attestation.issued_at,
        log_index=statement.log_index,
    )


def require_registered(root: TrustRoot, attestor: str, now: int) -> None:
    """Require that the current trust root names a valid attestor key of this identity."""
    require_root_current(root, now)
    keys = (key for key in root.keys if key.identity == attestor and RootRole.ATTESTOR in key.roles)
    valid = (key for key in keys if key.valid_from <= now < key.valid_until)
    if all(key.revoked_at is not None and key.revoked_at <= now for key in valid):  # true also if `valid` is empty
        raise Code.PERMISSION_DENIED(reason="attestor_unregistered", got=attestor)


def require_in_time(challenge: ChallengeRecord, now: int) -> None:
    """Refuse an expired challenge."""
    if challenge.expires_micros <= now:
        raise Code.CHALLENGE_EXPIRED(expected=f"before {challenge.expires_micros}", got=str(now))


def _verify(
    envelope: bytes, attestation: SourceAttestation, root: TrustRoot, challenge: ChallengeRecord, now: int
) -> None:
    """Verify that an attestation is signed, and answers this challenge with the same mode, projection and schema."""
    match canonical_json.parse(challenge.request.encode(), size_max_bytes=1_048_576):
        case {
            "catalog": str(catalog),
            "table_uuid": str(table_uuid),
            "snapshot_id": str(snapshot_id),
            "mode": str(mode),
            "fingerprints": Mapping() as fingerprints,
        }:
            fingerprint = fingerprints.get(attestation.projection.value)
        case _:
            raise AssertionError("the stored request lacks its source, mode or fingerprints")
    wanted = RequiredAttestation(
        attestors=(challenge.attestor,),
        catalog=catalog,
        table_uuid=table_uuid,
        snapshot_id=int(snapshot_id),
        nonce=challenge.nonce,
        epoch=challenge.epoch,
        age_max_micros=CHALLENGE_SECONDS * MICROS_PER_SECOND,
    )
    verify_attestation(envelope, root, wanted, now=now)
    if (mode, fingerprint) != (attestation.mode, attestation.schema_fingerprint):
        expected, got = f"{mode} {fingerprint}", f"{attestation.mode} {attestation.schema_fingerprint}"
        raise Code.ATTESTATION_INVALID(reason="attestation_kind_differs", expected=expected, got=got)


def _encode_request(context: SourceContext) -> str:
    return canonical_json.dump(
        {
            "catalog": context.catalog,
            "table_uuid": context.table_uuid,
            "snapshot_id": str(context.snapshot_id),
            "mode": context.mode.value,
            "fingerprints": {name.value: fingerprint.hex() for name, fingerprint in context.fingerprints},
        }
    ).decode()
