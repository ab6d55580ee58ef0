"""Requests and responses about the Steward: readiness, tokens, trust root, epochs of its keys, clock and step log."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import JsonValue, ValidationInfo
from pydantic_core import PydanticCustomError

from pvdm.api.base import Count, DecimalText, Flag, Micros, RandomHex, RequestModel, ResponseModel, SentAs, Sha256
from pvdm.api.errors import ErrorView
from pvdm.api.proofs import Envelope, EnvelopeBytes
from pvdm.errors import InputError
from pvdm.model.role import AccessToken, Role
from pvdm.model.statements.epoch import EpochStage
from pvdm.model.statements.proof import Isolation

EVENTS_ABOUT_MAX_CHARACTERS: Final = 400


class TrustRootRequest(RequestModel):
    """A signed trust root (list of trusted keys). The first version's SHA-256 must be here or in the configuration."""

    envelope: Envelope
    sha256: Sha256 | None = None


class AttemptTokenRequest(RequestModel):
    """The SHA-256 of a token's text. The bearer draws the text: at least 256 random bits, at most 256 characters."""

    secret_sha256: Sha256


class Health(ResponseModel):
    """The process is alive."""

    alive: Flag


class ReadinessView(ResponseModel):
    """Whether the Steward accepts work, and every reason why not."""

    ready: Flag
    reasons: tuple[ErrorView, ...]


class Identity(ResponseModel):
    """The rights of a token, and its bearer's name; `attempt_id` if it is for one attempt only."""

    token_id: str
    role: Role
    domain: str
    name: str
    expires_at: Micros
    attempt_id: RandomHex | None


class IssuedToken(ResponseModel):
    """A new token, without its text, which the bearer has."""

    identity: Identity


def _read_token(text: str, _: ValidationInfo) -> AccessToken:
    try:
        return AccessToken(text)
    except InputError:
        del text  # so that no traceback shows the token
    raise PydanticCustomError("token", "Input should be a bearer token")


TokenField: TypeAlias = Annotated[AccessToken, SentAs(str, _read_token, lambda token: token.text)]


class ExchangedToken(ResponseModel):
    """A short-lived token from the OAuth2 endpoint (RFC 6749 section 5.1)."""

    access_token: TokenField
    token_type: Literal["bearer"]
    issued_token_type: str
    expires_in: Count  # seconds


class ServedCatalog(ResponseModel):
    """The catalog that a Steward serves: its name, and the folder below which new tables lie by default."""

    name: str
    warehouse: str


class OutboxView(ResponseModel):
    """The events of a channel that wait for delivery (`pending`), and those that were set aside (`set_aside`).

    `problem` is why the oldest event with a problem was not delivered. `set_aside`: events that were set aside in the
    last seven days. They could not be built and are not sent; `set_aside_problem` says why the last of them could not.
    """

    channel: str
    pending: Count
    oldest_seconds: Count
    problem: str | None
    set_aside: Count = 0
    set_aside_problem: str | None = None


class StewardInfo(ResponseModel):
    """The Steward's name (`notary`), its log's (`origin`), and more; null means no epoch, trust root or catalog.

    `outbox` has the channels with events that wait for delivery or were set aside.
    """

    notary: str
    origin: str
    isolation: Isolation
    version: str
    active_epoch: DecimalText | None
    log_size: DecimalText
    trust_root_version: Count | None
    catalog: ServedCatalog | None
    outbox: tuple[OutboxView, ...] = ()


class TrustRootVersion(ResponseModel):
    """The newest version of the trust root."""

    version: Count
    sha256: Sha256


class TrustRootChain(TrustRootVersion):
    """The newest version of the trust root, and every version's envelope, from the first to the newest."""

    chain: tuple[EnvelopeBytes, ...]


class EpochView(ResponseModel):
    """One epoch (generation of the Steward's keys), and the ids of its public keys by role."""

    number: DecimalText
    state: EpochStage
    key_ids: dict[str, Sha256]


class EpochList(ResponseModel):
    """Every epoch, in order of number."""

    epochs: tuple[EpochView, ...]


class EpochChange(ResponseModel):
    """One change of an epoch's state."""

    epoch: DecimalText
    before: EpochStage | None  # null for a new epoch
    after: EpochStage
    reason: str
    key_ids: dict[str, Sha256]


class EpochChangeList(ResponseModel):
    """Changes of epochs, in order."""

    changes: tuple[EpochChange, ...]


class ClockConfirmation(ResponseModel):
    """The result of confirming the clock: the Steward's time after it, and whether there was anything to confirm."""

    at: Micros
    confirmed: Flag


class Event(ResponseModel):
    """One event of the step log.

    For a changed row, `subject` is the ledger's table; `old` and `new` are the row's values before and after.
    """

    event_id: DecimalText
    at: Micros
    kind: str
    subject: str
    row_key: str
    old: dict[str, JsonValue] | None
    new: dict[str, JsonValue] | None


class EventList(ResponseModel):
    """Events in order of id; the next page begins `after` the last id."""

    events: tuple[Event, ...]
