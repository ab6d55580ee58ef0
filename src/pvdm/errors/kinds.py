"""The classes of errors. Each has a code, a message, what was expected, what was got, and one next step."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import partial
from typing import Any, ClassVar, Final, Self, TypeVar

from pvdm.errors.registry import codes_by_reason

_T = TypeVar("_T")


class PvdmError(Exception):
    """An error with a stable code. Its class gives the exit code.

    Where a code has several reasons, `reason` says which of them applies; otherwise it equals the code. The
    constructor takes a code or a reason as `code`. It finds the code of a reason in the registry.
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        code: str,
        message: str,
        *,
        expected: str | None = None,
        got: str | None = None,
        hint: str | None = None,
        **details: str | int,
    ) -> None:
        super().__init__(message)
        self.code = str(code if isinstance(code, Enum) else codes_by_reason().get(code, code))
        self.reason = str(code)
        self.message = message
        self.expected = expected
        self.got = got
        self.hint = hint
        self.details = details

    @property
    def check(self) -> int | None:
        """The number of the gate's check that raised this error (spec/gate.md); None for every other error."""
        number = self.details.get("check")
        return number if isinstance(number, int) else None

    def __str__(self) -> str:
        difference = comparison(self.expected, self.got)
        return f"{self.message}: {difference}" if difference else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # By default pickle would pass only the message to the constructor.
        facts: dict[str, Any] = {"expected": self.expected, "got": self.got, "hint": self.hint} | self.details
        return partial(type(self), self.reason, self.message, **facts), ()

    def with_context(self, message: str, *, hint: str | None = None, **details: str | int) -> Self:
        """The same error with another message and more details. `hint` is used if the error has none."""
        facts: dict[str, Any] = {"expected": self.expected, "got": self.got, "hint": self.hint or hint}
        return type(self)(self.reason, message, **facts | self.details | details)

    def as_not_allowed(self, message: str, hint: str, reason: str | None = None) -> NotAllowedError:
        """The same facts as `NotAllowedError`, with another message and hint; `reason` replaces the error's own."""
        facts: dict[str, Any] = {"expected": self.expected, "got": self.got, "hint": hint}
        return NotAllowedError(reason or self.reason, message, **facts | self.details)

    def to_json(self) -> dict[str, object]:
        """The error envelope, the same in `--json` output and over HTTP."""
        return {
            "code": self.code,
            "reason": self.reason,
            "message": str(self),
            "expected": self.expected,
            "got": self.got,
            "hint": self.hint,
            "details": dict(self.details),
        }


def expect(value: _T | None, why: str) -> _T:
    """Return the value. Raises AssertionError with `why` if it is None, which would be a bug."""
    if value is None:
        raise AssertionError(why)
    return value


def comparison(expected: str | None, got: str | None) -> str:
    """A phrase with the expected and the actual value; empty if there is neither."""
    if not expected:
        return f"got {got}" if got else ""
    return f"expected {expected}, got {got or 'nothing'}"


class InputError(PvdmError):
    """The caller's input (arguments, schema or data) cannot be accepted."""

    exit_code = 2


class VerificationError(PvdmError):
    """A check of data, signatures or stored files failed."""

    exit_code = 3


class RolledBackError(PvdmError):
    """Work was stopped before its end and undone; it can be tried again."""

    exit_code = 4


class SegmentEndedError(RolledBackError):
    """A segment ended in order and the workload has more work: the same call continues it."""

    exit_code = 8


class ConflictError(RolledBackError):
    """Another caller was first. Nothing was changed; read the state again before you retry."""


class NotAllowedError(PvdmError):
    """The caller's role, the table's protection or the override does not allow the operation."""

    exit_code = 5


class StateUnknownError(PvdmError):
    """The operation may have happened or not: read the state before you retry."""

    exit_code = 6


class UnavailableError(PvdmError):
    """A service, file or package that the operation needs cannot be reached or is not installed."""

    exit_code = 7


class DevelopmentWarning(UserWarning):
    """A development Steward was created: its operator's key is in the Steward's own folder."""


KINDS: Final[Mapping[str, type[PvdmError]]] = {
    "conflict": ConflictError,
    "segment_ended": SegmentEndedError,
    "rolled_back": RolledBackError,
    "input": InputError,
    "verification": VerificationError,
    "not_allowed": NotAllowedError,
    "state_unknown": StateUnknownError,
    "unavailable": UnavailableError,
    "bug": PvdmError,
}
"""The classes by their names in the registry and in HTTP responses. Subclasses precede their bases and match first."""
