"""The Steward's time: forward only, at the monotonic clock's pace, and not ready after a jump."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pvdm.errors import InputError, UnavailableError
from pvdm.ledger import Ledger
from pvdm.ledger.clock import CLOCK_ABSENCE_MAX_SECONDS, CLOCK_STEP_MAX_SECONDS, LedgerClock
from pvdm.ledger.record import events
from tests.support.ledger.databases import NOW

SECOND = 1_000_000
HOUR = 3_600 * SECOND
YEAR = 365 * 24 * HOUR


@dataclass
class Host:
    """A machine whose clocks a test can turn."""

    wall: int = NOW
    monotonic: int = 0

    def pass_time(self, micros: int) -> None:
        self.wall += micros
        self.monotonic += micros


@pytest.fixture
def host() -> Host:
    return Host()


def started(ledger: Ledger, host: Host) -> LedgerClock:
    return LedgerClock(ledger, wall=lambda: host.wall, monotonic=lambda: host.monotonic)


def marked(ledger: Ledger, micros: int) -> None:
    with ledger.write(at_micros=micros) as unit:
        events.note(unit, "clock_mark", "clock", "", {})
        unit.commit()


def refused(made: LedgerClock) -> str:
    with pytest.raises(UnavailableError) as caught:
        made.now_micros()
    return caught.value.reason


def test_a_new_ledger_takes_the_hosts_time(ledger: Ledger, host: Host) -> None:
    assert started(ledger, host).now_micros() == NOW


def test_time_goes_on_as_time_passes(ledger: Ledger, host: Host) -> None:
    made = started(ledger, host)
    host.pass_time(5 * HOUR)
    assert made.now_micros() == NOW + 5 * HOUR


def test_a_clock_set_back_does_not_turn_time_back(ledger: Ledger, host: Host) -> None:
    made = started(ledger, host)
    host.pass_time(SECOND)
    host.wall -= HOUR
    assert made.now_micros() == NOW + SECOND


def test_time_goes_on_after_the_clock_was_set_back(ledger: Ledger, host: Host) -> None:
    made = started(ledger, host)
    host.wall -= HOUR
    host.pass_time(7 * SECOND)
    assert made.now_micros() == NOW + 7 * SECOND


def test_a_restart_never_begins_below_the_ledgers_mark(ledger: Ledger, host: Host) -> None:
    marked(ledger, NOW + HOUR)
    assert started(ledger, host).now_micros() == NOW + HOUR


def test_after_such_a_restart_time_goes_on(ledger: Ledger, host: Host) -> None:
    marked(ledger, NOW + HOUR)
    made = started(ledger, host)
    host.pass_time(SECOND)
    assert made.now_micros() == NOW + HOUR + SECOND


def test_a_small_step_forward_is_followed(ledger: Ledger, host: Host) -> None:
    made = started(ledger, host)
    host.wall += CLOCK_STEP_MAX_SECONDS * SECOND
    assert made.now_micros() == NOW + CLOCK_STEP_MAX_SECONDS * SECOND


def test_a_step_that_was_followed_is_kept_when_it_is_taken_back(ledger: Ledger, host: Host) -> None:
    made = started(ledger, host)
    host.wall += 60 * SECOND
    made.now_micros()
    host.wall -= 60 * SECOND
    host.pass_time(SECOND)
    assert made.now_micros() == NOW + 61 * SECOND


def test_a_jump_forward_stops_the_clock(ledger: Ledger, host: Host) -> None:
    made = started(ledger, host)
    host.wall += YEAR
    assert (refused(made), made.is_ready()) == ("clock_jumped", False)


def test_many_small_steps_are_one_jump(ledger: Ledger, host: Host) -> None:
    made = started(ledger, host)
    host.wall += 200 * SECOND
    made.now_micros()
    host.wall += 200 * SECOND
    assert refused(made) == "clock_jumped"


def test_a_jump_that_is_taken_back_still_has_to_be_confirmed(ledger: Ledger, host: Host) -> None:
    made = started(ledger, host)
    host.wall += YEAR
    refused(made)
    host.wall -= YEAR
    assert refused(made) == "clock_jumped"


def test_a_confirmed_jump_is_the_time(ledger: Ledger, host: Host) -> None:
    made = started(ledger, host)
    host.wall += YEAR
    made.confirm(operator="ada", reason="the host was set right")
    assert made.now_micros() == NOW + YEAR


def test_a_jump_that_was_mended_and_confirmed_leaves_no_trace_in_time(ledger: Ledger, host: Host) -> None:
    made = started(ledger, host)
    host.wall += YEAR
    refused(made)
    host.wall -= YEAR
    host.pass_time(SECOND)
    made.confirm(operator="ada", reason="a glitch of the host")
    assert made.now_micros() == NOW + SECOND


def test_a_confirmation_is_in_the_step_log(ledger: Ledger, host: Host) -> None:
    made = started(ledger, host)
    host.wall += YEAR
    made.confirm(operator="ada", reason="set right")
    with ledger.read() as unit:
        last = events.history(unit, "clock", "ada")[-1]
    assert last.new == {"operator": "ada", "reason": "set right", "from_micros": NOW, "to_micros": NOW + YEAR}


def test_a_confirmation_needs_a_reason(ledger: Ledger, host: Host) -> None:
    with pytest.raises(InputError) as caught:
        started(ledger, host).confirm(operator="ada", reason=" ")
    assert caught.value.reason == "reason_missing"


def test_a_long_rest_is_no_jump(ledger: Ledger, host: Host) -> None:
    marked(ledger, NOW - CLOCK_ABSENCE_MAX_SECONDS * SECOND)
    assert started(ledger, host).now_micros() == NOW


def test_a_longer_rest_has_to_be_confirmed(ledger: Ledger, host: Host) -> None:
    marked(ledger, NOW - CLOCK_ABSENCE_MAX_SECONDS * SECOND - 1)
    assert refused(started(ledger, host)) == "clock_jumped"


def test_two_stewards_share_one_time(ledger: Ledger, host: Host) -> None:
    made = started(ledger, host)
    marked(ledger, NOW + 30 * SECOND)
    made.synchronize()
    assert made.now_micros() == NOW + 30 * SECOND


def test_a_steward_does_not_follow_another_one_into_the_far_future(ledger: Ledger, host: Host) -> None:
    made = started(ledger, host)
    marked(ledger, NOW + YEAR)
    with pytest.raises(UnavailableError) as caught:
        made.synchronize()
    assert caught.value.reason == "clock_jumped"


def test_the_hosts_own_clocks_run(ledger: Ledger) -> None:
    made = LedgerClock(ledger)
    assert made.now_micros() <= made.now_micros()
