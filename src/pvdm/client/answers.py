"""What the Steward answers, as frozen values: times in microseconds, 64-bit numbers as integers, keys as secrets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pvdm.client.errors import error_of
from pvdm.client.reading import Reading, unreadable
from pvdm.client.token import AccessToken
from pvdm.errors import InputError, NotAllowedError, PvdmError, UnavailableError
from pvdm.model.canonical_json import Value, dump
from pvdm.model.role import Role
from pvdm.model.statements.epoch import EpochStage
from pvdm.model.statements.proof import Isolation

_OAUTH_ERRORS: Final = frozenset(
    {
        "invalid_client",
        "invalid_request",
        "server_error",
        "unauthorized_client",
        "unsupported_grant_type",
    }
)


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the Steward takes work, and every reason why not."""

    ready: bool
    reasons: tuple[PvdmError, ...]

    @classmethod
    def read(cls, value: object) -> Readiness:
        """The answer's value."""
        fields = Reading(value, "the readiness")
        return cls(fields.flag("ready"), fields.items("reasons", lambda reason: error_of(reason, request_id="")))


@dataclass(frozen=True, slots=True)
class Identity:
    """What a token allows, and to whom it was given."""

    token_id: str
    role: Role
    domain: str
    name: str
    expires_at: int
    attempt_id: str | None

    @classmethod
    def read(cls, value: object) -> Identity:
        """The answer's value."""
        fields = Reading(value, "the identity")
        return cls(
            fields.text("token_id"),
            fields.choice("role", Role),
            fields.text("domain"),
            fields.text("name"),
            fields.number("expires_at"),
            fields.optional_hex("attempt_id", 16),
        )


@dataclass(frozen=True, slots=True)
class ServedCatalog:
    """The catalog that a Steward serves: its name, and where its tables lie."""

    name: str
    warehouse: str

    @classmethod
    def read(cls, value: object) -> ServedCatalog:
        """The answer's value."""
        fields = Reading(value, "the catalog")
        return cls(fields.text("name"), fields.text("warehouse"))


@dataclass(frozen=True, slots=True)
class StewardInfo:
    """Who the Steward is and where it stands."""

    notary: str
    origin: str
    isolation: Isolation
    version: str
    active_epoch: int | None
    log_size: int
    trust_root_version: int | None
    catalog: ServedCatalog | None

    @classmethod
    def read(cls, value: object) -> StewardInfo:
        """The answer's value."""
        fields = Reading(value, "the Steward")
        catalog = fields.value("catalog")
        return cls(
            fields.text("notary"),
            fields.text("origin"),
            fields.choice("isolation", Isolation),
            fields.text("version"),
            fields.optional_decimal("active_epoch"),
            fields.decimal("log_size"),
            fields.optional_number("trust_root_version"),
            None if catalog is None else ServedCatalog.read(catalog),
        )


@dataclass(frozen=True, slots=True)
class TrustRootChain:
    """Every version of the trust root as its envelope's bytes, first to newest; what the newest one is."""

    version: int
    sha256: str
    chain: tuple[bytes, ...]

    @classmethod
    def read(cls, value: object) -> TrustRootChain:
        """The answer's value."""
        fields = Reading(value, "the trust root")
        return cls(fields.number("version"), fields.hex("sha256", 32), fields.items("chain", read_envelope))


@dataclass(frozen=True, slots=True)
class TrustRootVersion:
    """The newest version of the trust root."""

    version: int
    sha256: str

    @classmethod
    def read(cls, value: object) -> TrustRootVersion:
        """The answer's value."""
        fields = Reading(value, "the trust root")
        return cls(fields.number("version"), fields.hex("sha256", 32))


@dataclass(frozen=True, slots=True)
class EpochView:
    """One epoch and the ids of its public keys, by role."""

    number: int
    state: EpochStage
    key_ids: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, value: object) -> EpochView:
        """The answer's value."""
        fields = Reading(value, "an epoch")
        return cls(fields.decimal("number"), fields.choice("state", EpochStage), _key_ids(fields))


@dataclass(frozen=True, slots=True)
class EpochChange:
    """One step of one epoch."""

    epoch: int
    before: EpochStage | None
    after: EpochStage
    reason: str
    key_ids: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, value: object) -> EpochChange:
        """The answer's value."""
        fields = Reading(value, "a change of an epoch")
        return cls(
            fields.decimal("epoch"),
            fields.choice("before", EpochStage) if fields.has("before") else None,
            fields.choice("after", EpochStage),
            fields.text("reason"),
            _key_ids(fields),
        )


@dataclass(frozen=True, slots=True)
class AttemptToken:
    """A token for one attempt."""

    token: AccessToken
    identity: Identity


def read_attempt_identity(value: object) -> Identity:
    """Who the bearer of an attempt's token is."""
    return Identity.read(Reading(value, "the attempt's token").value("identity"))


@dataclass(frozen=True, slots=True)
class ExchangedToken:
    """A short-lived token from the OAuth2 endpoint."""

    token: AccessToken
    expires_in_seconds: int


@dataclass(frozen=True, slots=True)
class Event:
    """One step of the step log: what happened to which row, before and after."""

    event_id: int
    at: int
    kind: str
    subject: str
    row_key: str
    old: tuple[tuple[str, object], ...] | None
    new: tuple[tuple[str, object], ...] | None

    @classmethod
    def read(cls, value: object) -> Event:
        """The answer's value."""
        fields = Reading(value, "the event")
        return cls(
            fields.decimal("event_id"),
            fields.number("at"),
            fields.text("kind"),
            fields.text("subject"),
            fields.text("row_key"),
            fields.pairs("old") if fields.has("old") else None,
            fields.pairs("new") if fields.has("new") else None,
        )


@dataclass(frozen=True, slots=True)
class ClockConfirmed:
    """The time from which the Steward goes on; `confirmed` is false where there was nothing to confirm."""

    at: int
    confirmed: bool

    @classmethod
    def read(cls, value: object) -> ClockConfirmed:
        """The answer's value."""
        fields = Reading(value, "the clock")
        return cls(fields.number("at"), fields.flag("confirmed"))


def read_hashes(value: object) -> tuple[bytes, ...]:
    """The hashes of a consistency proof."""
    fields = Reading(value, "the consistency proof")
    return fields.items("hashes", lambda item: bytes.fromhex(Reading({"hash": item}, "the hashes").hex("hash", 32)))


def read_envelope(value: object) -> bytes:
    """The bytes of an envelope: its JSON in the one spelling that is signed and logged."""
    Reading(value, "an envelope")
    try:
        return dump(_document(value))
    except InputError:
        pass
    raise unreadable("an envelope", "strings and arrays", "something else")


def _document(value: object) -> Value:
    match value:
        case None | bool() | int() | str():
            return value
        case list():
            return [_document(item) for item in value]
        case dict():
            return {str(name): _document(item) for name, item in value.items()}
        case _:
            raise InputError("document_malformed", "no such value in a document")


def _key_ids(fields: Reading) -> tuple[tuple[str, str], ...]:
    ids = fields.reading("key_ids")
    return tuple((role, ids.hex(role, 32)) for role, _ in fields.pairs("key_ids"))


def _token(fields: Reading, key: str) -> AccessToken:
    try:
        return AccessToken(fields.text(key))
    except InputError:
        pass
    raise unreadable(f"{key} of the token", "a bearer token", "another string")


def read_exchanged(value: object) -> ExchangedToken | PvdmError:
    """The token, or why there is none: in RFC 6749's words, or in the Steward's own envelope."""
    fields = Reading(value, "the token")
    if fields.has("access_token"):
        if fields.text("token_type").lower() != "bearer":
            raise unreadable("token_type of the token", "bearer", "another type")
        return ExchangedToken(_token(fields, "access_token"), fields.number("expires_in"))
    said = fields.value("error")
    if not isinstance(said, str):
        return error_of(said, request_id="")
    if said == "temporarily_unavailable":
        return UnavailableError("token_exchange_unavailable", "the Steward gives no token now", got=said)
    return NotAllowedError(
        "token_exchange_refused",
        "the Steward gives no token for these credentials",
        expected="id and text of a live token",
        got=said if said in _OAUTH_ERRORS else "another error",
        hint="ask an operator whether the token was revoked or has expired",
    )
