"""Sights: what a role is shown of a table; a consumer's holds no staging ref and no unpublished snapshot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from pvdm.lake.format.document import Json
from pvdm.lake.format.metadata import TableMetadata
from pvdm.lake.format.snapshots import MAIN, RefType, Snapshot
from pvdm.model.role import Role

_WHOLE = frozenset({Role.PRODUCER, Role.OPERATOR, Role.AUDITOR})


def sees_all(role: Role) -> bool:
    """Whether the role is shown the whole document."""
    return role in _WHOLE


def published(metadata: TableMetadata) -> TableMetadata:
    """The table as consumers see it: main, its ancestry, tags into it, and what belongs to these."""
    current = metadata.current_snapshot_id
    ancestry = [] if current is None else list(metadata.ancestry(current))
    shown = {snapshot.snapshot_id for snapshot in ancestry}
    tags = {name for name, ref in metadata.refs.items() if ref.type is RefType.TAG and ref.snapshot_id in shown}
    raw = metadata.to_json()
    _keep(raw, "snapshots", lambda each: each.get("snapshot-id") in shown)
    _keep(raw, "snapshot-log", lambda each: each.get("snapshot-id") in shown)
    _keep(raw, "statistics", lambda each: _named(each) <= shown)
    _keep(raw, "partition-statistics", lambda each: _named(each) <= shown)
    schemas = {metadata.current_schema_id} | {snapshot.schema_id for snapshot in ancestry}
    _keep(raw, "schemas", lambda each: each.get("schema-id", 0) in schemas)
    refs = raw.get("refs")
    if isinstance(refs, Mapping):
        raw["refs"] = {name: ref for name, ref in refs.items() if name == MAIN or name in tags}
    # Older files of the Steward hold what was staged at their time: their names are nobody's business.
    raw["metadata-log"] = []
    return TableMetadata.from_json(raw | _counters(metadata, ancestry, schemas))


def _counters(
    metadata: TableMetadata, ancestry: Sequence[Snapshot], schemas: Collection[int | None]
) -> dict[str, Json]:
    """As if nothing had been staged: how far the numbers have run, and when, tells of what is hidden."""
    columns = [schema.highest_field_id for schema in metadata.schemas if schema.schema_id in schemas]
    made: dict[str, Json] = {"last-column-id": max(columns, default=0)}
    if metadata.format_version > 1:
        made["last-sequence-number"] = max((each.sequence_number for each in ancestry), default=0)
    if metadata.format_version > 2:
        ends = [(each.first_row_id or 0) + (each.added_rows or 0) for each in ancestry]
        made["next-row-id"] = max(ends, default=0)
    times = [each.timestamp_ms for each in ancestry] + [each.timestamp_ms for each in metadata.snapshot_log]
    if times:
        made["last-updated-ms"] = max(times)
    return made


def _named(file: Mapping[str, Json]) -> set[Json]:
    """The snapshots that a statistics file names, in its blobs too."""
    blobs = file.get("blob-metadata")
    found = [blob.get("snapshot-id") for blob in blobs if isinstance(blob, Mapping)] if isinstance(blobs, list) else []
    return {file.get("snapshot-id"), *found}


def _keep(raw: dict[str, Json], name: str, wanted: Callable[[Mapping[str, Json]], bool]) -> None:
    listed = raw.get(name)
    if isinstance(listed, list):
        raw[name] = [each for each in listed if isinstance(each, Mapping) and wanted(each)]
