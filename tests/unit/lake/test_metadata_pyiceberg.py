"""Documents that PyIceberg writes, and documents written here that PyIceberg reads."""

from __future__ import annotations

import json

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata as PyMetadata
from pyiceberg.table.metadata import TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from pvdm.lake.format.table.commit_request import apply_updates
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.new_table import new_table
from tests.support.lake.metadata import FILE, LOCATION, NOW, UUID, Doc, create_request


def new_metadata_of_pyiceberg(version: str) -> PyMetadata:
    places = ListType(7, StructType(NestedField(8, "town", StringType())), element_required=True)
    schema = Schema(
        NestedField(5, "id", LongType(), required=True, doc="key"),
        NestedField(6, "places", places),
        NestedField(9, "facts", MapType(10, StringType(), 11, LongType(), value_required=False)),
        identifier_field_ids=[5],
    )
    return new_table_metadata(
        location=LOCATION,
        schema=schema,
        partition_spec=PartitionSpec(PartitionField(5, 1000, BucketTransform(4), "b")),
        sort_order=SortOrder(SortField(5, IdentityTransform())),
        properties={"format-version": version, "owner": "x"},
    )


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_document_of_pyiceberg_is_written_as_it_was_read(version: str) -> None:
    data = new_metadata_of_pyiceberg(version).model_dump_json().encode()
    assert json.loads(TableMetadata.parse(data).to_bytes()) == json.loads(data)


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_new_table_has_the_same_column_ids_as_in_pyiceberg(version: str) -> None:
    theirs = json.loads(new_metadata_of_pyiceberg(version).model_dump_json())
    request: Doc = {
        "schema": {
            "type": "struct",
            "identifier-field-ids": [5],
            "fields": [
                {"id": 5, "name": "id", "type": "long", "required": True, "doc": "key"},
                {
                    "id": 6,
                    "name": "places",
                    "type": {
                        "type": "list",
                        "element-id": 7,
                        "element": {
                            "type": "struct",
                            "fields": [{"id": 8, "name": "town", "type": "string", "required": False}],
                        },
                        "element-required": True,
                    },
                    "required": False,
                },
                {
                    "id": 9,
                    "name": "facts",
                    "type": {
                        "type": "map",
                        "key-id": 10,
                        "key": "string",
                        "value-id": 11,
                        "value": "long",
                        "value-required": False,
                    },
                    "required": False,
                },
            ],
        }
    }
    ours = new_table(request, location=LOCATION, table_uuid=UUID, now_ms=NOW)
    assert ours.current_schema.meaning == TableMetadata.from_json(theirs).current_schema.meaning


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_pyiceberg_reads_a_new_table(version: str) -> None:
    request = create_request(properties={"format-version": version})
    found = new_table(request, location=LOCATION, table_uuid=UUID, now_ms=NOW)
    assert TableMetadataUtil.parse_raw(found.to_bytes().decode()).schema().find_field("facts.value.n").field_id == 10


def test_pyiceberg_reads_a_table_after_a_commit() -> None:
    base = TableMetadata.parse(new_metadata_of_pyiceberg("2").model_dump_json().encode())
    update: Doc = {"action": "set-properties", "updates": {"a": "b"}}
    found = apply_updates(base, [update], now_ms=base.last_updated_ms, previous_location=FILE)
    assert TableMetadataUtil.parse_raw(found.to_bytes().decode()).properties == {"owner": "x", "a": "b"}
