"""Attempts to use staging as a way around the gate: tags, foreign branches, numbers, places, names, requirements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.catalog.bypass import (
    FIRST,
    HEAD,
    HIDDEN,
    HIDDEN_HEAD,
    IN_EMPTY,
    Ask,
    Attack,
    Scene,
    T,
    commit,
    require_same,
    resolve_updates,
    rows,
    run,
    scene_at,
)
from tests.support.catalog.http import Caller, set_ref
from tests.support.for_each import for_each
from tests.support.lake.metadata import statistics

FAR = 2**63 - 1
STAGE = set_ref("b", 21)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene_at(tmp_path_factory.mktemp("bypass")) as found:
        before = found.main()
        yield found
        require_same(before, found.main())


def write(parent: int | None = HEAD, **more: Any) -> list[Any]:
    """A write of a new snapshot to a branch, valid except for the given fields."""
    fields = {name.replace("_", "-"): value for name, value in more.items()}
    return [lambda scene: scene.next(21, parent=parent, **fields), STAGE]


def write_at(place: Callable[[Scene], str]) -> list[Any]:
    """A write to a branch whose manifest list is at this place."""
    return [lambda scene: scene.next(21, **{"manifest-list": place(scene)}), STAGE]


def place_behind_a_link(scene: Scene) -> str:
    home = Path(scene.location.removeprefix("file://"))
    link = home / "linked"
    if not link.is_symlink():
        link.symlink_to(Path(scene.row("open").location.removeprefix("file://")))
    return f"{scene.location}/linked/snap.avro"


def send_text(body: Callable[[Scene], str]) -> Ask:
    """A commit whose body is text, as no client library would write it."""

    def ask(scene: Scene, caller: Caller) -> httpx.Response:
        return caller.ask("POST", T, content=body(scene), headers={"content-type": "application/json"})

    return ask


def move_main_if(*requirements: Any) -> Ask:
    return commit(set_ref("main", HIDDEN), requirements=list(requirements))


def assert_ref(snapshot_id: int | None, ref: str = "main") -> dict[str, Any]:
    return {"type": "assert-ref-snapshot-id", "ref": ref, "snapshot-id": snapshot_id}


TAGS = [
    Attack("a tag on what is staged", "publisher", commit(set_ref("v2", HIDDEN, "tag")), 400, "ref_snapshot_unknown"),
    Attack("a tag on what is staged", "operator", commit(set_ref("v2", HIDDEN, "tag")), 403, "tag_outside_main"),
    Attack("a tag", "producer", commit(set_ref("v2", HEAD, "tag")), 403, "tag_not_allowed"),
    Attack("a tag", "steward", commit(set_ref("v2", HEAD, "tag")), 403, "tag_not_allowed"),
    Attack("a tag", "attempt one", commit(set_ref("v2", HEAD, "tag")), 403, "tag_not_allowed"),
    Attack("the published tag moved", "producer", commit(set_ref("v1", HEAD, "tag")), 403, "tag_not_allowed"),
    Attack("the published tag moved to staging", "publisher", commit(set_ref("v1", HIDDEN, "tag")), 400,
           "ref_snapshot_unknown"),
    Attack("the published tag taken away", "producer",
           commit({"action": "remove-snapshot-ref", "ref-name": "v1"}), 403, "tag_not_allowed"),
    Attack("the published tag made a branch", "operator", commit(set_ref("v1", HEAD)), 403, "tag_outside_main"),
    Attack("the published tag made a branch", "producer", commit(set_ref("v1", HIDDEN)), 403, "tag_not_allowed"),
    Attack("main as a tag", "operator", commit(set_ref("main", HEAD, "tag")), 400, "main_not_a_branch"),
    Attack("main as a tag on what is staged", "operator", commit(set_ref("main", HIDDEN, "tag")), 400,
           "main_not_a_branch"),
    Attack("main through a tag and back", "producer",
           commit(set_ref("v2", HIDDEN, "tag"), set_ref("main", HIDDEN)), 403, "main_gated"),
    Attack("a staging branch made a tag", "operator", commit(set_ref("secretwork", HIDDEN_HEAD, "tag")), 403,
           "tag_outside_main"),
    Attack("a staging branch made a published tag", "publisher", commit(set_ref("secretwork", HEAD, "tag")), 403,
           "tag_unavailable"),
]  # fmt: skip
BRANCHES = [
    Attack("a branch", "publisher", commit(set_ref("b", HEAD)), 403, "branch_not_allowed"),
    Attack("a write to a branch", "publisher", commit(*write()), 403, "branch_not_allowed"),
    Attack("a staging branch taken away", "publisher",
           commit({"action": "remove-snapshot-ref", "ref-name": "secretwork"}), 200),
    Attack("staged snapshots taken away", "publisher",
           commit({"action": "remove-snapshots", "snapshot-ids": [HIDDEN]}), 200),
    Attack("statistics of what is staged", "publisher",
           commit({"action": "set-statistics", "statistics": statistics(HIDDEN)}), 403, "main_gated"),
    Attack("another's branch", "attempt one", commit(set_ref("secretwork", HEAD)), 403, "branch_of_other_attempt"),
    Attack("another attempt's branch", "attempt one", commit(set_ref("pvdm-two", HEAD)), 403,
           "branch_of_other_attempt"),
    Attack("a branch of its own choice", "attempt one", commit(set_ref("mine", HEAD)), 403,
           "branch_of_other_attempt"),
    Attack("another's snapshots taken away", "attempt one",
           commit({"action": "remove-snapshots", "snapshot-ids": [HIDDEN]}), 403, "snapshot_not_own"),
    Attack("another's branch expired", "attempt one",
           commit({"action": "remove-snapshots", "snapshot-ids": [HIDDEN_HEAD]}), 403, "branch_of_other_attempt"),
    Attack("another's snapshot through its own branch", "attempt one",
           commit(set_ref("pvdm-one", HIDDEN_HEAD),
                  {"action": "set-statistics", "statistics": statistics(HIDDEN) | {"file-size-in-bytes": 7}}),
           403, "snapshot_not_own"),
    Attack("its branch at another table", "attempt elsewhere", commit(set_ref("pvdm-three", HEAD)), 403,
           "attempt_of_other_table"),
    Attack("another table's attempt on a known branch", "attempt elsewhere", commit(set_ref("secretwork", HEAD)),
           403, "attempt_of_other_table"),
    Attack("an unprotected table", "attempt one", commit(set_ref("pvdm-one", FIRST), table="open"), 403,
           "role_wrong"),
    Attack("an unprotected table", "publisher", commit(set_ref("v1", FIRST, "tag"), table="open"), 403, "role_wrong"),
    Attack("an unprotected table", "steward", commit(set_ref("b", FIRST), table="open"), 403, "role_wrong"),
    Attack("a snapshot on no branch, as wap.id", "producer", commit(write()[0]), 403, "snapshot_without_branch"),
    Attack("a snapshot on no branch, beside another", "producer",
           commit(write()[0], lambda scene: second_snapshot(scene, 22), set_ref("b", 22)), 403,
           "snapshot_without_branch"),
    Attack("a write", "consumer", commit(*write()), 403, "role_wrong"),
    Attack("a write", "auditor", commit(*write()), 403, "role_wrong"),
    Attack("an empty commit", "consumer", commit(), 403, "role_wrong"),
]  # fmt: skip
NAMES = [
    Attack(f"a branch named {name!a}", "producer", commit(set_ref(name, HEAD)), 403, "ref_name_misleading")
    for name in ("main ", " main", "MAIN", "Main", "main\u0000", "main\u200b", "ｍａｉｎ", "ma\u00adin", "main\n",
                 "ref\u202eniam", "x" * 256, str(HEAD), str(HIDDEN))
] + [
    Attack(f"a tag named {name!a}", "publisher", commit(set_ref(name, HEAD, "tag")), 403, "ref_name_misleading")
    for name in ("MAIN", "main.", str(FIRST))
] + [
    Attack("a branch without a name", "producer", commit(set_ref("", HEAD)), 400, "lake_value_invalid"),
]  # fmt: skip


def second_snapshot(scene: Scene, snapshot_id: int) -> Any:
    """A second new snapshot for one commit, with the next sequence number."""
    update = scene.next(snapshot_id)
    update["snapshot"]["sequence-number"] += 1
    return update


def two_snapshots_of_one_number(scene: Scene) -> list[Any]:
    """Two new snapshots with one sequence number, which would be right for the second."""
    first, second = scene.next(21), scene.next(22, parent=None)
    for update in (first, second):
        update["snapshot"]["sequence-number"] += 1
    return [first, second, set_ref("b", 21), set_ref("c", 22)]


def replace_snapshot(scene: Scene) -> list[Any]:
    """Removes a staged snapshot and adds another under its id, with files from elsewhere."""
    gone = {"action": "remove-snapshots", "snapshot-ids": [HIDDEN_HEAD]}
    elsewhere = scene.next(HIDDEN_HEAD, parent=HIDDEN, **{"manifest-list": "file:///elsewhere/m.avro"})
    return [gone, elsewhere, set_ref("secretwork", HIDDEN_HEAD)]


def make_own_parent(scene: Scene) -> list[Any]:
    """Removes a staged snapshot and adds it again as its own parent."""
    gone = {"action": "remove-snapshots", "snapshot-ids": [HIDDEN_HEAD]}
    return [gone, scene.next(HIDDEN_HEAD, parent=HIDDEN_HEAD), set_ref("secretwork", HIDDEN_HEAD)]


def new_branches(count: int) -> list[Any]:
    return [set_ref(f"b{each}", HEAD) for each in range(count)]


def add_and_remove(scene: Scene) -> list[Any]:
    return [scene.next(21), {"action": "remove-snapshots", "snapshot-ids": [21]}]


def with_last_number(scene: Scene) -> Any:
    """A first snapshot of a branch with the last number that was used. Iceberg allows it; the catalog does not."""
    return scene.next(21, parent=None, **{"sequence-number": scene.table()["metadata"]["last-sequence-number"]})


INSANE = [
    Attack(name, "producer", commit(*updates), 400, "staging_not_sane")
    for name, updates in {
        "the last sequence number of all": write(sequence_number=FAR),
        "a sequence number skipped": write(sequence_number=9),
        "a time in the far future": write(timestamp_ms=9_999_999_999_999),
        "a time in the far past": write(timestamp_ms=1),
        "the last time of all": write(timestamp_ms=FAR),
        "another schema": write(schema_id=0),
        "a schema that is not there": write(schema_id=77),
        "a parent that is not there": write(parent=4242),
        "itself as parent": write(parent=21),
        "row ids before format 3": write(first_row_id=0, added_rows=5),
        "a summary of a megabyte": write(summary={"operation": "append", "x": "y" * 1_000_000}),
        "a snapshot that uses a number and goes": [add_and_remove],
        "two snapshots of one number": [two_snapshots_of_one_number],
        "a staged snapshot replaced under its id": [replace_snapshot],
        "a staged snapshot replaced by one that is its own parent": [make_own_parent],
        "more branches than one producer's share": new_branches(251),
        "a manifest list outside the warehouse": write_at(lambda _: "file:///etc/passwd"),
        "a manifest list of another table": write_at(lambda scene: f"{scene.row('open').location}/m.avro"),
        "a manifest list of another domain": write_at(
            lambda scene: f"{scene.row('secrettable', ('risk',)).location}/m.avro"
        ),
        "a manifest list beside the table": write_at(lambda scene: f"{scene.location}2/m.avro"),
        "a manifest list behind a link": write_at(place_behind_a_link),
        "a manifest list in the Steward's place": write_at(lambda scene: scene.row().pointer.location),
        "a manifest list of another scheme": write_at(lambda scene: scene.location.replace("file://", "s3://b")),
    }.items()
] + [
    Attack("a manifest list by a way out", "producer", commit(*write_at(lambda scene: f"{scene.location}/../m.avro")),
           400, "location_invalid"),
    Attack("a manifest list by an escaped way out", "producer",
           commit(*write_at(lambda scene: f"{scene.location}/%2e%2e/m.avro")), 400, "location_invalid"),
    Attack("a manifest list under a host's name", "producer",
           commit(*write_at(lambda scene: scene.location.replace("file:///", "file://host/"))), 400,
           "location_invalid"),
    Attack("a manifest list outside the attempt's prefix", "attempt one",
           commit(lambda scene: scene.next(21), set_ref("pvdm-one", 21)), 400, "staging_not_sane"),
    Attack("a manifest list of another attempt", "attempt one",
           commit(lambda scene: scene.next(21, **{"manifest-list": f"{scene.location}/attempts/two/m.avro"}),
                  set_ref("pvdm-one", 21)), 400, "staging_not_sane"),
    Attack("a sequence number given before", "producer", commit(*write(sequence_number=1)), 409,
           "snapshot_sequence_stale"),
    Attack("a negative sequence number", "producer", commit(*write(sequence_number=-1)), 400,
           "lake_value_invalid"),
    Attack("more branches than a table may have", "operator", commit(*new_branches(1_001)), 400, "staging_not_sane"),
    Attack("the last sequence number again", "producer", commit(with_last_number, STAGE), 409,
           "snapshot_sequence_stale"),
    Attack("more rows than a table can have", "producer",
           commit(lambda scene: scene.next(21, parent=IN_EMPTY, name="empty", **rows(3, 2**62)), STAGE, table="empty"),
           400, "staging_not_sane"),
    Attack("row ids skipped", "producer",
           commit(lambda scene: scene.next(21, parent=IN_EMPTY, name="empty", **rows(2**62)), STAGE, table="empty"),
           400, "snapshot_row_ids_skipped"),
    Attack("row ids given before", "producer",
           commit(lambda scene: scene.next(21, parent=IN_EMPTY, name="empty", **rows(0)), STAGE, table="empty"),
           409, "snapshot_row_ids_stale"),
    Attack("a snapshot under main's id", "producer", commit(lambda scene: scene.next(HEAD), set_ref("b", HEAD)), 400,
           "snapshot_exists"),
    Attack("a branch to nowhere", "producer", commit(set_ref("b", 4242)), 400, "ref_snapshot_unknown"),
    Attack("a schema change on a branch", "producer",
           commit({"action": "add-schema", "schema": {"type": "struct", "schema-id": 3, "fields": []}}, *write()),
           403, "structure_gated"),
]  # fmt: skip
REQUIREMENTS = [
    Attack("no requirement", "producer", move_main_if(), 403, "main_gated"),
    Attack("the right requirement", "producer", move_main_if(assert_ref(HEAD)), 403, "main_gated"),
    Attack("a stale requirement", "producer", move_main_if(assert_ref(FIRST)), 409, "requirement_ref_moved"),
    Attack("main required to be missing", "producer", move_main_if(assert_ref(None)), 409, "requirement_ref_exists"),
    Attack("a ref that is not there", "producer", move_main_if(assert_ref(1, "no")), 409, "requirement_ref_missing"),
    Attack("an invented requirement", "producer", move_main_if({"type": "assert-permit", "permit": "x"}), 400,
           "requirement_unknown"),
    Attack("a requirement that is no object", "producer", move_main_if("assert-true"), 400, "lake_value_invalid"),
    Attack("the create requirement", "producer", move_main_if({"type": "assert-create"}), 409,
           "requirement_table_exists"),
    Attack("the create requirement and another", "producer",
           move_main_if({"type": "assert-create"}, assert_ref(HEAD)), 400, "requirements_mixed"),
    Attack("another table's uuid", "producer",
           move_main_if({"type": "assert-table-uuid", "uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1"}), 409,
           "requirement_uuid"),
    Attack("a hidden ref's snapshot guessed", "publisher", move_main_if(assert_ref(1, "secretwork")), 409,
           "requirement_ref_missing"),
]  # fmt: skip
BODIES = [
    Attack("an unknown update", "producer", commit({"action": "publish-branch", "ref-name": "secretwork"}), 400,
           "update_unknown"),
    Attack("an unknown update after a good one", "producer", commit(set_ref("b", HEAD), {"action": "x"}), 400,
           "update_unknown"),
    Attack("a view's update", "producer", commit({"action": "set-current-view-version", "view-version-id": 1}), 400,
           "update_unknown"),
    Attack("an update without an action", "producer", commit({"ref-name": "main"}), 400, "lake_field_missing"),
    Attack("an action in capitals", "producer",
           commit(set_ref("main", HIDDEN) | {"action": "SET-SNAPSHOT-REF"}), 403, "main_gated"),
    Attack("a snapshot id as text", "producer", commit(set_ref("main", HIDDEN) | {"snapshot-id": str(HIDDEN)}), 400,
           "lake_value_invalid"),
    Attack("a snapshot id as a float", "producer",
           send_text(lambda _: '{"updates":[{"action":"set-snapshot-ref","ref-name":"main","type":"branch",'
                         f'"snapshot-id":{HIDDEN}.0}}]}}'), 400, "lake_value_invalid"),
    Attack("a snapshot id with an exponent", "producer",
           send_text(lambda _: '{"updates":[{"action":"set-snapshot-ref","ref-name":"main","type":"branch",'
                         '"snapshot-id":11e0}]}'), 400, "lake_value_invalid"),
    Attack("a snapshot id beyond 64 bits", "producer", commit(set_ref("main", 2**64 + HEAD)), 400,
           "lake_value_invalid"),
    Attack("a ref named twice in one object", "producer",
           send_text(lambda _: '{"updates":[{"action":"set-snapshot-ref","ref-name":"b","ref-name":"main",'
                         f'"type":"branch","snapshot-id":{HIDDEN}}}]}}'), 400, "lake_json_key_duplicate"),
    Attack("updates named twice", "producer", send_text(lambda _: '{"updates":[],"updates":[]}'), 400,
           "lake_json_key_duplicate"),
    Attack("a type in capitals", "producer", commit(set_ref("main", HIDDEN, "BRANCH")), 403, "main_gated"),
    Attack("a type of one's own", "producer", commit(set_ref("b", HIDDEN, "main")), 400, "lake_value_invalid"),
    Attack("NaN for a number", "producer",
           send_text(lambda _: '{"updates":[{"action":"set-snapshot-ref","ref-name":"b","type":"branch",'
                         '"snapshot-id":NaN}]}'), 400, "lake_json_number_invalid"),
    Attack("another table named in the body", "producer",
           send_text(lambda _: '{"identifier":{"namespace":["sales"],"name":"open"},"updates":[]}'), 400,
           "identifier_differs"),
    Attack("a permit in the body", "producer",
           send_text(lambda _: '{"permit":{"table_uuid":"x"},"updates":[{"action":"set-snapshot-ref",'
                             f'"ref-name":"main","type":"branch","snapshot-id":{HIDDEN}}}]}}'), 403, "main_gated"),
]  # fmt: skip
ALL = [*TAGS, *BRANCHES, *NAMES, *INSANE, *REQUIREMENTS, *BODIES]


@for_each("attack", ALL, ids=lambda attack: attack.named)
def test_staging_is_no_way_around_the_gate(scene: Scene, attack: Attack) -> None:
    run(scene, attack)


def test_allowed_staging_does_not_change_main(scene: Scene) -> None:
    before, producer = scene.main(), scene.callers["producer"]
    scene.known = None
    for updates in (
        [lambda scene: scene.next(31), set_ref("b", 31)],
        [lambda scene: scene.next(32, parent=31), set_ref("b", 32)],
        [set_ref("b", 31) | {"max-ref-age-ms": 1, "min-snapshots-to-keep": 1}],
        [{"action": "remove-snapshot-ref", "ref-name": "b"}],
        [{"action": "remove-snapshots", "snapshot-ids": [31, 32]}],
    ):
        response = producer.commit("t", resolve_updates(scene, *updates))
        assert response.status_code == 200, response.text
        require_same(before, scene.main())
