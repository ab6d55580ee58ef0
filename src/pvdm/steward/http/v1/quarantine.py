"""What failed and is kept: looked at, and removed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from pvdm.steward.cleanup.quarantine import Quarantined
from pvdm.steward.http.body import body_of
from pvdm.steward.http.dependencies import Caller, NotaryPart
from pvdm.steward.http.v1.models import HEX16
from pvdm.steward.http.v1.work_models import (
    TABLE_NAME_MAX_CHARACTERS,
    QuarantineAnswer,
    QuarantinedAttemptPart,
    QuarantineRemovalBody,
    QuarantineRemovalPart,
    QuarantineRemovalsAnswer,
)

router = APIRouter(tags=["work"])


@router.get("/v1/quarantine")
def quarantine(
    notary: NotaryPart,
    grant: Caller,
    table: Annotated[str | None, Query(min_length=1, max_length=TABLE_NAME_MAX_CHARACTERS)] = None,
    after: Annotated[str | None, Query(pattern=HEX16)] = None,
) -> QuarantineAnswer:
    """Failed attempts whose files are kept, oldest first; the next page comes after the last one's id.

    Those that the ledger does not know, as after a restore from a backup, come last.
    """
    return QuarantineAnswer(
        quarantine=[_part(each) for each in notary.quarantine.listed(grant, table=table, after=after)]
    )


@router.post("/v1/quarantine/remove")
def remove(
    notary: NotaryPart,
    grant: Caller,
    body: Annotated[QuarantineRemovalBody, Depends(body_of(QuarantineRemovalBody))],
) -> QuarantineRemovalsAnswer:
    """Remove the files of these attempts for good; nothing goes if one of them may still be published."""
    gone = notary.quarantine.remove(grant, body.attempt_ids, body.reason)
    parts = [
        QuarantineRemovalPart(
            attempt_id=each.attempt_id,
            files=each.files,
            bytes=str(each.size_bytes),
            name=each.name,
            reason=each.reason,
        )
        for each in gone
    ]
    return QuarantineRemovalsAnswer(removed=parts)


def _part(found: Quarantined) -> QuarantinedAttemptPart:
    return QuarantinedAttemptPart(
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
        bytes=str(found.size_bytes),
        folder=found.folder,
        undecided=found.undecided,
    )
