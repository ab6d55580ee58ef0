"""Findings: what is wrong with staged data, collected instead of raised, since a verdict names everything it knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pvdm.errors import PvdmError, comparison
from pvdm.model.document import Value
from pvdm.model.verdict import FailureClass

FINDING_TEXT_MAX_CHARACTERS: Final = 400
# Findings whose `expected` and `got` hold numbers, ids and places alone. All others keep them at the Steward: a bound
# or a partition is a value of a row, and who sees values of rows is for governance to say.
SHOWN_WHOLE: Final = frozenset(
    {
        "boundary_moved",
        "delete_file_staged",
        "deletes_newer",
        "file_format_other",
        "file_outside_prefix",
        "record_count_lies",
        "removal_incomplete",
        "removal_outside_boundary",
        "removal_under_append",
        "schema_id_other",
        "spec_other",
        "staged_bytes_exceed",
        "staged_files_exceed",
        "staged_rows_exceed",
        "staged_snapshot_gone",
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not hold: its class in the verdict, a stable code, and the file it was found in, if any."""

    failure: FailureClass
    code: str
    message: str
    expected: str | None = None
    got: str | None = None
    file: str | None = None

    def __post_init__(self) -> None:
        # Names and values come from whoever staged the data; what ends up in answers and logs is printable and short.
        for name in ("message", "expected", "got", "file"):
            text = getattr(self, name)
            if text is not None:
                object.__setattr__(self, name, _shown(text))

    def __str__(self) -> str:
        tail = comparison(self.expected, self.got)
        place = f" ({self.file})" if self.file else ""
        return (f"{self.message}: {tail}" if tail else self.message) + place

    @classmethod
    def of(cls, failure: FailureClass, error: PvdmError, file: str | None = None) -> Finding:
        """What an error says, as a finding."""
        return cls(failure, error.code, error.message, error.expected, error.got, file)

    def to_json(self) -> dict[str, Value]:
        """The finding in an answer."""
        return {
            "class": self.failure.value,
            "code": self.code,
            "message": self.message,
            "expected": self.expected,
            "got": self.got,
            "file": self.file,
        }


def _shown(text: str) -> str:
    cut = text if len(text) <= FINDING_TEXT_MAX_CHARACTERS else f"{text[: FINDING_TEXT_MAX_CHARACTERS - 1]}…"
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in cut)
