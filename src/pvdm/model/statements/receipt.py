"""The receipt: the signed, logged statement of what a publication made visible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pvdm.model.canonical_json import Value
from pvdm.model.fields import (
    Fields,
    decimal,
    require_form,
    require_long,
    require_number,
    require_sequence,
    require_sha256,
    require_text,
)
from pvdm.model.statements.table import TableRef

PROOFS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became visible: by which proofs, from which snapshot to which, with the hashes of the metadata."""

    notary: str
    epoch: int
    workload_id: str
    proof_ids: tuple[str, ...]
    override_id: str | None
    table: TableRef
    branch: str
    old_snapshot_id: int | None
    new_snapshot_id: int
    manifest_list_sha256: str
    metadata_path: str
    metadata_sha256: str
    published_at: int

    def __post_init__(self) -> None:
        require_form(self.notary, "identity", "the notary")
        require_long(self.epoch, "the epoch")
        require_form(self.workload_id, "id", "the workload id")
        require_sequence(self.proof_ids, "the proof ids", least=1, most=PROOFS_MAX)
        hashes = [*self.proof_ids, self.manifest_list_sha256, self.metadata_sha256]
        for sha256 in hashes if self.override_id is None else [*hashes, self.override_id]:
            require_sha256(sha256, "a hash of the receipt")
        require_text(self.branch, "the branch")
        if self.old_snapshot_id is not None:
            require_long(self.old_snapshot_id, "the old snapshot")
        require_long(self.new_snapshot_id, "the new snapshot")
        require_text(self.metadata_path, "the metadata path")
        require_number(self.published_at, "the time of publication")

    def to_json(self) -> dict[str, Value]:
        """The predicate; `override_id` is the break-glass statement that waived the verdict, or null."""
        return {
            "notary": self.notary,
            "epoch": decimal(self.epoch),
            "workload_id": self.workload_id,
            "proof_ids": list(self.proof_ids),
            "override_id": self.override_id,
            "table": self.table.to_json(),
            "branch": self.branch,
            "old_snapshot_id": decimal(self.old_snapshot_id),
            "new_snapshot_id": decimal(self.new_snapshot_id),
            "manifest_list_sha256": self.manifest_list_sha256,
            "metadata_path": self.metadata_path,
            "metadata_sha256": self.metadata_sha256,
            "published_at": self.published_at,
        }

    @classmethod
    def from_json(cls, value: Value) -> Receipt:
        """The receipt that `to_json` wrote."""
        fields = Fields(value, "the receipt", cls.__slots__)
        return cls(
            fields.text("notary"),
            fields.decimal("epoch"),
            fields.text("workload_id"),
            fields.texts("proof_ids"),
            fields.optional_text("override_id"),
            TableRef.from_json(fields.value("table")),
            fields.text("branch"),
            fields.optional_decimal("old_snapshot_id"),
            fields.decimal("new_snapshot_id"),
            fields.text("manifest_list_sha256"),
            fields.text("metadata_path"),
            fields.text("metadata_sha256"),
            fields.number("published_at"),
        )
