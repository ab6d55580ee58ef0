"""Times and durations as text on the command line; in the program they are microseconds, UTC."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Final

import click

from pvdm.cli.common.options import Command, ParsedType
from pvdm.errors import Code, PvdmError
from pvdm.model.canonical_json import INTEGER_MAX
from pvdm.model.fields import MICROS_PER_SECOND
from pvdm.model.printable import utc_time

_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_NOT_POSITIVE: Final = re.compile(r"0+[smhd]|-[0-9]+[smhd]")
_DURATION: Final = re.compile(r"([1-9][0-9]{0,8})([smhd])")
_SECONDS_OF_UNIT: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_MICROS: Final = re.compile(r"\d{16}")  # times from 2001 to 2286 have 16 digits
_nanos: Callable[[], int] = time.time_ns  # tests replace it
utc: Final = utc_time


def now_micros() -> int:
    """The host's time, in microseconds since 1970."""
    return _nanos() // 1_000


def parse_time(text: str) -> int:
    """Microseconds of a date, or of a time such as `2026-11-14T10:00:00Z`. 16 digits are microseconds already."""
    if _MICROS.fullmatch(text):
        return _require_in_range(int(text), text)
    try:
        if _DATE.fullmatch(text):
            return to_micros(date.fromisoformat(text))
        return to_micros(datetime.fromisoformat(text))
    except ValueError:
        raise _invalid(text) from None


def to_micros(when: date) -> int:
    """Microseconds of a time, or of a date's first moment in UTC. Raises for a time without a zone."""
    if not isinstance(when, datetime):
        when = datetime(when.year, when.month, when.day, tzinfo=UTC)
    if when.tzinfo is None:
        raise _invalid(when.isoformat())
    return _require_in_range((when - _UNIX_EPOCH) // _MICROSECOND, when.isoformat())


def parse_duration(text: str) -> int:
    """Microseconds of `90s`, `30m`, `4h` or `365d`."""
    match = _DURATION.fullmatch(text)
    if match is None:
        expected = "a time above zero" if _NOT_POSITIVE.fullmatch(text) else None
        raise Code.USAGE(reason="duration_invalid", expected=expected, got=text[:40])
    return int(match[1]) * _SECONDS_OF_UNIT[match[2]] * MICROS_PER_SECOND


def duration_text(micros: int) -> str:
    """The duration as text, such as `4h`, in the largest unit that gives a whole number."""
    seconds = micros // MICROS_PER_SECOND
    unit = next(unit for unit, size in reversed(_SECONDS_OF_UNIT.items()) if seconds % size == 0)
    return f"{seconds // _SECONDS_OF_UNIT[unit]}{unit}"


TIME_TYPE: Final = ParsedType("time", parse_time)
DURATION_TYPE: Final = ParsedType("duration", parse_duration)


def duration_option(
    *names: str, default: str, help_text: str, max_micros: int | None = None
) -> Callable[[Command], Command]:
    """An option for a duration of at most `max_micros` microseconds, with a default; `names` as for `click.option`."""
    kind = duration_type(max_micros)
    return click.option(*names, type=kind, default=default, show_default=True, metavar="TIME", help=help_text)


def duration_type(max_micros: int | None) -> ParsedType:
    """The type of an option for a duration of at most `max_micros` microseconds."""

    def parse(text: str) -> int:
        micros = parse_duration(text)
        if max_micros is not None and micros > max_micros:
            expected = f"at most {duration_text(max_micros)}"
            raise Code.USAGE(reason="duration_invalid", expected=expected, got=duration_text(micros))
        return micros

    return ParsedType("duration", parse)


def _require_in_range(micros: int, text: str) -> int:
    if not 0 <= micros <= INTEGER_MAX:
        raise _invalid(text)
    return micros


def _invalid(text: str) -> PvdmError:
    return Code.USAGE(reason="time_invalid", got=text[:40])
