"""The Steward's time: never below the ledger's high-water mark, driven by the monotonic clock, stopped by a jump."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sqlalchemy import text

from pvdm.errors import InputError, UnavailableError
from pvdm.ledger import ids
from pvdm.ledger.engine import Ledger
from pvdm.ledger.record import events
from pvdm.ledger.unit import Unit
from pvdm.model.clock import CLOCK_SKEW_MAX_SECONDS

CLOCK_STEP_MAX_SECONDS: Final = 300
CLOCK_ABSENCE_MAX_SECONDS: Final = 2_592_000
CLOCK_ABSENCE_QUIET_MAX_SECONDS: Final = 3_600

_MICROS: Final = 1_000_000
# Two good clocks drift apart by less than a thousandth; what is beyond that and the limit is a step.
_DRIFT: Final = 1_000


def wall_micros() -> int:
    """The host's idea of the time."""
    return time.time_ns() // 1_000


def monotonic_micros() -> int:
    """Elapsed time that nobody can set; time asleep counts where the system tells it."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000


def boot_id() -> str:
    """What names this run of the host's kernel; empty where the system does not tell."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()[:64]
    return ""


def database_micros(ledger: Ledger) -> int | None:
    """The time of the database server; None where the database has no clock of its own."""
    if ledger.dialect == "sqlite":
        return None
    with ledger.read() as unit:
        asked = text("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        return int(unit.execute(asked).scalar_one())


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The time from which the Steward goes on; without a jump there was nothing to confirm."""

    at_micros: int
    was_jumped: bool


@dataclass(frozen=True, slots=True)
class Absence:
    """A time without a Steward that no second clock bears out: the newest mark before it, and the start after it."""

    from_micros: int
    to_micros: int


class LedgerClock:
    """Hands out times that never run back, across restarts and across Stewards that share a ledger.

    The wall clock is followed forward by small steps only, and all of them together stay within the limit (and a
    thousandth of the time that went by) until an operator confirms. Backwards it is not followed at all.

    A start is judged by what else tells the time: on a host that was not started since the last mark of this ledger
    the monotonic clock (`boot` names that run of it), and the clock of the database server (`second_micros`). Where
    nothing does, a rest cannot be told from a step: up to the limit it is taken for a rest, and is an `absence`.
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
            marked = _mark_of_boot(unit, boot)
        seen = wall()
        uptime = None if marked is None else (marked[0], max(0, monotonic() - marked[1]))
        bounds = _bounds(mark, uptime, second_micros)
        latest, trusted = min(bounds, default=(seen, seen))
        start = seen if seen <= latest else trusted
        self._set(start if mark is None else max(mark, start))
        self._jumped = None if seen <= max(latest, self._base) else seen
        borne_out = uptime is not None or second_micros is not None
        self.absence = None if borne_out else _absence(mark, self._base)

    def now_micros(self) -> int:
        """The time; `clock_jumped` while a step above the limit is not confirmed."""
        with self._lock:
            return self._advance(self._wall())

    def trusted_micros(self) -> int:
        """The time as far as it can be trusted: as `now_micros`, and without what a jump would add while one stands."""
        with self._lock:
            try:
                return self._advance(self._wall())
            except UnavailableError:
                return self._base + self._elapsed() + self._followed

    def synchronize(self) -> None:
        """Take note of what other Stewards wrote to the ledger; a mark far ahead of this clock is a jump as well."""
        with self._ledger.read() as unit:
            mark = events.high_water_micros(unit)
        if mark is not None:
            with self._lock:
                self._advance(mark)

    def is_ready(self) -> bool:
        """Whether the time can be told."""
        try:
            self.now_micros()
        except UnavailableError:
            return False
        return True

    def confirm(self, *, operator: str, reason: str) -> Confirmation:
        """An operator says that the clock is right now; goes into the step log with name, reason and the times.

        Those are the time that was trusted before, the time from now on and, after a jump, the time that it showed.
        Where the clock has not jumped there is nothing to confirm, and nothing changes.
        """
        ids.name(operator, "operator")
        if not reason.strip():
            raise InputError("reason_missing", "a confirmation needs a reason")
        with self._lock:
            before, host = self._base + self._elapsed() + self._followed, self._wall()
            after = max(before, host)
            jumped = self._jumped
            if jumped is None and not self._is_jump(host):
                return Confirmation(after, was_jumped=False)
        facts: dict[str, str | int] = {
            "operator": operator,
            "reason": ids.reason(reason),
            "from_micros": before,
            "to_micros": after,
            **({} if jumped is None else {"jumped_to_micros": jumped}),
        }
        with self._ledger.write(at_micros=after) as unit:
            events.note(unit, "clock_confirmed", "clock", operator, facts)
            self.mark(unit)
            unit.commit()
        with self._lock:
            self._set(max(after, self._base + self._elapsed() + self._followed))
            self._jumped = None
        return Confirmation(after, was_jumped=True)

    def lead_micros(self) -> int:
        """How far the trusted time is ahead of the host's clock, which is behind then; 0 if it is not."""
        return max(0, self.trusted_micros() - self.host_micros())

    def host_micros(self) -> int:
        """What the host's clock shows, right or wrong."""
        return self._wall()

    def mark(self, unit: Unit) -> None:
        """Write the unit's time into the ledger where nothing else would: at start, at stop, now and then.

        With it goes what the monotonic clock shows, by which the next start on this boot is judged.
        """
        if self.absence is not None:
            told: dict[str, str | int] = {
                "from_micros": self.absence.from_micros,
                "to_micros": self.absence.to_micros,
            }
            if not events.history(unit, "clock", _absence_key(self.absence)):
                events.note(unit, "clock_absence", "clock", _absence_key(self.absence), told)
        events.note(unit, "clock_mark", "clock", self._boot, {"monotonic_micros": self._monotonic()})

    def _set(self, micros: int) -> None:
        self._base = micros
        self._since = self._monotonic()
        self._followed = 0

    def _elapsed(self) -> int:
        return max(0, self._monotonic() - self._since)

    def _is_jump(self, seen: int) -> bool:
        """Whether what a clock shows is further ahead than a good one drifts; the lock is held."""
        elapsed = self._elapsed()
        return seen - self._base - elapsed > CLOCK_STEP_MAX_SECONDS * _MICROS + elapsed // _DRIFT

    def _advance(self, seen: int) -> int:
        """The new time, given what another clock shows; the lock is held."""
        elapsed = self._elapsed()
        ahead = seen - self._base - elapsed
        if self._is_jump(seen):
            self._jumped = seen
        if self._jumped is not None:
            raise _jumped(self._base + elapsed + self._followed, self._jumped, self._wall())
        self._followed = max(self._followed, ahead)
        return self._base + elapsed + self._followed


def _mark_of_boot(unit: Unit, boot: str) -> tuple[int, int] | None:
    """The time of the newest mark that was made on this boot, and what the monotonic clock showed; None if none was."""
    found = events.newest(unit, "clock_mark", "clock", boot) if boot else None
    if found is None or found.new is None:
        return None
    return found.at_micros, int(found.new["monotonic_micros"])


def _bounds(mark: int | None, uptime: tuple[int, int] | None, second: int | None) -> list[tuple[int, int]]:
    """The latest times that a host's clock may show at a start, each with what is trusted if it shows a later one.

    `uptime` is the time of a mark on this boot, and what went by since.
    """
    bounds = []
    if uptime is not None:
        marked, elapsed = uptime
        by_uptime = marked + elapsed
        bounds.append((by_uptime + CLOCK_STEP_MAX_SECONDS * _MICROS + elapsed // _DRIFT, by_uptime))
    elif mark is not None:
        longest = mark + CLOCK_ABSENCE_MAX_SECONDS * _MICROS
        bounds.append((longest, longest))
    if second is not None:
        bounds.append((second + CLOCK_SKEW_MAX_SECONDS * _MICROS, second))
    return bounds


def _absence(mark: int | None, start: int) -> Absence | None:
    if mark is None or start - mark <= CLOCK_ABSENCE_QUIET_MAX_SECONDS * _MICROS:
        return None
    return Absence(mark, start)


def _absence_key(absence: Absence) -> str:
    return f"absence {absence.to_micros}"


def format_micros(micros: int) -> str:
    """A time as people read it."""
    return f"{datetime.fromtimestamp(micros // _MICROS, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _jumped(expected: int, jumped: int, host: int) -> UnavailableError:
    return UnavailableError(
        "clock_jumped",
        "the clock jumped forward; nothing is done until an operator confirms it",
        expected=f"about {format_micros(expected)}",
        got=f"{format_micros(jumped)} at the jump; the host's clock is at {format_micros(host)} now",
        hint="set the host's clock right, then say so with an operator's token of every domain: "
        "`pvdm steward confirm-clock --reason TEXT`",
    )
