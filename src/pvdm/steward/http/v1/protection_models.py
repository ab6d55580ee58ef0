"""What goes over the wire about protections and migrations."""

from __future__ import annotations

from typing import Literal

from pvdm.steward.http.v1.models import Decimal, Micros, Random, Sha256, Told


class ProtectionAnswer(Told):
    """One approval that put a table or a namespace under a contract, or took it out.

    `snapshot_id` is what a table's `main` showed then; null is nothing yet.
    """

    protection_id: Sha256
    action: Literal["protect", "unprotect"]
    table_uuid: str | None
    namespace_id: Random | None
    name: str
    contract_sha256: Sha256
    schema_fingerprint: Sha256 | None
    structure_sha256: Sha256 | None
    snapshot_id: Decimal | None
    operator: str
    reason: str
    issued_at: Micros
    expires_at: Micros
    log_index: Decimal


class ProtectionsAnswer(Told):
    """Protections, newest first."""

    protections: list[ProtectionAnswer]


class ProtectedPart(Told):
    """A table (id: its UUID) or a namespace that is under a contract now.

    `protection_id` is the approval that put it there; a table without one was born protected in `born_in`.
    """

    kind: Literal["table", "namespace"]
    name: str
    id: str
    contract_sha256: Sha256
    since_at: Micros
    protection_id: Sha256 | None
    born_in: str | None


class ProtectedAnswer(Told):
    """What is protected now, by name."""

    protected: list[ProtectedPart]


class StatePart(Told):
    """A table's state as approvals and proofs name it."""

    contract_sha256: Sha256
    schema_fingerprint: Sha256
    spec_id: int
    format_version: int
    structure_sha256: Sha256


class MigrationAnswer(Told):
    """One migration: from which state to which, by which updates (JSON text); the metadata file it led to."""

    migration_id: Sha256
    table: str
    table_uuid: str
    operator: str
    reason: str
    before: StatePart
    after: StatePart
    updates: str
    metadata_sha256: Sha256 | None
    issued_at: Micros
    expires_at: Micros
    log_index: Decimal


class SubmittedMigrationAnswer(Told):
    """A migration that was handed in; `applied` says whether by this request, or by an earlier one.

    `contract_sha256` is in force by now; null where the table is gone or not protected any more.
    """

    migration: MigrationAnswer
    applied: Literal["now", "before"]
    applied_at: Micros
    contract_sha256: Sha256 | None


class MigrationsAnswer(Told):
    """Migrations, newest first."""

    migrations: list[MigrationAnswer]


class TargetAnswer(Told):
    """A table or a namespace as an approval would be about it; `metadata` is the table's document as JSON text."""

    kind: Literal["table", "namespace"]
    catalog: str
    id: str
    name: str
    contract_sha256: Sha256 | None
    metadata: str | None
