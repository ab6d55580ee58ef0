"""Which log the trust root vouches for: the checker of a bundle's inclusion proofs. Calls `trust.log`."""

from __future__ import annotations

from pvdm.trust.log.note import NoteKey
from pvdm.trust.log.proof_file import LogProofChecker
from pvdm.trust.refusal import refused
from pvdm.trust.root import RootRole, TrustRoot


def log_checker(root: TrustRoot, *, origin: str) -> LogProofChecker:
    """The log of that origin, by every unrevoked key that the root names for it; old keys signed old notes."""
    keys = tuple(
        NoteKey(origin, key.public.der)
        for key in root.keys
        if RootRole.LOG in key.roles and key.identity == origin and key.revoked_at is None
    )
    if not keys:
        raise refused("log_key_missing", "the trust root names no key for this log", "a log key", origin)
    return LogProofChecker(origin, keys)
