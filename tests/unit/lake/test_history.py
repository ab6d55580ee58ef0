"""Which snapshots of main a table no longer keeps: too old and too many, and never with a gap."""

from __future__ import annotations

import pytest

from pvdm.lake.format.json_document import Json
from pvdm.lake.format.table.commit_request import apply_updates
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.snapshot_removal import expired_history
from tests.support.lake.metadata import NOW, snapshot, table

DAY = 86_400_000


def grown(count: int, properties: dict[str, str], *refs: tuple[str, int, str]) -> TableMetadata:
    """A table whose main shows so many snapshots, a day apart, the newest now; `refs` lead to some of them."""
    base = table(2)
    before = base.current_snapshot_id
    updates: list[Json] = [{"action": "remove-snapshot-ref", "ref-name": name} for name in base.refs if name != "main"]
    updates.append({"action": "set-properties", "updates": properties})
    for at in range(count):
        number = 100 + at
        made = snapshot(number, base.last_sequence_number + 1 + at, before, **{"timestamp-ms": NOW + at * DAY})
        updates.append({"action": "add-snapshot", "snapshot": made})
        before = number
    updates.append({"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": before})
    for name, number, kind in refs:
        updates.append({"action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": number})
    return apply_updates(base, updates, now_ms=NOW + count * DAY, previous_location=None)


def settings(snapshots: str | None = None, age: str | None = None) -> dict[str, str]:
    named = {"history.expire.min-snapshots-to-keep": snapshots, "history.expire.max-snapshot-age-ms": age}
    return {name: text for name, text in named.items() if text is not None}


def kept_snapshot_ids(metadata: TableMetadata, now_ms: int) -> list[int]:
    gone = expired_history(metadata, now_ms)
    shown = [each.snapshot_id for each in metadata.ancestry(metadata.current_snapshot_id or 0)]
    left = [each for each in shown if each not in gone]
    assert shown[: len(left)] == left, "a gap"
    return left


def test_everything_stays_without_a_setting() -> None:
    assert expired_history(grown(8, {}), NOW + 1_000 * DAY) == frozenset()


def test_so_many_stay_whatever_their_age() -> None:
    assert kept_snapshot_ids(grown(8, settings("3", "1")), NOW + 1_000 * DAY) == [107, 106, 105]


def test_what_is_young_enough_stays_however_many_there_are() -> None:
    assert kept_snapshot_ids(grown(8, settings("1", str(3 * DAY))), NOW + 7 * DAY) == [107, 106, 105, 104]


def test_the_age_is_five_days_unless_it_is_named() -> None:
    assert kept_snapshot_ids(grown(10, settings("1")), NOW + 9 * DAY) == [109, 108, 107, 106, 105, 104]


def test_an_age_beyond_32_bits_is_a_number() -> None:
    assert expired_history(grown(3, settings("1", str(30 * DAY))), NOW + 10 * DAY) == frozenset()


@pytest.mark.parametrize("text", ["x", "-1", "1.5", ""])
def test_a_setting_that_is_no_number_removes_nothing(text: str) -> None:
    assert expired_history(grown(8, settings("1", text)), NOW + 1_000 * DAY) == frozenset()


def test_the_head_stays_though_none_need_to() -> None:
    assert kept_snapshot_ids(grown(4, settings("0", "0")), NOW + 1_000 * DAY) == [103]


@pytest.mark.parametrize("kind", ["branch", "tag"])
def test_history_stays_as_far_back_as_a_ref_leads(kind: str) -> None:
    metadata = grown(8, settings("1", "1"), ("stage", 104, kind))
    assert kept_snapshot_ids(metadata, NOW + 1_000 * DAY) == [107, 106, 105, 104]


def test_everything_stays_since_the_oldest_snapshot_that_somebody_still_needs() -> None:
    metadata = grown(8, settings("1", "1"))
    gone = expired_history(metadata, NOW + 1_000 * DAY, held={105, 103, 999})
    shown = [each.snapshot_id for each in metadata.ancestry(metadata.current_snapshot_id or 0)]
    assert [each for each in shown if each not in gone] == [107, 106, 105, 104, 103]
