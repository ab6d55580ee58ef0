"""Issues, rotates and revokes access tokens, and finds the grant of a token (what the token allows, until when)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pvdm.errors import Code
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import tokens
from pvdm.ledger.record.tokens import EVERY_DOMAIN, BearerToken, Grant, require_domain
from pvdm.ledger.work import attempts, workloads
from pvdm.model.fields import MICROS_PER_SECOND
from pvdm.model.role import Role
from pvdm.model.states import ATTEMPT

TOKEN_LIFETIME_MAX_SECONDS: Final = 31_536_000  # 365 days
TOKEN_OVERLAP_MAX_SECONDS: Final = 604_800  # 7 days
TOKEN_TEXT_MAX_CHARACTERS: Final = 256
ACCESS_TOKEN_SECONDS: Final = 3_600
ATTEMPT_TOKEN_SECONDS: Final = 3_600

# The grant of the Steward's own threads in the catalog. No token has it, and it never expires.
STEWARD_GRANT: Final = Grant("0" * 32, Role.STEWARD, EVERY_DOMAIN, name="steward", expires_micros=2**62)
# The role `steward` may change only protected tables. The Steward cleans up other tables with an operator's rights.
STEWARD_AS_OPERATOR_GRANT: Final = replace(STEWARD_GRANT, role=Role.OPERATOR)


class Access:
    """The tokens of one ledger. A derived token ends no later than its parent, or its parent's newest successor."""

    def __init__(self, ledger: Ledger, clock: LedgerClock) -> None:
        self._ledger = ledger
        self._clock = clock

    def issue(
        self, role: Role, *, domain: str, name: str, lifetime_seconds: int, drawn: BearerToken | None = None
    ) -> tuple[BearerToken, Grant]:
        """Issue a token, and return it with its grant. The token is `drawn`, if given, or a new random one."""
        now = self._clock.now_micros()
        expires = now + _lifetime_micros(lifetime_seconds)
        token = drawn or BearerToken.draw()

        def work(unit: Unit) -> Grant:
            return tokens.issue(
                unit, role, secret_sha256=token.sha256, domain=domain, name=name, expires_micros=expires
            )

        return token, self._ledger.transact(work, at_micros=now)

    def rotate(
        self,
        token_id: str,
        *,
        lifetime_seconds: int | None = None,
        overlap_seconds: int = 0,
        drawn: BearerToken | None = None,
    ) -> tuple[BearerToken, Grant]:
        """Issue a successor with the same rights, and by default the same lifetime; returns it with its grant.

        The old token ends after `overlap_seconds`. Tokens derived from it stay valid until the successor ends.
        """
        if not 0 <= overlap_seconds <= TOKEN_OVERLAP_MAX_SECONDS:
            expected, got = f"0 to {TOKEN_OVERLAP_MAX_SECONDS} seconds", str(overlap_seconds)
            raise Code.TOKEN_REQUEST_INVALID(reason="token_overlap_invalid", expected=expected, got=got)
        now = self._clock.now_micros()
        lifetime = None if lifetime_seconds is None else _lifetime_micros(lifetime_seconds)
        token = drawn or BearerToken.draw()

        def work(unit: Unit) -> Grant:
            old = tokens.lock(unit, token_id)
            _require_not_derived(old)
            tokens.require_live(old, now)
            expires = now + (old.expires_micros - old.issued_micros if lifetime is None else lifetime)
            successor = tokens.issue(
                unit, old.role, secret_sha256=token.sha256, domain=old.domain, name=old.name, expires_micros=expires
            )
            tokens.replace(unit, token_id, successor.token_id, from_micros=now + overlap_seconds * MICROS_PER_SECOND)
            return successor

        return token, self._ledger.transact(work, at_micros=now)

    def revoke(self, token_id: str) -> Grant:
        """Revoke a token and all tokens derived from it. Works even before a clock jump is confirmed."""
        now = self._clock.trusted_micros()
        return self._ledger.transact(lambda unit: tokens.revoke(unit, token_id), at_micros=now)

    def list_tokens(self) -> list[Grant]:
        """Every token ever issued, without its secret."""
        with self._ledger.read() as unit:
            return tokens.list_all(unit)

    def authenticate(self, text: str) -> Grant:
        """The grant of a token. Raises if the token is not valid now. Works even before a clock jump is confirmed."""
        token = BearerToken(text)
        is_well_formed = 0 < len(text) <= TOKEN_TEXT_MAX_CHARACTERS and text.isascii()
        # Error reports may show the locals of each frame, so the secret is deleted from this frame.
        del text
        if not is_well_formed:
            raise tokens.unknown_token_error()
        now = self._clock.trusted_micros()
        with self._ledger.read() as unit:
            grant = tokens.check(unit, token, now_micros=now)
            if grant.attempt_id is not None:
                attempts.require_leased(unit, attempts.get(unit, grant.attempt_id), now_micros=now)
            return grant

    def exchange(self, client_id: str, client_secret: str) -> tuple[BearerToken, Grant]:
        """Exchange a long-lived token, given as its id and secret, for a short-lived one with the same rights."""
        # Error reports may show the locals of this frame. So the secret is moved to a list, and `pop` empties the list.
        secret, client_secret = [client_secret], ""
        parent = self.authenticate(secret.pop())
        if parent.token_id != client_id:
            raise tokens.unknown_token_error()
        _require_not_derived(parent)
        token = BearerToken.draw()
        return token, self._derive(parent, token.sha256, seconds=ACCESS_TOKEN_SECONDS, attempt_id=None)

    def issue_attempt_token(self, grant: Grant, attempt_id: str, secret_sha256: str) -> Grant:
        """Issue a token that is valid only for one live attempt of the caller's domain; returns its grant.

        The token of a run's attempt is valid while the run holds the workload's lease. The caller draws the secret and
        sends its hash, so a repeated request returns the same grant.
        """
        _require_not_derived(grant)
        return self._derive(grant, secret_sha256, seconds=ATTEMPT_TOKEN_SECONDS, attempt_id=attempt_id)

    def _derive(self, parent: Grant, secret_sha256: str, *, seconds: int, attempt_id: str | None) -> Grant:
        now = self._clock.now_micros()

        def work(unit: Unit) -> Grant:
            # If the parent was rotated, its newest successor limits the lifetime.
            newest = tokens.find_newest_successor(unit, parent)
            tokens.require_live(newest, now)
            expires = min(newest.expires_micros, now + seconds * MICROS_PER_SECOND)
            if attempt_id is not None:
                attempt = attempts.get(unit, attempt_id)
                if attempt.lease_number is not None:
                    attempts.require_leased(unit, attempt, now_micros=now)
                    expires = newest.expires_micros
                require_domain(parent, workloads.get(unit, attempt.workload_id).opening.domain)
                if attempt.state not in ATTEMPT.live():
                    raise Code.ATTEMPT_ENDED(expected=", ".join(ATTEMPT.live()), got=attempt.state)
                unit.lock_name(f"token {secret_sha256}")  # of two equal requests, the second finds the first's token
                issued = tokens.find_issued(unit, secret_sha256, parent=newest, attempt_id=attempt_id)
                if issued is not None:
                    tokens.require_live(issued, now)
                    return issued
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


def refuse_attempt_token(grant: Grant, *, allowed_attempt_id: str | None = None) -> None:
    """Raise if the token is valid for one attempt only, and that is not the attempt `allowed_attempt_id`."""
    if grant.attempt_id is not None and grant.attempt_id != allowed_attempt_id:
        raise Code.PERMISSION_DENIED(reason="token_of_other_attempt", expected=grant.attempt_id, got="another")


def visible_domain(grant: Grant) -> str | None:
    """The domain that the caller's listings are limited to; None for all domains."""
    return None if grant.domain == EVERY_DOMAIN else grant.domain


def _require_not_derived(grant: Grant) -> None:
    if grant.parent_id is not None:
        raise Code.PERMISSION_DENIED(reason="token_derived", got="a derived token")


def _lifetime_micros(seconds: int) -> int:
    if not 1 <= seconds <= TOKEN_LIFETIME_MAX_SECONDS:
        expected = f"1 to {TOKEN_LIFETIME_MAX_SECONDS} seconds"
        raise Code.TOKEN_REQUEST_INVALID(reason="token_lifetime_invalid", expected=expected, got=str(seconds))
    return seconds * MICROS_PER_SECOND
