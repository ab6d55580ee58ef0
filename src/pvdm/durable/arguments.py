"""Checks the arguments of a Coordinator: a wrong type or value raises an `InputError` that names the argument."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Final

from pvdm.durable.parallel import PARALLEL_MAX
from pvdm.errors import Code, PvdmError
from pvdm.model.states import LEASE_MAX_SECONDS, LEASE_MIN_SECONDS, WORKLOAD_TIMEOUT_MAX_SECONDS

_GOT_MAX_CHARACTERS: Final = 80


def is_number(value: object) -> bool:
    """Whether the value is a finite number, and neither True nor False."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:  # an integer of more than 308 digits
        return False


def is_whole(value: object) -> bool:
    """Whether the value is a whole number, and neither True nor False."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def require_parallel(value: int) -> int:
    """Return the number of chunks that a run works on at a time."""
    if not is_whole(value) or not 1 <= value <= PARALLEL_MAX:
        raise _invalid("parallel", f"1 to {PARALLEL_MAX} chunks at a time", value)
    return int(value)


def require_workload_timeout(value: float | None) -> int | None:
    """Return how long runs may stage the chunks of a workload, rounded up to whole seconds."""
    if value is None:
        return None
    if not is_number(value) or not 0 < value <= WORKLOAD_TIMEOUT_MAX_SECONDS:
        expected = f"seconds above 0, at most {WORKLOAD_TIMEOUT_MAX_SECONDS:,} (365 days)"
        raise _invalid("workload_timeout", expected, value)
    return math.ceil(value)


def require_lease_seconds(value: int) -> int:
    """Return how long a run holds its lease after each renewal, in seconds."""
    if not is_whole(value) or not LEASE_MIN_SECONDS <= value <= LEASE_MAX_SECONDS:
        expected = f"a whole number of seconds from {LEASE_MIN_SECONDS} to {LEASE_MAX_SECONDS}"
        raise _invalid("lease_seconds", expected, value)
    return int(value)


def require_take_over(value: bool) -> bool:
    """Return whether the run ends the lease of another run."""
    if not isinstance(value, bool):
        raise _invalid("take_over", "True or False", value)
    return value


def argument_text(value: object) -> str:
    """The value as an error shows it: shortened, and in quotes if it is a text."""
    return repr(value)[:_GOT_MAX_CHARACTERS]


def _invalid(name: str, expected: str, value: object) -> PvdmError:
    return Code.USAGE(f"{name} cannot be used", expected=expected, got=argument_text(value))
