"""The classes of errors. Each has a code, a message, what was expected, what was got, and one next step."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar, Final, Self

from pvdm.errors.registry import codes_by_reason


class PvdmError(Exception):
    """An error with a stable code. Its class gives the exit code.

    A code may be a family of errors: `reason` then says which of them it is. Otherwise it equals the code. The
    constructor takes either of the two, and finds the code of a reason in the registry.
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
        """The number of the gate's check that raised it (spec/gate.md); None for every other error."""
        number = self.details.get("check")
        return number if isinstance(number, int) else None

    def __str__(self) -> str:
        tail = comparison(self.expected, self.got)
        return f"{self.message}: {tail}" if tail else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (
            type(self),
            self.reason,
            self.message,
            self.expected,
            self.got,
            self.hint,
            self.details,
        )

    def with_context(self, message: str, *, hint: str | None = None, **details: str | int) -> Self:
        """The same error with another message, more details, and this hint where it has none."""
        found = {**self.details, **details}
        wanted, got, step = self.expected, self.got, self.hint or hint
        return type(self)(self.reason, message, expected=wanted, got=got, hint=step, **found)

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


def comparison(expected: str | None, got: str | None) -> str:
    """What was expected and what was got, as far as the error says it; empty where it says neither."""
    if not expected:
        return f"got {got}" if got else ""
    return f"expected {expected}, got {got or 'nothing'}"


def _rebuild(
    cls: type[PvdmError],
    code: str,
    message: str,
    expected: str | None,
    got: str | None,
    hint: str | None,
    details: dict[str, str | int],
) -> PvdmError:
    return cls(code, message, expected=expected, got=got, hint=hint, **details)


class InputError(PvdmError):
    """The caller's words, schema or data cannot be accepted as they are."""

    exit_code = 2


class VerificationError(PvdmError):
    """Something that was checked does not hold."""

    exit_code = 3


class RolledBackError(PvdmError):
    """Work was stopped before its end and undone; it can be taken up again."""

    exit_code = 4


class ConflictError(RolledBackError):
    """Someone else was first: nothing of this happened; read again, then decide."""


class NotAllowedError(PvdmError):
    """Role, protection or override do not allow it."""

    exit_code = 5


class StateUnknownError(PvdmError):
    """It may have happened or not: read the state before you retry."""

    exit_code = 6


class UnavailableError(PvdmError):
    """A part that this work needs cannot be reached or is not installed."""

    exit_code = 7


class DevelopmentWarning(UserWarning):
    """A development Steward was created: its operator's key lies in its own folder."""


KINDS: Final[Mapping[str, type[PvdmError]]] = {
    "conflict": ConflictError,
    "rolled_back": RolledBackError,
    "input": InputError,
    "verification": VerificationError,
    "not_allowed": NotAllowedError,
    "state_unknown": StateUnknownError,
    "unavailable": UnavailableError,
    "bug": PvdmError,
}
"""The classes by the names that the registry and the HTTP envelope have for them; a subclass comes before its base."""
