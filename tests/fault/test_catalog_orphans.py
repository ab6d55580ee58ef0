"""What crashes leave in the Steward's own place is found and, once old, removed; what a pointer ever named stays."""

from __future__ import annotations

import os
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm.catalog import cleanup
from pvdm.catalog.cleanup import ORPHAN_AGE_MIN_SECONDS, OrphanSweep
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
    """The end of a process, after which nothing is cleaned."""


@pytest.fixture
def core(tmp_path: Path, migrated_url: str) -> Iterator[Core]:
    with core_at(tmp_path, migrated_url) as made:
        made.table()
        yield made


def desk(core: Core, root: Path | None = None) -> OrphanSweep:
    return OrphanSweep(core.ledger, core.clock, MetadataFiles(root or core.root))


def died(core: Core, point: str = POINTS[-1]) -> Path:
    """What a Steward leaves that dies while it commits."""
    before = set(core.root.rglob("*"))
    with fault.armed(point, fault.Raise(DiedError())), pytest.raises(DiedError):
        core.staged()
    (left,) = set(core.root.rglob("*")) - before
    return left


def age(root: Path, seconds: float = ORPHAN_AGE_MIN_SECONDS + 60) -> None:
    """Let every file look as if it had been written so long ago."""
    for path in root.rglob("*"):
        os.utime(path, (time.time() - seconds,) * 2)


@pytest.mark.parametrize("point", POINTS)
def test_what_a_crash_leaves_is_seen_at_once_and_removed_when_it_is_old(core: Core, point: str) -> None:
    left = died(core, point)
    core.staged()
    unnamed = [each.location for found in desk(core)._find_between(0.0, time.time()) for each in found.files]
    assert unnamed == [f"file://{left}"]
    assert (desk(core).sweep(), left.exists()) == (0, True), "it may still be somebody's new document"
    kept = core.on_disk() - {left.name}
    age(core.root)
    assert (desk(core).sweep(), core.on_disk()) == (1, kept)


def test_whatever_a_pointer_ever_named_stays(core: Core) -> None:
    """Its history, what it showed when it was dropped, and all of it when it came back."""
    for branch in ("a", "b", "c"):
        core.staged(branch=branch)
    core.table("gone")
    row = core.get("gone").row
    core.ledger.transact(lambda unit: tables.drop(unit, row), at_micros=core.micros)
    kept = core.on_disk()
    age(core.root)
    assert (desk(core).sweep(), core.on_disk()) == (0, kept)


def test_a_place_that_is_reached_by_another_path_loses_nothing(core: Core) -> None:
    kept = core.on_disk()
    moved = core.root.rename(core.folder / "elsewhere")
    age(moved)
    assert desk(core, moved).sweep() == 0
    assert {path.name for path in moved.rglob("*") if path.is_file()} == kept


def test_the_folder_of_a_table_that_this_ledger_does_not_know_is_left_alone(core: Core) -> None:
    foreign = MetadataFiles(core.root).write("11111111-2222-3333-4444-555555555555", 0, b"{}")
    age(core.root)
    assert desk(core).sweep() == 0
    assert Path(foreign.location.removeprefix("file://")).exists()


@pytest.mark.parametrize("restored_days_ago", [0, 30])
def test_nothing_of_a_ledger_that_was_restored_goes_since_a_lost_pointer_may_have_named_it(
    core: Core, restored_days_ago: int
) -> None:
    """Whatever times its files have: their host's clock may have been ahead of the ledger's."""
    left = died(core)

    def restored(unit: Unit) -> None:
        restores.begin(unit, Restore(1, "operator-ruth", "the disk was lost", 0, b"", 1, (), {}))
        restores.finish(unit, 1)

    core.ledger.transact(restored, at_micros=int(time.time() - restored_days_ago * 86_400) * 1_000_000)
    age(core.root)
    assert (desk(core).sweep(), left.exists()) == (0, True)


def test_a_commit_that_slept_until_its_file_was_swept_writes_another(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another Steward, whose clock is ahead, sweeps what looks like a crash's; whoever wakes up points to another."""
    later = types.SimpleNamespace(time=lambda: time.time() + 2 * ORPHAN_AGE_MIN_SECONDS)
    swept: list[int] = []

    def sleep() -> None:
        monkeypatch.setattr(cleanup, "time", time if swept else later)
        swept.append(desk(core).sweep())

    with fault.armed("catalog.after_metadata_file", fault.Call(sleep)):
        state = core.staged()
    assert swept == [1, 0]
    assert core.fresh().get().row == state.row


def test_a_table_that_comes_back_does_not_point_to_a_swept_file_either(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row is not there while its file waits, so nothing of the row could tell that it was swept."""
    state = core.table("gone", protected=False)
    core.ledger.transact(lambda unit: tables.drop(unit, state.row), at_micros=core.micros)
    later = types.SimpleNamespace(time=lambda: time.time() + 2 * ORPHAN_AGE_MIN_SECONDS)
    swept: list[int] = []

    def sleep() -> None:
        monkeypatch.setattr(cleanup, "time", later)
        swept.append(desk(core).sweep())

    home = core.get_namespace()
    with fault.armed("catalog.after_metadata_file", fault.Call(sleep)), pytest.raises(ConflictError) as caught:
        core.commits.create(OPERATOR, home, "gone", state.metadata, may_reuse_uuid=True)
    assert (swept, caught.value.reason) == ([1], "table_moved")


def test_a_swap_that_has_begun_is_waited_for_and_its_file_stays(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    later = types.SimpleNamespace(time=lambda: time.time() + 2 * ORPHAN_AGE_MIN_SECONDS)
    monkeypatch.setattr(cleanup, "time", later)
    swept: list[int] = []
    sweeping = threading.Thread(target=lambda: swept.append(desk(core).sweep()))

    def meanwhile() -> None:
        if not sweeping.ident:
            sweeping.start()
            sweeping.join(0.5)
            assert sweeping.is_alive()

    with fault.armed("ledger.before_commit", fault.Call(meanwhile)):
        state = core.staged()
        sweeping.join(30)
    assert (swept, core.fresh().get().row) == ([0], state.row)


def test_a_file_is_removed_only_when_the_ledger_has_it_as_doomed(core: Core) -> None:
    """A sweep that cannot say so, or is not sure that it did, removes nothing."""
    left = died(core)
    age(core.root)
    for point in ("ledger.before_commit", "ledger.after_commit"):
        with fault.armed(point, fault.Raise(DiedError())), pytest.raises(DiedError):
            desk(core).sweep()
        assert left.exists()
    assert (desk(core).sweep(), left.exists()) == (1, False)


def test_what_came_to_be_shown_while_the_history_was_read_stays(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is doomed is judged again under the table's lock."""
    monkeypatch.setattr(OrphanSweep, "_collect_all_named", lambda *_: 0)
    kept = core.on_disk()
    age(core.root)
    assert (desk(core).sweep(), core.on_disk()) == (0, kept)


def test_a_sweep_judges_what_it_has_judged_no_second_time(core: Core) -> None:
    age(core.root)
    sweeping = desk(core)
    sweeping.sweep()
    left = died(core)
    age(core.root)
    assert (sweeping.sweep(), left.exists()) == (0, True)
    assert (desk(core).sweep(), left.exists()) == (1, False)


def test_a_served_steward_tidies_up_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "TIDY_SECONDS", 0.01)
    with memory_folder() as folder, lake_at(folder) as lake:
        producer = lake.caller()
        producer.make("t")
        point = fault.armed("catalog.after_metadata_file", fault.Raise(KeyError()))
        with point:
            assert producer.commit("t", [{"action": "set-properties", "updates": {"a": "b"}}]).status_code == 500
        left = list((folder / "catalog").rglob("00001-*"))
        age(folder / "catalog")
        lake.steward.stand.notary.catalog.orphan_sweep._checked_until_seconds = 0.0  # as a day later
        ends = time.monotonic() + 20
        while [path for path in left if path.exists()] and time.monotonic() < ends:
            time.sleep(0.02)
        assert (len(left), [path for path in left if path.exists()]) == (1, [])
        producer.done("GET", "/namespaces/sales/tables/t")
