"""Who may come in: tokens are issued, rotated and revoked here, and a caller's word becomes a grant."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pvdm.errors import InputError, NotAllowedError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import tokens
from pvdm.ledger.record.tokens import EVERY_DOMAIN, BearerToken, Grant
from pvdm.ledger.work import attempts, workloads
from pvdm.model.role import Role
from pvdm.model.states import ATTEMPT

TOKEN_LIFETIME_MAX_SECONDS: Final = 31_536_000
TOKEN_OVERLAP_MAX_SECONDS: Final = 604_800
TOKEN_TEXT_MAX_CHARACTERS: Final = 256
ACCESS_TOKEN_SECONDS: Final = 3_600
ATTEMPT_TOKEN_SECONDS: Final = 3_600

_MICROS: Final = 1_000_000
# What the Steward's own threads do in the catalog, they do as this; no token has it, so nobody comes in by it.
OWN: Final = Grant("0" * 32, Role.STEWARD, EVERY_DOMAIN, "steward", 2**62)
# The role of a Steward is for protected tables; a table that lost its protection is cleaned up by an operator's rights.
OWN_WHERE_UNPROTECTED: Final = replace(OWN, role=Role.OPERATOR)


class Access:
    """The tokens of one ledger."""

    def __init__(self, ledger: Ledger, clock: LedgerClock) -> None:
        self._ledger = ledger
        self._clock = clock

    def issue(
        self, role: Role, *, domain: str, name: str, lifetime_seconds: int, drawn: BearerToken | None = None
    ) -> tuple[BearerToken, Grant]:
        """Issue a new token; gives its text, which is `drawn` if the caller has drawn one."""
        now = self._clock.now_micros()
        expires = now + _lifetime(lifetime_seconds)
        token = drawn or BearerToken.draw()

        def work(unit: Unit) -> Grant:
            whose = {"domain": domain, "name": name}
            return tokens.issue(unit, role, secret_sha256=token.sha256, **whose, expires_micros=expires)

        return token, self._ledger.transact(work, at_micros=now)

    def rotate(
        self,
        token_id: str,
        *,
        lifetime_seconds: int | None = None,
        overlap_seconds: int = 0,
        drawn: BearerToken | None = None,
    ) -> tuple[BearerToken, Grant]:
        """A successor with the same rights, for as long as the old token was issued for unless `lifetime_seconds` says.

        The old token ends after the overlap. What was derived from it goes on, and ends with the successor.
        """
        if not 0 <= overlap_seconds <= TOKEN_OVERLAP_MAX_SECONDS:
            raise InputError(
                "token_overlap_invalid",
                "the overlap cannot be accepted",
                expected=f"0 to {TOKEN_OVERLAP_MAX_SECONDS} seconds",
                got=str(overlap_seconds),
            )
        now = self._clock.now_micros()
        asked = None if lifetime_seconds is None else _lifetime(lifetime_seconds)

        token = drawn or BearerToken.draw()

        def work(unit: Unit) -> Grant:
            old = tokens.lock(unit, token_id)
            _require_own(old)
            tokens.require_live(old, now)
            expires = now + (old.life_micros if asked is None else asked)
            whose = {"domain": old.domain, "name": old.name}
            made = tokens.issue(unit, old.role, secret_sha256=token.sha256, **whose, expires_micros=expires)
            tokens.replace(unit, token_id, made.token_id, from_micros=now + overlap_seconds * _MICROS)
            return made

        return token, self._ledger.transact(work, at_micros=now)

    def revoke(self, token_id: str) -> Grant:
        """End a token, and all that were derived from it, now; also while the time is in doubt."""
        now = self._clock.trusted_micros()
        return self._ledger.transact(lambda unit: tokens.revoke(unit, token_id), at_micros=now)

    def listed(self) -> list[Grant]:
        """Every token that was ever issued, without its text."""
        with self._ledger.read() as unit:
            return tokens.list_all(unit)

    def authenticate(self, text: str) -> Grant:
        """What the bearer may do. The trusted time serves: after a jump an operator must still get in to confirm it."""
        token = BearerToken(text)
        possible = 0 < len(text) <= TOKEN_TEXT_MAX_CHARACTERS and text.isascii()
        # An error may be shown with the locals of its frames: the text must not be among them.
        del text
        if not possible:
            raise tokens.unknown_token_error()
        now = self._clock.trusted_micros()
        with self._ledger.read() as unit:
            return tokens.check(unit, token, now_micros=now)

    def exchange(self, client_id: str, client_secret: str) -> tuple[BearerToken, Grant]:
        """A short-lived token with the rights of a long-lived one: its id is the client id, its text the secret."""
        given, client_secret = [client_secret], ""
        parent = self.authenticate(given.pop())
        if parent.token_id != client_id:
            raise tokens.unknown_token_error()
        _require_own(parent)
        token = BearerToken.draw()
        return token, self._derived(parent, token.sha256, seconds=ACCESS_TOKEN_SECONDS, attempt_id=None)

    def attempt_token(self, grant: Grant, attempt_id: str, secret_sha256: str) -> Grant:
        """A short-lived token that is good for one live attempt of the bearer's domain and for nothing else.

        The bearer draws its text and sends the hash, so the same request again finds the same token.
        """
        _require_own(grant)
        return self._derived(grant, secret_sha256, seconds=ATTEMPT_TOKEN_SECONDS, attempt_id=attempt_id)

    def _derived(self, parent: Grant, secret_sha256: str, *, seconds: int, attempt_id: str | None) -> Grant:
        now = self._clock.now_micros()

        def work(unit: Unit) -> Grant:
            # In the overlap of a rotation the successor is there already, and what is derived now goes on under it.
            lasting = tokens.newest(unit, parent)
            tokens.require_live(lasting, now)
            expires = min(lasting.expires_micros, now + seconds * _MICROS)
            if attempt_id is not None:
                _require_live_attempt(unit, parent, attempt_id)
                unit.lock_name(f"token {secret_sha256}")
                before = tokens.find_issued(unit, secret_sha256, lasting=lasting, attempt_id=attempt_id)
                if before is not None:
                    tokens.require_live(before, now)
                    return before
            return tokens.issue(
                unit,
                parent.role,
                secret_sha256=secret_sha256,
                domain=parent.domain,
                name=parent.name,
                expires_micros=expires,
                attempt_id=attempt_id,
                parent_id=parent.token_id,
            )

        return self._ledger.transact(work, at_micros=now)


def require_domain(grant: Grant, domain: str) -> None:
    """Another domain's objects are nobody else's business."""
    if not grant.reaches(domain):
        raise NotAllowedError(
            "domain_wrong",
            "this belongs to another domain",
            expected="a token of the domain that owns it",
            got=f"one of the domain {grant.domain}",
            hint="use a token of the domain that owns it",
        )


def require_attempt(grant: Grant, attempt_id: str | None) -> None:
    """A token for one attempt opens that attempt only."""
    if grant.attempt_id is not None and grant.attempt_id != attempt_id:
        raise NotAllowedError(
            "token_of_other_attempt", "the token is good for one attempt only", expected=grant.attempt_id, got="another"
        )


def scope(grant: Grant) -> str | None:
    """The domain that a listing is limited to; None for all of them."""
    return None if grant.domain == EVERY_DOMAIN else grant.domain


def _require_own(grant: Grant) -> None:
    if grant.parent_id is not None:
        raise NotAllowedError(
            "token_derived",
            "a short-lived token makes no further tokens",
            expected="the token it was derived from",
            got="a derived token",
        )


def _require_live_attempt(unit: Unit, grant: Grant, attempt_id: str) -> None:
    attempt = attempts.get(unit, attempt_id)
    require_domain(grant, workloads.get(unit, attempt.workload_id).opening.domain)
    if attempt.state not in ATTEMPT.live():
        raise NotAllowedError(
            "attempt_ended", "the attempt has ended", expected=", ".join(ATTEMPT.live()), got=attempt.state
        )


def _lifetime(seconds: int) -> int:
    if not 1 <= seconds <= TOKEN_LIFETIME_MAX_SECONDS:
        raise InputError(
            "token_lifetime_invalid",
            "the token's lifetime cannot be accepted",
            expected=f"1 to {TOKEN_LIFETIME_MAX_SECONDS} seconds",
            got=str(seconds),
        )
    return seconds * _MICROS
