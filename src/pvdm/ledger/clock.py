"""The Steward's clock. Its time never runs back. After a jump of the wall clock an operator must confirm the time."""

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
from pvdm.model.fields import CLOCK_SKEW_MAX_SECONDS, MICROS_PER_SECOND

CLOCK_STEP_MAX_SECONDS: Final = 300  # how far the wall clock may get ahead of the monotonic clock; more is a jump
CLOCK_ABSENCE_MAX_SECONDS: Final = 2_592_000  # the longest absence (see `Absence`) that a start accepts: 30 days
CLOCK_ABSENCE_QUIET_MAX_SECONDS: Final = 3_600  # an absence up to this length is not reported

_MARK: Final = "clock_mark"  # by a process that opened the ledger
_SERVING_MARK: Final = "clock_serving"  # by a Steward that serves
_DRIFT_DIVISOR: Final = 1_000  # good clocks drift apart by less than a thousandth of the elapsed time


def wall_micros() -> int:
    """The time of the host's wall clock, in microseconds since 1970."""
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
    had_jumped: bool


@dataclass(frozen=True, slots=True)
class Absence:
    """The time from the ledger's latest event to the next start, if no second clock shows that it really passed."""

    from_micros: int
    to_micros: int


@dataclass(frozen=True, slots=True, order=True)
class _StartBound:
    """A start uses the time of the host's clock if it is at most `latest_micros`, and otherwise `trusted_micros`."""

    latest_micros: int
    trusted_micros: int


class LedgerClock:
    """Gives times that never run back, across restarts and across Stewards that share a ledger.

    The time advances with the monotonic clock, and by what the wall clock gains on the monotonic clock. In total that
    gain may be at most `CLOCK_STEP_MAX_SECONDS` plus a thousandth of the elapsed time. A larger gain is a jump, which
    an operator must confirm. Backward steps of the wall clock are ignored.

    A start compares the wall clock with up to two other clocks: the database server's (`server_time_micros`), and the
    host's monotonic clock if the ledger has a mark (`mark`) of this boot (`boot`). Without such a mark, an absence
    longer than `CLOCK_ABSENCE_MAX_SECONDS` is a jump. With neither clock, a start cannot tell a shorter absence from a
    jump; if the absence is longer than `CLOCK_ABSENCE_QUIET_MAX_SECONDS`, the start reports it in `absence`.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        wall: Callable[[], int] = wall_micros,
        monotonic: Callable[[], int] = monotonic_micros,
        boot: str = "",
        server_time_micros: int | None = None,
    ) -> None:
        self._ledger = ledger
        self._wall = wall
        self._monotonic = monotonic
        self._boot = boot
        self._lock = threading.Lock()
        with ledger.read() as unit:
            newest_event = events.high_water_micros(unit)
            by_uptime = _bound_by_uptime(unit, boot, monotonic)
        host = wall()
        strictest = min(_list_bounds(newest_event, by_uptime, server_time_micros), default=_StartBound(host, host))
        start = host if host <= strictest.latest_micros else strictest.trusted_micros
        self._restart_at(start if newest_event is None else max(newest_event, start))
        # The time after a jump that no operator has confirmed yet, by the wall clock or the ledger; or None.
        self._jumped_to = None if host <= max(strictest.latest_micros, self._base) else host
        self.absence: Absence | None = None
        has_second_clock = by_uptime is not None or server_time_micros is not None
        longest_quiet = CLOCK_ABSENCE_QUIET_MAX_SECONDS * MICROS_PER_SECOND
        if newest_event is not None and not has_second_clock and self._base - newest_event > longest_quiet:
            self.absence = Absence(newest_event, self._base)

    def now_micros(self) -> int:
        """The time in microseconds since 1970. Raises `clock_jumped` after a jump, until an operator confirms it."""
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
        """Advance to the ledger's latest time, if it is later: another Steward wrote it. Raises `clock_jumped`."""
        with self._ledger.read() as unit:
            newest_event = events.high_water_micros(unit)
        if newest_event is not None:
            with self._lock:
                self._advance(newest_event)

    def is_ready(self) -> bool:
        """Whether `now_micros` returns a time, because no jump waits for an operator."""
        try:
            self.now_micros()
        except UnavailableError:
            return False
        return True

    def confirm(self, *, operator: str, reason: str) -> Confirmation:
        """Continue from the host's time, which an operator confirms, or from the trusted time if that is later.

        Without a jump nothing changes. The step log (the ledger's list of changes) keeps operator, reason, the trusted
        time before, the new time and the time of the jump. Raises `identifier_invalid` for a bad name or reason.
        """
        ids.require_name(operator, "operator")
        if not reason.strip():
            raise Code.IDENTIFIER_INVALID("a confirmation needs a reason", reason="reason_missing")
        with self._lock:
            before, host = self._extrapolate(), self._wall()
            after = max(before, host)
            jumped_to = self._jumped_to
            if jumped_to is None and not self._is_jump(host):
                return Confirmation(after, had_jumped=False)
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
            self._restart_at(max(after, self._extrapolate()))
            self._jumped_to = None
        return Confirmation(after, had_jumped=True)

    def lead_micros(self) -> int:
        """How far the trusted time is ahead of the host's clock; 0 if it is behind."""
        return max(0, self.trusted_micros() - self.host_micros())

    def host_micros(self) -> int:
        """The time of the host's clock, right or wrong."""
        return self._wall()

    def mark(self, unit: Unit, *, serving: bool = False) -> None:
        """Write the unit's time into the ledger: at start, at stop and from time to time. `serving`: runs can use it.

        The mark includes the monotonic clock, with which the next start on this boot compares. An absence is noted too.
        """
        if self.absence is not None:
            key = f"absence {self.absence.to_micros}"
            if not events.history(unit, "clock", key):
                events.note(unit, "clock_absence", "clock", key, asdict(self.absence))
        kind = _SERVING_MARK if serving else _MARK
        events.note(unit, kind, "clock", self._boot, {"monotonic_micros": self._monotonic()})

    def _restart_at(self, micros: int) -> None:
        self._base = micros
        self._since = self._monotonic()  # what the monotonic clock showed at `_base`
        self._gain = 0  # the most that wall clock or ledger have gained on the monotonic clock since then

    def _extrapolate(self) -> int:
        """The time without another look at the wall clock. The caller holds the lock."""
        return self._base + self._elapsed() + self._gain

    def _elapsed(self) -> int:
        return max(0, self._monotonic() - self._since)

    def _is_jump(self, seen: int) -> bool:
        """Whether the time `seen`, of the wall clock or the ledger, is a jump. The caller holds the lock."""
        elapsed = self._elapsed()
        return seen - self._base - elapsed > CLOCK_STEP_MAX_SECONDS * MICROS_PER_SECOND + elapsed // _DRIFT_DIVISOR

    def _advance(self, seen: int) -> int:
        """The new time by `seen`, the time of wall clock or ledger. Raises at a jump. The caller holds the lock."""
        elapsed = self._elapsed()
        ahead = seen - self._base - elapsed
        if self._is_jump(seen):
            self._jumped_to = seen
        if self._jumped_to is not None:
            jump, now = format_micros(self._jumped_to), format_micros(self._wall())
            got = f"{jump} at the jump; the host's clock is at {now} now"
            raise Code.CLOCK_JUMPED(expected=f"about {format_micros(self._base + elapsed + self._gain)}", got=got)
        self._gain = max(self._gain, ahead)
        return self._base + elapsed + self._gain


def last_served_micros(unit: Unit) -> int:
    """When a Steward last stored a mark while it served. 0 if none did."""
    return events.last_micros(unit, _SERVING_MARK) or 0


def _bound_by_uptime(unit: Unit, boot: str, monotonic: Callable[[], int]) -> _StartBound | None:
    """The bound by the time elapsed since the newest mark on this boot; None without such a mark."""
    if not boot:
        return None
    found = (events.find_newest(unit, kind, "clock", boot) for kind in (_MARK, _SERVING_MARK))
    mark = max((each for each in found if each is not None), key=lambda each: each.event_id, default=None)
    if mark is None or mark.new is None:
        return None
    elapsed = max(0, monotonic() - int(mark.new["monotonic_micros"]))
    now = mark.at_micros + elapsed
    return _StartBound(now + CLOCK_STEP_MAX_SECONDS * MICROS_PER_SECOND + elapsed // _DRIFT_DIVISOR, now)


def _list_bounds(newest_event: int | None, by_uptime: _StartBound | None, server: int | None) -> list[_StartBound]:
    """The bound by uptime, or else by the longest absence; and the bound by the time of the database server."""
    bounds = []
    if by_uptime is not None:
        bounds.append(by_uptime)
    elif newest_event is not None:
        after_longest_absence = newest_event + CLOCK_ABSENCE_MAX_SECONDS * MICROS_PER_SECOND
        bounds.append(_StartBound(after_longest_absence, after_longest_absence))
    if server is not None:
        bounds.append(_StartBound(server + CLOCK_SKEW_MAX_SECONDS * MICROS_PER_SECOND, server))
    return bounds


def format_micros(micros: int) -> str:
    """A time as readable text: UTC, to the second."""
    return f"{datetime.fromtimestamp(micros // MICROS_PER_SECOND, UTC):%Y-%m-%dT%H:%M:%SZ}"
