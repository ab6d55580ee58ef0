"""Bearer tokens: 256 random bits, stored as their SHA-256 only, with role, domain, expiry and revocation."""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass
from typing import Final, NoReturn

from sqlalchemy import ColumnElement, bindparam, case, func, select

from pvdm.errors import Code, InputError, NotAllowedError
from pvdm.ledger import ids
from pvdm.ledger.connection import Row, record_from
from pvdm.ledger.schema.record import tokens
from pvdm.ledger.unit import Unit
from pvdm.model.role import Role, draw_token_text, token_sha256

EVERY_DOMAIN: Final = "*"
# The query of every request, built once: building a statement takes longer than running it.
_BY_SECRET: Final = select(tokens).where(tokens.c.secret_sha256 == bindparam("of_secret"))


class BearerToken:
    """A token's text, which its holder gets once. It cannot be compared, hashed, pickled or formatted by mistake."""

    __slots__ = ("_text",)

    @staticmethod
    def draw() -> BearerToken:
        """Draw a new random text."""
        return BearerToken(draw_token_text())

    @property
    def sha256(self) -> str:
        """The hash that the ledger stores."""
        return token_sha256(self._text)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself. Call it only to hand it over or to hash it."""
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
    """What a token allows. `attempt_id` binds it to one attempt, `parent_id` to the token it is derived from.

    After a rotation (`replace`), `successor_id` names the token that replaces this one from `replaced_micros` on.
    `ended` says that the replacement took effect at once.
    """

    token_id: str
    role: Role
    domain: str
    name: str
    expires_micros: int
    attempt_id: str | None = None
    revoked_micros: int | None = None
    parent_id: str | None = None
    issued_micros: int = 0
    replaced_micros: int | None = None
    successor_id: str | None = None
    ended: bool = False

    def reaches(self, domain: str) -> bool:
        """Whether the token is valid in that domain."""
        return self.domain in (EVERY_DOMAIN, domain)


def require_domain(grant: Grant, domain: str, what: str = "this") -> None:
    """Raise `permission_denied` for a token of another domain. `what` names the thing that belongs to `domain`."""
    if not grant.reaches(domain):
        message, got = f"{what} belongs to another domain", f"one of the domain {grant.domain}"
        owner = "a token of the domain that owns it"
        raise Code.PERMISSION_DENIED(message, reason="domain_wrong", expected=owner, got=got, hint=f"use {owner}")


def issue(
    unit: Unit,
    role: Role,
    *,
    secret_sha256: str,
    domain: str,
    name: str,
    expires_micros: int,
    attempt_id: str | None = None,
    parent_id: str | None = None,
) -> Grant:
    """Store a new token, whose text only the caller has. With `parent_id` it is derived, and ends with that token."""
    if expires_micros <= unit.at_micros:
        raise Code.TOKEN_REQUEST_INVALID(reason="token_expiry_invalid", got=str(expires_micros))
    grant = Grant(
        secrets.token_hex(16),
        role,
        ids.require_name(domain, "domain"),
        ids.require_name(name, "name"),
        expires_micros,
        attempt_id,
        parent_id=parent_id,
        issued_micros=unit.at_micros,
    )
    values = {name: value for name, value in asdict(grant).items() if name != "ended"}  # not a column
    unit.insert(tokens, secret_sha256=secret_sha256, **values)
    return grant


def find_issued(unit: Unit, secret_sha256: str, *, parent: Grant, attempt_id: str) -> Grant | None:
    """The token with this hash, or None. Raises `token_secret_taken` if it is not of this attempt and `parent`.

    A token that was derived before a rotation counts as derived from the newest successor of its parent.
    """
    row = unit.row(_BY_SECRET, of_secret=secret_sha256)
    if row is None:
        return None
    found = _to_grant(row)
    newest_parent = None if found.parent_id is None else find_newest_successor(unit, get(unit, found.parent_id))
    if newest_parent is None or (newest_parent.token_id, found.attempt_id) != (parent.token_id, attempt_id):
        raise Code.RECORD_DIFFERS(reason="token_secret_taken", got="a hash that is in use")
    return found


def check(unit: Unit, token: BearerToken, *, now_micros: int) -> Grant:
    """What the token allows. Raises if it, or a token it is derived from, is unknown, revoked, rotated or expired."""
    # The look-up is by hash, so its timing reveals nothing about the text of a token.
    row = unit.row(_BY_SECRET, of_secret=token.sha256)
    if row is None:
        raise unknown_token_error()
    grant = _to_grant(row)
    current = grant  # the token, then the tokens that it is derived from
    while True:
        require_live(current, now_micros)
        if current.parent_id is None:
            return grant
        current = find_newest_successor(unit, get(unit, current.parent_id))


def unknown_token_error() -> NotAllowedError:
    """The error for a token that the ledger lacks: another Steward issued it, or its text is incomplete."""
    return NotAllowedError(
        Code.TOKEN_UNKNOWN,
        "the token is not known",
        hint="check that --url names the Steward that issued it, and that the token file holds its whole text; "
        "if so, ask an operator of the Steward for a new one",
    )


def find_newest_successor(unit: Unit, grant: Grant) -> Grant:
    """The token's last successor, or the token itself. Raises `token_revoked` if any token before it is revoked."""
    while grant.successor_id is not None:
        _require_unrevoked(grant)
        grant = get(unit, grant.successor_id)
    return grant


def require_live(grant: Grant, now_micros: int) -> None:
    """Raise `token_revoked`, `token_rotated` or `token_expired`. An `ended` token counts as rotated at any time."""
    _require_unrevoked(grant)
    if grant.replaced_micros is not None and (grant.ended or grant.replaced_micros <= now_micros):
        raise Code.TOKEN_ROTATED(token_id=grant.token_id, successor_id=str(grant.successor_id))
    if grant.expires_micros <= now_micros:
        raise Code.TOKEN_EXPIRED(got="an expired token", token_id=grant.token_id)


def _require_unrevoked(grant: Grant) -> None:
    # Not compared with a clock, which may lag: a revocation is never set for later.
    if grant.revoked_micros is not None:
        raise Code.TOKEN_REVOKED(token_id=grant.token_id)


def revoke(unit: Unit, token_id: str) -> Grant:
    """End a token, and all tokens derived from it, now. A second call changes nothing."""
    if lock(unit, token_id).revoked_micros is None:
        unit.update(tokens, {"token_id": token_id}, revoked_micros=unit.at_micros)
    return get(unit, token_id)


def replace(unit: Unit, token_id: str, successor_id: str, *, from_micros: int) -> None:
    """End a token at `from_micros`, or now if that is past. Tokens derived from it continue under the successor."""
    found = lock(unit, token_id)
    end = max(unit.at_micros, from_micros)
    if found.replaced_micros is not None:  # the earlier end stays
        end = min(end, found.replaced_micros)
    unit.update(tokens, {"token_id": token_id}, replaced_micros=end, successor_id=successor_id)


def lock(unit: Unit, token_id: str) -> Grant:
    """The token with that id, locked until the end of the unit. Raises `token_unknown`."""
    return _require_grant(unit.lock_row(tokens, token_id=token_id), token_id)


def get(unit: Unit, token_id: str) -> Grant:
    """The token with that id, even if it has ended. Raises `token_unknown`."""
    return _require_grant(unit.find(tokens, token_id=token_id), token_id)


def list_all(unit: Unit) -> list[Grant]:
    """Every token that was ever issued, without its text."""
    return [_to_grant(row) for row in unit.rows(select(tokens).order_by(tokens.c.at_micros, tokens.c.token_id))]


@dataclass(frozen=True, slots=True)
class TokenEnd:
    """When the last token of one holder (role, domain and name) ends. After a rotation that is the new token's end."""

    role: Role
    domain: str
    name: str
    end_micros: int


def list_ends(unit: Unit, *, now_micros: int) -> list[TokenEnd]:
    """When each holder's valid tokens end, derived tokens excluded."""
    holder = (tokens.c.role, tokens.c.domain, tokens.c.name)
    end: ColumnElement[int] = tokens.c.expires_micros
    for earlier in (tokens.c.revoked_micros, tokens.c.replaced_micros):
        end = case((earlier < end, earlier), else_=end)
    wanted = select(*holder, func.max(end).label("end_micros"))
    wanted = wanted.where(tokens.c.parent_id.is_(None), end > now_micros).group_by(*holder)
    return unit.records(TokenEnd, wanted)


def _require_grant(row: Row | None, token_id: str) -> Grant:
    if row is None:
        raise InputError(Code.TOKEN_UNKNOWN, "there is no token with this id", got=ascii(token_id[:80]))
    return _to_grant(row)


def _to_grant(row: Row) -> Grant:
    ended = row["replaced_micros"] is not None and row["replaced_micros"] <= row["at_micros"]
    return record_from(Grant, row, ended=ended)
