"""Responses about protected tables and namespaces, protections, migrations, and claims that a restore has lost."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from typing import Annotated, Literal, TypeAlias

from pydantic import ValidationInfo
from pydantic_core import PydanticCustomError

from pvdm.api.base import Count, DecimalText, Micros, RandomHex, ResponseModel, SentAs, Sha256
from pvdm.errors import InputError
from pvdm.model.statements.migration import ProtectionAction, TableState

TargetKind: TypeAlias = Literal["table", "namespace"]


class ProtectionView(ResponseModel):
    """An operator's signed approval that put a table or a namespace under a contract, or ended its protection.

    `snapshot_id` is the head of the table's `main` at that time; null for a namespace, or if `main` had no snapshot.
    """

    protection_id: Sha256
    action: ProtectionAction
    table_uuid: str | None
    namespace_id: RandomHex | None
    name: str
    contract_sha256: Sha256
    schema_fingerprint: Sha256 | None
    structure_sha256: Sha256 | None
    snapshot_id: DecimalText | None
    operator: str
    reason: str
    issued_at: Micros
    expires_at: Micros
    log_index: DecimalText


class ProtectionList(ResponseModel):
    """Protections, newest first."""

    protections: tuple[ProtectionView, ...]


class ProtectedView(ResponseModel):
    """A table (`id` is its UUID) or a namespace that is protected now.

    `protection_id` is the approval that protected it. A table that was created in a protected namespace has no approval
    of its own, and `born_in` is that namespace.
    """

    kind: TargetKind
    name: str
    id: str
    contract_sha256: Sha256
    since_at: Micros
    protection_id: Sha256 | None
    born_in: str | None


class ProtectedList(ResponseModel):
    """The tables or namespaces that are protected now, in order of name."""

    protected: tuple[ProtectedView, ...]


class TableStateView(ResponseModel):
    """The contract and the structure of a table, as approvals name them."""

    contract_sha256: Sha256
    schema_fingerprint: Sha256
    spec_id: Count
    format_version: Count
    structure_sha256: Sha256


def _read_state(view: TableStateView, _: ValidationInfo) -> TableState:
    try:
        return TableState(**dict(view))
    except InputError as error:
        code = {"code": error.reason}
        raise PydanticCustomError("table_state", "Input should be the state of a table ({code})", code) from None


TableStateField: TypeAlias = Annotated[
    TableState, SentAs(TableStateView, _read_state, lambda state: TableStateView(**asdict(state)))
]


class MigrationView(ResponseModel):
    """One migration: the table's states before and after it, and its updates as JSON."""

    migration_id: Sha256
    table: str
    table_uuid: str
    operator: str
    reason: str
    before: TableStateField
    after: TableStateField
    updates: str
    metadata_sha256: Sha256 | None  # of the metadata after the migration; null if a restore lost it
    issued_at: Micros
    expires_at: Micros
    log_index: DecimalText


class MigrationList(ResponseModel):
    """Migrations, newest first."""

    migrations: tuple[MigrationView, ...]


class Applied(Enum):
    """Whether this request or an earlier one applied the migration."""

    NOW = "now"
    BEFORE = "before"


class SubmittedMigration(ResponseModel):
    """A submitted migration. `contract_sha256` is null if the table is dropped or not protected now."""

    migration: MigrationView
    applied: Applied
    applied_at: Micros
    contract_sha256: Sha256 | None


class TargetView(ResponseModel):
    """The table (`id` is its UUID) or namespace for a new approval; `metadata` is the table's metadata, as JSON."""

    kind: TargetKind
    catalog: str
    id: str
    name: str
    contract_sha256: Sha256 | None  # null if the target is not protected
    metadata: str | None


class ClaimReleaseView(ResponseModel):
    """A claim release: the statement by which an operator released the lost claim of a publication."""

    release_id: Sha256
    table: str
    table_uuid: str
    workload_id: str
    receipt_id: Sha256 | None  # null if the publication has no receipt
    proof_ids: tuple[Sha256, ...]
    restore_id: Sha256
    operator: str
    reason: str
    issued_at: Micros
    expires_at: Micros
    log_index: DecimalText


class LostClaimView(ResponseModel):
    """A publication whose claim a restore has lost. No workload can claim rows of the table until `release` is set.

    `restore_id` is the last restore; a claim release must name it. The fields from `parameters` on come from receipt
    and proofs of the publication. `chunk_ids` has the first chunks, and `chunks_more` counts the others.
    """

    catalog: str
    table: str
    table_uuid: str
    workload_id: str
    receipt_id: Sha256 | None  # null if the publication has no receipt; then it has one proof
    proof_ids: tuple[Sha256, ...]
    restore_id: Sha256
    release: ClaimReleaseView | None
    parameters: dict[str, str | None] | None = None  # null if the ledger lacks the proofs
    chunk_ids: tuple[str, ...] = ()
    chunks_more: Count = 0
    rows: DecimalText | None = None  # null if a proof is missing or not read
    snapshot_id: DecimalText | None = None
    published_at: Micros | None = None  # null without a receipt


class LostClaimList(ResponseModel):
    """The lost claims that block claims, then the released ones; each group is sorted by workload."""

    lost_claims: tuple[LostClaimView, ...]
