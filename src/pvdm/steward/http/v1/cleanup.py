"""Routes of orphans (files that attempts left behind) and of quarantine (files of failed attempts)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from pvdm.api.base import HEX16, TABLE_NAME_MAX_CHARACTERS
from pvdm.api.work import (
    OrphanList,
    OrphanView,
    QuarantinedList,
    QuarantinedView,
    QuarantineRemovalList,
    QuarantineRemovalView,
    RemoveOrphansRequest,
    RemoveQuarantinedRequest,
)
from pvdm.steward.cleanup.orphan_search import Orphan
from pvdm.steward.cleanup.quarantine import Quarantined
from pvdm.steward.http.body import body_of
from pvdm.steward.http.dependencies import Caller, NotaryPart

router = APIRouter(tags=["work"])

Table = Annotated[str, Query(min_length=1, max_length=TABLE_NAME_MAX_CHARACTERS)]


@router.get("/v1/orphans")
def orphans(notary: NotaryPart, grant: Caller, table: Table) -> OrphanList:
    """The files that ended attempts at the table left behind, and that nothing refers to."""
    return _orphan_list(notary.leftovers.orphans(grant, table))


@router.post("/v1/orphans/remove")
def remove_orphans(
    notary: NotaryPart, grant: Caller, body: Annotated[RemoveOrphansRequest, Depends(body_of(RemoveOrphansRequest))]
) -> OrphanList:
    """Remove them; gives those that were removed."""
    return _orphan_list(notary.leftovers.remove(grant, body.table))


@router.get("/v1/quarantine")
def quarantine(
    notary: NotaryPart,
    grant: Caller,
    table: Table | None = None,
    after: Annotated[str | None, Query(pattern=HEX16)] = None,
) -> QuarantinedList:
    """Failed attempts whose files are kept, oldest first; the next page comes after the last one's id.

    Those that the ledger does not know, as after a restore from a backup, come last.
    """
    found = notary.quarantine.listed(grant, table=table, after=after)
    return QuarantinedList(quarantine=tuple(_quarantined_view(each) for each in found))


@router.post("/v1/quarantine/remove")
def remove_quarantined(
    notary: NotaryPart,
    grant: Caller,
    body: Annotated[RemoveQuarantinedRequest, Depends(body_of(RemoveQuarantinedRequest))],
) -> QuarantineRemovalList:
    """Remove the files of these attempts for good; nothing is removed if one of them may still be published."""
    removed = notary.quarantine.remove(grant, body.attempt_ids, body.reason)
    return QuarantineRemovalList(
        removed=tuple(
            QuarantineRemovalView(
                attempt_id=each.attempt_id,
                files=each.files,
                bytes=each.size_bytes,
                name=each.name,
                reason=each.reason,
            )
            for each in removed
        )
    )


def _orphan_list(found: Iterable[Orphan]) -> OrphanList:
    return OrphanList(
        orphans=tuple(OrphanView(location=each.location, size=each.size, attempt_id=each.attempt_id) for each in found)
    )


def _quarantined_view(found: Quarantined) -> QuarantinedView:
    return QuarantinedView(
        attempt_id=found.attempt_id,
        workload_id=found.workload_id,
        chunk_id=found.chunk_id,
        table=found.table,
        table_uuid=found.table_uuid,
        verdict=found.verdict,
        proof_id=found.proof_id,
        failed_at=found.failed_micros,
        age_seconds=found.age_seconds,
        files=found.files,
        bytes=found.size_bytes,
        folder=found.folder,
        undecided=found.undecided,
    )
