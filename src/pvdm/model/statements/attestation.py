"""Source attestation: a source's signed statement about the rows of one of its snapshots (spec/digest.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pvdm.model.codec import DecimalText, Document, Identity, JsonNumber, Random, Sha256, one_of
from pvdm.model.projection import ProjectionName
from pvdm.model.statements.core import CONSTRUCTIONS, MODES
from pvdm.model.statements.table import TableRef


@dataclass(frozen=True, slots=True)
class SourceAttestation(Document, title="the source attestation"):
    """The row count of one source snapshot, and a commitment: a keyed hash of its digest. No producer has the key."""

    attestor: Identity
    table: TableRef
    snapshot_id: DecimalText
    row_count: DecimalText
    projection: ProjectionName
    schema_fingerprint: Sha256
    mode: Annotated[str, one_of(*MODES)]
    construction: Annotated[str, one_of(*CONSTRUCTIONS)]
    epoch: DecimalText
    nonce: Random
    commitment: Sha256
    issued_at: JsonNumber
