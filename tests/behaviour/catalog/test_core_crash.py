"""A crash at each step of a commit: no pointer to a missing file, no half commit, and the next commit succeeds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm.catalog.commit import Change
from pvdm.errors import PvdmError, StateUnknownError
from pvdm.ledger.catalog import tables
from tests.support import fault
from tests.support.catalog.core import FIRST, PRODUCER, SALES, Core, core_at, set_ref

# Whether a commit has happened after a crash at each fault point.
POINTS = {
    "catalog.after_metadata_file": False,
    "ledger.before_commit": False,
    "ledger.after_commit": True,
    "catalog.after_swap": True,
}
BOTH = [Change(SALES, name, (), [set_ref("mine", FIRST)]) for name in ("one", "two")]


@pytest.fixture
def core(tmp_path: Path, migrated_url: str) -> Iterator[Core]:
    with core_at(tmp_path, migrated_url) as made:
        made.table("one")
        made.table("two")
        yield made


def crash_at(core: Core, point: str, passes: int = 0) -> None:
    """Commit in a child process that ends at the fault point, as if its power were cut."""
    child = os.fork()
    if child == 0:
        fault.arm(point, fault.Exit(), passes=passes)
        try:
            core.commits.commit(PRODUCER, BOTH)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == fault.EXIT_CODE


def has_branch(core: Core) -> set[bool]:
    """Whether each table has the branch; the set has one member if both tables agree."""
    again = core.fresh()
    return {"mine" in again.get(name).metadata.refs for name in ("one", "two")}


def require_valid_pointers(core: Core) -> None:
    """Require that every pointer names a file that exists and has the pointer's SHA-256."""
    with core.ledger.read() as unit:
        rows = tables.list_live(unit)
    for row in rows:
        core.files.read(row.pointer)


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_leaves_all_tables_changed_or_none(core: Core, point: str) -> None:
    crash_at(core, point)
    assert has_branch(core) == {POINTS[point]}
    require_valid_pointers(core)


def test_a_crash_between_two_files_changes_nothing(core: Core) -> None:
    crash_at(core, "catalog.after_metadata_file", passes=1)
    assert has_branch(core) == {False}
    require_valid_pointers(core)


@pytest.mark.parametrize("point", POINTS)
def test_after_a_crash_the_same_commit_leads_to_the_same_state(core: Core, point: str) -> None:
    crash_at(core, point)
    core.fresh().commits.commit(PRODUCER, BOTH)
    assert has_branch(core) == {True}
    assert core.get("one").row.revision == 3


@pytest.mark.parametrize("error", [StateUnknownError("commit_unknown", "no answer"), KeyboardInterrupt()])
@pytest.mark.parametrize("point", ["ledger.before_commit", "ledger.after_commit", "catalog.after_swap"])
def test_an_unknown_outcome_leaves_every_file(core: Core, point: str, error: BaseException) -> None:
    files = core.on_disk()
    with fault.armed(point, fault.Raise(error)), pytest.raises(type(error)):
        core.commits.commit(PRODUCER, BOTH)
    assert len(core.on_disk() - files) == 2
    assert has_branch(core) == {POINTS[point]}
    require_valid_pointers(core)


def test_an_error_after_the_swap_removes_no_file(core: Core) -> None:
    error = PvdmError("whatever", "something after the swap")
    with fault.armed("catalog.after_swap", fault.Raise(error)), pytest.raises(PvdmError):
        core.commits.commit(PRODUCER, BOTH)
    assert has_branch(core) == {True}
    require_valid_pointers(core)


@pytest.mark.parametrize("point", ["catalog.after_metadata_file", "ledger.before_commit", "ledger.after_commit"])
def test_a_crash_while_a_table_is_created_leaves_a_whole_table_or_none(core: Core, point: str) -> None:
    child = os.fork()
    if child == 0:
        fault.arm(point, fault.Exit())
        try:
            core.table("made", shown=False)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == fault.EXIT_CODE
    fresh = core.fresh()
    with fresh.ledger.read() as unit:
        found = tables.find_with_namespace(unit, SALES, "made")[1]
    assert (found is not None) == POINTS[point]
    require_valid_pointers(core)
