"""Protections and migrations: an operator's signed change of what a table is held to, or of how it is built."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pvdm.errors import Code, InputError
from pvdm.model.canonical_json import Value
from pvdm.model.fields import (
    Fields,
    decimal,
    invalid,
    require_form,
    require_long,
    require_number,
    require_random,
    require_sha256,
    require_text,
    text_size,
)
from pvdm.model.statements.table import NamespaceRef, TableRef

CONTRACT_MAX_BYTES: Final = 262_144
MIGRATION_UPDATES_MAX_BYTES: Final = 1_048_576
APPROVAL_LIFETIME_MAX_MICROS: Final = 7 * 24 * 3600 * 1_000_000


class ProtectionAction(Enum):
    """Whether a table or a namespace comes under a contract or leaves it."""

    PROTECT = "protect"
    UNPROTECT = "unprotect"


@dataclass(frozen=True, slots=True)
class TableState:
    """What a table is held to, and how it is built; `structure_sha256` is over all that `main` is read by."""

    contract_sha256: str
    schema_fingerprint: str
    spec_id: int
    format_version: int
    structure_sha256: str

    def __post_init__(self) -> None:
        require_sha256(self.contract_sha256, "the contract hash")
        require_sha256(self.schema_fingerprint, "the schema fingerprint")
        require_number(self.spec_id, "the partition spec", most=2**31 - 1)
        require_number(self.format_version, "the format version", least=1, most=3)
        require_sha256(self.structure_sha256, "the hash of the structure")

    def to_json(self) -> dict[str, Value]:
        """The state in a statement."""
        return {
            "contract_sha256": self.contract_sha256,
            "schema_fingerprint": self.schema_fingerprint,
            "spec_id": self.spec_id,
            "format_version": self.format_version,
            "structure_sha256": self.structure_sha256,
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
            fields.text("structure_sha256"),
        )


@dataclass(frozen=True, slots=True)
class Migration:
    """A protected table goes from one state to another by exactly these updates, and perhaps to another contract.

    `updates` is the JSON text of Iceberg's updates: they hold numbers that no signed document has, so they are text.
    """

    operator: str
    reason: str
    table: TableRef
    before: TableState
    after: TableState
    updates: str
    contract: str | None
    nonce: str
    issued_at: int
    expires_at: int

    def __post_init__(self) -> None:
        _require_word(self)
        if self.before == self.after:
            raise invalid("the migration", "two different states", "one state")
        if not 0 < text_size(self.updates, "the updates") <= MIGRATION_UPDATES_MAX_BYTES:
            raise invalid(
                "the updates", f"1 to {MIGRATION_UPDATES_MAX_BYTES} bytes", str(text_size(self.updates, "the updates"))
            )
        changed = self.before.contract_sha256 != self.after.contract_sha256
        require_contract(self.contract, self.after.contract_sha256, wanted=changed)

    def to_json(self) -> dict[str, Value]:
        """The predicate."""
        return {
            "operator": self.operator,
            "reason": self.reason,
            "table": self.table.to_json(),
            "before": self.before.to_json(),
            "after": self.after.to_json(),
            "updates": self.updates,
            "contract": self.contract,
            "nonce": self.nonce,
            "issued_at": self.issued_at,
            "expires_at": self.expires_at,
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
            fields.text("updates"),
            fields.optional_text("contract"),
            fields.text("nonce"),
            fields.number("issued_at"),
            fields.number("expires_at"),
        )


@dataclass(frozen=True, slots=True)
class TableTarget:
    """A table in the state in which it comes under the state's contract, or leaves it.

    `snapshot_id` is what `main` shows then (None: nothing yet): where in its history proofs are owed, or end.
    """

    table: TableRef
    state: TableState
    snapshot_id: int | None

    def __post_init__(self) -> None:
        if self.snapshot_id is not None:
            require_long(self.snapshot_id, "the snapshot that main shows")

    @property
    def contract_sha256(self) -> str:
        """The contract that it comes under, or leaves."""
        return self.state.contract_sha256

    def to_json(self) -> dict[str, Value]:
        """The target in a statement."""
        return {
            "table": self.table.to_json(),
            "state": self.state.to_json(),
            "snapshot_id": decimal(self.snapshot_id),
        }


@dataclass(frozen=True, slots=True)
class NamespaceTarget:
    """A namespace whose new tables are born under the contract, or no longer are."""

    namespace: NamespaceRef
    contract_sha256: str

    def __post_init__(self) -> None:
        require_sha256(self.contract_sha256, "the contract hash")

    def to_json(self) -> dict[str, Value]:
        """The target in a statement."""
        return {"namespace": self.namespace.to_json(), "contract_sha256": self.contract_sha256}


@dataclass(frozen=True, slots=True)
class Protection:
    """A table or a namespace comes under a contract, or leaves it, by a named operator and for a reason."""

    operator: str
    reason: str
    action: ProtectionAction
    target: TableTarget | NamespaceTarget
    contract: str | None
    nonce: str
    issued_at: int
    expires_at: int

    def __post_init__(self) -> None:
        _require_word(self)
        protects = self.action is ProtectionAction.PROTECT
        require_contract(self.contract, self.target.contract_sha256, wanted=protects)

    def to_json(self) -> dict[str, Value]:
        """The predicate."""
        return {
            "operator": self.operator,
            "reason": self.reason,
            "action": self.action.value,
            "target": self.target.to_json(),
            "contract": self.contract,
            "nonce": self.nonce,
            "issued_at": self.issued_at,
            "expires_at": self.expires_at,
        }

    @classmethod
    def from_json(cls, value: Value) -> Protection:
        """The protection that `to_json` wrote."""
        fields = Fields(value, "the protection", cls.__slots__)
        return cls(
            fields.text("operator"),
            fields.text("reason"),
            fields.choice("action", ProtectionAction),
            _target(fields.value("target")),
            fields.optional_text("contract"),
            fields.text("nonce"),
            fields.number("issued_at"),
            fields.number("expires_at"),
        )


def contract_sha256(text: str) -> str:
    """The hash by which a contract is known: of its bytes as they are."""
    return hashlib.sha256(text.encode()).hexdigest()


def require_contract(text: str | None, sha256: str, *, wanted: bool) -> None:
    """The contract itself stands in the statement that brings it in, and nowhere else; its hash is the one named."""
    if (text is not None) is not wanted:
        expected = "the contract that comes into force" if wanted else "no contract: none comes into force"
        raise invalid("the contract", expected, "none" if text is None else "one")
    if text is None:
        return
    size = text_size(text, "the contract")
    if not 0 < size <= CONTRACT_MAX_BYTES:
        raise invalid("the contract", f"1 to {CONTRACT_MAX_BYTES} bytes", f"{size} bytes")
    if contract_sha256(text) != sha256:
        raise InputError(
            Code.CONTRACT_MISMATCH,
            "the contract is not the one that the state names",
            expected=sha256,
            got=contract_sha256(text),
        )


def require_approval_lifetime(issued_at: int, expires_at: int) -> None:
    """An approval is for the state that its signer saw: it is not kept for later."""
    if not 0 < expires_at - issued_at <= APPROVAL_LIFETIME_MAX_MICROS:
        raise InputError(
            Code.APPROVAL_LIFETIME_INVALID,
            "the approval's lifetime cannot be accepted",
            expected=f"more than 0 and at most {APPROVAL_LIFETIME_MAX_MICROS} microseconds",
            got=str(expires_at - issued_at),
        )


def _require_word(said: Migration | Protection) -> None:
    require_form(said.operator, "identity", "the operator")
    require_text(said.reason, "the reason")
    require_random(said.nonce, "the nonce")
    require_number(said.issued_at, "the time of issue")
    require_number(said.expires_at, "the time of expiry")
    require_approval_lifetime(said.issued_at, said.expires_at)


def _target(value: Value) -> TableTarget | NamespaceTarget:
    if isinstance(value, Mapping) and "namespace" in value:
        fields = Fields(value, "the target", NamespaceTarget.__slots__)
        return NamespaceTarget(NamespaceRef.from_json(fields.value("namespace")), fields.text("contract_sha256"))
    fields = Fields(value, "the target", TableTarget.__slots__)
    return TableTarget(
        TableRef.from_json(fields.value("table")),
        TableState.from_json(fields.value("state")),
        fields.optional_decimal("snapshot_id"),
    )
