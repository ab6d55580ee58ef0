"""Source attestation: a source domain's own word on one of its snapshots: how many rows, and a commitment to them."""

from __future__ import annotations

from dataclasses import dataclass

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
)
from pvdm.model.projection import ProjectionName
from pvdm.model.statements.core import CONSTRUCTIONS, MODES
from pvdm.model.statements.table import TableRef


@dataclass(frozen=True, slots=True)
class SourceAttestation:
    """Rows of one source snapshot and a commitment to their digest, under a key that the producer does not have."""

    attestor: str
    table: TableRef
    snapshot_id: int
    row_count: int
    projection: ProjectionName
    schema_fingerprint: str
    mode: str
    construction: str
    epoch: int
    nonce: str
    commitment: str
    issued_at: int

    def __post_init__(self) -> None:
        require_form(self.attestor, "identity", "the attestor")
        require_long(self.snapshot_id, "the source snapshot")
        require_long(self.row_count, "the row count")
        require_sha256(self.schema_fingerprint, "the schema fingerprint")
        if self.mode not in MODES:
            raise invalid("the mode", " or ".join(MODES), repr(self.mode[:64]))
        if self.construction not in CONSTRUCTIONS:
            raise invalid("the construction", " or ".join(CONSTRUCTIONS), repr(self.construction[:64]))
        require_long(self.epoch, "the epoch")
        require_random(self.nonce, "the nonce")
        require_sha256(self.commitment, "the commitment")
        require_number(self.issued_at, "the time of issue")

    def to_json(self) -> dict[str, Value]:
        """The predicate."""
        return {
            "attestor": self.attestor,
            "table": self.table.to_json(),
            "snapshot_id": decimal(self.snapshot_id),
            "row_count": decimal(self.row_count),
            "projection": self.projection.value,
            "schema_fingerprint": self.schema_fingerprint,
            "mode": self.mode,
            "construction": self.construction,
            "epoch": decimal(self.epoch),
            "nonce": self.nonce,
            "commitment": self.commitment,
            "issued_at": self.issued_at,
        }

    @classmethod
    def from_json(cls, value: Value) -> SourceAttestation:
        """The attestation that `to_json` wrote."""
        fields = Fields(value, "the source attestation", cls.__slots__)
        return cls(
            fields.text("attestor"),
            TableRef.from_json(fields.value("table")),
            fields.decimal("snapshot_id"),
            fields.decimal("row_count"),
            fields.choice("projection", ProjectionName),
            fields.text("schema_fingerprint"),
            fields.text("mode"),
            fields.text("construction"),
            fields.decimal("epoch"),
            fields.text("nonce"),
            fields.text("commitment"),
            fields.number("issued_at"),
        )
