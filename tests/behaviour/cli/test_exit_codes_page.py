"""docs/cli.md on exit code 4: which codes end with it, and that no script is told to repeat all of them."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"
_ROW = re.compile(r"^\| (`.*?) \| (.*) \|$", re.MULTILINE)


def again() -> dict[str, str]:
    """Each code of the page's table, and what the same command would do."""
    page = (DOCS / "cli.md").read_text("utf-8")
    table = page.partition("| code with exit code 4 |")[2].partition("\n## ")[0]
    return {
        code: words for row in _ROW.finditer(table) for code in re.findall(r"`(\w+)`", row[1]) for words in [row[2]]
    }


def test_every_code_of_the_table_ends_with_4() -> None:
    errors = (DOCS / "errors.md").read_text("utf-8")
    found = dict(re.findall(r"^\| `(\w+)` \| .* \| (\d) \|$", errors, re.MULTILINE))
    assert {code: found.get(code) for code in again()} == dict.fromkeys(again(), "4")


def test_what_a_repetition_does_not_mend_is_not_to_be_repeated() -> None:
    for code in ("branch_staged_since", "workload_abandoned", "attempt_taken_over", "ledger_served", "job_failed"):
        assert again()[code].startswith(("not ", "never"))
    assert "run the same command again |" not in (DOCS / "cli.md").read_text("utf-8")
