"""The line at the end of `make test` that counts the tests and parts that were not started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.not_started import main

REPORT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase name="a"/>
<testcase name="b"><skipped type="pytest.skip" message="the native kernel is not installed">x.py:1</skipped></testcase>
<testcase name="c"><skipped type="pytest.skip" message="the native kernel is not installed">x.py:2</skipped></testcase>
<testcase name="d"><skipped type="pytest.xfail" message="known"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture(autouse=True)
def _no_required_services(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PVDM_REQUIRE_SERVICES", raising=False)


@pytest.fixture
def report(tmp_path: Path) -> str:
    path = tmp_path / "pytest.xml"
    path.write_text(REPORT)
    return str(path)


def test_skipped_tests_are_counted_by_reason(report: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([report]) == 0
    assert capsys.readouterr().out == "not started: 2 tests (the native kernel is not installed)\n"


def test_a_notice_is_named_with_its_first_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notice = tmp_path / "notice"
    notice.write_text("cargo: not found\n  Fedora: a package\n")
    main(["--notice", f"kernel={notice}"])
    assert capsys.readouterr().out == "not started: kernel (cargo: not found)\n"


def test_a_complete_run_says_that_nothing_was_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--notice", f"kernel={tmp_path / 'none'}"])
    assert capsys.readouterr().out == "not started: nothing, every part was tested\n"


def test_a_skipped_test_fails_the_run_if_services_are_required(report: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PVDM_REQUIRE_SERVICES", "1")
    assert main([report]) == 1


def test_a_missing_report_fails_if_services_are_required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PVDM_REQUIRE_SERVICES", "1")
    assert main([str(tmp_path / "none.xml")]) == 1
