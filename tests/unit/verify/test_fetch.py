"""Reading files from a disk: folders, pipes, links and sockets are refused as a fault of the file."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pvdm.errors import VerificationError
from pvdm.lake.paths import parse_location
from pvdm.lake.stores.stores import Stores
from pvdm.verify.fetch import Files, HashedFile


def make_link(path: Path) -> None:
    other = path.with_suffix(".other")
    other.write_bytes(b"x")
    path.symlink_to(other)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(
    "make", [Path.mkdir, os.mkfifo, make_link, make_socket], ids=["folder", "fifo", "link", "socket"]
)
def test_reading_something_other_than_a_plain_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket has to be short
    make(Path("a.parquet"))
    location = f"file://{tmp_path}/a.parquet"
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    for call in (
        lambda: Files().hash(location),
        lambda: Files().fetch_frozen(HashedFile(location, 1, "0" * 64)),
        lambda: Files().read_end(location, 8),
        lambda: Files().read(location, max_bytes=8),
    ):
        with pytest.raises(VerificationError) as caught:
            call()
        assert caught.value.reason == "file_not_plain"
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before, "no descriptor stays open"


def test_a_plain_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"abc")
    assert Files().fetch(f"file://{path}").data == b"abc"


@pytest.mark.parametrize("behind_a_link", [False, True], ids=["plain warehouse", "warehouse behind a link"])
def test_no_link_to_a_folder_below_the_warehouse_is_followed(tmp_path: Path, behind_a_link: bool) -> None:
    (tmp_path / "disk" / "risk" / "data").mkdir(parents=True)
    (tmp_path / "disk" / "risk" / "data" / "a.parquet").write_bytes(b"abc")
    (tmp_path / "disk" / "way").symlink_to("risk")
    warehouse = tmp_path / "disk"
    if behind_a_link:
        warehouse = tmp_path / "warehouse"
        warehouse.symlink_to("disk")
    files = Files(Stores(warehouse=parse_location(str(warehouse))))
    location = f"file://{warehouse}/way/data/a.parquet"
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    for call in (
        lambda: files.hash(location),
        lambda: files.fetch_frozen(HashedFile(location, 3, hashlib.sha256(b"abc").hexdigest())),
        lambda: files.read_end(location, 2),
        lambda: files.read(location, max_bytes=8),
    ):
        with pytest.raises(VerificationError) as caught:
            call()
        assert caught.value.reason == "file_not_plain"
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before, "no descriptor stays open"
    assert files.fetch(f"file://{warehouse}/risk/data/a.parquet").data == b"abc"
    (tmp_path / "outside").symlink_to("disk")
    assert files.fetch(f"file://{tmp_path}/outside/risk/data/a.parquet").data == b"abc", "as an operator has set it up"
