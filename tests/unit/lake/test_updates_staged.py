"""A table that is made of the updates of its first commit."""

from __future__ import annotations

from typing import Any

import pytest

from pvdm.errors import InputError
from pvdm.lake.format.table.commit_request import create_from_updates
from tests.support.lake.metadata import LOCATION, NOW, UUID, Doc, column, schema


def staged(*more: Doc) -> list[Any]:
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


def test_a_staged_table_is_made_of_its_updates() -> None:
    own = {"action": "set-properties", "updates": {"a": "b"}}
    found = create_from_updates(staged(own), now_ms=NOW, table_uuid="0" * 8)
    assert (found.format_version, found.table_uuid, found.location) == (3, UUID, LOCATION)
    assert (found.last_partition_id, dict(found.properties)) == (999, {"a": "b"})


def test_a_new_table_shows_null_from_format_3_on_and_minus_one_before() -> None:
    later = create_from_updates(staged(), now_ms=NOW, table_uuid=UUID)
    before = create_from_updates(
        [each for each in staged() if each["action"] != "upgrade-format-version"], now_ms=NOW, table_uuid=UUID
    )
    assert (later.raw["current-snapshot-id"], before.raw["current-snapshot-id"], before.format_version) == (None, -1, 2)


@pytest.mark.parametrize(
    ("missing", "code"),
    [
        ("set-location", "location_missing"),
        ("add-schema", "last_added_missing"),
        ("add-sort-order", "last_added_missing"),
    ],
)
def test_a_staged_table_without_its_parts_is_refused(missing: str, code: str) -> None:
    updates = [each for each in staged() if each["action"] != missing]
    with pytest.raises(InputError) as caught:
        create_from_updates(updates, now_ms=NOW, table_uuid=UUID)
    assert caught.value.reason == code


def test_a_staged_table_of_an_unknown_format_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        create_from_updates([{"action": "upgrade-format-version", "format-version": 9}], now_ms=NOW, table_uuid=UUID)
    assert caught.value.reason == "format_version_unsupported"
