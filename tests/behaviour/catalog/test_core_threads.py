"""Sixteen writers at once: on branches of one table, on tables of their own, in pairs; none lost, none doubled."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pvdm.catalog.commit import Change
from pvdm.catalog.responses import published_view
from pvdm.errors import ConflictError, NotAllowedError
from pvdm.lake.format.table.main_state import MainState
from tests.support.catalog.core import FIRST, PRODUCER, SALES, Core, Doc, core_at, ref_is, set_ref, to_ref

WRITERS = 16
COMMITS = 3
TRIES = 200


@pytest.fixture
def core(tmp_path: Path, migrated_url: str) -> Iterator[Core]:
    with core_at(tmp_path, migrated_url) as made:
        yield made


def at_once(work: Callable[[int], None], writers: int = WRITERS) -> None:
    """Every writer in its thread; what one raises is raised here."""
    failed: list[BaseException] = []
    barrier = threading.Barrier(writers)

    def run(number: int) -> None:
        barrier.wait()
        try:
            work(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def writing(core: Core, name: str, branch: str, first_id: int) -> list[int]:
    """As Spark does: load, write on the head of the branch, after a conflict load again."""
    done: list[int] = []
    for step in range(COMMITS):
        for _ in range(TRIES):
            base = core.get(name).metadata
            ref = base.refs.get(branch)
            parent: Doc = {} if ref is None else {"parent-snapshot-id": ref.snapshot_id}
            snapshot = core.snapshot(base, snapshot_id=first_id + step, **parent)
            try:
                core.commit(name, to_ref(branch, snapshot), requirements=[ref_is(base, branch)])
            except ConflictError:
                continue
            done.append(first_id + step)
            break
    return done


def test_writers_on_branches_of_one_table_lose_and_double_nothing(core: Core) -> None:
    before = MainState.of(core.table().metadata)
    sight = published_view(core.get().metadata).to_bytes()
    at_once(lambda number: _all_done(writing(core, "orders", f"b{number}", 1_000 * (number + 1))))
    after = core.fresh().get()
    assert after.row.revision == 2 + WRITERS * COMMITS
    assert after.metadata.last_sequence_number == 1 + WRITERS * COMMITS
    for number in range(WRITERS):
        head = after.metadata.refs[f"b{number}"].snapshot_id
        ids = [each.snapshot_id for each in after.metadata.ancestry(head)]
        assert ids == [1_000 * (number + 1) + step for step in reversed(range(COMMITS))]
    assert Counter(each.sequence_number for each in after.metadata.snapshots).most_common(1)[0][1] == 1
    assert (MainState.of(after.metadata), published_view(after.metadata).to_bytes()) == (before, sight)
    assert len(core.on_disk()) == 2 + WRITERS * COMMITS


def _all_done(done: list[int]) -> None:
    assert len(done) == COMMITS


def test_writers_on_different_tables_do_not_conflict(core: Core) -> None:
    for number in range(WRITERS):
        core.table(f"t{number}", shown=False)
    at_once(lambda number: _all_done(writing(core, f"t{number}", "stage", 1_000)))
    for number in range(WRITERS):
        state = core.fresh().get(f"t{number}")
        assert [each.snapshot_id for each in state.metadata.snapshots] == [1_000, 1_001, 1_002]
        assert state.row.revision == 1 + COMMITS


def test_transactions_over_two_tables_in_either_order_all_happen(core: Core) -> None:
    core.table("one")
    core.table("two")

    def both(number: int) -> None:
        names = ("one", "two") if number % 2 else ("two", "one")
        changes = [Change(SALES, name, (), [set_ref(f"b{number}", FIRST)]) for name in names]
        for _ in range(TRIES):
            try:
                core.commits.commit(PRODUCER, changes)
            except ConflictError:
                continue
            return
        raise AssertionError("never its turn")

    at_once(both, 8)
    wanted = {"main", *(f"b{number}" for number in range(8))}
    assert {name: set(core.fresh().get(name).metadata.refs) for name in ("one", "two")} == {
        "one": wanted,
        "two": wanted,
    }


def test_among_many_writers_none_moves_main(core: Core) -> None:
    core.table()

    def attacking(number: int) -> None:
        if number % 2:
            _all_done(writing(core, "orders", f"b{number}", 1_000 * (number + 1)))
            return
        for _ in range(COMMITS):
            snapshot = core.snapshot(core.get().metadata, snapshot_id=9_000 + number)
            with pytest.raises((NotAllowedError, ConflictError)):
                core.commit("orders", to_ref("main", snapshot))

    at_once(attacking, 8)
    assert core.fresh().get().metadata.current_snapshot_id == FIRST
