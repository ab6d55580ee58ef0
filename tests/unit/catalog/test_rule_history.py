"""The rule for protected tables: no update replaces old snapshots under their ids, or writes `main` in other bytes."""

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
from tests.support.for_each import for_each
from tests.support.lake.metadata import FILE, NOW, Doc, document, snapshot, statistics, table


def apply(before: TableMetadata, updates: list[Doc]) -> TableMetadata:
    return apply_updates(before, updates, now_ms=NOW + 20, previous_location=FILE)


def remove_snapshots(*snapshot_ids: int) -> Doc:
    return {"action": "remove-snapshots", "snapshot-ids": list(snapshot_ids)}


def table_rolled_back(*, gone: bool = False) -> TableMetadata:
    """A table whose `main` went to 13 and back to 12, as its snapshot log says. If `gone`, snapshot 13 was removed."""
    rollback = [{"snapshot-id": 13, "timestamp-ms": NOW + 3}, {"snapshot-id": 12, "timestamp-ms": NOW + 4}]
    more: Doc = {"snapshot-log": [*document()["snapshot-log"], *rollback]}
    if gone:
        more["snapshots"] = document()["snapshots"][:2]
        more["refs"] = {"main": document()["refs"]["main"]}
    return table(**more)


def test_replacing_a_snapshot_that_main_once_showed_is_refused() -> None:
    before = table_rolled_back()
    forged = apply(before, [remove_snapshots(13), *to_ref("stage", snapshot(13, 4, 12))])
    assert forged.snapshot_log == before.snapshot_log
    with pytest.raises(NotAllowedError, match="snapshot 13 of main would change"):
        rule.require_main_unchanged(before, forged, "orders")


def test_adding_another_snapshot_under_an_id_that_main_once_showed_is_refused() -> None:
    before = table_rolled_back(gone=True)
    with pytest.raises(NotAllowedError, match="snapshot 13 of main would change"):
        rule.require_main_unchanged(before, apply(before, to_ref("stage", snapshot(13, 4, 12))), "orders")


def test_the_state_of_main_has_the_snapshots_of_its_log() -> None:
    facts = MainState.of(table_rolled_back(gone=True)).facts
    assert facts["snapshot 13"] == "gone"
    assert MainState.of(table_rolled_back()).facts["snapshot 13"].startswith("{")


def table_with_old_tag() -> TableMetadata:
    """A table with a tag, from before its protection, to a snapshot that is not in the history of `main`."""
    return table(refs=document()["refs"] | {"old": {"snapshot-id": 13, "type": "tag"}})


@pytest.mark.parametrize("role", [Role.PRODUCER, Role.OPERATOR])
def test_replacing_the_snapshot_of_an_old_tag_is_refused(role: Role) -> None:
    before = table_with_old_tag()
    forged = [remove_snapshots(13), *to_ref("stage", snapshot(13, 4, 12)), set_ref("old", 13, "tag")]
    changed = apply(before, forged)
    assert changed.refs["old"] == before.refs["old"]
    with pytest.raises(NotAllowedError) as caught:
        rule.require_tagged_unchanged(before, changed)
    assert caught.value.reason == "tagged_snapshot_changed"
    with pytest.raises(NotAllowedError):
        rule.require_refs_allowed(before, changed, grant(role), None)


def test_an_operator_may_remove_an_old_tag_with_its_snapshot() -> None:
    before = table_with_old_tag()
    rule.require_refs_allowed(before, apply(before, [remove_snapshots(13)]), grant(Role.OPERATOR), None)


def old_statistics(*snapshot_ids: int) -> Doc:
    return {"statistics": [statistics(each) for each in snapshot_ids]}


# Tables, and updates after which `main` has the same content in other bytes.
SAME_CONTENT: dict[str, tuple[TableMetadata, list[Doc]]] = {
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
        [remove_snapshots(11), {"action": "add-snapshot", "snapshot": document(1)["snapshots"][0]}],
    ),
    "tags in another order": (
        table(refs=document()["refs"] | {"v2": {"snapshot-id": 12, "type": "tag"}}),
        [
            {"action": "remove-snapshot-ref", "ref-name": "v1"},
            set_ref("v1", 11, "tag", **{"max-ref-age-ms": 7}),
        ],
    ),
}


@for_each("what", SAME_CONTENT)
def test_writing_what_main_shows_in_other_bytes_is_refused(what: str) -> None:
    before, updates = SAME_CONTENT[what]
    changed = apply(before, updates)
    assert MainState.of(changed) == MainState.of(before)
    assert published_view(changed).to_bytes() != published_view(before).to_bytes()
    with pytest.raises(NotAllowedError) as caught:
        rule.require_main_unchanged(before, changed, "orders")
    assert caught.value.reason == "main_gated"


def test_a_new_tag_is_accepted_only_if_the_other_bytes_stay() -> None:
    before = table(properties={"a": "1", "b": "2"})
    tag = set_ref("v2", 12, "tag")
    rule.require_main_unchanged(before, apply(before, [tag]), "orders")
    reordered = SAME_CONTENT["properties in another order"][1]
    with pytest.raises(NotAllowedError, match="the bytes of what main shows would change"):
        rule.require_main_unchanged(before, apply(before, [tag, *reordered]), "orders")


def table_with_many_branches(count: int, branches: int) -> TableMetadata:
    """A table whose `main` has `count` snapshots in its history, with many branches at its head."""
    snapshots = [snapshot(each, each, each - 1 if each > 1 else None) for each in range(1, count + 1)]
    refs = {name: {"snapshot-id": count, "type": "branch"} for name in ("main", *map(str, range(branches)))}
    more: Any = {"current-snapshot-id": count, "last-sequence-number": count, "last-updated-ms": NOW + count}
    return table(snapshots=snapshots, refs=refs, statistics=[], **more, **{"snapshot-log": []})


@pytest.mark.parametrize("check", ["on branches", "own", "whole"])
def test_many_branches_on_a_long_history_cost_one_walk(check: str) -> None:
    before = table_with_many_branches(4_000, 1_000)
    changed = apply(before, to_ref("mine", snapshot(9_000, 4_001)))
    start = time.process_time()
    match check:
        case "on branches":
            rule.require_snapshots_on_branches(before, changed, "orders")
        case "own":
            rule.require_own_snapshots(before, changed, grant(), "mine", "orders")
        case _:
            # The other way round, so that a snapshot is removed: else the check walks no history.
            rule.require_branches_whole(changed, before, "orders")
    assert time.process_time() - start < 0.15, "4,000,000 steps instead of 4,000"
