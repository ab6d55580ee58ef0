"""The receipt: the signed, logged statement of what a publication made visible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from pvdm.model.codec import DecimalText, Document, Id, Identity, JsonNumber, Sha256, Text, sorted_texts
from pvdm.model.fields import require_sha256
from pvdm.model.statements.table import TableRef

PROOFS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class Receipt(Document, title="the receipt"):
    """What became visible, and by which proofs. `override_id` is the override that waived the verdict, or None."""

    notary: Identity
    epoch: DecimalText
    workload_id: Id
    proof_ids: Annotated[tuple[str, ...], sorted_texts(1, PROOFS_MAX, each=require_sha256)]
    override_id: Sha256 | None
    table: TableRef
    branch: Text
    old_snapshot_id: DecimalText | None
    new_snapshot_id: DecimalText
    manifest_list_sha256: Sha256
    metadata_path: Text
    metadata_sha256: Sha256
    published_at: JsonNumber
