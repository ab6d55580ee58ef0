"""The README's Python runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_readme_has_python_to_run() -> None:
    assert BLOCKS


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_python_block_of_the_readme_runs(number: int) -> None:
    exec(compile(BLOCKS[number], f"README.md, block {number + 1}", "exec"), {"__name__": "readme"})


def test_every_file_that_the_readme_links_exists() -> None:
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert [link for link in links if link and not (ROOT / link).exists()] == []
