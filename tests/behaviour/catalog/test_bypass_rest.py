"""Attempts to change what main of a protected table shows, by every update of the protocol and every role."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pyiceberg.table.update import TableUpdate

from pvdm.lake.format.table.commit_request import UPDATES
from tests.support.catalog.bypass import (
    FIRST,
    HEAD,
    HIDDEN,
    HIDDEN_HEAD,
    Attack,
    Scene,
    commit,
    require_same,
    run,
    scene_at,
)
from tests.support.catalog.http import set_ref
from tests.support.for_each import for_each
from tests.support.lake.metadata import partition_statistics, statistics

WIDE = {
    "type": "struct",
    "schema-id": 3,
    "fields": [{"id": each, "name": f"c{each}", "required": False, "type": "string"} for each in (2, 4)],
}
SPEC = {"fields": [{"name": "town", "transform": "identity", "source-id": 3}]}
ORDER = {
    "order-id": 2,
    "fields": [{"transform": "identity", "source-id": 2, "direction": "desc", "null-order": "nulls-last"}],
}
OTHER_UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene_at(tmp_path_factory.mktemp("bypass")) as made:
        before = made.main()
        yield made
        require_same(before, made.main())


def new_snapshot_on_main(scene: Scene) -> list[Any]:
    return [scene.next(21), set_ref("main", 21)]


def with_retention(**more: int) -> dict[str, Any]:
    return set_ref("main", HEAD) | {name.replace("_", "-"): value for name, value in more.items()}


# Updates by a name that begins with their kind; a callable is called with the scene when they are sent.
MAIN: dict[str, list[Any]] = {
    "add-snapshot": [new_snapshot_on_main],
    "add-snapshot, a parentless one": [lambda scene: scene.next(21, parent=None), set_ref("main", 21)],
    "add-snapshot, and main through a branch": [
        lambda scene: scene.next(21), set_ref("b", 21), set_ref("main", 21),
        {"action": "remove-snapshot-ref", "ref-name": "b"},
    ],
    "add-snapshot, under main's own id": [
        {"action": "remove-snapshots", "snapshot-ids": [FIRST]},
        lambda scene: scene.next(FIRST, parent=None), set_ref("b", FIRST),
    ],
    "set-snapshot-ref, fast forward": [set_ref("main", HIDDEN_HEAD)],
    "set-snapshot-ref, rollback": [set_ref("main", FIRST)],
    "set-snapshot-ref, there and back": [set_ref("main", FIRST), set_ref("main", HEAD)],
    "set-snapshot-ref, max-ref-age": [with_retention(max_ref_age_ms=1)],
    "set-snapshot-ref, max-snapshot-age": [with_retention(max_snapshot_age_ms=1)],
    "set-snapshot-ref, min-snapshots": [with_retention(min_snapshots_to_keep=1)],
    "set-snapshot-ref, an unknown field": [with_retention(hidden_flag=1)],
    "remove-snapshot-ref": [{"action": "remove-snapshot-ref", "ref-name": "main"}],
    "remove-snapshot-ref, and main again": [
        {"action": "remove-snapshot-ref", "ref-name": "main"}, set_ref("main", HEAD),
    ],
    "remove-snapshots, the head": [{"action": "remove-snapshots", "snapshot-ids": [HEAD]}],
    "remove-snapshots, an ancestor": [{"action": "remove-snapshots", "snapshot-ids": [FIRST]}],
    "remove-snapshots, one hidden and an ancestor": [
        {"action": "remove-snapshots", "snapshot-ids": [HIDDEN_HEAD, FIRST]},
    ],
    "add-schema": [{"action": "add-schema", "schema": WIDE}],
    "set-current-schema, an old one": [{"action": "set-current-schema", "schema-id": 0}],
    "set-current-schema, a new one": [
        {"action": "add-schema", "schema": WIDE}, {"action": "set-current-schema", "schema-id": -1},
    ],
    "remove-schemas, of an ancestor": [{"action": "remove-schemas", "schema-ids": [0]}],
    "remove-schemas, an unused one": [{"action": "remove-schemas", "schema-ids": [2]}],
    "add-spec": [{"action": "add-spec", "spec": SPEC}],
    "set-default-spec, a known one": [{"action": "set-default-spec", "spec-id": 1}],
    "set-default-spec, a new one": [
        {"action": "add-spec", "spec": SPEC}, {"action": "set-default-spec", "spec-id": -1},
    ],
    "remove-partition-specs": [{"action": "remove-partition-specs", "spec-ids": [1]}],
    "add-sort-order": [{"action": "add-sort-order", "sort-order": ORDER}],
    "set-default-sort-order": [{"action": "set-default-sort-order", "sort-order-id": 1}],
    "set-location": [lambda scene: {"action": "set-location", "location": scene.location + "-2"}],
    "set-location, inside itself": [lambda scene: {"action": "set-location", "location": scene.location + "/in"}],
    "set-location, spelled otherwise": [
        lambda scene: {"action": "set-location", "location": scene.location.removeprefix("file://")},
    ],
    "set-properties": [{"action": "set-properties", "updates": {"write.data.path": "file:///tmp/x"}}],
    "set-properties, a default name mapping": [
        {"action": "set-properties", "updates": {"schema.name-mapping.default": "[]"}},
    ],
    "set-properties, expiry": [
        {"action": "set-properties", "updates": {"history.expire.max-snapshot-age-ms": "1"}},
    ],
    "set-properties, expiry's least": [
        {"action": "set-properties", "updates": {"history.expire.min-snapshots-to-keep": "1"}},
    ],
    "set-properties, a wap id": [{"action": "set-properties", "updates": {"write.wap.enabled": "true"}}],
    "set-properties, ours": [{"action": "set-properties", "updates": {"pvdm.protected": "false"}}],
    "remove-properties": [{"action": "remove-properties", "removals": ["owner"]}],
    "set-statistics, of an ancestor": [
        {"action": "set-statistics", "statistics": statistics(FIRST) | {"file-size-in-bytes": 7}},
    ],
    "set-statistics, of the head": [{"action": "set-statistics", "statistics": statistics(HEAD)}],
    "set-statistics, of a snapshot to come": [{"action": "set-statistics", "statistics": statistics(4242)}],
    "remove-statistics": [{"action": "remove-statistics", "snapshot-id": FIRST}],
    "set-partition-statistics": [
        {"action": "set-partition-statistics", "partition-statistics": partition_statistics(HEAD)},
    ],
    "remove-partition-statistics": [{"action": "remove-partition-statistics", "snapshot-id": FIRST}],
    "add-encryption-key": [
        {"action": "add-encryption-key", "encryption-key": {"key-id": "k1", "encrypted-key-metadata": "AAEC"}},
    ],
    "remove-encryption-key": [{"action": "remove-encryption-key", "key-id": "k0"}],
    "upgrade-format-version": [{"action": "upgrade-format-version", "format-version": 3}],
    "assign-uuid": [{"action": "assign-uuid", "uuid": OTHER_UUID}],
    "replace, as CREATE OR REPLACE sends it": [
        {"action": "remove-snapshot-ref", "ref-name": "main"},
        {"action": "add-schema", "schema": WIDE}, {"action": "set-current-schema", "schema-id": -1},
        lambda scene: scene.next(21, parent=None, **{"schema-id": 3}), set_ref("main", 21),
    ],
    "expiry, with a branch for company": [
        {"action": "remove-snapshot-ref", "ref-name": "secretwork"},
        {"action": "remove-snapshots", "snapshot-ids": [FIRST, HIDDEN, HIDDEN_HEAD]},
    ],
    "a long list that ends on main": [*[set_ref(f"b{each}", HEAD) for each in range(50)], set_ref("main", HIDDEN)],
}  # fmt: skip
# All other updates are refused as `main_gated`.
OTHER_CODES = {
    "add-schema": "structure_gated",
    "remove-schemas, an unused one": "structure_gated",
    "add-encryption-key": "encryption_keys_gated",
    "remove-encryption-key": "encryption_keys_gated",
    "assign-uuid": "table_uuid_changed",
}


def test_every_update_that_clients_know_is_tried() -> None:
    of_pyiceberg = {get_args(each.model_fields["action"].annotation)[0] for each in get_args(get_args(TableUpdate)[0])}
    tried = {name.split(",")[0] for name in MAIN}
    assert tried >= set(UPDATES)
    assert tried >= of_pyiceberg


OF_STAGED_SNAPSHOTS = {
    "set-snapshot-ref, fast forward",
    "a long list that ends on main",
}
"""Attacks that name staged snapshots, which do not exist for a publisher."""


@for_each("by", ["producer", "operator", "publisher", "steward", "attempt one"])
@for_each("what", MAIN)
def test_no_update_changes_what_main_shows(scene: Scene, what: str, by: str) -> None:
    status, code = 403, OTHER_CODES.get(what, "main_gated")
    if by == "publisher" and what in OF_STAGED_SNAPSHOTS:
        status, code = 400, "ref_snapshot_unknown"
    if by == "publisher" and what == "remove-schemas, an unused one":
        status, code = 200, ""  # the schema does not exist for a publisher, so removing it is no change
    run(scene, Attack(what, by, commit(*MAIN[what]), status, code))
