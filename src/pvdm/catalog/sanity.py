"""What a branch commit may add to a protected table, so that staging can neither block `main` nor fill disks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pvdm.catalog.responses import list_main_history
from pvdm.catalog.rule import added_snapshots
from pvdm.errors import Code, PvdmError
from pvdm.lake.format.json_document import comparison_text
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN, RefType, Snapshot
from pvdm.lake.paths import Location, parse_location
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import snapshots
from pvdm.ledger.catalog.snapshots import StagedItem
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.schema.catalog import StagedKind
from pvdm.model import canonical_json

STAGED_SNAPSHOT_MAX_BYTES: Final = 65_536
STAGED_DOCUMENT_MAX_BYTES: Final = 67_108_864
STAGING_BRANCHES_MAX: Final = 1_000
STAGED_SNAPSHOTS_MAX: Final = 10_000
TAGS_MAX: Final = 5_000
CLOCK_DIFFERENCE_MAX_MS: Final = 600_000
COMMIT_SNAPSHOTS_MAX: Final = 100
# After an upgrade to format 3 the first commit gives ids to all existing rows.
COMMIT_ROWS_MAX: Final = 2**40
STAGED_NUMBERS_MAX: Final = 2**62
# The limit of row ids grows with time, counted in days since 1970. A fixed limit could be used up: with 2^40 ids in
# each commit and 100 commits a second, 2^62 ids are gone in half a day, even if every staged snapshot is removed again.
# After 20,000 days 3 * 10^17 ids are allowed, far more than honest writers use. If a writer has used them all, 2^44
# more (17 trillion) are allowed each day. Sequence numbers need no such limit: with 100 in each of 1,000 commits a
# second they last 1.4 million years.
ROW_IDS_OF_A_DAY_MAX: Final = 2**44
_DAY_MS: Final = 86_400_000
PRODUCER_BRANCHES_MAX: Final = 250
PRODUCER_SNAPSHOTS_MAX: Final = 2_500


def require_sane(
    before: TableMetadata,
    after: TableMetadata,
    *,
    now_ms: int,
    prefixes: tuple[Location, ...],
    shared_numbers: bool = False,
) -> None:
    """Raise unless every snapshot that the commit adds, and the table after it, keep the limits of staging.

    With `shared_numbers` a snapshot may have a sequence number and row ids that another branch was given meanwhile.
    The manifests must lie below one of `prefixes`.
    """
    added = added_snapshots(before, after)
    if len(added) > COMMIT_SNAPSHOTS_MAX:
        raise _not_sane_error("number of snapshots in one commit", f"at most {COMMIT_SNAPSHOTS_MAX}", str(len(added)))
    for position, snapshot in enumerate(added, start=1):
        require_sequence(before, snapshot, position, shared=shared_numbers)
        # A snapshot from the future would block every later one.
        if abs(snapshot.timestamp_ms - now_ms) > CLOCK_DIFFERENCE_MAX_MS:
            near = f"within {CLOCK_DIFFERENCE_MAX_MS} ms of {now_ms}"
            raise _not_sane_error("timestamp", near, str(snapshot.timestamp_ms))
        if snapshot.schema_id != before.current_schema_id:
            raise _not_sane_error("schema", str(before.current_schema_id), str(snapshot.schema_id))
        require_parent(before, snapshot, added[: position - 1])
        require_first_row_id(before, snapshot, shared=shared_numbers)
        size = len(comparison_text(snapshot.raw).encode())
        if size > STAGED_SNAPSHOT_MAX_BYTES:
            raise _not_sane_error("size", f"at most {STAGED_SNAPSHOT_MAX_BYTES} bytes", str(size))
    require_manifests(added, prefixes)
    require_counters(before, after, added, shared=shared_numbers)
    require_numbers_left(before, after, added, now_ms)
    require_counts(before, after)


def require_sequence(before: TableMetadata, snapshot: Snapshot, position: int, *, shared: bool = False) -> None:
    """Raise unless the sequence number is the next one: a number far ahead would leave none for `main`.

    If numbers are `shared`, a lower number is valid. It is compared with the parent's when the update is applied.
    """
    expected = before.last_sequence_number + position if before.format_version > 1 else 0
    if shared and snapshot.sequence_number < expected:
        return
    if snapshot.sequence_number < expected:
        # Iceberg lets a snapshot without a parent reuse the last number. After this error its writer can try again.
        got = str(snapshot.sequence_number)
        raise Code.SNAPSHOT_STALE(reason="snapshot_sequence_stale", expected=str(expected), got=got)
    if snapshot.sequence_number != expected:
        raise _not_sane_error("sequence number", str(expected), str(snapshot.sequence_number))


def require_parent(before: TableMetadata, snapshot: Snapshot, earlier: Sequence[Snapshot]) -> None:
    """Raise unless the parent exists: a missing one could be added later and form a cycle."""
    parent = snapshot.parent_id
    if parent is None or (before.snapshot(parent) is not None and parent != snapshot.snapshot_id):
        return
    if parent not in {each.snapshot_id for each in earlier}:
        raise _not_sane_error("parent", "none, or a snapshot of the table", str(parent))


def require_counters(
    before: TableMetadata, after: TableMetadata, added: Sequence[Snapshot], *, shared: bool = False
) -> None:
    """Raise unless the table's counters advance exactly by what the added snapshots use.

    If numbers are `shared`, the counters advance to the highest number in use.
    """
    last, rows = before.last_sequence_number, before.next_row_id
    if shared:
        last = max([last, *(each.sequence_number for each in added)])
        rows = max([rows, *((each.first_row_id or 0) + (each.added_rows or 0) for each in added)])
    else:
        last += len(added) if before.format_version > 1 else 0
        rows += sum(each.added_rows or 0 for each in added) if before.format_version > 2 else 0
    if after.last_sequence_number != last:
        raise _not_sane_error("last sequence number", str(last), str(after.last_sequence_number))
    if after.next_row_id != rows:
        raise _not_sane_error("next row id", str(rows), str(after.next_row_id))


def require_first_row_id(before: TableMetadata, snapshot: Snapshot, *, shared: bool = False) -> None:
    """Raise for a first row id before format 3, or below the table's next row id unless numbers are `shared`."""
    first = snapshot.first_row_id
    if before.format_version < 3 and first is not None:
        # Before format 3 row ids mean nothing, and they would block an upgrade to it.
        raise _not_sane_error("first row id", "none before format 3", str(first))
    if first is not None and first < before.next_row_id and not shared:
        raise _not_sane_error("first row id", f"at least {before.next_row_id}", str(first))


def require_numbers_left(before: TableMetadata, after: TableMetadata, added: Sequence[Snapshot], now_ms: int) -> None:
    """Raise if staging uses too many sequence numbers or row ids, so that `main` always has some left."""
    rows = sum(snapshot.added_rows or 0 for snapshot in added)
    if rows > COMMIT_ROWS_MAX:
        raise _not_sane_error("number of rows in one commit", f"at most {COMMIT_ROWS_MAX}", str(rows))
    row_ids_max = min(STAGED_NUMBERS_MAX, ROW_IDS_OF_A_DAY_MAX * now_ms // _DAY_MS)
    for what, old, new, limit in (
        ("last sequence number", before.last_sequence_number, after.last_sequence_number, STAGED_NUMBERS_MAX),
        ("next row id", before.next_row_id, after.next_row_id, row_ids_max),
    ):
        # A commit that uses no number is allowed: a table that is above the limit already can still remove branches.
        if new > max(old, limit):
            raise _not_sane_error(what, f"at most {limit} for now", str(new))


def require_manifests(snapshots: Sequence[Snapshot], prefixes: tuple[Location, ...]) -> None:
    """Raise unless each manifest list (without a list: each manifest) lies below one of the prefixes."""
    for snapshot in snapshots:
        for file in snapshot.manifests if snapshot.manifest_list is None else (snapshot.manifest_list,):
            require_place(file, prefixes)


def require_place(file: str, prefixes: tuple[Location, ...]) -> None:
    """Raise unless the file lies under one of the prefixes, with no symbolic link on the way."""
    place = parse_location(file)
    homes = [prefix for prefix in prefixes if place.is_under(prefix)]
    if not homes:
        raise _not_sane_error("manifest list", "under " + " or ".join(str(prefix) for prefix in prefixes), str(place))
    link = place.link_below(homes[0])
    if link is not None:
        raise _not_sane_error("manifest list", "no symbolic link on the way", str(link))


def require_document_size(data: bytes) -> None:
    """Raise if the metadata file is larger than half of what can be read: publications need the rest."""
    if len(data) > STAGED_DOCUMENT_MAX_BYTES:
        raise _not_sane_error("metadata file", f"at most {STAGED_DOCUMENT_MAX_BYTES} bytes", str(len(data)))


def require_counts(before: TableMetadata, after: TableMetadata) -> None:
    """Raise if there are too many branches, tags or staged snapshots, and more than before the commit."""
    limits: tuple[tuple[str, Callable[[TableMetadata], set[str]], int], ...] = (
        ("branches", lambda metadata: _refs(metadata, RefType.BRANCH), STAGING_BRANCHES_MAX),
        ("tags", lambda metadata: _refs(metadata, RefType.TAG), TAGS_MAX),
        ("staged snapshots", _staged_snapshots, STAGED_SNAPSHOTS_MAX),
    )
    for what, find, most in limits:
        found = len(find(after))
        if found > most and found > len(find(before)):
            raise _not_sane_error(f"number of {what}", f"at most {most}", str(found))


def _not_sane_error(what: str, expected: str, got: str) -> PvdmError:
    message = f"the {what} of what is staged cannot be accepted"
    return Code.STAGING_NOT_SANE(message, expected=expected, got=got, hint="nothing was changed")


@dataclass(frozen=True, slots=True)
class StagedAdditions:
    """The branches and snapshots that one commit adds, and the producer (`owner`) they belong to."""

    owner: str
    items: tuple[StagedItem, ...]

    @classmethod
    def of(cls, grant: Grant, before: TableMetadata, after: TableMetadata) -> StagedAdditions:
        """What the commit adds. Its owner is the token's domain and name, which all tokens of one producer share."""
        new_branches = sorted(_refs(after, RefType.BRANCH) - _refs(before, RefType.BRANCH))
        branches = [(StagedKind.BRANCH, name) for name in new_branches]
        added = [(StagedKind.SNAPSHOT, str(each.snapshot_id)) for each in added_snapshots(before, after)]
        return cls(canonical_json.dump([grant.domain, grant.name]).decode(), (*branches, *added))

    def note(self, unit: Unit, row: TableRow) -> None:
        """Store the producer as the owner of the items, in the commit's transaction."""
        snapshots.set_owner(unit, row.table_id, self.owner, self.items)


def require_producer_quota(ledger: Ledger, row: TableRow, additions: StagedAdditions, after: TableMetadata) -> None:
    """Raise if one producer has too many branches or snapshots staged.

    The ledger knows the owners. It is read only if the table's total exceeds the limit for a single producer.
    """
    for kind, present, limit in (
        (StagedKind.BRANCH, _refs(after, RefType.BRANCH), PRODUCER_BRANCHES_MAX),
        (StagedKind.SNAPSHOT, _staged_snapshots(after), PRODUCER_SNAPSHOTS_MAX),
    ):
        new = {name for item_kind, name in additions.items if item_kind is kind} & present
        if not new or len(present) <= limit:
            continue
        with ledger.read() as unit:
            own = len(new) + snapshots.count_owned(unit, row.table_id, additions.owner, kind, present - new)
        if own > limit:
            plural = "branches" if kind is StagedKind.BRANCH else "snapshots"
            message = f"the number of {plural} that this producer keeps staged cannot be accepted"
            raise Code.STAGING_NOT_SANE(message, expected=f"at most {limit}", got=str(own))


def _refs(metadata: TableMetadata, kind: RefType) -> set[str]:
    return {name for name, ref in metadata.refs.items() if name != MAIN and ref.type is kind}


def _staged_snapshots(metadata: TableMetadata) -> set[str]:
    shown = {each.snapshot_id for each in list_main_history(metadata)}
    return {str(each.snapshot_id) for each in metadata.snapshots if each.snapshot_id not in shown}
