"""`pvdm audit` of a table that was unprotected for a time: the audit ends with 3 until this gap is accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from pvdm.ledger.record import events
from pvdm.ledger.record.events import Event
from pvdm.model.statements.migration import ProtectionAction
from tests.behaviour.cli.support import Run
from tests.behaviour.cli.test_audit import Auditor
from tests.behaviour.cli.test_audit import auditor as auditor  # noqa: PLC0414 - the fixture
from tests.support.audit.published_history import CONTRACT, FULL_NAME, NAME, Audited


@pytest.fixture
def audited(auditor: Auditor) -> Audited:
    """A table with two publications, at a served Steward; the command runs as its auditor."""
    return auditor.audited


def change_protection(audited: Audited, action: ProtectionAction) -> None:
    audited.tick()
    audited.scene.protect(audited.scene.protection(NAME, action=action, contract=CONTRACT))


def rewrite_unprotected(audited: Audited) -> None:
    """Rewrite the table as compacting it needs today: unprotect, write, expire snapshots, protect."""
    change_protection(audited, ProtectionAction.UNPROTECT)
    shown = audited.show(audited.data_file("rewritten"))
    gone = [each.snapshot_id for each in audited.state.metadata.snapshots if each.snapshot_id != shown]
    audited.scene.commit([{"action": "remove-snapshots", "snapshot-ids": gone}], NAME)
    change_protection(audited, ProtectionAction.PROTECT)


def test_a_gap_ends_the_audit_with_3_until_it_is_accepted(audited: Audited, pvdm: Run) -> None:
    rewrite_unprotected(audited)
    found = pvdm("audit", FULL_NAME, "--json")
    assert (found.code, found.json["holds"], found.json["counts"]["in-gap"]) == (3, False, 1)
    (gap,) = found.json["gaps"]
    assert gap["uncovered"] == {"files": 3, "rows": 30}
    assert [each["code"] for each in found.json["findings"]] == ["audit_protection_gap"]
    as_text = pvdm("audit", FULL_NAME)
    assert as_text.code == 3
    assert f"GAP {gap['gap_id']}: not protected from" in as_text.out
    assert "main shows 30 rows in 3 files that no proof covers" in as_text.out
    accepted = pvdm("audit", FULL_NAME, "--accept-gap", gap["gap_id"])
    assert accepted.code == 0, accepted.out
    assert f"GAP {gap['gap_id']} (accepted)" in accepted.out
    assert "no violations in the history of main: 1 in-gap, 1 gap in protection" in accepted.out


def test_a_gap_is_the_same_offline_and_is_accepted_there_too(audited: Audited, pvdm: Run, tmp_path: Path) -> None:
    rewrite_unprotected(audited)
    audited.publish("third")
    assert pvdm("keys", "root", "fetch", "--out", "fetched.json").code == 0
    online = pvdm("audit", FULL_NAME, "--export", "sold.audit.json", "--json")
    offline = ("audit", "--bundle", "sold.audit.json", "--trust-root", "fetched.json", "--json")
    found = pvdm(*offline)
    assert (found.code, found.json["gaps"]) == (3, online.json["gaps"])
    assert pvdm(*offline, "--accept-gap", found.json["gaps"][0]["gap_id"]).code == 0


def test_a_table_that_stays_unprotected_is_a_gap_too(audited: Audited, pvdm: Run) -> None:
    change_protection(audited, ProtectionAction.UNPROTECT)
    ran = pvdm("audit", FULL_NAME)
    assert ran.code == 3
    assert " to now" in ran.out


def test_accepting_an_unknown_gap_is_a_finding(audited: Audited, pvdm: Run) -> None:
    ran = pvdm("audit", FULL_NAME, "--accept-gap", "ab" * 16, "--json")
    assert (ran.code, [each["code"] for each in ran.json["findings"]]) == (3, ["audit_gap_unknown"])


@pytest.mark.parametrize("given", ["", "ab", "AB" * 16, "all"])
def test_a_gap_id_that_is_not_whole_is_a_usage_error(pvdm: Run, given: str) -> None:
    refused = pvdm("audit", FULL_NAME, "--accept-gap", given, "--json")
    assert (refused.code, refused.error) == (2, "usage")


def reports(audited: Audited) -> list[Event]:
    """The reports of auditors in the step log."""
    with audited.scene.notary.ledger.read() as unit:
        return [each for each in events.page(unit) if each.kind == "violations_reported"]


def test_a_violation_is_reported_to_the_steward_on_request(audited: Audited, pvdm: Run) -> None:
    assert pvdm("audit", FULL_NAME, "--report").code == 0
    rewrite_unprotected(audited)
    assert pvdm("audit", FULL_NAME).code == 3
    assert reports(audited) == []
    assert pvdm("audit", FULL_NAME, "--report").code == 3
    [event] = reports(audited)
    assert event.new is not None
    assert (event.new["codes"], event.new["violations"]) == (["audit_protection_gap"], 1)
