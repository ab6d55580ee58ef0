"""Refusals of signed documents (exit code 3), whichever package found the fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pvdm.errors import Code, InputError, VerificationError
from pvdm.errors.registry import codes_by_reason


@contextmanager
def refusing() -> Iterator[None]:
    """Raise an `InputError` of the model about a document as a refusal with the same code and message."""
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


def refused(
    code: str, expected: object, got: object, *, message: str | None = None, hint: str | None = None
) -> VerificationError:
    """A refusal with this code or reason. A message that is not given comes from the registry."""
    words = message or _registered_message(code)
    return VerificationError(code, words, expected=str(expected), got=str(got), hint=hint)


def _registered_message(reason: str) -> str:
    code = codes_by_reason().get(reason, reason)
    family = Code[code.upper()].entry
    entry = family.reasons.get(reason, family)
    return entry.message or entry.when


def require_same(code: str, what: str, expected: object, got: object) -> None:
    """Refuse a proof whose bound fact is not the expected one."""
    if expected != got:
        raise refused(code, expected, got, message=f"the proof is for another {what}")
