"""The rule: whatever an update is called, what `main` of a protected table shows stays as it is."""

from __future__ import annotations

from collections.abc import Callable
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

# Every update against what main shows; the number is the format version of the table.
MAIN: dict[str, tuple[int, list[Doc]]] = {
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
STRUCTURE: dict[str, list[Doc]] = {
    "a schema that nothing shows": [{"action": "add-schema", "schema": WIDE}],
    "a schema without new columns": [{"action": "add-schema", "schema": schema(2, column(2, "day", "date"))}],
}


def base(version: int = 2) -> TableMetadata:
    return table(version, **{"properties": {"owner": "sales"}, "x-top": [1]})


def after(before: TableMetadata, updates: list[Doc]) -> TableMetadata:
    return apply_updates(before, updates, now_ms=NOW + 20, previous_location=FILE)


@for_each("what", MAIN)
def test_nothing_that_changes_main_passes(what: str) -> None:
    version, updates = MAIN[what]
    before = base(version)
    with pytest.raises(NotAllowedError) as caught:
        rule.require_main_unchanged(before, after(before, updates), "orders")
    assert caught.value.reason == ("encryption_keys_gated" if what.startswith("a key") else "main_gated")


def test_every_kind_of_update_is_tried_against_a_protected_table() -> None:
    tried = {update["action"] for _, updates in MAIN.values() for update in updates}
    tried |= {update["action"] for updates in STRUCTURE.values() for update in updates}
    assert tried == set(UPDATES)


def test_a_replaced_table_does_not_pass() -> None:
    before = base()
    replaced = after(before, [*MAIN["main removed"][1], *MAIN["another schema"][1]])
    with pytest.raises(NotAllowedError, match="current snapshot, ancestry"):
        rule.require_main_unchanged(before, replaced, "orders")


@pytest.mark.parametrize("change", [{"x-top": [2]}, {"x-new": None}], ids=["changed", "new"])
def test_an_unknown_field_counts_as_main(change: Doc) -> None:
    before = base()
    with pytest.raises(NotAllowedError, match="field 'x-"):
        rule.require_main_unchanged(before, TableMetadata.from_json(document_of(before) | change), "orders")


def test_the_error_says_what_is_gated_and_what_to_do() -> None:
    before = base()
    with pytest.raises(NotAllowedError) as caught:
        rule.require_main_unchanged(before, after(before, MAIN["a rollback"][1]), "orders")
    assert str(caught.value) == (
        "orders is protected: current snapshot, ancestry and more of main would change;"
        " write to a branch (spark.wap.branch; needs write.wap.enabled=true), then run `pvdm publish`"
    )
    assert caught.value.hint is None


def test_a_change_that_is_not_a_publication_points_to_migrate() -> None:
    before = base()
    with pytest.raises(NotAllowedError, match=r"property 'p' of main would change; propose it with `pvdm migrate`$"):
        rule.require_main_unchanged(
            before, after(before, [{"action": "set-properties", "updates": {"p": "x"}}]), "orders"
        )


def test_a_changed_encryption_key_has_its_own_error() -> None:
    before = base(MAIN["a key"][0])
    with pytest.raises(NotAllowedError, match="encryption keys would change; write to its branches without encryption"):
        rule.require_main_unchanged(before, after(before, MAIN["a key"][1]), "orders")


def test_a_sentence_about_many_changes_stays_short() -> None:
    before = base()
    many = [{"action": "set-properties", "updates": {f"p{number}" * 100: "x" * 1_000 for number in range(50)}}]
    with pytest.raises(NotAllowedError, match=r"and more of main would change") as caught:
        rule.require_main_unchanged(before, after(before, many), "orders")
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
def test_staging_passes(version: int, updates: list[Doc]) -> None:
    before = base(version)
    changed = after(before, [fit(version, update) for update in updates])
    rule.require_main_unchanged(before, changed, "orders")
    rule.require_structure_unchanged(before, changed, "orders")


def fit(version: int, update: Doc) -> Doc:
    """The update as a table of that format takes it."""
    if "snapshot" not in update or version == 2:
        return update
    if version == 3:
        return update | {"snapshot": update["snapshot"] | {"first-row-id": 9, "added-rows": 1}}
    return update | {"snapshot": {key: value for key, value in update["snapshot"].items() if key != "sequence-number"}}


@pytest.mark.parametrize("what", STRUCTURE)
def test_structure_that_nothing_shows_yet_does_not_pass(what: str) -> None:
    before = base()
    changed = after(before, STRUCTURE[what])
    rule.require_main_unchanged(before, changed, "orders")
    with pytest.raises(NotAllowedError) as caught:
        rule.require_structure_unchanged(before, changed, "orders")
    assert caught.value.reason == "structure_gated"


def test_a_schema_that_is_put_back_otherwise_under_its_id_does_not_pass() -> None:
    before = after(base(), STRUCTURE["a schema without new columns"])
    other = schema(2, column(2, "day", "date"), column(3, "place", "string"))
    changed = after(
        before, [{"action": "remove-schemas", "schema-ids": [2]}, {"action": "add-schema", "schema": other}]
    )
    assert [each.schema_id for each in changed.schemas] == [each.schema_id for each in before.schemas]
    with pytest.raises(NotAllowedError) as caught:
        rule.require_structure_unchanged(before, changed, "orders")
    assert caught.value.reason == "structure_gated"


@pytest.mark.parametrize("key", ["last-column-id", "last-partition-id"])
def test_a_counter_that_runs_ahead_does_not_pass(key: str) -> None:
    before = base()
    changed = TableMetadata.from_json(document_of(before) | {key: 2**31 - 1})
    with pytest.raises(NotAllowedError) as caught:
        rule.require_structure_unchanged(before, changed, "orders")
    assert caught.value.reason == "structure_gated"


def refs(updates: list[Doc], role: Role, own_branch: str | None = None) -> None:
    before = base()
    rule.require_refs_allowed(before, after(before, updates), grant(role), own_branch)


TAG = [set_ref("v2", 12, "tag")]


@pytest.mark.parametrize("role", [Role.PUBLISHER, Role.OPERATOR])
@pytest.mark.parametrize(
    "updates",
    [TAG, [set_ref("v1", 12, "tag")], [{"action": "remove-snapshot-ref", "ref-name": "v1"}]],
    ids=["set", "moved", "removed"],
)
def test_a_tag_into_mains_ancestry_needs_a_publishing_role(role: Role, updates: list[Doc]) -> None:
    refs(updates, role)


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
def test_a_tag_is_not_for_others(role: Role, updates: list[Doc]) -> None:
    with pytest.raises(NotAllowedError) as caught:
        refs(updates, role)
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
        refs(updates, role)
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
def test_a_branch_is_for_those_who_stage(role: Role, what: str) -> None:
    refs(BRANCHES[what], role)


@for_each("role", [Role.PUBLISHER, Role.CONSUMER, Role.AUDITOR, Role.ATTESTOR])
@for_each("what", BRANCHES)
def test_a_branch_is_not_for_others(role: Role, what: str) -> None:
    with pytest.raises(NotAllowedError) as caught:
        refs(BRANCHES[what], role)
    assert caught.value.reason == "branch_not_allowed"


def test_a_publisher_cannot_turn_a_branch_into_a_tag() -> None:
    before = after(base(), [set_ref("fresh", 12)])
    changed = after(before, [set_ref("fresh", 12, "tag")])
    with pytest.raises(NotAllowedError) as caught:
        rule.require_refs_allowed(before, changed, grant(Role.PUBLISHER), None)
    assert caught.value.reason == "branch_not_allowed"


@pytest.mark.parametrize("what", BRANCHES)
def test_a_token_for_one_attempt_moves_no_other_branch(what: str) -> None:
    with pytest.raises(NotAllowedError) as caught:
        refs(BRANCHES[what], Role.PRODUCER, "pvdm-mine")
    assert caught.value.reason == "branch_of_other_attempt"


def test_a_token_for_one_attempt_moves_its_own_branch() -> None:
    refs(to_ref("pvdm-mine", snapshot(14, 4, 12)), Role.PRODUCER, "pvdm-mine")


LOOSE: dict[str, list[Doc]] = {
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


@pytest.mark.parametrize("what", LOOSE)
def test_a_new_snapshot_that_no_branch_holds_does_not_pass(what: str) -> None:
    before = base()
    with pytest.raises(NotAllowedError) as caught:
        rule.require_snapshots_on_branches(before, after(before, LOOSE[what]), "orders")
    assert caught.value.reason == "snapshot_without_branch"


def test_a_snapshot_that_lost_its_branch_earlier_blocks_no_commit() -> None:
    before = after(base(), BRANCHES["removed"])
    rule.require_snapshots_on_branches(before, after(before, to_ref("fresh", snapshot(14, 4, 12))), "orders")


def own(
    updates: list[Doc], role: Role, own_branch: str | None, before: TableMetadata | None = None
) -> Callable[[], None]:
    start = before or after(base(), to_ref("pvdm-mine", snapshot(14, 4, 12)))
    return lambda: rule.require_own_snapshots(start, after(start, updates), grant(role), own_branch, "orders")


TOUCHES: dict[str, list[Doc]] = {
    "another's snapshot removed": [{"action": "remove-snapshots", "snapshot-ids": [13]}],
    "another's snapshot replaced": [
        {"action": "remove-snapshots", "snapshot-ids": [13]},
        {"action": "add-snapshot", "snapshot": snapshot(13, 5, 12)},
    ],
    "another's statistics": [{"action": "set-statistics", "statistics": statistics(13)}],
    "main's statistics": [{"action": "set-partition-statistics", "partition-statistics": partition_statistics(12)}],
    "a snapshot on another's branch": to_ref("stage", snapshot(15, 5, 13)),
}


@pytest.mark.parametrize("what", TOUCHES)
@pytest.mark.parametrize(("role", "branch"), [(Role.PRODUCER, "pvdm-mine"), (Role.PUBLISHER, None)])
def test_a_snapshot_is_touched_by_its_own_attempt_only(what: str, role: Role, branch: str | None) -> None:
    with pytest.raises(NotAllowedError) as caught:
        own(TOUCHES[what], role, branch)()
    assert caught.value.reason == "snapshot_not_own"


def test_a_snapshot_in_the_middle_of_a_branch_is_not_removed() -> None:
    before = after(base(), to_ref("stage", snapshot(14, 4, 13)))
    middle = [{"action": "remove-snapshots", "snapshot-ids": [13]}]
    rule.require_refs_allowed(before, after(before, middle), grant(), "pvdm-mine")
    with pytest.raises(NotAllowedError) as caught:
        own(middle, Role.PRODUCER, "pvdm-mine", before)()
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
def test_an_attempt_does_as_it_likes_on_its_own_branch(updates: list[Doc]) -> None:
    own(updates, Role.PRODUCER, "pvdm-mine")()


@for_each("role", [Role.PRODUCER, Role.OPERATOR, Role.STEWARD])
@for_each("what", TOUCHES)
def test_who_stages_for_the_domain_touches_what_is_staged(role: Role, what: str) -> None:
    own(TOUCHES[what], role, None)()


def test_a_publishers_tag_touches_no_snapshot() -> None:
    own(TAG, Role.PUBLISHER, None)()


def test_equal_numbers_in_another_spelling_of_the_document_are_no_new_snapshot() -> None:
    before = base()
    assert rule.added_snapshots(before, TableMetadata.parse(before.to_bytes())) == []


def test_the_changes_of_refs_are_complete() -> None:
    before = base()
    changed: Any = after(before, [*TAG, {"action": "remove-snapshot-ref", "ref-name": "stage"}])
    kinds = {
        change.name: [kind for kind in RefType if change.has_type(kind)] for change in rule.ref_changes(before, changed)
    }
    assert kinds == {"stage": [RefType.BRANCH], "v2": [RefType.TAG]}
