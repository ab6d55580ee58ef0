"""Exit codes in docs/cli.md, docs/operations.md and the help; docs/cli.md says which commands not to run again."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from pvdm.cli.app import pvdm
from pvdm.errors.kinds import KINDS

DOCS = Path(__file__).parents[3] / "docs"
_ROW = re.compile(r"^\| (`.*?) \| (.*) \|$", re.MULTILINE)


def read_advice() -> dict[str, str]:
    """Read the table of exit code 4 in docs/cli.md: each code, with the advice on running the same command again."""
    page = (DOCS / "cli.md").read_text("utf-8")
    table = page.partition("| code with exit code 4 |")[2].partition("\n## ")[0]
    return {code: row[2] for row in _ROW.finditer(table) for code in re.findall(r"`(\w+)`", row[1])}


def test_every_code_of_the_table_has_exit_code_4() -> None:
    errors = (DOCS / "errors.md").read_text("utf-8")
    exit_codes = dict(re.findall(r"^\| `(\w+)` \| .* \| (\d) \|$", errors, re.MULTILINE))
    assert {code: exit_codes.get(code) for code in read_advice()} == dict.fromkeys(read_advice(), "4")


def test_the_faults_of_the_operations_page_have_the_exit_codes_of_their_errors() -> None:
    table = (DOCS / "operations.md").read_text("utf-8").partition("### Faults\n")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| (\d) \|", table, re.MULTILINE)
    errors = (DOCS / "errors.md").read_text("utf-8")
    exit_codes, current = {}, ""
    for name, code in re.findall(r"^\| (?:— )?`(\w+)` \| .* \|(?: (\d))? \|$", errors, re.MULTILINE):
        current = code or current  # a reason's row has no exit code, and follows its code's row
        exit_codes[name] = current
    named = {(name, code) for words, code in rows for name in re.findall(r"`(\w+)`", words)}
    assert len(named) >= len(rows) == 10
    assert {name: exit_codes[name] for name, _ in named} == dict(named)


def test_the_page_advises_against_a_repetition_that_cannot_help() -> None:
    for code in ("branch_staged_since", "workload_abandoned", "attempt_taken_over", "ledger_served", "job_failed"):
        assert read_advice()[code].startswith(("not ", "never"))
    assert "run the same command again |" not in (DOCS / "cli.md").read_text("utf-8")


def test_the_page_and_the_help_list_the_exit_code_of_every_class_of_errors() -> None:
    table = (DOCS / "cli.md").read_text("utf-8").partition("| exit code | outcome |")[2].partition("\n\n")[0]
    codes = {str(each.exit_code) for each in KINDS.values()}
    assert set(re.findall(r"^\| (\d) \|", table, re.MULTILINE)) == {"0", *codes}
    assert set(re.findall(r"\d", str(pvdm.epilog))) == {"0", *codes}


@pytest.mark.parametrize(("page", "count"), [("cli.md", 2), ("schedulers.md", 1)])
@pytest.mark.parametrize("last", [3, 0])
def test_a_loop_of_the_documentation_ends_with_the_code_of_the_last_segment(
    page: str, count: int, last: int, tmp_path: Path
) -> None:
    loops = re.findall(r"^ *until (?:pvdm|spark-submit) .*?\bdone$", (DOCS / page).read_text("utf-8"), re.DOTALL | re.M)
    assert len(loops) == count
    for name in ("pvdm", "spark-submit"):  # exits with 8 twice, then with `last`
        stub = tmp_path / name
        stub.write_text(f'#!/bin/sh\necho >> calls\n[ "$(wc -l < calls)" -lt 3 ] && exit 8\nexit {last}\n')
        stub.chmod(0o755)
    for loop in loops:
        (tmp_path / "calls").unlink(missing_ok=True)
        path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        ended = subprocess.run(["sh", "-e", "-c", loop], cwd=tmp_path, env={"PATH": path}, check=False, timeout=30)
        assert (ended.returncode, (tmp_path / "calls").read_text()) == (last, "\n" * 3)
