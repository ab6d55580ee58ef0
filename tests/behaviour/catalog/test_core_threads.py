"""Concurrent writers on branches of one table, on own tables and on two tables: no commit is lost or made twice."""

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


def run_at_once(work: Callable[[int], None], writers: int = WRITERS) -> None:
    """Run every writer in its own thread; raises the first error of one."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(writers)

    def run(number: int) -> None:
        barrier.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def write_snapshots(core: Core, name: str, branch: str, first_id: int) -> list[int]:
    """Commit snapshots to a branch; load the table again after a conflict. Returns the ids that were committed."""
    committed_ids: list[int] = []
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
            committed_ids.append(first_id + step)
            break
    return committed_ids


def test_concurrent_writers_on_branches_of_one_table_lose_and_double_nothing(core: Core) -> None:
    before = MainState.of(core.table().metadata)
    view_before = published_view(core.get().metadata).to_bytes()
    run_at_once(lambda number: _require_all(write_snapshots(core, "orders", f"b{number}", 1_000 * (number + 1))))
    after = core.fresh().get()
    assert after.row.revision == 2 + WRITERS * COMMITS
    assert after.metadata.last_sequence_number == 1 + WRITERS * COMMITS
    for number in range(WRITERS):
        head = after.metadata.refs[f"b{number}"].snapshot_id
        ids = [each.snapshot_id for each in after.metadata.ancestry(head)]
        assert ids == [1_000 * (number + 1) + step for step in reversed(range(COMMITS))]
    assert Counter(each.sequence_number for each in after.metadata.snapshots).most_common(1)[0][1] == 1
    assert (MainState.of(after.metadata), published_view(after.metadata).to_bytes()) == (before, view_before)
    assert len(core.on_disk()) == 2 + WRITERS * COMMITS


def _require_all(committed_ids: list[int]) -> None:
    assert len(committed_ids) == COMMITS


def test_concurrent_writers_on_different_tables_all_succeed(core: Core) -> None:
    for number in range(WRITERS):
        core.table(f"t{number}", shown=False)
    run_at_once(lambda number: _require_all(write_snapshots(core, f"t{number}", "stage", 1_000)))
    for number in range(WRITERS):
        state = core.fresh().get(f"t{number}")
        assert [each.snapshot_id for each in state.metadata.snapshots] == [1_000, 1_001, 1_002]
        assert state.row.revision == 1 + COMMITS


def test_concurrent_transactions_over_two_tables_in_either_order_all_succeed(core: Core) -> None:
    core.table("one")
    core.table("two")

    def commit_to_both(number: int) -> None:
        names = ("one", "two") if number % 2 else ("two", "one")
        changes = [Change(SALES, name, (), [set_ref(f"b{number}", FIRST)]) for name in names]
        for _ in range(TRIES):
            try:
                core.commits.commit(PRODUCER, changes)
            except ConflictError:
                continue
            return
        raise AssertionError("never its turn")

    run_at_once(commit_to_both, 8)
    wanted = {"main", *(f"b{number}" for number in range(8))}
    assert {name: set(core.fresh().get(name).metadata.refs) for name in ("one", "two")} == {
        "one": wanted,
        "two": wanted,
    }


def test_attacks_on_main_among_concurrent_writers_are_all_refused(core: Core) -> None:
    core.table()

    def write_or_attack(number: int) -> None:
        if number % 2:
            _require_all(write_snapshots(core, "orders", f"b{number}", 1_000 * (number + 1)))
            return
        for _ in range(COMMITS):
            snapshot = core.snapshot(core.get().metadata, snapshot_id=9_000 + number)
            with pytest.raises((NotAllowedError, ConflictError)):
                core.commit("orders", to_ref("main", snapshot))

    run_at_once(write_or_attack, 8)
    assert core.fresh().get().metadata.current_snapshot_id == FIRST
