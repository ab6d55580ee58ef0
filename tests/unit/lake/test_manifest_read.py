"""Reading manifests: fields are found by id, unknown ones kept, numbers inherited, and false values refused."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pvdm.lake.format.avro.container import AvroLimits
from pvdm.lake.format.manifest.entry import EntryStatus, FileContent, IdMap, ManifestContent
from pvdm.lake.format.manifest.manifest import Manifest, check_listed, inherit, read_manifest
from pvdm.lake.format.manifest.manifest_list import ManifestFile
from pvdm.lake.format.manifest.write import write_manifest
from tests.support.for_each import for_each
from tests.support.lake.manifests import (
    data_file,
    delete_file,
    edit_avro,
    entry,
    existing_entry,
    extra_of,
    header,
    listed,
    refused,
    write_again,
)

MANIFEST = write_manifest(header(), [entry(), existing_entry()]).data
DELETES = write_manifest(header(content=ManifestContent.DELETES), [entry(file=delete_file())]).data
FILE_AT = 4


def file_fields(schema: Any) -> Any:
    return schema["fields"][FILE_AT]["type"]["fields"]


def rename_fields(schema: Any) -> Any:
    for at, field in enumerate([*schema["fields"], *file_fields(schema)]):
        field["name"] = f"other_{at}"
    return schema


def add_unknown_fields(schema: Any) -> Any:
    schema["fields"].append({"name": "later", "type": ["null", "string"], "field-id": 99})
    file_fields(schema).append({"name": "no_id", "type": {"type": "map", "values": "double"}})
    return schema


def add_unknown_values(records: tuple[Any, ...]) -> list[Any]:
    return [(*raw[:FILE_AT], (*raw[FILE_AT], (("k", 1.5),)), "kept") for raw in records]


def change_file_field(field_id: int, value: Any) -> Callable[[tuple[Any, ...]], list[Any]]:
    """A function that returns the first record with another value in a field of its data file."""
    at = [134, 100, 101, 102, 103, 104, 108, 109, 110, 137, 125, 128, 131, 132, 135, 140, 143].index(field_id)

    def change(records: tuple[Any, ...]) -> list[Any]:
        first = records[0]
        file = (*first[FILE_AT][:at], value, *first[FILE_AT][at + 1 :])
        return [(*first[:FILE_AT], file)]

    return change


def test_fields_are_found_by_id_whatever_their_names_are() -> None:
    assert read_manifest(edit_avro(MANIFEST, schema=rename_fields)).entries == read_manifest(MANIFEST).entries


def test_unknown_fields_and_header_values_survive_a_round_trip() -> None:
    meta = {"x": b"\xff", "iceberg.schema": None}
    data = edit_avro(MANIFEST, schema=add_unknown_fields, records=add_unknown_values, meta=meta)
    found = read_manifest(data)
    again = read_manifest(write_again(found.file))
    assert again.file.records == found.file.records
    assert (again.file.schema_text, extra_of(again.file)) == (found.file.schema_text, extra_of(found.file))
    assert again.file.records[0][-1] == "kept"


def test_a_data_file_can_be_hashed_and_pickled() -> None:
    first = read_manifest(MANIFEST).entries[0].data_file
    assert pickle.loads(pickle.dumps(first)) == first
    assert hash(first) == hash(data_file())


def test_the_types_of_partition_fields_are_read() -> None:
    assert {key: str(kind) for key, kind in read_manifest(MANIFEST).partition_types.items()} == {1000: "date"}


def test_a_day_may_be_stored_as_an_int() -> None:
    def plain(schema: Any) -> Any:
        file_fields(schema)[3]["type"]["fields"][0]["type"] = ["null", "int"]
        return schema

    assert read_manifest(edit_avro(MANIFEST, schema=plain)).entries == read_manifest(MANIFEST).entries


def test_a_partition_of_an_unknown_transform_has_the_type_in_the_file() -> None:
    spec = b'[{"name":"day","transform":"fiscal[4]","source-id":2,"field-id":1000}]'
    found = read_manifest(edit_avro(MANIFEST, meta={"partition-spec": spec}))
    assert str(found.partition_types[1000]) == "date"


def test_missing_header_values_are_taken_from_the_table() -> None:
    keys = ("schema", "schema-id", "partition-spec", "partition-spec-id", "format-version", "content")
    found = read_manifest(edit_avro(MANIFEST, meta=dict.fromkeys(keys)), defaults=header())
    assert found.entries == read_manifest(MANIFEST).entries


@for_each("key", ["schema", "partition-spec", "partition-spec-id", "content"])
def test_a_missing_header_value_without_a_default_is_refused(key: str) -> None:
    with refused("manifest_header_missing"):
        read_manifest(edit_avro(MANIFEST, meta={key: None}))


def test_format_1_may_leave_its_spec_id_out() -> None:
    written = write_manifest(header(1), [entry()]).data
    data = edit_avro(written, meta={"partition-spec-id": None, "format-version": None})
    found = read_manifest(data).header
    assert (found.format_version, found.spec.spec_id, found.content) == (1, 0, ManifestContent.DATA)


NO_DAY = b'[{"name":"x","transform":"identity","source-id":1,"field-id":1001}]'
AS_TEXT = b'{"type":"struct","fields":[{"id":2,"name":"d","required":false,"type":"string"}]}'


@for_each(
    ("reason", "meta"),
    [
        ("manifest_format_unsupported", {"format-version": b"4"}),
        ("manifest_format_unsupported", {"format-version": b"0"}),
        ("manifest_header_invalid", {"format-version": b"two"}),
        ("manifest_header_invalid", {"partition-spec-id": b"1.5"}),
        ("manifest_header_invalid", {"schema-id": "٣".encode()}),
        ("manifest_header_invalid", {"schema-id": b"9" * 5_000}),
        ("manifest_header_conflict", {"schema-id": b"4"}),
        ("manifest_header_content_unknown", {"content": b"rows"}),
        ("manifest_header_content_unknown", {"content": b"deletes", "format-version": b"1"}),
        ("manifest_content_conflict", {"content": b"deletes"}),
        ("manifest_partition_mismatch", {"partition-spec": b"[]"}),
        ("manifest_partition_mismatch", {"partition-spec": NO_DAY}),
        ("partition_type_mismatch", {"schema": AS_TEXT, "schema-id": None}),
        ("partition_source_refused", {"partition-spec": b'[{"name":"d","transform":"hour","source-id":2}]'}),
        ("partition_spec_invalid", {"partition-spec": b"{}"}),
        ("iceberg_schema_invalid", {"schema": b"{}"}),
        ("lake_json_malformed", {"schema": b"{"}),
        ("avro_header_not_utf8", {"schema": b"\xff"}),
        ("manifest_schemas_conflict", {"iceberg.schema": b'{"type":"struct","fields":[]}'}),
        ("partition_void_not_null", {"partition-spec": b'[{"name":"d","transform":"void","source-id":2}]'}),
    ],
)
def test_a_false_header_value_is_refused(reason: str, meta: dict[str, bytes | None]) -> None:
    with refused(reason):
        read_manifest(edit_avro(MANIFEST, meta=meta))


@for_each(
    ("reason", "field_id", "value"),
    [
        ("manifest_code_unknown", 134, 3),
        ("manifest_content_conflict", 134, 1),
        ("manifest_location_refused", 100, ""),
        ("manifest_location_refused", 100, "s3://" + "x" * 9_000),
        ("manifest_location_refused", 143, ""),
        ("manifest_number_negative", 103, -1),
        ("manifest_number_negative", 104, -1),
        ("manifest_number_negative", 110, ((1, -1),)),
        ("manifest_map_key_repeated", 109, ((1, 5), (1, 6))),
        ("manifest_map_key_repeated", 125, ((1, b"a"), (1, b"b"))),
        ("manifest_equality_id_invalid", 135, (0,)),
    ],
)
def test_a_false_value_of_a_data_file_is_refused(reason: str, field_id: int, value: Any) -> None:
    with refused(reason):
        read_manifest(edit_avro(MANIFEST, records=change_file_field(field_id, value)))


@pytest.mark.parametrize(
    ("reason", "at", "value"),
    [
        ("manifest_code_unknown", 0, 3),
        ("manifest_number_negative", 2, -1),
        ("manifest_number_negative", 3, -1),
    ],
)
def test_a_false_number_of_an_entry_is_refused(reason: str, at: int, value: int) -> None:
    with refused(reason):
        read_manifest(edit_avro(MANIFEST, records=lambda records: [(*records[0][:at], value, *records[0][at + 1 :])]))


def test_an_equality_delete_file_without_field_ids_is_refused() -> None:
    with refused("manifest_equality_ids_missing"):
        read_manifest(edit_avro(DELETES, records=change_file_field(134, int(FileContent.EQUALITY_DELETES))))


def test_a_deletion_vector_without_its_position_is_refused() -> None:
    with refused("manifest_deletion_vector_incomplete"):
        read_manifest(edit_avro(DELETES, records=change_file_field(101, "PUFFIN")))


def test_a_content_offset_without_a_size_is_refused() -> None:
    vector = delete_file(content_offset=4)
    with refused("manifest_content_size_missing"):
        read_manifest(write_manifest(header(3, content=ManifestContent.DELETES), [entry(file=vector)]).data)


@for_each("field_id", [100, 101, 103, 104])
def test_a_data_file_without_a_required_field_is_refused(field_id: int) -> None:
    def without(schema: Any) -> Any:
        for field in file_fields(schema):
            if field["field-id"] == field_id:
                field["field-id"] = 9_999
        return schema

    with refused("manifest_field_missing"):
        read_manifest(edit_avro(MANIFEST, schema=without))


@pytest.mark.parametrize("field_id", [0, 2])
def test_an_entry_without_status_or_file_is_refused(field_id: int) -> None:
    def without(schema: Any) -> Any:
        for field in schema["fields"]:
            if field["field-id"] == field_id:
                del field["field-id"]
        return schema

    with refused("manifest_field_missing"):
        read_manifest(edit_avro(MANIFEST, schema=without, meta={"iceberg.schema": None}))


def test_null_in_a_required_field_is_refused() -> None:
    def optional(schema: Any) -> Any:
        file_fields(schema)[4]["type"] = ["null", "long"]
        return schema

    with refused("manifest_field_missing"):
        read_manifest(edit_avro(MANIFEST, schema=optional, records=change_file_field(103, None)))


def test_a_partition_tuple_that_is_null_is_refused() -> None:
    def optional(schema: Any) -> Any:
        file_fields(schema)[3]["type"] = ["null", file_fields(schema)[3]["type"]]
        return schema

    with refused("manifest_field_missing"):
        read_manifest(edit_avro(MANIFEST, schema=optional, records=change_file_field(102, None)))


def test_a_partition_value_that_is_a_list_is_refused() -> None:
    def nested(schema: Any) -> Any:
        file_fields(schema)[3]["type"]["fields"][0]["type"] = {"type": "array", "items": "int"}
        return schema

    spec = b'[{"name":"day","transform":"fiscal[4]","source-id":2,"field-id":1000}]'
    with refused("partition_type_mismatch"):
        read_manifest(edit_avro(MANIFEST, schema=nested, records=lambda _: [], meta={"partition-spec": spec}))


def test_a_partition_tuple_that_is_missing_is_refused() -> None:
    def without(schema: Any) -> Any:
        del file_fields(schema)[3]["field-id"]
        return schema

    with refused("manifest_field_missing"):
        read_manifest(edit_avro(MANIFEST, schema=without))


@for_each(
    ("field_id", "kind"),
    [
        (103, "string"),
        (100, "bytes"),
        (132, ["null", {"type": "array", "items": "long", "element-id": 7}]),
        (108, ["null", {"type": "array", "items": "long", "logicalType": "map"}]),
    ],
)
def test_a_known_field_with_another_type_is_refused(field_id: int, kind: Any) -> None:
    def other(schema: Any) -> Any:
        for field in file_fields(schema):
            if field["field-id"] == field_id:
                field["type"] = kind
        return schema

    with refused("manifest_field_type_mismatch"):
        read_manifest(edit_avro(MANIFEST, schema=other, records=lambda _: []))


def test_entries_over_the_limit_are_refused() -> None:
    with refused("avro_too_many_records"):
        read_manifest(MANIFEST, limits=AvroLimits(records_max=1))


def manifest(*entries: Any, version: int = 3, content: ManifestContent = ManifestContent.DATA) -> Manifest:
    return read_manifest(write_manifest(header(version, content=content), entries).data)


def test_an_added_entry_inherits_snapshot_and_sequence_numbers() -> None:
    (found,) = inherit(manifest(entry(snapshot_id=None)), listed())
    assert (found.snapshot_id, found.sequence_number, found.file_sequence_number) == (55, 4, 4)


def test_an_explicit_data_sequence_number_stays() -> None:
    (found,) = inherit(manifest(entry(sequence_number=1)), listed())
    assert (found.sequence_number, found.file_sequence_number) == (1, 4)


def test_entries_of_format_1_have_sequence_number_zero() -> None:
    found = inherit(manifest(entry(), entry(EntryStatus.EXISTING), version=1), listed(sequence_number=0))
    assert {(each.sequence_number, each.file_sequence_number) for each in found} == {(0, 0)}


@pytest.mark.parametrize("missing", ["sequence_number", "file_sequence_number"])
def test_an_existing_entry_without_its_numbers_is_refused(missing: str) -> None:
    at = {"sequence_number": 2, "file_sequence_number": 3}[missing]
    data = edit_avro(
        write_manifest(header(), [existing_entry()]).data,
        records=lambda records: [(*records[0][:at], None, *records[0][at + 1 :])],
    )
    with refused("manifest_sequence_missing"):
        inherit(read_manifest(data), listed())


def row_ids(found: Manifest, list_entry: ManifestFile) -> list[int | None]:
    return [each.data_file.first_row_id for each in inherit(found, list_entry)]


def test_live_files_without_row_ids_get_them_in_order() -> None:
    found = manifest(
        entry(file=data_file("a", record_count=3)),
        existing_entry(data_file("b", first_row_id=7)),
        existing_entry(data_file("c"), status=EntryStatus.DELETED),
        existing_entry(data_file("d", record_count=5)),
        entry(file=data_file("e")),
    )
    assert row_ids(found, listed(first_row_id=1_000)) == [1_000, 7, None, 1_003, 1_008]


def test_no_file_has_a_row_id_if_the_list_gives_none() -> None:
    assert row_ids(manifest(existing_entry(data_file(first_row_id=7)), entry()), listed()) == [None, None]


def test_a_delete_file_never_has_a_row_id() -> None:
    found = manifest(entry(file=delete_file()), content=ManifestContent.DELETES)
    assert row_ids(found, listed(first_row_id=9, content=ManifestContent.DELETES)) == [None]


def test_row_ids_beyond_64_bits_are_refused() -> None:
    with refused("manifest_row_ids_overflow"):
        inherit(manifest(entry()), listed(first_row_id=2**63 - 5))


def correct_list_entry() -> ManifestFile:
    """The entry of MANIFEST in a manifest list."""
    return replace(
        write_manifest(header(), [entry(), existing_entry()]).list_entry("s3://lake/m.avro", 55), sequence_number=4
    )


def test_a_correct_list_entry_is_accepted() -> None:
    check_listed(read_manifest(MANIFEST), correct_list_entry(), size=len(MANIFEST))


def test_a_list_entry_without_counts_is_accepted() -> None:
    silent = replace(correct_list_entry(), added_files_count=None, added_rows_count=None)
    check_listed(read_manifest(MANIFEST), silent, size=len(MANIFEST))


@for_each(
    ("reason", "changes"),
    [
        ("manifest_listed_length_lies", {"manifest_length": 1}),
        ("manifest_listed_spec_lies", {"partition_spec_id": 8}),
        ("manifest_listed_content_lies", {"content": ManifestContent.DELETES}),
        ("manifest_listed_files_lie", {"added_files_count": 2}),
        ("manifest_listed_files_lie", {"deleted_files_count": 1}),
        ("manifest_listed_rows_lie", {"existing_rows_count": 11}),
        ("manifest_listed_minimum_lies", {"min_sequence_number": 3}),
        ("manifest_sequence_ahead", {"sequence_number": 1}),
    ],
)
def test_a_false_list_entry_is_refused(reason: str, changes: dict[str, Any]) -> None:
    with refused(reason):
        check_listed(read_manifest(MANIFEST), replace(correct_list_entry(), **changes), size=len(MANIFEST))


def test_the_text_of_the_schema_is_kept() -> None:
    odd = json.dumps(json.loads(header().schema_text) | {"unknown": 1e5}, indent=1)
    assert read_manifest(write_manifest(header(schema_text=odd), [entry()]).data).header.schema_text == odd


def test_a_repeated_id_in_a_map_is_refused() -> None:
    with refused("manifest_map_key_repeated"):
        IdMap([(1, 2), (1, 3)])
