"""Manifest lists: fields are found by id, sequence numbers and row ids are assigned, and false values are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pvdm.lake.format.avro.container import AvroLimits
from pvdm.lake.format.manifest.entry import ManifestContent
from pvdm.lake.format.manifest.manifest_list import FieldSummary, ListHeader, ManifestFile, read_manifest_list
from pvdm.lake.format.manifest.write import write_manifest_list
from tests.support.for_each import for_each
from tests.support.lake.manifests import edit_avro, extra_of, listed, refused, write_again

SUMMARY = FieldSummary(contains_null=True, contains_nan=None, lower_bound=b"\x00", upper_bound=None)


def list_header(version: int = 2, **changes: Any) -> ListHeader:
    base = ListHeader(
        format_version=version,
        snapshot_id=55,
        parent_snapshot_id=44,
        sequence_number=None if version == 1 else 4,
        first_row_id=1_000 if version == 3 else None,
    )
    return replace(base, **changes)


def delete_manifest(**changes: Any) -> ManifestFile:
    return listed("s3://lake/d.avro", content=ManifestContent.DELETES, **changes)


LIST = write_manifest_list(list_header(), [listed(partitions=(SUMMARY,), key_metadata=b"k"), delete_manifest()]).data


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_list_is_read_as_it_was_written(version: int) -> None:
    manifests = [listed(partitions=(SUMMARY,)), listed("s3://lake/n.avro", partitions=None)]
    if version == 1:
        manifests = [replace(each, sequence_number=0, min_sequence_number=0) for each in manifests]
    else:
        manifests.append(delete_manifest())
    written = write_manifest_list(list_header(version), manifests)
    found = read_manifest_list(written.data)
    assert (found.manifests, found.header) == (written.manifests, list_header(version))


def test_a_first_snapshot_has_no_parent() -> None:
    found = read_manifest_list(write_manifest_list(list_header(parent_snapshot_id=None), []).data)
    assert (found.header.parent_snapshot_id, found.file.text("parent-snapshot-id")) == (None, "null")


def test_equal_input_gives_equal_bytes() -> None:
    assert write_manifest_list(list_header(), [listed()]).data == write_manifest_list(list_header(), [listed()]).data


def test_missing_sequence_numbers_become_those_of_the_commit() -> None:
    fresh = listed(sequence_number=None, min_sequence_number=None)
    (found,) = read_manifest_list(write_manifest_list(list_header(), [fresh]).data).manifests
    assert (found.sequence_number, found.min_sequence_number) == (4, 4)


def test_row_ids_are_assigned_to_data_manifests_without_one_and_leave_room_for_existing_rows() -> None:
    manifests = [
        listed("a", added_rows_count=5, existing_rows_count=7),
        listed("b", first_row_id=3),
        delete_manifest(first_row_id=99),
        listed("c", added_rows_count=2),
    ]
    written = write_manifest_list(list_header(3), manifests)
    assert [each.first_row_id for each in written.manifests] == [1_000, 3, None, 1_012]
    assert written.next_row_id == 1_014


def test_a_list_before_format_3_assigns_no_row_ids() -> None:
    assert write_manifest_list(list_header(2), [listed()]).next_row_id is None


@for_each(
    ("reason", "header", "manifest"),
    [
        ("manifest_list_write_format", list_header(format_version=4), listed()),
        ("manifest_list_write_snapshot_missing", list_header(snapshot_id=None), listed()),
        ("manifest_list_write_sequence", list_header(sequence_number=None), listed()),
        ("manifest_list_write_sequence", list_header(1, sequence_number=0), listed()),
        ("manifest_list_write_row_id", list_header(3, first_row_id=None), listed()),
        ("manifest_list_write_row_id", list_header(2, first_row_id=0), listed()),
        ("manifest_list_write_row_id_refused", list_header(2), listed(first_row_id=3)),
        ("manifest_list_write_deletes_in_v1", list_header(1), delete_manifest()),
        ("manifest_list_write_count_missing", list_header(), listed(added_rows_count=None)),
        ("manifest_list_write_sequence_missing", list_header(), listed(sequence_number=None, added_snapshot_id=1)),
        ("manifest_list_write_sequence_ahead", list_header(), listed(sequence_number=5)),
        ("manifest_list_write_row_ids_overflow", list_header(3, first_row_id=2**63 - 1), listed()),
    ],
)
def test_writing_an_invalid_list_is_refused(reason: str, header: ListHeader, manifest: ManifestFile) -> None:
    with refused(reason):
        write_manifest_list(header, [manifest])


def test_writing_a_manifest_twice_into_a_list_is_refused() -> None:
    with refused("manifest_list_write_path_repeated"):
        write_manifest_list(list_header(), [listed(), listed()])


def add_unknown_field(schema: Any) -> Any:
    for at, field in enumerate(schema["fields"]):
        field["name"] = f"other_{at}"
    schema["fields"].append({"name": "later", "type": ["string", "null"]})
    return schema


def test_fields_are_found_by_id_and_unknown_fields_are_kept() -> None:
    def add_value(records: tuple[Any, ...]) -> list[Any]:
        return [(*raw, "kept") for raw in records]

    data = edit_avro(LIST, schema=add_unknown_field, records=add_value, meta={"x": b"\xff"})
    found = read_manifest_list(data)
    again = read_manifest_list(write_again(found.file))
    assert found.manifests == read_manifest_list(LIST).manifests
    assert (again.file.records, extra_of(again.file)) == (found.file.records, extra_of(found.file))
    assert again.file.records[0][-1] == "kept"


def test_a_missing_format_version_is_taken_from_the_table_or_the_schema() -> None:
    data = edit_avro(LIST, meta={"format-version": None})
    versions = (
        read_manifest_list(data).header.format_version,
        read_manifest_list(data, format_version=3).header.format_version,
    )
    assert versions == (2, 3)


@for_each(
    ("reason", "meta"),
    [
        ("manifest_format_unsupported", {"format-version": b"4"}),
        ("manifest_header_invalid", {"snapshot-id": b"x"}),
        ("manifest_header_invalid", {"snapshot-id": b"9876543210123456789"}),
        ("manifest_header_invalid", {"parent-snapshot-id": b""}),
        ("manifest_header_invalid", {"first-row-id": b"1 "}),
        ("manifest_schemas_conflict", {"iceberg.schema": b'{"type":"struct","fields":[]}'}),
        ("manifest_list_sequence_ahead", {"sequence-number": b"3"}),
        ("manifest_list_sequence_conflict", {"sequence-number": b"5"}),
        ("manifest_list_deletes_in_v1", {"format-version": b"1"}),
    ],
)
def test_a_false_header_value_is_refused(reason: str, meta: dict[str, bytes | None]) -> None:
    with refused(reason):
        read_manifest_list(edit_avro(LIST, meta=meta))


def test_a_list_of_a_later_format_than_its_table_is_refused() -> None:
    with refused("manifest_format_conflict"):
        read_manifest_list(LIST, format_version=1)


ORDER = [500, 501, 502, 517, 515, 516, 503, 504, 505, 506, 512, 513, 514, 507, 519]


def with_value(field_id: int, value: Any) -> bytes:
    at = ORDER.index(field_id)
    return edit_avro(LIST, records=lambda found: [(*found[0][:at], value, *found[0][at + 1 :])])


@for_each(
    ("reason", "field_id", "value"),
    [
        ("manifest_list_number_negative", 501, -1),
        ("manifest_list_number_negative", 515, -1),
        ("manifest_list_number_negative", 504, -1),
        ("manifest_list_number_negative", 514, -1),
        ("manifest_list_location_refused", 500, ""),
        ("manifest_list_location_refused", 500, "x" * 9_000),
        ("manifest_list_content_unknown", 517, 2),
    ],
)
def test_a_false_value_of_a_record_is_refused(reason: str, field_id: int, value: Any) -> None:
    with refused(reason):
        read_manifest_list(with_value(field_id, value))


@for_each("field_id", [500, 501, 502, 503, 515, 516, 517, 504, 512])
def test_a_list_without_a_required_field_is_refused(field_id: int) -> None:
    def without(schema: Any) -> Any:
        for field in schema["fields"]:
            if field["field-id"] == field_id:
                field["field-id"] = 9_999
        return schema

    with refused("manifest_list_field_missing"):
        read_manifest_list(edit_avro(LIST, schema=without, meta={"iceberg.schema": None}))


def test_null_in_a_required_field_is_refused() -> None:
    def optional(schema: Any) -> Any:
        schema["fields"][1]["type"] = ["null", "long"]
        return schema

    with refused("manifest_list_field_missing"):
        read_manifest_list(edit_avro(LIST, schema=optional, records=lambda found: [(found[0][0], None, *found[0][2:])]))


@pytest.mark.parametrize("kind", ["absent", "null"])
def test_a_summary_without_contains_null_is_refused(kind: str) -> None:
    def change_schema(schema: Any) -> Any:
        field = schema["fields"][13]["type"][1]["items"]["fields"][0]
        field.update({"field-id": 9_999} if kind == "absent" else {"type": ["null", "boolean"]})
        return schema

    def set_null(found: tuple[Any, ...]) -> list[Any]:
        raw = found[0]
        return [(*raw[:13], ((None, *raw[13][0][1:]),), *raw[14:])]

    with refused("manifest_list_field_missing"):
        read_manifest_list(edit_avro(LIST, schema=change_schema, records=None if kind == "absent" else set_null))


def test_a_known_field_with_another_type_is_refused() -> None:
    def other(schema: Any) -> Any:
        schema["fields"][0]["type"] = "bytes"
        return schema

    with refused("manifest_field_type_mismatch"):
        read_manifest_list(edit_avro(LIST, schema=other, records=lambda _: []))


def test_manifests_over_the_limit_are_refused() -> None:
    with refused("avro_too_many_records"):
        read_manifest_list(LIST, limits=AvroLimits(records_max=1))
