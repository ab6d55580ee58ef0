"""Requests and responses about signed statements, about keys that leave the Steward, and for auditors."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, PlainValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from pvdm.api.base import (
    PLAIN,
    UUID,
    WORKER_NAME,
    DecimalText,
    Flag,
    Micros,
    ProjectionWord,
    RandomHex,
    RequestModel,
    ResponseModel,
    SentAs,
    Sha256,
)
from pvdm.errors import InputError
from pvdm.model import canonical_json
from pvdm.model.projection import ProjectionName
from pvdm.model.secret import CommitmentKey, DigestKey
from pvdm.model.statements.verdict import FailureClass, Outcome
from pvdm.model.states import NonceState

AUDIT_IDS_MAX: Final = 64

FindingCode: TypeAlias = Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,63}$")]


class Signature(RequestModel):
    """One signature of an envelope."""

    keyid: Sha256
    sig: Annotated[str, Field(min_length=4, max_length=400, pattern="^[A-Za-z0-9+/]+={0,2}$")]


class Envelope(RequestModel):
    """A DSSE envelope: a statement's bytes in base64 and the signatures over them."""

    payload: Annotated[str, Field(max_length=67_108_864, pattern="^[A-Za-z0-9+/]*={0,2}$")]
    payloadType: Annotated[str, Field(min_length=1, max_length=128)]  # noqa: N815 - DSSE's own spelling
    # The verifier refuses an empty list, with an error that names the missing signature.
    signatures: Annotated[list[Signature], Field(max_length=16)]

    def to_bytes(self) -> bytes:
        """The canonical JSON, which is stored and logged, however the caller wrote the JSON."""
        return canonical_json.dump(self.model_dump())


def _read_envelope(value: object) -> bytes:
    """The canonical bytes of an envelope; unknown fields are kept, since the verifier judges them."""
    if isinstance(value, bytes):
        return value
    try:
        if isinstance(value, Mapping):
            return canonical_json.dump(value)
    except (InputError, TypeError):
        pass
    raise PydanticCustomError("envelope", "Input should be an envelope in JSON")


# An envelope: its canonical JSON as bytes in Python, a JSON object in a response. The Steward sends no unknown fields.
EnvelopeBytes: TypeAlias = Annotated[
    bytes, PlainValidator(_read_envelope), PlainSerializer(Envelope.model_validate_json, return_type=Envelope)
]


class EnvelopeRequest(RequestModel):
    """A signed statement."""

    envelope: Envelope


class Fingerprints(RequestModel):
    """Schema fingerprints of the projections that the source will digest; at least one is given."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    identity: Sha256 | None = None
    content: Sha256 | None = None


class AttestationChallengeRequest(RequestModel):
    """The snapshot that a source will attest. The source draws the nonce. A repeated request gets the same keys."""

    nonce: RandomHex
    catalog: Annotated[str, Field(min_length=1, max_length=256, pattern=PLAIN)]
    table_uuid: Annotated[str, Field(pattern=UUID)]
    snapshot_id: DecimalText
    mode: Literal["stored", "portable"]
    fingerprints: Fingerprints


class RedeemKeysRequest(RequestModel):
    """A worker's name, its verification job, and the job's handle: the random id that gives access to the keys."""

    job_id: Annotated[str, Field(pattern=WORKER_NAME)]
    handle: RandomHex
    worker: Annotated[str, Field(pattern=WORKER_NAME)]


class ProofView(ResponseModel):
    """The content of one proof; row counts are null if the reader may not see them."""

    proof_id: Sha256
    workload_id: str
    chunk_id: str
    attempt_id: RandomHex
    nonce: RandomHex
    verdict: Outcome
    classes: tuple[FailureClass, ...]
    rows_intent: DecimalText | None
    rows_staged: DecimalText | None
    profile: str
    notary: str
    epoch: DecimalText
    issued_at: Micros
    expires_at: Micros
    log_index: DecimalText
    overridden: Flag
    override_id: Sha256 | None


class ProofList(ResponseModel):
    """Proofs, newest first. For the next page, send the log index of this page's last proof as `after`."""

    proofs: tuple[ProofView, ...]


@dataclass(frozen=True, slots=True)
class ProjectionKeys:
    """The two keys of one projection (the identity or content columns)."""

    row_hash: DigestKey
    commitment: CommitmentKey


class ProjectionKeysView(ResponseModel):
    """The two keys of one projection, in hex."""

    row_hash: Annotated[Sha256, Field(repr=False)]
    commitment: Annotated[Sha256, Field(repr=False)]


def _drop_unknown_projections(value: object) -> object:
    """The value without projections that this version does not know."""
    if not isinstance(value, Mapping):
        return value
    known = {each.value for each in ProjectionName}
    return {name: inner for name, inner in value.items() if name in known}


def _read_keys(
    pairs: Mapping[ProjectionWord, ProjectionKeysView], info: ValidationInfo
) -> dict[ProjectionName, ProjectionKeys]:
    # The epoch is a field of the model itself (`Challenge`) or of its field `context` (`OpenedProof`).
    epoch: int | None = info.data["epoch"] if "epoch" in info.data else getattr(info.data.get("context"), "epoch", None)
    if epoch is None:
        raise PydanticCustomError("keys", "Input should be keys of an epoch")
    return {
        ProjectionName(name): ProjectionKeys(
            DigestKey(bytes.fromhex(pair.row_hash), epoch=epoch),
            CommitmentKey(bytes.fromhex(pair.commitment), epoch=epoch),
        )
        for name, pair in pairs.items()
    }


def _write_keys(keys: Mapping[ProjectionName, ProjectionKeys]) -> dict[ProjectionWord, ProjectionKeysView]:
    return {
        name.value: ProjectionKeysView(row_hash=pair.row_hash.reveal().hex(), commitment=pair.commitment.reveal().hex())
        for name, pair in keys.items()
    }


_KeyPairs: TypeAlias = Annotated[dict[ProjectionWord, ProjectionKeysView], BeforeValidator(_drop_unknown_projections)]
KeysField: TypeAlias = Annotated[dict[ProjectionName, ProjectionKeys], SentAs(_KeyPairs, _read_keys, _write_keys)]


class OpenedContext(ResponseModel):
    """The facts from which an ended attempt's keys were derived, together with the epoch's root keys."""

    epoch: DecimalText
    workload_id: str
    chunk_id: str
    attempt_id: RandomHex
    nonce: RandomHex
    mode: Literal["stored", "portable"]
    fingerprints: Annotated[dict[ProjectionName, Sha256], BeforeValidator(_drop_unknown_projections)]
    intent_root: Sha256  # the hash over all frozen files of the source
    staged_root: Sha256  # the hash over all frozen staged files


class OpenedProof(ResponseModel):
    """The keys of an ended attempt and their context."""

    context: OpenedContext
    keys: KeysField


class OverrideView(ResponseModel):
    """One break-glass override; `state` is that of its nonce."""

    override_id: Sha256
    operator: str
    reason: str
    table: str
    table_uuid: str
    fail_proof_id: Sha256
    nonce: RandomHex
    state: NonceState
    issued_at: Micros
    expires_at: Micros
    log_index: DecimalText


class OverrideList(ResponseModel):
    """Overrides, newest first."""

    overrides: tuple[OverrideView, ...]


class Challenge(ResponseModel):
    """Keys for one attestation of one source snapshot."""

    nonce: RandomHex
    epoch: DecimalText
    expires_at: Micros
    keys: KeysField


class AttestationView(ResponseModel):
    """One source attestation."""

    statement_id: Sha256
    attestor: str
    catalog: str
    table_uuid: str
    snapshot_id: DecimalText
    row_count: DecimalText
    projection: ProjectionName
    issued_at: Micros
    log_index: DecimalText


class AttestationList(ResponseModel):
    """Attestations, newest first."""

    attestations: tuple[AttestationView, ...]


class RedeemedKeys(ResponseModel):
    """The digest keys of one verification job, in hex."""

    epoch: DecimalText
    keys: Annotated[dict[ProjectionWord, Sha256], Field(repr=False)]


def _read_base64(text: str, _: ValidationInfo) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise PydanticCustomError("base64", "Input should be base64") from None


Base64: TypeAlias = Annotated[bytes, SentAs(str, _read_base64, lambda data: base64.b64encode(data).decode())]
HexHash: TypeAlias = Annotated[bytes, SentAs(Sha256, lambda text, _: bytes.fromhex(text), bytes.hex)]


class LoggedView(ResponseModel):
    """A signed envelope, the time and index of its log entry, and the hashes that prove the entry in the log."""

    kind: Literal["receipt", "proof", "break-glass", "protection", "migration", "claim-release"]
    envelope: EnvelopeBytes
    logged_at: Micros
    index: DecimalText
    hashes: tuple[Base64, ...]


class LoggedList(ResponseModel):
    """Statements in the order of the log or of the requested ids. If not all fit, the last are left out."""

    statements: tuple[LoggedView, ...]


class AuditTable(ResponseModel):
    """A table, as signed statements name it."""

    catalog: str
    uuid: str
    name: str


class AuditDocument(ResponseModel):
    """The table's metadata document: its path, the hash of its bytes, and the bytes as text."""

    path: str
    sha256: Sha256
    text: str


class AuditView(ResponseModel):
    """A table as it is now, the newest checkpoint of the log, and the approvals about the table.

    `released_claims` are the receipts (or proofs) of the table whose lost claims are released.
    """

    table: AuditTable
    contract_sha256: Sha256 | None  # null if the table is not protected
    metadata: AuditDocument
    checkpoint: str
    log_size: DecimalText
    statements: tuple[LoggedView, ...]
    released_claims: tuple[Sha256, ...]


class AuditReportRequest(RequestModel):
    """An auditor's report of violations: the codes of the findings, and how many findings there are."""

    codes: Annotated[list[FindingCode], Field(min_length=1, max_length=AUDIT_IDS_MAX)]
    violations: Annotated[int, Field(ge=1, le=2**31 - 1)]


class AuditReported(ResponseModel):
    """The report is in the step log. `alerted`: this Steward sends an alert about it."""

    alerted: Flag


class ConsistencyView(ResponseModel):
    """The hashes of a consistency proof."""

    hashes: tuple[HexHash, ...]
