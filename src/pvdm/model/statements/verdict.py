"""The verdict of one attempt: PASS, or FAIL with the classes of what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pvdm.errors import Code, InputError
from pvdm.model.canonical_json import Value
from pvdm.model.fields import Fields, invalid


class Outcome(Enum):
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
class Verdict:
    """PASS without classes, or FAIL with at least one, in order of their names."""

    outcome: Outcome
    classes: tuple[FailureClass, ...] = ()

    def __post_init__(self) -> None:
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

    def to_json(self) -> dict[str, Value]:
        """The verdict in a proof."""
        return {"outcome": self.outcome.value, "classes": [found.value for found in self.classes]}

    @classmethod
    def from_json(cls, value: Value) -> Verdict:
        """The verdict that `to_json` wrote."""
        fields = Fields(value, "the verdict", ("outcome", "classes"))
        classes = []
        for name in fields.texts("classes"):
            try:
                classes.append(FailureClass(name))
            except ValueError:
                raise invalid("the classes of the verdict", "a known class", repr(name[:64])) from None
        return cls(fields.choice("outcome", Outcome), tuple(classes))


def require_classes(outcome: Outcome, classes: tuple[FailureClass, ...]) -> None:
    """A PASS that names a failure and a FAIL that names none are no verdicts."""
    if (outcome is Outcome.FAIL) != bool(classes):
        raise InputError(
            Code.VERDICT_INVALID,
            "the verdict contradicts itself",
            expected="PASS without classes, or FAIL with at least one",
            got=f"{outcome.value} with {len(classes)} classes",
        )
