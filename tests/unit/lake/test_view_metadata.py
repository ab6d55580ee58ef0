"""Reading view documents: they are written as they were read, and invalid ones are refused."""

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
from tests.support.for_each import for_each
from tests.support.lake.metadata import LOCATION, NOW, UUID


def parse(doc: Doc) -> ViewMetadata:
    return ViewMetadata.parse(dump_json(doc))


def test_a_document_is_written_as_it_was_read() -> None:
    data = dump_json(document())
    assert ViewMetadata.parse(data).to_bytes() == data


def test_a_number_keeps_its_spelling() -> None:
    data = dump_json(document()).replace(b'"surprise":[1,', b'"surprise":[1.50e3,')
    assert ViewMetadata.parse(data).to_bytes() == data


def test_the_values_of_a_document_are_read() -> None:
    found = parse(document())
    assert (found.view_uuid, found.format_version, found.location) == (UUID, 1, LOCATION)
    assert (found.properties["comment"], found.current_version_id) == ("orders of a week", 2)
    assert [(each.version_id, each.timestamp_ms) for each in found.version_log] == [(1, NOW + 1), (2, NOW + 2)]
    assert [each.schema_id for each in found.schemas] == [0]


def test_the_values_of_a_version_are_read() -> None:
    doc = {**version(2, query("a", "Spark"), query("b", "trino")), "default-catalog": "lake"}
    found = parse(document(versions=[version(1), doc])).current_version
    assert (found.version_id, found.timestamp_ms, found.schema_id) == (2, NOW + 2, 0)
    assert sorted(found.dialects) == ["spark", "trino"]
    assert [each.sql for each in found.representations] == ["a", "b"]


def test_an_unknown_kind_of_representation_is_kept() -> None:
    doc = document(versions=[version(2, {"type": "graph", "nodes": [1]})])
    assert parse(doc).current_version.dialects == set()
    assert json.loads(parse(doc).to_bytes())["versions"][0]["representations"] == [{"type": "graph", "nodes": [1]}]


def test_a_document_may_be_compressed() -> None:
    assert ViewMetadata.parse(gzip.compress(dump_json(document()))) == parse(document())


def remove_fields(*names: str) -> Callable[[Doc], Doc]:
    return lambda doc: {name: value for name, value in doc.items() if name not in names}


def replace_fields(**more: Any) -> Callable[[Doc], Doc]:
    return lambda doc: doc | {name.replace("_", "-"): value for name, value in more.items()}


REQUIRED = ("view-uuid", "format-version", "location", "schemas", "current-version-id", "versions", "version-log")


@for_each("name", REQUIRED)
def test_a_document_without_a_required_field_is_refused(name: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(remove_fields(name)(document()))
    assert caught.value.reason == "lake_field_missing"


@for_each("name", ["version-id", "timestamp-ms", "schema-id", "summary", "default-namespace", "representations"])
def test_a_version_without_a_required_field_is_refused(name: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(document(versions=[version(1), remove_fields(name)(version(2))]))
    assert caught.value.reason == "lake_field_missing"


@for_each(
    ("change", "reason"),
    [
        (replace_fields(format_version=2), "format_version_unsupported"),
        (replace_fields(view_uuid="mine"), "table_uuid_invalid"),
        (replace_fields(location=""), "lake_value_invalid"),
        (replace_fields(versions=[version(2), version(2)]), "view_id_twice"),
        (replace_fields(schemas=[SCHEMA, SCHEMA]), "view_id_twice"),
        (replace_fields(current_version_id=3), "view_version_unknown"),
        (replace_fields(versions=[]), "view_version_unknown"),
        (replace_fields(schemas=[]), "schema_unknown"),
        (replace_fields(versions=[version(1, schema_id=9), version(2)]), "schema_unknown"),
        (replace_fields(properties={"a": 1}), "lake_value_invalid"),
        (replace_fields(version_log=[{"version-id": 1}]), "lake_field_missing"),
        (replace_fields(versions=[version(2, {"type": "sql", "sql": "select 1"})]), "lake_field_missing"),
        (replace_fields(current_version_id=True), "lake_value_invalid"),
    ],
)
def test_an_invalid_document_is_refused(change: Callable[[Doc], Doc], reason: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(change(document()))
    assert caught.value.reason == reason


def test_writing_a_document_above_the_limit_is_refused() -> None:
    doc = ViewMetadata.from_json(document(surprise="x" * VIEW_SIZE_MAX_BYTES))
    with pytest.raises(InputError) as caught:
        doc.to_bytes()
    assert caught.value.reason == "lake_json_too_large"


def test_reading_a_document_above_the_limit_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        parse(document(surprise="x" * VIEW_SIZE_MAX_BYTES))
    assert caught.value.reason == "lake_json_too_large"
