"""The Steward's client: methods for the routes under `/v1`, with typed responses and the Steward's own errors."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlencode

from pvdm.api import protection, service
from pvdm.api.base import PAGE_ROWS_MAX
from pvdm.api.proofs import (
    AttestationChallengeRequest,
    AttestationList,
    AttestationView,
    Challenge,
    ConsistencyView,
    EnvelopeRequest,
    OpenedProof,
    OverrideList,
    OverrideView,
    ProofList,
    ProofView,
)
from pvdm.client.audit import AuditCalls
from pvdm.client.calls import (
    Query,
    build_request,
    new_post,
    number_text,
    page_query,
    parse_json,
    segment,
    sha256_text,
    with_reason,
)
from pvdm.client.responses import to_error, unreadable
from pvdm.client.settings import Retries, TimeOuts, require_address, require_answer_size, tls_context
from pvdm.client.token import LentToken, TokenGiver, read_exchanged, token_source, try_token
from pvdm.client.transport import BoundedTransport
from pvdm.client.wire import Call, Wire
from pvdm.client.work import WorkCalls
from pvdm.errors import Code, NotAllowedError, PvdmError
from pvdm.model.projection import ProjectionName
from pvdm.model.role import AccessToken, Role

DEFAULT_ANSWER_BYTES: Final = 96 * 1024 * 1024
_OAUTH_REFUSALS: Final = frozenset(range(400, 600))  # errors of the token exchange, which have RFC 6749's form


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the Steward accepts work, and every reason why not."""

    ready: bool
    reasons: tuple[PvdmError, ...]


class StewardClient(WorkCalls, AuditCalls):
    """Connections to one Steward under one token; a context manager, safe for threads.

    `url` is the Steward's address. `ca_file` has the certificate authorities to trust; None means the system's.
    """

    url = ""  # until the address is checked, for the repr in a traceback

    def __init__(
        self,
        url: str,
        token: str | AccessToken | TokenGiver | None = None,
        *,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        insecure: bool = False,
        time_outs: TimeOuts | None = None,
        retries: Retries | None = None,
        answer_max_bytes: int = DEFAULT_ANSWER_BYTES,
        patient: bool = False,
    ) -> None:
        # A traceback can show a frame's local variables, so none may hold the token when an error is raised.
        holder, token = [token], None
        source = token_source(holder.pop(), token_file)
        self.ca_file = ca_file
        self._insecure = insecure
        address = require_address(url, insecure=insecure)
        self.url = str(address)
        self._wire = Wire(
            address,
            # Loading the system's certificates takes a while, and plain http on loopback needs none.
            BoundedTransport(tls_context(ca_file) if ca_file or address.scheme == "https" else None),
            source,
            time_outs=time_outs or TimeOuts(),
            retries=retries or Retries(),
            answer_max_bytes=require_answer_size(answer_max_bytes),
            patient=patient,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; a second time does nothing."""
        self._wire.close()

    def with_token(self, token: str | AccessToken | TokenGiver) -> StewardClient:
        """Another client for the same Steward with another token; close it as well."""
        holder, token = [token], ""  # as in __init__
        other = StewardClient(
            self.url,
            holder.pop(),
            ca_file=self.ca_file,
            insecure=self._insecure,
            time_outs=self._wire.time_outs,
            retries=self._wire.retries,
            answer_max_bytes=self._wire.answer_max_bytes,
            patient=self._wire.patient,
        )
        other.when_waiting(self._wire.notify_waiting)
        return other

    def when_waiting(self, notify: Callable[[], None] | None) -> None:
        """Set a function that a call runs once, before a retry, if it has had no result for some seconds."""
        self._wire.notify_waiting = notify

    def with_patience(self, patient: bool = True) -> StewardClient:
        """A client on the same connections; a patient one waits in every call for a Steward that is restarting."""
        other = copy.copy(self)
        other._wire = self._wire.with_patience(patient)
        return other

    # The Steward itself

    def health(self) -> None:
        """Raise unless the Steward answers."""
        self._wire.send(Call("GET", "/healthz", with_token=False), lambda _: None)

    def readiness(self) -> Readiness:
        """Whether the Steward accepts work, and why not. Details are for operators and auditors of every domain."""
        call = Call("GET", "/readyz", also_answers=frozenset({503}))
        try:
            found = self._read(call, service.ReadinessView)
        except PvdmError as error:
            if error.code != Code.CLOCK_JUMPED:
                raise
            # After a clock jump an embedded Steward issues no token; the short form of the response needs none.
            found = self._read(replace(call, with_token=False), service.ReadinessView)
        return Readiness(found.ready, tuple(to_error(reason, request_id="") for reason in found.reasons))

    def metrics(self) -> str:
        """The metrics in Prometheus' text format."""
        return self._get_bytes("/metrics").decode("utf-8", "replace")

    def identity(self) -> service.Identity:
        """The identity of this client's token."""
        return self._get("/v1/identity", service.Identity)

    def info(self) -> service.StewardInfo:
        """The Steward's name, version, epoch, log size and catalog."""
        return self._get("/v1/steward", service.StewardInfo)

    def events(
        self, *, after: int | None = None, limit: int = 100, about: str | None = None
    ) -> tuple[service.Event, ...]:
        """Events of the step log after the id `after`, oldest first; with `about`, those with this id or name."""
        return self._get("/v1/events", service.EventList, page_query(after, limit) | {"about": about}).events

    def confirm_clock(self, reason: str) -> service.ClockConfirmation:
        """Confirm that the Steward's clock is correct now."""
        call = new_post("/v1/clock/confirm", with_reason(reason), lost_hint="readiness() shows whether it happened")
        return self._read(call, service.ClockConfirmation)

    # Trust root and epochs

    def trust_root(self) -> service.TrustRootChain:
        """Every version of the trust root, oldest first. The caller checks them by the first one's known hash."""
        return self._get("/v1/trust-root", service.TrustRootChain)

    def submit_trust_root(self, envelope: bytes, *, sha256: str | None = None) -> service.TrustRootVersion:
        """Submit the first version, trusted by its SHA-256, or the next. The newest version again changes nothing."""
        fields = {"envelope": _parse_envelope(envelope), "sha256": sha256}
        body = build_request(service.TrustRootRequest.model_validate, fields)
        return self._read(new_post("/v1/trust-root", body, repeatable=True), service.TrustRootVersion)

    def epochs(self) -> tuple[service.EpochView, ...]:
        """Every epoch, in order of number."""
        return self._get("/v1/epochs", service.EpochList).epochs

    def create_epoch(self, reason: str) -> tuple[service.EpochChange, ...]:
        """Create a new generation of keys; nothing uses it until it is activated."""
        return self._change_epoch("/v1/epochs", reason)

    def activate_epoch(self, number: int, reason: str) -> tuple[service.EpochChange, ...]:
        """Activate the epoch: new workloads open under it, and the one that was active is retired."""
        return self._change_epoch(f"/v1/epochs/{number_text(number, 'epoch')}/activate", reason)

    def retire_epoch(self, number: int, reason: str) -> tuple[service.EpochChange, ...]:
        """Retire the epoch: no new workload opens under it."""
        return self._change_epoch(f"/v1/epochs/{number_text(number, 'epoch')}/retire", reason)

    def revoke_epoch(self, number: int, reason: str) -> tuple[service.EpochChange, ...]:
        """Revoke the epoch: its keys are not used again."""
        return self._change_epoch(f"/v1/epochs/{number_text(number, 'epoch')}/revoke", reason)

    # Proofs

    def proofs(
        self,
        *,
        workload_id: str | None = None,
        attempt_id: str | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> tuple[ProofView, ...]:
        """The newest proofs, going back in the log from the index `after`, of one workload or attempt if given."""
        query: Query = {"workload_id": workload_id, "attempt_id": attempt_id, **page_query(after, limit)}
        return self._get("/v1/proofs", ProofList, query).proofs

    def proof(self, proof_id: str) -> ProofView:
        """What one proof says."""
        return self._get(f"/v1/proofs/{sha256_text(proof_id)}", ProofView)

    def proof_envelope(self, proof_id: str) -> bytes:
        """The signed envelope."""
        return self._get_bytes(f"/v1/proofs/{sha256_text(proof_id)}/envelope")

    def proof_bundle(self, proof_id: str) -> bytes:
        """The bundle of a proof: all that `pvdm.check_proof` needs, except the trust root."""
        return self._get_bytes(f"/v1/proofs/{sha256_text(proof_id)}/bundle")

    def open_proof(self, proof_id: str, reason: str) -> OpenedProof:
        """The keys of an ended attempt, to recompute its digest from the data; the step log records it."""
        path = f"/v1/proofs/{sha256_text(proof_id)}/open"
        call = new_post(path, with_reason(reason), lost_hint="the step log shows whether it happened")
        return self._read(call, OpenedProof)

    # Break-glass and source attestation

    def overrides(self) -> tuple[OverrideView, ...]:
        """The newest break-glass overrides, at most 1,000."""
        return self._get("/v1/overrides", OverrideList).overrides

    def submit_override(self, envelope: bytes) -> OverrideView:
        """Submit a signed break-glass override."""
        return self._read(_envelope_call("/v1/overrides", envelope), OverrideView)

    def challenge(
        self,
        *,
        nonce: str,
        catalog: str,
        table_uuid: str,
        snapshot_id: int,
        mode: str,
        fingerprints: Mapping[ProjectionName, str],
    ) -> Challenge:
        """Keys for an attestation of one source snapshot; the caller draws the nonce, so the call may be repeated."""
        fields = {
            "nonce": nonce,
            "catalog": catalog,
            "table_uuid": table_uuid,
            "snapshot_id": str(snapshot_id),
            "mode": mode,
            "fingerprints": {name.value: fingerprint for name, fingerprint in fingerprints.items()},
        }
        body = build_request(AttestationChallengeRequest.model_validate, fields)
        return self._read(new_post("/v1/attestations/challenges", body, repeatable=True), Challenge)

    def submit_attestation(self, envelope: bytes) -> AttestationView:
        """Submit a signed source attestation."""
        return self._read(_envelope_call("/v1/attestations", envelope), AttestationView)

    def attestations(
        self, *, table_uuid: str | None = None, snapshot_id: int | None = None
    ) -> tuple[AttestationView, ...]:
        """The newest source attestations, of one table or snapshot if given."""
        query: Query = {"table_uuid": table_uuid, "snapshot_id": snapshot_id}
        return self._get("/v1/attestations", AttestationList, query).attestations

    # Protection and migrations

    def target(self, kind: str, name: str) -> protection.TargetView:
        """A `table` or a `namespace` as it is now, for an operator who is about to sign an approval."""
        return self._get(f"/v1/targets/{segment(kind, 'kind')}", protection.TargetView, {"name": name})

    def protected(
        self,
        kind: str = "table",
        *,
        namespace: str | None = None,
        name: str | None = None,
        after: str | None = None,
        limit: int = PAGE_ROWS_MAX,
    ) -> tuple[protection.ProtectedView, ...]:
        """The tables or namespaces (`kind`) that are protected now, by name, after the name `after`."""
        query: Query = {"kind": kind, "namespace": namespace, "name": name, **page_query(after, limit)}
        return self._get("/v1/protected", protection.ProtectedList, query).protected

    def protections(self) -> tuple[protection.ProtectionView, ...]:
        """The newest protections, at most 1,000."""
        return self._get("/v1/protections", protection.ProtectionList).protections

    def submit_protection(self, envelope: bytes) -> protection.ProtectionView:
        """Submit a signed protection; the same one again changes nothing."""
        return self._read(_envelope_call("/v1/protections", envelope), protection.ProtectionView)

    def contract(self, contract_sha256: str) -> bytes:
        """The contract's bytes. Raises unless they have this hash."""
        found = self._get_bytes(f"/v1/contracts/{sha256_text(contract_sha256, 'contract hash')}")
        if hashlib.sha256(found).hexdigest() != contract_sha256:
            raise unreadable("the contract", "the bytes of this hash", "others")
        return found

    def migrations(self) -> tuple[protection.MigrationView, ...]:
        """The newest migrations, at most 1,000."""
        return self._get("/v1/migrations", protection.MigrationList).migrations

    def migration(self, migration_id: str) -> protection.MigrationView:
        """One migration."""
        return self._get(f"/v1/migrations/{sha256_text(migration_id, 'migration id')}", protection.MigrationView)

    def submit_migration(self, envelope: bytes) -> protection.SubmittedMigration:
        """Submit a signed migration, which the Steward applies; the same one again changes nothing (see `applied`)."""
        return self._read(_envelope_call("/v1/migrations", envelope), protection.SubmittedMigration)

    # Claims that a restore has lost

    def lost_claims(self, receipt_id: str | None = None) -> tuple[protection.LostClaimView, ...]:
        """The claims that a restore has lost, at most 1,000; or the one of this receipt or proof."""
        query: Query = {"receipt_id": None if receipt_id is None else sha256_text(receipt_id, "receipt id")}
        return self._get("/v1/lost-claims", protection.LostClaimList, query).lost_claims

    def submit_claim_release(self, envelope: bytes) -> protection.ClaimReleaseView:
        """Submit a signed claim release; the same one again changes nothing."""
        return self._read(_envelope_call("/v1/claim-releases", envelope), protection.ClaimReleaseView)

    # The log

    def log_checkpoint(self) -> bytes:
        """The newest signed checkpoint."""
        return self._get_bytes("/v1/log/checkpoint")

    def log_tile(self, path: str) -> bytes:
        """One tile or entry bundle, by its C2SP path below `tile/`."""
        tile = "/".join(segment(part, "path of the tile") for part in path.split("/"))
        return self._get_bytes(f"/v1/log/tile/{tile}")

    def log_proof(self, index: int) -> bytes:
        """The log proof of one entry, in the tree of the newest checkpoint."""
        return self._get_bytes(f"/v1/log/entries/{number_text(index, 'index')}/proof")

    def log_consistency(self, old: int, new: int) -> tuple[bytes, ...]:
        """The hashes which prove that the tree of size `new` begins with the tree of size `old`."""
        query: Query = {"old": number_text(old, "old size"), "new": number_text(new, "new size")}
        return self._get("/v1/log/consistency", ConsistencyView, query).hashes

    # Tokens

    def exchange(self, client_id: str, client_secret: str | AccessToken) -> service.ExchangedToken:
        """Exchange a token's id and text for a short-lived token (OAuth2 client credentials)."""
        holder, client_secret = [client_secret], ""  # as in __init__
        checked = try_token(holder.pop())
        if isinstance(checked, PvdmError):
            raise checked
        call = _exchange_call(client_id, checked)
        return self._wire.send(call, lambda response: read_exchanged(parse_json(response, call)))

    def lend(self, role: Role | None = None, domain: str | None = None) -> LentToken:
        """This client's token, for an engine such as Spark. Raises if role or domain are given and not the token's own.

        The token is exchanged once as a test. A short-lived token cannot be exchanged; it is lent without a token id.
        """
        own = self.identity()
        if role not in (None, own.role) or domain not in (None, own.domain):
            wanted = role or own.role
            article = "an" if wanted[0] in "aeiou" else "a"
            raise Code.PERMISSION_DENIED(
                reason="lent_role_wrong",
                expected=f"{wanted} of {domain or own.domain}",
                got=f"{own.role} of {own.domain}",
                hint=f"name {article} {wanted}'s token with --token-file, or connect with it",
            )
        token = self._wire.token()
        try:
            self.exchange(own.token_id, token)
        except NotAllowedError as error:
            if error.got != "unauthorized_client":
                raise
            return LentToken(token, None)
        return LentToken(token, own.token_id)

    def _change_epoch(self, path: str, reason: str) -> tuple[service.EpochChange, ...]:
        call = new_post(path, with_reason(reason), lost_hint="epochs() shows whether it happened")
        return self._read(call, service.EpochChangeList).changes


def _exchange_call(client_id: str, secret: AccessToken) -> Call:
    form = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": secret.text}
    return Call(
        "POST",
        "/catalog/v1/oauth/tokens",
        lost_hint="an unused token expires, so it is safe to request another one",
        content=urlencode(form).encode(),
        content_type="application/x-www-form-urlencoded",
        repeatable=False,
        with_token=False,
        also_answers=_OAUTH_REFUSALS,
    )


def _envelope_call(path: str, envelope: bytes) -> Call:
    """The call that submits an envelope. It is idempotent, by the envelope's content."""
    body = build_request(EnvelopeRequest.model_validate, {"envelope": _parse_envelope(envelope)})
    return new_post(path, body, repeatable=True)


def _parse_envelope(data: bytes) -> dict[str, object]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Code.DOCUMENT_MALFORMED(reason="envelope_malformed", got="something else")
    return value
