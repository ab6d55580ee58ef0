"""The client's time-outs, retries and response size, each with its limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from pvdm.errors import Code, InputError

TRIES_MAX: Final = 100
WAIT_MAX_SECONDS: Final = 86_400
ANSWER_SIZE_MAX_BYTES: Final = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TimeOuts:
    """Seconds for one try: to connect, between two pieces of the response, and for the whole response.

    `long_seconds` is for calls that take the Steward long to answer, both until the first piece and in all.
    """

    connect_seconds: float = 5.0
    read_seconds: float = 30.0
    total_seconds: float = 60.0
    long_seconds: float = 1_800.0

    def __post_init__(self) -> None:
        for name in ("connect_seconds", "read_seconds", "total_seconds", "long_seconds"):
            _require_seconds(name, getattr(self, name))


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a request that may be repeated is sent, and how long the whole call may last, waiting included.

    Calls of a job wait `restart_seconds` for a Steward that does not answer, since it may be restarting.
    """

    tries: int = 4
    total_seconds: float = 120.0
    restart_seconds: float = 60.0
    first_wait_seconds: float = 0.2
    longest_wait_seconds: float = 5.0
    retry_after_longest_seconds: float = 30.0

    def __post_init__(self) -> None:
        given: object = self.tries  # what a caller without type checks may bring
        if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= TRIES_MAX:
            raise _invalid("tries", f"1 to {TRIES_MAX}", given)
        for name in (
            "total_seconds",
            "restart_seconds",
            "first_wait_seconds",
            "longest_wait_seconds",
            "retry_after_longest_seconds",
        ):
            _require_seconds(name, getattr(self, name))


def require_answer_size(size_max_bytes: int) -> int:
    """The largest response that is read; raises if it is over the limit."""
    given: object = size_max_bytes
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= ANSWER_SIZE_MAX_BYTES:
        raise _invalid("answer_max_bytes", f"1 to {ANSWER_SIZE_MAX_BYTES}", given)
    return given


def _require_seconds(name: str, given: object) -> None:
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if not number or not math.isfinite(float(str(given))) or not 0 < float(str(given)) <= WAIT_MAX_SECONDS:
        raise _invalid(name, f"more than 0 and at most {WAIT_MAX_SECONDS} seconds", given)


def _invalid(name: str, expected: str, given: object) -> InputError:
    return InputError(
        Code.CLIENT_SETTING_INVALID,
        f"{name} of the client cannot be accepted",
        expected=expected,
        got=ascii(given)[:40],
    )
