"""New views and updates of views, as Iceberg's own library creates and applies them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pvdm.errors import ConflictError, InputError
from pvdm.lake.format.json_document import INT_LAST
from pvdm.lake.format.view import VIEW_UPDATES_MAX, ViewMetadata, apply_view_updates, check_view_requirements, new_view
from tests.support.catalog.views import (
    OTHER,
    Doc,
    add_version,
    document,
    query,
    replaced,
    request,
    set_current,
    version,
)
from tests.support.for_each import for_each
from tests.support.lake.metadata import LOCATION, NOW, UUID

LATER = NOW + 1_000


def base(**more: Any) -> ViewMetadata:
    return ViewMetadata.from_json(document(**more))


def apply(*updates: Doc, on: ViewMetadata | None = None) -> ViewMetadata:
    return apply_view_updates(on or base(), updates, now_ms=LATER)


def reason_of(*updates: Doc, on: ViewMetadata | None = None) -> str:
    with pytest.raises(InputError) as caught:
        apply(*updates, on=on)
    return caught.value.reason


def set_properties(**properties: str) -> Doc:
    return {"action": "set-properties", "updates": {name.replace("_", "-"): text for name, text in properties.items()}}


def history_of(size: object) -> Doc:
    return {"action": "set-properties", "updates": {"version.history.num-entries": str(size)}}


ALLOW_DROPPED_DIALECTS = {"action": "set-properties", "updates": {"replace.drop-dialect.allowed": "TRUE"}}


def create(body: Doc, location: str = f"{LOCATION}/") -> ViewMetadata:
    return new_view(body, location=location, view_uuid=UUID, now_ms=LATER)


def test_a_new_view_has_the_values_of_its_request() -> None:
    found = create(request(properties={"a": "b"}))
    assert json.loads(found.to_bytes()) == {
        "view-uuid": UUID,
        "format-version": 1,
        "location": LOCATION,
        "properties": {"a": "b"},
        "schemas": [request()["schema"]],
        "current-version-id": 1,
        "versions": [version(1)],
        "version-log": [{"timestamp-ms": NOW + 1, "version-id": 1}],
    }


def test_the_schema_of_a_new_view_gets_the_first_id() -> None:
    found = create({**request(), "schema": OTHER, "view-version": version(1, schema_id=7)})
    assert [each.schema_id for each in found.schemas] == [0]
    assert found.current_version.schema_id == 0
    assert found.current_version.raw["schema-id"] == 0


def test_a_new_view_keeps_unknown_fields() -> None:
    body = {**request(), "view-version": version(1, surprise=3)}
    assert create(body).current_version.raw["surprise"] == 3


@for_each(
    ("body", "reason"),
    [
        (request("v", query("a", "trino"), query("b", "TRINO")), "view_dialect_twice"),
        (request("v", {"type": "graph"}), "view_representation_unsupported"),
        ({**request(), "view-version": {**version(1), "representations": []}}, "view_query_missing"),
        ({**request(), "view-version": version(0)}, "view_version_id_invalid"),
        ({**request(), "view-version": version(-1)}, "view_version_id_invalid"),
        ({"name": "v", "view-version": version(1)}, "lake_field_missing"),
        ({"name": "v", "schema": OTHER}, "lake_field_missing"),
        (request(properties={"version.history.num-entries": "0"}), "view_history_size_invalid"),
        (request(properties={"version.history.num-entries": "many"}), "property_not_integer"),
    ],
)
def test_an_invalid_new_view_is_refused(body: Doc, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        create(body)
    assert caught.value.reason == reason


def test_without_updates_the_same_object_is_returned() -> None:
    found = base()
    assert apply(on=found) is found


def test_updates_that_change_nothing_return_the_same_object() -> None:
    found = base()
    same: list[Doc] = [
        {"action": "assign-uuid", "uuid": UUID.upper()},
        {"action": "upgrade-format-version", "format-version": 1},
        {"action": "set-location", "location": f"{LOCATION}/"},
        {"action": "set-properties", "updates": {}},
        {"action": "remove-properties", "removals": []},
        {"action": "add-schema", "schema": {**found.schemas[0].raw, "schema-id": 9}},
        add_version(version(9, query("select 1"))),
        set_current(2),
    ]
    assert apply(*same, on=found) is found


def test_unknown_fields_are_kept_by_every_update() -> None:
    after = apply(
        {"action": "set-location", "location": "s3://bucket/other"},
        set_properties(a="b"),
        {"action": "add-schema", "schema": OTHER},
        *replaced(schema_id=-1),
    )
    raw = json.loads(after.to_bytes())
    assert raw["surprise"] == [1, {"x": 1}]
    assert (raw["schemas"][0]["surprise"], raw["versions"][1]["surprise"]) == (1, True)
    assert raw["version-log"][1] == {"timestamp-ms": NOW + 2, "version-id": 2, "surprise": None}


def test_a_replaced_view_has_its_new_version_as_current_and_keeps_the_old_ones() -> None:
    after = apply(*replaced())
    assert (after.current_version_id, [each.version_id for each in after.versions]) == (3, [1, 2, 3])
    assert [(each.version_id, each.timestamp_ms) for each in after.version_log][-1] == (3, NOW + 3)


def test_a_version_with_a_used_id_gets_the_next_id() -> None:
    assert apply(*replaced(1, query("new"))).current_version_id == 3


def test_a_version_id_above_the_next_one_is_kept() -> None:
    assert apply(*replaced(9)).current_version_id == 9


def test_a_version_equal_to_an_old_one_is_not_added_again() -> None:
    after = apply(add_version(version(3, query("select 1"))), set_current())
    assert (after.current_version_id, len(after.versions)) == (1, 2)


def test_a_schema_and_a_version_added_twice_in_one_commit_are_one() -> None:
    new_schema = {"action": "add-schema", "schema": {**OTHER, "x-mark": 1}}
    new_version = add_version(version(3, query("new")))
    after = apply(new_schema, new_schema, new_version, new_version, set_current())
    assert (len(after.schemas), len(after.versions)) == (len(base().schemas) + 1, len(base().versions) + 1)


def test_a_null_field_equals_a_missing_one() -> None:
    same = {**version(3, query("select 1")), "default-catalog": None}
    assert apply(add_version(same), set_current()).current_version_id == 1


def test_a_version_that_becomes_current_again_is_logged_with_the_time_of_the_commit() -> None:
    after = apply(set_current(1))
    assert [(each.version_id, each.timestamp_ms) for each in after.version_log][-1] == (1, LATER)


@for_each(
    "other",
    [
        {"summary": {"engine-name": "trino"}},
        {"default-catalog": "lake"},
        {"default-namespace": ["risk"]},
        {"surprise": 1},
    ],
)
def test_a_version_with_any_difference_is_added(other: Doc) -> None:
    after = apply(add_version({**version(3, query("select 1")), **other}), set_current())
    assert after.current_version_id == 3


def test_an_equal_schema_is_not_added_again() -> None:
    same = {"action": "add-schema", "schema": {**base().schemas[0].raw, "schema-id": 5}}
    after = apply(same, *replaced(schema_id=-1))
    assert ([each.schema_id for each in after.schemas], after.current_version.schema_id) == ([0], 0)


def test_a_new_schema_gets_the_next_id_whatever_id_it_has() -> None:
    after = apply({"action": "add-schema", "schema": OTHER}, *replaced(schema_id=-1))
    assert ([each.schema_id for each in after.schemas], after.current_version.schema_id) == ([0, 1], 1)
    assert after.schemas[1].raw["schema-id"] == 1


def test_properties_are_set_and_removed() -> None:
    after = apply(set_properties(a="b", c="d"), {"action": "remove-properties", "removals": ["a", "comment", "x"]})
    assert dict(after.properties) == {"c": "d"}


def test_the_last_property_can_be_removed() -> None:
    assert dict(apply({"action": "remove-properties", "removals": ["comment"]}).properties) == {}


def test_a_location_is_set_without_slashes_at_its_end() -> None:
    assert apply({"action": "set-location", "location": "s3://bucket/x//"}).location == "s3://bucket/x"


def test_versions_above_the_limit_are_removed_from_versions_and_log() -> None:
    after = apply(history_of(2), *replaced())
    assert [each.version_id for each in after.versions] == [2, 3]
    assert [each.version_id for each in after.version_log] == [2, 3]


def test_ten_versions_are_kept_by_default() -> None:
    after = base()
    for number in range(3, 15):
        after = apply(*replaced(number), on=after)
    assert [each.version_id for each in after.versions] == list(range(5, 15))


def test_the_current_version_is_kept_at_any_age() -> None:
    back = apply(*replaced(), set_current(1))
    after = apply(history_of(1), on=back)
    assert [each.version_id for each in after.versions] == [1]
    assert [each.version_id for each in after.version_log] == [1]


def test_the_log_before_a_removed_version_is_removed() -> None:
    back = apply(set_current(1))
    assert [each.version_id for each in back.version_log] == [1, 2, 1]
    after = apply(history_of(1), on=back)
    assert [each.version_id for each in after.version_log] == [1]


def test_versions_of_one_commit_are_all_kept() -> None:
    after = apply(history_of(1), add_version(version(3)), add_version(version(4)), set_current())
    assert [each.version_id for each in after.versions] == [3, 4]


def test_a_version_that_drops_a_dialect_is_refused() -> None:
    assert reason_of(*replaced(3, query("x", "trino"))) == "view_dialect_dropped"


def test_a_dialect_in_upper_case_is_the_same_dialect() -> None:
    assert apply(*replaced(3, query("x", "SPARK"))).current_version_id == 3


def test_a_dialect_can_be_dropped_with_the_property_that_allows_it() -> None:
    assert apply(ALLOW_DROPPED_DIALECTS, *replaced(3, query("x", "trino"))).current_version.dialects == {"trino"}


@for_each(
    ("update", "reason"),
    [
        ({"action": "assign-uuid", "uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c2"}, "view_uuid_changed"),
        ({"action": "assign-uuid", "uuid": "mine"}, "table_uuid_invalid"),
        ({"action": "upgrade-format-version", "format-version": 2}, "format_version_unsupported"),
        ({"action": "upgrade-format-version", "format-version": 0}, "format_version_unsupported"),
        (set_current(), "last_added_missing"),
        (set_current(7), "view_version_unknown"),
        (add_version(version(3, schema_id=-1)), "last_added_missing"),
        (add_version(version(3, schema_id=4)), "schema_unknown"),
        (add_version(version(3, query("a"), query("b"))), "view_dialect_twice"),
        (history_of(-1), "view_history_size_invalid"),
        ({"action": "set-location", "location": ""}, "lake_value_invalid"),
        ({"action": "add-snapshot", "snapshot": {}}, "update_unknown"),
        ({"action": "remove-schemas", "schema-ids": [0]}, "update_unknown"),
        ({"actions": "set-location"}, "lake_field_missing"),
    ],
)
def test_an_invalid_update_is_refused(update: Doc, reason: str) -> None:
    assert reason_of(update) == reason


def test_an_unknown_update_after_a_valid_one_is_refused() -> None:
    assert reason_of(set_properties(a="b"), {"action": "whatever"}) == "update_unknown"


def test_a_version_after_the_last_id_is_refused() -> None:
    last = base(versions=[version(1), version(2), version(INT_LAST)])
    assert reason_of(*replaced(), on=last) == "view_version_id_invalid"


def test_too_many_updates_are_refused() -> None:
    assert reason_of(*[set_current(2)] * (VIEW_UPDATES_MAX + 1)) == "updates_too_many"


def test_a_required_uuid_may_be_in_upper_case() -> None:
    check_view_requirements(base(), [{"type": "assert-view-uuid", "uuid": UUID.upper()}])


def test_a_required_uuid_of_another_view_is_a_conflict() -> None:
    with pytest.raises(ConflictError) as caught:
        check_view_requirements(base(), [{"type": "assert-view-uuid", "uuid": "9c12d441"}])
    assert caught.value.reason == "requirement_uuid"


@pytest.mark.parametrize("kind", ["assert-create", "assert-table-uuid", "whatever"])
def test_a_requirement_that_views_do_not_have_is_refused(kind: str) -> None:
    with pytest.raises(InputError) as caught:
        check_view_requirements(base(), [{"type": kind, "uuid": UUID}])
    assert caught.value.reason == "requirement_unknown"
