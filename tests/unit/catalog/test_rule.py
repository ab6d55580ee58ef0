"""The rule for protected tables: no update of any kind changes what `main` shows, or what belongs to others."""

from __future__ import annotations

from typing import Any

import pytest

from pvdm.catalog import rule
from pvdm.errors import NotAllowedError
from pvdm.lake.format.table.commit_request import UPDATES, apply_updates
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import RefType
from pvdm.model.role import Role
from tests.support.catalog.core import grant, set_ref, to_ref
from tests.support.for_each import for_each
from tests.support.lake.metadata import (
    FILE,
    LOCATION,
    NOW,
    UUID,
    Doc,
    column,
    document_of,
    partition_statistics,
    schema,
    snapshot,
    statistics,
    table,
)

WIDE = schema(2, column(1, "id", required=True), column(2, "day", "date"), column(5, "extra", "string"))
SPEC = {"spec-id": 2, "fields": [{"name": "id", "transform": "identity", "source-id": 1}]}
ORDER_FIELD = {"transform": "identity", "source-id": 1, "direction": "desc", "null-order": "nulls-first"}
KEY = {"key-id": "k2", "encrypted-key-metadata": "AAEC"}

# The table of these tests: `main` is at snapshot 12 with parent 11, the branch `stage` at 13, the tag `v1` at 11.

# Updates that change what `main` shows. The number is the format version of the table.
MAIN_CHANGES: dict[str, tuple[int, list[Doc]]] = {
    "a write": (2, to_ref("main", snapshot(14, 4, 12))),
    "a rollback": (2, [set_ref("main", 11)]),
    "a fast forward": (2, [set_ref("main", 13)]),
    "main removed": (2, [{"action": "remove-snapshot-ref", "ref-name": "main"}]),
    "main removed and set again": (2, [{"action": "remove-snapshot-ref", "ref-name": "main"}, set_ref("main", 13)]),
    "retention of main": (2, [set_ref("main", 12, **{"max-snapshot-age-ms": 1})]),
    "kept snapshots of main": (2, [set_ref("main", 12, **{"min-snapshots-to-keep": 1})]),
    "an unknown word about main": (2, [set_ref("main", 12, **{"x-word": "y"})]),
    "main's snapshot removed": (2, [{"action": "remove-snapshots", "snapshot-ids": [12]}]),
    "main's history removed": (2, [{"action": "remove-snapshots", "snapshot-ids": [11]}]),
    "main's history replaced": (
        2,
        [{"action": "remove-snapshots", "snapshot-ids": [11]}, *to_ref("v1", snapshot(11, 4))],
    ),
    "another schema": (
        2,
        [{"action": "add-schema", "schema": WIDE}, {"action": "set-current-schema", "schema-id": -1}],
    ),
    "the schema of an older snapshot removed": (2, [{"action": "remove-schemas", "schema-ids": [0]}]),
    "another current schema": (
        2,
        [{"action": "set-default-spec", "spec-id": 0}, {"action": "set-current-schema", "schema-id": 0}],
    ),
    "a new spec": (2, [{"action": "add-spec", "spec": SPEC}]),
    "another default spec": (2, [{"action": "set-default-spec", "spec-id": 0}]),
    "a spec removed": (2, [{"action": "remove-partition-specs", "spec-ids": [0]}]),
    "a new sort order": (2, [{"action": "add-sort-order", "sort-order": {"order-id": 4, "fields": [ORDER_FIELD]}}]),
    "another default sort order": (2, [{"action": "set-default-sort-order", "sort-order-id": 0}]),
    "another location": (2, [{"action": "set-location", "location": f"{LOCATION}2"}]),
    "a property": (2, [{"action": "set-properties", "updates": {"write.data.path": "s3://elsewhere"}}]),
    "a property as early clients say it": (2, [{"action": "set-properties", "updated": {"x": "y"}}]),
    "a property removed": (2, [{"action": "remove-properties", "removals": ["owner"]}]),
    "statistics of main": (2, [{"action": "set-statistics", "statistics": statistics(12)}]),
    "statistics of a snapshot to come": (2, [{"action": "set-statistics", "statistics": statistics(99)}]),
    "statistics of main removed": (2, [{"action": "remove-statistics", "snapshot-id": 11}]),
    "partition statistics of main": (
        2,
        [{"action": "set-partition-statistics", "partition-statistics": partition_statistics(12)}],
    ),
    "partition statistics of main removed": (2, [{"action": "remove-partition-statistics", "snapshot-id": 11}]),
    "a key": (3, [{"action": "add-encryption-key", "encryption-key": KEY}]),
    "a key removed": (3, [{"action": "remove-encryption-key", "key-id": "k1"}]),
    "a later format": (2, [{"action": "upgrade-format-version", "format-version": 3}]),
    "a later format for format 1": (1, [{"action": "upgrade-format-version", "format-version": 2}]),
    "another UUID": (2, [{"action": "assign-uuid", "uuid": UUID.replace("9", "8")}]),
}
STRUCTURE_CHANGES: dict[str, list[Doc]] = {
    "a schema that nothing shows": [{"action": "add-schema", "schema": WIDE}],
    "a schema without new columns": [{"action": "add-schema", "schema": schema(2, column(2, "day", "date"))}],
}


def base(version: int = 2) -> TableMetadata:
    return table(version, **{"properties": {"owner": "sales"}, "x-top": [1]})


def apply(before: TableMetadata, updates: list[Doc]) -> TableMetadata:
    return apply_updates(before, updates, now_ms=NOW + 20, previous_location=FILE)


@for_each("what", MAIN_CHANGES)
def test_an_update_that_changes_main_is_refused(what: str) -> None:
    version, updates = MAIN_CHANGES[what]
    before = base(version)
    with pytest.raises(NotAllowedError) as caught:
        rule.require_main_unchanged(before, apply(before, updates), "orders")
    assert caught.value.reason == ("encryption_keys_gated" if what.startswith("a key") else "main_gated")


def test_every_kind_of_update_is_tried_against_a_protected_table() -> None:
    tried = {update["action"] for _, updates in MAIN_CHANGES.values() for update in updates}
    tried |= {update["action"] for updates in STRUCTURE_CHANGES.values() for update in updates}
    assert tried == set(UPDATES)


def test_replacing_a_protected_table_is_refused() -> None:
    before = base()
    replaced = apply(before, [*MAIN_CHANGES["main removed"][1], *MAIN_CHANGES["another schema"][1]])
    with pytest.raises(NotAllowedError, match="current snapshot, ancestry"):
        rule.require_main_unchanged(before, replaced, "orders")


@pytest.mark.parametrize("change", [{"x-top": [2]}, {"x-new": None}], ids=["changed", "new"])
def test_a_changed_unknown_field_is_refused_as_a_change_of_main(change: Doc) -> None:
    before = base()
    with pytest.raises(NotAllowedError, match="field 'x-"):
        rule.require_main_unchanged(before, TableMetadata.from_json(document_of(before) | change), "orders")


def test_the_error_says_what_is_gated_and_what_to_do() -> None:
    before = base()
    with pytest.raises(NotAllowedError) as caught:
        rule.require_main_unchanged(before, apply(before, MAIN_CHANGES["a rollback"][1]), "orders")
    assert str(caught.value) == (
        "orders is protected: current snapshot, ancestry and more of main would change;"
        " write to a branch (spark.wap.branch; needs write.wap.enabled=true), then run `pvdm publish`"
    )
    assert caught.value.hint is None


def test_a_change_that_is_not_a_publication_points_to_migrate() -> None:
    before = base()
    with pytest.raises(NotAllowedError, match=r"property 'p' of main would change; propose it with `pvdm migrate`$"):
        rule.require_main_unchanged(
            before, apply(before, [{"action": "set-properties", "updates": {"p": "x"}}]), "orders"
        )


def test_a_changed_encryption_key_has_its_own_error() -> None:
    before = base(MAIN_CHANGES["a key"][0])
    with pytest.raises(NotAllowedError, match="encryption keys would change; write to its branches without encryption"):
        rule.require_main_unchanged(before, apply(before, MAIN_CHANGES["a key"][1]), "orders")


def test_the_message_about_many_changes_stays_short() -> None:
    before = base()
    many = [{"action": "set-properties", "updates": {f"p{number}" * 100: "x" * 1_000 for number in range(50)}}]
    with pytest.raises(NotAllowedError, match=r"and more of main would change") as caught:
        rule.require_main_unchanged(before, apply(before, many), "orders")
    assert len(caught.value.message) < 200


@for_each(
    "updates",
    [
        to_ref("stage", snapshot(14, 4, 13)),
        to_ref("fresh", snapshot(14, 4)),
        [set_ref("fresh", 12)],
        [set_ref("v2", 12, "tag")],
        [{"action": "remove-snapshot-ref", "ref-name": "stage"}],
        [{"action": "remove-snapshots", "snapshot-ids": [13]}],
        [{"action": "set-statistics", "statistics": statistics(13)}],
        [set_ref("main", 12)],
    ],
    ids=["write", "first write", "branch", "tag", "branch removed", "expiry", "statistics", "main as it is"],
)
@for_each("version", [1, 2, 3])
def test_an_update_that_does_not_change_main_is_accepted(version: int, updates: list[Doc]) -> None:
    before = base(version)
    changed = apply(before, [fit_to_format(version, update) for update in updates])
    rule.require_main_unchanged(before, changed, "orders")
    rule.require_structure_unchanged(before, changed, "orders")


def fit_to_format(version: int, update: Doc) -> Doc:
    """Return the update with the snapshot fields of this format version."""
    if "snapshot" not in update or version == 2:
        return update
    if version == 3:
        return update | {"snapshot": update["snapshot"] | {"first-row-id": 9, "added-rows": 1}}
    return update | {"snapshot": {key: value for key, value in update["snapshot"].items() if key != "sequence-number"}}


@pytest.mark.parametrize("what", STRUCTURE_CHANGES)
def test_a_new_schema_that_no_snapshot_uses_is_refused(what: str) -> None:
    before = base()
    changed = apply(before, STRUCTURE_CHANGES[what])
    rule.require_main_unchanged(before, changed, "orders")
    with pytest.raises(NotAllowedError) as caught:
        rule.require_structure_unchanged(before, changed, "orders")
    assert caught.value.reason == "structure_gated"


def test_replacing_a_schema_under_its_id_is_refused() -> None:
    before = apply(base(), STRUCTURE_CHANGES["a schema without new columns"])
    other = schema(2, column(2, "day", "date"), column(3, "place", "string"))
    changed = apply(
        before, [{"action": "remove-schemas", "schema-ids": [2]}, {"action": "add-schema", "schema": other}]
    )
    assert [each.schema_id for each in changed.schemas] == [each.schema_id for each in before.schemas]
    with pytest.raises(NotAllowedError) as caught:
        rule.require_structure_unchanged(before, changed, "orders")
    assert caught.value.reason == "structure_gated"


@pytest.mark.parametrize("key", ["last-column-id", "last-partition-id"])
def test_a_changed_counter_of_column_or_partition_ids_is_refused(key: str) -> None:
    before = base()
    changed = TableMetadata.from_json(document_of(before) | {key: 2**31 - 1})
    with pytest.raises(NotAllowedError) as caught:
        rule.require_structure_unchanged(before, changed, "orders")
    assert caught.value.reason == "structure_gated"


def check_refs(updates: list[Doc], role: Role, own_branch: str | None = None) -> None:
    before = base()
    rule.require_refs_allowed(before, apply(before, updates), grant(role), own_branch)


TAG = [set_ref("v2", 12, "tag")]


@pytest.mark.parametrize("role", [Role.PUBLISHER, Role.OPERATOR])
@pytest.mark.parametrize(
    "updates",
    [TAG, [set_ref("v1", 12, "tag")], [{"action": "remove-snapshot-ref", "ref-name": "v1"}]],
    ids=["set", "moved", "removed"],
)
def test_a_publishing_role_may_change_tags_in_mains_ancestry(role: Role, updates: list[Doc]) -> None:
    check_refs(updates, role)


@for_each("role", [Role.PRODUCER, Role.CONSUMER, Role.AUDITOR, Role.ATTESTOR, Role.STEWARD])
@for_each(
    "updates",
    [
        TAG,
        [set_ref("v1", 12, "tag")],
        [{"action": "remove-snapshot-ref", "ref-name": "v1"}],
        [set_ref("v1", 11, "tag", **{"x-word": "y", "max-ref-age-ms": 7})],
        [set_ref("v1", 11, "tag", **{"max-ref-age-ms": 1})],
        [set_ref("v1", 11)],
        [set_ref("stage", 12, "tag")],
    ],
    ids=["set", "moved", "removed", "unknown word", "retention", "made a branch", "made of a branch"],
)
def test_a_change_of_a_tag_by_another_role_is_refused(role: Role, updates: list[Doc]) -> None:
    with pytest.raises(NotAllowedError) as caught:
        check_refs(updates, role)
    assert caught.value.reason == "tag_not_allowed"


@pytest.mark.parametrize(
    "updates",
    [
        [set_ref("v2", 13, "tag")],
        [set_ref("v1", 13, "tag")],
        [set_ref("v1", 11)],
        to_ref("v2", snapshot(14, 4, 12), type="tag"),
    ],
    ids=["new", "moved", "made a branch", "of a new snapshot"],
)
@pytest.mark.parametrize("role", [Role.PUBLISHER, Role.OPERATOR])
def test_a_tag_outside_mains_ancestry_is_refused_for_every_role(role: Role, updates: list[Doc]) -> None:
    with pytest.raises(NotAllowedError) as caught:
        check_refs(updates, role)
    assert caught.value.reason == "tag_outside_main"


BRANCHES: dict[str, list[Doc]] = {
    "made": [set_ref("fresh", 12)],
    "moved": [set_ref("stage", 12)],
    "removed": [{"action": "remove-snapshot-ref", "ref-name": "stage"}],
    "kept shorter": [set_ref("stage", 13, **{"max-ref-age-ms": 1})],
    "removed with its snapshot": [{"action": "remove-snapshots", "snapshot-ids": [13]}],
}


@for_each("role", [Role.PRODUCER, Role.OPERATOR, Role.STEWARD])
@for_each("what", BRANCHES)
def test_a_staging_role_may_change_branches(role: Role, what: str) -> None:
    check_refs(BRANCHES[what], role)


@for_each("role", [Role.PUBLISHER, Role.CONSUMER, Role.AUDITOR, Role.ATTESTOR])
@for_each("what", BRANCHES)
def test_a_change_of_a_branch_by_another_role_is_refused(role: Role, what: str) -> None:
    with pytest.raises(NotAllowedError) as caught:
        check_refs(BRANCHES[what], role)
    assert caught.value.reason == "branch_not_allowed"


def test_a_publisher_cannot_turn_a_branch_into_a_tag() -> None:
    before = apply(base(), [set_ref("fresh", 12)])
    changed = apply(before, [set_ref("fresh", 12, "tag")])
    with pytest.raises(NotAllowedError) as caught:
        rule.require_refs_allowed(before, changed, grant(Role.PUBLISHER), None)
    assert caught.value.reason == "branch_not_allowed"


@for_each("what", BRANCHES)
def test_a_token_for_one_attempt_may_not_change_another_branch(what: str) -> None:
    with pytest.raises(NotAllowedError) as caught:
        check_refs(BRANCHES[what], Role.PRODUCER, "pvdm-mine")
    assert caught.value.reason == "branch_of_other_attempt"


def test_a_token_for_one_attempt_may_write_to_its_own_branch() -> None:
    check_refs(to_ref("pvdm-mine", snapshot(14, 4, 12)), Role.PRODUCER, "pvdm-mine")


UNREACHED: dict[str, list[Doc]] = {
    "without a ref": [{"action": "add-snapshot", "snapshot": snapshot(14, 4, 12)}],
    "whose branch is removed again": [
        *to_ref("fresh", snapshot(14, 4, 12)),
        {"action": "remove-snapshot-ref", "ref-name": "fresh"},
    ],
    "put back under an old id": [
        {"action": "remove-snapshots", "snapshot-ids": [13]},
        {"action": "add-snapshot", "snapshot": snapshot(13, 4, 12)},
    ],
}


@pytest.mark.parametrize("what", UNREACHED)
def test_a_new_snapshot_that_is_on_no_branch_is_refused(what: str) -> None:
    before = base()
    with pytest.raises(NotAllowedError) as caught:
        rule.require_snapshots_on_branches(before, apply(before, UNREACHED[what]), "orders")
    assert caught.value.reason == "snapshot_without_branch"


def test_a_snapshot_that_lost_its_branch_earlier_blocks_no_commit() -> None:
    before = apply(base(), BRANCHES["removed"])
    rule.require_snapshots_on_branches(before, apply(before, to_ref("fresh", snapshot(14, 4, 12))), "orders")


def check_own_snapshots(
    updates: list[Doc], role: Role, own_branch: str | None, before: TableMetadata | None = None
) -> None:
    start = before or apply(base(), to_ref("pvdm-mine", snapshot(14, 4, 12)))
    rule.require_own_snapshots(start, apply(start, updates), grant(role), own_branch, "orders")


CHANGES_OF_OTHERS: dict[str, list[Doc]] = {
    "another's snapshot removed": [{"action": "remove-snapshots", "snapshot-ids": [13]}],
    "another's snapshot replaced": [
        {"action": "remove-snapshots", "snapshot-ids": [13]},
        {"action": "add-snapshot", "snapshot": snapshot(13, 5, 12)},
    ],
    "another's statistics": [{"action": "set-statistics", "statistics": statistics(13)}],
    "main's statistics": [{"action": "set-partition-statistics", "partition-statistics": partition_statistics(12)}],
    "a snapshot on another's branch": to_ref("stage", snapshot(15, 5, 13)),
}


@pytest.mark.parametrize("what", CHANGES_OF_OTHERS)
@pytest.mark.parametrize(("role", "branch"), [(Role.PRODUCER, "pvdm-mine"), (Role.PUBLISHER, None)])
def test_a_change_of_a_snapshot_that_is_not_ones_own_is_refused(what: str, role: Role, branch: str | None) -> None:
    with pytest.raises(NotAllowedError) as caught:
        check_own_snapshots(CHANGES_OF_OTHERS[what], role, branch)
    assert caught.value.reason == "snapshot_not_own"


def test_removing_a_snapshot_in_the_middle_of_a_branch_is_refused() -> None:
    before = apply(base(), to_ref("stage", snapshot(14, 4, 13)))
    middle = [{"action": "remove-snapshots", "snapshot-ids": [13]}]
    rule.require_refs_allowed(before, apply(before, middle), grant(), "pvdm-mine")
    with pytest.raises(NotAllowedError) as caught:
        check_own_snapshots(middle, Role.PRODUCER, "pvdm-mine", before)
    assert caught.value.reason == "snapshot_not_own"


@pytest.mark.parametrize(
    "updates",
    [
        to_ref("pvdm-mine", snapshot(15, 5, 14)),
        [{"action": "remove-snapshots", "snapshot-ids": [14]}],
        [{"action": "set-statistics", "statistics": statistics(14)}],
    ],
    ids=["write", "remove", "statistics"],
)
def test_an_attempt_may_change_the_snapshots_of_its_own_branch(updates: list[Doc]) -> None:
    check_own_snapshots(updates, Role.PRODUCER, "pvdm-mine")


@for_each("role", [Role.PRODUCER, Role.OPERATOR, Role.STEWARD])
@for_each("what", CHANGES_OF_OTHERS)
def test_a_staging_role_without_an_attempt_may_change_every_snapshot(role: Role, what: str) -> None:
    check_own_snapshots(CHANGES_OF_OTHERS[what], role, None)


def test_a_publishers_tag_touches_no_snapshot() -> None:
    check_own_snapshots(TAG, Role.PUBLISHER, None)


def test_a_document_that_is_parsed_again_has_no_new_snapshot() -> None:
    before = base()
    assert rule.added_snapshots(before, TableMetadata.parse(before.to_bytes())) == []


def test_ref_changes_lists_every_changed_ref_with_its_type() -> None:
    before = base()
    changed: Any = apply(before, [*TAG, {"action": "remove-snapshot-ref", "ref-name": "stage"}])
    kinds = {
        change.name: [kind for kind in RefType if change.has_type(kind)] for change in rule.ref_changes(before, changed)
    }
    assert kinds == {"stage": [RefType.BRANCH], "v2": [RefType.TAG]}
