"""Operators' approvals, protections and migrations: signed by an operator's own key, in force for a short while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias, TypeVar

from pvdm.errors import Code, NotAllowedError, VerificationError
from pvdm.model.clock import shown_time
from pvdm.model.statements.migration import Migration, Protection
from pvdm.trust.refusal import refused
from pvdm.trust.root import RootKey, RootRole, TrustRoot
from pvdm.trust.verify import Verified, require_role, verify_signed

Approval: TypeAlias = Migration | Protection
A = TypeVar("A", Migration, Protection)

UNCHANGED: Final = "nothing was changed"


def verify_approval(data: bytes, root: TrustRoot, kind: type[A], *, now: int) -> Verified[A]:
    """The approval, once it is an operator's word that is still good; what it is about is judged by who applies it."""
    with disallowing():
        approval = verify_signed(data, root, kind, now=now, require_role=require_operator)
        require_unexpired(approval.predicate, now)
        return approval


@contextmanager
def disallowing() -> Iterator[None]:
    """An approval that does not hold is not allowed (exit code 5), whatever is wrong with it."""
    try:
        yield
    except VerificationError as error:
        code = "approval_unsigned" if error.code == Code.ENVELOPE_UNSIGNED else error.reason
        raise NotAllowedError(
            code, error.message, expected=error.expected, got=error.got, hint=UNCHANGED, **error.details
        ) from None


def require_operator(key: RootKey, role: RootRole) -> None:
    """The Steward cannot approve its own change: neither its signing key nor its log key counts."""
    require_not_steward(key)
    require_role(key, role)


def require_not_steward(key: RootKey) -> None:
    """Keys that are on the Steward."""
    if RootRole.NOTARY in key.roles or RootRole.LOG in key.roles:
        raise refused(
            "approval_signed_by_steward",
            "the approval is signed with a key of the Steward",
            RootRole.OPERATOR.value,
            key.identity,
        )


def require_unexpired(said: Approval, now: int) -> None:
    """An approval is for now."""
    if said.expires_at <= now:
        raise refused(
            "approval_expired", "the approval has expired", f"before {shown_time(said.expires_at)}", shown_time(now)
        )
