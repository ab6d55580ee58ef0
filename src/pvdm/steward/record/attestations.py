"""Source attestations: gives a source keys for one snapshot, and accepts its signed digest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pvdm.api.proofs import AttestationView, Challenge, ProjectionKeys
from pvdm.digest.plan import Mode
from pvdm.errors import Code, ConflictError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import statements
from pvdm.ledger.record.statements import AttestationRecord, ChallengeRecord, Statement
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.schema.record import StatementKind
from pvdm.model import canonical_json
from pvdm.model.statements.attestation import SourceAttestation
from pvdm.steward.record.recorder import Document, Recorder
from pvdm.steward.record.roots import TrustRoots
from pvdm.trust.attestation import WantedAttestation, verify_attestation
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.keys.context import Fingerprints, SourceContext
from pvdm.trust.keys.service import KeyService
from pvdm.trust.root import RootRole, TrustRoot, require_root_current
from pvdm.trust.statement import read_signed, read_statement

CHALLENGE_SECONDS: Final = 86_400

_MICROS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ChallengeRequest:
    """The snapshot that the source wants to attest, and the digests; the source draws the nonce."""

    nonce: str
    catalog: str
    table_uuid: str
    snapshot_id: int
    mode: Mode
    fingerprints: Fingerprints


@dataclass(eq=False)
class Attestations:
    """Issues challenges and accepts attestations."""

    ledger: Ledger
    clock: LedgerClock
    keys: KeyService
    recorder: Recorder
    trust: TrustRoots

    def challenge(self, grant: Grant, asked: ChallengeRequest) -> Challenge:
        """Issue keys for one snapshot to a registered attestor; the same request again returns the same."""
        now = self.clock.now_micros()
        require_registered(self.trust.current(), grant.name, now)
        epoch = self.keys.epoch_for(None)
        context = _context(grant.name, epoch, asked)
        record = ChallengeRecord(
            asked.nonce, grant.name, epoch, _request_text(context), now + CHALLENGE_SECONDS * _MICROS
        )
        drawn = self.ledger.transact(lambda unit: statements.add_challenge(unit, record), at_micros=now)
        require_in_time(drawn, now)
        context = _context(grant.name, drawn.epoch, asked)
        return Challenge(
            nonce=drawn.nonce,
            epoch=drawn.epoch,
            expires_at=drawn.expires_micros,
            keys={
                name: ProjectionKeys(self.keys.row_hash_key(context, name), self.keys.commitment_key(context, name))
                for name, _ in context.fingerprints
            },
        )

    def submit(self, envelope: bytes, grant: Grant) -> AttestationView:
        """Verify and log an attestation, and use its nonce up."""
        parsed = parse_envelope(envelope)
        said = read_statement(parsed.payload, SourceAttestation)
        if said.attestor != grant.name:
            raise Code.ATTESTOR_DIFFERS(expected=grant.name, got=said.attestor)
        with self.ledger.read() as unit:
            challenge = statements.get_challenge(unit, said.nonce)
        known = self._known(parsed.payload_sha256)
        if known is not None:
            return known
        now = self.clock.now_micros()
        require_in_time(challenge, now)
        self.keys.epoch_for(challenge.epoch)
        _verify(envelope, said, self.trust.current(), challenge, now)
        record = AttestationRecord(
            parsed.payload_sha256, said.nonce, said.attestor, said.table.catalog, said.table.uuid, str(said.snapshot_id)
        )

        def work(unit: Unit, places: Sequence[int]) -> None:
            statements.put_attestation(unit, record, envelope, log_index=places[0])

        try:
            self.recorder.record([Document(StatementKind.SOURCE_ATTESTATION, record.attestation_id, envelope)], work)
        except ConflictError:
            # A concurrent call with the same bytes was first; any other attestation is a conflict.
            known = self._known(record.attestation_id)
            if known is None:
                raise
            return known
        with self.ledger.read() as unit:
            return _view(statements.get(unit, record.attestation_id))

    def listed(
        self, *, attestor: str | None = None, table_uuid: str | None = None, snapshot_id: int | None = None
    ) -> list[AttestationView]:
        """The newest attestations."""
        snapshot = None if snapshot_id is None else str(snapshot_id)
        with self.ledger.read() as unit:
            found = statements.list_newest_attestations(
                unit, attestor=attestor, table_uuid=table_uuid, snapshot_id=snapshot
            )
            return [_view(statements.get(unit, record.attestation_id)) for record in found]

    def _known(self, attestation_id: str) -> AttestationView | None:
        with self.ledger.read() as unit:
            if statements.find_attestation(unit, attestation_id) is None:
                return None
            stored = statements.get(unit, attestation_id)
        self.recorder.cover()
        return _view(stored)


def _view(statement: Statement) -> AttestationView:
    said = read_signed(statement.envelope, SourceAttestation)
    return AttestationView(
        statement_id=statement.statement_id,
        attestor=said.attestor,
        catalog=said.table.catalog,
        table_uuid=said.table.uuid,
        snapshot_id=said.snapshot_id,
        row_count=said.row_count,
        projection=said.projection,
        issued_at=said.issued_at,
        log_index=statement.log_index,
    )


def require_registered(root: TrustRoot, attestor: str, now: int) -> None:
    """Require that the current trust root names a valid attestor key of this identity."""
    require_root_current(root, now)
    keys = (key for key in root.keys if key.identity == attestor and RootRole.ATTESTOR in key.roles)
    valid = (key for key in keys if key.valid_from <= now < key.valid_until)
    if all(key.revoked_at is not None and key.revoked_at <= now for key in valid):
        raise Code.ATTESTOR_UNREGISTERED(got=attestor)


def require_in_time(challenge: ChallengeRecord, now: int) -> None:
    """Refuse an expired challenge."""
    if challenge.expires_micros <= now:
        raise Code.CHALLENGE_EXPIRED(expected=f"before {challenge.expires_micros}", got=str(now))


def _verify(envelope: bytes, said: SourceAttestation, root: TrustRoot, challenge: ChallengeRecord, now: int) -> None:
    """Verify an attestation by its challenge; it must be of a projection and schema whose keys were issued."""
    match canonical_json.parse(challenge.request.encode(), size_max_bytes=1_048_576):
        case {
            "catalog": str(catalog),
            "table_uuid": str(table_uuid),
            "snapshot_id": str(snapshot_id),
            "mode": str(mode),
            "fingerprints": Mapping() as fingerprints,
        }:
            asked = (mode, fingerprints.get(said.projection.value))
        case _:
            raise AssertionError("a stored request has a source, a mode and fingerprints")
    wanted = WantedAttestation(
        attestors=(challenge.attestor,),
        catalog=catalog,
        table_uuid=table_uuid,
        snapshot_id=int(snapshot_id),
        nonce=challenge.nonce,
        epoch=challenge.epoch,
        age_max_micros=CHALLENGE_SECONDS * _MICROS,
    )
    verify_attestation(envelope, root, wanted, now=now)
    if asked != (said.mode, said.schema_fingerprint):
        raise Code.ATTESTATION_INVALID(
            reason="attestation_kind_differs",
            expected=f"{asked[0]} {asked[1]}",
            got=f"{said.mode} {said.schema_fingerprint}",
        )


def _context(attestor: str, epoch: int, asked: ChallengeRequest) -> SourceContext:
    return SourceContext(
        epoch, asked.catalog, asked.table_uuid, asked.snapshot_id, attestor, asked.nonce, asked.mode, asked.fingerprints
    )


def _request_text(context: SourceContext) -> str:
    return canonical_json.dump(
        {
            "catalog": context.catalog,
            "table_uuid": context.table_uuid,
            "snapshot_id": str(context.snapshot_id),
            "mode": context.mode.value,
            "fingerprints": {name.value: fingerprint.hex() for name, fingerprint in context.fingerprints},
        }
    ).decode()
