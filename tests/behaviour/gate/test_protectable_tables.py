"""Tables that some engine cannot read, or reads differently, are not protected."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.catalog.core import request
from tests.support.gate.approvals import SALES, reason_of
from tests.support.gate.protected_tables import House
from tests.support.lake.metadata import column, schema

Doc = dict[str, Any]


def create(house: House, asked: Doc) -> None:
    house.notary.catalog.tables.create(house.scene.grant(), SALES, {"name": "orders", **asked})


# Names


def with_columns(*columns: Doc) -> Doc:
    asked = request(2)
    asked["schema"] = schema(0, column(1, "id"), column(2, "day", "date"), column(3, "town", "string"), *columns)
    asked.pop("partition-spec", None)
    return asked


def struct(name: str) -> Doc:
    return {"type": "struct", "fields": [column(11, "hall", "string"), column(12, name, "string")]}


COLLIDING: dict[str, list[Doc]] = {
    "upper and lower case": [column(4, "Town", "string")],
    "a letter that grows": [column(4, "\u0130", "string"), column(5, "i\u0307", "string")],
    **{
        f"one for Java: {upper!a} and {lower!a}": [column(4, upper, "string"), column(5, lower, "string")]
        for upper, lower in ("s\u017f", "i\u0131", "\u03c3\u03c2", "\u00b5\u03bc", "\u0345\u03b9", "i\u0130")
    },
    "the same in files": [column(4, "a-b", "string"), column(5, "a_x2Db", "string")],
    "inside a struct": [column(4, "place", struct("HALL"))],
    "inside a list": [
        column(4, "places", {"type": "list", "element-id": 13, "element": struct("HALL"), "element-required": False})
    ],
    "a dot beside a struct": [column(4, "place", struct("floor")), column(5, "Place.floor", "string")],
}
DISTINCT: dict[str, list[Doc]] = {
    "other letters": [column(4, "Towns", "string")],
    "another struct": [column(4, "place", struct("town"))],
    "a dot": [column(4, "place.floor", "string")],
    "a reserved name inside": [column(4, "place", struct("_file"))],
}


@pytest.mark.parametrize("columns", COLLIDING.values(), ids=COLLIDING)
def test_a_table_with_names_that_engines_take_for_one_is_not_protected(house: House, columns: list[Doc]) -> None:
    create(house, with_columns(*columns))
    assert reason_of(house.protect) == "column_names_collide"
    assert house.scene.contract_of() is None


@pytest.mark.parametrize("columns", DISTINCT.values(), ids=DISTINCT)
def test_a_table_with_names_that_every_engine_tells_apart_is_protected(house: House, columns: list[Doc]) -> None:
    create(house, with_columns(*columns))
    house.protect()
    assert house.scene.contract_of() is not None


@pytest.mark.parametrize("name", ["_file", "_pos", "_ROW_ID", "_deleted", "_partition", "_spec_id"])
def test_a_table_with_a_name_that_iceberg_reserves_is_not_protected(house: House, name: str) -> None:
    create(house, with_columns(column(4, name, "string")))
    assert reason_of(house.protect) == "column_name_reserved"


@pytest.mark.parametrize(("name", "code"), [("TOWN", "column_names_collide"), ("_file", "column_name_reserved")])
def test_a_migration_that_adds_such_a_name_is_refused(house: House, name: str, code: str) -> None:
    create(house, with_columns())
    house.protect()

    def updates_adding(column_name: str) -> list[Doc]:
        fields = with_columns(column(4, column_name, "string"))["schema"]["fields"]
        wanted = {**schema(1, *fields), "schema-id": 1}
        return [
            {"action": "add-schema", "schema": wanted, "last-column-id": 4},
            {"action": "set-current-schema", "schema-id": -1},
        ]

    assert reason_of(lambda: house.scene.migrate(house.scene.migration(updates_adding(name)))) == code
    house.scene.migrate(house.scene.migration(updates_adding("weight")))


def test_no_table_with_such_a_name_is_created_in_a_protected_namespace(house: House) -> None:
    house.source()
    house.scene.protect(house.scene.namespace_protection())
    asked = with_columns(column(4, "Town", "string"))
    assert reason_of(lambda: create(house, asked)) == "column_names_collide"


# Partitions by a column of type fixed


def with_fixed(transform: str) -> Doc:
    asked = request(2)
    asked["schema"] = schema(0, column(1, "id"), column(2, "day", "date"), column(3, "town", "fixed[4]"))
    asked["partition-spec"] = {"fields": [{"name": "t", "transform": transform, "source-id": 3, "field-id": 1000}]}
    return asked


@pytest.mark.parametrize("transform", ["identity", "bucket[4]"])
def test_a_table_partitioned_by_a_fixed_column_is_protected_only_if_by_bucket(house: House, transform: str) -> None:
    create(house, with_fixed(transform))
    if transform == "identity":
        assert reason_of(house.protect) == "partition_fixed_refused"
        assert house.scene.contract_of() is None
    else:
        house.protect()
        assert house.scene.contract_of() is not None


def test_a_migration_to_a_partition_by_a_fixed_column_is_refused(house: House) -> None:
    create(house, with_fixed("bucket[4]"))
    house.protect()
    spec: Doc = {"fields": [{"name": "f", "transform": "identity", "source-id": 3}]}
    updates: list[Doc] = [{"action": "add-spec", "spec": spec}, {"action": "set-default-spec", "spec-id": -1}]
    assert reason_of(lambda: house.scene.migrate(house.scene.migration(updates))) == "partition_fixed_refused"
    spec["fields"][0]["source-id"] = 2
    house.scene.migrate(house.scene.migration(updates))


def test_no_table_partitioned_by_a_fixed_column_is_created_in_a_protected_namespace(house: House) -> None:
    house.source()
    house.scene.protect(house.scene.namespace_protection())
    assert reason_of(lambda: create(house, with_fixed("identity"))) == "partition_fixed_refused"
