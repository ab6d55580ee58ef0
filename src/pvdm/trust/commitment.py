"""Commitments, which a proof has instead of digests, and their check against a digest."""

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
    """HMAC-SHA256 over context, rows and sum (spec/proof.md section 5). Equal digests give equal commitments."""
    if key.epoch != digest.epoch:
        raise Code.COMMITMENT_EPOCH_MISMATCH(expected=str(key.epoch), got=str(digest.epoch))
    context = b"".join(
        framed(part)
        for part in (
            digest.construction.value.encode(),
            digest.mode.value.encode(),
            digest.projection.value.encode(),
            digest.fingerprint,
        )
    )
    message = _LABEL + context + digest.rows.to_bytes(8, "big") + digest.total.to_bytes(32, "big")
    return hmac.digest(key.reveal(), message, hashlib.sha256).hex()


def require_opens(commitment: str, key: CommitmentKey, digest: Partial) -> None:
    """The commitment is of this digest under this key. Raises `commitment_not_opened`."""
    if not hmac.compare_digest(commitment.encode(), commit(key, digest).encode()):
        message = f"the {digest.projection.value} digest is not the one that was committed to"
        raise refused(Code.COMMITMENT_NOT_OPENED, "the committed digest", "another one", message=message)
