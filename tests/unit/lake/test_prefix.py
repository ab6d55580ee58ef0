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
    made = tmp_path / "table" / "pvdm" / "attempt"
    (made / "data").mkdir(parents=True)
    (made / "data" / "a").write_text("12345")
    (made / "b").write_text("1")
    (tmp_path / "table" / "live").write_text("live")
    return made


def at(path: Path) -> Location:
    return parse_location(str(path))


def prefix(folder: Path) -> Prefix:
    return prefix_at(at(folder.parents[2]), at(folder))


def test_every_file_is_listed_with_its_size(folder: Path) -> None:
    assert [(left.location, left.size) for left in prefix(folder).files()] == [
        (at(folder / "b"), 1),
        (at(folder / "data" / "a"), 5),
    ]


def test_a_folder_that_is_not_there_holds_nothing(folder: Path) -> None:
    gone = prefix_at(at(folder.parents[2]), at(folder / "other"))
    assert gone.files() == []
    assert gone.remove(at(folder / "other" / "a")) is False
    gone.remove_empty()


def test_a_file_is_removed_once(folder: Path) -> None:
    assert prefix(folder).remove(at(folder / "b")) is True
    assert prefix(folder).remove(at(folder / "b")) is False
    assert not (folder / "b").exists()


@pytest.mark.parametrize("outside", ["../../live", "..", "."])
def test_what_lies_outside_is_refused(folder: Path, outside: str) -> None:
    target = at(Path(os.path.normpath(folder / outside)))
    with pytest.raises(NotAllowedError) as caught:
        prefix(folder).remove(target)
    assert caught.value.reason == "file_not_own"
    assert (folder.parents[1] / "live").exists()


def test_a_folder_of_a_like_name_is_another_one(folder: Path) -> None:
    other = folder.with_name("attempt-2")
    other.mkdir()
    (other / "a").write_text("kept")
    with pytest.raises(NotAllowedError):
        prefix(folder).remove(at(other / "a"))


@pytest.mark.parametrize("root", ["same", "below"])
def test_the_whole_place_is_never_a_prefix(folder: Path, root: str) -> None:
    with pytest.raises(NotAllowedError) as caught:
        prefix_at(at(folder if root == "same" else folder / "data"), at(folder))
    assert caught.value.reason == "prefix_outside"


def test_a_linked_folder_is_listed_as_a_link_and_its_files_are_not(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    (folder / "link").symlink_to(outside)
    assert at(folder / "link") in [left.location for left in prefix(folder).files()]
    assert prefix(folder).remove(at(folder / "link" / "file")) is False
    assert prefix(folder).remove(at(folder / "link")) is True
    assert (outside / "file").read_text() == "kept"


def test_no_link_on_the_way_is_gone_through(folder: Path) -> None:
    real = folder.parent.with_name("elsewhere")
    folder.parent.rename(real)
    folder.parent.symlink_to(real)
    assert prefix(folder).files() == []
    assert prefix(folder).remove(at(folder / "b")) is False
    prefix(folder).remove_empty()
    assert (real / "attempt" / "b").exists()


def test_empty_folders_go_and_others_stay(folder: Path) -> None:
    (folder / "empty" / "deeper").mkdir(parents=True)
    prefix(folder).remove_empty()
    assert not (folder / "empty").exists()
    assert (folder / "data" / "a").exists()
    prefix(folder).remove(at(folder / "b"))
    prefix(folder).remove(at(folder / "data" / "a"))
    prefix(folder).remove_empty()
    assert not folder.exists()
    assert folder.parent.exists()


def test_a_folder_in_the_place_of_a_file_is_not_removed(folder: Path) -> None:
    assert prefix(folder).remove(at(folder / "data")) is False
    assert (folder / "data" / "a").exists()


def test_a_new_file_is_written_with_its_folders(folder: Path) -> None:
    made = prefix(folder)
    made.write(at(folder / "new" / "deep" / "file"), b"data")
    made.write(at(folder / "new" / "deep" / "file"), b"data")
    assert (folder / "new" / "deep" / "file").read_bytes() == b"data"


def test_a_file_that_lies_there_is_never_written_over(folder: Path) -> None:
    with pytest.raises(VerificationError) as caught:
        prefix(folder).write(at(folder / "b"), b"other")
    assert caught.value.reason == "file_differs"
    assert (folder / "b").read_text() == "1"


def test_nothing_is_written_outside_or_over_a_link(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "file").symlink_to(outside / "file")
    with pytest.raises(NotAllowedError):
        prefix(folder).write(at(outside / "file"), b"data")
    for path in (folder / "link" / "file", folder / "file"):
        with pytest.raises(UnavailableError):
            prefix(folder).write(at(path), b"data")
    assert list(outside.iterdir()) == []
