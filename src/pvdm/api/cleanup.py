"""Files that attempts left behind, and the files of failed attempts in quarantine."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from pvdm.api.base import Count, Decimal, Micros, Random, Reason, RequestModel, ResponseModel, Sha256, TableName

QUARANTINE_REMOVED_MAX: Final = 100


class RemoveOrphansRequest(RequestModel):
    """The table whose orphans are removed."""

    table: TableName


class RemoveQuarantinedRequest(RequestModel):
    """The failed attempts whose files are removed, and why."""

    attempt_ids: Annotated[list[Random], Field(min_length=1, max_length=QUARANTINE_REMOVED_MAX)]
    reason: Reason


class OrphanView(ResponseModel):
    """A file that an attempt left behind, and that nothing refers to."""

    location: str
    size: Decimal
    attempt_id: Random


class OrphanList(ResponseModel):
    """Files that nothing refers to."""

    orphans: tuple[OrphanView, ...]


class QuarantinedView(ResponseModel):
    """A failed attempt whose files are kept; `undecided` says why they cannot be removed yet, and is null if they can.

    Workload and chunk are null where the ledger does not know the attempt; `failed_at` is when its files were written.
    """

    attempt_id: Random
    workload_id: str | None
    chunk_id: str | None
    table: str | None
    table_uuid: str
    verdict: str | None
    proof_id: Sha256 | None
    failed_at: Micros
    age_seconds: Count
    files: Count
    bytes: Decimal
    folder: str
    undecided: str | None


class QuarantinedList(ResponseModel):
    """Failed attempts whose files are kept, oldest first; empty after the last one."""

    quarantine: tuple[QuarantinedView, ...]


class QuarantineRemovalView(ResponseModel):
    """What was removed of one attempt, by whom and why."""

    attempt_id: Random
    files: Count
    bytes: Decimal
    name: str
    reason: str


class QuarantineRemovalList(ResponseModel):
    """What was removed."""

    removed: tuple[QuarantineRemovalView, ...]
