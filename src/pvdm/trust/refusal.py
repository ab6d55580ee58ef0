"""What is wrong with a signed document is a refusal (exit code 3), whichever room found it. Calls `errors` only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pvdm.errors import InputError, VerificationError


@contextmanager
def refusing() -> Iterator[None]:
    """Turn the model's complaint about a document into a refusal with the same code and words."""
    try:
        yield
    except InputError as error:
        raise VerificationError(
            error.reason,
            error.message,
            expected=error.expected,
            got=error.got,
            hint=error.hint,
            **error.details,
        ) from None


def refused(code: str, message: str, expected: object, got: object, hint: str | None = None) -> VerificationError:
    """A refusal with its own code."""
    return VerificationError(code, message, expected=str(expected), got=str(got), hint=hint)


def require_same(code: str, what: str, expected: object, got: object) -> None:
    """Refuse a proof whose bound fact is not the expected one."""
    if expected != got:
        raise refused(code, f"the proof is for another {what}", expected, got)
