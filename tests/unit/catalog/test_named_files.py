"""The cache of the paths that manifest lists and manifests name: each file is read once, and paths have a limit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pvdm.catalog.references import NamedFiles


class Files:
    """Manifest lists and manifests, with the paths that each one names; `read` lists those that were read."""

    def __init__(self, **named: tuple[str, ...]) -> None:
        self.named = named
        self.read: list[str] = []

    def get(self, cache: NamedFiles, path: str) -> tuple[str, ...]:
        def read() -> Iterator[str]:
            self.read.append(path)
            yield from self.named[path]

        return cache.get(path, read)


def test_a_file_is_read_once() -> None:
    cache, files = NamedFiles(), Files(a=("x", "y"), b=("z",))
    assert [files.get(cache, path) for path in "aba"] == [("x", "y"), ("z",), ("x", "y")]
    assert files.read == ["a", "b"]


def test_the_least_recently_used_file_is_read_again() -> None:
    cache, files = NamedFiles(paths_max=5), Files(a=("x",), b=("y", "z"), c=("w",))
    for path in "abacab":
        assert files.get(cache, path) == files.named[path]
    assert files.read == ["a", "b", "c", "b"]


def test_a_file_that_names_more_than_the_limit_is_not_kept() -> None:
    cache, files = NamedFiles(paths_max=1), Files(a=("x", "y"))
    assert [files.get(cache, "a"), files.get(cache, "a")] == [("x", "y")] * 2
    assert files.read == ["a", "a"]


def test_a_file_that_could_not_be_read_is_read_again() -> None:
    cache, files = NamedFiles(), Files()
    for _ in range(2):
        with pytest.raises(KeyError):
            files.get(cache, "a")
    assert files.read == ["a", "a"]


def test_files_that_name_nothing_count_too() -> None:
    cache, files = NamedFiles(paths_max=2), Files(a=(), b=(), c=())
    for path in "abca":
        assert files.get(cache, path) == ()
    assert files.read == ["a", "b", "c", "a"]
