"""Break-glass: the one sanctioned override of a verdict, bound to one FAIL proof and its exact bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pvdm.errors import Code, InputError
from pvdm.model.canonical_json import Value
from pvdm.model.fields import (
    Fields,
    decimal,
    invalid,
    require_form,
    require_long,
    require_number,
    require_random,
    require_sha256,
    require_text,
)
from pvdm.model.statements.files import FILES_MAX
from pvdm.model.statements.table import TableRef

OVERRIDE_LIFETIME_MAX_MICROS: Final = 24 * 3600 * 1_000_000


@dataclass(frozen=True, slots=True)
class BreakGlass:
    """A named operator's word that these bytes, which failed, are to be published all the same."""

    operator: str
    reason: str
    table: TableRef
    base_snapshot_id: int | None
    fail_proof_id: str
    file_hashes: tuple[str, ...]
    nonce: str
    issued_at: int
    expires_at: int

    def __post_init__(self) -> None:
        require_form(self.operator, "identity", "the operator")
        require_text(self.reason, "the reason")
        if self.base_snapshot_id is not None:
            require_long(self.base_snapshot_id, "the base snapshot")
        require_sha256(self.fail_proof_id, "the id of the FAIL proof")
        if len(self.file_hashes) > FILES_MAX or list(self.file_hashes) != sorted(self.file_hashes):
            raise invalid("the file hashes", f"at most {FILES_MAX}, in order", str(len(self.file_hashes)))
        for sha256 in self.file_hashes:
            require_sha256(sha256, "the hash of a file")
        require_random(self.nonce, "the nonce")
        require_number(self.issued_at, "the time of issue")
        require_number(self.expires_at, "the time of expiry")
        require_override_lifetime(self.issued_at, self.expires_at)

    def to_json(self) -> dict[str, Value]:
        """The predicate."""
        return {
            "operator": self.operator,
            "reason": self.reason,
            "table": self.table.to_json(),
            "base_snapshot_id": decimal(self.base_snapshot_id),
            "fail_proof_id": self.fail_proof_id,
            "file_hashes": list(self.file_hashes),
            "nonce": self.nonce,
            "issued_at": self.issued_at,
            "expires_at": self.expires_at,
        }

    @classmethod
    def from_json(cls, value: Value) -> BreakGlass:
        """The override that `to_json` wrote."""
        fields = Fields(value, "the break-glass statement", cls.__slots__)
        return cls(
            fields.text("operator"),
            fields.text("reason"),
            TableRef.from_json(fields.value("table")),
            fields.optional_decimal("base_snapshot_id"),
            fields.text("fail_proof_id"),
            fields.texts("file_hashes"),
            fields.text("nonce"),
            fields.number("issued_at"),
            fields.number("expires_at"),
        )


def require_override_lifetime(issued_at: int, expires_at: int) -> None:
    """An override is for now: it cannot be made in advance and kept."""
    if not 0 < expires_at - issued_at <= OVERRIDE_LIFETIME_MAX_MICROS:
        raise InputError(
            Code.OVERRIDE_LIFETIME_INVALID,
            "the override's lifetime cannot be accepted",
            expected=f"more than 0 and at most {OVERRIDE_LIFETIME_MAX_MICROS} microseconds",
            got=str(expires_at - issued_at),
        )
