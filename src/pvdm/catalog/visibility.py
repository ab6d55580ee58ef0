"""What a role sees of a table. Consumers see no staging ref and no unpublished snapshot."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from pvdm.lake.format.json_document import Json
from pvdm.lake.format.table.draft import Draft
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN, RefType, Snapshot, SnapshotRef
from pvdm.model.role import Role

_WHOLE = frozenset({Role.PRODUCER, Role.OPERATOR, Role.AUDITOR, Role.STEWARD})


def sees_all(role: Role) -> bool:
    """Whether the role sees the whole document."""
    return role in _WHOLE


def published_view(metadata: TableMetadata) -> TableMetadata:
    """The table as consumers see it: main, its ancestry, tags into it, and what belongs to these.

    It is serialized as a commit would do it, so that a commit to a branch changes not one byte of it.
    """
    return _draft(metadata).finish(None)


def shows_same(before: TableMetadata, after: TableMetadata, *, but_tags: bool) -> bool:
    """Whether consumers get the same bytes before and after; with `but_tags`, apart from the refs.

    Neither is serialized: a commit keeps the same objects for what it does not change.
    """
    old, new = (_draft(metadata).document(None) for metadata in (before, after))
    if but_tags:
        old, new = ({**raw, "refs": None} for raw in (old, new))
    return _equal_spelling(old, new)


def _equal_spelling(old: Json, new: Json) -> bool:
    """Equal including the order of keys and the spelling of numbers."""
    if old is new:
        return True
    match old, new:
        case Mapping(), Mapping():
            return list(old) == list(new) and all(_equal_spelling(old[key], new[key]) for key in old)
        case list() | tuple(), list() | tuple():
            return len(old) == len(new) and all(map(_equal_spelling, old, new))
        case _:
            return type(old) is type(new) and old == new


def _draft(metadata: TableMetadata) -> Draft:
    current = metadata.current_snapshot_id
    ancestry = [] if current is None else list(metadata.ancestry(current))
    shown = {snapshot.snapshot_id for snapshot in ancestry}
    schemas = {metadata.current_schema_id} | {snapshot.schema_id for snapshot in ancestry}
    # Older files of the Steward hold what was staged at their time, so their names are not disclosed.
    unlogged = replace(metadata, raw={key: [] if key == "metadata-log" else part for key, part in metadata.raw.items()})
    draft = Draft(unlogged, now_ms=_last_shown_ms(metadata, ancestry))
    draft.changed, draft.last_updated_ms = True, draft.now_ms
    draft.snapshots = {key: snapshot for key, snapshot in draft.snapshots.items() if key in shown}
    draft.snapshot_log = [entry for entry in draft.snapshot_log if entry.get("snapshot-id") in shown]
    for statistics in (draft.statistics, draft.partition_statistics):
        for key, files in statistics.items():
            statistics[key] = [file for file in files if _named_snapshots(file.raw) <= shown]
    draft.schemas = {key: schema for key, schema in draft.schemas.items() if key in schemas}
    draft.refs = {name: ref for name, ref in draft.refs.items() if name == MAIN or _is_published(ref, shown)}
    _recount(draft, ancestry)
    return draft


def _is_published(ref: SnapshotRef, shown: Collection[int]) -> bool:
    return ref.type is RefType.TAG and ref.snapshot_id in shown


def _last_shown_ms(metadata: TableMetadata, ancestry: Sequence[Snapshot]) -> int:
    """When main last changed; 0 for a table that never showed anything, so that staging is not disclosed."""
    times = [each.timestamp_ms for each in ancestry] + [each.timestamp_ms for each in metadata.snapshot_log]
    return max(times, default=0)


def _recount(draft: Draft, ancestry: Sequence[Snapshot]) -> None:
    """Set the counters as if nothing had been staged: they would disclose hidden snapshots."""
    draft.last_column_id = max((schema.highest_field_id for schema in draft.schemas.values()), default=0)
    draft.last_sequence_number = max((each.sequence_number for each in ancestry), default=0)
    ends = [(each.first_row_id or 0) + (each.added_rows or 0) for each in ancestry]
    draft.next_row_id = max(ends, default=0)


def _named_snapshots(file: Mapping[str, Json]) -> set[Json]:
    """The snapshots that a statistics file names, in its blobs too."""
    blobs = file.get("blob-metadata")
    found = [blob.get("snapshot-id") for blob in blobs if isinstance(blob, Mapping)] if isinstance(blobs, list) else []
    return {file.get("snapshot-id"), *found}
