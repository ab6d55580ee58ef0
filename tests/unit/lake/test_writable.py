"""Whether the Steward's folders take a file: asked for readiness, and honest about full, read-only and missing ones."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pvdm.errors import UnavailableError
from pvdm.lake.stores.health import FolderHealth


def refused(writable: FolderHealth) -> tuple[str, str | None]:
    with pytest.raises(UnavailableError) as caught:
        writable.require()
    return caught.value.reason, caught.value.got


def test_a_folder_that_takes_a_file_is_left_as_it_was(tmp_path: Path) -> None:
    FolderHealth({tmp_path: lambda: True}).require()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("call", ["open", "write", "fsync"])
def test_a_folder_that_takes_no_file_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, call: str
) -> None:
    def fails(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fails)
        found = refused(FolderHealth({tmp_path: lambda: True}))
    assert found == ("steward_folder_unwritable", os.strerror(number))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_used_and_is_not_there_is_missing(tmp_path: Path) -> None:
    moved = tmp_path / "metadata"
    assert refused(FolderHealth({moved: lambda: True})) == ("steward_folder_missing", "none")


def test_a_folder_that_nothing_used_yet_need_not_be_there(tmp_path: Path) -> None:
    FolderHealth({tmp_path / "a" / "b": lambda: False}).require()
    assert list(tmp_path.iterdir()) == []


def test_one_answer_serves_everybody_for_five_seconds(tmp_path: Path) -> None:
    now = [0.0]
    folder = tmp_path / "metadata"
    writable = FolderHealth({folder: lambda: True}, clock=lambda: now[0])
    assert refused(writable)[0] == "steward_folder_missing"
    folder.mkdir()
    now[0] = 4.9
    assert refused(writable)[0] == "steward_folder_missing"
    now[0] = 5.0
    writable.require()


def test_a_folder_that_was_there_once_is_missing_when_it_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "warehouse"
    folder.mkdir()
    times = iter((0.0, 0.0, 10.0, 10.0))
    writable = FolderHealth({folder: lambda: False}, clock=lambda: next(times))
    writable.require()
    folder.rmdir()
    assert refused(writable) == ("steward_folder_missing", "none")
