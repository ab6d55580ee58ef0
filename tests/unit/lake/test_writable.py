"""The check whether the Steward's folders can be written: it finds full, read-only and missing folders."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pvdm.errors import UnavailableError
from pvdm.lake.stores.health import FolderHealth


def refusal_of(health: FolderHealth) -> tuple[str, str | None]:
    with pytest.raises(UnavailableError) as caught:
        health.require()
    return caught.value.reason, caught.value.got


def test_the_check_leaves_no_file_in_a_writable_folder(tmp_path: Path) -> None:
    FolderHealth({tmp_path: lambda: True}).require()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("call", ["open", "write", "fsync"])
def test_a_folder_that_cannot_be_written_is_reported_with_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, call: str
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        found = refusal_of(FolderHealth({tmp_path: lambda: True}))
    assert found == ("steward_folder_unwritable", os.strerror(number))
    assert list(tmp_path.iterdir()) == []


def test_a_used_folder_that_does_not_exist_is_missing(tmp_path: Path) -> None:
    folder = tmp_path / "metadata"
    assert refusal_of(FolderHealth({folder: lambda: True})) == ("steward_folder_missing", "none")


def test_a_folder_that_was_never_used_may_be_missing(tmp_path: Path) -> None:
    FolderHealth({tmp_path / "a" / "b": lambda: False}).require()
    assert list(tmp_path.iterdir()) == []


def test_a_result_is_cached_for_five_seconds(tmp_path: Path) -> None:
    now = [0.0]
    folder = tmp_path / "metadata"
    health = FolderHealth({folder: lambda: True}, clock=lambda: now[0])
    assert refusal_of(health)[0] == "steward_folder_missing"
    folder.mkdir()
    now[0] = 4.9
    assert refusal_of(health)[0] == "steward_folder_missing"
    now[0] = 5.0
    health.require()


def test_a_folder_that_was_removed_after_the_last_check_is_missing(tmp_path: Path) -> None:
    folder = tmp_path / "warehouse"
    folder.mkdir()
    times = iter((0.0, 0.0, 10.0, 10.0))
    health = FolderHealth({folder: lambda: False}, clock=lambda: next(times))
    health.require()
    folder.rmdir()
    assert refusal_of(health) == ("steward_folder_missing", "none")
