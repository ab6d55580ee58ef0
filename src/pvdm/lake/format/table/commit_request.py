"""The requirements and updates of a commit request: checked against a table, and applied as Iceberg's builder does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pvdm.errors import Code, ConflictError, PvdmError
from pvdm.lake.format.json_document import Json, Node, shown
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
    write_if_unchanged: bool = False,
) -> TableMetadata:
    """Apply the updates to `base`, whose metadata file is `previous_location`. Returns `base` if nothing changes.

    With `write_if_unchanged` the result is a new document even then.

    With `shared_numbers` a new snapshot's sequence number must only be above its parent's: another branch may have the
    same number and row ids. Without it, as in Iceberg, it must be above every number of the table.
    """
    draft = Draft(base, now_ms=now_ms, shared_numbers=shared_numbers)
    for node, apply in _actions(updates):
        apply(draft, node)
    draft.changed = draft.changed or write_if_unchanged
    return draft.finish(previous_location)


def create_from_updates(updates: Sequence[Json], *, now_ms: int, table_uuid: str) -> TableMetadata:
    """The first state of a staged table, made from the updates alone."""
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
    """Every update with the function that applies it."""
    found = read_kinds(updates, "update", UPDATES, most=UPDATES_MAX)
    structure = sum(kind in _STRUCTURE for _, kind in found)
    if structure > STRUCTURE_UPDATES_MAX:
        what = "updates of schemas, specs and orders"
        raise _too_many(what, "updates_too_many", STRUCTURE_UPDATES_MAX, structure)
    return [(node, UPDATES[kind]) for node, kind in found]


def _too_many(what: str, reason: str, most: int, count: int) -> PvdmError:
    words, expected = f"a commit has too many {what}", f"at most {most}"
    return Code.COMMIT_REQUEST_INVALID(words, reason=reason, expected=expected, got=str(count))


def read_kinds(
    given: Sequence[Json], what: str, known: Collection[str], *, most: int, of: str = "tables"
) -> list[tuple[Node, str]]:
    """The updates or requirements of a commit, each with its kind. Raises if there are too many or one is unknown."""
    updates = what == "update"
    if len(given) > most:
        reason = "updates_too_many" if updates or of == "views" else "requirements_too_many"
        raise _too_many(f"{what}s", reason, most, len(given))
    key = "action" if updates else "type"
    found = []
    for position, each in enumerate(given):
        node = Node(each, f"$.{what}s[{position}]")
        kind = node.text(key).lower()
        if kind not in known:
            raise Code.COMMIT_REQUEST_INVALID(
                f"the {what} {shown(kind)} is not known",
                reason="update_unknown" if updates else "requirement_unknown",
                expected=f"{what}s of the Iceberg REST specification for {of}",
                got=shown(kind),
                place=node.at(key),
            )
        found.append((node, kind))
    return found


REQUIREMENTS_MAX: Final = 1_000
ASSERT_CREATE: Final = "assert-create"

# By requirement: its field, the attribute of the table metadata, and its name in messages.
_COUNTERS: Final[Mapping[str, tuple[str, str, str]]] = MappingProxyType(
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
_RELOAD: Final = "load the table again and commit on its new state"
REQUIREMENTS: Final = frozenset({ASSERT_CREATE, "assert-table-uuid", "assert-ref-snapshot-id", *_COUNTERS})


def is_create(requirements: Sequence[Json]) -> bool:
    """Whether the commit creates a table. Raises if it also requires something of the table."""
    kinds = {kind for _, kind in _read(requirements)}
    if ASSERT_CREATE in kinds and len(kinds) > 1:
        expected, got = f"only {ASSERT_CREATE}", ", ".join(sorted(kinds))
        raise Code.COMMIT_REQUEST_INVALID(
            reason="requirements_mixed", expected=expected, got=got, place="$.requirements"
        )
    return ASSERT_CREATE in kinds


def check_requirements(base: TableMetadata | None, requirements: Sequence[Json]) -> None:
    """Raise a conflict for the first requirement that does not hold; `base` is None where there is no table."""
    for node, kind in _read(requirements):
        if kind == ASSERT_CREATE:
            if base is not None:
                raise _failed(Code.REQUIREMENT_TABLE_EXISTS, "table already exists", "no table", "a table", node)
        elif base is None:
            raise _failed("requirement_table_missing", f"{kind} has no table to hold of", "a table", "no table", node)
        elif kind == "assert-table-uuid":
            uuid = node.text("uuid")
            if uuid.lower() != (base.table_uuid or "").lower():
                raise _failed("requirement_uuid", "UUID does not match", shown(uuid), str(base.table_uuid), node)
        elif kind == "assert-ref-snapshot-id":
            _check_ref(base, node)
        else:
            key, fact, words = _COUNTERS[kind]
            wanted, found = node.integer(key), getattr(base, fact)
            if wanted != found:
                raise _failed("requirement_id_changed", f"{words} changed", f"id {wanted}", f"id {found}", node)


def _read(requirements: Sequence[Json]) -> list[tuple[Node, str]]:
    return read_kinds(requirements, "requirement", REQUIREMENTS, most=REQUIREMENTS_MAX)


def _check_ref(base: TableMetadata, node: Node) -> None:
    name, wanted = node.text("ref"), node.optional_long("snapshot-id")
    ref = base.refs.get(name)
    if ref is None and wanted is not None:
        raise _failed(
            "requirement_ref_missing", f"branch or tag {name[:64]!r} is missing", f"snapshot {wanted}", "no ref", node
        )
    if ref is not None and wanted is None:
        what = f"{ref.type.value} {name[:64]!r} was created concurrently"
        raise _failed("requirement_ref_exists", what, "no ref", f"snapshot {ref.snapshot_id}", node)
    if ref is not None and ref.snapshot_id != wanted:
        what = f"{ref.type.value} {name[:64]!r} has changed"
        raise _failed("requirement_ref_moved", what, f"snapshot {wanted}", f"snapshot {ref.snapshot_id}", node)


def _failed(code: str, what: str, expected: str, got: str, node: Node) -> ConflictError:
    words = f"Requirement failed: {what}"
    return ConflictError(code, words, expected=expected, got=got, hint=_RELOAD, place=node.place)
