"""The cache of parsed files: files are found by their bytes, and kept up to a limit."""

from __future__ import annotations

import pytest

from pvdm.lake.format.manifest.cache import ParsedFiles


class CountingParser:
    """Parses data through the cache; `parsed` lists the data that was really parsed."""

    def __init__(self) -> None:
        self.parsed: list[bytes] = []

    def get(self, files: ParsedFiles[str], data: bytes, option: int = 0) -> str:
        def parse() -> str:
            self.parsed.append(data)
            return f"{data!r} {option}"

        return files.get(data, option, parse)


def test_the_same_bytes_are_parsed_once() -> None:
    files, parser = ParsedFiles[str](len), CountingParser()
    assert parser.get(files, b"one") == parser.get(files, b"one")
    assert parser.parsed == [b"one"]


def test_other_bytes_are_parsed() -> None:
    files, parser = ParsedFiles[str](len), CountingParser()
    parser.get(files, b"one")
    assert parser.get(files, b"two") == "b'two' 0"


def test_the_same_bytes_with_another_option_are_parsed_again() -> None:
    files, parser = ParsedFiles[str](len), CountingParser()
    assert (parser.get(files, b"one"), parser.get(files, b"one", 1)) == ("b'one' 0", "b'one' 1")


def test_the_least_recently_used_file_is_removed_first() -> None:
    files, parser = ParsedFiles[str](lambda _: 0, max_bytes=6), CountingParser()
    for data in (b"one", b"two", b"one", b"six", b"one", b"two"):
        parser.get(files, data)
    assert parser.parsed == [b"one", b"two", b"six", b"two"]


def test_a_file_that_grows_when_it_is_decompressed_is_not_kept() -> None:
    files, parser = ParsedFiles[str](lambda _: 1_000_000), CountingParser()
    parser.get(files, b"bomb")
    parser.get(files, b"bomb")
    assert parser.parsed == [b"bomb", b"bomb"]


def test_an_error_is_raised_each_time() -> None:
    files = ParsedFiles[str](len)

    def refuse() -> str:
        raise ValueError("not a file")

    for _ in range(2):
        with pytest.raises(ValueError, match="not a file"):
            files.get(b"bad", 0, refuse)
