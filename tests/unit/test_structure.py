"""The structure of a table: its hash does not depend on data, and each change of it has a line in the difference."""

from __future__ import annotations

from typing import Any

import pytest

from pvdm.catalog.names import full_name, parse_full_name
from pvdm.cli.table.migrate_proposal import difference_lines
from pvdm.errors import InputError, NotAllowedError
from pvdm.lake.format.table.commit_request import apply_updates
from pvdm.lake.format.table.main_state import empty_table, structure_of, structure_sha256
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.new_table import new_table
from pvdm.metadata.gate.migration import require_same_data
from tests.support.catalog.core import NOW_MS, request, set_ref
from tests.support.for_each import for_each
from tests.support.gate.approvals import COLUMN
from tests.support.lake.metadata import document_of

UUID = "9f1c6f0e-7d0b-4a67-9a3e-2d6d0f3d9a11"


def table(version: int = 2) -> TableMetadata:
    return new_table(request(version), location="/lake/t", table_uuid=UUID, now_ms=NOW_MS)


def apply(base: TableMetadata, *updates: Any) -> TableMetadata:
    return apply_updates(base, updates, now_ms=NOW_MS + 1, previous_location="/lake/old.json")


def replace_fields(base: TableMetadata, **facts: Any) -> TableMetadata:
    raw = {**document_of(base), **{name.replace("_", "-"): value for name, value in facts.items()}}
    return TableMetadata.from_json(raw)


def snapshot_updates(base: TableMetadata) -> list[Any]:
    fields: dict[str, Any] = {
        "snapshot-id": 7,
        "timestamp-ms": NOW_MS,
        "summary": {"operation": "append"},
        "manifest-list": "/lake/t/metadata/snap.avro",
        "schema-id": 0,
    }
    if base.format_version > 1:
        fields["sequence-number"] = 1
    if base.format_version > 2:
        fields |= {"first-row-id": 0, "added-rows": 1}
    return [{"action": "add-snapshot", "snapshot": fields}, set_ref("main", 7)]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_rows_refs_and_logs_are_no_part_of_the_structure(version: int) -> None:
    base = table(version)
    assert structure_sha256(apply(base, *snapshot_updates(base))) == structure_sha256(base)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_table_without_data_has_the_same_structure(version: int) -> None:
    base = table(version)
    assert structure_of(empty_table(structure_of(base))) == structure_of(base)


def test_the_old_form_of_format_1_has_the_same_structure() -> None:
    base = table(1)
    raw = document_of(base)
    for key in ("schemas", "current-schema-id", "partition-specs", "default-spec-id", "sort-orders"):
        raw.pop(key)
    raw.pop("default-sort-order-id")
    assert structure_sha256(TableMetadata.from_json(raw)) == structure_sha256(base)


def test_missing_and_empty_identifier_fields_are_the_same_structure() -> None:
    raw: Any = document_of(table(2))
    raw["schemas"][0].pop("identifier-field-ids", None)
    without = structure_sha256(TableMetadata.from_json(raw))
    raw["schemas"][0]["identifier-field-ids"] = []
    assert structure_sha256(TableMetadata.from_json(raw)) == without
    raw["schemas"][0]["fields"][0]["required"] = True
    required = structure_sha256(TableMetadata.from_json(raw))
    raw["schemas"][0]["identifier-field-ids"] = [raw["schemas"][0]["fields"][0]["id"]]
    assert structure_sha256(TableMetadata.from_json(raw)) != required


LOG_ENTRY = [{"timestamp-ms": NOW_MS, "snapshot-id": 9}]
DATA: dict[str, tuple[int, Any]] = {
    "a snapshot that no ref holds": (1, lambda t: apply(t, snapshot_updates(t)[0])),
    "snapshot and main": (2, lambda t: apply(t, *snapshot_updates(t))),
    "sequence number": (2, lambda t: replace_fields(t, last_sequence_number=5)),
    "row ids": (3, lambda t: replace_fields(t, next_row_id=5)),
    "snapshot log": (2, lambda t: replace_fields(t, snapshot_log=LOG_ENTRY)),
}


@for_each("data", sorted(DATA))
def test_a_migration_that_changes_data_is_refused(data: str) -> None:
    version, change = DATA[data]
    base = table(version)
    require_same_data(base, base)
    with pytest.raises(NotAllowedError) as caught:
        require_same_data(base, change(base))
    assert caught.value.reason == "migration_moves_data"


SPEC = {"spec-id": 1, "fields": [{"name": "town", "transform": "identity", "source-id": 3, "field-id": 1001}]}
ORDER = {
    "order-id": 1,
    "fields": [{"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}],
}


def add_column_doc(base: TableMetadata) -> TableMetadata:
    raw = document_of(base)
    raw["schemas"][0]["fields"][0]["doc"] = "the order's number"  # type: ignore[index,call-overload]
    return TableMetadata.from_json(raw)


CHANGES: dict[str, Any] = {
    "property": lambda t: apply(t, {"action": "set-properties", "updates": {"a": "b"}}),
    "property gone": lambda t: apply(t, {"action": "remove-properties", "removals": ["owner"]}),
    "column": lambda t: apply(t, *COLUMN),
    "a schema that is not current": lambda t: apply(t, COLUMN[0]),
    "spec": lambda t: apply(t, {"action": "add-spec", "spec": SPEC}),
    "default spec": lambda t: apply(
        t, {"action": "add-spec", "spec": SPEC}, {"action": "set-default-spec", "spec-id": -1}
    ),
    "sort order": lambda t: apply(t, {"action": "add-sort-order", "sort-order": ORDER}),
    "format": lambda t: apply(t, {"action": "upgrade-format-version", "format-version": 3}),
    "location": lambda t: apply(t, {"action": "set-location", "location": "/lake/other"}),
    "last column id": lambda t: replace_fields(t, last_column_id=9),
    "last partition id": lambda t: replace_fields(t, last_partition_id=1_009),
    "a field nobody knows": lambda t: replace_fields(t, x_new=[1]),
    "a comment": add_column_doc,
}


@for_each("change", sorted(CHANGES))
def test_every_change_of_structure_has_another_hash_and_a_line(change: str) -> None:
    base = table()
    after = CHANGES[change](base)
    assert structure_sha256(after) != structure_sha256(base)
    assert difference_lines(base, after)
    assert difference_lines(after, base)


def test_equal_structures_have_no_difference_lines() -> None:
    assert difference_lines(table(), table()) == []


def field(number: int, name: str, kind: Any, *, required: bool = False, **more: Any) -> dict[str, Any]:
    return {"id": number, "name": name, "required": required, "type": kind, **more}


def table_with_columns(*fields: dict[str, Any], **more: Any) -> TableMetadata:
    create_body = {"schema": {"type": "struct", "schema-id": 0, "fields": list(fields), **more}}
    return new_table(create_body, location="/lake/t", table_uuid=UUID, now_ms=NOW_MS)


def column_lines(before: TableMetadata, after: TableMetadata) -> list[str]:
    return [line for line in difference_lines(before, after) if "column" in line and "schema" not in line]


def replace_columns(base: TableMetadata, *fields: dict[str, Any], **more: Any) -> TableMetadata:
    """The same table with these columns, with their ids as given, as its only schema."""
    raw = document_of(base)
    raw["schemas"] = [{"type": "struct", "schema-id": 0, "fields": list(fields), **more}]
    return TableMetadata.from_json({**raw, "last-column-id": 9})


def test_differences_of_columns_are_found_by_their_ids() -> None:
    inner = {"type": "struct", "fields": [field(3, "zip", "int")]}
    wider = {"type": "struct", "fields": [field(3, "code", "long")]}
    base = table_with_columns(field(1, "id", "int"))
    before = replace_columns(base, field(1, "id", "int"), field(2, "place", inner), field(4, "gone", "string"))
    required_id = field(1, "id", "int", required=True)
    after = replace_columns(base, required_id, field(2, "place", wider), field(5, "new", "date"))
    assert column_lines(before, after) == [
        "~ column id: becomes required, id 1",
        "~ column place.zip: is renamed to place.code, id 3",
        "~ column place.zip: int becomes long, id 3",
        "- column gone: string, optional, id 4",
        "+ column new: date, optional, id 5",
    ]


def test_another_order_and_other_identifier_columns_are_differences() -> None:
    first, second = field(1, "a", "int", required=True), field(2, "b", "int", required=True)
    base = table_with_columns(first, second)
    lines = difference_lines(replace_columns(base, first, second), replace_columns(base, second, first, **IDENTIFIED))
    assert "~ the columns are in another order" in lines
    assert "~ identifier columns: none becomes a" in lines


IDENTIFIED: dict[str, Any] = {"identifier-field-ids": [1]}
NAMES = [("sales", "orders"), ("a.b", "c"), ("a", "b.c"), ("[x", "y"), ("a", "[y"), ("a", '"b"'), ("a/b", "c d")]


@for_each("parts", NAMES)
def test_a_full_name_is_read_back(parts: tuple[str, ...]) -> None:
    assert parse_full_name(full_name(parts)) == parts


def test_different_names_have_different_full_names() -> None:
    assert len({full_name(parts) for parts in NAMES}) == len(NAMES)


@for_each("text", ["", "a..b", ".a", "[", "[1]", '{"a":1}.', '["a",null]', "[" * 100_000])
def test_an_invalid_full_name_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_full_name(text)
    assert caught.value.reason == "name_invalid"
