"""Bearer tokens: 256 random bits, stored as their SHA-256 only, with role, domain, expiry and revocation."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Final, NoReturn

from sqlalchemy import bindparam, select, update

from pvdm.errors import InputError, NotAllowedError
from pvdm.model.role import Role
from pvdm.store import ids
from pvdm.store.link import Row
from pvdm.store.schema import tokens
from pvdm.store.unit import Unit

EVERY_DOMAIN: Final = "*"
TOKEN_PREFIX: Final = "pvdm_"  # noqa: S105 - what a token begins with, so that scanners find a leaked one
_RANDOM_BYTES: Final = 32
# Asked with every request, made once: to make a statement takes longer than to run it.
_BY_SECRET: Final = select(tokens).where(tokens.c.secret_sha256 == bindparam("of_secret"))


class BearerToken:
    """A token's text; it is shown once, to whom it is given."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself; call it only where it is handed over or hashed."""
        return self._text

    def __repr__(self) -> str:
        return "BearerToken()"

    def __eq__(self, other: object) -> NoReturn:
        raise TypeError("tokens are not compared")

    def __hash__(self) -> NoReturn:
        raise TypeError("tokens are not hashed")

    def __reduce__(self) -> NoReturn:
        raise TypeError("tokens are not pickled")

    def __format__(self, spec: str) -> NoReturn:
        raise TypeError("tokens are not formatted")


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token allows, and to whom it was given; `attempt_id` binds it to one attempt, `parent_id` to a token."""

    token_id: str
    role: Role
    domain: str
    name: str
    expires_micros: int
    attempt_id: str | None = None
    revoked_micros: int | None = None
    parent_id: str | None = None
    ended: bool = False

    def reaches(self, domain: str) -> bool:
        """Whether it is good in that domain."""
        return self.domain in (EVERY_DOMAIN, domain)


def issue(
    unit: Unit,
    role: Role,
    *,
    domain: str,
    name: str,
    expires_micros: int,
    attempt_id: str | None = None,
    parent_id: str | None = None,
) -> tuple[BearerToken, Grant]:
    """A new token; its text exists only in the value returned. It ends with its parent, if it has one."""
    if expires_micros <= unit.at_micros:
        raise InputError(
            "token_expiry_invalid", "the token would be expired", expected="a later time", got=str(expires_micros)
        )
    token = BearerToken(TOKEN_PREFIX + secrets.token_urlsafe(_RANDOM_BYTES))
    grant = Grant(
        secrets.token_hex(16),
        role,
        ids.name(domain, "domain"),
        ids.name(name, "name"),
        expires_micros,
        attempt_id,
        parent_id=parent_id,
    )
    unit.insert(
        tokens,
        token_id=grant.token_id,
        secret_sha256=_digest(token),
        role=role,
        domain=domain,
        name=name,
        attempt_id=attempt_id,
        parent_id=parent_id,
        expires_micros=expires_micros,
        revoked_micros=None,
    )
    return token, grant


def check(unit: Unit, token: BearerToken, *, now_micros: int) -> Grant:
    """What the token allows; unknown, revoked and expired are three errors.

    The look-up is by hash: what its timing could tell is a hash of the guess, which helps nobody to guess the text.
    """
    row = unit.row(_BY_SECRET, of_secret=_digest(token))
    if row is None:
        raise NotAllowedError("token_unknown", "the token is not known")
    grant = _grant(row)
    judged = grant
    while True:
        require_live(judged, now_micros)
        if judged.parent_id is None:
            return grant
        judged = get(unit, judged.parent_id)


def require_live(grant: Grant, now_micros: int) -> None:
    """Neither revoked nor expired. What was ended at once is ended, whatever a clock that lags behind may say."""
    if grant.ended or (grant.revoked_micros is not None and grant.revoked_micros <= now_micros):
        raise NotAllowedError(
            "token_revoked",
            "the token was revoked, or replaced by a rotation",
            hint="ask whoever issued it for its successor",
            token_id=grant.token_id,
        )
    if grant.expires_micros <= now_micros:
        raise NotAllowedError(
            "token_expired", "the token has expired", hint="ask for a new one", token_id=grant.token_id
        )


def revoke(unit: Unit, token_id: str, *, from_micros: int | None = None) -> Grant:
    """End a token, now or at a later time (so that its successor can be handed round); an earlier end stays."""
    row = unit.locked(tokens, token_id=token_id)
    if row is None:
        raise _unknown(token_id)
    end = max(unit.at_micros, from_micros or 0)
    if row["revoked_micros"] is None or end < row["revoked_micros"]:
        changed = {"revoked_micros": end, "at_micros": unit.at_micros}
        unit.execute(update(tokens).where(tokens.c.token_id == token_id).values(**changed))
    return get(unit, token_id)


def get(unit: Unit, token_id: str) -> Grant:
    """What the token of that id allows, whatever its state."""
    row = unit.found(tokens, token_id=token_id)
    if row is None:
        raise _unknown(token_id)
    return _grant(row)


def listed(unit: Unit) -> list[Grant]:
    """Every token that was ever issued, without its text."""
    return [_grant(row) for row in unit.rows(select(tokens).order_by(tokens.c.at_micros, tokens.c.token_id))]


def _unknown(token_id: str) -> InputError:
    return InputError("token_unknown", "there is no token with this id", got=ascii(token_id[:80]))


def _digest(token: BearerToken) -> str:
    return hashlib.sha256(token.reveal().encode()).hexdigest()


def _grant(row: Row) -> Grant:
    return Grant(
        row["token_id"],
        Role(row["role"]),
        row["domain"],
        row["name"],
        row["expires_micros"],
        row["attempt_id"],
        row["revoked_micros"],
        row["parent_id"],
        row["revoked_micros"] is not None and row["revoked_micros"] <= row["at_micros"],
    )
