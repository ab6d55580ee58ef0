"""Times and durations as people write them, and as commands show them; inside they are microseconds, UTC."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import click

from pvdm.errors import Code, InputError
from pvdm.model.canonical_json import INTEGER_MAX
from pvdm.model.printable import utc_time

SECOND: Final = 1_000_000
_START: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO: Final = timedelta(microseconds=1)
_DURATION: Final = re.compile(r"([1-9][0-9]{0,8})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_MICROS: Final = re.compile(r"\d{16}")
_nanos: Callable[[], int] = time.time_ns


def now_micros() -> int:
    """The host's idea of the time; a person's commands have no other."""
    return _nanos() // 1_000


def utc(micros: int) -> str:
    """The time as people read it; whole seconds where there are no others."""
    return utc_time(micros)


def parse_time(text: str) -> int:
    """Microseconds of `2026-11-14`, `2026-11-14T10:00:00Z` or of the 16 digits that JSON output shows."""
    if _MICROS.fullmatch(text):
        return _within(int(text), text)
    try:
        if _DATE.fullmatch(text):
            return micros_of(date.fromisoformat(text))
        return micros_of(datetime.fromisoformat(text))
    except ValueError:
        raise _invalid(text) from None


def micros_of(when: date) -> int:
    """A date is its first moment in UTC; a time of day without a zone could be several moments."""
    if not isinstance(when, datetime):
        when = datetime(when.year, when.month, when.day, tzinfo=UTC)
    if when.tzinfo is None:
        raise _invalid(when.isoformat())
    return _within((when - _START) // _MICRO, when.isoformat())


def parse_duration(text: str) -> int:
    """Microseconds of `90s`, `30m`, `4h` or `365d`."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise Code.DURATION_INVALID(got=text[:40])
    return int(match[1]) * _SECONDS[match[2]] * SECOND


def duration(micros: int) -> str:
    """The duration in the largest unit that it is a whole number of, as people type it."""
    seconds = micros // SECOND
    unit = next(unit for unit, size in reversed(_SECONDS.items()) if seconds % size == 0)
    return f"{seconds // _SECONDS[unit]}{unit}"


class TimeType(click.types.StringParamType):
    """A moment on the command line."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Microseconds since the epoch."""
        try:
            return value if isinstance(value, int) else parse_time(str(value))
        except InputError as error:
            self.fail(f"expected {error.expected}, got {error.got}", param, ctx)


class DurationType(click.types.StringParamType):
    """A length of time on the command line, perhaps with a longest one."""

    name = "duration"

    def __init__(self, *, most: int | None = None) -> None:
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Microseconds."""
        try:
            found = value if isinstance(value, int) else parse_duration(str(value))
        except InputError as error:
            self.fail(f"expected {error.expected}, got {error.got}", param, ctx)
        if self._most is not None and found > self._most:
            self.fail(f"expected at most {duration(self._most)}, got {duration(found)}", param, ctx)
        return found


def _within(micros: int, text: str) -> int:
    if not 0 <= micros <= INTEGER_MAX:
        raise _invalid(text)
    return micros


def _invalid(text: str) -> InputError:
    return InputError(
        Code.TIME_INVALID,
        "this is no time",
        expected="a date, or a time with its zone, such as 2026-11-14T10:00:00Z",
        got=text[:40],
    )
