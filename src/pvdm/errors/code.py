"""What a member of `Code` can do: find its entry in the registry, and make its error."""

from __future__ import annotations

from enum import StrEnum

from pvdm.errors.kinds import KINDS, PvdmError
from pvdm.errors.registry import Entry, load_section


class RegisteredCode(StrEnum):
    """A code of the registry. Calling it makes the error: `raise Code.TABLE_UNKNOWN(got=name)`."""

    section: str

    def __new__(cls, value: str, section: str) -> RegisteredCode:
        """A member of its section, which names the file of the registry."""
        made = str.__new__(cls, value)
        made._value_ = value
        made.section = section
        return made

    @property
    def entry(self) -> Entry:
        """The code's entry in the registry."""
        return load_section(self.section).entries[self.value]

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
        """Make the error of this code. The registry gives its class, and the message and hint that are not given."""
        family = self.entry
        entry = family if reason is None else family.reasons[reason]
        words = message or entry.message or entry.when
        wanted = entry.expected if expected is None else expected
        make = KINDS[family.kinds[0]]
        return make(reason or self, words, expected=wanted, got=got, hint=hint or entry.hint, **details)
