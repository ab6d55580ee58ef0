"""A start with the host's clock ahead: the host's uptime or the database's clock tells a jump from an absence."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pvdm.errors import UnavailableError
from pvdm.ledger import Ledger
from pvdm.ledger.clock import (
    CLOCK_ABSENCE_QUIET_MAX_SECONDS,
    CLOCK_STEP_MAX_SECONDS,
    LedgerClock,
    boot_id,
    database_micros,
)
from pvdm.ledger.record import events
from pvdm.model.fields import CLOCK_SKEW_MAX_SECONDS
from tests.support.ledger.databases import NOW

SECOND = 1_000_000
HOUR = 3_600 * SECOND
DAY = 24 * HOUR


@dataclass
class Host:
    """A machine whose clocks a test can turn; its monotonic clock counts from its boot."""

    wall: int = NOW
    monotonic: int = 50 * SECOND
    boot: str = "one boot"
    second: int | None = None

    def pass_time(self, micros: int) -> None:
        self.wall += micros
        self.monotonic += micros

    def reboot(self) -> None:
        self.monotonic, self.boot = 5 * SECOND, "another boot"

    def start(self, ledger: Ledger) -> LedgerClock:
        return LedgerClock(
            ledger,
            wall=lambda: self.wall,
            monotonic=lambda: self.monotonic,
            boot=self.boot,
            server_time_micros=self.second,
        )

    def run(self, ledger: Ledger) -> None:
        """Start a Steward, write its mark, and stop it."""
        clock = self.start(ledger)
        ledger.transact(clock.mark, at_micros=clock.now_micros())


@pytest.fixture
def host() -> Host:
    return Host()


def require_jump(clock: LedgerClock) -> UnavailableError:
    with pytest.raises(UnavailableError) as caught:
        clock.now_micros()
    assert caught.value.reason == "clock_jumped"
    return caught.value


def test_three_days_off_on_a_host_that_stayed_up_are_no_jump(ledger: Ledger, host: Host) -> None:
    host.run(ledger)
    host.pass_time(3 * DAY)
    assert host.start(ledger).now_micros() == host.wall


def test_a_start_two_days_ahead_on_a_host_that_stayed_up_is_a_jump(ledger: Ledger, host: Host) -> None:
    host.run(ledger)
    host.pass_time(HOUR)
    host.wall += 2 * DAY
    clock = host.start(ledger)
    error = require_jump(clock)
    wrong = "2027-01-17T09:00:00Z"
    assert error.expected == "about 2027-01-15T09:00:00Z"
    assert error.got == f"{wrong} at the jump; the host's clock is at {wrong} now"
    assert clock.trusted_micros() == NOW + HOUR


def test_a_small_step_while_the_steward_was_off_is_followed(ledger: Ledger, host: Host) -> None:
    host.run(ledger)
    host.pass_time(HOUR)
    host.wall += CLOCK_STEP_MAX_SECONDS * SECOND
    assert host.start(ledger).now_micros() == host.wall


def test_a_small_drift_between_the_hosts_clocks_is_no_jump(ledger: Ledger, host: Host) -> None:
    host.run(ledger)
    host.pass_time(20 * DAY)
    host.wall += CLOCK_STEP_MAX_SECONDS * SECOND + 20 * DAY // 1_000
    assert host.start(ledger).now_micros() == host.wall
    host.wall += 1
    require_jump(host.start(ledger))


def test_a_restart_after_the_host_took_a_jump_back_is_ready(ledger: Ledger, host: Host) -> None:
    host.run(ledger)
    host.wall += 2 * DAY
    require_jump(host.start(ledger))
    host.wall -= 2 * DAY
    assert host.start(ledger).now_micros() == host.wall


def test_a_confirmed_jump_is_no_jump_at_the_next_start(ledger: Ledger, host: Host) -> None:
    host.run(ledger)
    host.wall += 2 * DAY
    clock = host.start(ledger)
    require_jump(clock)
    clock.confirm(operator="ruth", reason="the battery was empty")
    assert host.start(ledger).now_micros() == host.wall


def test_a_long_absence_across_a_reboot_is_noted(ledger: Ledger, host: Host) -> None:
    host.run(ledger)
    host.pass_time(2 * DAY)
    host.reboot()
    clock = host.start(ledger)
    assert clock.now_micros() == host.wall
    absence = clock.absence
    assert absence is not None
    assert (absence.from_micros, absence.to_micros) == (NOW, host.wall)


def test_an_absence_is_noted_in_the_step_log_with_both_times(ledger: Ledger, host: Host) -> None:
    host.run(ledger)
    host.pass_time(2 * DAY)
    host.reboot()
    host.run(ledger)
    with ledger.read() as unit:
        (found,) = [event for event in events.page(unit) if event.kind == "clock_absence"]
    assert found.new == {"from_micros": NOW, "to_micros": host.wall}


def test_a_short_absence_across_a_reboot_is_not_noted(ledger: Ledger, host: Host) -> None:
    host.run(ledger)
    host.pass_time(CLOCK_ABSENCE_QUIET_MAX_SECONDS * SECOND)
    host.reboot()
    assert host.start(ledger).absence is None


def test_an_absence_that_the_uptime_confirms_is_not_noted(ledger: Ledger, host: Host) -> None:
    host.run(ledger)
    host.pass_time(2 * DAY)
    assert host.start(ledger).absence is None


def test_a_start_ahead_of_the_databases_clock_is_a_jump(ledger: Ledger, host: Host) -> None:
    host.run(ledger)
    host.reboot()
    host.second = host.wall
    host.wall += CLOCK_SKEW_MAX_SECONDS * SECOND + 1
    require_jump(host.start(ledger))


def test_a_start_that_the_databases_clock_confirms_is_not_noted(ledger: Ledger, host: Host) -> None:
    host.run(ledger)
    host.pass_time(2 * DAY)
    host.reboot()
    host.second = host.wall - CLOCK_SKEW_MAX_SECONDS * SECOND
    clock = host.start(ledger)
    assert (clock.now_micros(), clock.absence) == (host.wall, None)


def test_a_first_start_ahead_of_the_databases_clock_is_a_jump(ledger: Ledger, host: Host) -> None:
    host.second = host.wall - 2 * DAY
    require_jump(host.start(ledger))


def test_lead_micros_says_how_far_the_hosts_clock_is_behind(ledger: Ledger, host: Host) -> None:
    host.run(ledger)
    host.wall -= HOUR
    clock = host.start(ledger)
    assert (clock.now_micros(), clock.lead_micros()) == (NOW, HOUR)


def test_the_boot_id_is_stable_and_sqlite_has_no_time(ledger: Ledger) -> None:
    assert boot_id() == boot_id()
    found = database_micros(ledger)
    assert (found is None) == (ledger.dialect == "sqlite")
