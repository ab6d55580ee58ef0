"""Workloads and attempts as their domain sees them, and what a producer may do: give up, and ask for a token."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from pvdm.steward.http.body import body_of, require_empty
from pvdm.steward.http.models import (
    HEX16,
    PAGE_ROWS_MAX,
    WORKLOAD_ID,
    AttemptAnswer,
    PublishedPart,
    ReasonBody,
    TokenAnswer,
    WorkloadAnswer,
    WorkloadPart,
    WorkloadsAnswer,
)
from pvdm.steward.http.parts import Caller, NotaryPart
from pvdm.steward.http.routes_service import identity_of
from pvdm.store.attempts import Attempt
from pvdm.store.chunks import CHUNKS_MAX
from pvdm.store.workloads import Workload

router = APIRouter(tags=["work"])

Reasoned = Annotated[ReasonBody, Depends(body_of(ReasonBody))]
AttemptId = Annotated[str, Path(pattern=HEX16)]


@router.get("/v1/workloads")
def workloads(
    notary: NotaryPart,
    grant: Caller,
    after: Annotated[str | None, Query(pattern=WORKLOAD_ID)] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)] = 100,
) -> WorkloadsAnswer:
    """The next workloads of the token's domain after an id."""
    found = notary.work.workloads(grant, after=after, count=limit)
    return WorkloadsAnswer(workloads=[WorkloadPart.model_validate(_workload(each)) for each in found])


@router.get("/v1/workloads/{workload_id}")
def workload(
    notary: NotaryPart,
    grant: Caller,
    workload_id: Annotated[str, Path(pattern=WORKLOAD_ID)],
    chunks_after: Annotated[int, Query(ge=0, le=CHUNKS_MAX)] = 0,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)] = PAGE_ROWS_MAX,
) -> WorkloadAnswer:
    """One workload with a page of its plan, the attempts at those chunks and what is published of them."""
    found = notary.work.workload(grant, workload_id, chunks_after=chunks_after, count=limit)
    published = [
        PublishedPart(chunk_id=each.chunk_id, attempt_id=each.attempt_id, snapshot_id=each.snapshot_id)
        for each in found.published
    ]
    more = {
        "chunk_count": found.chunk_count,
        "chunk_ids": list(found.chunk_ids),
        "attempts": [_attempt(attempt) for attempt in found.attempts],
        "published": published,
    }
    return WorkloadAnswer.model_validate({**_workload(found.workload), **more})


@router.get("/v1/attempts/{attempt_id}")
def attempt(notary: NotaryPart, grant: Caller, attempt_id: AttemptId) -> AttemptAnswer:
    """One attempt."""
    return _attempt(notary.work.attempt(grant, attempt_id))


@router.post("/v1/attempts/{attempt_id}/abort")
def abort(notary: NotaryPart, grant: Caller, attempt_id: AttemptId, body: Reasoned) -> AttemptAnswer:
    """Give the attempt up; one that was given up stays so."""
    return _attempt(notary.work.abort(grant, attempt_id, body.reason))


@router.post("/v1/attempts/{attempt_id}/tokens", dependencies=[Depends(require_empty)])
def attempt_token(notary: NotaryPart, grant: Caller, attempt_id: AttemptId) -> TokenAnswer:
    """A short-lived token for this attempt alone."""
    token, made = notary.access.attempt_token(grant, attempt_id)
    return TokenAnswer(token=token.reveal(), identity=identity_of(made))


def _workload(found: Workload) -> dict[str, object]:
    opening = found.opening
    return {
        "workload_id": opening.workload_id,
        "domain": opening.domain,
        "state": found.state.value,
        "contract_hash": opening.contract_hash,
        "table_uuid": opening.table_uuid,
        "source": opening.source,
        "source_snapshot_id": found.source_snapshot_id,
        "plan_hash": found.plan_hash,
        "atomicity": opening.atomicity.value,
        "epoch": str(found.epoch),
        "reason": found.reason,
        "changed_at": found.at_micros,
    }


def _attempt(found: Attempt) -> AttemptAnswer:
    return AttemptAnswer(
        attempt_id=found.attempt_id,
        workload_id=found.workload_id,
        chunk_id=found.chunk_id,
        number=found.number,
        state=found.state.value,
        branch=found.branch,
        prefix=found.prefix,
        staged_snapshot_id=found.staged_snapshot_id,
        reason=found.reason,
        changed_at=found.at_micros,
    )
