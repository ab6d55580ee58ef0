"""Parsed files are found again by their bytes, and only so many of them are kept."""

from __future__ import annotations

import pytest

from pvdm.lake.format.manifest.cache import ParsedFiles


class Parser:
    """Counts how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def get(self, files: ParsedFiles[str], data: bytes, how: int = 0) -> str:
        def parse() -> str:
            self.asked.append(data)
            return f"{data!r} {how}"

        return files.get(data, how, parse)


def test_the_same_bytes_are_parsed_once() -> None:
    files, parser = ParsedFiles[str](len), Parser()
    assert parser.get(files, b"one") == parser.get(files, b"one")
    assert parser.asked == [b"one"]


def test_other_bytes_are_parsed_anew() -> None:
    files, parser = ParsedFiles[str](len), Parser()
    parser.get(files, b"one")
    assert parser.get(files, b"two") == "b'two' 0"


def test_the_same_bytes_read_in_another_way_are_parsed_anew() -> None:
    files, parser = ParsedFiles[str](len), Parser()
    assert (parser.get(files, b"one"), parser.get(files, b"one", 1)) == ("b'one' 0", "b'one' 1")


def test_what_was_used_longest_ago_goes_first() -> None:
    files, parser = ParsedFiles[str](lambda _: 0, max_bytes=6), Parser()
    for data in (b"one", b"two", b"one", b"six", b"one", b"two"):
        parser.get(files, data)
    assert parser.asked == [b"one", b"two", b"six", b"two"]


def test_a_file_that_grows_when_it_is_decompressed_is_not_kept() -> None:
    files, parser = ParsedFiles[str](lambda _: 1_000_000), Parser()
    parser.get(files, b"bomb")
    parser.get(files, b"bomb")
    assert parser.asked == [b"bomb", b"bomb"]


def test_an_error_is_raised_each_time() -> None:
    files = ParsedFiles[str](len)

    def refuse() -> str:
        raise ValueError("not a file")

    for _ in range(2):
        with pytest.raises(ValueError, match="not a file"):
            files.get(b"bad", 0, refuse)
