"""A commit reads rows before its turn in the table's queue; it uses them only if they are unchanged at the swap."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pvdm.catalog.commit import Change, TableQueues
from pvdm.catalog.state import TableState
from pvdm.errors import ConflictError, InputError, NotAllowedError
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger import Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.metadata.gate.target import Permit
from pvdm.model.role import Role
from tests.support import fault
from tests.support.catalog.core import CONTRACT, PRODUCER, RISK, SALES, STEWARD, Core, Doc, core_at, ref_is, to_ref
from tests.support.catalog.http import lake_at, refusal, set_ref, snapshot
from tests.support.ledger.databases import memory_folder

Tables = Iterable[tuple[Levels, str]]


class QueuesWithEvent(TableQueues):
    """Queues that call `event` once, after a commit's look-up and before its turn, which comes without a wait."""

    def __init__(self, event: Callable[[], object]) -> None:
        super().__init__()
        self._event: Callable[[], object] | None = event

    @contextlib.contextmanager
    def turn(self, tables: Tables) -> Iterator[bool]:
        with super().turn(tables) as at_once:
            event, self._event = self._event, None
            if event is not None:
                assert at_once
                event()
            yield at_once


@pytest.fixture
def core(tmp_path: Path, migrated_url: str) -> Iterator[Core]:
    with core_at(tmp_path, migrated_url) as made:
        yield made


def do_before_turn(core: Core, event: Callable[[], object]) -> None:
    """Call `event` between the look-up and the turn of the next commit."""
    core.commits._queues = QueuesWithEvent(event)


def set_property(name: str) -> list[Doc]:
    return [{"action": "set-properties", "updates": {name: "x"}}]


def test_a_stale_requirement_is_a_conflict_though_it_held_when_the_table_was_looked_up(core: Core) -> None:
    base, other = core.table(protected=False).metadata, core.fresh()
    do_before_turn(core, lambda: other.commit("orders", to_ref("b", other.snapshot(base, snapshot_id=7))))
    with pytest.raises(ConflictError) as caught:
        core.commit("orders", to_ref("b", core.snapshot(base, snapshot_id=8)), requirements=[ref_is(base, "b")])
    assert caught.value.reason == "requirement_ref_exists"
    after = core.fresh().get()
    assert (after.metadata.refs["b"].snapshot_id, after.row.revision) == (7, 2)


def test_a_change_without_requirements_is_checked_again_on_a_moved_base(core: Core) -> None:
    core.table(protected=False)
    do_before_turn(core, lambda: core.fresh().commit("orders", set_property("theirs")))
    core.commit("orders", set_property("ours"))
    after = core.fresh().get()
    assert {"theirs", "ours"} <= set(after.metadata.properties)
    assert after.row.revision == 3


def test_the_file_of_a_try_on_a_moved_base_is_removed(core: Core) -> None:
    core.table(protected=False)
    do_before_turn(core, lambda: core.fresh().commit("orders", set_property("theirs")))
    before = core.on_disk()
    core.commit("orders", set_property("ours"))
    assert len(core.on_disk() - before) == 2


def test_a_table_protected_since_the_look_up_is_checked_as_protected(core: Core) -> None:
    base = core.table(protected=False).metadata
    do_before_turn(core, lambda: core.fresh().protect())
    with pytest.raises(NotAllowedError):
        core.commit("orders", to_ref("main", core.snapshot(base, **{"parent-snapshot-id": base.current_snapshot_id})))
    assert core.fresh().get().metadata.current_snapshot_id == base.current_snapshot_id


def test_a_table_that_was_dropped_since_the_look_up_is_unknown(core: Core) -> None:
    row = core.table(protected=False).row
    do_before_turn(core, lambda: core.ledger.transact(lambda unit: tables.drop(unit, row), at_micros=core.micros))
    with pytest.raises(InputError) as caught:
        core.commit("orders", set_property("ours"))
    assert caught.value.reason == "table_unknown"


def test_another_table_that_took_the_name_since_the_look_up_is_not_changed(core: Core) -> None:
    row = core.table(protected=False).row
    core.table("theirs", levels=RISK, protected=False)

    def replace_table() -> None:
        theirs = core.fresh().get("theirs", levels=RISK).row

        def work(unit: Unit) -> None:
            tables.drop(unit, row)
            tables.rename(unit, theirs, namespace_id=row.namespace_id, name="orders")

        core.ledger.transact(work, at_micros=core.micros)

    do_before_turn(core, replace_table)
    first = [{"type": "assert-table-uuid", "uuid": row.table_uuid}]
    with pytest.raises(ConflictError):
        core.commit("orders", set_property("ours"), requirements=first)
    assert "ours" not in core.fresh().get().metadata.properties


def test_a_table_is_created_protected_if_its_namespace_was_protected_since_the_look_up(core: Core) -> None:
    made = core.table(protected=False).metadata

    def protect() -> None:
        def work(unit: Unit) -> None:
            namespaces.protect(unit, namespaces.get(unit, SALES), CONTRACT)

        core.ledger.transact(work, at_micros=core.micros)

    do_before_turn(core, protect)
    updates: list[Doc] = [
        {"action": "assign-uuid", "uuid": "0b0f2b9e-6d6b-4e09-9a44-0c1d1f6b6a01"},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": made.current_schema.raw, "last-column-id": 3},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": core.place("new")},
    ]
    change = Change(SALES, "new", [{"type": "assert-create"}], updates)
    core.commits.commit(PRODUCER, [change])
    assert core.fresh().get("new").row.contract_hash == CONTRACT


def test_a_permit_for_the_looked_up_state_does_not_allow_a_later_one(core: Core) -> None:
    base = core.table().metadata
    updates = to_ref("main", core.snapshot(base, **{"parent-snapshot-id": base.current_snapshot_id}))
    permit = core.permit_for("orders", updates)
    do_before_turn(core, lambda: core.fresh().staged())
    with pytest.raises((NotAllowedError, ConflictError, InputError)):
        core.commit("orders", updates, by=STEWARD, permit=permit)
    assert core.fresh().get().metadata.current_snapshot_id == base.current_snapshot_id


def test_the_gate_judges_again_the_base_that_is_swapped(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    core.table()
    judged_revisions: list[int] = []
    other = core.fresh()
    # The other Steward has waited too long for its turn and commits without it.
    monkeypatch.setattr(other.ledger, "take_turn", lambda _: contextlib.nullcontext())

    def updates_on(state: TableState) -> list[Doc]:
        base = state.metadata
        return to_ref("main", core.snapshot(base, snapshot_id=900, **{"parent-snapshot-id": base.current_snapshot_id}))

    def gate(before: TableState, after: TableMetadata, data: bytes) -> Permit:
        judged_revisions.append(before.row.revision)
        if len(judged_revisions) == 1:
            other.staged()
        return Permit(str(after.table_uuid), before.row.pointer.sha256, hashlib.sha256(data).hexdigest())

    core.commits.commit(STEWARD, [Change(SALES, "orders", (), (), updates_on)], make_permit=gate)
    after = core.fresh().get()
    assert judged_revisions == [2, 3]
    assert (after.row.revision, after.metadata.current_snapshot_id, "stage" in after.metadata.refs) == (4, 900, True)


def test_a_commit_that_waited_for_its_turn_writes_only_one_file(core: Core) -> None:
    core.table(protected=False)
    reached, go, written = threading.Event(), threading.Event(), []

    def wait() -> None:
        written.append(1)
        reached.set()
        go.wait(10)

    with ThreadPoolExecutor(2) as pool, fault.armed("catalog.after_metadata_file", fault.Call(wait)):
        first = pool.submit(core.commit, "orders", set_property("one"))
        assert reached.wait(10)
        second = pool.submit(core.commit, "orders", set_property("two"))
        while not next(iter(core.commits._queues._queues._used.values()))[0]._waiting:
            time.sleep(0.002)
        go.set()
        assert (first.result().row.revision, second.result().row.revision) == (2, 3)
    assert len(written) == 2


def test_over_http_a_change_between_look_up_and_swap_is_a_conflict() -> None:
    with memory_folder() as folder, lake_at(folder) as lake:
        caller, commits = lake.caller(), lake.steward.stand.notary.catalog.commits
        made = caller.make("t")
        stale = [{"type": "assert-ref-snapshot-id", "ref": "b", "snapshot-id": None}]
        grant = lake.steward.stand.grant(Role.OPERATOR, "*", "another")

        def commit_as_another_steward() -> None:
            # Another Steward on the same ledger has queues of its own.
            queues, commits._queues = commits._queues, TableQueues()
            commits.commit(grant, [Change(("sales",), "t", [], [snapshot(made, 7), set_ref("b", 7)])])
            commits._queues = queues

        commits._queues = QueuesWithEvent(commit_as_another_steward)
        answer = caller.commit("t", [snapshot(made, 8), set_ref("b", 8)], stale)
        assert refusal(answer) == (409, "CommitFailedException")
        refs = caller.done("GET", "/namespaces/sales/tables/t")["metadata"]["refs"]
        assert refs["b"]["snapshot-id"] == 7
