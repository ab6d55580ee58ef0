"""Files that attempts left behind: looked for, and removed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from pvdm.steward.cleanup.orphan_search import Orphan
from pvdm.steward.http.body import body_of
from pvdm.steward.http.dependencies import Caller, NotaryPart
from pvdm.steward.http.v1.work_models import TABLE_NAME_MAX_CHARACTERS, OrphanPart, OrphansAnswer, TableBody

router = APIRouter(tags=["work"])


@router.get("/v1/orphans")
def orphans(
    notary: NotaryPart,
    grant: Caller,
    table: Annotated[str, Query(min_length=1, max_length=TABLE_NAME_MAX_CHARACTERS)],
) -> OrphansAnswer:
    """The files that ended attempts at the table left behind, and that nothing refers to."""
    return _told(notary.leftovers.orphans(grant, table))


@router.post("/v1/orphans/remove")
def remove(notary: NotaryPart, grant: Caller, body: Annotated[TableBody, Depends(body_of(TableBody))]) -> OrphansAnswer:
    """Remove them; gives those that were removed."""
    return _told(notary.leftovers.remove(grant, body.table))


def _told(found: list[Orphan]) -> OrphansAnswer:
    parts = [OrphanPart(location=each.location, size=str(each.size), attempt_id=each.attempt_id) for each in found]
    return OrphansAnswer(orphans=parts)
