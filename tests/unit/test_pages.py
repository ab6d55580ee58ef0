"""The Python blocks of pages run, the README agrees with other pages, and the links of pages lead to files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pvdm.client import StewardClient
from tests.support.for_each import for_each

ROOT = Path(__file__).parents[2]
PAGES_WITH_CODE = ("README.md", "docs/client.md", "docs/library.md")
PAGES = sorted(str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")))


def python_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES_WITH_CODE)
def test_a_page_with_code_has_python_blocks(page: str) -> None:
    assert python_blocks(page)


@pytest.mark.parametrize(
    ("page", "number"),
    [(page, number) for page in PAGES_WITH_CODE for number in range(1, len(python_blocks(page)) + 1)],
)
def test_a_python_block_runs_after_the_first_block_of_its_page(
    page: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for contract in re.findall(r"^```yaml\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL):
        (tmp_path / "orders.yaml").write_text(contract, "utf-8")
    found = python_blocks(page)
    names: dict[str, object] = {"__name__": "page"}
    try:
        for each in sorted({1, number}):
            exec(compile(found[each - 1], f"{page}, block {each}", "exec"), names)
    finally:
        for client in [value for value in names.values() if isinstance(value, StewardClient)]:
            client.close()


def test_the_readme_loses_a_row_and_publishes_after_the_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    test_a_python_block_runs_after_the_first_block_of_its_page("README.md", 1, tmp_path, monkeypatch)
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[-1]) == (
        "VERIFICATION_FAILED  orders-1 of sales.orders",
        "COMMITTED  orders-1: 1 chunk of sales.orders, +3 rows in 1 file",
    )


def test_the_error_in_the_readme_is_one_of_the_demo() -> None:
    lines = re.findall(r"^    ((?:error|hint|  expected).*)$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    demo = (ROOT / "docs" / "demo.md").read_text("utf-8")
    assert len(lines) == 3
    assert [line for line in lines if f"   {line.removesuffix('…')}" not in demo] == []


def test_the_costs_in_the_readme_equal_those_of_the_performance_page() -> None:
    readme, page = ((ROOT / name).read_text("utf-8") for name in ("README.md", "docs/performance.md"))
    measured = {
        "| verify the staged rows | {:.2f} of": r"^\| – relative to the write \| ([\d.]+)",
        "| publish, from freeze to read-back | {:.2f} of": r"^\| publish, from freeze to read-back, .*? \| ([\d.]+)",
        "| the gate's commit | {:.1f} times": r"^\| gate's commit relative to a plain one \| ([\d.]+)",
        "| memory | {:.0f} MB": r"^\| peak memory of both sides, MB \| ([\d.]+)",
    }
    for line, pattern in measured.items():
        found = re.search(pattern, page, re.MULTILINE)
        assert found is not None
        assert line.format(float(found[1])) in readme


def test_the_list_of_pages_is_complete() -> None:
    listed = re.findall(r"^\| \[`([a-z-]+\.md)`\]", (ROOT / "docs" / "README.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in ROOT.glob("docs/*.md") if path.name != "README.md")


@for_each("page", PAGES)
def test_every_file_that_a_page_links_exists(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert [link for link in links if link and not (ROOT / page).parent.joinpath(link).exists()] == []
