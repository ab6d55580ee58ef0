"""The conformance page names only code and tests that exist, and each row names at least one test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.for_each import for_each

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "conformance.md").read_text("utf-8")
NAMED_PATHS = sorted(set(re.findall(r"`((?:src|kernel|spec|tests|vectors)/[^`]+)`", PAGE)))
ROWS = {row.split("|")[1].strip(): row for row in re.findall(r"^\| [NL]\d+ \|.*$", PAGE, re.MULTILINE)}


def test_every_named_file_exists() -> None:
    assert [name for name in NAMED_PATHS if not (ROOT / name.split("::")[0]).exists()] == []


def test_every_named_test_exists() -> None:
    missing = [
        name
        for name in NAMED_PATHS
        if "::" in name and f"def {name.split('::')[1]}(" not in (ROOT / name.split("::")[0]).read_text("utf-8")
    ]
    assert missing == []


@for_each("number", ROWS)
def test_a_row_names_a_test_and_says_what_is_open(number: str) -> None:
    cells = [cell.strip() for cell in ROWS[number].strip("|").split("|")]
    assert len(cells) == 5
    assert re.search(r"`(tests|vectors)/", cells[3])
    assert cells[4]


@pytest.mark.parametrize("letter", ["N", "L"])
def test_rows_are_in_order_without_repetition(letter: str) -> None:
    numbers = [int(number) for number in re.findall(rf"^\| {letter}(\d+) \|", PAGE, re.MULTILINE)]
    assert numbers
    assert numbers == sorted(set(numbers))
