"""Old metadata files (documents) of a protected table are removed as soon as nothing needs them, and no sooner."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm.catalog.cleanup import RetentionSweep
from pvdm.catalog.commit import Commits
from pvdm.catalog.state import TableState
from pvdm.errors import UnavailableError
from pvdm.lake.files import MetadataFiles, file_name
from pvdm.ledger.record import restores
from tests.support.catalog.core import OPERATOR, Core, core_in, to_ref

LOG_LENGTH = 100  # Iceberg's default length of a metadata log


@pytest.fixture
def core(tmp_path: Path, migrated_file: Path) -> Iterator[Core]:
    with core_in(tmp_path, migrated_file) as made:
        yield made


def stage(core: Core, count: int) -> TableState:
    """Commit `count` snapshots to a branch, one each millisecond."""
    for _ in range(count):
        core.micros += 1_000
        found = core.staged()
    return found


def publish(core: Core) -> TableState:
    """Commit to main with a permit, as the gate does."""
    core.micros += 1_000
    base = core.get().metadata
    updates = to_ref("main", core.snapshot(base, **{"parent-snapshot-id": base.current_snapshot_id}))
    return core.commit("orders", updates, by=OPERATOR, permit=core.permit_for("orders", updates))


def list_documents(state: TableState) -> set[str]:
    """The names of the table's current document and of the documents in its metadata log."""
    return {
        file_name(each)
        for each in (state.row.pointer.location, *(e.metadata_file for e in state.metadata.metadata_log))
    }


def test_documents_that_fall_out_of_the_log_are_removed_once_main_has_changed(core: Core) -> None:
    core.table()
    stage(core, 10)
    published = publish(core)
    after = stage(core, LOG_LENGTH)
    assert core.on_disk() == list_documents(after)
    assert len(list_documents(after)) == LOG_LENGTH + 1
    assert file_name(published.row.pointer.location) in list_documents(after)


def test_the_document_of_the_newest_publication_stays_after_many_later_stagings(core: Core) -> None:
    core.table()
    published = publish(core)
    after = stage(core, LOG_LENGTH + 20)
    assert file_name(published.row.pointer.location) not in list_documents(after)
    assert file_name(published.row.pointer.location) in core.on_disk()


def test_documents_of_a_table_that_is_not_protected_stay(core: Core) -> None:
    core.table(protected=False)
    stage(core, LOG_LENGTH + 10)
    assert len(core.on_disk()) == LOG_LENGTH + 12


def test_the_log_has_the_length_that_the_table_property_sets(core: Core) -> None:
    core.table(protected=False)
    core.commit(
        "orders",
        [{"action": "set-properties", "updates": {"write.metadata.previous-versions-max": "3"}}],
        by=OPERATOR,
    )
    core.protect()
    publish(core)
    after = stage(core, 5)
    assert len(list_documents(after)) == 4
    publish(core)
    after = stage(core, 5)
    assert len(core.on_disk() & list_documents(after)) == 4


def test_a_file_that_is_not_the_stewards_own_is_never_removed(core: Core, tmp_path: Path) -> None:
    state = core.table()
    files = MetadataFiles(core.root)
    foreign = tmp_path / f"00001-{'a' * 32}.metadata.json"
    other = core.root / state.row.table_uuid / "notes.metadata.json"
    for path in (foreign, other):
        path.write_text("{}")
        files.remove_old(state.row.table_uuid, f"file://{path}")
        assert path.exists()


@pytest.fixture
def leftovers(core: Core, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of unneeded documents that could not be removed when they fell out of the log."""

    def fail(*_: object) -> None:
        raise UnavailableError("metadata_files_unavailable", "the disk does not answer")

    core.table()
    publish(core)
    with monkeypatch.context() as patched:
        patched.setattr(MetadataFiles, "remove_old", fail)
        stage(core, LOG_LENGTH)
        publish(core)
    stage(core, 5)
    return core.on_disk() - list_documents(core.get())


def test_documents_that_could_not_be_removed_are_removed_by_the_sweep(core: Core, leftovers: set[str]) -> None:
    assert leftovers
    sweep = RetentionSweep(core.ledger, core.states, core.files)
    assert (sweep.sweep(), sweep.sweep()) == (len(leftovers), 0)
    assert core.on_disk() == list_documents(core.get())


def test_the_sweep_removes_nothing_after_a_restore_of_the_ledger(
    core: Core, leftovers: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restores, "find_newest_micros", lambda _: 1)
    assert RetentionSweep(core.ledger, core.states, core.files).sweep() == 0
    assert leftovers <= core.on_disk()


def keep_for(core: Core, seconds: int) -> None:
    """Make commits keep each document for `seconds` after it was written."""
    core.commits = Commits(core.ledger, core.clock, core.files, core.states, core.access, metadata_kept_seconds=seconds)


def test_documents_stay_until_they_are_old_enough(core: Core) -> None:
    keep_for(core, 60)
    core.table()
    stage(core, LOG_LENGTH)
    publish(core)
    stage(core, 10)
    not_needed = core.on_disk() - list_documents(core.get())
    assert len(not_needed) == 12  # of 113; the table names 101
    assert RetentionSweep(core.ledger, core.states, core.files, kept_seconds=3_600).sweep() == 0
    long_ago = time.time() - 3_601
    for name in not_needed:
        os.utime(core.root / core.get().row.table_uuid / name, (long_ago, long_ago))
    assert RetentionSweep(core.ledger, core.states, core.files, kept_seconds=3_600).sweep() == len(not_needed)
    assert core.on_disk() == list_documents(core.get())


def test_a_commit_removes_documents_that_are_old_enough(core: Core) -> None:
    keep_for(core, 60)
    core.table()
    stage(core, LOG_LENGTH)
    publish(core)
    core.micros += 61 * 1_000_000
    before = core.on_disk()
    stage(core, 10)
    assert len(before - core.on_disk()) == 10
