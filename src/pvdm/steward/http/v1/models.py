"""What goes over the wire: bodies are strict and closed, times are integer microseconds, 64-bit numbers are text."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue

REASON_MAX_CHARACTERS: Final = 256
PAGE_ROWS_MAX: Final = 1_000
EVENTS_ABOUT_MAX_CHARS: Final = 400

HEX16: Final = "^[0-9a-f]{32}$"
HEX32: Final = "^[0-9a-f]{64}$"
DECIMAL: Final = "^(0|[1-9][0-9]{0,18})$"
WORKLOAD_ID: Final = "^[A-Za-z0-9._-]{1,128}$"
WORKER_NAME: Final = "^[A-Za-z0-9._:-]{1,128}$"
UUID: Final = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
# Some text with at least one sign that is not a space, and nothing that steers a terminal or a database.
PLAIN: Final = r"^[^\u0000-\u001f\u007f-\u009f]*[!-~\u00a1-\u00ac\u00ae-\u167f][^\u0000-\u001f\u007f-\u009f]*$"
# What a caller is told whose text does not match: a pattern is not for people.
PATTERN_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        HEX16: "32 lower-case hexadecimal digits",
        HEX32: "64 lower-case hexadecimal digits",
        DECIMAL: "a decimal number without leading zeros",
        WORKLOAD_ID: "1 to 128 letters (a to z), digits, dots, underscores and hyphens",
        WORKER_NAME: "1 to 128 letters (a to z), digits, dots, underscores, colons and hyphens",
        UUID: "a UUID in lower case",
        PLAIN: "some plain text on one line",
    }
)

Random: TypeAlias = Annotated[str, Field(pattern=HEX16)]
Sha256: TypeAlias = Annotated[str, Field(pattern=HEX32)]
Decimal: TypeAlias = Annotated[str, Field(pattern=DECIMAL)]
Reason: TypeAlias = Annotated[str, Field(min_length=1, max_length=REASON_MAX_CHARACTERS, pattern=PLAIN)]
Micros: TypeAlias = Annotated[int, Field(ge=0)]
ProjectionWord: TypeAlias = Literal["identity", "content"]


class Asked(BaseModel):
    """A body: nothing that is not named here, and no value that would have to be turned into another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Told(BaseModel):
    """An answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ReasonBody(Asked):
    """Why it is done, for those who read the step log."""

    reason: Reason


class Signature(Asked):
    """One signature of an envelope."""

    keyid: Sha256
    sig: Annotated[str, Field(min_length=4, max_length=400, pattern="^[A-Za-z0-9+/]+={0,2}$")]


class Envelope(Asked):
    """A DSSE envelope."""

    payload: Annotated[str, Field(max_length=67_108_864, pattern="^[A-Za-z0-9+/]*={0,2}$")]
    payloadType: Annotated[str, Field(min_length=1, max_length=128)]  # noqa: N815 - DSSE's own spelling
    # None is the desks' to refuse: they say whose signature is missing.
    signatures: Annotated[list[Signature], Field(max_length=16)]


class EnvelopeBody(Asked):
    """A signed document."""

    envelope: Envelope


class TrustRootBody(Asked):
    """A signed trust root; the first one is believed by its SHA-256, here or in the Steward's configuration."""

    envelope: Envelope
    sha256: Sha256 | None = None


class Fingerprints(Asked):
    """Schema fingerprints of the projections that the source will digest; at least one."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, json_schema_extra={"minProperties": 1})

    identity: Sha256 | None = None
    content: Sha256 | None = None


class ChallengeBody(Asked):
    """Which snapshot a source wants to attest; it draws the nonce, so asking twice is safe."""

    nonce: Random
    catalog: Annotated[str, Field(min_length=1, max_length=256, pattern=PLAIN)]
    table_uuid: Annotated[str, Field(pattern=UUID)]
    snapshot_id: Decimal
    mode: Literal["stored", "portable"]
    fingerprints: Fingerprints


class TokenBody(Asked):
    """The SHA-256 of a token's text, which the bearer has drawn: at least 256 random bits, at most 256 characters."""

    secret_sha256: Sha256


class ErrorPart(Told):
    """What went wrong: a stable code, what was expected, what was got, one next step."""

    code: str
    message: str
    expected: str | None
    got: str | None
    hint: str | None
    details: dict[str, str | int]
    kind: Literal[
        "input", "verification", "rolled_back", "conflict", "not_allowed", "state_unknown", "unavailable", "bug"
    ]
    request_id: str


class ErrorAnswer(Told):
    """The one envelope of all errors."""

    error: ErrorPart


class HealthAnswer(Told):
    """The process lives."""

    alive: bool


class ReadyAnswer(Told):
    """Whether the Steward takes work, and every reason why not."""

    ready: bool
    reasons: list[ErrorPart]


class OAuthAnswer(Told):
    """RFC 6749 section 5.1."""

    access_token: str
    token_type: Literal["bearer"]
    issued_token_type: str
    expires_in: int


class OAuthError(Told):
    """RFC 6749 section 5.2."""

    error: Literal[
        "invalid_request",
        "invalid_client",
        "unauthorized_client",
        "unsupported_grant_type",
        "temporarily_unavailable",
        "server_error",
    ]
    error_description: str


class IdentityAnswer(Told):
    """What a token allows, and to whom it was given."""

    token_id: str
    role: str
    domain: str
    name: str
    expires_at: Micros
    attempt_id: str | None


class TokenAnswer(Told):
    """A new token, whose text the bearer has."""

    identity: IdentityAnswer


class CatalogAnswer(Told):
    """The catalog that is served: its name, and where its tables lie."""

    name: str
    warehouse: str


class StewardAnswer(Told):
    """Who the Steward is and where it stands."""

    notary: str
    origin: str
    isolation: Literal["embedded", "process", "account"]
    version: str
    active_epoch: Decimal | None
    log_size: Decimal
    trust_root_version: int | None
    catalog: CatalogAnswer | None


class TrustRootVersion(Told):
    """The newest version of the trust root."""

    version: int
    sha256: Sha256


class TrustRootAnswer(Told):
    """Every version's envelope, from the first to the newest, and what the newest one is."""

    version: int
    sha256: Sha256
    chain: list[Envelope]


class EpochPart(Told):
    """One epoch and the ids of its public keys."""

    number: Decimal
    state: Literal["CREATED", "ACTIVE", "RETIRED", "REVOKED"]
    key_ids: dict[str, Sha256]


class EpochsAnswer(Told):
    """Every epoch there ever was."""

    epochs: list[EpochPart]


class EpochChangePart(Told):
    """One step of one epoch."""

    epoch: Decimal
    before: str | None
    after: str
    reason: str
    key_ids: dict[str, Sha256]


class EpochChangesAnswer(Told):
    """The steps that were made, in order."""

    changes: list[EpochChangePart]


class ClockAnswer(Told):
    """The time from which the Steward goes on; `confirmed` is false where there was nothing to confirm."""

    at: Micros
    confirmed: bool


class EventPart(Told):
    """One step of the step log: what happened to which row, before and after."""

    event_id: Decimal
    at: Micros
    kind: str
    subject: str
    row_key: str
    old: dict[str, JsonValue] | None
    new: dict[str, JsonValue] | None


class EventsAnswer(Told):
    """Steps in order; `after` the last one's id gives the next."""

    events: list[EventPart]


class ProofAnswer(Told):
    """What one proof says; row counts are null where the reader may not see them."""

    proof_id: Sha256
    workload_id: str
    chunk_id: str
    attempt_id: Random
    nonce: Random
    verdict: Literal["PASS", "FAIL"]
    classes: list[str]
    rows_intent: Decimal | None
    rows_staged: Decimal | None
    profile: str
    notary: str
    epoch: Decimal
    issued_at: Micros
    expires_at: Micros
    log_index: Decimal
    overridden: bool
    override_id: Sha256 | None


class ProofsAnswer(Told):
    """Proofs, newest first; `after` the last one's log index gives the next."""

    proofs: list[ProofAnswer]


class KeyPair(Told):
    """The two keys of one projection, in hex."""

    row_hash: Sha256
    commitment: Sha256


class ContextPart(Told):
    """Everything that the keys of an attempt are bound to."""

    epoch: Decimal
    workload_id: str
    chunk_id: str
    attempt_id: Random
    nonce: Random
    mode: Literal["stored", "portable"]
    fingerprints: dict[str, Sha256]
    intent_root: Sha256
    staged_root: Sha256


class OpenedAnswer(Told):
    """A closed attempt's keys and what they are bound to."""

    context: ContextPart
    keys: dict[ProjectionWord, KeyPair]


class OverrideAnswer(Told):
    """One break-glass statement and what became of it."""

    override_id: Sha256
    operator: str
    reason: str
    table: str
    table_uuid: str
    fail_proof_id: Sha256
    nonce: Random
    state: Literal["RESERVED", "COMMITTED", "ABORTED"]
    issued_at: Micros
    expires_at: Micros
    log_index: Decimal


class OverridesAnswer(Told):
    """Overrides, newest first."""

    overrides: list[OverrideAnswer]


class ChallengeAnswer(Told):
    """Keys for one attestation of one source snapshot."""

    nonce: Random
    epoch: Decimal
    expires_at: Micros
    keys: dict[ProjectionWord, KeyPair]


class RedeemBody(Asked):
    """A worker's handle, the job that it is for, and the name that the worker takes it under."""

    job_id: Annotated[str, Field(pattern=WORKER_NAME)]
    handle: Random
    worker: Annotated[str, Field(pattern=WORKER_NAME)]


class RedeemedAnswer(Told):
    """The digest keys of one verify job, in hex."""

    epoch: Decimal
    keys: dict[ProjectionWord, Sha256]


class AttestationAnswer(Told):
    """One source attestation."""

    statement_id: Sha256
    attestor: str
    catalog: str
    table_uuid: str
    snapshot_id: Decimal
    row_count: Decimal
    projection: ProjectionWord
    issued_at: Micros
    log_index: Decimal


class AttestationsAnswer(Told):
    """Attestations, newest first."""

    attestations: list[AttestationAnswer]


class ConsistencyAnswer(Told):
    """The hashes of a consistency proof."""

    hashes: list[Sha256]
