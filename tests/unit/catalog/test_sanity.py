"""The limits of staging: what a commit to a branch may not add to a protected table. Each test tries one check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pvdm.catalog import sanity
from pvdm.catalog.rule import added_snapshots
from pvdm.catalog.sanity import (
    CLOCK_DIFFERENCE_MAX_MS,
    COMMIT_ROWS_MAX,
    COMMIT_SNAPSHOTS_MAX,
    ROW_IDS_OF_A_DAY_MAX,
    STAGED_DOCUMENT_MAX_BYTES,
    STAGED_NUMBERS_MAX,
    STAGED_SNAPSHOT_MAX_BYTES,
    require_document_size,
    require_manifests,
    require_sane,
)
from pvdm.errors import ConflictError, InputError
from pvdm.lake.format.table.commit_request import apply_updates
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.paths import parse_location
from tests.support.catalog.core import set_ref, to_ref
from tests.support.for_each import for_each
from tests.support.lake.metadata import FILE, LOCATION, NOW, Doc, document_of, snapshot, table

PREFIXES = (parse_location(LOCATION),)
LARGEST = 2**63 - 1


def fit_to_format(version: int, fields: Doc) -> Doc:
    """Return the fields of a snapshot for this format version. Row ids that the test gives stay."""
    if version == 1:
        fields = {key: value for key, value in fields.items() if key != "sequence-number"}
    return {"first-row-id": 9, "added-rows": 1, **fields} if version == 3 else fields


def check(updates: list[Doc], version: int = 2, before: TableMetadata | None = None) -> None:
    start = before or table(version)
    after = apply_updates(start, updates, now_ms=NOW + 20, previous_location=FILE)
    require_sane(start, after, now_ms=NOW + 20, prefixes=PREFIXES)


def check_refused(updates: list[Doc], what: str, version: int = 2, before: TableMetadata | None = None) -> None:
    with pytest.raises(InputError) as caught:
        check(updates, version, before)
    assert (caught.value.reason, what in caught.value.message) == ("staging_not_sane", True), caught.value.message


# The table's branch `stage` is at snapshot 13, with sequence number 3.
def write(version: Any = 2, *, number: Any = 14, sequence: Any = 4, parent: Any = 13, **more: Any) -> list[Doc]:
    fields = snapshot(number, sequence, parent, **{"timestamp-ms": NOW + 20, **more})
    return to_ref("stage", fit_to_format(version, fields))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_write_as_spark_sends_it_is_sane(version: int) -> None:
    check(write(version), version)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_first_write_without_a_parent_is_sane(version: int) -> None:
    check(to_ref("fresh", fit_to_format(version, snapshot(14, 4))), version)


def test_two_snapshots_with_consecutive_numbers_are_sane() -> None:
    check([*write(), *write(number=15, sequence=5, parent=14)])


@pytest.mark.parametrize("sequence", [5, 1_000, LARGEST], ids=["skipped", "ahead", "the last there is"])
@pytest.mark.parametrize("version", [2, 3])
def test_a_sequence_number_that_is_not_the_next_is_refused(version: int, sequence: int) -> None:
    check_refused(write(version, sequence=sequence), "sequence number", version)


def test_a_first_snapshot_that_reuses_the_last_sequence_number_is_a_conflict() -> None:
    with pytest.raises(ConflictError) as caught:
        check(to_ref("fresh", snapshot(14, 3)))
    assert caught.value.reason == "snapshot_sequence_stale"


def test_a_sequence_number_in_format_1_is_refused() -> None:
    numbered = staged_snapshot(write())
    with pytest.raises(InputError, match="sequence number"):
        sanity.require_sequence(table(1), numbered, 1)


def test_a_stale_sequence_number_is_a_conflict() -> None:
    with pytest.raises(ConflictError) as caught:
        check(write(sequence=3))
    assert caught.value.reason == "snapshot_sequence_stale"


def test_a_jump_of_sequence_numbers_by_a_snapshot_removed_in_the_same_commit_is_refused() -> None:
    added_and_removed = [write(sequence=LARGEST)[0], {"action": "remove-snapshots", "snapshot-ids": [14]}]
    check_refused(added_and_removed, "last sequence number")


def test_a_jump_of_row_ids_by_a_snapshot_removed_in_the_same_commit_is_refused() -> None:
    huge = fit_to_format(3, snapshot(14, 4, 12, **{"added-rows": 2**62}))
    back = fit_to_format(3, snapshot(15, 5, 12, **{"first-row-id": 9 + 2**62}))
    updates: list[Doc] = [
        {"action": "add-snapshot", "snapshot": huge},
        {"action": "remove-snapshots", "snapshot-ids": [14]},
        *to_ref("stage", {**back, "sequence-number": 5}),
    ]
    with pytest.raises(InputError) as caught:
        check(updates, 3)
    assert caught.value.reason == "staging_not_sane"


def test_a_next_row_id_that_no_added_snapshot_explains_is_refused() -> None:
    before = table(3)
    after = TableMetadata.from_json(document_of(before) | {"next-row-id": 2**62})
    with pytest.raises(InputError, match="next row id"):
        require_sane(before, after, now_ms=NOW, prefixes=PREFIXES)


def test_a_snapshot_put_back_under_an_old_id_is_checked_as_a_new_one() -> None:
    back = [{"action": "remove-snapshots", "snapshot-ids": [13]}, *write(number=13, sequence=LARGEST, parent=12)]
    check_refused(back, "sequence number")


@pytest.mark.parametrize("off", [-CLOCK_DIFFERENCE_MAX_MS - 1, CLOCK_DIFFERENCE_MAX_MS + 1, LARGEST - NOW - 20])
def test_a_time_far_from_the_servers_is_refused(off: int) -> None:
    check_refused(write(**{"timestamp-ms": NOW + 20 + off}), "timestamp")


@pytest.mark.parametrize("off", [-CLOCK_DIFFERENCE_MAX_MS, CLOCK_DIFFERENCE_MAX_MS])
def test_a_clock_that_is_a_little_off_is_accepted(off: int) -> None:
    check(write(**{"timestamp-ms": NOW + 20 + off}))


@pytest.mark.parametrize("schema_id", [0, 7, None], ids=["older", "not there", "none"])
def test_a_snapshot_of_another_schema_than_mains_is_refused(schema_id: int | None) -> None:
    updates = write(**{"schema-id": schema_id})
    if schema_id is None:
        del updates[0]["snapshot"]["schema-id"]
    check_refused(updates, "schema")


@pytest.mark.parametrize("parent", [99, 14], ids=["not there", "itself"])
def test_a_parent_that_is_not_there_is_refused(parent: int) -> None:
    check_refused(write(parent=parent), "parent")


def test_parents_in_a_circle_are_refused() -> None:
    check_refused([*write(parent=15), *write(number=15, sequence=5, parent=14)], "parent")


def test_a_snapshot_under_an_old_id_that_is_its_own_parent_is_refused() -> None:
    back = [{"action": "remove-snapshots", "snapshot-ids": [13]}, *write(number=13, parent=13)]
    check_refused(back, "parent")


@pytest.mark.parametrize("version", [1, 2])
def test_row_ids_before_format_3_are_refused(version: int) -> None:
    check_refused(write(version, **{"first-row-id": 0, "added-rows": 1}), "first row id", version)


@pytest.mark.parametrize("rows", [COMMIT_ROWS_MAX + 1, LARGEST - 9])
def test_more_rows_than_a_commit_can_have_are_refused(rows: int) -> None:
    check_refused(write(3, **{"added-rows": rows}), "number of rows in one commit", version=3)


def test_the_rows_of_all_snapshots_of_a_commit_are_counted_together() -> None:
    half = COMMIT_ROWS_MAX // 2
    first = write(3, **{"added-rows": half})
    check([*first, *write(3, number=15, sequence=5, **{"first-row-id": 9 + half, "added-rows": half})], 3)
    more = write(3, number=15, sequence=5, **{"first-row-id": 9 + half, "added-rows": half + 1})
    check_refused([*first, *more], "number of rows in one commit", version=3)


def test_snapshots_of_a_commit_have_a_limit() -> None:
    def many(count: int) -> list[Doc]:
        return [each for at in range(count) for each in write(number=14 + at, sequence=4 + at)]

    check(many(COMMIT_SNAPSHOTS_MAX))
    check_refused(many(COMMIT_SNAPSHOTS_MAX + 1), "number of snapshots in one commit")


def table_at_row(next_row_id: int) -> TableMetadata:
    return table(3, **{"next-row-id": next_row_id})


def check_commit(before: TableMetadata, rows: int, *, day: int) -> None:
    """Check a commit of this number of rows. `day` counts the days since 1970."""
    made = snapshot(14, 4, 12, **{"first-row-id": before.next_row_id, "added-rows": rows})
    after = apply_updates(before, to_ref("stage", made), now_ms=NOW + 20, previous_location=FILE)
    sanity.require_numbers_left(before, after, added_snapshots(before, after), day * 86_400_000)


@pytest.mark.parametrize("day", [1, 20_000, 2**18])
def test_the_limit_of_row_ids_grows_with_every_day(day: int) -> None:
    before = table_at_row(day * ROW_IDS_OF_A_DAY_MAX - 5)
    check_commit(before, 5, day=day)
    with pytest.raises(InputError, match="next row id"):
        check_commit(before, 6, day=day)


def test_a_table_at_the_limit_of_row_ids_has_more_a_day_later() -> None:
    before = table_at_row(20_000 * ROW_IDS_OF_A_DAY_MAX)
    with pytest.raises(InputError, match="next row id"):
        check_commit(before, 1, day=20_000)
    check_commit(before, COMMIT_ROWS_MAX, day=20_001)


def test_half_of_all_row_ids_stay_for_main() -> None:
    before = table_at_row(2**62 - 5)
    check_commit(before, 5, day=2**20)
    with pytest.raises(InputError, match="next row id"):
        check_commit(before, 6, day=2**20)


def test_row_ids_cannot_be_used_up_within_centuries() -> None:
    assert STAGED_NUMBERS_MAX // ROW_IDS_OF_A_DAY_MAX // 366 > 700


def test_sequence_numbers_cannot_be_used_up_within_centuries() -> None:
    numbers_a_second_max = 1_000 * COMMIT_SNAPSHOTS_MAX
    assert STAGED_NUMBERS_MAX // (numbers_a_second_max * 86_400 * 366) > 1_000_000


def test_half_of_all_sequence_numbers_stay_for_main() -> None:
    last = table(**{"last-sequence-number": 2**62 - 1})
    check(write(sequence=2**62), before=last)
    beyond = table(**{"last-sequence-number": 2**62})
    check_refused(write(sequence=2**62 + 1), "last sequence number", before=beyond)


def test_a_snapshot_of_a_table_above_the_limit_can_still_be_removed() -> None:
    tidy: list[Doc] = [{"action": "remove-snapshots", "snapshot-ids": [13]}]
    check(tidy, before=table(**{"last-sequence-number": LARGEST}))


@for_each("first", [0, 8, 10, LARGEST], ids=["all again", "one again", "skipped", "the last there is"])
def test_row_ids_that_do_not_follow_are_refused(first: int) -> None:
    with pytest.raises((InputError, ConflictError)) as caught:
        check(write(3, **{"first-row-id": first}), 3)
    assert caught.value.reason in ("snapshot_row_ids_stale", "snapshot_row_ids_skipped")


def test_a_first_row_id_below_the_tables_next_one_is_refused() -> None:
    before = table(3)
    start = before.snapshots[-1]
    with pytest.raises(InputError, match="first row id"):
        sanity.require_first_row_id(before, start)


@pytest.mark.parametrize(
    "more",
    [
        {"summary": {"operation": "append", "x": "y" * STAGED_SNAPSHOT_MAX_BYTES}},
        {"summary": {"operation": "append"} | {f"key {number}": "é" * 10 for number in range(3_000)}},
        {"x-unknown": ["y" * 100] * 1_000},
    ],
    ids=["one value", "many values", "another field"],
)
def test_a_snapshot_that_is_too_large_is_refused(more: Doc) -> None:
    check_refused(write(**more), "size")


@for_each(
    "path",
    [
        "s3://bucket/test/location2/x.avro",
        "s3://bucket/test/x.avro",
        "s3://other/test/location/x.avro",
        "gs://bucket/test/location/x.avro",
        "/test/location/x.avro",
        "file:///bucket/test/location/x.avro",
    ],
)
def test_a_manifest_list_outside_the_tables_place_is_refused(path: str) -> None:
    check_refused(write(**{"manifest-list": path}), "manifest list")


@for_each(
    "path",
    [
        f"{LOCATION}/../other/x.avro",
        f"{LOCATION}/metadata/../../other/x.avro",
        f"{LOCATION}/%2e%2e/other/x.avro",
        f"{LOCATION}/%2E./other/x.avro",
        f"{LOCATION}/..%2fother/x.avro",
        f"{LOCATION}/a\\..\\x.avro",
        f"{LOCATION}/x.avro?versionId=1",
        f"{LOCATION}/x.avro#y",
        f"{LOCATION}/\x00",
        "x.avro",
        "s3://user@bucket/test/location/x.avro",
    ],
    ids=ascii,
)
def test_a_manifest_list_with_an_ambiguous_path_is_refused(path: str) -> None:
    with pytest.raises(InputError) as caught:
        check(write(**{"manifest-list": path}))
    assert caught.value.reason == "location_invalid"


@pytest.mark.parametrize("scheme", ["s3a", "s3n", "S3"])
def test_a_manifest_list_under_another_name_of_the_scheme_is_accepted(scheme: str) -> None:
    check(write(**{"manifest-list": LOCATION.replace("s3:", f"{scheme}:") + "/metadata/x.avro"}))


def check_local_manifest_list(tmp_path: Path, path: Path) -> None:
    snapshots = [staged_snapshot(write(**{"manifest-list": str(path)}))]
    require_manifests(snapshots, (parse_location(str(tmp_path / "home")),))


def staged_snapshot(updates: list[Doc]) -> Any:
    """Snapshot 14, as these updates add it."""
    after = apply_updates(table(), updates, now_ms=NOW + 20, previous_location=FILE)
    return after.snapshot(14)


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_a_manifest_list_behind_a_link_is_refused(tmp_path: Path, linked: str) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.avro").write_bytes(b"x")
    home = tmp_path / "home"
    target = tmp_path / "other" / "x.avro" if linked == "file" else tmp_path / "other"
    (home / "link").symlink_to(target)
    with pytest.raises(InputError) as caught:
        check_local_manifest_list(tmp_path, home / "link" if linked == "file" else home / "link" / "x.avro")
    assert "symbolic link" in (caught.value.expected or "")


def test_a_manifest_list_in_its_own_folder_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "home" / "metadata").mkdir(parents=True)
    check_local_manifest_list(tmp_path, tmp_path / "home" / "metadata" / "x.avro")


def test_a_foreign_manifest_of_a_snapshot_without_a_list_is_refused() -> None:
    doc = document_of(table(1))
    old: Any = doc["snapshots"]
    del old[0]["manifest-list"]
    old[0]["manifests"] = [f"{LOCATION}/a.avro", "s3://other/b.avro"]
    with pytest.raises(InputError, match="manifest list"):
        require_manifests(TableMetadata.from_json(doc).snapshots, PREFIXES)


def test_branches_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanity, "STAGING_BRANCHES_MAX", 3)
    check([set_ref("a", 12), set_ref("b", 12), set_ref("t", 12, "tag")])
    check_refused([set_ref("a", 12), set_ref("b", 12), set_ref("c", 12)], "number of branches")


def test_tags_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanity, "TAGS_MAX", 2)
    check([set_ref("a", 12, "tag"), set_ref("b", 12)])
    check_refused([set_ref("a", 12, "tag"), set_ref("b", 12, "tag")], "number of tags")


def test_a_table_above_the_limits_accepts_commits_that_add_no_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("STAGING_BRANCHES_MAX", "TAGS_MAX", "STAGED_SNAPSHOTS_MAX"):
        monkeypatch.setattr(sanity, limit, 0)
    check([set_ref("stage", 12)])
    check([{"action": "remove-snapshot-ref", "ref-name": "stage"}])
    check_refused([set_ref("another", 12)], "number of branches")


def test_staged_snapshots_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanity, "STAGED_SNAPSHOTS_MAX", 2)
    check(write())
    check_refused([*write(), *write(number=15, sequence=5, parent=14)], "number of staged snapshots")


def test_the_metadata_file_has_a_limit() -> None:
    require_document_size(bytes(STAGED_DOCUMENT_MAX_BYTES))
    with pytest.raises(InputError, match="metadata file"):
        require_document_size(bytes(STAGED_DOCUMENT_MAX_BYTES + 1))
