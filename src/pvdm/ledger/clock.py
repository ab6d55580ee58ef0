"""The Steward's time: never before the latest time in the ledger, driven by the monotonic clock, stopped by a jump."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sqlalchemy import text

from pvdm.errors import Code, UnavailableError
from pvdm.ledger import ids
from pvdm.ledger.engine import Ledger
from pvdm.ledger.record import events
from pvdm.ledger.unit import Unit
from pvdm.model.fields import CLOCK_SKEW_MAX_SECONDS

CLOCK_STEP_MAX_SECONDS: Final = 300
CLOCK_ABSENCE_MAX_SECONDS: Final = 2_592_000
CLOCK_ABSENCE_QUIET_MAX_SECONDS: Final = 3_600

_MICROS: Final = 1_000_000
# Two good clocks drift apart by less than a thousandth of the elapsed time.
_DRIFT_DIVISOR: Final = 1_000


def wall_micros() -> int:
    """The time of the host's wall clock."""
    return time.time_ns() // 1_000


def monotonic_micros() -> int:
    """Elapsed time that cannot be set. It includes suspended time where the system provides that."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000


def boot_id() -> str:
    """The id of this run of the host's kernel. Empty if the system does not provide one."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()[:64]
    return ""


def database_micros(ledger: Ledger) -> int | None:
    """The time of the database server. None if the database has no clock of its own."""
    if ledger.dialect == "sqlite":
        return None
    with ledger.read() as unit:
        query = text("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        return int(unit.execute(query).scalar_one())


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The time from which the Steward continues, and whether there was a jump to confirm."""

    at_micros: int
    was_jumped: bool


@dataclass(frozen=True, slots=True)
class Absence:
    """A time without a Steward that no second clock confirms: from the last mark before it to the start after it."""

    from_micros: int
    to_micros: int


class LedgerClock:
    """Gives times that never run back, across restarts and across Stewards that share a ledger.

    The wall clock is followed forward only, and in total by at most the limit plus a thousandth of the elapsed time.
    A step beyond that is a jump, which an operator must confirm. Backward steps are ignored.

    A start is checked against other clocks: the host's monotonic clock if it has not rebooted since the ledger's last
    mark (`boot` is the id of the kernel's run), and the database server's (`second_micros`). Without either, a time
    without a Steward cannot be told from a jump: up to the limit it is accepted, and noted as an `absence`.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        wall: Callable[[], int] = wall_micros,
        monotonic: Callable[[], int] = monotonic_micros,
        boot: str = "",
        second_micros: int | None = None,
    ) -> None:
        self._ledger = ledger
        self._wall = wall
        self._monotonic = monotonic
        self._boot = boot
        self._lock = threading.Lock()
        with ledger.read() as unit:
            mark = events.high_water_micros(unit)
            boot_mark = _find_boot_mark(unit, boot)
        shown = wall()
        # The time of the last mark on this boot, and the time elapsed since.
        uptime = None if boot_mark is None else (boot_mark[0], max(0, monotonic() - boot_mark[1]))
        bounds = _latest_starts(mark, uptime, second_micros)
        latest, trusted = min(bounds, default=(shown, shown))
        start = shown if shown <= latest else trusted
        self._set(start if mark is None else max(mark, start))
        self._jumped_to = None if shown <= max(latest, self._base) else shown
        self.absence: Absence | None = None
        unreported = CLOCK_ABSENCE_QUIET_MAX_SECONDS * _MICROS
        if mark is not None and uptime is None and second_micros is None and self._base - mark > unreported:
            self.absence = Absence(mark, self._base)

    def now_micros(self) -> int:
        """The time. Raises `clock_jumped` until a step above the limit is confirmed."""
        with self._lock:
            return self._advance(self._wall())

    def trusted_micros(self) -> int:
        """The time without the part that an unconfirmed jump would add."""
        with self._lock:
            try:
                return self._advance(self._wall())
            except UnavailableError:
                return self._extrapolate()

    def synchronize(self) -> None:
        """Advance to the latest time in the ledger, which other Stewards wrote. Raises if that is a jump."""
        with self._ledger.read() as unit:
            mark = events.high_water_micros(unit)
        if mark is not None:
            with self._lock:
                self._advance(mark)

    def is_ready(self) -> bool:
        """Whether `now_micros` gives a time."""
        try:
            self.now_micros()
        except UnavailableError:
            return False
        return True

    def confirm(self, *, operator: str, reason: str) -> Confirmation:
        """Continue from the host's time, which an operator confirms. Without a jump nothing changes.

        The step log keeps name, reason, the time trusted before, the new time, and the one to which the clock jumped.
        """
        ids.require_name(operator, "operator")
        if not reason.strip():
            raise Code.IDENTIFIER_INVALID("a confirmation needs a reason", reason="reason_missing")
        with self._lock:
            before, host = self._extrapolate(), self._wall()
            after = max(before, host)
            jumped_to = self._jumped_to
            if jumped_to is None and not self._is_jump(host):
                return Confirmation(after, was_jumped=False)
        facts: dict[str, str | int] = {
            "operator": operator,
            "reason": ids.require_reason(reason),
            "from_micros": before,
            "to_micros": after,
            **({} if jumped_to is None else {"jumped_to_micros": jumped_to}),
        }
        with self._ledger.write(at_micros=after) as unit:
            events.note(unit, "clock_confirmed", "clock", operator, facts)
            self.mark(unit)
            unit.commit()
        with self._lock:
            self._set(max(after, self._extrapolate()))
            self._jumped_to = None
        return Confirmation(after, was_jumped=True)

    def lead_micros(self) -> int:
        """How far the trusted time is ahead of the host's clock; 0 if it is not."""
        return max(0, self.trusted_micros() - self.host_micros())

    def host_micros(self) -> int:
        """The time of the host's clock, right or wrong."""
        return self._wall()

    def mark(self, unit: Unit) -> None:
        """Write the unit's time into the ledger: at start, at stop and from time to time.

        The mark includes the monotonic clock, which the next start on this boot is checked against.
        """
        if self.absence is not None:
            key = f"absence {self.absence.to_micros}"
            if not events.history(unit, "clock", key):
                events.note(unit, "clock_absence", "clock", key, asdict(self.absence))
        events.note(unit, "clock_mark", "clock", self._boot, {"monotonic_micros": self._monotonic()})

    def _set(self, micros: int) -> None:
        self._base = micros
        self._since = self._monotonic()
        self._followed = 0

    def _extrapolate(self) -> int:
        """The time without another look at the wall clock. The caller holds the lock."""
        return self._base + self._elapsed() + self._followed

    def _elapsed(self) -> int:
        return max(0, self._monotonic() - self._since)

    def _is_jump(self, seen: int) -> bool:
        """Whether another clock is further ahead than a good clock drifts. The caller holds the lock."""
        elapsed = self._elapsed()
        return seen - self._base - elapsed > CLOCK_STEP_MAX_SECONDS * _MICROS + elapsed // _DRIFT_DIVISOR

    def _advance(self, seen: int) -> int:
        """The new time, given the time of another clock. The caller holds the lock."""
        elapsed = self._elapsed()
        ahead = seen - self._base - elapsed
        if self._is_jump(seen):
            self._jumped_to = seen
        if self._jumped_to is not None:
            jump, now = format_micros(self._jumped_to), format_micros(self._wall())
            got = f"{jump} at the jump; the host's clock is at {now} now"
            raise Code.CLOCK_JUMPED(expected=f"about {format_micros(self._base + elapsed + self._followed)}", got=got)
        self._followed = max(self._followed, ahead)
        return self._base + elapsed + self._followed


def _find_boot_mark(unit: Unit, boot: str) -> tuple[int, int] | None:
    """The time of the newest mark on this boot and the monotonic clock then; None without one."""
    found = events.newest(unit, "clock_mark", "clock", boot) if boot else None
    if found is None or found.new is None:
        return None
    return found.at_micros, int(found.new["monotonic_micros"])


def _latest_starts(mark: int | None, uptime: tuple[int, int] | None, second: int | None) -> list[tuple[int, int]]:
    """The latest times that the host's clock may show at a start, each with the time that is trusted then.

    `uptime` is the time of a mark on this boot, and the time elapsed since.
    """
    bounds = []
    if uptime is not None:
        marked, elapsed = uptime
        by_uptime = marked + elapsed
        bounds.append((by_uptime + CLOCK_STEP_MAX_SECONDS * _MICROS + elapsed // _DRIFT_DIVISOR, by_uptime))
    elif mark is not None:
        after_longest_absence = mark + CLOCK_ABSENCE_MAX_SECONDS * _MICROS
        bounds.append((after_longest_absence, after_longest_absence))
    if second is not None:
        bounds.append((second + CLOCK_SKEW_MAX_SECONDS * _MICROS, second))
    return bounds


def format_micros(micros: int) -> str:
    """A time as readable text."""
    return f"{datetime.fromtimestamp(micros // _MICROS, UTC):%Y-%m-%dT%H:%M:%SZ}"
