"""The base class of `Code`: a member finds its entry in the registry and creates its errors."""

from __future__ import annotations

from enum import StrEnum

from pvdm.errors.kinds import KINDS, PvdmError
from pvdm.errors.registry import Entry, load_section


class RegisteredCode(StrEnum):
    """A code of the registry. Calling it creates the error: `raise Code.TABLE_UNKNOWN(got=name)`."""

    section: str  # the code's file in the registry, without `.toml`

    def __new__(cls, value: str, section: str) -> RegisteredCode:
        """Create a member of the enumeration."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.section = section
        return member

    @property
    def entry(self) -> Entry:
        """The code's entry in the registry."""
        return load_section(self.section)[self.value]

    def __call__(
        self,
        message: str | None = None,
        *,
        reason: str | None = None,
        expected: str | None = None,
        got: str | None = None,
        hint: str | None = None,
        **details: str | int,
    ) -> PvdmError:
        """Create an error of the code's first kind. Texts not given are from the entry of `reason`, else the code's."""
        entry = self.entry if reason is None else self.entry.reasons[reason]
        error = KINDS[self.entry.kinds[0]](
            self,
            message or entry.default_message,
            expected=entry.expected if expected is None else expected,
            got=got,
            hint=hint or entry.hint,
            **details,
        )
        error.reason = reason or error.reason  # set here: given a reason, the constructor would read every section
        return error
