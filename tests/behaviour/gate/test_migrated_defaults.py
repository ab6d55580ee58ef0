"""A migration cannot change a column's initial default: it would change rows of files without the column."""

from __future__ import annotations

from typing import Any

import pytest

from pvdm.errors import NotAllowedError
from tests.support.audit.expiring_history import publish_attempt
from tests.support.gate.protected_tables import House
from tests.support.lake.metadata import column
from tools.proof_kit import SECOND

Doc = dict[str, Any]
ID, DAY, TOWN = column(1, "id"), column(2, "day", "date"), column(3, "town", "string")


def migrate(house: House, *fields: Doc) -> None:
    house.stand.time.pass_by(SECOND)
    schema: Doc = {"type": "struct", "schema-id": 9, "fields": list(fields)}
    updates: list[Doc] = [
        {"action": "add-schema", "schema": schema},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    house.scene.migrate(house.scene.migration(updates))


def test_a_migration_that_changes_the_initial_default_of_a_column_is_refused(house: House) -> None:
    house.table(version=3)
    house.open("one", source=house.source())
    attempt = house.proved("one", [(3, 1, "Ulm")], opened=False)
    with pytest.raises(NotAllowedError) as caught:
        migrate(house, ID, DAY, {**TOWN, "initial-default": "Bonn"})
    assert caught.value.reason == "migration_moves_data"
    publish_attempt(house, attempt)
    assert house.rows() == [3]
    added = column(4, "channel", "string", **{"initial-default": "shop"})
    migrate(house, ID, DAY, {**TOWN, "doc": "where it was sold", "write-default": "Bonn"}, added)
    for other in ({**added, "initial-default": "web"}, column(4, "channel", "string")):
        with pytest.raises(NotAllowedError) as caught:
            migrate(house, ID, DAY, TOWN, other)
        assert caught.value.reason == "migration_moves_data"
