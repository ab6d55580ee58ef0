"""An audit fails on a receipt whose snapshot main lacks, unless the auditor accepts that very snapshot as lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.errors import InputError
from tests.support.audit.crafted_history import History, codes


@pytest.fixture
def history(tmp_path: Path) -> History:
    history = History(tmp_path)
    history.protect()
    history.publish(history.data_file("first"))
    return history


def test_accepted_lost_snapshots_are_reported_and_no_finding(history: History) -> None:
    before = history.evidence().metadata
    lost = [history.publish(history.data_file(name)) for name in ("gone", "gone too")]
    evidence = replace(history.evidence(), metadata=before)
    report = history.audit(evidence=evidence, accept_lost=frozenset(lost))
    assert report.holds
    assert [str(each) in sentence for each, sentence in zip(lost, report.not_proved, strict=False)] == [True, True]
    assert codes(history.audit(evidence=evidence, accept_lost=frozenset(lost[:1]))) == {
        "audit_receipt_without_snapshot"
    }


def test_accepting_a_present_snapshot_as_lost_is_refused(history: History) -> None:
    present = history.publish(history.data_file("there"))
    with pytest.raises(InputError) as caught:
        history.audit(accept_lost=frozenset({present}))
    assert caught.value.reason == "audit_not_lost"
