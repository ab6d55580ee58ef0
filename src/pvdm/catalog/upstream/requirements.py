"""What a commit that is forwarded requires: everything of the judged state that an upstream can compare."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pvdm.catalog.rule import ref_changes
from pvdm.lake.format.json.document import Json, canonical
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN


def pins(before: TableMetadata, refs: Iterable[str]) -> list[Json]:
    """UUID, `main`, these refs, schema, spec, order and the last ids are as they were judged."""
    found: list[Json] = [{"type": "assert-table-uuid", "uuid": str(before.table_uuid)}]
    found += [pin(before, name) for name in sorted({MAIN, *refs})]
    found += [
        {"type": "assert-current-schema-id", "current-schema-id": before.current_schema_id},
        {"type": "assert-default-spec-id", "default-spec-id": before.default_spec_id},
        {"type": "assert-default-sort-order-id", "default-sort-order-id": before.default_sort_order_id},
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": before.last_column_id},
        {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": before.last_partition_id},
    ]
    return found


def pin(before: TableMetadata, name: str) -> Json:
    """The ref is where it was, or still not there."""
    ref = before.refs.get(name)
    return {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": None if ref is None else ref.snapshot_id}


def pins_of(before: TableMetadata, after: TableMetadata, asked: Sequence[Json]) -> list[Json]:
    """The pins of a judged step, and what its client required itself."""
    found = pins(before, [change.name for change in ref_changes(before, after)])
    known = {canonical(each) for each in found}
    return [*found, *(each for each in asked if canonical(each) not in known)]
