"""Files as they are fetched from a disk: what is no plain file is a fact about it, whoever put it there."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pvdm.errors import VerificationError
from pvdm.verify.fetch import Files, HashedFile


def _link(path: Path) -> None:
    other = path.with_suffix(".other")
    other.write_bytes(b"x")
    path.symlink_to(other)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, _link, _socket], ids=["folder", "fifo", "link", "socket"])
def test_what_is_no_plain_file_is_a_fact_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    make(Path("a.parquet"))
    place = f"file://{tmp_path}/a.parquet"
    held = len(list(Path("/proc/self/fd").iterdir()))
    for ask in (
        lambda: Files().hash(place),
        lambda: Files().fetch_frozen(HashedFile(place, 1, "0" * 64)),
        lambda: Files().read_end(place, 8),
        lambda: Files().read(place, max_bytes=8),
    ):
        with pytest.raises(VerificationError) as caught:
            ask()
        assert caught.value.reason == "file_not_plain"
    assert len(list(Path("/proc/self/fd").iterdir())) == held, "no descriptor stays open"


def test_a_plain_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"abc")
    assert Files().fetch(f"file://{path}").data == b"abc"
