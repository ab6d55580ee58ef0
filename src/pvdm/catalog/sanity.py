"""Sane steps: what a branch commit may add to a protected table, so that no staging bricks `main` or fills disks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pvdm.catalog.rule import added_snapshots
from pvdm.errors import ConflictError, InputError
from pvdm.lake.format.document import canonical
from pvdm.lake.format.metadata import TableMetadata
from pvdm.lake.format.snapshots import RefType, Snapshot
from pvdm.lake.paths import Location, parse_location

STAGED_SNAPSHOT_MAX_BYTES: Final = 65_536
STAGED_DOCUMENT_MAX_BYTES: Final = 67_108_864
STAGING_BRANCHES_MAX: Final = 1_000
STAGED_SNAPSHOTS_MAX: Final = 10_000
CLOCK_DIFFERENCE_MAX_MS: Final = 600_000


def require_sane(before: TableMetadata, after: TableMetadata, *, now_ms: int, prefixes: tuple[Location, ...]) -> None:
    """Every snapshot that the commit adds, and what the table then holds, judged one by one."""
    added = added_snapshots(before, after)
    for step, snapshot in enumerate(added, start=1):
        require_sequence(before, snapshot, step)
        require_time(snapshot, now_ms)
        require_schema(before, snapshot)
        require_parent(before, snapshot, added[: step - 1])
        require_rows(before, snapshot)
        require_size(snapshot)
    require_manifests(added, prefixes)
    require_counters(before, after, added)
    require_caps(after)


def require_sequence(before: TableMetadata, snapshot: Snapshot, step: int) -> None:
    """Exactly the next number: one far ahead would leave none for main, one behind was given to somebody else."""
    expected = before.last_sequence_number + step if before.format_version > 1 else 0
    if snapshot.sequence_number < expected:
        # Iceberg lets a snapshot without parent share the last number; its writer only has to try again.
        raise ConflictError(
            "snapshot_sequence_stale",
            "the snapshot's sequence number was given to another one",
            expected=str(expected),
            got=str(snapshot.sequence_number),
            hint="load the table again and commit on its new state",
        )
    if snapshot.sequence_number != expected:
        raise _insane("sequence number", str(expected), str(snapshot.sequence_number))


def require_time(snapshot: Snapshot, now_ms: int) -> None:
    """Near the server's time: a snapshot from the future would hold back every later one."""
    if abs(snapshot.timestamp_ms - now_ms) > CLOCK_DIFFERENCE_MAX_MS:
        raise _insane("timestamp", f"within {CLOCK_DIFFERENCE_MAX_MS} ms of {now_ms}", str(snapshot.timestamp_ms))


def require_schema(before: TableMetadata, snapshot: Snapshot) -> None:
    """Written with the schema that main has."""
    if snapshot.schema_id != before.current_schema_id:
        raise _insane("schema", str(before.current_schema_id), str(snapshot.schema_id))


def require_parent(before: TableMetadata, snapshot: Snapshot, earlier: Sequence[Snapshot]) -> None:
    """A parent that is there: a missing one could be filled in later, and a circle has no end for readers."""
    parent = snapshot.parent_id
    if parent is None or (before.snapshot(parent) is not None and parent != snapshot.snapshot_id):
        return
    if parent not in {each.snapshot_id for each in earlier}:
        raise _insane("parent", "none, or a snapshot of the table", str(parent))


def require_counters(before: TableMetadata, after: TableMetadata, added: Sequence[Snapshot]) -> None:
    """Sequence numbers and row ids are given to snapshots that stay: one added and removed at once uses none up."""
    steps = len(added) if before.format_version > 1 else 0
    if after.last_sequence_number != before.last_sequence_number + steps:
        raise _insane("last sequence number", str(before.last_sequence_number + steps), str(after.last_sequence_number))
    rows = sum(snapshot.added_rows or 0 for snapshot in added) if before.format_version > 2 else 0
    if after.next_row_id != before.next_row_id + rows:
        raise _insane("next row id", str(before.next_row_id + rows), str(after.next_row_id))


def require_rows(before: TableMetadata, snapshot: Snapshot) -> None:
    """Row ids of format 3 begin where the table's end, and are as many as a table can have."""
    first = snapshot.first_row_id
    if before.format_version < 3 and first is not None:
        # They mean nothing yet, and would stand in the way of format 3.
        raise _insane("first row id", "none before format 3", str(first))
    if first is not None and first < before.next_row_id:
        raise _insane("first row id", f"at least {before.next_row_id}", str(first))
    if snapshot.added_rows is not None and not 0 <= snapshot.added_rows < 2**40:
        raise _insane("added rows", "0 to 2^40", str(snapshot.added_rows))


def require_size(snapshot: Snapshot) -> None:
    """A summary is a few numbers, and so is what else a snapshot says."""
    size = len(canonical(snapshot.raw).encode())
    if size > STAGED_SNAPSHOT_MAX_BYTES:
        raise _insane("size", f"at most {STAGED_SNAPSHOT_MAX_BYTES} bytes", str(size))


def require_manifests(snapshots: Sequence[Snapshot], prefixes: tuple[Location, ...]) -> None:
    """Metadata of a snapshot lies where the writer may write, never in another table's place."""
    for snapshot in snapshots:
        for file in snapshot.manifests if snapshot.manifest_list is None else (snapshot.manifest_list,):
            require_place(file, prefixes)


def require_place(file: str, prefixes: tuple[Location, ...]) -> None:
    """Under one of the prefixes, with no symbolic link on the way."""
    place = parse_location(file)
    homes = [prefix for prefix in prefixes if place.is_under(prefix)]
    if not homes:
        raise _insane("manifest list", "under " + " or ".join(str(prefix) for prefix in prefixes), str(place))
    link = place.link_below(homes[0])
    if link is not None:
        raise _insane("manifest list", "no symbolic link on the way", str(link))


def require_document(data: bytes) -> None:
    """Staging leaves room in the metadata file: half of what can be read at all."""
    if len(data) > STAGED_DOCUMENT_MAX_BYTES:
        raise _insane("metadata file", f"at most {STAGED_DOCUMENT_MAX_BYTES} bytes", str(len(data)))


def require_caps(after: TableMetadata) -> None:
    """Branches and snapshots that are not main's have a limit."""
    branches = [name for name, ref in after.refs.items() if name != "main" and ref.type is RefType.BRANCH]
    if len(branches) > STAGING_BRANCHES_MAX:
        raise _insane("number of branches", f"at most {STAGING_BRANCHES_MAX}", str(len(branches)))
    current = after.current_snapshot_id
    shown = set() if current is None else {each.snapshot_id for each in after.ancestry(current)}
    staged = sum(snapshot.snapshot_id not in shown for snapshot in after.snapshots)
    if staged > STAGED_SNAPSHOTS_MAX:
        raise _insane("number of staged snapshots", f"at most {STAGED_SNAPSHOTS_MAX}", str(staged))


def _insane(what: str, expected: str, got: str) -> InputError:
    return InputError(
        "staging_not_sane",
        f"the {what} of what is staged cannot be accepted",
        expected=expected,
        got=got,
        hint="nothing was changed",
    )
