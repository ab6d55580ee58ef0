"""Break-glass: the only override of a verdict, bound to one FAIL proof and to the hashes of its staged files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from pvdm.model.codec import DecimalText, Document, FieldType, Identity, JsonNumber, Random, Sha256, Text
from pvdm.model.fields import MICROS_PER_SECOND, Fields, invalid, require_lifetime, require_sha256
from pvdm.model.statements.core import FILES_MAX
from pvdm.model.statements.table import TableRef

OVERRIDE_LIFETIME_MAX_MICROS: Final = 24 * 3600 * MICROS_PER_SECOND


def _require_hashes(hashes: tuple[str, ...], what: str) -> None:
    """Raise unless the hashes are in order. Files with equal bytes have the same hash, so a hash can occur twice."""
    if len(hashes) > FILES_MAX or list(hashes) != sorted(hashes):
        raise invalid(what, f"at most {FILES_MAX}, in order", str(len(hashes)))
    for sha256 in hashes:
        require_sha256(sha256, what)


@dataclass(frozen=True, slots=True)
class BreakGlass(Document, title="the break-glass statement"):
    """A named operator's permission to publish the files with these hashes although verification failed."""

    operator: Identity
    reason: Text
    table: TableRef
    base_snapshot_id: DecimalText | None  # as in the FAIL proof; None: `main` was empty
    fail_proof_id: Sha256
    file_hashes: Annotated[tuple[str, ...], FieldType(Fields.texts, list, _require_hashes)]  # of the staged files
    nonce: Random
    issued_at: JsonNumber
    expires_at: JsonNumber

    def require_consistent(self) -> None:
        """An override expires within a day, so that none is signed in advance."""
        lifetime = self.expires_at - self.issued_at
        require_lifetime(lifetime, OVERRIDE_LIFETIME_MAX_MICROS, "override_lifetime_invalid", "the override")
