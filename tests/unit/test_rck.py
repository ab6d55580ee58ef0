"""Runs of Iceberg's REST compatibility kit: known failures are documented, and reports are read and summarised."""

from __future__ import annotations

import re
from pathlib import Path

from tools.rck.run import KITS, KNOWN_FAILURES, Result, read_reports, summary

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `(\w+)` \| (.+) \|$", re.MULTILINE)
REPORT = """<testsuite>
<testcase name="good()"/><testcase name="bad()"><failure message="no   way"/></testcase>
<testcase name="worse()"><error>broken</error></testcase><testcase name="left()"><skipped/></testcase>
</testsuite>"""


def test_every_known_failure_is_documented_with_its_reason() -> None:
    assert dict(ROW.findall((ROOT / "docs" / "views.md").read_text())) == dict(KNOWN_FAILURES)


def test_a_report_is_read_with_passed_failed_and_skipped_tests(tmp_path: Path) -> None:
    (tmp_path / "TEST-one.xml").write_text(REPORT)
    found = read_reports("Kit", tmp_path)
    assert (found.run, found.passed, found.skipped) == (3, 1, ["left"])
    assert found.failed == {"bad": "no way", "worse": "broken"}


def test_the_summary_has_totals_and_each_class() -> None:
    one, two = Result("One", run=2, passed=1, failed={"x": "no"}), Result("Two", run=3, passed=3)
    report = summary([one, two])
    assert (report["run"], report["passed"], report["failed"]) == (5, 4, ["One.x"])
    assert report["kits"] == [one.to_json(), two.to_json()]


def test_both_classes_of_the_kit_are_run() -> None:
    assert [*KITS] == ["RESTCompatibilityKitCatalogTests", "RESTCompatibilityKitViewCatalogTests"]
