"""An audit by a clock that is not the log's: a little behind is nothing, more is a finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.audit.crafted_history import History, codes
from tools.proof_kit import NOW, SECOND


@pytest.fixture
def history(tmp_path: Path) -> History:
    """One snapshot that was published under protection."""
    made = History(tmp_path)
    made.protect()
    made.publish(made.data_file("first"))
    return made


def test_an_entry_from_the_future_is_found(history: History) -> None:
    history.now = NOW + 60 * SECOND
    history.publish(history.data_file("next"))
    assert codes(history.audit()) >= {"audit_logged_in_future"}


def test_an_auditor_whose_clock_is_just_under_a_minute_behind_finds_nothing_wrong(history: History) -> None:
    history.now = NOW + 50 * SECOND  # a publication takes some seconds
    history.publish(history.data_file("next"))
    assert codes(history.audit()) == set()
