"""The view document: read without loss, refused where Iceberg's own reader would stumble or readers would differ."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from pvdm.errors import InputError
from pvdm.lake.format.json_document import dump_json
from pvdm.lake.format.view import VIEW_SIZE_MAX_BYTES, ViewMetadata
from tests.support.catalog.views import SCHEMA, Doc, document, query, version
from tests.support.lake.metadata import LOCATION, NOW, UUID


def parsed(made: Doc) -> ViewMetadata:
    return ViewMetadata.parse(dump_json(made))


def test_a_document_comes_back_byte_for_byte() -> None:
    data = dump_json(document())
    assert ViewMetadata.parse(data).to_bytes() == data


def test_a_number_keeps_its_spelling() -> None:
    data = dump_json(document()).replace(b'"surprise":[1,', b'"surprise":[1.50e3,')
    assert ViewMetadata.parse(data).to_bytes() == data


def test_the_facts_of_a_document_are_read() -> None:
    found = parsed(document())
    assert (found.view_uuid, found.format_version, found.location) == (UUID, 1, LOCATION)
    assert (found.properties["comment"], found.current_version_id) == ("orders of a week", 2)
    assert [(each.version_id, each.timestamp_ms) for each in found.version_log] == [(1, NOW + 1), (2, NOW + 2)]
    assert [each.schema_id for each in found.schemas] == [0]


def test_the_facts_of_a_version_are_read() -> None:
    made = {**version(2, query("a", "Spark"), query("b", "trino")), "default-catalog": "lake"}
    found = parsed(document(versions=[version(1), made])).current_version
    assert (found.version_id, found.timestamp_ms, found.schema_id) == (2, NOW + 2, 0)
    assert sorted(found.dialects) == ["spark", "trino"]
    assert [each.sql for each in found.representations] == ["a", "b"]


def test_a_kind_of_query_that_is_not_known_is_kept() -> None:
    made = document(versions=[version(2, {"type": "graph", "nodes": [1]})])
    assert parsed(made).current_version.dialects == set()
    assert json.loads(parsed(made).to_bytes())["versions"][0]["representations"] == [{"type": "graph", "nodes": [1]}]


def test_a_document_may_be_compressed() -> None:
    assert ViewMetadata.parse(gzip.compress(dump_json(document()))) == parsed(document())


def without(*names: str) -> Callable[[Doc], Doc]:
    return lambda made: {name: value for name, value in made.items() if name not in names}


def with_(**more: Any) -> Callable[[Doc], Doc]:
    return lambda made: made | {name.replace("_", "-"): value for name, value in more.items()}


REQUIRED = ("view-uuid", "format-version", "location", "schemas", "current-version-id", "versions", "version-log")


@pytest.mark.parametrize("name", REQUIRED)
def test_a_document_without_a_required_field_is_refused(name: str) -> None:
    with pytest.raises(InputError) as caught:
        parsed(without(name)(document()))
    assert caught.value.reason == "lake_field_missing"


@pytest.mark.parametrize(
    "name", ["version-id", "timestamp-ms", "schema-id", "summary", "default-namespace", "representations"]
)
def test_a_version_without_a_required_field_is_refused(name: str) -> None:
    with pytest.raises(InputError) as caught:
        parsed(document(versions=[version(1), without(name)(version(2))]))
    assert caught.value.reason == "lake_field_missing"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (with_(format_version=2), "format_version_unsupported"),
        (with_(view_uuid="mine"), "table_uuid_invalid"),
        (with_(location=""), "lake_value_invalid"),
        (with_(versions=[version(2), version(2)]), "view_id_twice"),
        (with_(schemas=[SCHEMA, SCHEMA]), "view_id_twice"),
        (with_(current_version_id=3), "view_version_unknown"),
        (with_(versions=[]), "view_version_unknown"),
        (with_(schemas=[]), "schema_unknown"),
        (with_(versions=[version(1, schema_id=9), version(2)]), "schema_unknown"),
        (with_(properties={"a": 1}), "lake_value_invalid"),
        (with_(version_log=[{"version-id": 1}]), "lake_field_missing"),
        (with_(versions=[version(2, {"type": "sql", "sql": "select 1"})]), "lake_field_missing"),
        (with_(current_version_id=True), "lake_value_invalid"),
    ],
)
def test_a_document_that_cannot_be_right_is_refused(change: Callable[[Doc], Doc], code: str) -> None:
    with pytest.raises(InputError) as caught:
        parsed(change(document()))
    assert caught.value.reason == code


def test_a_document_that_could_not_be_read_again_is_not_written() -> None:
    made = ViewMetadata.from_json(document(surprise="x" * VIEW_SIZE_MAX_BYTES))
    with pytest.raises(InputError) as caught:
        made.to_bytes()
    assert caught.value.reason == "lake_json_too_large"


def test_a_document_that_is_too_large_is_not_read() -> None:
    with pytest.raises(InputError) as caught:
        parsed(document(surprise="x" * VIEW_SIZE_MAX_BYTES))
    assert caught.value.reason == "lake_json_too_large"
