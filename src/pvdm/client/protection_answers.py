"""What the Steward answers about protections and migrations, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pvdm.client.reading import Reading
from pvdm.model.statements.migration import ProtectionAction, TableState


@dataclass(frozen=True, slots=True)
class ProtectionView:
    """One approval that put a table or a namespace under a contract, or took it out.

    `snapshot_id` is what a table's `main` showed then; None is nothing yet.
    """

    protection_id: str
    action: ProtectionAction
    table_uuid: str | None
    namespace_id: str | None
    name: str
    contract_sha256: str
    schema_fingerprint: str | None
    structure_sha256: str | None
    snapshot_id: int | None
    operator: str
    reason: str
    issued_at: int
    expires_at: int
    log_index: int

    @classmethod
    def read(cls, value: object) -> ProtectionView:
        """The answer's value."""
        fields = Reading(value, "the protection")
        return cls(
            fields.hex("protection_id", 32),
            fields.choice("action", ProtectionAction),
            fields.optional_text("table_uuid"),
            fields.optional_hex("namespace_id", 16),
            fields.text("name"),
            fields.hex("contract_sha256", 32),
            fields.optional_hex("schema_fingerprint", 32),
            fields.optional_hex("structure_sha256", 32),
            fields.optional_decimal("snapshot_id"),
            fields.text("operator"),
            fields.text("reason"),
            fields.number("issued_at"),
            fields.number("expires_at"),
            fields.decimal("log_index"),
        )


@dataclass(frozen=True, slots=True)
class ProtectedView:
    """A table (id: its UUID) or a namespace under a contract now; without a protection of its own it was born so."""

    kind: str
    name: str
    id: str
    contract_sha256: str
    since_at: int
    protection_id: str | None
    born_in: str | None

    @classmethod
    def read(cls, value: object) -> ProtectedView:
        """The answer's value."""
        fields = Reading(value, "what is protected")
        return cls(
            fields.text("kind"),
            fields.text("name"),
            fields.text("id"),
            fields.hex("contract_sha256", 32),
            fields.number("since_at"),
            fields.optional_hex("protection_id", 32),
            fields.optional_text("born_in"),
        )


@dataclass(frozen=True, slots=True)
class MigrationView:
    """One migration: from which state to which, by which updates; `metadata_sha256` is None after a restore."""

    migration_id: str
    table: str
    table_uuid: str
    operator: str
    reason: str
    before: TableState
    after: TableState
    updates: str
    metadata_sha256: str | None
    issued_at: int
    expires_at: int
    log_index: int

    @classmethod
    def read(cls, value: object) -> MigrationView:
        """The answer's value."""
        fields = Reading(value, "the migration")
        return cls(
            fields.hex("migration_id", 32),
            fields.text("table"),
            fields.text("table_uuid"),
            fields.text("operator"),
            fields.text("reason"),
            _state(fields.reading("before")),
            _state(fields.reading("after")),
            fields.text("updates"),
            fields.optional_hex("metadata_sha256", 32),
            fields.number("issued_at"),
            fields.number("expires_at"),
            fields.decimal("log_index"),
        )


class Applied(Enum):
    """Whether a migration was applied when it was handed in just now, or before."""

    NOW = "now"
    BEFORE = "before"


@dataclass(frozen=True, slots=True)
class SubmittedMigration:
    """What became of a migration that was handed in; `contract_sha256` is in force by now, None if nothing is."""

    migration: MigrationView
    applied: Applied
    applied_at: int
    contract_sha256: str | None

    @classmethod
    def read(cls, value: object) -> SubmittedMigration:
        """The answer's value."""
        fields = Reading(value, "the migration that was handed in")
        return cls(
            MigrationView.read(fields.value("migration")),
            fields.choice("applied", Applied),
            fields.number("applied_at"),
            fields.optional_hex("contract_sha256", 32),
        )


@dataclass(frozen=True, slots=True)
class TargetView:
    """A table (id: its UUID) or a namespace as an approval would be about it; `metadata` is a table's document."""

    kind: str
    catalog: str
    id: str
    name: str
    contract_sha256: str | None
    metadata: bytes | None

    @classmethod
    def read(cls, value: object) -> TargetView:
        """The answer's value."""
        fields = Reading(value, "the target")
        metadata = fields.optional_text("metadata")
        return cls(
            fields.text("kind"),
            fields.text("catalog"),
            fields.text("id"),
            fields.text("name"),
            fields.optional_hex("contract_sha256", 32),
            None if metadata is None else metadata.encode(),
        )


def _state(fields: Reading) -> TableState:
    return TableState(
        fields.hex("contract_sha256", 32),
        fields.hex("schema_fingerprint", 32),
        fields.number("spec_id"),
        fields.number("format_version"),
        fields.hex("structure_sha256", 32),
    )
