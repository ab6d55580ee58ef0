"""The Steward's time: it never goes back, follows the host's clocks, and is refused after a jump of these."""

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


def start_clock(ledger: Ledger, host: Host) -> LedgerClock:
    return LedgerClock(ledger, wall=lambda: host.wall, monotonic=lambda: host.monotonic)


def write_mark(ledger: Ledger, micros: int) -> None:
    with ledger.write(at_micros=micros) as unit:
        events.note(unit, "clock_mark", "clock", "", {})
        unit.commit()


def reason_of(clock: LedgerClock) -> str:
    with pytest.raises(UnavailableError) as caught:
        clock.now_micros()
    return caught.value.reason


def test_a_new_ledger_takes_the_hosts_time(ledger: Ledger, host: Host) -> None:
    assert start_clock(ledger, host).now_micros() == NOW


def test_time_follows_the_hosts_clocks(ledger: Ledger, host: Host) -> None:
    clock = start_clock(ledger, host)
    host.pass_time(5 * HOUR)
    assert clock.now_micros() == NOW + 5 * HOUR


def test_time_does_not_go_back_when_the_hosts_clock_is_set_back(ledger: Ledger, host: Host) -> None:
    clock = start_clock(ledger, host)
    host.pass_time(SECOND)
    host.wall -= HOUR
    assert clock.now_micros() == NOW + SECOND


def test_time_goes_on_after_the_hosts_clock_was_set_back(ledger: Ledger, host: Host) -> None:
    clock = start_clock(ledger, host)
    host.wall -= HOUR
    host.pass_time(7 * SECOND)
    assert clock.now_micros() == NOW + 7 * SECOND


def test_a_restart_begins_at_the_ledgers_mark_if_that_is_later(ledger: Ledger, host: Host) -> None:
    write_mark(ledger, NOW + HOUR)
    assert start_clock(ledger, host).now_micros() == NOW + HOUR


def test_time_goes_on_after_a_restart_at_the_ledgers_mark(ledger: Ledger, host: Host) -> None:
    write_mark(ledger, NOW + HOUR)
    clock = start_clock(ledger, host)
    host.pass_time(SECOND)
    assert clock.now_micros() == NOW + HOUR + SECOND


def test_a_small_step_forward_is_followed(ledger: Ledger, host: Host) -> None:
    clock = start_clock(ledger, host)
    host.wall += CLOCK_STEP_MAX_SECONDS * SECOND
    assert clock.now_micros() == NOW + CLOCK_STEP_MAX_SECONDS * SECOND


def test_a_followed_step_stays_when_the_host_takes_it_back(ledger: Ledger, host: Host) -> None:
    clock = start_clock(ledger, host)
    host.wall += 60 * SECOND
    clock.now_micros()
    host.wall -= 60 * SECOND
    host.pass_time(SECOND)
    assert clock.now_micros() == NOW + 61 * SECOND


def test_a_jump_forward_is_refused(ledger: Ledger, host: Host) -> None:
    clock = start_clock(ledger, host)
    host.wall += YEAR
    assert (reason_of(clock), clock.is_ready()) == ("clock_jumped", False)


def test_small_steps_that_add_up_are_a_jump(ledger: Ledger, host: Host) -> None:
    clock = start_clock(ledger, host)
    host.wall += 200 * SECOND
    clock.now_micros()
    host.wall += 200 * SECOND
    assert reason_of(clock) == "clock_jumped"


def test_a_jump_that_the_host_takes_back_still_has_to_be_confirmed(ledger: Ledger, host: Host) -> None:
    clock = start_clock(ledger, host)
    host.wall += YEAR
    reason_of(clock)
    host.wall -= YEAR
    assert reason_of(clock) == "clock_jumped"


def test_a_confirmed_jump_becomes_the_time(ledger: Ledger, host: Host) -> None:
    clock = start_clock(ledger, host)
    host.wall += YEAR
    clock.confirm(operator="ada", reason="the host was set right")
    assert clock.now_micros() == NOW + YEAR


def test_a_jump_that_was_taken_back_and_confirmed_does_not_change_the_time(ledger: Ledger, host: Host) -> None:
    clock = start_clock(ledger, host)
    host.wall += YEAR
    reason_of(clock)
    host.wall -= YEAR
    host.pass_time(SECOND)
    clock.confirm(operator="ada", reason="a glitch of the host")
    assert clock.now_micros() == NOW + SECOND


def test_a_confirmation_is_in_the_step_log(ledger: Ledger, host: Host) -> None:
    clock = start_clock(ledger, host)
    host.wall += YEAR
    clock.confirm(operator="ada", reason="set right")
    with ledger.read() as unit:
        last = events.history(unit, "clock", "ada")[-1]
    assert last.new == {"operator": "ada", "reason": "set right", "from_micros": NOW, "to_micros": NOW + YEAR}


def test_a_confirmation_without_a_reason_is_refused(ledger: Ledger, host: Host) -> None:
    with pytest.raises(InputError) as caught:
        start_clock(ledger, host).confirm(operator="ada", reason=" ")
    assert caught.value.reason == "reason_missing"


def test_a_start_after_the_longest_absence_is_no_jump(ledger: Ledger, host: Host) -> None:
    write_mark(ledger, NOW - CLOCK_ABSENCE_MAX_SECONDS * SECOND)
    assert start_clock(ledger, host).now_micros() == NOW


def test_a_start_after_a_longer_absence_is_a_jump(ledger: Ledger, host: Host) -> None:
    write_mark(ledger, NOW - CLOCK_ABSENCE_MAX_SECONDS * SECOND - 1)
    assert reason_of(start_clock(ledger, host)) == "clock_jumped"


def test_two_stewards_share_one_time(ledger: Ledger, host: Host) -> None:
    clock = start_clock(ledger, host)
    write_mark(ledger, NOW + 30 * SECOND)
    clock.synchronize()
    assert clock.now_micros() == NOW + 30 * SECOND


def test_a_steward_does_not_follow_another_one_into_the_far_future(ledger: Ledger, host: Host) -> None:
    clock = start_clock(ledger, host)
    write_mark(ledger, NOW + YEAR)
    with pytest.raises(UnavailableError) as caught:
        clock.synchronize()
    assert caught.value.reason == "clock_jumped"


def test_the_clocks_of_this_host_do_not_go_back(ledger: Ledger) -> None:
    clock = LedgerClock(ledger)
    assert clock.now_micros() <= clock.now_micros()
