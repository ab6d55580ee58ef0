"""Protected tables and namespaces, protections and migrations."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from typing import Annotated, Literal, TypeAlias

from pydantic import ValidationInfo
from pydantic_core import PydanticCustomError

from pvdm.api.base import Count, Decimal, Micros, Random, ResponseModel, SentAs, Sha256
from pvdm.errors import InputError
from pvdm.model.statements.migration import ProtectionAction, TableState

TargetKind: TypeAlias = Literal["table", "namespace"]


class ProtectionView(ResponseModel):
    """One approval that put a table or a namespace under a contract, or removed it from one.

    `snapshot_id` is the head of the table's `main` at that time; null if there was none.
    """

    protection_id: Sha256
    action: ProtectionAction
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


class ProtectionList(ResponseModel):
    """Protections, newest first."""

    protections: tuple[ProtectionView, ...]


class ProtectedView(ResponseModel):
    """A table (id: its UUID) or a namespace that is under a contract now.

    `protection_id` is the approval that put it there. A table without one was created protected, in `born_in`.
    """

    kind: TargetKind
    name: str
    id: str
    contract_sha256: Sha256
    since_at: Micros
    protection_id: Sha256 | None
    born_in: str | None


class ProtectedList(ResponseModel):
    """What is protected now, by name."""

    protected: tuple[ProtectedView, ...]


class TableStateView(ResponseModel):
    """A table's state as approvals and proofs name it."""

    contract_sha256: Sha256
    schema_fingerprint: Sha256
    spec_id: Count
    format_version: Count
    structure_sha256: Sha256


def _read_state(view: TableStateView, _: ValidationInfo) -> TableState:
    try:
        return TableState(**dict(view))
    except InputError as error:
        code = error.reason
    raise PydanticCustomError("table_state", "Input should be the state of a table ({code})", {"code": code})


TableStateField: TypeAlias = Annotated[
    TableState, SentAs(TableStateView, _read_state, lambda state: TableStateView(**asdict(state)))
]


class MigrationView(ResponseModel):
    """One migration: from which state to which, by which updates (JSON text), and the hash of the new metadata file.

    `metadata_sha256` is null after a restore.
    """

    migration_id: Sha256
    table: str
    table_uuid: str
    operator: str
    reason: str
    before: TableStateField
    after: TableStateField
    updates: str
    metadata_sha256: Sha256 | None
    issued_at: Micros
    expires_at: Micros
    log_index: Decimal


class MigrationList(ResponseModel):
    """Migrations, newest first."""

    migrations: tuple[MigrationView, ...]


class Applied(Enum):
    """Whether this request applied a migration, or an earlier one."""

    NOW = "now"
    BEFORE = "before"


class SubmittedMigration(ResponseModel):
    """A submitted migration; `contract_sha256` is in force now, and null if the table is gone or not protected."""

    migration: MigrationView
    applied: Applied
    applied_at: Micros
    contract_sha256: Sha256 | None


class TargetView(ResponseModel):
    """A table (id: its UUID) or a namespace that an approval may be about; `metadata` is a table's document as JSON."""

    kind: TargetKind
    catalog: str
    id: str
    name: str
    contract_sha256: Sha256 | None
    metadata: str | None
