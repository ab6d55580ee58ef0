"""The Steward's time: never below the ledger's high-water mark, driven by the monotonic clock, stopped by a jump."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from pvdm.errors import InputError, UnavailableError
from pvdm.store import events, ids
from pvdm.store.engine import Ledger
from pvdm.store.unit import Unit

CLOCK_STEP_MAX_SECONDS: Final = 300
CLOCK_ABSENCE_MAX_SECONDS: Final = 2_592_000

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


class LedgerClock:
    """Hands out times that never run back, across restarts and across Stewards that share a ledger.

    The wall clock is followed forward by small steps only, and all of them together stay within the limit (and a
    thousandth of the time that went by) until an operator confirms. Backwards it is not followed at all.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        wall: Callable[[], int] = wall_micros,
        monotonic: Callable[[], int] = monotonic_micros,
    ) -> None:
        self._ledger = ledger
        self._wall = wall
        self._monotonic = monotonic
        self._lock = threading.Lock()
        with ledger.read() as unit:
            mark = events.high_water_micros(unit)
        seen = wall()
        start = seen if mark is None else max(mark, min(seen, mark + CLOCK_ABSENCE_MAX_SECONDS * _MICROS))
        self._set(start)
        # A step that was made while nobody watched cannot be told from a long rest: beyond the limit somebody must say.
        self._jumped = None if seen <= start else seen

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

    def confirm(self, *, operator: str, reason: str) -> int:
        """An operator says that the clock is right now; goes into the step log with name, reason and both times."""
        ids.name(operator, "operator")
        if not reason.strip():
            raise InputError("reason_missing", "a confirmation needs a reason")
        with self._lock:
            before = self._base + self._elapsed() + self._followed
            after = max(before, self._wall())
        facts: dict[str, str | int] = {
            "operator": operator,
            "reason": ids.reason(reason),
            "from_micros": before,
            "to_micros": after,
        }
        with self._ledger.write(at_micros=after) as unit:
            events.note(unit, "clock_confirmed", "clock", operator, facts)
            unit.commit()
        with self._lock:
            self._set(max(after, self._base + self._elapsed() + self._followed))
            self._jumped = None
        return after

    def _set(self, micros: int) -> None:
        self._base = micros
        self._since = self._monotonic()
        self._followed = 0

    def _elapsed(self) -> int:
        return max(0, self._monotonic() - self._since)

    def _advance(self, seen: int) -> int:
        """The new time, given what another clock shows; the lock is held."""
        elapsed = self._elapsed()
        ahead = seen - self._base - elapsed
        if ahead > CLOCK_STEP_MAX_SECONDS * _MICROS + elapsed // _DRIFT:
            self._jumped = seen
        if self._jumped is not None:
            raise _jumped(self._base + elapsed + self._followed, self._jumped)
        self._followed = max(self._followed, ahead)
        return self._base + elapsed + self._followed


def mark(unit: Unit) -> None:
    """Write the unit's time into the ledger as a mark, where nothing else would: at start, at stop, now and then."""
    events.note(unit, "clock_mark", "clock", "", {})


def _jumped(expected: int, got: int) -> UnavailableError:
    return UnavailableError(
        "clock_jumped",
        "the clock jumped forward; nothing is done until an operator confirms it",
        expected=f"about {expected} microseconds since 1970",
        got=str(got),
        hint="set the clock right, then confirm the time with a name and a reason",
    )
