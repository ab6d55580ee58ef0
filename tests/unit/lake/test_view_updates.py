"""Updates of views, applied as Iceberg's own builder applies them."""

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


def applied(*updates: Doc, on: ViewMetadata | None = None) -> ViewMetadata:
    return apply_view_updates(on or base(), updates, now_ms=LATER)


def refused(*updates: Doc, on: ViewMetadata | None = None) -> str:
    with pytest.raises(InputError) as caught:
        applied(*updates, on=on)
    return caught.value.reason


def set_properties(**properties: str) -> Doc:
    return {"action": "set-properties", "updates": {name.replace("_", "-"): text for name, text in properties.items()}}


def history_of(size: object) -> Doc:
    return {"action": "set-properties", "updates": {"version.history.num-entries": str(size)}}


DROPPING = {"action": "set-properties", "updates": {"replace.drop-dialect.allowed": "TRUE"}}


def made(asked: Doc, location: str = f"{LOCATION}/") -> ViewMetadata:
    return new_view(asked, location=location, view_uuid=UUID, now_ms=LATER)


def test_a_new_view_is_what_was_asked_for() -> None:
    found = made(request(properties={"a": "b"}))
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
    found = made({**request(), "schema": OTHER, "view-version": version(1, schema_id=7)})
    assert [each.schema_id for each in found.schemas] == [0]
    assert found.current_version.schema_id == 0
    assert found.current_version.raw["schema-id"] == 0


def test_a_new_view_keeps_fields_that_nobody_knows() -> None:
    asked = {**request(), "view-version": version(1, surprise=3)}
    assert made(asked).current_version.raw["surprise"] == 3


@pytest.mark.parametrize(
    ("asked", "code"),
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
def test_a_view_that_cannot_be_right_is_not_made(asked: Doc, code: str) -> None:
    with pytest.raises(InputError) as caught:
        made(asked)
    assert caught.value.reason == code


def test_no_update_gives_the_state_itself() -> None:
    found = base()
    assert applied(on=found) is found


def test_updates_that_say_what_is_so_give_the_state_itself() -> None:
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
    assert applied(*same, on=found) is found


def test_what_nobody_knows_survives_every_update() -> None:
    after = applied(
        {"action": "set-location", "location": "s3://bucket/other"},
        set_properties(a="b"),
        {"action": "add-schema", "schema": OTHER},
        *replaced(schema_id=-1),
    )
    raw = json.loads(after.to_bytes())
    assert raw["surprise"] == [1, {"x": 1}]
    assert (raw["schemas"][0]["surprise"], raw["versions"][1]["surprise"]) == (1, True)
    assert raw["version-log"][1] == {"timestamp-ms": NOW + 2, "version-id": 2, "surprise": None}


def test_a_replaced_view_shows_its_new_version_and_keeps_the_old_ones() -> None:
    after = applied(*replaced())
    assert (after.current_version_id, [each.version_id for each in after.versions]) == (3, [1, 2, 3])
    assert [(each.version_id, each.timestamp_ms) for each in after.version_log][-1] == (3, NOW + 3)


def test_a_version_id_that_is_taken_is_given_anew() -> None:
    assert applied(*replaced(1, query("new"))).current_version_id == 3


def test_a_version_id_that_runs_ahead_is_kept() -> None:
    assert applied(*replaced(9)).current_version_id == 9


def test_a_version_that_says_the_same_as_an_old_one_is_that_one() -> None:
    after = applied(add_version(version(3, query("select 1"))), set_current())
    assert (after.current_version_id, len(after.versions)) == (1, 2)


def test_a_schema_and_a_version_added_twice_in_one_commit_are_one() -> None:
    new_schema = {"action": "add-schema", "schema": {**OTHER, "x-mark": 1}}
    new_version = add_version(version(3, query("new")))
    after = applied(new_schema, new_schema, new_version, new_version, set_current())
    assert (len(after.schemas), len(after.versions)) == (len(base().schemas) + 1, len(base().versions) + 1)


def test_a_field_that_is_null_is_as_one_that_is_not_there() -> None:
    same = {**version(3, query("select 1")), "default-catalog": None}
    assert applied(add_version(same), set_current()).current_version_id == 1


def test_a_version_that_comes_back_became_current_now() -> None:
    after = applied(set_current(1))
    assert [(each.version_id, each.timestamp_ms) for each in after.version_log][-1] == (1, LATER)


@pytest.mark.parametrize(
    "other",
    [
        {"summary": {"engine-name": "trino"}},
        {"default-catalog": "lake"},
        {"default-namespace": ["risk"]},
        {"surprise": 1},
    ],
)
def test_a_version_that_differs_in_anything_is_another_one(other: Doc) -> None:
    after = applied(add_version({**version(3, query("select 1")), **other}), set_current())
    assert after.current_version_id == 3


def test_a_schema_that_is_the_same_is_not_added_again() -> None:
    same = {"action": "add-schema", "schema": {**base().schemas[0].raw, "schema-id": 5}}
    after = applied(same, *replaced(schema_id=-1))
    assert ([each.schema_id for each in after.schemas], after.current_version.schema_id) == ([0], 0)


def test_a_new_schema_gets_the_next_id_whatever_id_it_asks_for() -> None:
    after = applied({"action": "add-schema", "schema": OTHER}, *replaced(schema_id=-1))
    assert ([each.schema_id for each in after.schemas], after.current_version.schema_id) == ([0, 1], 1)
    assert after.schemas[1].raw["schema-id"] == 1


def test_properties_are_set_and_removed() -> None:
    after = applied(set_properties(a="b", c="d"), {"action": "remove-properties", "removals": ["a", "comment", "x"]})
    assert dict(after.properties) == {"c": "d"}


def test_the_last_property_can_be_removed() -> None:
    assert dict(applied({"action": "remove-properties", "removals": ["comment"]}).properties) == {}


def test_a_view_moves() -> None:
    assert applied({"action": "set-location", "location": "s3://bucket/x//"}).location == "s3://bucket/x"


def test_only_the_newest_versions_are_kept_and_the_log_has_no_gap() -> None:
    after = applied(history_of(2), *replaced())
    assert [each.version_id for each in after.versions] == [2, 3]
    assert [each.version_id for each in after.version_log] == [2, 3]


def test_ten_versions_are_kept_unless_it_is_said_otherwise() -> None:
    after = base()
    for number in range(3, 15):
        after = applied(*replaced(number), on=after)
    assert [each.version_id for each in after.versions] == list(range(5, 15))


def test_the_current_version_is_kept_however_old_it_is() -> None:
    back = applied(*replaced(), set_current(1))
    after = applied(history_of(1), on=back)
    assert [each.version_id for each in after.versions] == [1]
    assert [each.version_id for each in after.version_log] == [1]


def test_the_log_forgets_what_lies_before_a_version_that_is_gone() -> None:
    back = applied(set_current(1))
    assert [each.version_id for each in back.version_log] == [1, 2, 1]
    after = applied(history_of(1), on=back)
    assert [each.version_id for each in after.version_log] == [1]


def test_versions_of_one_commit_are_all_kept() -> None:
    after = applied(history_of(1), add_version(version(3)), add_version(version(4)), set_current())
    assert [each.version_id for each in after.versions] == [3, 4]


def test_a_dialect_is_not_lost_by_accident() -> None:
    assert refused(*replaced(3, query("x", "trino"))) == "view_dialect_dropped"


def test_a_dialect_in_other_letters_is_the_same_dialect() -> None:
    assert applied(*replaced(3, query("x", "SPARK"))).current_version_id == 3


def test_a_dialect_is_dropped_where_that_is_allowed() -> None:
    assert applied(DROPPING, *replaced(3, query("x", "trino"))).current_version.dialects == {"trino"}


@for_each(
    ("update", "code"),
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
def test_an_update_that_cannot_be_right_is_refused(update: Doc, code: str) -> None:
    assert refused(update) == code


def test_one_unknown_update_and_nothing_is_applied() -> None:
    assert refused(set_properties(a="b"), {"action": "whatever"}) == "update_unknown"


def test_after_the_last_version_id_there_is_no_other() -> None:
    last = base(versions=[version(1), version(2), version(INT_LAST)])
    assert refused(*replaced(), on=last) == "view_version_id_invalid"


def test_too_many_updates_are_refused() -> None:
    assert refused(*[set_current(2)] * (VIEW_UPDATES_MAX + 1)) == "updates_too_many"


def test_the_uuid_that_is_required_may_be_spelled_in_any_letters() -> None:
    check_view_requirements(base(), [{"type": "assert-view-uuid", "uuid": UUID.upper()}])


def test_another_view_of_the_name_is_a_conflict() -> None:
    with pytest.raises(ConflictError) as caught:
        check_view_requirements(base(), [{"type": "assert-view-uuid", "uuid": "9c12d441"}])
    assert caught.value.reason == "requirement_uuid"


@pytest.mark.parametrize("kind", ["assert-create", "assert-table-uuid", "whatever"])
def test_a_requirement_that_views_do_not_have_is_refused(kind: str) -> None:
    with pytest.raises(InputError) as caught:
        check_view_requirements(base(), [{"type": kind, "uuid": UUID}])
    assert caught.value.reason == "requirement_unknown"
