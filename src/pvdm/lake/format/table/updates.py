"""The updates of an Iceberg commit, applied to the document one after the other as Iceberg's own builder does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pvdm.errors import Code, InputError
from pvdm.lake.format.json.document import Json
from pvdm.lake.format.json.node import Node, shown
from pvdm.lake.format.table import update_snapshots, update_structure
from pvdm.lake.format.table.draft import Draft
from pvdm.lake.format.table.metadata import TableMetadata

UPDATES_MAX: Final = 100_000
STRUCTURE_UPDATES_MAX: Final = 256

Apply = Callable[[Draft, Node], None]

UPDATES: Final[Mapping[str, Apply]] = MappingProxyType(
    {
        "assign-uuid": update_structure.assign_uuid,
        "upgrade-format-version": update_structure.upgrade_format_version,
        "add-schema": update_structure.add_schema,
        "set-current-schema": update_structure.set_current_schema,
        "remove-schemas": update_structure.remove_schemas,
        "add-spec": update_structure.add_spec,
        "set-default-spec": update_structure.set_default_spec,
        "remove-partition-specs": update_structure.remove_specs,
        "add-sort-order": update_structure.add_sort_order,
        "set-default-sort-order": update_structure.set_default_sort_order,
        "set-location": update_structure.set_location,
        "set-properties": update_structure.set_properties,
        "remove-properties": update_structure.remove_properties,
        "add-snapshot": update_snapshots.add_snapshot,
        "remove-snapshots": update_snapshots.remove_snapshots,
        "set-snapshot-ref": update_snapshots.set_snapshot_ref,
        "remove-snapshot-ref": update_snapshots.remove_snapshot_ref,
        "set-statistics": update_snapshots.set_statistics,
        "remove-statistics": update_snapshots.remove_statistics,
        "set-partition-statistics": update_snapshots.set_partition_statistics,
        "remove-partition-statistics": update_snapshots.remove_partition_statistics,
        "add-encryption-key": update_snapshots.add_encryption_key,
        "remove-encryption-key": update_snapshots.remove_encryption_key,
    }
)

_STRUCTURE: Final = frozenset({"add-schema", "remove-schemas", "add-spec", "remove-partition-specs", "add-sort-order"})


def apply_updates(
    base: TableMetadata,
    updates: Sequence[Json],
    *,
    now_ms: int,
    previous_location: str | None,
    shared_numbers: bool = False,
    always: bool = False,
) -> TableMetadata:
    """The state after the updates; `base` itself if they change nothing. `previous_location` is base's own file.

    With `always` it is a new document even then, with base's file in its metadata log.

    With `shared_numbers` a new snapshot may have a sequence number and row ids that another branch has meanwhile: its
    number is above its parent's. Without it, as Iceberg has it, it is above every number that the table has given.
    """
    draft = Draft(base, now_ms=now_ms, shared_numbers=shared_numbers)
    for node, apply in _actions(updates):
        apply(draft, node)
    draft.changed = draft.changed or always
    return draft.finish(previous_location)


def create_from_updates(updates: Sequence[Json], *, now_ms: int, table_uuid: str) -> TableMetadata:
    """The first state of a table that was staged: everything it has comes from the updates."""
    actions = list(_actions(updates))
    versions = [
        node.integer("format-version") for node, apply in actions if apply is update_structure.upgrade_format_version
    ]
    first = versions[0] if versions else 2
    update_structure.require_version(first, "$.updates")
    draft = Draft(None, now_ms=now_ms, format_version=first, table_uuid=table_uuid)
    for node, apply in actions:
        apply(draft, node)
    return draft.finish(None)


def _actions(updates: Sequence[Json]) -> list[tuple[Node, Apply]]:
    """Every update with what applies it; one unknown word and nothing is applied."""
    if len(updates) > UPDATES_MAX:
        raise _too_many("updates", UPDATES_MAX, len(updates))
    found = []
    structure = 0
    for position, update in enumerate(updates):
        node = Node(update, f"$.updates[{position}]")
        action = node.text("action").lower()
        apply = UPDATES.get(action)
        if apply is None:
            raise Code.COMMIT_REQUEST_INVALID(
                f"the update {shown(action)} is not known",
                reason="update_unknown",
                expected="an update of the Iceberg REST specification for tables",
                got=shown(action),
                place=node.at("action"),
            )
        structure += action in _STRUCTURE
        found.append((node, apply))
    if structure > STRUCTURE_UPDATES_MAX:
        raise _too_many("updates of schemas, specs and orders", STRUCTURE_UPDATES_MAX, structure)
    return found


def _too_many(what: str, most: int, got: int) -> InputError:
    return InputError("updates_too_many", f"a commit has too many {what}", expected=f"at most {most}", got=str(got))
