"""Protections and migrations: an operator's signed change of a table's contract, or of its structure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from pvdm.model.codec import DecimalText, Document, FieldType, Identity, JsonNumber, Random, Sha256, Text
from pvdm.model.fields import MICROS_PER_SECOND, Fields, inconsistent, invalid, require_lifetime, text_size
from pvdm.model.statements.table import FormatVersion, NamespaceRef, SpecId, TableRef

CONTRACT_MAX_BYTES: Final = 262_144
MIGRATION_UPDATES_MAX_BYTES: Final = 1_048_576
APPROVAL_LIFETIME_MAX_MICROS: Final = 7 * 24 * 3600 * MICROS_PER_SECOND


class ProtectionAction(StrEnum):
    """Whether a table or a namespace comes under a contract or leaves it."""

    PROTECT = "protect"
    UNPROTECT = "unprotect"


@dataclass(frozen=True, slots=True)
class TableState(Document, title="a table's state"):
    """The contract and the structure of a table. `structure_sha256` covers all that decides how `main` is read."""

    contract_sha256: Sha256
    schema_fingerprint: Sha256
    spec_id: SpecId
    format_version: FormatVersion
    structure_sha256: Sha256

    @property
    def columns_and_spec(self) -> tuple[str, int]:
        """What a contract must fit: the schema's fingerprint and the id of the partition spec."""
        return self.schema_fingerprint, self.spec_id


@dataclass(frozen=True, slots=True)
class Migration(Document, title="the migration"):
    """A protected table goes from one state to another by exactly these updates, and perhaps to another contract.

    `updates` is the JSON of Iceberg's updates, kept as text, because canonical JSON does not allow all its numbers.
    `contract` is the text of the new contract; None if the contract stays.
    """

    operator: Identity
    reason: Text
    table: TableRef
    before: TableState
    after: TableState
    updates: str
    contract: str | None
    nonce: Random
    issued_at: JsonNumber
    expires_at: JsonNumber

    def require_consistent(self) -> None:
        """The states differ, and the statement has the new contract's text only if the contract changes."""
        require_approval_lifetime(self.issued_at, self.expires_at)
        if self.before == self.after:
            raise invalid("the migration", "two different states", "one state")
        size = text_size(self.updates, "the updates")
        if not 0 < size <= MIGRATION_UPDATES_MAX_BYTES:
            raise invalid("the updates", f"1 to {MIGRATION_UPDATES_MAX_BYTES} bytes", str(size))
        changed = self.before.contract_sha256 != self.after.contract_sha256
        require_contract(self.contract, self.after.contract_sha256, in_force=changed)


@dataclass(frozen=True, slots=True)
class TableTarget(Document, title="the target"):
    """A table that comes under a contract or leaves it; its state and head of `main` (None: empty) at the signing."""

    table: TableRef
    state: TableState
    snapshot_id: DecimalText | None

    @property
    def contract_sha256(self) -> str:
        """The contract that the table comes under, or leaves."""
        return self.state.contract_sha256


@dataclass(frozen=True, slots=True)
class NamespaceTarget(Document, title="the target"):
    """A namespace whose new tables are created under the contract, or no longer are created under it."""

    namespace: NamespaceRef
    contract_sha256: Sha256


def _read_target(fields: Fields, key: str) -> TableTarget | NamespaceTarget:
    value = fields.value(key)
    if isinstance(value, Mapping) and "namespace" in value:
        return NamespaceTarget.from_json(value)
    return TableTarget.from_json(value)


@dataclass(frozen=True, slots=True)
class Protection(Document, title="the protection"):
    """A named operator protects a table or namespace under a contract, given as text, or ends its protection."""

    operator: Identity
    reason: Text
    action: ProtectionAction
    target: Annotated[TableTarget | NamespaceTarget, FieldType(_read_target, Document.to_json)]
    contract: str | None
    nonce: Random
    issued_at: JsonNumber
    expires_at: JsonNumber

    def require_consistent(self) -> None:
        """The statement has the contract's text if, and only if, it protects."""
        require_approval_lifetime(self.issued_at, self.expires_at)
        protects = self.action is ProtectionAction.PROTECT
        require_contract(self.contract, self.target.contract_sha256, in_force=protects)


def contract_sha256(text: str) -> str:
    """The hash that identifies a contract: SHA-256 of its bytes."""
    return hashlib.sha256(text.encode()).hexdigest()


def require_contract(text: str | None, sha256: str, *, in_force: bool) -> None:
    """A statement has a contract's text if, and only if, the contract comes into force. The text has this hash."""
    if in_force is (text is None):
        expected = "the contract that comes into force" if in_force else "no contract: none comes into force"
        raise invalid("the contract", expected, "none" if text is None else "one")
    if text is None:
        return
    size = text_size(text, "the contract")
    if not 0 < size <= CONTRACT_MAX_BYTES:
        raise invalid("the contract", f"1 to {CONTRACT_MAX_BYTES} bytes", f"{size} bytes")
    if contract_sha256(text) != sha256:
        raise inconsistent("contract_mismatch", sha256, contract_sha256(text))


def require_approval_lifetime(issued_at: int, expires_at: int) -> None:
    """An approval expires soon, because it is for the state that its signer saw."""
    lifetime = expires_at - issued_at
    require_lifetime(lifetime, APPROVAL_LIFETIME_MAX_MICROS, "approval_lifetime_invalid", "the approval")
