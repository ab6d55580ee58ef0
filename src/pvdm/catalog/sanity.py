"""Sane steps: what a branch commit may add to a protected table, so that no staging bricks `main` or fills disks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pvdm.catalog.rule import added_snapshots
from pvdm.errors import ConflictError, InputError
from pvdm.lake.format.json.document import canonical
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN, RefType, Snapshot
from pvdm.lake.paths import Location, parse_location

STAGED_SNAPSHOT_MAX_BYTES: Final = 65_536
STAGED_DOCUMENT_MAX_BYTES: Final = 67_108_864
STAGING_BRANCHES_MAX: Final = 1_000
STAGED_SNAPSHOTS_MAX: Final = 10_000
TAGS_MAX: Final = 5_000
CLOCK_DIFFERENCE_MAX_MS: Final = 600_000
COMMIT_SNAPSHOTS_MAX: Final = 100
# A table that comes to format 3 gives ids to all rows that it has, with its first commit.
COMMIT_ROWS_MAX: Final = 2**40
STAGED_NUMBERS_MAX: Final = 2**62
# No rate of requests keeps row ids from running out: 2^40 of them in each commit, 100 commits a second, and 2^62 are
# gone in half a day, though every staged snapshot is removed again. So the clock deals them out. Since 1970 there have
# been 20,000 days: a table whose writers are honest is far below what they allow (3 * 10^17 rows), and one that
# somebody drives up to it is left with 2^44, 17 trillion rows, each day. 2^62 is allowed after 2^18 days, in 2687.
# Sequence numbers run out by themselves later still: 100 in each commit, 1,000 commits a second, 1.4 million years.
ROW_IDS_OF_A_DAY_MAX: Final = 2**44
_DAY_MS: Final = 86_400_000


def require_sane(
    before: TableMetadata,
    after: TableMetadata,
    *,
    now_ms: int,
    prefixes: tuple[Location, ...],
    shared_numbers: bool = False,
) -> None:
    """Every snapshot that the commit adds, and what the table then holds, judged one by one.

    With `shared_numbers` a snapshot may have a sequence number and row ids that another branch was given meanwhile.
    """
    added = added_snapshots(before, after)
    if len(added) > COMMIT_SNAPSHOTS_MAX:
        raise _insane("number of snapshots in one commit", f"at most {COMMIT_SNAPSHOTS_MAX}", str(len(added)))
    for step, snapshot in enumerate(added, start=1):
        require_sequence(before, snapshot, step, shared=shared_numbers)
        require_time(snapshot, now_ms)
        require_schema(before, snapshot)
        require_parent(before, snapshot, added[: step - 1])
        require_rows(before, snapshot, shared=shared_numbers)
        require_size(snapshot)
    require_manifests(added, prefixes)
    require_counters(before, after, added, shared=shared_numbers)
    require_room(before, after, added, now_ms)
    require_caps(before, after)


def require_sequence(before: TableMetadata, snapshot: Snapshot, step: int, *, shared: bool = False) -> None:
    """Exactly the next number: one far ahead would leave none for main, one behind was given to another commit.

    Where numbers are shared, one behind is as good: it is held to its parent's when the update is applied.
    """
    expected = before.last_sequence_number + step if before.format_version > 1 else 0
    if shared and snapshot.sequence_number < expected:
        return
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


def require_counters(
    before: TableMetadata, after: TableMetadata, added: Sequence[Snapshot], *, shared: bool = False
) -> None:
    """Sequence numbers and row ids are given to snapshots that stay: one added and removed at once uses none up."""
    last, rows = before.last_sequence_number, before.next_row_id
    if shared:
        last = max([last, *(each.sequence_number for each in added)])
        rows = max([rows, *((each.first_row_id or 0) + (each.added_rows or 0) for each in added)])
    else:
        last += len(added) if before.format_version > 1 else 0
        rows += sum(each.added_rows or 0 for each in added) if before.format_version > 2 else 0
    if after.last_sequence_number != last:
        raise _insane("last sequence number", str(last), str(after.last_sequence_number))
    if after.next_row_id != rows:
        raise _insane("next row id", str(rows), str(after.next_row_id))


def require_rows(before: TableMetadata, snapshot: Snapshot, *, shared: bool = False) -> None:
    """Row ids of format 3 begin where the table's end, or, where numbers are shared, before it."""
    first = snapshot.first_row_id
    if before.format_version < 3 and first is not None:
        # They mean nothing yet, and would stand in the way of format 3.
        raise _insane("first row id", "none before format 3", str(first))
    if first is not None and first < before.next_row_id and not shared:
        raise _insane("first row id", f"at least {before.next_row_id}", str(first))


def require_room(before: TableMetadata, after: TableMetadata, added: Sequence[Snapshot], now_ms: int) -> None:
    """Main always finds numbers left: half of them no staging takes, and the other half it cannot use up for ages."""
    rows = sum(snapshot.added_rows or 0 for snapshot in added)
    if rows > COMMIT_ROWS_MAX:
        raise _insane("number of rows in one commit", f"at most {COMMIT_ROWS_MAX}", str(rows))
    until_now = min(STAGED_NUMBERS_MAX, ROW_IDS_OF_A_DAY_MAX * now_ms // _DAY_MS)
    for what, old, new, most in (
        ("last sequence number", before.last_sequence_number, after.last_sequence_number, STAGED_NUMBERS_MAX),
        ("next row id", before.next_row_id, after.next_row_id, until_now),
    ):
        # What uses up none is no harm: branches of a table that came with such numbers can still be removed.
        if new > max(old, most):
            raise _insane(what, f"at most {most} for now", str(new))


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


def require_caps(before: TableMetadata, after: TableMetadata) -> None:
    """Branches, tags, and snapshots that are not main's have a limit; a table that came with more gets no more."""
    for what, count, most in (
        ("branches", lambda metadata: _count(metadata, RefType.BRANCH), STAGING_BRANCHES_MAX),
        ("tags", lambda metadata: _count(metadata, RefType.TAG), TAGS_MAX),
        ("staged snapshots", _count_staged, STAGED_SNAPSHOTS_MAX),
    ):
        found = count(after)
        if found > most and found > count(before):
            raise _insane(f"number of {what}", f"at most {most}", str(found))


def _count(metadata: TableMetadata, kind: RefType) -> int:
    return sum(name != MAIN and ref.type is kind for name, ref in metadata.refs.items())


def _count_staged(metadata: TableMetadata) -> int:
    current = metadata.current_snapshot_id
    shown = set() if current is None else {each.snapshot_id for each in metadata.ancestry(current)}
    return sum(snapshot.snapshot_id not in shown for snapshot in metadata.snapshots)


def _insane(what: str, expected: str, got: str) -> InputError:
    return InputError(
        "staging_not_sane",
        f"the {what} of what is staged cannot be accepted",
        expected=expected,
        got=got,
        hint="nothing was changed",
    )
