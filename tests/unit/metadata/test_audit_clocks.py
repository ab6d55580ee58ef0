"""An audit with a clock behind the log's: less than a minute is accepted, more is a finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.audit.crafted_history import History, codes
from tools.proof_kit import NOW, SECOND


@pytest.fixture
def history(tmp_path: Path) -> History:
    """One snapshot that was published under protection."""
    history = History(tmp_path)
    history.protect()
    history.publish(history.data_file("first"))
    return history


def test_an_entry_from_the_future_is_found(history: History) -> None:
    history.now = NOW + 60 * SECOND
    history.publish(history.data_file("next"))
    assert codes(history.audit()) >= {"audit_logged_in_future"}


def test_an_auditor_whose_clock_is_just_under_a_minute_behind_finds_nothing_wrong(history: History) -> None:
    history.now = NOW + 50 * SECOND  # a publication takes some seconds
    history.publish(history.data_file("next"))
    assert codes(history.audit()) == set()
