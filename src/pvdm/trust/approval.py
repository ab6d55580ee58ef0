"""Checks operators' approvals and break-glass overrides. A `require_` function raises unless its docstring is true."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, TypedDict, TypeVar

from pvdm.errors import Code, VerificationError
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.claim_release import ClaimRelease
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.migration import Migration, Protection
from pvdm.trust.refusal import refused, require_equal
from pvdm.trust.root import RootRole, TrustedKey, TrustRoot
from pvdm.trust.verify import VerifiedProof, VerifiedStatement, require_role, require_unexpired, verify_statement

A = TypeVar("A", Migration, Protection, ClaimRelease)

VERDICT_UNCHANGED_HINT: Final = "nothing was published; the verdict is unchanged"
_HINTS: Final = {"approval": "nothing was changed", "override": VERDICT_UNCHANGED_HINT}
MAIN_MOVED_HINT: Final = (
    "nothing was published; main has moved: override a FAIL proof on the new base instead. A repair with the same "
    "bytes makes such a proof; if no attempt is left, use another workload id"
)


class SignerFields(TypedDict):
    """The fields that approvals and overrides have in common."""

    operator: str
    reason: str
    nonce: str
    issued_at: int
    expires_at: int


def signer_fields(operator: str, reason: str, *, now: int, lifetime_micros: int) -> SignerFields:
    """The signer, reason and times of an approval or override, with a new nonce."""
    nonce, expires_at = secrets.token_hex(16), now + lifetime_micros
    return SignerFields(operator=operator, reason=reason, nonce=nonce, issued_at=now, expires_at=expires_at)


def override_of(fail_proof_id: str, core: ProofCore, signer: SignerFields) -> BreakGlass:
    """The override of exactly one FAIL proof. It names the proof's table, base and files."""
    return BreakGlass(
        table=core.target.table,
        base_snapshot_id=core.target.base_snapshot_id,
        fail_proof_id=fail_proof_id,
        file_hashes=core.files.staged_hashes,
        **signer,
    )


def verify_approval(data: bytes, root: TrustRoot, kind: type[A], *, now: int) -> VerifiedStatement[A]:
    """The approval, signed by an operator and not expired. The caller compares it with the requested change."""
    with translate_refusals("approval"):
        approval = verify_statement(data, root, kind, now=now, check_role=partial(require_role_not_steward, "approval"))
        require_unexpired(approval.predicate.expires_at, now, "approval_expired", "the approval")
        return approval


def verify_override(
    data: bytes, root: TrustRoot, *, failed: VerifiedProof, now: int, used: Callable[[str], bool]
) -> VerifiedStatement[BreakGlass]:
    """The override, signed with a break-glass key for exactly this FAIL proof. `used` says whether a nonce was used."""
    with translate_refusals("override"):
        check_role = partial(require_role_not_steward, "override")
        override = verify_statement(data, root, BreakGlass, now=now, check_role=check_role)
        statement = override.predicate
        require_failed(failed)
        require_table(statement, failed)
        require_equal("override_wrong_base", failed.core.target.base_snapshot_id, statement.base_snapshot_id)
        require_proof(statement, failed)
        require_files(statement, failed)
        require_override_unexpired(statement, now)
        require_unused(statement, used)
        return override


def require_override_unexpired(override: BreakGlass, now: int) -> None:
    """The override has not expired."""
    with translate_refusals("override"):
        require_unexpired(override.expires_at, now, "override_expired", "the override")


@contextmanager
def translate_refusals(what: str) -> Iterator[None]:
    """Raise each `VerificationError` about an approval or an override as `NotAllowedError` (exit code 5)."""
    try:
        yield
    except VerificationError as error:
        reason = f"{what}_unsigned" if error.code == Code.ENVELOPE_UNSIGNED else None
        raise error.as_not_allowed(error.message, _HINTS[what], reason) from None


def require_role_not_steward(what: str, key: TrustedKey, role: RootRole) -> None:
    """The key has this role and is not the Steward's, because the Steward must not approve or waive its own work."""
    require_not_steward(key, what, role)
    require_role(key, role)


def require_not_steward(key: TrustedKey, what: str, expected: RootRole) -> None:
    """The key is neither the Steward's signing key nor its log key."""
    if RootRole.NOTARY in key.roles or RootRole.LOG in key.roles:
        message = f"the {what} is signed with a key of the Steward"
        raise refused(f"{what}_signed_by_steward", expected.value, key.identity, message=message)


def require_failed(failed: VerifiedProof) -> None:
    """The verdict to be waived is a FAIL."""
    if failed.core.verdict.passed:
        raise refused("override_of_pass", "a FAIL proof", "PASS")


def require_table(override: BreakGlass, failed: VerifiedProof) -> None:
    """The override names the table of the proof, by UUID, name and catalog."""
    table = failed.core.target.table
    if override.table != table:
        raise refused("override_wrong_table", table.uuid, override.table.uuid)


def require_proof(override: BreakGlass, failed: VerifiedProof) -> None:
    """The override names the proof of one of the notaries that signed this FAIL."""
    if override.fail_proof_id not in failed.proof_ids:
        raise refused("override_wrong_proof", failed.proof_ids[0], override.fail_proof_id)


def require_files(override: BreakGlass, failed: VerifiedProof) -> None:
    """The override names exactly the staged files that failed, by SHA-256."""
    hashes = failed.core.files.staged_hashes
    if override.file_hashes != hashes:
        got = f"{len(override.file_hashes)} other files"
        raise refused("override_wrong_files", f"{len(hashes)} files of the proof", got)


def require_unused(override: BreakGlass, used: Callable[[str], bool]) -> None:
    """The nonce of the override was not used before."""
    if used(override.nonce):
        raise refused(Code.OVERRIDE_REPLAYED, "a new nonce", override.nonce)
