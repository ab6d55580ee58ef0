"""The errors by which a signed document is refused (exit code 3). Input errors of `pvdm.model` are translated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pvdm.errors import InputError, VerificationError
from pvdm.errors.registry import entries_by_reason


@contextmanager
def refuse_input_errors() -> Iterator[None]:
    """Raise an `InputError` as a `VerificationError` with the same reason, message and details."""
    try:
        yield
    except InputError as error:
        wanted, got = error.expected, error.got
        raise VerificationError(
            error.reason, error.message, expected=wanted, got=got, hint=error.hint, **error.details
        ) from None


def refused(
    code: str, expected: object, got: object, *, message: str | None = None, hint: str | None = None
) -> VerificationError:
    """The error with this code or reason. Without `message` it has the default message of the error registry."""
    message = message or entries_by_reason()[code].default_message
    return VerificationError(code, message, expected=str(expected), got=str(got), hint=hint)


def require_equal(code: str, expected: object, got: object) -> None:
    """Refuse a signed document unless both values are equal."""
    if expected != got:
        raise refused(code, expected, got)


def require_same(code: str, what: str, expected: object, got: object) -> None:
    """Refuse a proof that names another `what` than the expected one."""
    if expected != got:
        raise refused(code, expected, got, message=f"the proof is for another {what}")
