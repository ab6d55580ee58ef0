"""What a protected table at an upstream may show: what was published here, or what its protection found."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from pvdm.catalog.state import TableState
from pvdm.errors import Code
from pvdm.lake.format.json_document import Json, canonical
from pvdm.lake.format.table.main_state import structure_sha256
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import Snapshot
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import snapshots as known_snapshots
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.record import protections, statements
from pvdm.ledger.work import announced
from pvdm.model.statements.migration import Protection, TableTarget
from pvdm.trust.statement import read_signed

# How Iceberg's writers name what a summary counts.
_COUNTS: Final = ("added-", "deleted-", "removed-", "total-")


def record_history(unit: Unit, table_uuid: str, metadata: TableMetadata) -> None:
    """Note the history of `main` as it is now: an operator signs for it, not only for its ids."""
    record_snapshots(unit, table_uuid, metadata, _history(metadata))


def record_snapshots(unit: Unit, table_uuid: str, metadata: TableMetadata, snapshots: Iterable[Snapshot]) -> None:
    """Note that these snapshots of the document may be in the history of `main`, as they are."""
    facts = {str(each.snapshot_id): facts_sha256(metadata, each) for each in snapshots}
    known_snapshots.add_known(unit, table_uuid, facts, structure_sha256=structure_sha256(metadata))


def facts_sha256(metadata: TableMetadata, snapshot: Snapshot) -> str:
    """The hash of everything in a snapshot that readers use; of its summary the operation and the counts.

    An engine may answer `count(*)` from the total of rows, and the next publication continues the totals.
    """
    facts: list[Json] = [
        snapshot.snapshot_id,
        snapshot.parent_id,
        snapshot.sequence_number,
        snapshot.timestamp_ms,
        snapshot.manifest_list,
        list(snapshot.manifests),
        snapshot.operation,
        snapshot.schema_id,
        snapshot.first_row_id,
        snapshot.added_rows,
        snapshot.key_id,
        {key: text for key, text in snapshot.summary.items() if key.startswith(_COUNTS)},
    ]
    for files in (metadata.statistics, metadata.partition_statistics):
        facts.append(sorted(canonical(each.raw) for each in files if each.snapshot_id == snapshot.snapshot_id))
    return hashlib.sha256(canonical(facts).encode()).hexdigest()


def is_known(unit: Unit, table_uuid: str, metadata: TableMetadata, snapshot: Snapshot) -> bool:
    """Whether the snapshot was sent or signed for, with the same facts."""
    key = str(snapshot.snapshot_id), facts_sha256(metadata, snapshot)
    return key in known_snapshots.known_of_table(unit, table_uuid)


def find_unproved(unit: Unit, row: TableRow, metadata: TableMetadata) -> str | None:
    """What the table shows without proof: its head, a part of its history, or its structure; None if nothing."""
    head, known = metadata.current_snapshot_id, known_snapshots.known_of_table(unit, row.table_uuid)
    newest = protections.newest_of(unit, row.table_uuid)
    signed = None if newest is None else read_signed(statements.get(unit, newest).envelope, Protection).target
    bound = signed if isinstance(signed, TableTarget) else None
    # Without a protection of its own it was protected with its namespace, and then it was empty.
    seen = None if bound is None else bound.snapshot_id
    if head != seen and (head is None or announced.of_snapshot(unit, row.table_uuid, str(head)) is None):
        return "no snapshot" if head is None else f"snapshot {head}"
    built = None if bound is None else bound.state.structure_sha256
    for each in _history(metadata):
        structure = known.get((str(each.snapshot_id), facts_sha256(metadata, each)))
        if structure is None:
            return f"snapshot {each.snapshot_id} changed in the history of main, or new there"
        built = built or structure
    if built is not None and built != structure_sha256(metadata):
        return "other schemas, partition specs, sort orders or properties"
    return None


def require_proved(ledger: Ledger, state: TableState) -> None:
    """Raise `main_unproved` if `main` was changed at the upstream, past every check."""
    found = _find_unproved_of(ledger, state)
    if found is None:
        return
    raise Code.MAIN_UNPROVED(
        f"{state.row.name} is protected, and the upstream's main shows what was never proved", got=found
    )


def require_base(ledger: Ledger, state: TableState) -> None:
    """Raise `upstream_main_moved`: a receipt must not seem to cover what is not proved."""
    found = _find_unproved_of(ledger, state)
    if found is None:
        return
    raise Code.UPSTREAM_MAIN_MOVED(f"main of {state.row.name} was changed at the upstream, past the gate", got=found)


def _find_unproved_of(ledger: Ledger, state: TableState) -> str | None:
    row = state.row
    if row.upstream is None or not row.protected:
        return None
    with ledger.read() as unit:
        return find_unproved(unit, row, state.metadata)


def _history(metadata: TableMetadata) -> Iterable[Snapshot]:
    """Main's snapshots, newest first, as far back as the table has them."""
    head = metadata.current_snapshot_id
    return () if head is None else metadata.ancestry(head)
