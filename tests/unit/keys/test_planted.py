"""The search for secrets that other tests use finds a planted secret in every spelling."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from tests.support.for_each import for_each
from tests.support.steward.secret_search import traces, traces_in_files

SECRET = bytes(range(200, 232))


@for_each(
    "haystack",
    [
        b"before" + SECRET + b"after",
        SECRET.hex(),
        f"key={SECRET.hex().upper()};",
        base64.b64encode(SECRET).decode(),
        base64.b64encode(b"x" + SECRET + b"tail").decode(),
        base64.b64encode(b"xy" + SECRET + b"tail").decode(),
        base64.b64encode(b"xyz" + SECRET).decode(),
        base64.urlsafe_b64encode(b"xy" + SECRET).decode(),
        base64.b64encode(SECRET).decode().rstrip("="),
        repr(SECRET),
        repr([*SECRET]),
        json.dumps([*SECRET], separators=(",", ":")),
        json.dumps(SECRET.decode("latin-1")),
        SECRET.decode("latin-1"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_secret_in_any_spelling_is_found(haystack: bytes | str) -> None:
    assert traces(SECRET, haystack) != []


def test_another_secret_is_not_found() -> None:
    assert traces(SECRET, bytes(range(32)).hex() + base64.b64encode(bytes(64)).decode()) == []


def test_a_secret_in_a_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(f"debug: {SECRET.hex()}")
    assert traces_in_files(SECRET, [tmp_path]) == [f"{tmp_path / 'log.txt'}: hex"]


def test_a_secret_in_the_name_of_a_file_is_found(tmp_path: Path) -> None:
    (tmp_path / SECRET.hex()).touch()
    assert len(traces_in_files(SECRET, [tmp_path])) == 1


def test_a_secret_that_is_too_short_to_search_for_is_refused() -> None:
    with pytest.raises(ValueError, match="by chance"):
        traces(b"short", "a haystack")
