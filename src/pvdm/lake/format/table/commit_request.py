"""The requirements and updates of a commit request: checked against a table, and applied as Iceberg's builder does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pvdm.errors import Code, ConflictError, PvdmError
from pvdm.lake.format.json_document import Json, Node, abbreviate
from pvdm.lake.format.table import update_snapshots, update_structure
from pvdm.lake.format.table.draft import Draft
from pvdm.lake.format.table.metadata import TableMetadata, require_format_version

UPDATES_MAX: Final = 100_000
STRUCTURE_UPDATES_MAX: Final = 256

UpdateFunction = Callable[[Draft, Node], None]

UPDATES: Final[Mapping[str, UpdateFunction]] = MappingProxyType(
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

_STRUCTURAL: Final = frozenset({"add-schema", "remove-schemas", "add-spec", "remove-partition-specs", "add-sort-order"})


def apply_updates(
    base: TableMetadata,
    updates: Sequence[Json],
    *,
    now_ms: int,
    previous_location: str | None,
    shared_numbers: bool = False,
    write_if_unchanged: bool = False,
) -> TableMetadata:
    """Apply the updates to `base`, whose metadata file is `previous_location`.

    If nothing changes, the result is `base`, or with `write_if_unchanged` a new document.
    As in Iceberg, a new snapshot's sequence number must be above the table's last number; only a snapshot without a
    parent may repeat the last number. With `shared_numbers` the snapshot's number must only be above its parent's
    number, so that snapshots on different branches may have the same sequence numbers and row ids.
    """
    draft = Draft(base, now_ms=now_ms, shared_numbers=shared_numbers)
    for node, apply in _read_updates(updates):
        apply(draft, node)
    draft.changed = draft.changed or write_if_unchanged
    return draft.finish(previous_location)


def create_from_updates(updates: Sequence[Json], *, now_ms: int, table_uuid: str) -> TableMetadata:
    """The first state of a table that a commit creates, built from the commit's updates alone."""
    actions = _read_updates(updates)
    upgrades = [node for node, apply in actions if apply is update_structure.upgrade_format_version]
    version = upgrades[0].integer("format-version") if upgrades else 2
    require_format_version(version, "$.updates")
    draft = Draft(None, now_ms=now_ms, format_version=version, table_uuid=table_uuid)
    for node, apply in actions:
        apply(draft, node)
    return draft.finish(None)


def _read_updates(updates: Sequence[Json]) -> list[tuple[Node, UpdateFunction]]:
    """Every update with the function that applies it."""
    read = read_kinds(updates, "update", UPDATES, max_count=UPDATES_MAX)
    structure_updates = sum(kind in _STRUCTURAL for _, kind in read)
    if structure_updates > STRUCTURE_UPDATES_MAX:
        what = "updates of schemas, specs and orders"
        raise _too_many(what, "updates_too_many", STRUCTURE_UPDATES_MAX, structure_updates)
    return [(node, UPDATES[kind]) for node, kind in read]


def _too_many(what: str, reason: str, max_count: int, count: int) -> PvdmError:
    words, expected = f"a commit has too many {what}", f"at most {max_count}"
    return Code.COMMIT_REQUEST_INVALID(words, reason=reason, expected=expected, got=str(count))


def read_kinds(
    values: Sequence[Json], what: str, known: Collection[str], *, max_count: int, target: str = "tables"
) -> list[tuple[Node, str]]:
    """Each value with its kind. `what` is `update` or `requirement`. Raises for unknown kinds and too many values."""
    are_updates = what == "update"
    if len(values) > max_count:
        reason = "updates_too_many" if are_updates or target == "views" else "requirements_too_many"
        raise _too_many(f"{what}s", reason, max_count, len(values))
    key = "action" if are_updates else "type"
    read = []
    for position, value in enumerate(values):
        node = Node(value, f"$.{what}s[{position}]")
        kind = node.text(key).lower()
        if kind not in known:
            words, got, place = f"the {what} {abbreviate(kind)} is not known", abbreviate(kind), node.at(key)
            reason = "update_unknown" if are_updates else "requirement_unknown"
            expected = f"{what}s of the Iceberg REST specification for {target}"
            raise Code.COMMIT_REQUEST_INVALID(words, reason=reason, expected=expected, got=got, place=place)
        read.append((node, kind))
    return read


REQUIREMENTS_MAX: Final = 1_000
ASSERT_CREATE: Final = "assert-create"

# Key: the requirement. Value: its field, the attribute of `TableMetadata` that must equal it, the name in messages.
_REQUIRED_IDS: Final[Mapping[str, tuple[str, str, str]]] = MappingProxyType(
    {
        "assert-last-assigned-field-id": ("last-assigned-field-id", "last_column_id", "last assigned field id"),
        "assert-current-schema-id": ("current-schema-id", "current_schema_id", "current schema"),
        "assert-last-assigned-partition-id": (
            "last-assigned-partition-id",
            "last_partition_id",
            "last assigned partition id",
        ),
        "assert-default-spec-id": ("default-spec-id", "default_spec_id", "default partition spec"),
        "assert-default-sort-order-id": ("default-sort-order-id", "default_sort_order_id", "default sort order"),
    }
)
_RELOAD_HINT: Final = "load the table again and commit on its new state"
REQUIREMENTS: Final = frozenset({ASSERT_CREATE, "assert-table-uuid", "assert-ref-snapshot-id", *_REQUIRED_IDS})


def is_create(requirements: Sequence[Json]) -> bool:
    """Whether the commit creates a table. Raises if the commit also has other requirements."""
    kinds = {kind for _, kind in _read_requirements(requirements)}
    if ASSERT_CREATE in kinds and len(kinds) > 1:
        expected, got = f"only {ASSERT_CREATE}", ", ".join(sorted(kinds))
        reason, place = "requirements_mixed", "$.requirements"
        raise Code.COMMIT_REQUEST_INVALID(reason=reason, expected=expected, got=got, place=place)
    return ASSERT_CREATE in kinds


def check_requirements(base: TableMetadata | None, requirements: Sequence[Json]) -> None:
    """Raise a conflict for the first requirement that is not met. `base` is None if there is no table."""
    for node, kind in _read_requirements(requirements):
        if kind == ASSERT_CREATE:
            if base is not None:
                raise _failed("requirement_table_exists", "table already exists", "no table", "a table", node)
        elif base is None:
            raise _failed("requirement_table_missing", f"{kind} needs a table", "a table", "no table", node)
        elif kind == "assert-table-uuid":
            uuid = node.text("uuid")
            if uuid.lower() != (base.table_uuid or "").lower():
                raise _failed("requirement_uuid", "UUID does not match", abbreviate(uuid), str(base.table_uuid), node)
        elif kind == "assert-ref-snapshot-id":
            _check_ref(base, node)
        else:
            key, attribute, name = _REQUIRED_IDS[kind]
            required, present = node.integer(key), getattr(base, attribute)
            if required != present:
                raise _failed("requirement_id_changed", f"{name} changed", f"id {required}", f"id {present}", node)


def _read_requirements(requirements: Sequence[Json]) -> list[tuple[Node, str]]:
    return read_kinds(requirements, "requirement", REQUIREMENTS, max_count=REQUIREMENTS_MAX)


def _check_ref(base: TableMetadata, node: Node) -> None:
    name, snapshot_id = node.text("ref"), node.optional_long("snapshot-id")
    ref = base.refs.get(name)
    expected = "no ref" if snapshot_id is None else f"snapshot {snapshot_id}"
    if ref is None:
        if snapshot_id is not None:
            words = f"branch or tag {name[:64]!r} is missing"
            raise _failed("requirement_ref_missing", words, expected, "no ref", node)
    elif ref.snapshot_id != snapshot_id:
        must_be_new = snapshot_id is None
        reason = "requirement_ref_exists" if must_be_new else "requirement_ref_moved"
        words = f"{ref.type.value} {name[:64]!r} {'was created concurrently' if must_be_new else 'has changed'}"
        raise _failed(reason, words, expected, f"snapshot {ref.snapshot_id}", node)


def _failed(reason: str, words: str, expected: str, got: str, node: Node) -> ConflictError:
    message = f"Requirement failed: {words}"
    return ConflictError(reason, message, expected=expected, got=got, hint=_RELOAD_HINT, place=node.place)
