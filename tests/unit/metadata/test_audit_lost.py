"""An audit fails on a receipt whose snapshot main lacks, unless the auditor accepts that very snapshot as lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.errors import InputError
from tests.support.audit.crafted_history import History, codes


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path)
    made.protect()
    made.publish(made.data_file("first"))
    return made


def test_what_was_lost_is_accepted_by_its_snapshot_and_stays_named(history: History) -> None:
    before = history.evidence().metadata
    lost = [history.publish(history.data_file(name)) for name in ("gone", "gone too")]
    evidence = replace(history.evidence(), metadata=before)
    report = history.audit(evidence=evidence, accept_lost=frozenset(lost))
    assert report.holds
    assert [str(each) in told for each, told in zip(lost, report.not_proved, strict=False)] == [True, True]
    assert codes(history.audit(evidence=evidence, accept_lost=frozenset(lost[:1]))) == {
        "audit_receipt_without_snapshot"
    }


def test_a_snapshot_that_is_there_is_not_accepted_as_lost(history: History) -> None:
    shown = history.publish(history.data_file("there"))
    with pytest.raises(InputError) as caught:
        history.audit(accept_lost=frozenset({shown}))
    assert caught.value.reason == "audit_not_lost"
