"""After a FAIL the Steward locates the wrong rows, and shows each role only what the contract allows it to see."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy import text

from pvdm.api.work import AttemptView
from pvdm.cli.work.status import attempt_lines
from pvdm.durable.failure_text import failure_error
from pvdm.errors import UnavailableError
from pvdm.lake.paths import parse_location
from pvdm.model.located import WrongRows
from pvdm.model.role import Role
from pvdm.model.statements.verdict import FailureClass
from tests.support import fault
from tests.support.ledger.rows import newest_verified
from tests.support.steward.pipeline import ROWS, Line, Row, contract, line_at

pytest.importorskip("pvdm_kernel")

# Row 1 is missing, row 2 has another town, row 3 is there twice, row 9 is not in the source.
WRONG: tuple[Row, ...] = ((2, "2026-11-13", "Köln"), ROWS[2], ROWS[2], ROWS[3], (9, "2026-11-14", "Trier"))
SECRETS = ("Köln", "Trier", "town")


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """One Steward for all tests that use it: they publish nothing, so the target does not change."""
    with line_at(tmp_path_factory.mktemp("located")) as line:
        line.protect()
        yield line


def fail_attempt(line: Line, rows: Sequence[Row] = WRONG, workload_id: str = "run-1") -> AttemptView:
    """Stage these rows as an attempt, which fails; returns the attempt as its producer sees it."""
    with line.client() as client:
        _, attempt = line.attempt(client, workload_id)
        line.stage(client, attempt, rows)
        client.staged(attempt.attempt_id)
        found = client.await_attempt(attempt.attempt_id, seconds=60)
    assert found.state.value == "VERIFICATION_FAILED", found
    return found


def view_of(line: Line, role: Role, found: AttemptView) -> AttemptView:
    with line.client(role) as client:
        return client.attempt(found.attempt_id)


def rows_by_class(located: WrongRows | None) -> dict[str, int]:
    assert located is not None
    return {each.failure.value: each.rows for each in located.classes}


EXPECTED = {"missing": 1, "added": 1, "duplicated": 1, "modified": 1}


def test_every_role_sees_only_what_the_contract_allows(line: Line) -> None:
    found = fail_attempt(line)
    assert [each.value for each in found.classes] == ["added", "duplicated", "missing", "modified"]
    assert rows_by_class(found.located) == EXPECTED
    shown = json.dumps(found.located.to_json() if found.located else None, ensure_ascii=False)
    assert not [word for word in (*SECRETS, '"id"', "raw/orders") if word in shown]
    for role in (Role.OPERATOR, Role.AUDITOR):
        located = view_of(line, role, found).located
        assert rows_by_class(located) == EXPECTED
        assert located is not None
        keys = {each.failure.value: [dict(sample.key)["id"] for sample in each.samples] for each in located.classes}
        assert keys == {"missing": ["1"], "added": ["9"], "duplicated": ["3"], "modified": ["2"]}
        assert [(each.name, each.rows) for each in located.fields] == [("town", 1)]
        days = {each.failure.value: [(day.name, day.rows) for day in each.partitions] for each in located.classes}
        assert days == {
            "missing": [("day=2026-11-13", 1)],
            "added": [("day=2026-11-14", 1)],
            "duplicated": [("day=2026-11-14", 1)],
            "modified": [("day=2026-11-13", 1)],
        }
        files = {
            sample.file
            for each in located.classes
            for sample in each.samples
            if each.failure is not FailureClass.MISSING
        }
        assert files
        assert all(file.startswith(found.prefix) for file in files)
    lines = [text_line for text_line, _ in attempt_lines("all", view_of(line, Role.OPERATOR, found))]
    assert "    1 row missing" in lines
    assert "      first missing id: 1" in lines
    assert "      first modified id: 2 (town)" in lines
    assert "    fields that differ: town (1)" in lines
    lines = [text_line for text_line, _ in attempt_lines("all", found)]
    assert "    1 row missing" in lines
    assert not [text_line for text_line in lines if "first" in text_line or "town" in text_line]
    error = failure_error(found, "all")
    assert "1 row missing, 1 row added, 1 row duplicated, 1 row modified" in error.message
    assert (error.expected, error.got) == ("4 rows as intended", "5 rows staged")
    assert error.details["rows_modified"] == 1
    assert "first missing id: 1" in str(failure_error(view_of(line, Role.OPERATOR, found), "all").got)
    _assert_no_keys_in_events_proofs_or_log(line)


def _assert_no_keys_in_events_proofs_or_log(line: Line) -> None:
    """Only the table `verified` has keys and fields of wrong rows; events, proofs, attempts and log have none."""
    with line.notary.ledger.read() as unit:
        for table in ("events", "proofs", "attempts", "log_entries"):
            rows = unit.rows(text(f"select * from {table}"))
            assert rows, table
            assert not [row for row in rows if "sample" in str(dict(row)) or "town" in str(dict(row))], table
        verified = unit.rows(text("select located from verified"))
    assert any("town" in str(row["located"]) for row in verified)


def test_if_the_contract_names_only_producers_they_see_keys_and_operators_do_not(tmp_path: Path) -> None:
    with line_at(tmp_path) as line:
        line.protect(contract("governance:\n  sample-keys: [producer]"))
        found = fail_attempt(line)
        assert found.located is not None
        assert [len(each.samples) for each in found.located.classes] == [1, 1, 1, 1]
        assert "first missing id: 1" in str(failure_error(found, "all").got)
        located = view_of(line, Role.OPERATOR, found).located
        assert rows_by_class(located) == EXPECTED
        assert located is not None
        assert not any(each.samples for each in located.classes)


def test_keys_that_no_role_may_see_are_not_stored(tmp_path: Path) -> None:
    with line_at(tmp_path) as line:
        line.protect(contract("governance:\n  sample-keys: []"))
        found = fail_attempt(line)
        assert rows_by_class(found.located) == EXPECTED
        with line.notary.ledger.read() as unit:
            record = newest_verified(unit, found.attempt_id)
        assert record is not None
        assert record.located is not None
        assert not any(each.samples for each in record.located.classes)


def test_if_rows_cannot_be_located_the_verdict_is_that_of_the_digests(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_unavailable(*_: object) -> None:
        raise UnavailableError("source_unreadable", "gone: Trier")

    monkeypatch.setattr("pvdm.verify.locate.KernelSearch.run", raise_unavailable)
    found = fail_attempt(line, ROWS[:2], "not-located")
    assert [each.value for each in found.classes] == ["missing"]
    assert found.located is not None
    assert (found.located.problem_code, found.located.problem) == ("source_unreadable", None)
    assert failure_error(found, "all").details["not_located"] == "source_unreadable"
    assert "    rows were not located (source_unreadable)" in [
        text_line for text_line, _ in attempt_lines("all", found)
    ]
    shown = view_of(line, Role.OPERATOR, found).located
    assert shown is not None
    assert shown.problem == "gone: Trier"


def test_a_fail_is_reported_despite_a_bug_in_locating(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_bug(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("pvdm.verify.locate.KernelSearch.run", raise_bug)
    found = fail_attempt(line, ROWS[:2], "broken")
    assert found.located is not None
    assert found.located.problem_code == "locate_failed"


def test_a_source_that_disappears_after_the_digests_does_not_change_the_fail(line: Line) -> None:
    folder = parse_location(line.scene.table_state("orders", ("raw",)).metadata.location).local
    files = list(folder.rglob("*.parquet"))
    assert files

    def remove() -> None:
        for path in files:
            path.rename(path.with_suffix(".away"))

    try:
        with fault.armed("verify.after_digests", fault.Call(remove)):
            found = fail_attempt(line, ROWS[:2], "gone")
    finally:
        for path in files:
            path.with_suffix(".away").rename(path)
    assert [each.value for each in found.classes] == ["missing"]
    assert found.located is not None
    assert found.located.problem_code == "source_unreadable"
