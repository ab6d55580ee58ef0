"""Claim releases: operators sign that a claim which a restore has lost no longer blocks other claims on its table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pvdm.model.codec import Document, Id, Identity, JsonNumber, Random, Sha256, Text, sorted_texts
from pvdm.model.fields import invalid, require_sha256
from pvdm.model.statements.migration import require_approval_lifetime
from pvdm.model.statements.receipt import PROOFS_MAX
from pvdm.model.statements.table import TableRef


@dataclass(frozen=True, slots=True)
class ClaimRelease(Document, title="the claim release"):
    """A named operator releases the lost claim of one publication, which then blocks no other workload's claim.

    `receipt_id` and `proof_ids` are what the restore found of the publication; without a receipt it found one proof.
    `restore_id` is the last restore before the release.
    """

    operator: Identity
    reason: Text
    table: TableRef
    workload_id: Id
    receipt_id: Sha256 | None
    proof_ids: Annotated[tuple[str, ...], sorted_texts(1, PROOFS_MAX, each=require_sha256)]
    restore_id: Sha256
    nonce: Random
    issued_at: JsonNumber
    expires_at: JsonNumber

    @property
    def publication_id(self) -> str:
        """The id of the publication's receipt, or of its proof if it has no receipt."""
        return self.receipt_id or self.proof_ids[0]

    def require_consistent(self) -> None:
        """Raise if the lifetime is not allowed, or if a release without a receipt names several proofs or none."""
        require_approval_lifetime(self.issued_at, self.expires_at)
        if self.receipt_id is None and len(self.proof_ids) != 1:
            raise invalid("the proofs of a claim release without a receipt", "one", str(len(self.proof_ids)))
