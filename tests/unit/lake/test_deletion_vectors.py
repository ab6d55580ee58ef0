"""Deletion vectors in a scan: which rows they take out, and what makes one refused."""

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


def rows(*ids: int, name: str | None = None) -> pa.Table:
    return table_of(COLUMNS, [{"id": each, "name": name} for each in ids])


def left(lake: Lake) -> list[Any]:
    return [row["id"] for row in lake.rows()]


def refused(code: str) -> Any:
    return pytest.RaisesExc((InputError, VerificationError), check=lambda error: error.reason == code)


def test_several_vectors_of_one_file_take_out_the_rows_of_their_own_data_files(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    first, second, third = lake.data(rows(0, 1, 2)), lake.data(rows(3, 4, 5)), lake.data(rows(6))
    add_vectors(lake, [Listed(first, [0, 2]), Listed(second, [1])])
    add_vectors(lake, [Listed(third, [0])])
    assert left(lake) == [1, 3, 5]


def test_a_vector_counts_through_every_batch_of_a_file(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(rows(*range(70_000)), row_group_size=9_000)
    gone = [*range(100, 20_000, 7), *range(65_530, 65_545), *range(65_600, 69_000, 3)]
    add_vectors(lake, [Listed(location, gone, framed(bitmap(gone, runs=True)))])
    assert left(lake) == sorted(set(range(70_000)) - set(gone))


def test_the_rows_behind_the_last_container_of_a_vector_stay(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(rows(*range(140_000)))
    add_vectors(lake, [Listed(location, [3])])
    assert len(left(lake)) == 139_999


def test_a_vector_without_positions_takes_nothing_out(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    add_vectors(lake, [Listed(lake.data(rows(0, 1)), [])])
    assert left(lake) == [0, 1]


def test_the_freeze_covers_the_puffin_file(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(rows(0, 1))
    vectors = add_vectors(lake, [Listed(location, [0])])
    assert lake.scan().locations() == tuple(sorted([location, vectors]))


def test_a_vector_of_a_file_that_is_gone_is_passed_over(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    lake.data(rows(0, 1))
    vectors = add_vectors(lake, [Listed("file:///gone.parquet", [0])])
    assert left(lake) == [0, 1]
    assert vectors not in lake.scan().locations()


def test_a_vector_and_equal_values_are_taken_out_together(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(rows(0, 1, 2, 3))
    lake.equalities(table_of(Schema(COLUMNS.fields[:1]), [{"id": 3}]), [1])
    add_vectors(lake, [Listed(location, [1])])
    assert left(lake) == [0, 2]


def test_a_blob_that_the_footer_does_not_list_is_refused(tmp_path: Path) -> None:
    """Spark goes by the manifest's offset and applies it; readers that go by the footer do not see it."""
    lake = lake_at(tmp_path)
    location = lake.data(rows(*range(100)))
    add_vectors(lake, [Listed(location, range(50), shown=False), Listed("file:///gone", [99])], named=[0])
    with refused("deletion_vector_unlisted"):
        lake.rows()


def test_a_blob_that_the_manifests_do_not_name_is_refused(tmp_path: Path) -> None:
    """Readers that go by the footer apply it; Spark does not see it."""
    lake = lake_at(tmp_path)
    first, second = lake.data(rows(0, 1)), lake.data(rows(2, 3))
    add_vectors(lake, [Listed(first, [0]), Listed(second, [0])], named=[0])
    with refused("deletion_vector_stray"):
        lake.rows()


@pytest.mark.parametrize(
    ("sequence", "newer", "wanted"),
    [(3, [0, 1], None), (2, [0, 1], "deletion_vector_stray"), (3, [], "deletion_vector_stray")],
)
def test_an_older_blob_stays_in_its_file_when_a_newer_vector_has_taken_its_place(
    tmp_path: Path, sequence: int, newer: list[int], wanted: str | None
) -> None:
    lake = lake_at(tmp_path)
    first, second = lake.data(rows(0, 1, 2)), lake.data(rows(3, 4))
    add_vectors(lake, [Listed(first, [0]), Listed(second, [0])], named=[1])
    add_vectors(lake, [Listed(first, newer)], sequence=sequence)
    if wanted is None:
        assert left(lake) == [2, 4]
    else:
        with refused(wanted):
            lake.rows()


@pytest.mark.parametrize("count", [None, "x", "", "9" * 30])
def test_an_older_blob_that_does_not_say_how_much_it_holds_is_refused(tmp_path: Path, count: str | None) -> None:
    lake = lake_at(tmp_path)
    first, second = lake.data(rows(0, 1, 2)), lake.data(rows(3, 4))
    said = {"referenced-data-file": first} | ({} if count is None else {"cardinality": count})
    add_vectors(lake, [Listed(first, [0], changes={"properties": said}), Listed(second, [0])], named=[1])
    add_vectors(lake, [Listed(first, [0, 1])], sequence=3)
    with refused("deletion_vector_stray"):
        lake.rows()


def test_two_vectors_of_one_data_file_are_refused(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(rows(0, 1))
    add_vectors(lake, [Listed(location, [0])])
    add_vectors(lake, [Listed(location, [1])])
    with refused("deletion_vector_twice"):
        lake.scan()


def test_two_blobs_for_one_data_file_in_one_footer_are_refused(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(rows(0, 1))
    add_vectors(lake, [Listed(location, [0]), Listed(location, [1])], named=[0])
    with refused("deletion_vector_twice"):
        lake.rows()


@pytest.mark.parametrize(
    ("changes", "code"),
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
def test_a_footer_that_says_something_else_than_the_manifest_is_refused(
    tmp_path: Path, changes: dict[str, Any], code: str
) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(rows(0, 1))
    add_vectors(lake, [Listed(location, [0], changes=changes)])
    with refused(code):
        lake.rows()


@pytest.mark.parametrize("count", ["2", "01", "x", None])
def test_a_footer_that_counts_otherwise_is_refused(tmp_path: Path, count: str | None) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(rows(0, 1))
    said = {"referenced-data-file": location} | ({} if count is None else {"cardinality": count})
    add_vectors(lake, [Listed(location, [0], changes={"properties": said})])
    with refused("deletion_vector_count_lies"):
        lake.rows()


def test_a_bitmap_of_another_count_than_manifest_and_footer_is_refused(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(rows(0, 1, 2))
    add_vectors(lake, [Listed(location, [0], framed(bitmap([0, 1])))])
    with refused("deletion_vector_count_lies"):
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
    location = lake.data(rows(0, 1))
    vectors = add_vectors(lake, [Listed(location, [0], blob)])
    with pytest.raises(VerificationError) as caught:
        lake.rows()
    assert (caught.value.reason, caught.value.details["file"]) == ("deletion_vector_invalid", vectors)


@pytest.mark.parametrize(
    ("position", "code"),
    [(2, "deletion_vector_beyond"), (70_000, "deletion_vector_beyond"), (1 << 30, "deletion_vector_too_large")],
)
def test_a_position_behind_the_last_row_is_refused(tmp_path: Path, position: int, code: str) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(rows(0, 1))
    add_vectors(lake, [Listed(location, [position])])
    with refused(code):
        lake.rows()


@pytest.mark.parametrize("sequence", [1, 2, 3])
def test_a_vector_older_than_its_data_file_is_refused(tmp_path: Path, sequence: int) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(rows(0, 1), sequence=2)
    add_vectors(lake, [Listed(location, [0])], sequence=sequence)
    if sequence < 2:
        with refused("deletion_vector_misfiled"):
            lake.scan()
    else:
        assert left(lake) == [1]


def test_a_vector_in_another_partition_than_its_data_file_is_refused(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(rows(0, 1, name="a"), spec=1, partition={1000: "a"})
    add_vectors(lake, [Listed(location, [0])], spec=1, partition={1000: "b"})
    with refused("deletion_vector_misfiled"):
        lake.scan()


@pytest.mark.parametrize(
    ("places", "stands"), [([0], True), ([0, 99], True), ([0, 2], False), ([], True), ([70_000], False)]
)
def test_a_vector_holds_what_older_position_deletes_hold(tmp_path: Path, places: list[int], stands: bool) -> None:
    """Where there is a vector Spark passes position delete files over; others do not."""
    lake = lake_at(tmp_path)
    location = lake.data(rows(*range(80_000 if 70_000 in places else 4)))
    lake.positions([(location, each) for each in places] + [("file:///z", 0)], sequence=2)
    add_vectors(lake, [Listed(location, [0, 1])], sequence=3)
    if stands:
        assert left(lake) == [2, 3]
    else:
        with refused("deletion_vector_incomplete"):
            lake.rows()


def test_a_puffin_file_of_another_size_than_listed_is_refused(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(rows(0, 1))
    add_vectors(lake, [Listed(location, [0])], changes={"file_size_in_bytes": 9})
    with refused("file_size_lies"):
        lake.rows()


def test_a_data_file_cannot_be_a_puffin_file(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    changes = {
        "file_format": "PUFFIN",
        "content_offset": 4,
        "content_size_in_bytes": 4,
        "referenced_data_file": "file:///x",
    }
    lake.data(rows(0), changes=changes)
    with refused("source_format_unsupported"):
        lake.scan()


def test_an_encrypted_vector_is_refused(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(rows(0, 1))
    add_vectors(lake, [Listed(location, [0])], changes={"key_metadata": b"k"})
    with refused("source_encrypted"):
        lake.scan()


@pytest.mark.parametrize(
    ("edit", "code"),
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
def test_a_file_that_is_no_puffin_file_is_refused(tmp_path: Path, edit: Any, code: str) -> None:
    lake = lake_at(tmp_path)
    blob = Listed(lake.data(rows(0, 1)), [0])
    data, offsets = puffin([blob])
    path = tmp_path / "dv.puffin"
    path.write_bytes(edit(data))
    list_vectors(lake, path, [blob], offsets)
    with refused(code):
        lake.rows()


@pytest.mark.parametrize(
    ("changes", "code"),
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
def test_blobs_that_overlap_or_lie_outside_are_refused(tmp_path: Path, changes: dict[str, Any], code: str) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(rows(0, 1))
    other = Listed("file:///gone", [1], changes={"type": "other", **changes})
    add_vectors(lake, [Listed(location, [0]), other], named=[0])
    with refused(code):
        lake.rows()


@pytest.mark.parametrize("footer", [b"{", b"{}", b"[]", b'{"blobs":[],"blobs":[]}', b"\xff"])
def test_a_footer_that_is_not_one_json_object_of_blobs_is_refused(tmp_path: Path, footer: bytes) -> None:
    lake = lake_at(tmp_path)
    location = lake.data(rows(0, 1))
    add_vectors(lake, [Listed(location, [0])], footer=footer)
    with pytest.RaisesExc((InputError, VerificationError), check=lambda error: error.reason.startswith("lake_")):
        lake.rows()


def test_a_footer_with_too_many_blobs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pvdm.lake.read.vectors.PUFFIN_BLOBS_MAX", 1)
    lake = lake_at(tmp_path)
    location = lake.data(rows(0, 1))
    add_vectors(lake, [Listed(location, [0]), Listed("file:///gone", [1])], named=[0])
    with refused("puffin_too_many_blobs"):
        lake.rows()
