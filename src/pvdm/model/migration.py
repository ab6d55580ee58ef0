"""Protections and migrations: an operator's signed change of what a table is held to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pvdm.model.document import Value
from pvdm.model.fields import (
    Fields,
    invalid,
    require_form,
    require_number,
    require_random,
    require_sha256,
    require_text,
)
from pvdm.model.table import TableRef


class ProtectionAction(Enum):
    """Whether a table comes under a contract or leaves it."""

    PROTECT = "protect"
    UNPROTECT = "unprotect"


@dataclass(frozen=True, slots=True)
class TableState:
    """What the gate compares a proof with: contract, schema, partition spec, format."""

    contract_sha256: str
    schema_fingerprint: str
    spec_id: int
    format_version: int

    def __post_init__(self) -> None:
        require_sha256(self.contract_sha256, "the contract hash")
        require_sha256(self.schema_fingerprint, "the schema fingerprint")
        require_number(self.spec_id, "the partition spec", most=2**31 - 1)
        require_number(self.format_version, "the format version", least=1, most=3)

    def to_json(self) -> dict[str, Value]:
        """The state in a statement."""
        return {
            "contract_sha256": self.contract_sha256,
            "schema_fingerprint": self.schema_fingerprint,
            "spec_id": self.spec_id,
            "format_version": self.format_version,
        }

    @classmethod
    def from_json(cls, value: Value) -> TableState:
        """What `to_json` wrote."""
        fields = Fields(value, "a table's state", cls.__slots__)
        return cls(
            fields.text("contract_sha256"),
            fields.text("schema_fingerprint"),
            fields.number("spec_id"),
            fields.number("format_version"),
        )


@dataclass(frozen=True, slots=True)
class Migration:
    """A table goes from one state to another, by a named operator and for a reason."""

    operator: str
    reason: str
    table: TableRef
    before: TableState
    after: TableState
    nonce: str
    issued_at: int

    def __post_init__(self) -> None:
        require_form(self.operator, "identity", "the operator")
        require_text(self.reason, "the reason")
        if self.before == self.after:
            raise invalid("the migration", "two different states", "one state")
        require_random(self.nonce, "the nonce")
        require_number(self.issued_at, "the time of issue")

    def to_json(self) -> dict[str, Value]:
        """The predicate."""
        return {
            "operator": self.operator,
            "reason": self.reason,
            "table": self.table.to_json(),
            "before": self.before.to_json(),
            "after": self.after.to_json(),
            "nonce": self.nonce,
            "issued_at": self.issued_at,
        }

    @classmethod
    def from_json(cls, value: Value) -> Migration:
        """The migration that `to_json` wrote."""
        fields = Fields(value, "the migration", cls.__slots__)
        return cls(
            fields.text("operator"),
            fields.text("reason"),
            TableRef.from_json(fields.value("table")),
            TableState.from_json(fields.value("before")),
            TableState.from_json(fields.value("after")),
            fields.text("nonce"),
            fields.number("issued_at"),
        )


@dataclass(frozen=True, slots=True)
class Protection:
    """A table comes under a contract, or leaves it, by a named operator and for a reason."""

    operator: str
    reason: str
    action: ProtectionAction
    table: TableRef
    state: TableState
    nonce: str
    issued_at: int

    def __post_init__(self) -> None:
        require_form(self.operator, "identity", "the operator")
        require_text(self.reason, "the reason")
        require_random(self.nonce, "the nonce")
        require_number(self.issued_at, "the time of issue")

    def to_json(self) -> dict[str, Value]:
        """The predicate."""
        return {
            "operator": self.operator,
            "reason": self.reason,
            "action": self.action.value,
            "table": self.table.to_json(),
            "state": self.state.to_json(),
            "nonce": self.nonce,
            "issued_at": self.issued_at,
        }

    @classmethod
    def from_json(cls, value: Value) -> Protection:
        """The protection that `to_json` wrote."""
        fields = Fields(value, "the protection", cls.__slots__)
        return cls(
            fields.text("operator"),
            fields.text("reason"),
            fields.choice("action", ProtectionAction),
            TableRef.from_json(fields.value("table")),
            TableState.from_json(fields.value("state")),
            fields.text("nonce"),
            fields.number("issued_at"),
        )
