"""New tables, replaced tables, registered tables."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from pvdm.errors import InputError
from pvdm.lake.format.metadata import TableMetadata
from pvdm.lake.format.new_table import new_table, register_table, replace_table
from tests.lake_metadata_examples import (
    FILE,
    LOCATION,
    NOW,
    UUID,
    Doc,
    column,
    create_request,
    document,
    schema,
    table,
)


def create(**more: object) -> TableMetadata:
    return new_table(create_request(**more), location=f"{LOCATION}/", table_uuid=UUID, now_ms=NOW)


def replaced(base: TableMetadata, request: Doc) -> TableMetadata:
    return replace_table(base, request, location=LOCATION, now_ms=NOW + 20, previous_location=FILE)


def refusal(**more: object) -> str:
    with pytest.raises(InputError) as caught:
        create(**more)
    return caught.value.code


def ids(metadata: TableMetadata) -> dict[str, int]:
    return {field.name: field.field_id for field in metadata.current_schema.fields.values()}


def test_columns_get_fresh_ids_level_by_level() -> None:
    assert ids(create()) == {
        "id": 1,
        "day": 2,
        "place": 3,
        "tags": 4,
        "facts": 5,
        "place.town": 6,
        "tags.element": 7,
        "facts.key": 8,
        "facts.value": 9,
        "facts.value.n": 10,
    }


def test_a_new_table_starts_its_counters() -> None:
    found = create()
    assert (
        found.last_column_id,
        found.last_partition_id,
        found.last_sequence_number,
        found.current_schema_id,
        found.default_spec_id,
        found.default_sort_order_id,
        found.current_snapshot_id,
        found.last_updated_ms,
        found.location,
        found.table_uuid,
    ) == (10, 1001, 0, 0, 0, 1, None, NOW, LOCATION, UUID)


def test_partitions_sort_order_and_identifiers_follow_their_columns() -> None:
    found = create()
    assert (
        [(each.source_id, each.field_id, each.name) for each in found.default_spec.fields],
        [each.source_id for each in found.default_sort_order.fields],
        sorted(found.current_schema.identifier_field_ids),
    ) == ([(2, 1000, "day"), (1, 1001, "id_bucket")], [6], [1, 6])


def test_reserved_properties_steer_and_are_not_kept() -> None:
    found = create(properties={"format-version": "3", "uuid": "x", "owner": "me"})
    assert (found.format_version, dict(found.properties)) == (
        3,
        {"write.parquet.compression-codec": "zstd", "owner": "me"},
    )


def test_a_default_of_new_tables_gives_way_to_what_is_asked_for() -> None:
    found = create(properties={"write.parquet.compression-codec": "snappy"})
    assert found.properties["write.parquet.compression-codec"] == "snappy"


def test_a_table_without_spec_and_order_is_unpartitioned_and_unsorted() -> None:
    request = {"schema": schema(0, column(1, "a"))}
    found = new_table(request, location=LOCATION, table_uuid=UUID, now_ms=NOW)
    assert (found.format_version, found.raw["partition-specs"], found.raw["sort-orders"], found.last_partition_id) == (
        2,
        [{"fields": [], "spec-id": 0}],
        [{"fields": [], "order-id": 0}],
        999,
    )


def test_a_format_1_table_names_schema_and_spec_the_old_way() -> None:
    found = create(properties={"format-version": "1"})
    assert (found.raw["schema"], "last-sequence-number" in found.raw) == (found.current_schema.raw, False)


def test_unknown_fields_of_a_request_are_kept() -> None:
    request = create_request()
    request["schema"]["x-mark"] = 1
    request["schema"]["fields"][0]["x-mark"] = 2
    request["schema"]["fields"][0]["key-id"] = 50
    request["partition-spec"]["fields"][0]["x-mark"] = 3
    request["write-order"]["fields"][0]["x-mark"] = 4
    raw: Any = new_table(request, location=LOCATION, table_uuid=UUID, now_ms=NOW).raw
    first = raw["schemas"][0]["fields"][0]
    assert (
        raw["schemas"][0]["x-mark"],
        first["x-mark"],
        first["key-id"],
        raw["partition-specs"][0]["fields"][0]["x-mark"],
        raw["sort-orders"][0]["fields"][0]["x-mark"],
    ) == (1, 2, 50, 3, 4)


def test_a_request_is_not_changed() -> None:
    request = create_request()
    before = copy.deepcopy(request)
    new_table(request, location=LOCATION, table_uuid=UUID, now_ms=NOW)
    assert request == before


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"format-version": "4"}, "format_version_unsupported"),
        ({"format-version": "two"}, "property_not_integer"),
        ({"commit.retry.num-retries": "x"}, "property_not_integer"),
        ({"commit.retry.min-wait-ms": "-1"}, "property_negative"),
        ({"encryption.key-id": "k"}, "property_version"),
        ({"write.metadata.metrics.column.nowhere": "full"}, "property_column_unknown"),
        ({"write.metadata.metrics.column.facts.n": "full"}, "property_column_unknown"),
        ({"owner": 3}, "lake_value_invalid"),
    ],
)
def test_properties_that_would_break_the_table_are_refused(properties: Doc, code: str) -> None:
    assert refusal(properties=properties) == code


def test_an_encrypted_table_is_of_format_3() -> None:
    assert create(properties={"encryption.key-id": "k", "format-version": "3"}).format_version == 3


def test_metrics_of_a_nested_column_are_named_in_full() -> None:
    properties = {"write.metadata.metrics.column.facts.value.n": "full"}
    assert create(properties=properties).properties.items() >= properties.items()


@pytest.mark.parametrize(
    ("part", "value", "code"),
    [
        ("schema", None, "lake_field_missing"),
        ("schema", schema(0, column(1, "v", "variant")), "schema_type_version"),
        ("partition-spec", {"fields": [{"name": "x", "transform": "day", "source-id": 0}]}, "spec_source_invalid"),
        ("partition-spec", {"fields": [{"name": "id", "transform": "day", "source-id": 50}]}, "spec_name_conflict"),
        ("partition-spec", {"fields": [{"name": "x", "transform": "void", "source-id": 99}]}, "spec_source_missing"),
        (
            "write-order",
            {"fields": [{"transform": "day", "source-id": 0, "direction": "asc", "null-order": "nulls-first"}]},
            "sort_source_invalid",
        ),
    ],
)
def test_a_request_that_makes_no_valid_table_is_refused(part: str, value: object, code: str) -> None:
    request = create_request()
    if part == "schema":
        del request["partition-spec"], request["write-order"]
    with pytest.raises(InputError) as caught:
        new_table(request | {part: value}, location=LOCATION, table_uuid=UUID, now_ms=NOW)
    assert caught.value.code == code


def test_a_new_table_needs_a_uuid() -> None:
    with pytest.raises(InputError) as caught:
        new_table(create_request(), location=LOCATION, table_uuid="x", now_ms=NOW)
    assert caught.value.code == "table_uuid_invalid"


def test_a_replaced_table_keeps_column_ids_by_name_and_shows_nothing() -> None:
    request = {"schema": schema(0, column(70, "day", "date"), column(71, "new"), column(72, "id", required=True))}
    found = replaced(table(), request)
    assert (
        ids(found),
        found.last_column_id,
        found.current_schema_id,
        found.current_snapshot_id,
        len(found.snapshots),
    ) == (
        {"day": 2, "new": 5, "id": 1},
        5,
        2,
        None,
        3,
    )


def test_a_replaced_table_keeps_uuid_history_and_other_refs() -> None:
    found = replaced(table(), {"schema": schema(0, column(1, "a"))})
    assert (found.table_uuid, sorted(found.refs), len(found.snapshot_log), found.metadata_log[-1].metadata_file) == (
        UUID,
        ["stage", "v1"],
        2,
        FILE,
    )


def test_a_replaced_table_uses_known_partition_field_ids_and_new_ones() -> None:
    request = {
        "schema": schema(0, column(70, "day", "date"), column(72, "id")),
        "partition-spec": {
            "fields": [
                {"name": "b", "transform": "bucket[4]", "source-id": 72},
                {"name": "day", "transform": "identity", "source-id": 70},
            ]
        },
    }
    found = replaced(table(), request)
    assert ([each.field_id for each in found.default_spec.fields], found.default_spec_id, found.last_partition_id) == (
        [1001, 1000],
        2,
        1001,
    )


def test_a_replaced_format_1_table_keeps_its_old_partitions_as_void() -> None:
    request = {
        "schema": schema(0, column(70, "day", "date"), column(72, "id")),
        "partition-spec": {"fields": [{"name": "day", "transform": "month", "source-id": 70}]},
    }
    found = replaced(table(1), request)
    assert [(each.name, each.transform, each.field_id) for each in found.default_spec.fields] == [
        ("day_1000", "void", 1000),
        ("day", "month", 1001),
    ]


def test_a_replaced_format_1_table_carries_a_partition_that_is_still_wanted() -> None:
    request = {
        "schema": schema(0, column(70, "day", "date")),
        "partition-spec": {"fields": [{"name": "day", "transform": "identity", "source-id": 70}]},
    }
    assert replaced(table(1), request).default_spec_id == 1


def test_a_replaced_format_1_table_wants_sequential_partition_ids() -> None:
    request = {
        "schema": schema(0, column(70, "day", "date")),
        "partition-spec": {"fields": [{"name": "day", "transform": "identity", "source-id": 70, "field-id": 1005}]},
    }
    with pytest.raises(InputError) as caught:
        replaced(table(1), request)
    assert caught.value.code == "spec_ids_not_sequential"


def test_the_same_definition_again_only_empties_main() -> None:
    base = create()
    found = replaced(base, create_request())
    same = ("schemas", "partition-specs", "sort-orders", "properties", "last-column-id", "last-partition-id")
    assert [found.raw[key] for key in same] == [base.raw[key] for key in same]


def test_a_replaced_table_may_be_upgraded_and_never_downgraded() -> None:
    request = {"schema": schema(0, column(1, "a")), "properties": {"format-version": "3"}}
    assert replaced(table(2), request).format_version == 3
    with pytest.raises(InputError) as caught:
        replaced(table(2), request | {"properties": {"format-version": "1"}})
    assert caught.value.code == "format_version_downgrade"


def test_a_replaced_table_keeps_properties_that_the_request_does_not_name() -> None:
    found = replaced(table(), {"schema": schema(0, column(1, "a")), "properties": {"b": "c"}})
    assert dict(found.properties) == {"owner": "orders", "b": "c", "write.parquet.compression-codec": "zstd"}


def test_a_registered_file_is_the_table_it_says_it_is() -> None:
    assert register_table(json.dumps(document()).encode()) == table()


def test_a_file_that_does_not_say_which_table_it_is_cannot_be_registered() -> None:
    old = document(1)
    del old["table-uuid"]
    with pytest.raises(InputError) as caught:
        register_table(json.dumps(old).encode())
    assert caught.value.code == "table_uuid_missing"
