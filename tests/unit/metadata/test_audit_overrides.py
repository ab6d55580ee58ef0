"""Audits of snapshots that an operator's override published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.metadata.audit.report import Standing
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.verdict import FailureClass, Verdict
from tests.support.audit.crafted_history import History, change_statements, codes, standings
from tools.proof_kit import KEYS, fixed, root_of

FAILED = Verdict.failed(FailureClass.MODIFIED)


@pytest.fixture
def history(tmp_path: Path) -> History:
    """A protected table with one snapshot, from before the protection."""
    history = History(tmp_path)
    history.snapshot([history.data_file("old")])
    history.protect()
    return history


def test_a_waived_fail_holds_and_names_its_operator(history: History) -> None:
    history.publish(history.data_file("x"), passed=False, waived=True)
    report = history.audit(again=True)
    line = report.snapshots[-1]
    assert (line.standing, line.operator, report.holds) == (Standing.BREAK_GLASS, "operator-ruth", True)


def test_an_override_that_is_not_in_the_log_waives_nothing(history: History) -> None:
    history.publish(history.data_file("x"), passed=False, waived=True)
    evidence = change_statements(
        history.evidence(),
        lambda each: replace(each, logged_at=each.logged_at + 1) if each.kind is StatementKind.BREAK_GLASS else each,
    )
    assert codes(history.audit(evidence=evidence)) == {"inclusion_root", "audit_verdict_not_pass"}


def test_a_waived_fail_may_be_published_by_the_next_attempt_at_the_same_bytes(history: History) -> None:
    file = history.data_file("x")
    first = replace(history.core([file]), verdict=FAILED)
    override_id = history.override(first, history.prove(first))
    history.tick()
    second = replace(history.core([file]), verdict=FAILED)
    proof_id = history.prove(second)
    snapshot = history.snapshot([file], by_steward=True)
    history.say(history.receipt(snapshot, second, [proof_id], override_id), "notary-a")
    report = history.audit()
    assert (codes(report), report.snapshots[-1].standing) == (set(), Standing.BREAK_GLASS)


def test_an_override_names_one_fail_proof_and_the_publication_needs_as_many_notaries_as_the_root_says(
    tmp_path: Path,
) -> None:
    history = History(tmp_path)
    history.snapshot([history.data_file("old")])
    history.protect()
    file = history.data_file("x")
    first = replace(history.core([file]), verdict=FAILED)
    override_id = history.override(first, history.prove(first))
    history.tick()
    second = replace(history.core([file]), verdict=FAILED)
    proof_ids = [history.prove(second, signer) for signer in ("notary-a", "notary-b")]
    snapshot = history.snapshot([file], by_steward=True)
    history.say(history.receipt(snapshot, second, proof_ids, override_id), "notary-a")
    report = history.audit(root=root_of(list(KEYS.values()), notaries=2))
    assert (codes(report), standings(report)) == (set(), [Standing.BEFORE, Standing.BREAK_GLASS])
    report = history.audit(root=root_of(list(KEYS.values()), notaries=3))
    assert codes(report) == {"threshold_not_met"}


def test_an_override_for_other_bytes_is_found(history: History) -> None:
    first = replace(history.core([history.data_file("x")]), verdict=FAILED)
    override_id = history.override(first, history.prove(first))
    other = history.data_file("y")
    second = replace(history.core([other]), verdict=FAILED)
    second = replace(second, attempt=replace(second.attempt, nonce=fixed("own", 16)))
    proof_id = history.prove(second)
    snapshot = history.snapshot([other], by_steward=True)
    history.say(history.receipt(snapshot, second, [proof_id], override_id), "notary-a")
    assert codes(history.audit()) == {"audit_override_for_others"}


def test_an_override_of_a_pass_is_found(history: History) -> None:
    file = history.data_file("x")
    failed = replace(history.core([file]), verdict=FAILED)
    override_id = history.override(failed, history.prove(failed))
    history.publish(file, receipt=lambda receipt: replace(receipt, override_id=override_id))
    assert codes(history.audit()) == {"audit_override_of_pass"}


def test_an_override_that_is_used_twice_is_found(history: History) -> None:
    file = history.data_file("x")
    failed = replace(history.core([file]), verdict=FAILED)
    override_id = history.override(failed, history.prove(failed))
    for name in ("one", "two"):
        core = replace(history.core([file]), verdict=FAILED)
        core = replace(core, attempt=replace(core.attempt, nonce=fixed(name, 16), workload_id=name))
        proof_id = history.prove(core)
        snapshot = history.snapshot([file], by_steward=True)
        history.say(history.receipt(snapshot, core, [proof_id], override_id), "notary-a")
    assert codes(history.audit()) == {"audit_used_twice"}


# Bytes
