"""Metadata files: synced when a write returns, refused if they were changed, and read in the Steward's folder only."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from pvdm.errors import PvdmError, UnavailableError, VerificationError
from pvdm.lake.files import MetadataFiles
from pvdm.lake.paths import Pointer

UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"


@pytest.fixture
def files(tmp_path: Path) -> MetadataFiles:
    return MetadataFiles(tmp_path / "deep" / "metadata")


def path_of(stored: Pointer) -> Path:
    return Path(stored.location.removeprefix("file://"))


def test_a_written_file_is_read_back(files: MetadataFiles) -> None:
    stored = files.write(UUID, 7, b"document")
    assert (files.read(stored), stored.sha256) == (b"document", hashlib.sha256(b"document").hexdigest())


def test_a_file_name_has_the_revision_and_is_unique(files: MetadataFiles) -> None:
    one, two = files.write(UUID, 7, b"x"), files.write(UUID, 7, b"x")
    assert one.location != two.location
    assert path_of(one).name.startswith("00007-")
    assert path_of(one).name.endswith(".metadata.json")


def test_only_the_file_itself_is_left_behind(files: MetadataFiles) -> None:
    stored = files.write(UUID, 0, b"x")
    assert list(path_of(stored).parent.iterdir()) == [path_of(stored)]


def test_file_and_every_new_folder_are_synced_before_the_call_returns(
    files: MetadataFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def record_sync(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        real(handle)

    monkeypatch.setattr(os, "fsync", record_sync)
    files.write(UUID, 0, b"x")
    assert [name for name in synced if not name.startswith(".pvdm-new-")] == [tmp_path.name, "deep", "metadata", UUID]
    assert synced[-2].startswith(".pvdm-new-")


def test_an_edited_file_is_refused(files: MetadataFiles) -> None:
    stored = files.write(UUID, 0, b"document")
    path_of(stored).write_bytes(b"Document")
    with pytest.raises(VerificationError) as caught:
        files.read(stored)
    assert caught.value.reason == "metadata_file_changed"


def test_a_file_above_the_limit_is_refused_and_not_cut(files: MetadataFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pvdm.lake.files._READ_MAX_BYTES", 8)
    assert files.read_unchecked(files.write(UUID, 0, b"document")) == b"document"
    for size in (9, 10):
        stored = files.write(UUID, 0, bytes(size))
        for read in (files.read, files.read_unchecked):
            with pytest.raises(VerificationError) as caught:
                read(stored)
            assert (caught.value.reason, caught.value.expected) == ("metadata_file_changed", "at most 8 bytes")


def test_a_missing_file_is_refused(files: MetadataFiles) -> None:
    stored = files.write(UUID, 0, b"document")
    path_of(stored).unlink()
    with pytest.raises(VerificationError) as caught:
        files.read(stored)
    assert caught.value.reason == "metadata_file_missing"


def test_a_file_outside_the_stewards_place_is_refused(files: MetadataFiles, tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.metadata.json"
    path.write_bytes(b"x")
    with pytest.raises(VerificationError) as caught:
        files.read(Pointer(f"file://{path}", hashlib.sha256(b"x").hexdigest()))
    assert caught.value.reason == "metadata_file_foreign"


@pytest.mark.parametrize("which", ["file", "folder"])
def test_a_link_in_the_stewards_place_is_refused(files: MetadataFiles, tmp_path: Path, which: str) -> None:
    stored = files.write(UUID, 0, b"x")
    linked = path_of(stored) if which == "file" else path_of(stored).parent
    linked.rename(tmp_path / "moved")
    linked.symlink_to(tmp_path / "moved")
    for use in (files.read, files.remove):
        with pytest.raises(VerificationError) as caught:
            use(stored)
        assert caught.value.reason == "metadata_file_foreign"


def test_a_removed_file_is_gone_and_may_be_removed_again(files: MetadataFiles) -> None:
    stored = files.write(UUID, 0, b"x")
    files.remove(stored)
    files.remove(stored)
    assert not path_of(stored).exists()


def test_a_named_file_is_written_once(files: MetadataFiles) -> None:
    stored = files.write_named(UUID, "sight.metadata.json", b"x")
    before = path_of(stored).stat().st_ino
    assert files.write_named(UUID, "sight.metadata.json", b"x") == stored
    assert path_of(stored).stat().st_ino == before


def test_a_named_file_that_was_edited_is_written_again(files: MetadataFiles) -> None:
    stored = files.write_named(UUID, "sight.metadata.json", b"x")
    path_of(stored).write_bytes(b"edited")
    assert files.read(files.write_named(UUID, "sight.metadata.json", b"x")) == b"x"


def test_a_full_disk_is_unavailable_and_leaves_nothing(files: MetadataFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = path_of(files.write(UUID, 0, b"x"))

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UnavailableError) as caught:
        files.write(UUID, 1, b"y")
    assert caught.value.reason == "metadata_files_unavailable"
    assert list(earlier.parent.iterdir()) == [earlier]


@pytest.mark.parametrize("use", ["read", "remove"])
def test_a_file_that_cannot_be_reached_is_unavailable(files: MetadataFiles, use: str) -> None:
    stored = files.write(UUID, 0, b"x")
    path_of(stored).unlink()
    path_of(stored).mkdir()
    with pytest.raises(PvdmError) as caught:
        getattr(files, use)(stored)
    assert caught.value.reason == "metadata_files_unavailable"
