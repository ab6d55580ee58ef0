"""Deletion vectors in a scan: which rows they remove, and which vectors are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pvdm.errors import InputError, VerificationError
from pvdm.model.schema import Field, Kind, PrimitiveType, Schema
from tests.support.lake.metadata import column, schema
from tests.support.lake.puffin import Listed, add_vectors, bitmap, framed, list_vectors, puffin
from tests.support.lake.scans import Lake, identity_spec, table_of

pytestmark = pytest.mark.usefixtures("kernel")

LONG, STRING = PrimitiveType(Kind.LONG), PrimitiveType(Kind.STRING)
COLUMNS = Schema((Field("id", LONG, field_id=1), Field("name", STRING, field_id=2)))
DOC = schema(0, column(1, "id"), column(2, "name", "string"))


def lake_at(folder: Path) -> Lake:
    return Lake(folder, (DOC,), version=3, specs={0: [], 1: identity_spec(2, "name")})


def table_with(*ids: int, name: str | None = None) -> pa.Table:
    return table_of(COLUMNS, [{"id": each, "name": name} for each in ids])


def remaining_ids(lake: Lake) -> list[Any]:
    return [row["id"] for row in lake.rows()]


def raises_reason(reason: str) -> Any:
    return pytest.RaisesExc((InputError, VerificationError), check=lambda error: error.reason == reason)


def test_each_vector_of_a_file_removes_the_rows_of_its_own_data_file(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    first, second, third = lake.data(table_with(0, 1, 2)), lake.data(table_with(3, 4, 5)), lake.data(table_with(6))
    add_vectors(lake, [Listed(first, [0, 2]), Listed(second, [1])])
    add_vectors(lake, [Listed(third, [0])])
    assert remaining_ids(lake) == [1, 3, 5]


def test_the_positions_of_a_vector_count_across_the_batches_of_a_file(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(*range(70_000)), row_group_size=9_000)
    gone = [*range(100, 20_000, 7), *range(65_530, 65_545), *range(65_600, 69_000, 3)]
    add_vectors(lake, [Listed(location, gone, framed(bitmap(gone, runs=True)))])
    assert remaining_ids(lake) == sorted(set(range(70_000)) - set(gone))


def test_the_rows_after_the_last_container_of_a_vector_stay(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(*range(140_000)))
    add_vectors(lake, [Listed(location, [3])])
    assert len(remaining_ids(lake)) == 139_999


def test_a_vector_without_positions_removes_no_row(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    add_vectors(lake, [Listed(lake.data(table_with(0, 1)), [])])
    assert remaining_ids(lake) == [0, 1]


def test_the_freeze_covers_the_puffin_file(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(0, 1))
    vectors = add_vectors(lake, [Listed(location, [0])])
    assert lake.scan().locations() == tuple(sorted([location, vectors]))


def test_a_vector_of_a_removed_file_is_ignored(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    lake.data(table_with(0, 1))
    vectors = add_vectors(lake, [Listed("file:///gone.parquet", [0])])
    assert remaining_ids(lake) == [0, 1]
    assert vectors not in lake.scan().locations()


def test_a_vector_and_an_equality_delete_file_are_both_applied(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(0, 1, 2, 3))
    lake.equalities(table_of(Schema(COLUMNS.fields[:1]), [{"id": 3}]), [1])
    add_vectors(lake, [Listed(location, [1])])
    assert remaining_ids(lake) == [0, 2]


def test_a_blob_that_the_footer_does_not_list_is_refused(tmp_path: Path) -> None:
    """Spark applies the blob at the manifest's offset; readers that use the footer do not find it."""
    lake = lake_at(tmp_path)
    location = lake.data(table_with(*range(100)))
    add_vectors(lake, [Listed(location, range(50), shown=False), Listed("file:///gone", [99])], named=[0])
    with raises_reason("deletion_vector_unlisted"):
        lake.rows()


def test_a_blob_that_the_manifests_do_not_name_is_refused(tmp_path: Path) -> None:
    """Readers that use the footer apply it; Spark does not find it."""
    lake = lake_at(tmp_path)
    first, second = lake.data(table_with(0, 1)), lake.data(table_with(2, 3))
    add_vectors(lake, [Listed(first, [0]), Listed(second, [0])], named=[0])
    with raises_reason("deletion_vector_stray"):
        lake.rows()


@pytest.mark.parametrize(
    ("sequence", "newer", "wanted"),
    [(3, [0, 1], None), (2, [0, 1], "deletion_vector_stray"), (3, [], "deletion_vector_stray")],
)
def test_an_older_blob_is_accepted_only_if_a_newer_vector_replaces_it(
    tmp_path: Path, sequence: int, newer: list[int], wanted: str | None
) -> None:
    lake = lake_at(tmp_path)
    first, second = lake.data(table_with(0, 1, 2)), lake.data(table_with(3, 4))
    add_vectors(lake, [Listed(first, [0]), Listed(second, [0])], named=[1])
    add_vectors(lake, [Listed(first, newer)], sequence=sequence)
    if wanted is None:
        assert remaining_ids(lake) == [2, 4]
    else:
        with raises_reason(wanted):
            lake.rows()


@pytest.mark.parametrize("count", [None, "x", "", "9" * 30])
def test_an_older_blob_without_a_valid_cardinality_is_refused(tmp_path: Path, count: str | None) -> None:
    lake = lake_at(tmp_path)
    first, second = lake.data(table_with(0, 1, 2)), lake.data(table_with(3, 4))
    properties = {"referenced-data-file": first} | ({} if count is None else {"cardinality": count})
    add_vectors(lake, [Listed(first, [0], changes={"properties": properties}), Listed(second, [0])], named=[1])
    add_vectors(lake, [Listed(first, [0, 1])], sequence=3)
    with raises_reason("deletion_vector_stray"):
        lake.rows()


def test_two_vectors_of_one_data_file_are_refused(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(0, 1))
    add_vectors(lake, [Listed(location, [0])])
    add_vectors(lake, [Listed(location, [1])])
    with raises_reason("deletion_vector_twice"):
        lake.scan()


def test_two_blobs_for_one_data_file_in_one_footer_are_refused(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(0, 1))
    add_vectors(lake, [Listed(location, [0]), Listed(location, [1])], named=[0])
    with raises_reason("deletion_vector_twice"):
        lake.rows()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"type": "apache-datasketches-theta-v1"}, "deletion_vector_unlisted"),
        ({"offset": 5, "length": 10}, "deletion_vector_unlisted"),
        ({"length": 10}, "deletion_vector_unlisted"),
        ({"compression-codec": "zstd"}, "deletion_vector_compressed"),
        ({"properties": {"referenced-data-file": "file:///other", "cardinality": "1"}}, "deletion_vector_differs"),
        ({"properties": {"cardinality": "1"}}, "deletion_vector_differs"),
        ({"properties": None}, "deletion_vector_differs"),
    ],
)
def test_a_footer_that_differs_from_the_manifest_is_refused(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(0, 1))
    add_vectors(lake, [Listed(location, [0], changes=changes)])
    with raises_reason(reason):
        lake.rows()


@pytest.mark.parametrize("count", ["2", "01", "x", None])
def test_a_footer_with_another_cardinality_is_refused(tmp_path: Path, count: str | None) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(0, 1))
    properties = {"referenced-data-file": location} | ({} if count is None else {"cardinality": count})
    add_vectors(lake, [Listed(location, [0], changes={"properties": properties})])
    with raises_reason("deletion_vector_count_lies"):
        lake.rows()


def test_a_bitmap_of_another_count_than_manifest_and_footer_is_refused(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(0, 1, 2))
    add_vectors(lake, [Listed(location, [0], framed(bitmap([0, 1])))])
    with raises_reason("deletion_vector_count_lies"):
        lake.rows()


@pytest.mark.parametrize(
    "blob",
    [
        framed(bitmap([0]), magic=b"\xd1\xd3\x39\x65"),
        framed(bitmap([0]), crc=1),
        framed(bitmap([0]), length=9),
        framed(bitmap([0]) + b"\0"),
        b"\0\0\0\4\xd1\xd3\x39\x64",
        b"",
    ],
)
def test_a_blob_that_is_no_vector_is_refused_with_its_file(tmp_path: Path, blob: bytes) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(0, 1))
    vectors = add_vectors(lake, [Listed(location, [0], blob)])
    with pytest.raises(VerificationError) as caught:
        lake.rows()
    assert (caught.value.reason, caught.value.details["file"]) == ("deletion_vector_invalid", vectors)


@pytest.mark.parametrize(
    ("position", "reason"),
    [(2, "deletion_vector_beyond"), (70_000, "deletion_vector_beyond"), (1 << 30, "deletion_vector_too_large")],
)
def test_a_position_after_the_last_row_is_refused(tmp_path: Path, position: int, reason: str) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(0, 1))
    add_vectors(lake, [Listed(location, [position])])
    with raises_reason(reason):
        lake.rows()


@pytest.mark.parametrize("sequence", [1, 2, 3])
def test_a_vector_older_than_its_data_file_is_refused(tmp_path: Path, sequence: int) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(0, 1), sequence=2)
    add_vectors(lake, [Listed(location, [0])], sequence=sequence)
    if sequence < 2:
        with raises_reason("deletion_vector_misfiled"):
            lake.scan()
    else:
        assert remaining_ids(lake) == [1]


def test_a_vector_in_another_partition_than_its_data_file_is_refused(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(0, 1, name="a"), spec=1, partition={1000: "a"})
    add_vectors(lake, [Listed(location, [0])], spec=1, partition={1000: "b"})
    with raises_reason("deletion_vector_misfiled"):
        lake.scan()


@pytest.mark.parametrize(
    ("places", "accepted"), [([0], True), ([0, 99], True), ([0, 2], False), ([], True), ([70_000], False)]
)
def test_a_vector_without_older_deleted_positions_is_refused(tmp_path: Path, places: list[int], accepted: bool) -> None:
    """If a data file has a vector, Spark ignores position delete files; other readers apply both."""
    lake = lake_at(tmp_path)
    location = lake.data(table_with(*range(80_000 if 70_000 in places else 4)))
    lake.positions([(location, each) for each in places] + [("file:///z", 0)], sequence=2)
    add_vectors(lake, [Listed(location, [0, 1])], sequence=3)
    if accepted:
        assert remaining_ids(lake) == [2, 3]
    else:
        with raises_reason("deletion_vector_incomplete"):
            lake.rows()


def test_a_puffin_file_of_another_size_than_listed_is_refused(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(0, 1))
    add_vectors(lake, [Listed(location, [0])], changes={"file_size_in_bytes": 9})
    with raises_reason("file_size_lies"):
        lake.rows()


def test_a_data_file_cannot_be_a_puffin_file(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    changes = {
        "file_format": "PUFFIN",
        "content_offset": 4,
        "content_size_in_bytes": 4,
        "referenced_data_file": "file:///x",
    }
    lake.data(table_with(0), changes=changes)
    with raises_reason("source_format_unsupported"):
        lake.scan()


def test_an_encrypted_vector_is_refused(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(0, 1))
    add_vectors(lake, [Listed(location, [0])], changes={"key_metadata": b"k"})
    with raises_reason("source_encrypted"):
        lake.scan()


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda data: b"PFA2" + data[4:], "puffin_unreadable"),
        (lambda data: data[:-4] + b"PFA2", "puffin_unreadable"),
        (lambda data: data[:-12] + b"\xff\xff\xff\x7f" + data[-8:], "puffin_unreadable"),
        (lambda data: data[:-12] + b"\xff\xff\xff\xff" + data[-8:], "puffin_unreadable"),
        (lambda data: data[:-12] + bytes([data[-12] - 1]) + data[-11:], "puffin_unreadable"),
        (lambda data: data[:-8] + b"\1\0\0\0" + data[-4:], "puffin_footer_compressed"),
        (lambda data: data[:-8] + b"\2\0\0\0" + data[-4:], "puffin_unreadable"),
        (lambda data: data[:15], "puffin_unreadable"),
        (lambda data: data[:0], "puffin_unreadable"),
    ],
)
def test_a_file_that_is_no_puffin_file_is_refused(tmp_path: Path, edit: Any, reason: str) -> None:
    lake = lake_at(tmp_path)
    blob = Listed(lake.data(table_with(0, 1)), [0])
    data, offsets = puffin([blob])
    path = tmp_path / "dv.puffin"
    path.write_bytes(edit(data))
    list_vectors(lake, path, [blob], offsets)
    with raises_reason(reason):
        lake.rows()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"offset": 4, "length": 12}, "puffin_blob_misplaced"),
        ({"offset": 0, "length": 4}, "puffin_blob_misplaced"),
        ({"offset": 10**6, "length": 4}, "puffin_blob_misplaced"),
        ({"offset": 50, "length": -1}, "puffin_blob_misplaced"),
        ({"offset": 1.5}, "lake_value_invalid"),
        ({"type": None}, "lake_field_missing"),
        ({"properties": {"a": 1}}, "lake_value_invalid"),
    ],
)
def test_blobs_that_overlap_or_lie_outside_are_refused(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(0, 1))
    other = Listed("file:///gone", [1], changes={"type": "other", **changes})
    add_vectors(lake, [Listed(location, [0]), other], named=[0])
    with raises_reason(reason):
        lake.rows()


@pytest.mark.parametrize("footer", [b"{", b"{}", b"[]", b'{"blobs":[],"blobs":[]}', b"\xff"])
def test_a_footer_that_is_not_one_json_object_of_blobs_is_refused(tmp_path: Path, footer: bytes) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(table_with(0, 1))
    add_vectors(lake, [Listed(location, [0])], footer=footer)
    with pytest.RaisesExc((InputError, VerificationError), check=lambda error: error.reason.startswith("lake_")):
        lake.rows()


def test_a_footer_with_too_many_blobs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pvdm.lake.read.vectors.PUFFIN_BLOBS_MAX", 1)
    lake = lake_at(tmp_path)
    location = lake.data(table_with(0, 1))
    add_vectors(lake, [Listed(location, [0]), Listed("file:///gone", [1])], named=[0])
    with raises_reason("puffin_too_many_blobs"):
        lake.rows()
