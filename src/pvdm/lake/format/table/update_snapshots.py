"""Applies the updates of a table's snapshots, refs, statistics files and encryption keys to a draft."""

from __future__ import annotations

from dataclasses import replace

from pvdm.errors import Code
from pvdm.lake.format.json_document import Json, JsonObject, Node, comparison_text, invalid_value
from pvdm.lake.format.table import snapshots
from pvdm.lake.format.table.draft import Draft

_REF_KEYS = frozenset({"snapshot-id", "type", *snapshots.RETENTION_KEYS})
_UPDATE_KEYS = _REF_KEYS | {"action", "ref-name"}


def add_snapshot(draft: Draft, node: Node) -> None:
    """add-snapshot. The id must be new. Format 2 adds a rule for sequence numbers, and format 3 a rule for row ids."""
    snapshot_node = node.node("snapshot")
    snapshot_node.text("manifest-list")  # required of new snapshots, as the operation is; old ones may lack both
    snapshot_node.node("summary").text("operation")
    snapshot = snapshots.parse_snapshot(snapshot_node)
    for parts, what in ((draft.schemas, "schema"), (draft.specs, "partition spec"), (draft.orders, "sort order")):
        if not parts:
            expected, place = f"a {what} first", snapshot.place
            raise Code.SNAPSHOT_INVALID(reason="snapshot_too_early", expected=expected, got="none yet", place=place)
    if snapshot.snapshot_id in draft.snapshots:
        got = str(snapshot.snapshot_id)
        raise Code.SNAPSHOT_INVALID(reason="snapshot_exists", got=got, place=snapshot_node.at("snapshot-id"))
    if draft.format_version > 1:
        _require_sequence_number(draft, snapshot)
    draft.last_sequence_number = max(draft.last_sequence_number, snapshot.sequence_number)
    if draft.format_version >= 3:
        _advance_row_ids(draft, snapshot)
    draft.snapshots[snapshot.snapshot_id] = snapshot
    draft.added_snapshots.add(snapshot.snapshot_id)
    draft.changed = True


def _require_sequence_number(draft: Draft, snapshot: snapshots.Snapshot) -> None:
    """Raise unless the snapshot's number is above the table's last number, or equals it and there is no parent.

    These are Iceberg's rules. With `draft.shared_numbers` the number must only be above the parent snapshot's number.
    """
    last, number = draft.last_sequence_number, snapshot.sequence_number
    if draft.shared_numbers:
        parent = None if snapshot.parent_id is None else draft.snapshots.get(snapshot.parent_id)
        last = 0 if parent is None else parent.sequence_number
        is_stale = number <= last
    else:
        is_stale = number < last or (number == last and snapshot.parent_id is not None)
    if is_stale:
        expected, got, reason = f"above {last}", str(number), "snapshot_sequence_stale"
        raise Code.SNAPSHOT_STALE(reason=reason, expected=expected, got=got, place=snapshot.place)


def _advance_row_ids(draft: Draft, snapshot: snapshots.Snapshot) -> None:
    """Advance next-row-id. The snapshot's ids must begin at it, or with `shared_numbers` may also begin below it."""
    first, next_id, place = snapshot.first_row_id, draft.next_row_id, snapshot.place
    expected, got = f"first-row-id {next_id}", "none" if first is None else str(first)
    if first is None:
        raise Code.SNAPSHOT_INVALID(reason="snapshot_first_row_id_missing", expected=expected, got=got, place=place)
    if first < next_id and not draft.shared_numbers:
        raise Code.SNAPSHOT_STALE(reason="snapshot_row_ids_stale", expected=expected, got=got, place=place)
    if first > next_id:
        # Iceberg's builder accepts this and later assigns the same ids twice: it adds only the new rows to next-row-id.
        raise Code.SNAPSHOT_INVALID(reason="snapshot_row_ids_skipped", expected=expected, got=got, place=place)
    draft.next_row_id = max(next_id, first + (snapshot.added_rows or 0))


def remove_snapshots(draft: Draft, node: Node) -> None:
    """remove-snapshots, with their statistics and the refs that point to them. Unknown ids are ignored."""
    for snapshot_id in draft.snapshots.keys() & set(node.longs("snapshot-ids")):
        del draft.snapshots[snapshot_id]
        draft.statistics.pop(snapshot_id, None)
        draft.partition_statistics.pop(snapshot_id, None)
        for name in list(draft.ref_names.get(snapshot_id, ())):
            _remove_ref(draft, name)
        draft.has_removed_snapshots = draft.changed = True


def set_snapshot_ref(draft: Draft, node: Node) -> None:
    """set-snapshot-ref. `main` must be a branch; a move of `main` also changes current snapshot and snapshot log."""
    name = node.text("ref-name")
    if not name:
        raise invalid_value(node.at("ref-name"), "a name", "an empty string")
    ref = snapshots.parse_ref(node)
    existing = draft.refs.get(name)
    if existing is not None and existing == ref and not _changes_unknown_fields(node, existing):
        return
    snapshot = draft.snapshots.get(ref.snapshot_id)
    if snapshot is None:
        words = f"{ref.type.value} {name[:64]!r} would point to a snapshot that the table does not have"
        got = str(ref.snapshot_id)
        raise Code.REF_INVALID(words, reason="ref_snapshot_unknown", got=got, place=node.at("snapshot-id"))
    if name == snapshots.MAIN:
        if ref.type is not snapshots.RefType.BRANCH:
            raise Code.REF_INVALID(reason="main_not_a_branch", got="tag", place=node.at("type"))
        _set_on_main(draft, snapshot)
    new_ref = _with_raw(ref, node, existing)
    if existing is not None:
        draft.ref_names[existing.snapshot_id].discard(name)
    draft.ref_names.setdefault(ref.snapshot_id, set()).add(name)
    draft.refs[name] = new_ref
    draft.changed = True


def _set_on_main(draft: Draft, snapshot: snapshots.Snapshot) -> None:
    draft.current_snapshot_id = snapshot.snapshot_id
    if draft.last_updated_ms is None:
        draft.last_updated_ms = draft.now_ms
    # A snapshot of this commit is current from its own time on; a change back to an older snapshot happens now.
    is_new = snapshot.snapshot_id in draft.added_snapshots
    time_ms = snapshot.timestamp_ms if is_new else draft.last_updated_ms
    draft.snapshot_log.append({"timestamp-ms": time_ms, "snapshot-id": snapshot.snapshot_id})
    draft.snapshots_set_on_main.append(snapshot.snapshot_id)


def _with_raw(ref: snapshots.SnapshotRef, node: Node, existing: snapshots.SnapshotRef | None) -> snapshots.SnapshotRef:
    """The ref with its JSON, which has the unknown fields of the old ref and of the update."""
    raw: dict[str, Json] = {"snapshot-id": ref.snapshot_id, "type": ref.type.value}
    raw |= {key: node.raw[key] for key in snapshots.RETENTION_KEYS if node.has_not_null(key)}
    if existing is not None:
        raw |= _unknown_fields(existing.raw, _REF_KEYS)
    raw |= _unknown_fields(node.raw, _UPDATE_KEYS)
    snapshots.require_few_fields(raw, node.place)
    return replace(ref, raw=raw)


def _unknown_fields(raw: JsonObject, known: frozenset[str]) -> dict[str, Json]:
    return {key: value for key, value in raw.items() if key not in known}


def _changes_unknown_fields(node: Node, existing: snapshots.SnapshotRef) -> bool:
    unknown = _unknown_fields(node.raw, _UPDATE_KEYS).items()
    return any(comparison_text(existing.raw.get(key)) != comparison_text(value) for key, value in unknown)


def remove_snapshot_ref(draft: Draft, node: Node) -> None:
    """remove-snapshot-ref. Without `main` there is no current snapshot."""
    name = node.text("ref-name")
    if name in draft.refs:
        _remove_ref(draft, name)


def _remove_ref(draft: Draft, name: str) -> None:
    draft.ref_names[draft.refs[name].snapshot_id].discard(name)
    del draft.refs[name]
    draft.changed = True
    if name == snapshots.MAIN:
        draft.current_snapshot_id = None


def set_statistics(draft: Draft, node: Node) -> None:
    """set-statistics: one file for each snapshot."""
    file = snapshots.parse_statistics(node.node("statistics"))
    snapshot_id = node.optional_long("snapshot-id")
    if snapshot_id is not None and snapshot_id != file.snapshot_id:
        reason, expected, place = "statistics_snapshot_mismatch", str(file.snapshot_id), node.at("snapshot-id")
        raise Code.TABLE_METADATA_INVALID(reason=reason, expected=expected, got=str(snapshot_id), place=place)
    _put_statistics(draft, draft.statistics, file)


def remove_statistics(draft: Draft, node: Node) -> None:
    """remove-statistics of a snapshot, if it has any."""
    draft.changed |= draft.statistics.pop(node.long("snapshot-id"), None) is not None


def set_partition_statistics(draft: Draft, node: Node) -> None:
    """set-partition-statistics: one file for each snapshot."""
    file = snapshots.parse_partition_statistics(node.node("partition-statistics"))
    _put_statistics(draft, draft.partition_statistics, file)


def remove_partition_statistics(draft: Draft, node: Node) -> None:
    """remove-partition-statistics of a snapshot, if it has any."""
    draft.changed |= draft.partition_statistics.pop(node.long("snapshot-id"), None) is not None


def _put_statistics(
    draft: Draft, files: dict[int, list[snapshots.StatisticsFile]], file: snapshots.StatisticsFile
) -> None:
    files.pop(file.snapshot_id, None)
    files[file.snapshot_id] = [file]
    draft.changed = True


def add_encryption_key(draft: Draft, node: Node) -> None:
    """add-encryption-key, unless the table has a key of this id."""
    key = snapshots.parse_key(node.node("encryption-key"))
    if key.key_id not in draft.encryption_keys:
        draft.encryption_keys[key.key_id] = key
        draft.changed = True


def remove_encryption_key(draft: Draft, node: Node) -> None:
    """remove-encryption-key, if the table has the key."""
    draft.changed |= draft.encryption_keys.pop(node.text("key-id"), None) is not None
