"""Restore statements: a backup was brought back, by whom and why, what was found again and what is lost."""

from __future__ import annotations

from dataclasses import dataclass

from pvdm.model.canonical_json import Value
from pvdm.model.fields import Fields, decimal, require_form, require_long, require_number, require_sha256, require_text


@dataclass(frozen=True, slots=True)
class RestoreStatement:
    """The notary's word on one restore: sizes of the log in the backup and outside, entries refilled and lost.

    Of those refilled, `missing` have no envelope any more; the operator has accepted that.
    """

    notary: str
    operator: str
    reason: str
    backup_size: int
    outside_origin: str
    outside_size: int
    outside_root: str
    refilled: int
    missing: int
    lost: int
    new_epoch: int
    issued_at: int

    def __post_init__(self) -> None:
        require_form(self.notary, "identity", "the notary")
        require_form(self.operator, "identity", "the operator")
        require_text(self.reason, "the reason")
        require_text(self.outside_origin, "the origin of the outside checkpoint")
        for number, what in (
            (self.backup_size, "the size of the backup's log"),
            (self.outside_size, "the size of the outside checkpoint"),
            (self.refilled, "the number of refilled entries"),
            (self.missing, "the number of refilled entries without envelope"),
            (self.lost, "the number of lost entries"),
            (self.new_epoch, "the new epoch"),
        ):
            require_long(number, what)
        require_sha256(self.outside_root, "the root of the outside checkpoint")
        require_number(self.issued_at, "the time of issue")

    def to_json(self) -> dict[str, Value]:
        """The predicate."""
        return {
            "notary": self.notary,
            "operator": self.operator,
            "reason": self.reason,
            "backup_size": decimal(self.backup_size),
            "outside_origin": self.outside_origin,
            "outside_size": decimal(self.outside_size),
            "outside_root": self.outside_root,
            "refilled": decimal(self.refilled),
            "missing": decimal(self.missing),
            "lost": decimal(self.lost),
            "new_epoch": decimal(self.new_epoch),
            "issued_at": self.issued_at,
        }

    @classmethod
    def from_json(cls, value: Value) -> RestoreStatement:
        """The statement that `to_json` wrote."""
        fields = Fields(value, "the restore statement", cls.__slots__)
        return cls(
            fields.text("notary"),
            fields.text("operator"),
            fields.text("reason"),
            fields.decimal("backup_size"),
            fields.text("outside_origin"),
            fields.decimal("outside_size"),
            fields.text("outside_root"),
            fields.decimal("refilled"),
            fields.decimal("missing"),
            fields.decimal("lost"),
            fields.decimal("new_epoch"),
            fields.number("issued_at"),
        )
