"""Files that crashes leave in the Steward's folder are removed once they are old; others stay."""

from __future__ import annotations

import os
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm.catalog import cleanup
from pvdm.catalog.cleanup import UNNAMED_AGE_MIN_SECONDS, UnnamedSweep
from pvdm.errors import ConflictError
from pvdm.lake.files import MetadataFiles
from pvdm.ledger import Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.record import restores
from pvdm.ledger.record.restores import Restore
from pvdm.steward.http import app
from tests.support import fault
from tests.support.catalog.core import OPERATOR, Core, core_at
from tests.support.catalog.http import lake_at
from tests.support.ledger.databases import memory_folder

POINTS = ("catalog.files.before_sync", "catalog.files.after_rename", "catalog.after_metadata_file")


class DiedError(BaseException):
    """Ends a call like the end of its process: no handler of the source catches it."""


@pytest.fixture
def core(tmp_path: Path, migrated_url: str) -> Iterator[Core]:
    with core_at(tmp_path, migrated_url) as made:
        made.table()
        yield made


def unnamed_sweep(core: Core, root: Path | None = None) -> UnnamedSweep:
    return UnnamedSweep(core.ledger, core.clock, MetadataFiles(root or core.root))


def crash_during_commit(core: Core, point: str = POINTS[-1]) -> Path:
    """Let a commit end at the point, as by a crash; returns the file that it leaves."""
    before = set(core.root.rglob("*"))
    with fault.armed(point, fault.Raise(DiedError())), pytest.raises(DiedError):
        core.staged()
    (left,) = set(core.root.rglob("*")) - before
    return left


def age_files(root: Path, seconds: float = UNNAMED_AGE_MIN_SECONDS + 60) -> None:
    """Set every file's time of change to so many seconds ago; by default old enough to sweep."""
    for path in root.rglob("*"):
        os.utime(path, (time.time() - seconds,) * 2)


@pytest.mark.parametrize("point", POINTS)
def test_a_file_that_a_crash_leaves_is_found_at_once_and_removed_when_it_is_old(core: Core, point: str) -> None:
    left = crash_during_commit(core, point)
    core.staged()
    unnamed = [each.location for found in unnamed_sweep(core)._find_between(0.0, time.time()) for each in found.files]
    assert unnamed == [f"file://{left}"]
    assert (unnamed_sweep(core).sweep(), left.exists()) == (0, True), (
        "a young file may belong to a commit that is still running"
    )
    kept = core.on_disk() - {left.name}
    age_files(core.root)
    assert (unnamed_sweep(core).sweep(), core.on_disk()) == (1, kept)


def test_whatever_a_pointer_ever_named_stays(core: Core) -> None:
    """The documents of a table's history, and those of a dropped table."""
    for branch in ("a", "b", "c"):
        core.staged(branch=branch)
    core.table("gone")
    row = core.get("gone").row
    core.ledger.transact(lambda unit: tables.drop(unit, row), at_micros=core.micros)
    kept = core.on_disk()
    age_files(core.root)
    assert (unnamed_sweep(core).sweep(), core.on_disk()) == (0, kept)


def test_a_sweep_of_a_moved_metadata_folder_removes_nothing(core: Core) -> None:
    kept = core.on_disk()
    moved = core.root.rename(core.folder / "elsewhere")
    age_files(moved)
    assert unnamed_sweep(core, moved).sweep() == 0
    assert {path.name for path in moved.rglob("*") if path.is_file()} == kept


def test_the_folder_of_a_table_that_this_ledger_does_not_know_is_left_alone(core: Core) -> None:
    foreign = MetadataFiles(core.root).write("11111111-2222-3333-4444-555555555555", 0, b"{}")
    age_files(core.root)
    assert unnamed_sweep(core).sweep() == 0
    assert Path(foreign.location.removeprefix("file://")).exists()


@pytest.mark.parametrize("restored_days_ago", [0, 30])
def test_after_a_restore_no_file_is_removed(core: Core, restored_days_ago: int) -> None:
    """A pointer that the restore lost may have named the file. Its host's clock may have been ahead of the ledger's."""
    left = crash_during_commit(core)

    def restored(unit: Unit) -> None:
        restores.begin(unit, Restore(1, "operator-ruth", "the disk was lost", 0, b"", 1, (), {}))
        restores.finish(unit, 1)

    core.ledger.transact(restored, at_micros=int(time.time() - restored_days_ago * 86_400) * 1_000_000)
    age_files(core.root)
    assert (unnamed_sweep(core).sweep(), left.exists()) == (0, True)


def test_a_commit_whose_file_was_swept_before_its_swap_writes_another_file(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Steward whose clock is ahead takes the commit's new file for one that a crash left."""
    later = types.SimpleNamespace(time=lambda: time.time() + 2 * UNNAMED_AGE_MIN_SECONDS)
    swept: list[int] = []

    def sweep_meanwhile() -> None:
        monkeypatch.setattr(cleanup, "time", time if swept else later)
        swept.append(unnamed_sweep(core).sweep())

    with fault.armed("catalog.after_metadata_file", fault.Call(sweep_meanwhile)):
        state = core.staged()
    assert swept == [1, 0]
    assert core.fresh().get().row == state.row


def test_a_table_created_again_never_points_to_a_swept_file(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table has no row while its file waits, so the sweep cannot leave a note in the row."""
    state = core.table("gone", protected=False)
    core.ledger.transact(lambda unit: tables.drop(unit, state.row), at_micros=core.micros)
    later = types.SimpleNamespace(time=lambda: time.time() + 2 * UNNAMED_AGE_MIN_SECONDS)
    swept: list[int] = []

    def sweep_meanwhile() -> None:
        monkeypatch.setattr(cleanup, "time", later)
        swept.append(unnamed_sweep(core).sweep())

    home = core.get_namespace()
    with (
        fault.armed("catalog.after_metadata_file", fault.Call(sweep_meanwhile)),
        pytest.raises(ConflictError) as caught,
    ):
        core.commits.create(OPERATOR, home, "gone", state.metadata, may_reuse_uuid=True)
    assert (swept, caught.value.reason) == ([1], "table_moved")


def test_a_sweep_waits_for_a_swap_that_has_begun_and_keeps_its_file(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = types.SimpleNamespace(time=lambda: time.time() + 2 * UNNAMED_AGE_MIN_SECONDS)
    monkeypatch.setattr(cleanup, "time", later)
    swept: list[int] = []
    sweeping = threading.Thread(target=lambda: swept.append(unnamed_sweep(core).sweep()))

    def sweep_meanwhile() -> None:
        if not sweeping.ident:
            sweeping.start()
            sweeping.join(0.5)
            assert sweeping.is_alive()

    with fault.armed("ledger.before_commit", fault.Call(sweep_meanwhile)):
        state = core.staged()
        sweeping.join(30)
    assert (swept, core.fresh().get().row) == ([0], state.row)


def test_a_file_is_removed_only_after_the_ledger_has_recorded_its_deletion(core: Core) -> None:
    """A sweep whose commit fails, or has an unknown outcome, removes nothing."""
    left = crash_during_commit(core)
    age_files(core.root)
    for point in ("ledger.before_commit", "ledger.after_commit"):
        with fault.armed(point, fault.Raise(DiedError())), pytest.raises(DiedError):
            unnamed_sweep(core).sweep()
        assert left.exists()
    assert (unnamed_sweep(core).sweep(), left.exists()) == (1, False)


def test_files_that_the_history_missed_are_kept_by_the_check_under_the_tables_lock(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The patched search of the history finds no names, as if all pointers moved after it."""
    monkeypatch.setattr(UnnamedSweep, "_collect_all_named", lambda *_: 0)
    kept = core.on_disk()
    age_files(core.root)
    assert (unnamed_sweep(core).sweep(), core.on_disk()) == (0, kept)


def test_a_sweep_looks_only_at_files_of_times_that_it_has_not_covered_yet(core: Core) -> None:
    age_files(core.root)
    sweeping = unnamed_sweep(core)
    sweeping.sweep()
    left = crash_during_commit(core)
    age_files(core.root)
    assert (sweeping.sweep(), left.exists()) == (0, True)
    assert (unnamed_sweep(core).sweep(), left.exists()) == (1, False)


def test_a_served_steward_sweeps_unnamed_files_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "TIDY_SECONDS", 0.01)
    with memory_folder() as folder, lake_at(folder) as lake:
        producer = lake.caller()
        producer.make("t")
        point = fault.armed("catalog.after_metadata_file", fault.Raise(KeyError()))
        with point:
            assert producer.commit("t", [{"action": "set-properties", "updates": {"a": "b"}}]).status_code == 500
        left = list((folder / "catalog").rglob("00001-*"))
        age_files(folder / "catalog")
        lake.steward.stand.notary.catalog.unnamed_sweep._checked_until_seconds = 0.0  # as a day later
        ends = time.monotonic() + 20
        while [path for path in left if path.exists()] and time.monotonic() < ends:
            time.sleep(0.02)
        assert (len(left), [path for path in left if path.exists()]) == (1, [])
        producer.done("GET", "/namespaces/sales/tables/t")
