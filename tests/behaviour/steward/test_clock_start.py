"""A Steward that starts with a wrong clock, on the machine's real clocks, is not ready and reports the host's time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pvdm.ledger import clock
from pvdm.steward.notary import create_notary, open_notary
from tests.support.steward.notary import config_at

DAY_NANOSECONDS = 86_400 * 10**9
pytestmark = pytest.mark.skipif(not clock.boot_id(), reason="this system has no boot id")


def set_clock_ahead(monkeypatch: pytest.MonkeyPatch, nanoseconds: int) -> None:
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + nanoseconds)


def test_a_start_two_days_ahead_is_not_ready_until_the_clock_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_at(tmp_path)
    create_notary(config, reason="the first epoch").close()
    with monkeypatch.context() as patched:
        set_clock_ahead(patched, 2 * DAY_NANOSECONDS)
        notary = open_notary(config)
        (reason,) = [each for each in notary.readiness() if each.reason == "clock_jumped"]
        assert clock.format_micros(notary.clock.host_micros())[:13] in str(reason.got)
        assert notary.clock.host_micros() - notary.clock.trusted_micros() > 10**6 * 86_400
        notary.close()
    right = open_notary(config)
    assert "clock_jumped" not in {each.reason for each in right.readiness()}
    right.close()


def test_a_start_right_after_a_stop_is_neither_a_jump_nor_an_absence(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    create_notary(config, reason="the first epoch").close()
    reopened = open_notary(config)
    assert "clock_jumped" not in {each.reason for each in reopened.readiness()}
    assert reopened.clock.absence is None
    reopened.close()
