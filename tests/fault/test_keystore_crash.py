"""A keystore whose writer dies at any point is the old one or the new one, whole, and can be used at once."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from pvdm.errors import UnavailableError
from pvdm.model.statements.epoch import EpochStage
from pvdm.trust.keys.file import create_file_keys, open_file_keys
from tests.support import fault
from tests.support.steward.keys import keystore, left_over

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from pathlib import Path
from tests.support import fault
from pvdm.trust.keys.file import open_file_keys
service = open_file_keys(Path(sys.argv[1]))
fault.arm(sys.argv[2], fault.Exit())
service.create_epoch("dies on the way")
"""


def die_at(point: str, path: Path) -> None:
    """Create an epoch in a new process, which ends at the point."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), point], cwd=ROOT, capture_output=True, check=False
    )
    assert ended.returncode == fault.EXIT_CODE, ended.stderr.decode()


@pytest.mark.parametrize(
    ("point", "epochs"), [("keys.after_make", [1]), ("keys.disk.after_temp", [1]), ("keys.disk.after_rename", [1, 2])]
)
def test_after_a_crash_the_old_or_the_new_book_is_there(tmp_path: Path, point: str, epochs: list[int]) -> None:
    path = tmp_path / "keys.json"
    keystore(path)
    die_at(point, path)
    assert [epoch.number for epoch in open_file_keys(path).book().epochs] == epochs


def test_a_crash_leaves_its_temporary_file_behind(tmp_path: Path) -> None:
    """Shows that the next test has something to clean up."""
    path = tmp_path / "keys.json"
    keystore(path)
    die_at("keys.disk.after_temp", path)
    assert len(left_over(tmp_path)) == 1


def test_the_next_writer_removes_what_a_crash_left(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    keystore(path)
    die_at("keys.disk.after_temp", path)
    open_file_keys(path).create_epoch("again")
    assert left_over(tmp_path) == []


def test_a_failed_write_while_the_keystore_is_created_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    broken = fault.armed("keys.disk.after_temp", fault.Raise(OSError(errno.EIO, "Input/output error")))
    with broken, pytest.raises(UnavailableError) as caught:
        create_file_keys(path)
    assert (caught.value.reason, path.exists(), left_over(tmp_path)) == ("key_file_unavailable", False, [])


def test_a_failed_write_changes_nothing_in_memory_either(tmp_path: Path) -> None:
    service = keystore(tmp_path / "keys.json")
    full = fault.armed("keys.disk.after_temp", fault.Raise(OSError(errno.ENOSPC, "No space left on device")))
    with full, pytest.raises(UnavailableError):
        service.revoke_epoch(1, "leaked")
    assert service.book().epoch(1).state is EpochStage.ACTIVE


def test_a_change_that_was_interrupted_before_its_folder_was_synced_is_seen_by_the_same_process(tmp_path: Path) -> None:
    service = keystore(tmp_path / "keys.json")
    with fault.armed("keys.disk.after_rename", fault.Raise(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
        service.revoke_epoch(1, "leaked")
    assert service.book().epoch(1).state is EpochStage.REVOKED
