"""The state of a table as operators' approvals name it, and the differences between two states. Needs no ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pvdm.digest.plan import fingerprint
from pvdm.errors import Code
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.main_state import structure_sha256
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.model.statements.migration import TableState, TableTarget
from pvdm.model.statements.table import TableRef

if TYPE_CHECKING:
    from pvdm.api.protection import TargetView


def table_ref(table: TargetView) -> TableRef:
    """The reference to the table in signed statements."""
    return TableRef(table.catalog, table.id, table.name)


def table_metadata(table: TargetView) -> TableMetadata:
    """The metadata from which the signer computes every signed hash. Raises `table_expected` for a namespace."""
    if table.metadata is None:
        raise Code.TABLE_EXPECTED(got=table.kind)
    return TableMetadata.parse(table.metadata.encode())


def state_of(metadata: TableMetadata, contract_sha256: str) -> TableState:
    """The table's state under a contract, as approvals name it."""
    return TableState(
        contract_sha256,
        fingerprint(to_model(metadata.current_schema)).hex(),
        metadata.default_spec_id,
        metadata.format_version,
        structure_sha256(metadata),
    )


def target_of(table: TableRef, metadata: TableMetadata, contract_sha256: str) -> TableTarget:
    """The table as a protection names it: with its state under the contract, and the head of its `main`."""
    return TableTarget(table, state_of(metadata, contract_sha256), metadata.current_snapshot_id)


def state_changes(old: TableState, new: TableState) -> list[tuple[str, object, object]]:
    """The facts that differ, each by its name with the old and the new value."""
    facts = (
        ("contract", old.contract_sha256, new.contract_sha256),
        ("schema", old.schema_fingerprint, new.schema_fingerprint),
        ("partition spec", old.spec_id, new.spec_id),
        ("format version", old.format_version, new.format_version),
        ("structure", old.structure_sha256, new.structure_sha256),
    )
    return [(name, before, after) for name, before, after in facts if before != after]


def join_changed_names(old: TableState, new: TableState) -> str:
    """The names of the facts that differ, joined for a sentence; empty if no fact differs."""
    return " and ".join(name for name, _, _ in state_changes(old, new))
