"""Makes and checks commitments: keyed hashes that a proof has in place of the secret digests."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from pvdm.digest.partial import Partial
from pvdm.digest.plan import framed
from pvdm.errors import Code
from pvdm.model.secret import CommitmentKey
from pvdm.trust.refusal import refused

_LABEL: Final = b"pvdm/commitment/v1\0"


def commit(key: CommitmentKey, digest: Partial) -> str:
    """HMAC-SHA256 over context, row count and sum (spec/proof.md section 5). Equal digests give equal commitments."""
    if key.epoch != digest.epoch:
        raise Code.COMMITMENT_EPOCH_MISMATCH(expected=str(key.epoch), got=str(digest.epoch))
    names = (digest.construction.value, digest.mode.value, digest.projection.value)
    context = b"".join(map(framed, (*(name.encode() for name in names), digest.fingerprint)))
    message = _LABEL + context + digest.rows.to_bytes(8, "big") + digest.total.to_bytes(32, "big")
    return hmac.digest(key.reveal(), message, hashlib.sha256).hex()


def require_commitment_to(commitment: str, key: CommitmentKey, digest: Partial) -> None:
    """Raise `commitment_not_opened` unless the commitment is to this digest, under this key."""
    if not hmac.compare_digest(commitment.encode(), commit(key, digest).encode()):
        message = f"the {digest.projection.value} digest is not the one that the proof commits to"
        raise refused(Code.COMMITMENT_NOT_OPENED, "the committed digest", "another digest", message=message)
