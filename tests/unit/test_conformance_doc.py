"""The conformance page names only code and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "conformance.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`((?:src|kernel|spec|tests|vectors)/[^`]+)`", PAGE)))


def test_every_file_named_exists() -> None:
    assert [name for name in NAMED if not (ROOT / name.split("::")[0]).exists()] == []


def test_every_test_named_exists() -> None:
    missing = [
        name
        for name in NAMED
        if "::" in name and f"def {name.split('::')[1]}(" not in (ROOT / name.split("::")[0]).read_text("utf-8")
    ]
    assert missing == []


def test_the_page_names_tests_at_all() -> None:
    assert sum("::" in name for name in NAMED) >= 10
