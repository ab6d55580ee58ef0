"""Which log the trust root vouches for: the checker of a bundle's inclusion proofs. Calls `trust.log`."""

from __future__ import annotations

from pvdm.errors import Code
from pvdm.trust.log.note import NoteKey
from pvdm.trust.log.proof_file import LogProofChecker
from pvdm.trust.refusal import refused
from pvdm.trust.root import RootRole, TrustRoot


def origin_of(root: TrustRoot, origin: str | None) -> str:
    """The log that is meant: the one named, or the only one that the root knows."""
    if origin is not None:
        return origin
    known = sorted({key.identity for key in root.keys if RootRole.LOG in key.roles})
    if len(known) != 1:
        raise Code.ORIGIN_AMBIGUOUS(
            "it is not clear which log is meant",
            expected="one log in the trust root, or the origin of one",
            got=", ".join(known) or "none",
            hint="name the log: --origin on the command line, `origin` in Python",
        )
    return known[0]


def log_checker(root: TrustRoot, *, origin: str) -> LogProofChecker:
    """The log of that origin, by every unrevoked key that the root names for it; old keys signed old notes."""
    keys = tuple(
        NoteKey(origin, key.public.der)
        for key in root.keys
        if RootRole.LOG in key.roles and key.identity == origin and key.revoked_at is None
    )
    if not keys:
        raise refused(Code.LOG_KEY_MISSING, "the trust root names no key for this log", "a log key", origin)
    return LogProofChecker(origin, keys)
