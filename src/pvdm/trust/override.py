"""Break-glass statements: signed by a key that does nothing else, for one FAIL proof, once, soon."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from pvdm.errors import Code, NotAllowedError, VerificationError
from pvdm.model.clock import shown_time
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.trust.refusal import refused
from pvdm.trust.root import RootKey, RootRole, TrustRoot
from pvdm.trust.verify import Verified, VerifiedProof, require_role, verify_signed

MAIN_MOVED: Final = (
    "nothing was published; main has moved: sign for a FAIL over the new base. A repair with the same bytes gives one; "
    "where no attempt is left, another workload id does"
)


def verify_override(
    data: bytes, root: TrustRoot, *, failed: VerifiedProof, now: int, used: Callable[[str], bool]
) -> Verified[BreakGlass]:
    """The override, once it is a break-glass key's word on exactly this FAIL proof; it waives check 4 only."""
    with disallowing():
        override = verify_signed(data, root, BreakGlass, now=now, require_role=require_break_glass)
        said = override.predicate
        require_failed(failed)
        require_table(said, failed)
        require_base(said, failed)
        require_proof(said, failed)
        require_files(said, failed)
        require_unexpired(said, now)
        require_unused(said, used)
        return override


@contextmanager
def disallowing() -> Iterator[None]:
    """An override that does not hold is not allowed (exit code 5), whatever is wrong with it."""
    try:
        yield
    except VerificationError as error:
        code = "override_unsigned" if error.code == Code.ENVELOPE_UNSIGNED else error.reason
        raise NotAllowedError(
            code,
            error.message,
            expected=error.expected,
            got=error.got,
            hint="nothing was published; the verdict stands",
            **error.details,
        ) from None


def require_break_glass(key: RootKey, role: RootRole) -> None:
    """The Steward cannot waive its own verdict: neither its signing key nor its log key counts."""
    require_not_steward(key)
    require_role(key, role)


def require_not_steward(key: RootKey) -> None:
    """Keys that are on the Steward."""
    if RootRole.NOTARY in key.roles or RootRole.LOG in key.roles:
        raise refused(
            "override_signed_by_steward",
            "the override is signed with a key of the Steward",
            "break-glass",
            key.identity,
        )


def require_failed(failed: VerifiedProof) -> None:
    """Only a FAIL can be waived."""
    if failed.core.verdict.passed:
        raise refused("override_of_pass", "there is no verdict to waive", "a FAIL proof", "PASS")


def require_table(said: BreakGlass, failed: VerifiedProof) -> None:
    """The table of the proof, by UUID, name and catalog."""
    if said.table != failed.core.target.table:
        table = failed.core.target.table
        raise refused("override_wrong_table", "the override is for another table", table.uuid, said.table.uuid)


def require_base(said: BreakGlass, failed: VerifiedProof) -> None:
    """The base on which the verdict was found."""
    base = failed.core.target.base_snapshot_id
    if said.base_snapshot_id != base:
        raise refused("override_wrong_base", "the override is for another base snapshot", base, said.base_snapshot_id)


def require_proof(said: BreakGlass, failed: VerifiedProof) -> None:
    """One of the proofs that were verified together."""
    if said.fail_proof_id not in failed.proof_ids:
        raise refused(
            "override_wrong_proof", "the override is for another proof", failed.proof_ids[0], said.fail_proof_id
        )


def require_files(said: BreakGlass, failed: VerifiedProof) -> None:
    """The exact bytes that failed."""
    if said.file_hashes != failed.core.files.staged_hashes:
        raise refused(
            "override_wrong_files",
            "the override is for other bytes",
            f"{len(failed.core.files.staged_hashes)} files of the proof",
            f"{len(said.file_hashes)} others",
        )


def require_unexpired(said: BreakGlass, now: int) -> None:
    """An override is for now."""
    if said.expires_at <= now:
        raise refused(
            "override_expired", "the override has expired", f"before {shown_time(said.expires_at)}", shown_time(now)
        )


def require_unused(said: BreakGlass, used: Callable[[str], bool]) -> None:
    """An override opens the glass once."""
    if used(said.nonce):
        raise refused(Code.OVERRIDE_REPLAYED, "the override was used before", "a new nonce", said.nonce)
