"""Reading metadata documents: their values, unknown fields that are kept, and documents that are refused."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from pvdm.errors import InputError
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import RefType
from tests.support.for_each import for_each
from tests.support.lake.metadata import LOCATION, NOW, UUID, Doc, column, document, snapshot, table

VERSIONS = pytest.mark.parametrize("version", [1, 2, 3])


@VERSIONS
def test_a_document_is_written_as_it_was_read(version: int) -> None:
    data = json.dumps(document(version)).encode()
    assert json.loads(TableMetadata.parse(data).to_bytes()) == json.loads(data)


@VERSIONS
def test_a_written_document_is_written_again_in_the_same_bytes(version: int) -> None:
    data = table(version).to_bytes()
    assert TableMetadata.parse(data).to_bytes() == data


@VERSIONS
def test_gzip_is_read(version: int) -> None:
    metadata = table(version)
    assert TableMetadata.parse(gzip.compress(metadata.to_bytes())) == metadata


def test_writing_a_document_above_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    large = table(properties={"a": "b" * 10_000})
    monkeypatch.setattr("pvdm.lake.format.json_document.require_size.__defaults__", (1_000,))
    with pytest.raises(InputError) as caught:
        large.to_bytes()
    assert caught.value.reason == "lake_json_too_large"


def test_a_document_is_written_without_gzip() -> None:
    assert table().to_bytes().startswith(b"{")


def test_the_single_values_of_a_document_are_read() -> None:
    found = table(3)
    assert (
        found.format_version,
        found.table_uuid,
        found.location,
        found.last_sequence_number,
        found.next_sequence_number,
        found.last_updated_ms,
        found.last_column_id,
        found.current_schema_id,
        found.default_spec_id,
        found.last_partition_id,
        found.default_sort_order_id,
        dict(found.properties),
        found.current_snapshot_id,
        found.next_row_id,
    ) == (3, UUID, LOCATION, 3, 4, NOW + 10, 4, 1, 1, 1000, 3, {"owner": "orders"}, 12, 9)


def test_the_lists_of_a_document_are_read() -> None:
    found = table(3)
    assert (
        [each.schema_id for each in found.schemas],
        [each.spec_id for each in found.specs],
        [each.order_id for each in found.sort_orders],
        [each.snapshot_id for each in found.snapshots],
        [each.snapshot_id for each in found.snapshot_log],
        [each.metadata_file for each in found.metadata_log],
        [each.snapshot_id for each in found.statistics],
        [each.path for each in found.partition_statistics],
        [each.key_id for each in found.encryption_keys],
    ) == (
        [0, 1],
        [0, 1],
        [0, 3],
        [11, 12, 13],
        [11, 12],
        [f"{LOCATION}/metadata/00000.metadata.json"],
        [11],
        [f"{LOCATION}/partitions-11.parquet"],
        ["k1"],
    )


def test_current_parts_are_found() -> None:
    found = table()
    assert found.current_snapshot is not None
    assert (
        found.current_schema.schema_id,
        found.default_spec.fields[0].name,
        found.default_sort_order.fields[0].direction,
        found.current_snapshot.parent_id,
        found.current_snapshot.operation,
    ) == (1, "day", "asc", 11, "append")


def test_refs_have_type_and_retention() -> None:
    stage, tag = table().refs["stage"], table().refs["v1"]
    assert (stage.type, stage.min_snapshots_to_keep, stage.max_snapshot_age_ms, tag.type, tag.max_ref_age_ms) == (
        RefType.BRANCH,
        2,
        5,
        RefType.TAG,
        7,
    )


def test_ancestry_goes_from_the_newest_to_the_oldest() -> None:
    assert [each.snapshot_id for each in table().ancestry(13)] == [13, 12, 11]


def test_ancestry_ends_where_a_parent_has_expired() -> None:
    found = table(snapshots=[snapshot(12, 2, 11)], refs={}, statistics=[])
    assert [each.snapshot_id for each in found.ancestry(12)] == [12]


def test_ancestry_in_a_cycle_ends() -> None:
    found = table(snapshots=[snapshot(11, 1, 12), snapshot(12, 2, 11)], refs={})
    assert [each.snapshot_id for each in found.ancestry(12)] == [12, 11]


@pytest.mark.parametrize("written", [True, False])
def test_main_is_known_without_an_entry_in_refs(written: bool) -> None:
    doc = document() | {"refs": {}}
    if not written:
        del doc["refs"]
    assert TableMetadata.from_json(doc).refs["main"].snapshot_id == 12


NULLS = [
    "properties", "refs", "snapshots", "statistics", "partition-statistics", "encryption-keys",
    "partition-specs/1/fields/0/field-id", "schemas/1/fields/0/initial-default", "schemas/1/fields/0/write-default",
    "snapshots/1/sequence-number", "snapshots/1/parent-snapshot-id", "snapshots/1/summary",
    "snapshots/1/manifest-list", "statistics/0/blob-metadata/0/properties", "encryption-keys/0/properties",
]  # fmt: skip


@for_each("path", NULLS)
def test_a_null_that_icebergs_own_reader_cannot_read_is_refused(path: str) -> None:
    doc = copy.deepcopy(document(3))
    change_at(path, None)(doc)
    with pytest.raises(InputError) as caught:
        TableMetadata.from_json(doc)
    assert caught.value.reason == ("schema_default_invalid" if "default" in path else "lake_value_invalid")


@pytest.mark.parametrize("key", ["schemas", "partition-specs", "sort-orders"])
def test_a_null_list_is_refused_in_format_1(key: str) -> None:
    with pytest.raises(InputError) as caught:
        table(1, **{key: None})
    assert caught.value.reason == "lake_value_invalid"


@for_each("path", ["current-snapshot-id", "snapshot-log", "metadata-log", "snapshots/0/schema-id"])
def test_a_null_that_means_none_is_accepted(path: str) -> None:
    doc = document() | {"refs": {}}
    change_at(path, None)(doc)
    assert TableMetadata.from_json(doc).format_version == 2


@pytest.mark.parametrize("none", [-1, None])
def test_a_table_without_snapshots_has_no_current_one(none: object) -> None:
    found = table(**{"current-snapshot-id": none, "refs": {}, "snapshots": [], "snapshot-log": []})
    assert (found.current_snapshot, dict(found.refs)) == (None, {})


def test_an_old_format_1_document_has_one_schema_one_spec_no_order() -> None:
    old = document(1)
    for key in ("schemas", "current-schema-id", "partition-specs", "default-spec-id", "last-partition-id", "refs"):
        del old[key]
    del old["sort-orders"], old["default-sort-order-id"], old["schema"]["schema-id"], old["table-uuid"]
    del old["partition-spec"][0]["field-id"]
    found = TableMetadata.from_json(old)
    assert (
        found.current_schema_id,
        found.default_spec_id,
        found.last_partition_id,
        found.default_sort_order_id,
        found.table_uuid,
        found.default_spec.fields[0].field_id,
    ) == (0, 0, 1000, 0, None, 1000)


@for_each(
    ("text", "location"),
    [("s3://bucket/x//", "s3://bucket/x"), ("s3:////", "s3://"), ("s3://", "s3://"), ("s3:/", "s3:"), ("a:b//", "a:b")],
)
def test_slashes_at_the_end_of_a_location_are_removed(text: str, location: str) -> None:
    assert table(location=text).location == location


def test_documents_with_keys_in_another_order_are_equal() -> None:
    reordered = dict(reversed(list(document().items())))
    assert TableMetadata.from_json(reordered) == table()


def test_documents_that_differ_in_an_unknown_field_are_not_equal() -> None:
    assert table(x=1) != table(x=True)


Change = Callable[[Doc], object]


def change_at(path: str, value: object) -> Change:
    """A function that sets the value at a path like `refs/main/type`, or removes it if the value is `...`."""

    def change(doc: Doc) -> None:
        *steps, last = path.split("/")
        holder: Any = doc
        for step in steps:
            holder = holder[int(step) if step.isdigit() else step]
        if value is ...:
            del holder[last]
        else:
            holder[int(last) if last.isdigit() else last] = value

    return change


REFUSED: list[tuple[int, str, object, str]] = [
    (2, "format-version", 4, "format_version_unsupported"),
    (2, "format-version", 0, "format_version_unsupported"),
    (2, "format-version", "2", "lake_value_invalid"),
    (2, "format-version", True, "lake_value_invalid"),
    (2, "table-uuid", ..., "lake_field_missing"),
    (2, "table-uuid", "not-a-uuid", "table_uuid_invalid"),
    (1, "table-uuid", "not-a-uuid", "table_uuid_invalid"),
    (2, "location", ..., "lake_field_missing"),
    (2, "location", "", "lake_value_invalid"),
    (2, "last-sequence-number", ..., "lake_field_missing"),
    (2, "last-sequence-number", -1, "counter_negative"),
    (2, "last-sequence-number", 2**63, "lake_value_invalid"),
    (2, "last-updated-ms", None, "lake_field_missing"),
    (2, "last-column-id", 2**31, "lake_value_invalid"),
    (2, "last-column-id", 3, "last_column_id_behind"),
    (2, "schemas", ..., "lake_field_missing"),
    (2, "schemas", {}, "lake_value_invalid"),
    (2, "schemas/0", [], "lake_value_invalid"),
    (2, "schemas/1/fields/1/doc", 7, "lake_value_invalid"),
    (2, "current-schema-id", 9, "schema_unknown"),
    (2, "schemas/0/schema-id", 1, "schema_id_duplicate"),
    (2, "partition-specs", ..., "lake_field_missing"),
    (2, "default-spec-id", 9, "spec_unknown"),
    (2, "partition-specs/0/spec-id", 1, "spec_id_duplicate"),
    (2, "partition-specs/0/spec-id", ..., "lake_field_missing"),
    (2, "last-partition-id", ..., "lake_field_missing"),
    (2, "last-partition-id", 999, "last_partition_id_behind"),
    (2, "partition-specs/1/fields/0/source-id", 99, "spec_source_invalid"),
    (2, "partition-specs/1/fields/0/source-id", 3, "spec_source_invalid"),
    (2, "partition-specs/1/fields/0/transform", "truncate[2]", "spec_source_invalid"),
    (2, "partition-specs/1/fields/0/transform", "hour", "spec_source_invalid"),
    (2, "partition-specs/1/fields/0/transform", "bucket[0]", "lake_value_invalid"),
    (2, "partition-specs/1/fields/0/transform", "bucket[99999999999]", "lake_value_invalid"),
    (2, "partition-specs/1/fields/0/transform", "geohash[2147483648]", "lake_value_invalid"),
    (2, "partition-specs/1/fields/0/name", "id", "spec_name_conflict"),
    (2, "partition-specs/1/fields/0/name", "", "spec_name_invalid"),
    (2, "partition-specs/1/fields/0/source-id", ..., "lake_field_missing"),
    (2, "sort-orders", ..., "lake_field_missing"),
    (2, "sort-orders", [], "sort_order_unknown"),
    (2, "default-sort-order-id", 9, "sort_order_unknown"),
    (2, "sort-orders/1/order-id", 0, "sort_order_id_reserved"),
    (2, "sort-orders/0/order-id", 5, "sort_order_id_reserved"),
    (2, "sort-orders/0/order-id", ..., "lake_field_missing"),
    (2, "sort-orders/1/fields/0/source-id", 3, "sort_source_invalid"),
    (2, "sort-orders/1/fields/0/source-id", 99, "sort_source_invalid"),
    (2, "sort-orders/1/fields/0/direction", "up", "lake_value_invalid"),
    (2, "sort-orders/1/fields/0/null-order", "never", "lake_value_invalid"),
    (2, "properties/owner", 7, "lake_value_invalid"),
    (2, "properties", [], "lake_value_invalid"),
    (2, "current-snapshot-id", 99, "current_snapshot_unknown"),
    (2, "current-snapshot-id", 11, "main_mismatch"),
    (2, "current-snapshot-id", -1, "main_mismatch"),
    (2, "refs/main/type", "tag", "main_mismatch"),
    (2, "refs/stage/snapshot-id", 99, "ref_target_unknown"),
    (2, "refs/stage/type", "twig", "lake_value_invalid"),
    (2, "refs/stage/min-snapshots-to-keep", 0, "ref_retention_invalid"),
    (2, "refs/v1/min-snapshots-to-keep", 1, "ref_retention_invalid"),
    (2, "refs/v1/max-ref-age-ms", -1, "ref_retention_invalid"),
    (2, "refs/v1", {"snapshot-id": 11, "type": "tag", **{f"x-{each}": 1 for each in range(99)}}, "ref_fields_too_many"),
    (2, "snapshots/0/snapshot-id", 12, "snapshot_id_duplicate"),
    (2, "snapshots/2/sequence-number", 4, "snapshot_sequence_ahead"),
    (2, "snapshots/2/sequence-number", -1, "lake_value_invalid"),
    (1, "snapshots/2/sequence-number", 1, "snapshot_sequence_ahead"),
    (2, "snapshots/0/timestamp-ms", ..., "lake_field_missing"),
    (2, "snapshots/0/manifest-list", ..., "snapshot_manifests_invalid"),
    (1, "snapshots/0/manifests", ["a.avro"], "snapshot_manifests_invalid"),
    (2, "snapshots/0/summary", "append", "lake_value_invalid"),
    (2, "snapshots/0/summary/added-records", 3, "lake_value_invalid"),
    (3, "snapshots/2/added-rows", 4, "snapshot_row_ids_ahead"),
    (3, "snapshots/2/added-rows", ..., "snapshot_added_rows_missing"),
    (3, "snapshots/2/first-row-id", -1, "lake_value_invalid"),
    (3, "next-row-id", ..., "lake_field_missing"),
    (3, "next-row-id", -1, "counter_negative"),
    (2, "snapshot-log/0/timestamp-ms", NOW + 60_003, "log_unsorted"),
    (2, "snapshot-log/1/timestamp-ms", NOW + 60_011, "last_updated_before_log"),
    (2, "metadata-log/0/timestamp-ms", NOW + 60_011, "last_updated_before_log"),
    (2, "metadata-log/0/metadata-file", ..., "lake_field_missing"),
    (2, "statistics/0/blob-metadata", ..., "lake_field_missing"),
    (2, "statistics/0/blob-metadata/0/fields", ["a"], "lake_value_invalid"),
    (2, "partition-statistics/0/file-size-in-bytes", ..., "lake_field_missing"),
    (3, "encryption-keys/0/encrypted-key-metadata", "!", "lake_value_invalid"),
]


@for_each(("version", "path", "value", "reason"), REFUSED)
def test_a_document_that_contradicts_itself_or_the_format_is_refused(
    version: int, path: str, value: object, reason: str
) -> None:
    doc = copy.deepcopy(document(version))
    change_at(path, value)(doc)
    with pytest.raises(InputError) as caught:
        TableMetadata.from_json(doc)
    assert caught.value.reason == reason
    assert str(caught.value.details["place"]).startswith("$")


def test_two_keys_of_one_id_are_refused() -> None:
    key = {"key-id": "k1", "encrypted-key-metadata": "AAEC"}
    with pytest.raises(InputError) as caught:
        table(3, **{"encryption-keys": [key, key]})
    assert caught.value.reason == "encryption_key_duplicate"


def test_two_orders_of_one_id_are_refused() -> None:
    orders = document()["sort-orders"]
    with pytest.raises(InputError) as caught:
        table(**{"sort-orders": [*orders, orders[1]]})
    assert caught.value.reason == "sort_order_id_duplicate"


def test_a_metadata_log_out_of_order_is_refused() -> None:
    log = [{"metadata-file": "a", "timestamp-ms": NOW}, {"metadata-file": "b", "timestamp-ms": NOW - 60_001}]
    with pytest.raises(InputError) as caught:
        table(**{"metadata-log": log})
    assert caught.value.reason == "log_unsorted"


def test_clocks_may_differ_by_a_minute() -> None:
    log = [{"snapshot-id": 11, "timestamp-ms": NOW + 60_000}, {"snapshot-id": 12, "timestamp-ms": NOW + 60_010}]
    assert table(**{"snapshot-log": log}).snapshot_log[0].timestamp_ms == NOW + 60_000


def partition(name: str, **more: object) -> Doc:
    return {"name": name, "transform": "identity", "source-id": 2, **more}


@for_each(
    ("fields", "reason"),
    [
        ([partition("day", **{"field-id": 1000}), partition("x")], "spec_field_ids_mixed"),
        ([partition("day", **{"field-id": 1000}), partition("x", **{"field-id": 1000})], "spec_field_id_duplicate"),
        ([partition("day"), partition("day")], "spec_name_invalid"),
        (
            [{"name": "x", "transform": "zorder", "source-ids": [1, 2], "field-id": 1000}],
            "transform_arguments_unsupported",
        ),
    ],
)
def test_an_ambiguous_spec_is_refused(fields: list[Doc], reason: str) -> None:
    specs = [{"spec-id": 0, "fields": []}, {"spec-id": 1, "fields": fields}]
    with pytest.raises(InputError) as caught:
        table(**{"partition-specs": specs})
    assert caught.value.reason == reason


def test_a_partition_inside_a_list_is_refused() -> None:
    tags = {"type": "list", "element-id": 6, "element": "string", "element-required": True}
    schemas = [*document()["schemas"][:1], {**document()["schemas"][1]}]
    schemas[1]["fields"] = [*schemas[1]["fields"], column(5, "tags", tags)]
    specs = [
        {"spec-id": 1, "fields": [{"name": "t", "transform": "identity", "source-id": 6, "field-id": 1000}]},
    ]
    with pytest.raises(InputError) as caught:
        table(**{"schemas": schemas, "last-column-id": 6, "partition-specs": specs})
    assert caught.value.reason == "spec_source_invalid"


def test_a_spec_that_is_not_the_default_may_have_a_dropped_column() -> None:
    specs = [*document()["partition-specs"], {"spec-id": 2, "fields": [partition("x", **{"source-id": 77})]}]
    assert table(**{"partition-specs": specs, "last-partition-id": 1001}).specs[2].fields[0].source_id == 77


def test_an_unknown_transform_is_kept() -> None:
    specs = copy.deepcopy(document()["partition-specs"])
    specs[1]["fields"][0]["transform"] = "Geohash[3]"
    assert table(**{"partition-specs": specs}).default_spec.fields[0].transform == "Geohash[3]"


@pytest.mark.parametrize(("text", "transform"), [("Bucket[016]", "bucket[16]"), ("IDENTITY", "identity")])
def test_a_transform_is_read_in_any_case(text: str, transform: str) -> None:
    specs = copy.deepcopy(document()["partition-specs"])
    specs[1]["fields"][0]["transform"] = text
    assert table(**{"partition-specs": specs}).default_spec.fields[0].transform == transform
