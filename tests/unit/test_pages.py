"""Every Python block of the pages with recipes runs as it stands, and every link of a page leads to a file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pvdm.client import StewardClient
from tests.support.for_each import for_each

ROOT = Path(__file__).parents[2]
RUNNING = ("README.md", "docs/client.md", "docs/library.md")
PAGES = sorted(str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")))


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", RUNNING)
def test_a_page_with_recipes_has_python_to_run(page: str) -> None:
    assert blocks(page)


@pytest.mark.parametrize(
    ("page", "number"), [(page, number) for page in RUNNING for number in range(1, len(blocks(page)) + 1)]
)
def test_a_python_block_runs_after_the_first_of_its_page(
    page: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks(page)
    names: dict[str, object] = {"__name__": "page"}
    try:
        for each in sorted({1, number}):
            exec(compile(found[each - 1], f"{page}, block {each}", "exec"), names)
    finally:
        for opened in [value for value in names.values() if isinstance(value, StewardClient)]:
            opened.close()


@for_each("page", PAGES)
def test_every_file_that_a_page_links_exists(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert [link for link in links if link and not (ROOT / page).parent.joinpath(link).exists()] == []
