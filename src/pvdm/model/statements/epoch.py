"""Epoch statements: a generation of root keys begins, ends or is taken back, and which keys it has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pvdm.errors import Code
from pvdm.model.canonical_json import Value
from pvdm.model.fields import Fields, decimal, require_form, require_long, require_number, require_pairs, require_text


class EpochStage(Enum):
    """The stages of an epoch, in order."""

    CREATED = "CREATED"
    ACTIVE = "ACTIVE"
    RETIRED = "RETIRED"
    REVOKED = "REVOKED"


@dataclass(frozen=True, slots=True)
class EpochStatement:
    """The notary's word on one step of one epoch; `before` is null for a new one."""

    notary: str
    epoch: int
    before: EpochStage | None
    after: EpochStage
    reason: str
    key_ids: tuple[tuple[str, str | None], ...]
    issued_at: int

    def __post_init__(self) -> None:
        require_form(self.notary, "identity", "the notary")
        require_long(self.epoch, "the epoch")
        require_step(self.before, self.after)
        require_text(self.reason, "the reason")
        require_pairs(self.key_ids, "the key ids")
        require_number(self.issued_at, "the time of issue")

    def to_json(self) -> dict[str, Value]:
        """The predicate."""
        return {
            "notary": self.notary,
            "epoch": decimal(self.epoch),
            "before": None if self.before is None else self.before.value,
            "after": self.after.value,
            "reason": self.reason,
            "key_ids": dict(self.key_ids),
            "issued_at": self.issued_at,
        }

    @classmethod
    def from_json(cls, value: Value) -> EpochStatement:
        """The statement that `to_json` wrote."""
        fields = Fields(value, "the epoch statement", cls.__slots__)
        return cls(
            fields.text("notary"),
            fields.decimal("epoch"),
            None if fields.value("before") is None else fields.choice("before", EpochStage),
            fields.choice("after", EpochStage),
            fields.text("reason"),
            fields.pairs("key_ids"),
            fields.number("issued_at"),
        )


def require_step(before: EpochStage | None, after: EpochStage) -> None:
    """An epoch goes forward only; where it may end is its book's matter."""
    stages = list(EpochStage)
    place = -1 if before is None else stages.index(before)
    if stages.index(after) <= place:
        raise Code.EPOCH_STEP_INVALID(got=f"{stages[place].value} to {after.value}")
