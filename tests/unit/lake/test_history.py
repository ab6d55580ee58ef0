"""Which snapshots of `main` expire by the table's settings: those that are too old and not needed, without a gap."""

from __future__ import annotations

import pytest

from pvdm.lake.format.json_document import Json
from pvdm.lake.format.table.commit_request import apply_updates
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.snapshot_removal import expired_history
from tests.support.for_each import for_each
from tests.support.lake.metadata import NOW, snapshot, table

DAY = 86_400_000


def table_with_history(count: int, properties: dict[str, str], *refs: tuple[str, int, str]) -> TableMetadata:
    """A table with `count` snapshots on `main` from 100 on, a day apart. `refs` have name, snapshot id and type."""
    base = table(2)
    before = base.current_snapshot_id
    updates: list[Json] = [{"action": "remove-snapshot-ref", "ref-name": name} for name in base.refs if name != "main"]
    updates.append({"action": "set-properties", "updates": properties})
    for at in range(count):
        number = 100 + at
        fields = snapshot(number, base.last_sequence_number + 1 + at, before, **{"timestamp-ms": NOW + at * DAY})
        updates.append({"action": "add-snapshot", "snapshot": fields})
        before = number
    updates.append({"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": before})
    for name, number, kind in refs:
        updates.append({"action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": number})
    return apply_updates(base, updates, now_ms=NOW + count * DAY, previous_location=None)


def expire_settings(snapshots: str | None = None, age: str | None = None) -> dict[str, str]:
    named = {"history.expire.min-snapshots-to-keep": snapshots, "history.expire.max-snapshot-age-ms": age}
    return {name: text for name, text in named.items() if text is not None}


def kept_snapshot_ids(metadata: TableMetadata, now_ms: int) -> list[int]:
    gone = expired_history(metadata, now_ms)
    shown = [each.snapshot_id for each in metadata.ancestry(metadata.current_snapshot_id or 0)]
    left = [each for each in shown if each not in gone]
    assert shown[: len(left)] == left, "a gap"
    return left


def test_without_a_setting_no_snapshot_expires() -> None:
    assert expired_history(table_with_history(8, {}), NOW + 1_000 * DAY) == frozenset()


def test_the_minimum_number_of_snapshots_is_kept_at_any_age() -> None:
    assert kept_snapshot_ids(table_with_history(8, expire_settings("3", "1")), NOW + 1_000 * DAY) == [107, 106, 105]


def test_snapshots_below_the_maximum_age_are_kept() -> None:
    metadata = table_with_history(8, expire_settings("1", str(3 * DAY)))
    assert kept_snapshot_ids(metadata, NOW + 7 * DAY) == [107, 106, 105, 104]


def test_the_default_maximum_age_is_five_days() -> None:
    metadata = table_with_history(10, expire_settings("1"))
    assert kept_snapshot_ids(metadata, NOW + 9 * DAY) == [109, 108, 107, 106, 105, 104]


def test_a_maximum_age_beyond_32_bits_is_accepted() -> None:
    assert expired_history(table_with_history(3, expire_settings("1", str(30 * DAY))), NOW + 10 * DAY) == frozenset()


@for_each("text", ["x", "-1", "1.5", ""])
def test_with_an_age_that_is_no_number_no_snapshot_expires(text: str) -> None:
    assert expired_history(table_with_history(8, expire_settings("1", text)), NOW + 1_000 * DAY) == frozenset()


def test_the_head_is_kept_with_a_minimum_of_zero() -> None:
    assert kept_snapshot_ids(table_with_history(4, expire_settings("0", "0")), NOW + 1_000 * DAY) == [103]


@pytest.mark.parametrize("kind", ["branch", "tag"])
def test_history_is_kept_back_to_the_snapshot_of_a_ref(kind: str) -> None:
    metadata = table_with_history(8, expire_settings("1", "1"), ("stage", 104, kind))
    assert kept_snapshot_ids(metadata, NOW + 1_000 * DAY) == [107, 106, 105, 104]


def test_history_is_kept_back_to_the_oldest_held_snapshot() -> None:
    metadata = table_with_history(8, expire_settings("1", "1"))
    gone = expired_history(metadata, NOW + 1_000 * DAY, held={105, 103, 999})
    shown = [each.snapshot_id for each in metadata.ancestry(metadata.current_snapshot_id or 0)]
    assert [each for each in shown if each not in gone] == [107, 106, 105, 104, 103]
