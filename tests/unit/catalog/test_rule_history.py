"""The rule to the last byte: history that a log or a tag names is not rewritten, and nothing shown is spelled anew."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pvdm.catalog import rule
from pvdm.catalog.responses import published_view
from pvdm.errors import NotAllowedError
from pvdm.lake.format.table.commit_request import apply_updates
from pvdm.lake.format.table.main_state import MainState
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.model.role import Role
from tests.support.catalog.core import grant, set_ref, to_ref
from tests.support.lake.metadata import FILE, NOW, Doc, document, snapshot, statistics, table


def after(before: TableMetadata, updates: list[Doc]) -> TableMetadata:
    return apply_updates(before, updates, now_ms=NOW + 20, previous_location=FILE)


def remove(*snapshot_ids: int) -> Doc:
    return {"action": "remove-snapshots", "snapshot-ids": list(snapshot_ids)}


def rolled_back(*, gone: bool = False) -> TableMetadata:
    """Main once showed 13, went back to 12, and its log still says so; the snapshot itself may be gone."""
    log = document()["snapshot-log"]
    more: Doc = {"snapshot-log": [*log, {"snapshot-id": 13, "timestamp-ms": NOW + 3}, log[1]]}
    more["snapshot-log"][3] = {"snapshot-id": 12, "timestamp-ms": NOW + 4}
    if gone:
        more["snapshots"] = document()["snapshots"][:2]
        more["refs"] = {"main": document()["refs"]["main"]}
    return table(**more)


def test_a_snapshot_that_main_showed_once_is_not_replaced_under_its_id() -> None:
    before = rolled_back()
    forged = after(before, [remove(13), *to_ref("stage", snapshot(13, 4, 12))])
    assert forged.snapshot_log == before.snapshot_log
    with pytest.raises(NotAllowedError, match="snapshot 13 of main would change"):
        rule.require_main_unchanged(before, forged, "orders")


def test_a_snapshot_that_main_showed_once_and_is_gone_does_not_come_back_as_another() -> None:
    before = rolled_back(gone=True)
    with pytest.raises(NotAllowedError, match="snapshot 13 of main would change"):
        rule.require_main_unchanged(before, after(before, to_ref("stage", snapshot(13, 4, 12))), "orders")


def test_what_the_log_names_is_a_fact_of_main() -> None:
    facts = MainState.of(rolled_back(gone=True)).facts
    assert facts["snapshot 13"] == "gone"
    assert MainState.of(rolled_back()).facts["snapshot 13"].startswith("{")


def tagged() -> TableMetadata:
    """A tag from before the table was protected, to what main never led to."""
    return table(refs=document()["refs"] | {"old": {"snapshot-id": 13, "type": "tag"}})


@pytest.mark.parametrize("role", [Role.PRODUCER, Role.OPERATOR])
def test_what_an_old_tag_shows_is_not_replaced_under_its_id(role: Role) -> None:
    before = tagged()
    forged = [remove(13), *to_ref("stage", snapshot(13, 4, 12)), set_ref("old", 13, "tag")]
    changed = after(before, forged)
    assert changed.refs["old"] == before.refs["old"]
    with pytest.raises(NotAllowedError) as caught:
        rule.require_tagged_unchanged(before, changed)
    assert caught.value.reason == "tagged_snapshot_changed"
    with pytest.raises(NotAllowedError):
        rule.require_refs_allowed(before, changed, grant(role), None)


def test_an_old_tag_is_removed_with_its_snapshot() -> None:
    before = tagged()
    rule.require_refs_allowed(before, after(before, [remove(13)]), grant(Role.OPERATOR), None)


def old_statistics(*snapshot_ids: int) -> Doc:
    return {"statistics": [statistics(each) for each in snapshot_ids]}


AGAIN: dict[str, tuple[TableMetadata, list[Doc]]] = {
    "properties in another order": (
        table(properties={"a": "1", "b": "2"}),
        [
            {"action": "remove-properties", "removals": ["a"]},
            {"action": "set-properties", "updates": {"a": "1"}},
        ],
    ),
    "statistics with other keys first": (
        table(),
        [{"action": "set-statistics", "statistics": dict(reversed(statistics(11).items()))}],
    ),
    "statistics in another order": (
        table(**old_statistics(11, 12)),
        [{"action": "set-statistics", "statistics": statistics(11)}],
    ),
    "the last spec put back": (
        table(**{"default-spec-id": 0}),
        [
            {"action": "remove-partition-specs", "spec-ids": [1]},
            {"action": "add-spec", "spec": dict(reversed(document()["partition-specs"][1].items()))},
        ],
    ),
    "an ancestor of format 1 put back": (
        table(1, refs={"main": document()["refs"]["main"]}, statistics=[], **{"partition-statistics": []}),
        [remove(11), {"action": "add-snapshot", "snapshot": document(1)["snapshots"][0]}],
    ),
    "tags in another order": (
        table(refs=document()["refs"] | {"v2": {"snapshot-id": 12, "type": "tag"}}),
        [
            {"action": "remove-snapshot-ref", "ref-name": "v1"},
            set_ref("v1", 11, "tag", **{"max-ref-age-ms": 7}),
        ],
    ),
}


@pytest.mark.parametrize("what", AGAIN)
def test_what_main_shows_is_not_spelled_in_another_way(what: str) -> None:
    before, updates = AGAIN[what]
    changed = after(before, updates)
    assert MainState.of(changed) == MainState.of(before)
    assert published_view(changed).to_bytes() != published_view(before).to_bytes()
    with pytest.raises(NotAllowedError) as caught:
        rule.require_main_unchanged(before, changed, "orders")
    assert caught.value.reason == "main_gated"


def test_a_new_tag_changes_nothing_else_that_is_shown() -> None:
    before = table(properties={"a": "1", "b": "2"})
    tag = set_ref("v2", 12, "tag")
    rule.require_main_unchanged(before, after(before, [tag]), "orders")
    with pytest.raises(NotAllowedError, match="the bytes of what main shows would change"):
        rule.require_main_unchanged(before, after(before, [tag, *AGAIN["properties in another order"][1]]), "orders")


def crowd(count: int, branches: int) -> TableMetadata:
    """A long main, every snapshot of it, and many branches at its head."""
    snapshots = [snapshot(each, each, each - 1 if each > 1 else None) for each in range(1, count + 1)]
    refs = {name: {"snapshot-id": count, "type": "branch"} for name in ("main", *map(str, range(branches)))}
    more: Any = {"current-snapshot-id": count, "last-sequence-number": count, "last-updated-ms": NOW + count}
    return table(snapshots=snapshots, refs=refs, statistics=[], **more, **{"snapshot-log": []})


@pytest.mark.parametrize("check", ["on branches", "own", "whole"])
def test_many_branches_on_a_long_history_cost_one_walk(check: str) -> None:
    before = crowd(4_000, 1_000)
    changed = after(before, to_ref("mine", snapshot(9_000, 4_001)))
    start = time.process_time()
    match check:
        case "on branches":
            rule.require_snapshots_on_branches(before, changed, "orders")
        case "own":
            rule.require_own_snapshots(before, changed, grant(), "mine", "orders")
        case _:
            rule.require_branches_whole(changed, before, "orders")
    assert time.process_time() - start < 0.15, "4,000,000 steps instead of 4,000"
