"""Which changes a snapshot may make to the manifests of its parent: lost and invented entries are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pvdm.errors import VerificationError
from pvdm.lake.format.manifest.entry import EntryStatus, FileContent
from pvdm.lake.format.table.snapshots import Snapshot
from pvdm.metadata.audit.changes import require_carried, require_dangling, require_own, require_rewritten
from tests.support.for_each import for_each
from tests.support.lake.manifests import data_file, delete_file, entry, existing_entry, listed

SNAPSHOT = Snapshot(55, 54, 3, 0, "s3://lake/list.avro", (), "append", {}, 0, None, None, None, {})


def reason_of(check: Callable[[], object]) -> str:
    with pytest.raises(VerificationError) as caught:
        check()
    return caught.value.reason


def test_entries_that_are_kept_or_removed_with_their_numbers_are_carried() -> None:
    old = [existing_entry(data_file("a")), existing_entry(data_file("b"))]
    removed = replace(old[1], status=EntryStatus.DELETED, snapshot_id=55)
    require_rewritten(old, [old[0], removed, entry(file=data_file("c"))])


def test_a_lost_entry_is_found() -> None:
    assert reason_of(lambda: require_rewritten([existing_entry(data_file("a"))], [])) == "audit_entries_not_carried"


def test_an_invented_entry_is_found() -> None:
    assert reason_of(lambda: require_rewritten([], [existing_entry(data_file("a"))])) == "audit_entries_not_carried"


@for_each(
    "change",
    [
        lambda old: replace(old, sequence_number=9),
        lambda old: replace(old, file_sequence_number=9),
        lambda old: replace(old, data_file=replace(old.data_file, record_count=9)),
        lambda old: replace(old, data_file=replace(old.data_file, lower_bounds=None)),
    ],
)
def test_an_entry_that_is_kept_with_other_facts_is_found(change: Callable[..., object]) -> None:
    old = existing_entry(data_file("a"))
    assert reason_of(lambda: require_rewritten([old], [change(old)])) == "audit_entries_not_carried"  # type: ignore[list-item]


def test_a_kept_file_with_other_row_ids_is_found() -> None:
    old = existing_entry(data_file("a", first_row_id=7))
    other = existing_entry(data_file("a", first_row_id=8))
    assert reason_of(lambda: require_rewritten([old], [other])) == "audit_row_ids_not_carried"


def test_a_file_without_row_ids_may_be_given_some() -> None:
    require_rewritten([existing_entry(data_file("a"))], [existing_entry(data_file("a", first_row_id=8))])


def test_an_entry_of_another_snapshot_is_found() -> None:
    require_own([entry(), existing_entry(snapshot_id=3)], SNAPSHOT)
    other = entry(snapshot_id=3)
    assert reason_of(lambda: require_own([other], SNAPSHOT)) == "audit_entry_of_other_snapshot"


def test_removing_a_delete_file_without_its_data_file_is_found() -> None:
    data = data_file("a")
    own = delete_file(referenced_data_file="a")
    require_dangling([data], [data, own])
    for delete in (
        delete_file(referenced_data_file="b"),
        delete_file(),
        delete_file(content=FileContent.EQUALITY_DELETES, referenced_data_file="a"),
    ):
        assert reason_of(lambda delete=delete: require_dangling([data], [delete])) == "audit_delete_file_removed"  # type: ignore[misc]


def test_changed_row_ids_of_an_old_manifest_are_found() -> None:
    assert require_carried([listed()], [listed(first_row_id=7)]) == ()
    changed = [listed(first_row_id=8)]
    assert reason_of(lambda: require_carried([listed(first_row_id=7)], changed)) == "audit_manifest_not_carried"


def test_a_manifest_without_live_files_may_be_left_out() -> None:
    dead = listed("s3://lake/dead.avro", added_files_count=0, existing_files_count=0)
    live = listed("s3://lake/live.avro")
    assert require_carried([dead, live], []) == (live,)
