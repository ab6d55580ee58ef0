"""Updates of a table's snapshots, refs, logs, statistics and encryption keys."""

from __future__ import annotations

import pytest

from pvdm.errors import ConflictError, InputError, PvdmError
from pvdm.lake.format.json_document import Json
from pvdm.lake.format.table.commit_request import apply_updates, create_from_updates
from pvdm.lake.format.table.metadata import TableMetadata
from tests.support.for_each import for_each
from tests.support.lake.metadata import (
    FILE,
    LOCATION,
    NOW,
    UUID,
    Doc,
    column,
    document,
    partition_statistics,
    schema,
    snapshot,
    statistics,
    table,
)

LATER = NOW + 20


def apply(base: TableMetadata, *updates: Doc) -> TableMetadata:
    return apply_updates(base, list(updates), now_ms=LATER, previous_location=FILE)


def error_of(base: TableMetadata, *updates: Doc) -> PvdmError:
    with pytest.raises(PvdmError) as caught:
        apply(base, *updates)
    return caught.value


def add(fields: Doc) -> Doc:
    return {"action": "add-snapshot", "snapshot": fields}


def set_ref(name: str, snapshot_id: int, kind: str = "branch", /, **more: object) -> Doc:
    return {"action": "set-snapshot-ref", "ref-name": name, "snapshot-id": snapshot_id, "type": kind, **more}


def remove(*ids: int) -> Doc:
    return {"action": "remove-snapshots", "snapshot-ids": list(ids)}


def log(metadata: TableMetadata) -> list[tuple[int, int]]:
    return [(entry.snapshot_id, entry.timestamp_ms - NOW) for entry in metadata.snapshot_log]


def test_a_snapshot_on_main_is_current_and_logged_with_its_own_time() -> None:
    found = apply(table(), add(snapshot(14, 4, 12)), set_ref("main", 14))
    assert (found.current_snapshot_id, found.last_sequence_number, log(found), found.last_updated_ms) == (
        14,
        4,
        [(11, 1), (12, 2), (14, 4)],
        LATER,
    )


def test_a_snapshot_on_a_branch_leaves_main_and_its_log_alone() -> None:
    found = apply(table(), add(snapshot(14, 4, 13)), set_ref("stage", 14))
    assert (found.current_snapshot_id, log(found), found.refs["stage"].snapshot_id) == (12, [(11, 1), (12, 2)], 14)


def test_a_snapshot_keeps_every_field_it_came_with() -> None:
    fields = snapshot(14, 4, 12, **{"x-mark": [1, {"a": None}], "key-id": "k9"})
    assert apply(table(), add(fields)).raw["snapshots"][-1] == fields  # type: ignore[index]


def test_a_snapshot_without_a_ref_is_kept() -> None:
    assert apply(table(), add(snapshot(14, 4, 12))).snapshot(14) is not None


def test_the_first_snapshot_of_an_empty_table_may_come_on_a_branch() -> None:
    empty = table(
        **{
            "snapshots": [],
            "refs": {},
            "current-snapshot-id": -1,
            "snapshot-log": [],
            "last-sequence-number": 0,
            "statistics": [],
        }
    )
    found = apply(empty, add(snapshot(14, 1)), set_ref("stage", 14))
    assert (found.current_snapshot_id, found.refs["stage"].snapshot_id, log(found)) == (None, 14, [])


@pytest.mark.parametrize("number", [2, 3])
def test_a_stale_sequence_number_is_a_conflict(number: int) -> None:
    found = error_of(table(), add(snapshot(14, number, 12)))
    assert (type(found), found.reason) == (ConflictError, "snapshot_sequence_stale")


def test_a_first_snapshot_may_share_the_last_sequence_number() -> None:
    assert apply(table(), add(snapshot(14, 3))).last_sequence_number == 3


def test_a_first_snapshot_may_not_lower_the_last_sequence_number() -> None:
    found = error_of(table(snapshots=[], refs={}, **{"current-snapshot-id": -1}), add(snapshot(14, 2)))
    assert (type(found), found.reason) == (ConflictError, "snapshot_sequence_stale")


def test_a_sequence_number_in_format_1_is_refused() -> None:
    assert error_of(table(1), add(snapshot(14, 4, 12))).reason == "snapshot_sequence_ahead"


def test_a_snapshot_without_a_sequence_number_is_accepted_in_format_1() -> None:
    fields = snapshot(14, 4, 12)
    del fields["sequence-number"]
    assert apply(table(1), add(fields), set_ref("main", 14)).current_snapshot_id == 14


def test_row_ids_are_given_from_the_next_one_on() -> None:
    found = apply(table(3), add(snapshot(14, 4, 12, **{"first-row-id": 9, "added-rows": 5})))
    assert found.next_row_id == 14


def test_two_snapshots_of_one_commit_take_row_ids_after_one_another() -> None:
    one, two = (
        snapshot(14, 4, 12, **{"first-row-id": 9, "added-rows": 5}),
        snapshot(15, 5, 14, **{"first-row-id": 14, "added-rows": 0}),
    )
    assert apply(table(3), add(one), add(two)).next_row_id == 14


def test_row_ids_that_are_already_used_are_a_conflict() -> None:
    found = error_of(table(3), add(snapshot(14, 4, 12, **{"first-row-id": 8, "added-rows": 5})))
    assert (type(found), found.reason) == (ConflictError, "snapshot_row_ids_stale")


@for_each(
    ("rows", "reason"),
    [
        ({"first-row-id": 10, "added-rows": 1}, "snapshot_row_ids_skipped"),
        ({}, "snapshot_first_row_id_missing"),
        ({"first-row-id": 9}, "snapshot_added_rows_missing"),
        ({"first-row-id": 9, "added-rows": -1}, "lake_value_invalid"),
        ({"first-row-id": 9, "added-rows": 2**63 - 1}, "lake_value_invalid"),
    ],
)
def test_row_ids_that_skip_some_or_are_missing_are_refused(rows: Doc, reason: str) -> None:
    found = error_of(table(3), add(snapshot(14, 4, 12, **rows)))
    assert (type(found), found.reason) == (InputError, reason)


def test_a_known_snapshot_id_is_refused() -> None:
    assert error_of(table(), add(snapshot(13, 4, 12))).reason == "snapshot_exists"


@for_each("missing", ["manifest-list", "summary", "timestamp-ms", "snapshot-id"])
def test_a_snapshot_without_a_required_field_is_refused(missing: str) -> None:
    fields = snapshot(14, 4, 12)
    del fields[missing]
    assert error_of(table(), add(fields)).reason == "lake_field_missing"


def test_a_summary_without_operation_is_refused() -> None:
    assert error_of(table(), add(snapshot(14, 4, 12, summary={"a": "b"}))).reason == "lake_field_missing"


def test_a_snapshot_before_the_schema_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        create_from_updates([add(snapshot(14, 1))], now_ms=NOW, table_uuid=UUID)
    assert caught.value.reason == "snapshot_too_early"


def test_a_rollback_is_logged_with_the_time_of_the_commit() -> None:
    found = apply(table(), set_ref("main", 11))
    assert (found.current_snapshot_id, log(found)) == (11, [(11, 1), (12, 2), (11, 20)])


def test_a_snapshot_that_main_passed_within_a_commit_is_not_in_its_log() -> None:
    updates = [add(snapshot(14, 4, 12)), set_ref("main", 14), add(snapshot(15, 5, 14)), set_ref("main", 15)]
    assert log(apply(table(), *updates)) == [(11, 1), (12, 2), (15, 5)]


def test_a_snapshot_from_the_far_future_cannot_go_on_main() -> None:
    fields = snapshot(14, 4, 12, **{"timestamp-ms": LATER + 60_001})
    assert error_of(table(), add(fields), set_ref("main", 14)).reason == "last_updated_before_log"


def test_moving_a_ref_replaces_its_retention() -> None:
    found = apply(table(), set_ref("stage", 12, **{"max-ref-age-ms": 9, "min-snapshots-to-keep": None}))
    assert found.raw["refs"]["stage"] == {"snapshot-id": 12, "type": "branch", "max-ref-age-ms": 9}  # type: ignore[index,call-overload]


def test_a_change_of_mains_retention_logs_main_again() -> None:
    found = apply(table(), set_ref("main", 12, **{"max-ref-age-ms": 9}))
    assert (found.refs["main"].max_ref_age_ms, log(found)[-1]) == (9, (12, 20))


def test_unknown_fields_of_a_ref_survive_its_move() -> None:
    refs = document()["refs"] | {"stage": {"snapshot-id": 13, "type": "branch", "x-old": 1}}
    found = apply(table(refs=refs), set_ref("stage", 12, **{"x-new": {"a": 1}}))
    assert found.refs["stage"].raw == {"snapshot-id": 12, "type": "branch", "x-old": 1, "x-new": {"a": 1}}


def test_a_new_unknown_field_is_added_to_a_ref() -> None:
    found = apply(table(), set_ref("main", 12, **{"x-new": 1}))
    assert found.refs["main"].raw["x-new"] == 1


@for_each(
    ("update", "reason"),
    [
        (set_ref("main", 404), "ref_snapshot_unknown"),
        (set_ref("new", 404), "ref_snapshot_unknown"),
        (set_ref("main", 11, "tag"), "main_not_a_branch"),
        (set_ref("x", 11, "twig"), "lake_value_invalid"),
        (set_ref("", 11), "lake_value_invalid"),
        (set_ref("x", 11, "tag", **{"min-snapshots-to-keep": 3}), "ref_retention_invalid"),
        (set_ref("x", 11, **{"max-snapshot-age-ms": 0}), "ref_retention_invalid"),
        (set_ref("x", 11, **{f"x-{each}": 1 for each in range(100)}), "ref_fields_too_many"),
    ],
)
def test_an_invalid_ref_is_refused(update: Doc, reason: str) -> None:
    assert error_of(table(), update).reason == reason


def test_fields_of_a_ref_have_a_limit_over_all_updates() -> None:
    first, second = ({f"{word}-{each}": 1 for each in range(60)} for word in "xy")
    found = error_of(table(), set_ref("stage", 12, **first), set_ref("stage", 13, **second))
    assert (found.reason, found.details["place"]) == ("ref_fields_too_many", "$.updates[1]")


def test_a_table_without_main_has_no_current_snapshot() -> None:
    found = apply(table(), {"action": "remove-snapshot-ref", "ref-name": "main"})
    assert (
        found.current_snapshot_id,
        found.raw["current-snapshot-id"],
        "main" in found.refs,
        len(found.snapshots),
    ) == (
        None,
        -1,
        False,
        3,
    )


def test_a_removed_branch_leaves_its_snapshots() -> None:
    found = apply(table(), {"action": "remove-snapshot-ref", "ref-name": "stage"})
    assert ("stage" in found.refs, found.snapshot(13) is None) == (False, False)


def test_removing_a_snapshot_removes_its_refs_statistics_and_the_log_before_it() -> None:
    found = apply(table(), remove(11))
    assert (
        [each.snapshot_id for each in found.snapshots],
        sorted(found.refs),
        found.statistics,
        found.partition_statistics,
        log(found),
    ) == ([12, 13], ["main", "stage"], (), (), [(12, 2)])


def test_removing_a_snapshot_removes_the_refs_that_point_to_it_then() -> None:
    moved_away, new_ref, other_ref = set_ref("v1", 12, "tag"), set_ref("new", 11), set_ref("old", 11)
    removal = {"action": "remove-snapshot-ref", "ref-name": "old"}
    found = apply(table(), moved_away, new_ref, other_ref, removal, remove(11), set_ref("new", 13))
    assert {name: ref.snapshot_id for name, ref in found.refs.items()} == {"main": 12, "stage": 13, "v1": 12, "new": 13}


def test_removing_a_snapshot_in_the_middle_removes_the_log_before_it() -> None:
    entries = [{"snapshot-id": each, "timestamp-ms": NOW + place} for place, each in enumerate([11, 13, 12])]
    assert log(apply(table(**{"snapshot-log": entries}), remove(13))) == [(12, 2)]


def test_removing_the_current_snapshot_removes_main() -> None:
    found = apply(table(), remove(12))
    assert (found.current_snapshot_id, "main" in found.refs, log(found)) == (None, False, [])


def test_a_removed_parent_is_still_named_by_its_child() -> None:
    assert apply(table(), remove(11)).snapshots[0].parent_id == 11


def test_a_log_that_would_not_end_with_the_current_snapshot_is_refused() -> None:
    entries = [{"snapshot-id": 12, "timestamp-ms": NOW}, {"snapshot-id": 11, "timestamp-ms": NOW}]
    base = table(**{"snapshot-log": [*entries, {"snapshot-id": 13, "timestamp-ms": NOW}]})
    assert error_of(base, remove(13)).reason == "snapshot_log_broken"


def test_snapshots_of_a_table_without_a_log_can_be_removed() -> None:
    assert log(apply(table(**{"snapshot-log": []}), remove(11))) == []


def test_new_statistics_of_a_snapshot_replace_the_old_ones() -> None:
    new = statistics(11) | {"statistics-path": "new", "x-mark": 1}
    found = apply(table(), {"action": "set-statistics", "snapshot-id": 11, "statistics": new})
    assert found.raw["statistics"] == [new]


def test_statistics_of_another_snapshot_are_added() -> None:
    found = apply(table(), {"action": "set-statistics", "statistics": statistics(12)})
    assert [each.snapshot_id for each in found.statistics] == [11, 12]


def test_statistics_that_are_set_again_move_to_the_end() -> None:
    both = [{"action": "set-statistics", "statistics": statistics(each)} for each in (12, 11)]
    assert [each.snapshot_id for each in apply(table(), *both).statistics] == [12, 11]


def test_statistics_that_name_two_snapshots_are_refused() -> None:
    update = {"action": "set-statistics", "snapshot-id": 12, "statistics": statistics(11)}
    assert error_of(table(), update).reason == "statistics_snapshot_mismatch"


def test_statistics_are_removed() -> None:
    assert apply(table(), {"action": "remove-statistics", "snapshot-id": 11}).statistics == ()


def test_partition_statistics_are_set_and_removed() -> None:
    put = {"action": "set-partition-statistics", "partition-statistics": partition_statistics(12)}
    found = apply(table(), put, {"action": "remove-partition-statistics", "snapshot-id": 11})
    assert [each.snapshot_id for each in found.partition_statistics] == [12]


def test_new_partition_statistics_of_a_snapshot_replace_the_old_ones() -> None:
    new = partition_statistics(11) | {"statistics-path": "new"}
    found = apply(table(), {"action": "set-partition-statistics", "partition-statistics": new})
    assert found.raw["partition-statistics"] == [new]


def key(key_id: str, content: str = "AAEC") -> Doc:
    return {"key-id": key_id, "encrypted-key-metadata": content, "properties": {"a": "b"}, "x-mark": 1}


def test_a_key_is_added_whole() -> None:
    found = apply(table(3), {"action": "add-encryption-key", "encryption-key": key("k2")})
    assert found.encryption_keys[-1].raw == key("k2")


def test_a_known_key_is_not_replaced() -> None:
    base = table(3)
    assert apply(base, {"action": "add-encryption-key", "encryption-key": key("k1", "////")}) is base


def test_a_key_is_removed() -> None:
    found = apply(table(3), {"action": "remove-encryption-key", "key-id": "k1"})
    assert (found.encryption_keys, "encryption-keys" in found.raw) == ((), False)


def test_many_removals_in_one_commit_are_applied() -> None:
    snapshots = [snapshot(100 + place, 1) for place in range(2_000)]
    base = table(snapshots=[*document()["snapshots"], *snapshots])
    found = apply(base, *(remove(100 + place) for place in range(2_000)))
    assert len(found.snapshots) == 3


def test_one_commit_can_create_a_table_with_its_first_snapshot() -> None:
    updates: list[Json] = [
        {"action": "add-schema", "schema": schema(0, column(1, "id"))},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": LOCATION},
        add(snapshot(1, 1)),
        set_ref("main", 1),
    ]
    assert log(create_from_updates(updates, now_ms=LATER, table_uuid=UUID)) == [(1, 1)]
