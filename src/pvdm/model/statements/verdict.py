"""The verdict of one attempt: PASS, or FAIL with the classes of what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from pvdm.errors import Code
from pvdm.model.codec import Document
from pvdm.model.fields import inconsistent, invalid

# Codes of findings that no retry solves: the partition spec does not tell which files lie in the declared partition.
BOUNDARY_CODES: Final = frozenset({Code.BOUNDARY_UNCLEAR, Code.PARTITION_UNKNOWN})


class Outcome(StrEnum):
    """The two outcomes."""

    PASS = "PASS"  # noqa: S105 - the word of the design, not a password
    FAIL = "FAIL"


class FailureClass(Enum):
    """What a FAIL found."""

    ADDED = "added"
    DUPLICATED = "duplicated"
    METADATA = "metadata"
    MISSING = "missing"
    MODIFIED = "modified"
    PHYSICAL = "physical"
    SCHEMA = "schema"


@dataclass(frozen=True, slots=True)
class Verdict(Document, title="the verdict"):
    """PASS without classes, or FAIL with at least one, in order of their names."""

    outcome: Outcome
    classes: tuple[FailureClass, ...] = ()

    def require_consistent(self) -> None:
        """Classes are distinct and in order, and only a FAIL has one."""
        names = [found.value for found in self.classes]
        if names != sorted(set(names)):
            raise invalid("the classes of the verdict", "distinct classes in order", ", ".join(names))
        require_classes(self.outcome, self.classes)

    @property
    def passed(self) -> bool:
        """Whether it is PASS."""
        return self.outcome is Outcome.PASS

    @classmethod
    def failed(cls, *classes: FailureClass) -> Verdict:
        """FAIL with these classes, in any order."""
        return cls(Outcome.FAIL, tuple(sorted(set(classes), key=lambda found: found.value)))


def require_classes(outcome: Outcome, classes: tuple[FailureClass, ...]) -> None:
    """A PASS has no classes, and a FAIL has at least one."""
    if (outcome is Outcome.FAIL) != bool(classes):
        expected = "PASS without classes, or FAIL with at least one"
        raise inconsistent("verdict_invalid", expected, f"{outcome.value} with {len(classes)} classes")
