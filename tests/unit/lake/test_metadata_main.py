"""`MainState`, all that `main` shows as one value: which updates change it, and which facts then differ."""

from __future__ import annotations

import pytest

from pvdm.lake.format.table.commit_request import apply_updates
from pvdm.lake.format.table.main_state import MainState
from tests.support.for_each import for_each
from tests.support.lake.metadata import (
    FILE,
    NOW,
    Doc,
    column,
    document,
    partition_statistics,
    snapshot,
    statistics,
    table,
)


def differences(*updates: Doc, version: int = 2) -> tuple[str, ...]:
    base = table(version)
    after = apply_updates(base, list(updates), now_ms=NOW + 20, previous_location=FILE)
    return sentences(MainState.of(base), MainState.of(after))


def sentences(before: MainState, after: MainState) -> tuple[str, ...]:
    """One sentence for each fact that differs."""
    return tuple(_sentence(name, before.facts.get(name), after.facts.get(name)) for name in before.changed(after))


def _sentence(name: str, before: str | None, after: str | None) -> str:
    if before is None:
        return f"{name} was not there and is now {after}"
    return f"{name} was {before} and is gone" if after is None else f"{name} was {before} and is now {after}"


def add(fields: Doc) -> Doc:
    return {"action": "add-snapshot", "snapshot": fields}


def set_ref(name: str, snapshot_id: int, kind: str = "branch", /, **more: object) -> Doc:
    return {"action": "set-snapshot-ref", "ref-name": name, "snapshot-id": snapshot_id, "type": kind, **more}


NEW_SCHEMA: Doc = {
    "action": "add-schema",
    "schema": {**document()["schemas"][1], "fields": [*document()["schemas"][1]["fields"], column(5, "new")]},
}


@pytest.mark.parametrize(
    "updates",
    [
        [add(snapshot(14, 4, 13)), set_ref("stage", 14)],
        [add(snapshot(14, 4))],
        [set_ref("new", 12)],
        [set_ref("new", 11, "tag")],
        [{"action": "remove-snapshot-ref", "ref-name": "stage"}],
        [{"action": "remove-snapshots", "snapshot-ids": [13]}],
        [NEW_SCHEMA],
        [NEW_SCHEMA, add(snapshot(14, 4, 13, **{"schema-id": 2})), set_ref("stage", 14)],
        [{"action": "set-statistics", "statistics": statistics(13)}],
        [{"action": "set-partition-statistics", "partition-statistics": partition_statistics(13)}],
    ],
)
@pytest.mark.parametrize("version", [2])
def test_an_update_that_main_does_not_show_makes_no_difference(updates: list[Doc], version: int) -> None:
    assert differences(*updates, version=version) == ()


CHANGES: list[tuple[list[Doc], str]] = [
    ([add(snapshot(14, 4, 12)), set_ref("main", 14)], "current snapshot was 12 and is now 14"),
    ([set_ref("main", 11)], "current snapshot was 12 and is now 11"),
    ([set_ref("main", 12, **{"max-snapshot-age-ms": 1})], "retention of main was"),
    ([{"action": "remove-snapshot-ref", "ref-name": "main"}], "current snapshot was 12 and is now None"),
    ([{"action": "remove-snapshots", "snapshot-ids": [11]}], "ancestry was 12, 11 and is now 12"),
    ([NEW_SCHEMA, {"action": "set-current-schema", "schema-id": -1}], "current schema was 1 and is now 2"),
    ([{"action": "remove-schemas", "schema-ids": [0]}], "schema 0 was"),
    ([{"action": "set-default-spec", "spec-id": 0}], "default partition spec was 1 and is now 0"),
    ([{"action": "remove-partition-specs", "spec-ids": [0]}], "partition spec 0 was"),
    ([{"action": "set-default-sort-order", "sort-order-id": 0}], "default sort order was 3 and is now 0"),
    ([{"action": "set-location", "location": "s3://x"}], "location was s3://bucket/test/location and is now s3://x"),
    ([{"action": "upgrade-format-version", "format-version": 3}], "format version was 2 and is now 3"),
    ([{"action": "set-properties", "updates": {"a": "b"}}], "property 'a' was not there and is now b"),
    ([{"action": "remove-properties", "removals": ["owner"]}], "property 'owner' was orders and is gone"),
    ([{"action": "set-statistics", "statistics": statistics(12)}], "statistics of snapshot 12 was not there"),
    ([{"action": "remove-statistics", "snapshot-id": 11}], "statistics of snapshot 11 was"),
    ([{"action": "set-statistics", "statistics": statistics(404)}], "statistics of snapshot 404 was not there"),
    (
        [{"action": "set-partition-statistics", "partition-statistics": partition_statistics(12)}],
        "partition statistics of snapshot 12 was not there",
    ),
    (
        [{"action": "add-encryption-key", "encryption-key": {"key-id": "k9", "encrypted-key-metadata": ""}}],
        "encryption key 'k9' was not there",
    ),
    ([{"action": "assign-uuid", "uuid": "00000000-0000-0000-0000-000000000000"}], "table UUID was"),
]


@for_each(("updates", "sentence"), CHANGES)
def test_a_change_of_what_main_shows_is_a_difference(updates: list[Doc], sentence: str) -> None:
    assert [each for each in differences(*updates) if each.startswith(sentence)]


def test_equal_states_are_equal_and_hash_alike() -> None:
    one, other = MainState.of(table()), MainState.of(table())
    assert (one == other, hash(one) == hash(other), one == MainState.of(table(3))) == (True, True, False)


def test_completing_an_old_document_makes_no_difference() -> None:
    old = document(1)
    for key in ("schemas", "current-schema-id", "partition-specs", "default-spec-id", "last-partition-id", "refs"):
        del old[key]
    del old["schema"]["schema-id"], old["partition-spec"][0]["field-id"]
    base = table(1).from_json(old)
    after = apply_updates(base, [set_ref("new", 12)], now_ms=NOW + 20, previous_location=FILE)
    assert sentences(MainState.of(base), MainState.of(after)) == ()


def test_the_log_of_main_is_part_of_what_it_shows() -> None:
    log = document()["snapshot-log"][1:]
    assert sentences(MainState.of(table()), MainState.of(table(**{"snapshot-log": log})))[0].startswith("snapshot log")


def test_the_content_of_an_ancestor_is_part_of_what_main_shows() -> None:
    snapshots = document()["snapshots"]
    snapshots[0]["manifest-list"] = "s3://elsewhere"
    found = sentences(MainState.of(table()), MainState.of(table(snapshots=snapshots)))
    assert (len(found), found[0].startswith("snapshot 11 was"), "s3://elsewhere" in found[0]) == (1, True, True)


def test_an_unknown_field_of_the_document_is_part_of_what_main_shows() -> None:
    found = sentences(MainState.of(table()), MainState.of(table(**{"row-filter": "1=1"})))
    assert found == ("field 'row-filter' was not there and is now \"1=1\"",)
