"""The gate for migrations: an operator signs that a table goes from one state to another. Its data does not change."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

from pvdm.errors import Code
from pvdm.lake.format.json_document import Json, comparison_text
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.resolve import initial_defaults
from pvdm.ledger.catalog.tables import TableRow
from pvdm.metadata.gate.state import join_changed_names, state_changes, state_of
from pvdm.metadata.gate.target import Permit
from pvdm.model.statements.migration import Migration, TableState
from pvdm.trust.verify import VerifiedStatement

# The proposal has the state before and the state after. Once the table has changed, signing it again does not help.
_PROPOSE_AGAIN: Final = "propose the change again: `pvdm migrate propose`, then sign that"


def permit_migration(
    approved: VerifiedStatement[Migration], row: TableRow, before: TableMetadata, after: TableMetadata, data: bytes
) -> Permit:
    """The permit for the commit from this row to these bytes of `after`. The operator signed exactly this change."""
    migration = approved.predicate
    require_table(migration.table.uuid, row)
    require_state(migration.before, before, require_protected(row), next_step=_PROPOSE_AGAIN)
    require_same_table(before, after)
    require_same_data(before, after)
    require_same_defaults(before, after)
    require_result(migration.after, after)
    return Permit(row.table_uuid, row.pointer.sha256, hashlib.sha256(data).hexdigest())


def require_table(table_uuid: str, row: TableRow) -> None:
    """The approval names this table's UUID. The name is not enough: another table can have the same name."""
    if row.table_uuid != table_uuid:
        raise Code.APPROVAL_REFUSED(reason="approval_wrong_table", expected=row.table_uuid, got=table_uuid)


def require_protected(row: TableRow) -> str:
    """The hash of the contract that the table is protected under. Raises `not_protected` without one."""
    if row.contract_hash is None:
        message, expected = f"{row.name} is not protected", "a table under a contract"
        hint = "nothing was changed; a table without protection changes by ordinary commits"
        raise Code.NOT_PROTECTED(message, expected=expected, got="none", hint=hint)
    return row.contract_hash


def require_state(
    approved: TableState, metadata: TableMetadata, contract_sha256: str, *, next_step: str = "sign again"
) -> None:
    """The table is in the state that the operator saw. The error names what has changed since, and the `next_step`."""
    found = state_of(metadata, contract_sha256)
    if found != approved:
        message = f"the table is not in the state that was approved: other {join_changed_names(approved, found)}"
        hint = f"nothing was changed; look at the table as it is now, and {next_step}"
        expected, got = _describe_differences(approved, found)
        raise Code.APPROVAL_REFUSED(message, reason="approval_stale", expected=expected, got=got, hint=hint)


def _describe_differences(approved: TableState, found: TableState) -> tuple[str, str]:
    """Two texts that name the facts that differ: one with the approved values, one with the found values."""
    changes = state_changes(approved, found)
    old = ", ".join(f"{name} {value}" for name, value, _ in changes)
    return old, ", ".join(f"{name} {value}" for name, _, value in changes)


def require_same_table(before: TableMetadata, after: TableMetadata) -> None:
    """A migration changes neither the UUID nor the location."""
    for what, old, new in (
        ("UUID", before.table_uuid, after.table_uuid),
        ("location", before.location, after.location),
    ):
        if old != new:
            message = f"a migration cannot change the table's {what}"
            raise Code.MIGRATION_REFUSED(message, reason="migration_moves_table", expected=str(old), got=str(new))


def require_same_data(before: TableMetadata, after: TableMetadata) -> None:
    """A migration changes no snapshot, ref or statistics file. Only proofs change rows."""
    for (what, old), (_, new) in zip(_data_facts(before), _data_facts(after), strict=True):
        if old != new:
            message, expected = f"a migration cannot change the table's {what}", f"the {what} as before"
            raise Code.MIGRATION_REFUSED(message, reason="migration_moves_data", expected=expected, got=f"other {what}")


def require_same_defaults(before: TableMetadata, after: TableMetadata) -> None:
    """A column keeps its initial default, because files without the column show it and were proved with it."""
    old, new = _defaults(before), _defaults(after)
    for field_id in sorted(old.keys() & new.keys()):
        if new[field_id] - old[field_id]:  # a default that no schema gave this column before
            message = "a migration cannot change the initial default of an existing column"
            expected = f"the initial default of column {field_id} as before"
            got = "another default, which rows of older files would show"
            hint = "nothing was changed; add a new column with that initial default"
            raise Code.MIGRATION_REFUSED(message, reason="migration_moves_data", expected=expected, got=got, hint=hint)


def _defaults(metadata: TableMetadata) -> dict[int, set[str]]:
    """By column id, the initial defaults that the table's schemas give the column; `None` in text for no default."""
    found: dict[int, set[str]] = {}
    for schema in metadata.schemas:
        defaults = initial_defaults(schema)
        for field_id in schema.fields:
            found.setdefault(field_id, set()).add(repr(defaults.get(field_id)))
    return found


def require_result(approved: TableState, after: TableMetadata) -> None:
    """The updates lead to exactly the state that the operator signed."""
    found = state_of(after, approved.contract_sha256)
    if found != approved:
        message = f"the updates lead to another state than was approved: other {join_changed_names(approved, found)}"
        expected, got = _describe_differences(approved, found)
        raise Code.MIGRATION_REFUSED(message, reason="migration_result_differs", expected=expected, got=got)


def _data_facts(metadata: TableMetadata) -> Iterator[tuple[str, str]]:
    """The parts of the metadata that describe data: for each its name, and its content as text for comparison."""
    refs: dict[str, Json] = {name: ref.raw for name, ref in metadata.refs.items()}
    log: list[Json] = [[entry.timestamp_ms, entry.snapshot_id] for entry in metadata.snapshot_log]
    yield "snapshots", comparison_text([snapshot.raw for snapshot in metadata.snapshots])
    yield "refs", comparison_text(refs)
    yield "snapshot log", comparison_text(log)
    yield "statistics", comparison_text([file.raw for file in metadata.statistics])
    yield "partition statistics", comparison_text([file.raw for file in metadata.partition_statistics])
    yield "sequence number", str(metadata.last_sequence_number)
    yield "row ids", str(metadata.next_row_id)
