"""An attempt's own folder is listed, written and emptied, and no link leads out of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pvdm.errors import NotAllowedError, UnavailableError, VerificationError
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.prefix import Prefix, prefix_at


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "table" / "pvdm" / "attempt"
    (path / "data").mkdir(parents=True)
    (path / "data" / "a").write_text("12345")
    (path / "b").write_text("1")
    (tmp_path / "table" / "live").write_text("live")
    return path


def location_of(path: Path) -> Location:
    return parse_location(str(path))


def prefix(folder: Path) -> Prefix:
    return prefix_at(location_of(folder.parents[2]), location_of(folder))


def test_every_file_is_listed_with_its_size(folder: Path) -> None:
    assert [(file.location, file.size) for file in prefix(folder).files()] == [
        (location_of(folder / "b"), 1),
        (location_of(folder / "data" / "a"), 5),
    ]


def test_a_missing_folder_has_no_files(folder: Path) -> None:
    gone = prefix_at(location_of(folder.parents[2]), location_of(folder / "other"))
    assert gone.files() == []
    assert gone.remove(location_of(folder / "other" / "a")) is False
    gone.remove_empty()


def test_removing_a_file_again_returns_false(folder: Path) -> None:
    assert prefix(folder).remove(location_of(folder / "b")) is True
    assert prefix(folder).remove(location_of(folder / "b")) is False
    assert not (folder / "b").exists()


@pytest.mark.parametrize("outside", ["../../live", "..", "."])
def test_removing_a_file_outside_is_refused(folder: Path, outside: str) -> None:
    target = location_of(Path(os.path.normpath(folder / outside)))
    with pytest.raises(NotAllowedError) as caught:
        prefix(folder).remove(target)
    assert caught.value.reason == "file_not_own"
    assert (folder.parents[1] / "live").exists()


def test_removing_a_file_of_a_folder_with_a_similar_name_is_refused(folder: Path) -> None:
    other = folder.with_name("attempt-2")
    other.mkdir()
    (other / "a").write_text("kept")
    with pytest.raises(NotAllowedError):
        prefix(folder).remove(location_of(other / "a"))


@pytest.mark.parametrize("root", ["same", "below"])
def test_a_prefix_that_is_not_below_its_root_is_refused(folder: Path, root: str) -> None:
    with pytest.raises(NotAllowedError) as caught:
        prefix_at(location_of(folder if root == "same" else folder / "data"), location_of(folder))
    assert caught.value.reason == "prefix_outside"


def test_a_linked_folder_is_listed_as_a_link_and_its_files_are_not(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    (folder / "link").symlink_to(outside)
    assert location_of(folder / "link") in [file.location for file in prefix(folder).files()]
    assert prefix(folder).remove(location_of(folder / "link" / "file")) is False
    assert prefix(folder).remove(location_of(folder / "link")) is True
    assert (outside / "file").read_text() == "kept"


def test_a_link_above_the_folder_is_not_followed(folder: Path) -> None:
    real = folder.parent.with_name("elsewhere")
    folder.parent.rename(real)
    folder.parent.symlink_to(real)
    assert prefix(folder).files() == []
    assert prefix(folder).remove(location_of(folder / "b")) is False
    prefix(folder).remove_empty()
    assert (real / "attempt" / "b").exists()


def test_only_empty_folders_are_removed(folder: Path) -> None:
    (folder / "empty" / "deeper").mkdir(parents=True)
    prefix(folder).remove_empty()
    assert not (folder / "empty").exists()
    assert (folder / "data" / "a").exists()
    prefix(folder).remove(location_of(folder / "b"))
    prefix(folder).remove(location_of(folder / "data" / "a"))
    prefix(folder).remove_empty()
    assert not folder.exists()
    assert folder.parent.exists()


def test_entries_that_are_removed_while_empty_folders_are_removed_are_tolerated(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("empty")
    listdir = os.listdir

    def list_and_remove(opened: int) -> list[str]:
        """The names in the folder, of which the file `b` and the folder `late` are gone by now."""
        names = listdir(opened)
        (folder / "b").unlink(missing_ok=True)
        return [*names, "late"]

    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", list_and_remove)
        prefix(folder).remove_empty()
    assert sorted(each.name for each in folder.iterdir()) == ["data", "link"]


def test_removing_a_folder_as_a_file_returns_false(folder: Path) -> None:
    assert prefix(folder).remove(location_of(folder / "data")) is False
    assert (folder / "data" / "a").exists()


def test_a_new_file_is_written_with_its_folders(folder: Path) -> None:
    own = prefix(folder)
    own.write(location_of(folder / "new" / "deep" / "file"), b"data")
    own.write(location_of(folder / "new" / "deep" / "file"), b"data")
    assert (folder / "new" / "deep" / "file").read_bytes() == b"data"


def test_writing_other_bytes_to_an_existing_file_is_refused(folder: Path) -> None:
    with pytest.raises(VerificationError) as caught:
        prefix(folder).write(location_of(folder / "b"), b"other")
    assert caught.value.reason == "file_differs"
    assert (folder / "b").read_text() == "1"


def test_writing_outside_or_through_a_link_is_refused(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "file").symlink_to(outside / "file")
    with pytest.raises(NotAllowedError):
        prefix(folder).write(location_of(outside / "file"), b"data")
    for path in (folder / "link" / "file", folder / "file"):
        with pytest.raises(UnavailableError):
            prefix(folder).write(location_of(path), b"data")
    assert list(outside.iterdir()) == []
