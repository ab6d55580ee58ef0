"""Metadata of new tables, and of tables that are registered from a file."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from pvdm.errors import InputError
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.new_table import new_table, read_registered_table
from tests.support.for_each import for_each
from tests.support.lake.metadata import LOCATION, NOW, UUID, Doc, column, create_request, document, schema, table


def create(**more: object) -> TableMetadata:
    return new_table(create_request(**more), location=f"{LOCATION}/", table_uuid=UUID, now_ms=NOW)


def reason_of(**more: object) -> str:
    with pytest.raises(InputError) as caught:
        create(**more)
    return caught.value.reason


def column_ids(metadata: TableMetadata) -> dict[str, int]:
    return {field.name: field.field_id for field in metadata.current_schema.fields.values()}


def test_columns_get_fresh_ids_level_by_level() -> None:
    assert column_ids(create()) == {
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


def test_reserved_properties_are_applied_and_not_stored() -> None:
    found = create(properties={"format-version": "3", "uuid": "x", "owner": "me"})
    assert (found.format_version, dict(found.properties)) == (
        3,
        {"write.parquet.compression-codec": "zstd", "owner": "me"},
    )


def test_a_requested_property_replaces_the_default_of_new_tables() -> None:
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


def test_a_format_1_table_also_has_its_schema_in_the_old_field() -> None:
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


def test_creating_a_table_does_not_change_the_request() -> None:
    request = create_request()
    before = copy.deepcopy(request)
    new_table(request, location=LOCATION, table_uuid=UUID, now_ms=NOW)
    assert request == before


@for_each(
    ("properties", "reason"),
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
def test_properties_that_would_break_the_table_are_refused(properties: Doc, reason: str) -> None:
    assert reason_of(properties=properties) == reason


def test_an_encrypted_table_is_accepted_in_format_3() -> None:
    assert create(properties={"encryption.key-id": "k", "format-version": "3"}).format_version == 3


def test_metrics_of_a_nested_column_are_set_by_its_full_name() -> None:
    properties = {"write.metadata.metrics.column.facts.value.n": "full"}
    assert create(properties=properties).properties.items() >= properties.items()


@for_each(
    ("part", "value", "reason"),
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
def test_a_request_for_an_invalid_table_is_refused(part: str, value: object, reason: str) -> None:
    request = create_request()
    if part == "schema":
        del request["partition-spec"], request["write-order"]
    with pytest.raises(InputError) as caught:
        new_table(request | {part: value}, location=LOCATION, table_uuid=UUID, now_ms=NOW)
    assert caught.value.reason == reason


def test_a_new_table_without_a_valid_uuid_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        new_table(create_request(), location=LOCATION, table_uuid="x", now_ms=NOW)
    assert caught.value.reason == "table_uuid_invalid"


def test_a_registered_file_is_read_as_its_table() -> None:
    assert read_registered_table(json.dumps(document()).encode()) == table()


def test_registering_a_file_without_a_table_uuid_is_refused() -> None:
    old = document(1)
    del old["table-uuid"]
    with pytest.raises(InputError) as caught:
        read_registered_table(json.dumps(old).encode())
    assert caught.value.reason == "table_uuid_missing"
