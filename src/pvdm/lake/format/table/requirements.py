"""What a commit requires of the table's state: a requirement that does not hold is a conflict, nothing happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pvdm.errors import Code, ConflictError
from pvdm.lake.format.json.document import Json
from pvdm.lake.format.json.node import Node, shown
from pvdm.lake.format.table.metadata import TableMetadata

REQUIREMENTS_MAX: Final = 1_000
ASSERT_CREATE: Final = "assert-create"

# Requirement, its field, the field of the document, and what it is called in a sentence.
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
REQUIREMENTS: Final = frozenset({ASSERT_CREATE, "assert-table-uuid", "assert-ref-snapshot-id", *_COUNTERS})


def is_create(requirements: Sequence[Json]) -> bool:
    """Whether the commit makes a new table; then it may require nothing else."""
    nodes = _nodes(requirements)
    kinds = {kind for _, kind in nodes}
    if ASSERT_CREATE in kinds and len(kinds) > 1:
        raise Code.COMMIT_REQUEST_INVALID(
            reason="requirements_mixed",
            expected=f"only {ASSERT_CREATE}",
            got=", ".join(sorted(kinds)),
            place="$.requirements",
        )
    return ASSERT_CREATE in kinds


def check_requirements(base: TableMetadata | None, requirements: Sequence[Json]) -> None:
    """Raise a conflict on the first requirement that does not hold; `base` is None when there is no table."""
    for node, kind in _nodes(requirements):
        if kind == ASSERT_CREATE:
            if base is not None:
                raise _failed(Code.REQUIREMENT_TABLE_EXISTS, "table already exists", "no table", "a table", node)
        elif base is None:
            raise _failed("requirement_table_missing", f"{kind} has no table to hold of", "a table", "no table", node)
        elif kind == "assert-table-uuid":
            _check_uuid(base, node)
        elif kind == "assert-ref-snapshot-id":
            _check_ref(base, node)
        else:
            _check_counter(base, node, kind)


def _check_uuid(base: TableMetadata, node: Node) -> None:
    uuid = node.text("uuid")
    if uuid.lower() != (base.table_uuid or "").lower():
        raise _failed("requirement_uuid", "UUID does not match", shown(uuid), str(base.table_uuid), node)


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


def _check_counter(base: TableMetadata, node: Node, kind: str) -> None:
    key, fact, words = _COUNTERS[kind]
    wanted, found = node.integer(key), getattr(base, fact)
    if wanted != found:
        raise _failed("requirement_id_changed", f"{words} changed", f"id {wanted}", f"id {found}", node)


def _nodes(requirements: Sequence[Json]) -> list[tuple[Node, str]]:
    if len(requirements) > REQUIREMENTS_MAX:
        raise Code.COMMIT_REQUEST_INVALID(
            reason="requirements_too_many", expected=f"at most {REQUIREMENTS_MAX}", got=str(len(requirements))
        )
    found = []
    for position, requirement in enumerate(requirements):
        node = Node(requirement, f"$.requirements[{position}]")
        kind = node.text("type").lower()
        if kind not in REQUIREMENTS:
            raise Code.COMMIT_REQUEST_INVALID(
                f"the requirement {shown(kind)} is not known",
                reason="requirement_unknown",
                expected="a requirement of the Iceberg REST specification for tables",
                got=shown(kind),
                place=node.at("type"),
            )
        found.append((node, kind))
    return found


def _failed(code: str, what: str, expected: str, got: str, node: Node) -> ConflictError:
    return ConflictError(
        code,
        f"Requirement failed: {what}",
        expected=expected,
        got=got,
        hint="load the table again and commit on its new state",
        place=node.place,
    )
