"""Tables that are created from the updates of their first commit, as after a staged create."""

from __future__ import annotations

from typing import Any

import pytest

from pvdm.errors import InputError
from pvdm.lake.format.table.commit_request import create_from_updates
from tests.support.lake.metadata import LOCATION, NOW, UUID, Doc, column, schema


def create_updates(*more: Doc) -> list[Any]:
    return [
        {"action": "assign-uuid", "uuid": UUID},
        {"action": "upgrade-format-version", "format-version": 3},
        {"action": "add-schema", "schema": schema(0, column(1, "id"))},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 55, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": LOCATION},
        *more,
    ]


def test_a_staged_table_is_created_from_its_updates() -> None:
    own = {"action": "set-properties", "updates": {"a": "b"}}
    found = create_from_updates(create_updates(own), now_ms=NOW, table_uuid="0" * 8)
    assert (found.format_version, found.table_uuid, found.location) == (3, UUID, LOCATION)
    assert (found.last_partition_id, dict(found.properties)) == (999, {"a": "b"})


def test_the_current_snapshot_of_a_new_table_is_null_from_format_3_on_and_minus_one_before() -> None:
    format_3 = create_from_updates(create_updates(), now_ms=NOW, table_uuid=UUID)
    without_upgrade = [each for each in create_updates() if each["action"] != "upgrade-format-version"]
    format_2 = create_from_updates(without_upgrade, now_ms=NOW, table_uuid=UUID)
    snapshots = (format_3.raw["current-snapshot-id"], format_2.raw["current-snapshot-id"])
    assert (*snapshots, format_2.format_version) == (None, -1, 2)


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("set-location", "location_missing"),
        ("add-schema", "last_added_missing"),
        ("add-sort-order", "last_added_missing"),
    ],
)
def test_a_staged_table_without_its_parts_is_refused(missing: str, reason: str) -> None:
    updates = [each for each in create_updates() if each["action"] != missing]
    with pytest.raises(InputError) as caught:
        create_from_updates(updates, now_ms=NOW, table_uuid=UUID)
    assert caught.value.reason == reason


def test_a_staged_table_of_an_unknown_format_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        create_from_updates([{"action": "upgrade-format-version", "format-version": 9}], now_ms=NOW, table_uuid=UUID)
    assert caught.value.reason == "format_version_unsupported"
