"""Commits below HTTP: all or nothing, checked on the state that the swap replaces, and no file left of a lost try."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pvdm.catalog.commit import COMMIT_TABLES_MAX, COMMIT_TRIES_MAX, Change
from pvdm.errors import ConflictError, InputError, NotAllowedError, PvdmError, UnavailableError, VerificationError
from pvdm.lake.format.table.new_table import new_table
from pvdm.ledger import Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.model.role import Role
from tests.support import fault
from tests.support.catalog.core import (
    CONTRACT,
    FIRST,
    NOW_MS,
    OPERATOR,
    PRODUCER,
    RISK,
    SALES,
    Core,
    Doc,
    core_in,
    grant,
    ref_is,
    request,
    set_ref,
    to_ref,
)
from tests.support.lake.metadata import document_of

SET_PROPERTY: list[Doc] = [{"action": "set-properties", "updates": {"word": "mine"}}]


@pytest.fixture
def core(tmp_path: Path, migrated_file: Path) -> Iterator[Core]:
    with core_in(tmp_path, migrated_file) as made:
        yield made


def reason_of(caught: pytest.ExceptionInfo[PvdmError]) -> str:
    return caught.value.reason


def other_steward(core: Core) -> Core:
    """Another Steward on the same ledger. Within one Steward the second commit would wait for its turn at the table."""
    other = core.fresh()
    other.counter += 1_000
    return other


def meanwhile(act: Callable[[], object], *, times: int = 1) -> fault.Call:
    """Calls `act` so many times between the metadata file and the swap of a commit; `act` may commit itself."""
    left = [times]

    def once() -> None:
        if left[0] > 0:
            left[0] -= 1
            act()

    return fault.Call(once)


def test_a_write_to_a_branch_is_committed(core: Core) -> None:
    core.table()
    state = core.staged()
    assert core.fresh().get().metadata.refs["stage"].snapshot_id == state.metadata.refs["stage"].snapshot_id


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_first_write_of_a_table_goes_to_a_branch(core: Core, version: int) -> None:
    core.table(version=version, shown=False)
    state = core.staged()
    assert (state.metadata.current_snapshot_id, list(state.metadata.refs)) == (None, ["stage"])


def test_the_answer_is_the_state_that_was_written(core: Core) -> None:
    core.table()
    state = core.staged()
    stored = core.fresh().get()
    assert (state.row, state.metadata) == (stored.row, stored.metadata)


def test_the_new_document_names_the_file_before_it(core: Core) -> None:
    before = core.table()
    state = core.staged()
    assert state.metadata.metadata_log[-1].metadata_file == before.row.pointer.location
    assert state.row.previous_location == before.row.pointer.location


def test_updates_that_change_nothing_write_nothing(core: Core) -> None:
    before, files = core.table(), core.on_disk()
    assert core.commit("orders", [set_ref("main", FIRST)]).row == before.row
    assert core.on_disk() == files


@pytest.mark.parametrize("what", ["table", "namespace"])
def test_a_commit_to_a_missing_table_is_refused(core: Core, what: str) -> None:
    with pytest.raises(InputError) as caught:
        core.commit("orders", SET_PROPERTY, levels=SALES if what == "table" else ("nowhere",))
    assert reason_of(caught) == "table_unknown"


def test_a_requirement_that_does_not_hold_is_a_conflict_and_leaves_nothing(core: Core) -> None:
    base = core.table().metadata
    core.staged()
    files = core.on_disk()
    with pytest.raises(ConflictError) as caught:
        core.commit("orders", to_ref("stage", core.snapshot(base)), requirements=[ref_is(base, "stage")])
    assert (reason_of(caught), core.on_disk()) == ("requirement_ref_exists", files)


@pytest.mark.parametrize("protected", [True, False])
def test_a_moved_base_is_checked_again(core: Core, protected: bool) -> None:
    core.table(protected=protected)
    core.table("other")
    updates = [set_ref("mine", FIRST)]
    act = meanwhile(lambda: other_steward(core).commit("orders", [set_ref("its", FIRST)]))
    with fault.armed("catalog.after_metadata_file", act):
        state = core.commit("orders", updates)
    assert {"its", "mine"} <= set(state.metadata.refs)


def test_a_moved_base_that_breaks_a_requirement_is_a_conflict(core: Core) -> None:
    base = core.table().metadata
    write = to_ref("stage", core.snapshot(base))
    with (
        fault.armed("catalog.after_metadata_file", meanwhile(lambda: other_steward(core).staged())),
        pytest.raises(ConflictError) as caught,
    ):
        core.commit("orders", write, requirements=[ref_is(base, "stage")])
    assert reason_of(caught) == "requirement_ref_exists"


def test_a_moved_base_that_took_the_sequence_number_is_a_conflict(core: Core) -> None:
    base = core.table().metadata
    with (
        fault.armed("catalog.after_metadata_file", meanwhile(lambda: other_steward(core).staged(branch="its"))),
        pytest.raises(ConflictError) as caught,
    ):
        core.commit("orders", to_ref("mine", core.snapshot(base)))
    assert reason_of(caught) == "snapshot_sequence_stale"


def test_a_table_protected_meanwhile_is_checked_as_protected(core: Core) -> None:
    core.table(protected=False)
    with fault.armed("catalog.after_metadata_file", meanwhile(core.protect)), pytest.raises(NotAllowedError) as caught:
        core.commit("orders", SET_PROPERTY)
    assert (reason_of(caught), "word" in core.get().metadata.properties) == ("main_gated", False)


def test_a_commit_whose_base_moves_at_every_try_fails_as_moved(core: Core) -> None:
    core.table()
    names, other = iter(range(1_000)), other_steward(core)
    inside = [False]

    def move_base() -> None:
        if not inside[0]:
            inside[0] = True
            other.commit("orders", [set_ref(f"its-{next(names)}", FIRST)])
            inside[0] = False

    files = core.on_disk()
    with fault.armed("catalog.after_metadata_file", fault.Call(move_base)), pytest.raises(ConflictError) as caught:
        core.commit("orders", [set_ref("mine", FIRST)])
    assert reason_of(caught) == "table_moved"
    assert len(core.on_disk() - files) == COMMIT_TRIES_MAX == next(names)


def test_files_of_lost_tries_are_removed(core: Core) -> None:
    core.table()
    files = core.on_disk()
    act = meanwhile(lambda: other_steward(core).commit("orders", [set_ref("its", FIRST)]))
    with fault.armed("catalog.after_metadata_file", act):
        core.commit("orders", [set_ref("mine", FIRST)])
    assert len(core.on_disk() - files) == 2


def test_a_commit_that_the_ledger_refuses_leaves_no_file(core: Core) -> None:
    core.table()
    files = core.on_disk()

    def refuse(_unit: Unit, _rows: object) -> None:
        raise UnavailableError("ledger_busy", "busy")

    with pytest.raises(UnavailableError):
        core.commits.commit(PRODUCER, [Change(SALES, "orders", (), [set_ref("mine", FIRST)])], hook=refuse)
    assert (core.on_disk(), "mine" in core.get().metadata.refs) == (files, False)


def test_the_hook_runs_in_the_transaction_of_the_swap(core: Core) -> None:
    core.table()

    def note(unit: Unit, _rows: object) -> None:
        namespaces.create(unit, ("noted",), domain="sales", properties={})

    core.commits.commit(PRODUCER, [Change(SALES, "orders", (), [set_ref("mine", FIRST)])], hook=note)
    with core.ledger.read() as unit:
        assert namespaces.find(unit, ("noted",)) is not None


def changes_of_two_tables(one: list[Doc], two: list[Doc]) -> list[Change]:
    return [Change(SALES, "one", (), one), Change(SALES, "two", (), two)]


def test_several_tables_are_committed_at_once(core: Core) -> None:
    core.table("one"), core.table("two", protected=False)
    states = core.commits.commit(PRODUCER, changes_of_two_tables([set_ref("b", FIRST)], SET_PROPERTY))
    assert [state.row.name for state in states] == ["one", "two"]
    assert ("b" in core.get("one").metadata.refs, core.get("two").metadata.properties["word"]) == (True, "mine")


@pytest.mark.parametrize("order", [1, -1])
def test_one_refusal_refuses_all_tables(core: Core, order: int) -> None:
    core.table("one", protected=False), core.table("two")
    files = core.on_disk()
    with pytest.raises(NotAllowedError) as caught:
        core.commits.commit(PRODUCER, changes_of_two_tables(SET_PROPERTY, SET_PROPERTY)[::order])
    assert (reason_of(caught), core.on_disk()) == ("main_gated", files)
    assert "word" not in core.get("one").metadata.properties


def test_a_conflict_on_one_table_changes_no_table(core: Core) -> None:
    core.table("one"), core.table("two")
    base = core.get("two").metadata
    changes = [
        Change(SALES, "one", (), [set_ref("b", FIRST)]),
        Change(SALES, "two", [ref_is(base, "b")], [set_ref("b", FIRST)]),
    ]
    act = meanwhile(lambda: other_steward(core).commit("two", [set_ref("b", FIRST)]))
    with fault.armed("catalog.after_metadata_file", act, passes=1), pytest.raises(ConflictError) as caught:
        core.commits.commit(PRODUCER, changes)
    assert (reason_of(caught), "b" in core.get("one").metadata.refs) == ("requirement_ref_exists", False)


def test_a_table_with_requirements_only_must_stay_unchanged(core: Core) -> None:
    core.table("one"), core.table("two")
    guard = Change(SALES, "two", [ref_is(core.get("two").metadata, "b")], [])
    act = meanwhile(lambda: other_steward(core).commit("two", [set_ref("b", FIRST)]))
    with fault.armed("catalog.after_metadata_file", act), pytest.raises(ConflictError) as caught:
        core.commits.commit(PRODUCER, [guard, Change(SALES, "one", (), [set_ref("b", FIRST)])])
    assert (reason_of(caught), "b" in core.get("one").metadata.refs) == ("requirement_ref_exists", False)


def test_a_transaction_with_another_domains_table_is_refused_whole(core: Core) -> None:
    core.table("one"), core.table("two", levels=RISK, protected=False)
    changes = [Change(SALES, "one", (), [set_ref("b", FIRST)]), Change(RISK, "two", (), SET_PROPERTY)]
    with pytest.raises(NotAllowedError) as caught:
        core.commits.commit(PRODUCER, changes)
    assert (reason_of(caught), "b" in core.get("one").metadata.refs) == ("domain_wrong", False)


@pytest.mark.parametrize("names", [["one", "one"], [], [f"t{number}" for number in range(COMMIT_TABLES_MAX + 1)]])
def test_a_transaction_of_no_table_of_one_twice_or_of_too_many_is_refused(core: Core, names: list[str]) -> None:
    core.table("one", protected=False)
    with pytest.raises(InputError):
        core.commits.commit(PRODUCER, [Change(SALES, name, (), SET_PROPERTY) for name in names])
    assert core.get("one").row.revision == 1


def creation_updates(core: Core, name: str = "made", **more: object) -> list[Doc]:
    """The updates that CREATE TABLE AS SELECT sends at its end, without those for its rows."""
    base = document_of(core.get("orders").metadata)
    return [
        {"action": "assign-uuid", "uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1"},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": base["schemas"][0]},  # type: ignore[index]
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": core.place(name), **more},
    ]


CREATE = [{"type": "assert-create"}]


def row_updates(core: Core, location: str, **more: object) -> list[Doc]:
    base = core.get("orders").metadata
    snapshot = core.snapshot(base, **{"sequence-number": 1, "manifest-list": f"{location}/metadata/x.avro", **more})
    return to_ref("main", snapshot)


def test_a_staged_table_is_created_with_its_rows(core: Core) -> None:
    core.table(protected=False)
    state = core.commit("made", creation_updates(core) + row_updates(core, core.place("made")), requirements=CREATE)
    assert (state.row.revision, state.row.protected, state.metadata.current_snapshot_id) == (0, False, core.counter)


def test_creating_a_table_again_is_a_conflict(core: Core) -> None:
    core.table(protected=False)
    core.commit("made", creation_updates(core), requirements=CREATE)
    with pytest.raises(ConflictError) as caught:
        core.commit("made", creation_updates(core), requirements=CREATE)
    assert reason_of(caught) == "requirement_table_exists"


def test_two_concurrent_creates_give_one_table_and_one_conflict(core: Core) -> None:
    core.table(protected=False)
    files = core.on_disk()
    other = [{"action": "assign-uuid", "uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c2"}, *creation_updates(core)[1:]]
    act = meanwhile(lambda: other_steward(core).commit("made", other, requirements=CREATE))
    with fault.armed("catalog.after_metadata_file", act), pytest.raises(ConflictError) as caught:
        core.commit("made", creation_updates(core), requirements=CREATE)
    assert (reason_of(caught), len(core.on_disk() - files)) == ("table_exists", 1)


def test_of_two_concurrent_tables_in_one_place_the_second_is_refused(core: Core) -> None:
    core.table(protected=False)
    other = [{"action": "assign-uuid", "uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c2"}, *creation_updates(core)[1:]]
    act = meanwhile(lambda: other_steward(core).commit("first", other, requirements=CREATE))
    with fault.armed("catalog.after_metadata_file", act), pytest.raises(NotAllowedError) as caught:
        core.commit("second", creation_updates(core), requirements=CREATE)
    assert reason_of(caught) == "location_taken"


def test_a_table_that_is_created_in_a_protected_namespace_is_protected(core: Core) -> None:
    core.table(protected=False)
    core.namespace(("vault",), protected=True)
    made = creation_updates(core, location=core.place("made", ("vault",)))
    state = core.commit("made", made, requirements=CREATE, levels=("vault",))
    assert state.row.contract_hash == CONTRACT


@pytest.mark.parametrize("extra", ["rows", "a number used up"])
def test_creating_a_table_that_is_not_empty_in_a_protected_namespace_is_refused(core: Core, extra: str) -> None:
    core.table(protected=False)
    core.namespace(("vault",), protected=True)
    place = core.place("made", ("vault",))
    more = row_updates(core, place, **{"sequence-number": 2**63 - 1})
    if extra != "rows":
        more = [more[0], {"action": "remove-snapshots", "snapshot-ids": [core.counter]}]
    with pytest.raises(NotAllowedError) as caught:
        core.commit("made", creation_updates(core, location=place) + more, requirements=CREATE, levels=("vault",))
    assert reason_of(caught) == "main_gated"


def test_creating_a_table_with_rows_in_a_namespace_that_is_protected_meanwhile_is_refused(core: Core) -> None:
    core.table(protected=False)

    def protect() -> None:
        def work(unit: Unit) -> None:
            namespaces.protect(unit, namespaces.get(unit, SALES), CONTRACT)

        core.ledger.transact(work, at_micros=core.micros)

    with fault.armed("catalog.after_metadata_file", meanwhile(protect)), pytest.raises(NotAllowedError) as caught:
        core.commit("made", creation_updates(core) + row_updates(core, core.place("made")), requirements=CREATE)
    assert reason_of(caught) == "main_gated"


@pytest.mark.parametrize("role", [Role.PUBLISHER, Role.CONSUMER, Role.AUDITOR, Role.ATTESTOR, Role.STEWARD])
def test_roles_other_than_producer_and_operator_cannot_create_a_table(core: Core, role: Role) -> None:
    core.table(protected=False)
    with pytest.raises(NotAllowedError) as caught:
        core.commit("made", creation_updates(core), requirements=CREATE, by=grant(role))
    assert reason_of(caught) == "role_wrong"


def test_a_consumer_cannot_create_an_empty_table_either(core: Core) -> None:
    base = core.table(protected=False).metadata
    with pytest.raises(NotAllowedError) as caught:
        core.commits.create(grant(Role.CONSUMER), core.get_namespace(), "made", base)
    assert reason_of(caught) == "role_wrong"


@pytest.mark.parametrize(
    ("location", "refusal"),
    [
        ("/elsewhere/made", "location_outside"),
        ("s3://bucket/made", "location_outside"),
        ("{orders}", "location_taken"),
        ("{orders}/inside", "location_taken"),
        ("{orders}/..", "location_invalid"),
        ("{sales}", "location_outside"),
        ("{sales}/nested", "location_taken"),
        ("{sales}/../raw2", "location_invalid"),
        ("{warehouse}", "location_outside"),
        ("{warehouse}/sales", "location_outside"),
        ("{warehouse}/sales/raw2/made", "location_outside"),
        ("{warehouse}/risk/made", "location_outside"),
    ],
)
def test_creating_a_table_outside_its_namespace_or_in_a_taken_place_is_refused(
    core: Core, location: str, refusal: str
) -> None:
    core.table(protected=False)
    core.namespace((*SALES, "nested", "deep"))
    place = location.format(orders=core.place("orders"), sales=core.warehouse.child(*SALES), warehouse=core.warehouse)
    with pytest.raises(PvdmError) as caught:
        core.commit("made", creation_updates(core, location=place), requirements=CREATE)
    assert reason_of(caught) == refusal


@pytest.mark.parametrize("by", [PRODUCER, OPERATOR])
def test_a_table_cannot_move_into_another_tables_place(core: Core, by: object) -> None:
    core.table(protected=False)
    core.table("two", protected=False)
    move = [{"action": "set-location", "location": core.place("two")}]
    with pytest.raises(NotAllowedError) as caught:
        core.commit("orders", move, by=by)  # type: ignore[arg-type]
    assert reason_of(caught) == "location_taken"


@pytest.mark.parametrize("where", ["/elsewhere", "{warehouse}/risk/orders", "{warehouse}/sales/raw"])
def test_a_table_cannot_move_out_of_its_namespaces_folder(core: Core, where: str) -> None:
    core.table(protected=False)
    with pytest.raises(NotAllowedError) as caught:
        core.commit("orders", [{"action": "set-location", "location": where.format(warehouse=core.warehouse)}])
    assert reason_of(caught) == "location_outside"


def test_creating_a_table_with_rows_from_another_place_is_refused(core: Core) -> None:
    core.table(protected=False)
    with pytest.raises(InputError) as caught:
        core.commit("made", creation_updates(core) + row_updates(core, core.place("orders")), requirements=CREATE)
    assert reason_of(caught) == "staging_not_sane"


def test_committing_rows_from_another_place_to_an_unprotected_table_is_refused(core: Core) -> None:
    base = core.table(protected=False).metadata
    snapshot = core.snapshot(base, **{"manifest-list": f"{core.place('other')}/x.avro"})
    with pytest.raises(InputError) as caught:
        core.commit("orders", to_ref("main", snapshot))
    assert reason_of(caught) == "staging_not_sane"


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_unprotected_table_takes_changes_of_main_tags_and_properties(core: Core, version: int) -> None:
    base = core.table(version=version, protected=False).metadata
    core.commit("orders", to_ref("main", core.snapshot(base, **{"parent-snapshot-id": FIRST})))
    core.commit("orders", SET_PROPERTY)
    core.commit("orders", [set_ref("main", FIRST)])
    core.commit("orders", [set_ref("v1", FIRST, "tag"), {"action": "remove-snapshots", "snapshot-ids": [core.counter]}])
    state = core.commit("orders", [{"action": "remove-snapshot-ref", "ref-name": "main"}])
    assert (state.metadata.current_snapshot_id, state.metadata.properties["word"]) == (None, "mine")


def test_changing_the_uuid_of_an_unprotected_table_is_refused(core: Core) -> None:
    core.table(protected=False)
    with pytest.raises(NotAllowedError) as caught:
        core.commit("orders", creation_updates(core)[:1])
    assert reason_of(caught) == "table_uuid_changed"


def test_an_edited_metadata_file_is_refused_on_load_and_on_commit(core: Core) -> None:
    state = core.table()
    path = Path(state.row.pointer.location.removeprefix("file://"))
    path.write_bytes(path.read_bytes().replace(b'"sales"', b'"thief"'))
    for use in (core.get, core.staged, core.fresh().get):
        with pytest.raises(VerificationError) as caught:
            use()
        assert reason_of(caught) == "metadata_file_changed"


def test_a_removed_metadata_file_is_refused_on_load_and_on_commit(core: Core) -> None:
    Path(core.table().row.pointer.location.removeprefix("file://")).unlink()
    for use in (core.get, core.staged, core.fresh().get):
        with pytest.raises(VerificationError) as caught:
            use()
        assert reason_of(caught) == "metadata_file_missing"


def test_a_commit_to_a_table_that_is_dropped_meanwhile_is_refused(core: Core) -> None:
    row = core.table(protected=False).row
    ledger = other_steward(core).ledger
    act = meanwhile(lambda: ledger.transact(lambda unit: tables.drop(unit, row), at_micros=core.micros))
    with fault.armed("catalog.after_metadata_file", act), pytest.raises(InputError) as caught:
        core.commit("orders", SET_PROPERTY)
    assert reason_of(caught) == "table_unknown"


@pytest.mark.parametrize("where", ["metadata", "metadata/sub", ".", "link", "link/sub"])
def test_not_even_an_operator_can_move_a_table_above_or_below_the_stewards_files(core: Core, where: str) -> None:
    core.root.mkdir(exist_ok=True)
    (core.folder / "link").symlink_to(core.root)
    before = core.table(protected=False)
    moved = [{"action": "set-location", "location": f"file://{core.folder / where}"}]
    with pytest.raises(NotAllowedError) as caught:
        core.commit("orders", moved, by=OPERATOR)
    assert (reason_of(caught), core.get().row) == ("location_reserved", before.row)


def test_not_even_an_operator_can_create_a_table_below_the_stewards_files(core: Core) -> None:
    made = new_table(request(), location=f"file://{core.root}/t", table_uuid=str(uuid.uuid4()), now_ms=NOW_MS)
    with pytest.raises(NotAllowedError) as caught:
        core.commits.create(OPERATOR, core.get_namespace(), "made", made)
    assert reason_of(caught) == "location_reserved"
