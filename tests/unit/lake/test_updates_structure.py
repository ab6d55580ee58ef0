"""Updates of a table's structure: schemas, specs, sort orders, properties and format, as Iceberg applies them."""

from __future__ import annotations

from typing import Any

import pytest

from pvdm.errors import InputError
from pvdm.lake.format.table.commit_request import UPDATES, apply_updates
from pvdm.lake.format.table.metadata import TableMetadata
from tests.support.for_each import for_each
from tests.support.lake.metadata import FILE, LOCATION, NOW, UUID, Doc, column, document, document_of, table

LATER = NOW + 20


def apply(base: TableMetadata, *updates: Doc) -> TableMetadata:
    return apply_updates(base, list(updates), now_ms=LATER, previous_location=FILE)


def reason_of(base: TableMetadata, *updates: Doc) -> str:
    with pytest.raises(InputError) as caught:
        apply(base, *updates)
    return caught.value.reason


def wide_schema(*more: Doc, **rest: Any) -> Doc:
    """The current schema of the example table with another id and these columns added."""
    return {**document()["schemas"][1], "schema-id": 77, "fields": [*document()["schemas"][1]["fields"], *more], **rest}


def add_schema(schema: Doc, **more: object) -> Doc:
    return {"action": "add-schema", "schema": schema, **more}


def set_schema(schema_id: int) -> Doc:
    return {"action": "set-current-schema", "schema-id": schema_id}


def partition(name: str, transform: str, source: int, field_id: int | None = None) -> Doc:
    made: Doc = {"name": name, "transform": transform, "source-id": source}
    return made if field_id is None else {**made, "field-id": field_id}


def add_spec(*fields: Doc, **more: object) -> Doc:
    return {"action": "add-spec", "spec": {"spec-id": 55, "fields": list(fields), **more}}


def set_spec(spec_id: int) -> Doc:
    return {"action": "set-default-spec", "spec-id": spec_id}


def add_order(*sources: int) -> Doc:
    fields = [
        {"transform": "identity", "source-id": source, "direction": "asc", "null-order": "nulls-first"}
        for source in sources
    ]
    return {"action": "add-sort-order", "sort-order": {"order-id": 44 if fields else 0, "fields": fields}}


def set_order(order_id: int) -> Doc:
    return {"action": "set-default-sort-order", "sort-order-id": order_id}


def test_every_update_of_the_specification_is_known() -> None:
    assert sorted(UPDATES) == [
        "add-encryption-key",
        "add-schema",
        "add-snapshot",
        "add-sort-order",
        "add-spec",
        "assign-uuid",
        "remove-encryption-key",
        "remove-partition-specs",
        "remove-partition-statistics",
        "remove-properties",
        "remove-schemas",
        "remove-snapshot-ref",
        "remove-snapshots",
        "remove-statistics",
        "set-current-schema",
        "set-default-sort-order",
        "set-default-spec",
        "set-location",
        "set-partition-statistics",
        "set-properties",
        "set-snapshot-ref",
        "set-statistics",
        "upgrade-format-version",
    ]


@for_each("action", ["add-view-version", "set-current-view-version", "drop-table", ""])
def test_an_unknown_update_is_refused_by_name(action: str) -> None:
    assert reason_of(table(), {"action": action}) == "update_unknown"


def test_an_unknown_update_is_refused_before_an_invalid_one() -> None:
    assert reason_of(table(), {"action": "set-properties"}, {"action": "brand-new"}) == "update_unknown"


def test_an_update_without_action_is_refused() -> None:
    assert reason_of(table(), {"uuid": UUID}) == "lake_field_missing"


def test_too_many_updates_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pvdm.lake.format.table.commit_request.UPDATES_MAX", 1)
    assert reason_of(table(), set_schema(1), set_schema(1)) == "updates_too_many"


def test_too_many_updates_of_structure_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pvdm.lake.format.table.commit_request.STRUCTURE_UPDATES_MAX", 2)
    updates = [add_schema(wide_schema(column(5, "new"))), add_order(2), set_order(-1)]
    assert apply(table(), *updates).default_sort_order_id == 4
    assert reason_of(table(), *updates, {"action": "remove-schemas", "schema-ids": []}) == "updates_too_many"


@for_each(
    "update",
    [
        set_schema(1),
        set_spec(1),
        set_order(3),
        {"action": "assign-uuid", "uuid": UUID},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "set-location", "location": f"{LOCATION}/"},
        {"action": "set-properties", "updates": {}},
        {"action": "remove-properties", "removals": []},
        {"action": "remove-schemas", "schema-ids": []},
        {"action": "remove-partition-specs", "spec-ids": []},
        {"action": "remove-snapshots", "snapshot-ids": [404]},
        {"action": "remove-snapshot-ref", "ref-name": "nowhere"},
        {"action": "remove-statistics", "snapshot-id": 404},
        {"action": "remove-partition-statistics", "snapshot-id": 404},
        {"action": "remove-encryption-key", "key-id": "none"},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 12},
        add_schema(wide_schema()),
        add_spec(partition("day", "identity", 2, 1000)),
        add_order(1),
        add_order(),
    ],
)
def test_an_update_that_changes_nothing_returns_the_same_object(update: Doc) -> None:
    base = table()
    assert apply(base, update) is base


def test_without_updates_the_same_object_is_returned() -> None:
    base = table()
    assert apply(base) is base


def test_a_change_sets_the_time_and_logs_the_replaced_file() -> None:
    found = apply(table(), {"action": "set-properties", "updates": {"a": "b"}})
    assert (found.last_updated_ms, found.metadata_log[-1].metadata_file, found.metadata_log[-1].timestamp_ms) == (
        LATER,
        FILE,
        NOW + 10,
    )


@for_each(("limit", "kept"), [("1", 1), ("2", 2), ("3", 3), ("0", 1), ("-5", 1), (None, 4)])
def test_the_metadata_log_keeps_the_newest_files(limit: str | None, kept: int) -> None:
    log = [{"metadata-file": f"f{place}", "timestamp-ms": NOW + place} for place in range(3)]
    properties = {} if limit is None else {"write.metadata.previous-versions-max": limit}
    found = apply(
        table(**{"metadata-log": log, "properties": properties}), {"action": "assign-uuid", "uuid": UUID.upper()}
    )
    assert [each.metadata_file for each in found.metadata_log] == ["f0", "f1", "f2", FILE][-kept:]


def test_the_metadata_log_keeps_a_hundred_by_default() -> None:
    log = [{"metadata-file": f"f{place}", "timestamp-ms": NOW} for place in range(120)]
    found = apply(table(**{"metadata-log": log}), {"action": "set-properties", "updates": {"a": "b"}})
    assert (len(found.metadata_log), found.metadata_log[0].metadata_file) == (100, "f21")


def test_a_change_without_a_previous_file_logs_none() -> None:
    update: Doc = {"action": "set-properties", "updates": {"a": "b"}}
    found = apply_updates(table(), [update], now_ms=LATER, previous_location=None)
    assert len(found.metadata_log) == 1


@for_each("text", ["many", "", "1.5", "99999999999"])
def test_a_log_length_that_is_no_number_is_refused(text: str) -> None:
    update = {"action": "set-properties", "updates": {"write.metadata.previous-versions-max": text}}
    assert reason_of(table(), update) == "property_not_integer"


def test_a_time_more_than_a_minute_before_the_last_one_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        apply_updates(
            table(), [{"action": "set-properties", "updates": {"a": "b"}}], now_ms=NOW - 60_001, previous_location=FILE
        )
    assert caught.value.reason == "last_updated_before_log"


@pytest.mark.parametrize("version", [1, 2, 3])
def test_unknown_fields_are_kept_by_a_commit_everywhere(version: int) -> None:
    doc = document(version)
    doc["x-top"] = {"deep": [1, None, True]}
    for holder in (
        doc["schemas"][0], doc["schemas"][1]["fields"][1], doc["schemas"][1]["fields"][2]["type"],
        doc["partition-specs"][1], doc["partition-specs"][1]["fields"][0], doc["sort-orders"][1],
        doc["sort-orders"][1]["fields"][0], doc["snapshots"][0], doc["refs"]["stage"], doc["snapshot-log"][0],
        doc["metadata-log"][0], doc["statistics"][0], doc["statistics"][0]["blob-metadata"][0],
        doc["partition-statistics"][0],
    ):  # fmt: skip
        holder["x-mark"] = "kept"
    found = document_of(apply(TableMetadata.from_json(doc), {"action": "set-properties", "updates": {"a": "b"}}))
    expected = doc | {
        "properties": {"owner": "orders", "a": "b"},
        "last-updated-ms": LATER,
        "metadata-log": [*doc["metadata-log"], {"timestamp-ms": NOW + 10, "metadata-file": FILE}],
    }
    assert found == expected


def test_a_uuid_is_assigned() -> None:
    assert apply(table(), {"action": "assign-uuid", "uuid": UUID.upper()}).table_uuid == UUID.upper()


def test_an_invalid_uuid_is_refused() -> None:
    assert reason_of(table(), {"action": "assign-uuid", "uuid": "x"}) == "table_uuid_invalid"


def test_a_format_1_table_becomes_format_2() -> None:
    raw = apply(table(1), {"action": "upgrade-format-version", "format-version": 2}).raw
    assert (raw["format-version"], raw["last-sequence-number"], "schema" in raw, "partition-spec" in raw) == (
        2,
        0,
        False,
        False,
    )


def test_a_format_2_table_becomes_format_3_without_row_ids() -> None:
    found = apply(table(2), {"action": "upgrade-format-version", "format-version": 3})
    assert (found.format_version, found.next_row_id, found.snapshots[0].first_row_id) == (3, 0, None)


@pytest.mark.parametrize(
    ("version", "reason"),
    [(1, "format_version_downgrade"), (4, "format_version_unsupported"), (0, "format_version_unsupported")],
)
def test_a_lower_or_unknown_format_version_is_refused(version: int, reason: str) -> None:
    assert reason_of(table(2), {"action": "upgrade-format-version", "format-version": version}) == reason


def test_a_new_schema_gets_the_next_id_whatever_id_it_has() -> None:
    found = apply(table(), add_schema(wide_schema(column(5, "new"))), set_schema(-1))
    assert (found.current_schema_id, found.last_column_id, found.current_schema.raw["schema-id"]) == (2, 5, 2)


def test_a_schema_that_is_only_added_is_not_current() -> None:
    found = apply(table(), add_schema(wide_schema(column(5, "new"))))
    assert (found.current_schema_id, len(found.schemas), found.last_column_id) == (1, 3, 5)


def test_the_last_column_id_of_the_client_is_ignored() -> None:
    assert apply(table(), add_schema(wide_schema(column(5, "new")), **{"last-column-id": 900})).last_column_id == 5


def test_an_equal_schema_is_not_added_again() -> None:
    narrow = {**document()["schemas"][0], "schema-id": 31}
    found = apply(
        table(), add_schema(narrow), set_schema(0), set_spec(0), {"action": "set-properties", "updates": {"a": "b"}}
    )
    assert (found.current_schema_id, len(found.schemas)) == (0, 2)


def test_an_equal_schema_is_not_the_last_added_one() -> None:
    assert reason_of(table(), add_schema(wide_schema()), set_schema(-1)) == "last_added_missing"


def test_a_schema_added_twice_in_one_commit_is_the_last_added_one() -> None:
    new = add_schema(wide_schema(column(5, "new")))
    other = add_schema(wide_schema(column(5, "new"), column(6, "newer")))
    found = apply(table(), new, other, new, set_schema(-1))
    assert (found.current_schema_id, len(found.schemas), found.last_column_id) == (2, 4, 6)


@for_each(
    ("update", "reason"),
    [
        (set_schema(9), "schema_unknown"),
        (set_schema(-1), "last_added_missing"),
        (set_spec(-1), "last_added_missing"),
        (set_order(-1), "last_added_missing"),
        (set_spec(9), "spec_unknown"),
        (set_order(9), "sort_order_unknown"),
        ({"action": "remove-schemas", "schema-ids": [0, 1]}, "schema_in_use"),
        ({"action": "remove-partition-specs", "spec-ids": [1]}, "spec_in_use"),
        (add_schema(wide_schema(column(5, "v", "variant"))), "schema_type_version"),
        (add_schema(wide_schema(column(5, "v", "int", **{"initial-default": 1}))), "schema_default_version"),
        (set_schema(0), "spec_source_invalid"),
        (add_spec(partition("day", "hour", 2, 1001)), "spec_source_invalid"),
        (add_spec(partition("id", "identity", 2, 1001)), "spec_name_conflict"),
        (add_order(3), "sort_source_invalid"),
        (add_order(99), "sort_source_invalid"),
        ({"action": "set-properties", "updates": {"a": None}}, "lake_value_invalid"),
        ({"action": "set-properties"}, "lake_field_missing"),
        ({"action": "remove-properties", "removals": [1]}, "lake_value_invalid"),
        ({"action": "set-location", "location": ""}, "lake_value_invalid"),
    ],
)
def test_an_update_that_would_break_the_table_is_refused(update: Doc, reason: str) -> None:
    assert reason_of(table(), update) == reason


def test_a_new_column_with_the_name_of_a_partition_is_refused() -> None:
    base = apply(table(), add_spec(partition("id_bucket", "bucket[4]", 1, 1001)), set_spec(-1))
    assert reason_of(base, add_schema(wide_schema(column(5, "id_bucket"))), set_schema(-1)) == "spec_name_conflict"


def test_schemas_and_specs_that_are_not_in_use_are_removed() -> None:
    found = apply(
        table(),
        {"action": "remove-schemas", "schema-ids": [0, 5]},
        {"action": "remove-partition-specs", "spec-ids": [0]},
    )
    assert ([each.schema_id for each in found.schemas], [each.spec_id for each in found.specs]) == ([1], [1])


def test_a_removed_schema_or_spec_gets_a_new_id_when_it_is_added_again() -> None:
    narrow, nothing = document()["schemas"][0], add_spec()
    removals = [{"action": "remove-schemas", "schema-ids": [0]}, {"action": "remove-partition-specs", "spec-ids": [0]}]
    found = apply(table(), add_schema(narrow), nothing, *removals, add_schema(narrow), nothing)
    assert ([each.schema_id for each in found.schemas], [each.spec_id for each in found.specs]) == ([1, 2], [1, 2])


def test_of_equal_schemas_the_first_that_is_left_is_used() -> None:
    narrow = document()["schemas"][0]
    base = table(schemas=[*document()["schemas"], {**narrow, "schema-id": 6}, {**narrow, "schema-id": 7}])
    removal = {"action": "remove-schemas", "schema-ids": [0]}
    spec = set_spec(0)
    assert apply(base, add_schema(narrow), spec).raw["schemas"] == base.raw["schemas"]
    again = apply(base, add_schema(narrow), removal, add_schema(narrow), spec)
    assert [each.schema_id for each in again.schemas] == [1, 6, 7]


def test_a_new_spec_gets_the_next_id_and_keeps_its_field_ids() -> None:
    found = apply(table(), add_spec(partition("id_bucket", "bucket[4]", 1, 1001)), set_spec(-1))
    assert (found.default_spec_id, found.default_spec.fields[0].field_id, found.last_partition_id) == (2, 1001, 1001)


def test_a_spec_without_field_ids_gets_known_and_new_ids() -> None:
    found = apply(table(), add_spec(partition("day", "identity", 2), partition("b", "bucket[4]", 1)), set_spec(-1))
    assert ([each.field_id for each in found.default_spec.fields], found.last_partition_id) == ([1000, 1001], 1001)


def test_an_equal_spec_after_a_new_one_is_the_last_added_one() -> None:
    new = add_spec(partition("id_bucket", "bucket[4]", 1, 1001))
    found = apply(table(**{"default-spec-id": 0}), new, add_spec(partition("day", "identity", 2, 1000)), set_spec(-1))
    assert (found.default_spec_id, len(found.specs)) == (1, 3)


def test_an_equal_spec_alone_is_not_the_last_added_one() -> None:
    assert (
        reason_of(table(**{"default-spec-id": 0}), add_spec(partition("day", "identity", 2, 1000)), set_spec(-1))
        == "last_added_missing"
    )


def test_partition_field_ids_out_of_sequence_are_refused_in_format_1() -> None:
    assert reason_of(table(1), add_spec(partition("b", "bucket[4]", 1, 1001))) == "spec_ids_not_sequential"


def test_partition_fields_are_numbered_by_position_in_format_1() -> None:
    found = apply(table(1), add_spec(partition("day", "identity", 2), partition("b", "bucket[4]", 1)), set_spec(-1))
    assert [each.field_id for each in found.default_spec.fields] == [1000, 1001]


def test_a_format_1_table_also_has_schema_and_spec_in_the_old_fields() -> None:
    found = apply(table(1), add_schema(wide_schema(column(5, "new"))), set_schema(-1), set_spec(0))
    assert (found.raw["schema"], found.raw["partition-spec"]) == (found.current_schema.raw, [])


def test_an_old_format_1_document_is_completed_by_its_first_commit() -> None:
    old = document(1)
    for key in ("schemas", "current-schema-id", "partition-specs", "default-spec-id", "last-partition-id", "refs"):
        del old[key]
    del old["schema"]["schema-id"], old["partition-spec"][0]["field-id"]
    raw = apply(TableMetadata.from_json(old), {"action": "set-properties", "updates": {"a": "b"}}).raw
    assert (
        [each["schema-id"] for each in raw["schemas"]],  # type: ignore[union-attr,index,call-overload]
        raw["partition-specs"],
        raw["last-partition-id"],
        raw["refs"],
    ) == (
        [0],
        [{"spec-id": 0, "fields": [partition("day", "identity", 2, 1000)]}],
        1000,
        {"main": {"snapshot-id": 12, "type": "branch"}},
    )


def test_a_new_sort_order_gets_the_next_id() -> None:
    found = apply(table(), add_order(2, 1), set_order(-1))
    assert (found.default_sort_order_id, [each.source_id for each in found.default_sort_order.fields]) == (4, [2, 1])


def test_the_unsorted_order_is_order_0() -> None:
    base = table(**{"sort-orders": document()["sort-orders"][1:]})
    assert apply(base, add_order(), set_order(-1)).default_sort_order_id == 0


def test_an_equal_sort_order_is_not_added_again() -> None:
    found = apply(table(), add_order(2), add_order(1), set_order(-1))
    assert (found.default_sort_order_id, len(found.sort_orders)) == (3, 3)


def test_a_spec_and_a_sort_order_added_twice_in_one_commit_are_one() -> None:
    spec, order = add_spec(partition("id_bucket", "bucket[4]", 1, 1001)), add_order(2, 1)
    found = apply(table(), spec, spec, order, order)
    assert (len(found.specs), len(found.sort_orders)) == (len(table().specs) + 1, len(table().sort_orders) + 1)


def test_an_unsorted_order_with_an_unknown_field_is_not_added_again() -> None:
    update = add_order()
    update["sort-order"]["x-mark"] = 1
    assert apply(table(), update, set_order(0)).raw["sort-orders"] == table().raw["sort-orders"]


def test_a_sort_order_with_another_unknown_field_is_added() -> None:
    update = add_order(1)
    update["sort-order"]["x-mark"] = 1
    assert apply(table(), update).sort_orders[-1].raw["x-mark"] == 1


def test_a_slash_at_the_end_of_a_location_is_removed() -> None:
    assert apply(table(), {"action": "set-location", "location": "s3://b/new/"}).raw["location"] == "s3://b/new"


@for_each(
    ("update", "properties"),
    [
        ({"action": "set-properties", "updates": {"a": "1"}}, {"owner": "orders", "a": "1"}),
        ({"action": "set-properties", "updated": {"a": "1"}}, {"owner": "orders", "a": "1"}),
        ({"action": "set-properties", "updated": {"a": "1"}, "updates": {"owner": "x"}}, {"owner": "x"}),
        ({"action": "remove-properties", "removals": ["owner", "none"]}, {}),
        ({"action": "remove-properties", "removed": ["owner"]}, {}),
    ],
)
def test_properties_are_set_and_removed(update: Doc, properties: dict[str, str]) -> None:
    assert dict(apply(table(), update).properties) == properties


def test_a_type_that_the_transform_of_an_old_partition_does_not_accept_is_refused() -> None:
    base = apply(table(), add_spec(partition("d", "month", 2, 1001)), set_spec(-1), set_spec(0))
    fields = [{**each, "type": "uuid"} if each["id"] == 2 else each for each in wide_schema()["fields"]]
    assert reason_of(base, add_schema(wide_schema(fields=fields)), set_schema(-1)) == "spec_source_type_changed"


def test_a_column_of_an_old_partition_can_be_removed() -> None:
    base = apply(table(), set_spec(0))
    narrow = {**document()["schemas"][0], "doc": "x"}
    assert apply(base, add_schema(narrow), set_schema(-1)).specs[1].fields[0].source_id == 2
