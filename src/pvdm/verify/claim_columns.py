"""What two claims are compared by: the id of the column that they are on, never its name.

A claim on a column that the target shows, and that proofs cover, is about the target's own rows. It is named by the
target's field id, and holds whatever source the rows came from. A claim on a column that the target does not show says
nothing about the target's rows. It is named by the source and by the column's id there, and cannot be compared with
claims of another source.

A column that was dropped and added again has another id, though its name is the same: its old claims cannot be
compared with new ones, and are taken to overlap. Rows that were published under the old id show null under the new one,
so that nothing in the target tells any more which part they were.
"""

from __future__ import annotations

from pvdm.model.contract import BoundContract
from pvdm.model.filter.claim import Claim
from pvdm.model.schema import Schema


def with_source_column(bound: BoundContract, claim: Claim, source_uuid: str, source: Schema) -> Claim:
    """The claim on its column of this source; a set of files has columns by name alone, as its files are read."""
    column = bound.contract.boundary.claim
    if column is None:
        return claim
    field_id = source.column(column).field_id
    if bound.contract.boundary.source.manifest is not None or field_id is None:
        return claim.of_column(f"source {source_uuid} column {column}")
    return claim.of_column(f"source {source_uuid} field {field_id}")


def with_target_column(bound: BoundContract, claim: Claim, target: Schema) -> Claim:
    """The claim on the target's column that its own column fills; unchanged where no such column is proved.

    Of several that it fills the one with the lowest id counts.
    """
    boundary = bound.contract.boundary
    if boundary.claim is None:
        return claim
    columns = boundary.mapping.columns
    filled = {boundary.claim} if columns is None else {c.target for c in columns if c.source == boundary.claim}
    filled -= {name for name, _ in bound.contract.projections.excluded}
    found = [each.field_id for each in target.fields if each.name in filled and each.field_id is not None]
    return claim.of_column(f"target field {min(found)}") if found else claim
