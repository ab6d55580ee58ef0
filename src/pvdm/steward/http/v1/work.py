"""Routes of workloads, attempts and jobs, and of the files that attempts leave: orphans and quarantine."""

from __future__ import annotations

from typing import Annotated, Final, TypeVar

from fastapi import APIRouter, Depends, Path, Query

from pvdm.api.base import HEX16, PAGE_ROWS_MAX, TABLE_NAME_MAX_CHARACTERS, WORKLOAD_ID, ReasonRequest
from pvdm.api.service import AttemptTokenRequest, IssuedToken
from pvdm.api.work import (
    AttemptView,
    ChunkList,
    ChunkView,
    JobList,
    JobState,
    ListedJob,
    NewestWorkloads,
    OpenAttemptRequest,
    OpenWorkloadRequest,
    OrphanList,
    PublishBranchRequest,
    QuarantinedList,
    QuarantineRemovalList,
    QuarantineRemovalView,
    RemoveOrphansRequest,
    RemoveQuarantinedRequest,
    WorkloadDetail,
    WorkloadList,
    WorkloadView,
)
from pvdm.ledger.work.chunks import CHUNKS_MAX
from pvdm.steward.http.body import body_of, require_empty
from pvdm.steward.http.dependencies import Caller, NotaryPart, WaitingPart
from pvdm.steward.http.v1.service import identity_of
from pvdm.steward.work.opened import tables_and_workloads
from pvdm.steward.work.queries import job_view

WAIT_MAX_SECONDS: Final = 300
_W = TypeVar("_W", bound=WorkloadView)

router = APIRouter(tags=["work"])

ReasonBody = Annotated[ReasonRequest, Depends(body_of(ReasonRequest))]
AttemptId = Annotated[str, Path(pattern=HEX16)]
WorkloadId = Annotated[str, Path(pattern=WORKLOAD_ID)]
Place = Annotated[int, Query(ge=0, le=CHUNKS_MAX)]
Page = Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)]


Table = Annotated[str, Query(min_length=1, max_length=TABLE_NAME_MAX_CHARACTERS)]


@router.get("/v1/workloads")
def workloads(
    notary: NotaryPart,
    grant: Caller,
    after: Annotated[str | None, Query(pattern=WORKLOAD_ID)] = None,
    limit: Page = 100,
) -> WorkloadList:
    """The next workloads of the token's domain after an id."""
    return WorkloadList(workloads=tuple(notary.work.workloads(grant, after=after, count=limit)))


@router.get("/v1/newest-workloads")
def newest_workloads(notary: NotaryPart, grant: Caller, limit: Page = 100) -> NewestWorkloads:
    """The workloads of the token's domain that were opened or ended last, the latest first."""
    found, total = notary.work.newest_workloads(grant, count=limit)
    return NewestWorkloads(workloads=tuple(found), total=total)


@router.post("/v1/workloads")
def open_workload(
    notary: NotaryPart, grant: Caller, body: Annotated[OpenWorkloadRequest, Depends(body_of(OpenWorkloadRequest))]
) -> WorkloadView:
    """Open a workload under the table's contract: source pinned, plan fixed. The same request again changes nothing."""
    found = notary.workloads.open(grant, body.workload_id, body.table, body.parameters)
    return _with_newest_source(notary, notary.work.view(found))


@router.get("/v1/jobs")
def jobs(notary: NotaryPart, limit: Page = 100) -> JobList:
    """The jobs of this Steward that are not done; a failed job is due again at the next start."""
    order = (JobState.FAILED, JobState.WAITING, JobState.RUNNING, JobState.QUEUED)
    found = sorted(notary.jobs.listed(), key=lambda job: order.index(job.state))[:limit]
    works = tables_and_workloads(notary.ledger, [job.subject for job in found])
    return JobList(
        jobs=tuple(
            ListedJob(
                **dict(job_view(job)), kind=job.kind.value, subject=job.subject, table=table, workload_id=workload_id
            )
            for job, (table, workload_id) in zip(found, works, strict=True)
        )
    )


@router.get("/v1/workloads/{workload_id}")
def workload(
    notary: NotaryPart,
    grant: Caller,
    workload_id: WorkloadId,
    chunks_after: Place = 0,
    limit: Page = PAGE_ROWS_MAX,
    newest: bool = True,
) -> WorkloadDetail:
    """One workload with a page of its plan, the attempts at those chunks and what is published of them.

    Without `newest` the source's newest snapshot is not looked up, which suits frequent calls.
    """
    found = notary.work.workload(grant, workload_id, chunks_after=chunks_after, count=limit)
    return _with_newest_source(notary, found) if newest else found


@router.get("/v1/workloads/{workload_id}/chunks")
def chunks(
    notary: NotaryPart, grant: Caller, workload_id: WorkloadId, after: Place = 0, limit: Page = PAGE_ROWS_MAX
) -> ChunkList:
    """The plan's next chunks after so many, each with the last attempt at it."""
    found = notary.workloads.chunks(grant, workload_id, after=after, count=limit)
    tried = [each.attempt for each in found if each.attempt is not None]
    views = {view.attempt_id: view for view in notary.work.views(grant, tried)}
    return ChunkList(
        chunks=tuple(
            ChunkView(
                chunk_id=each.definition.chunk_id,
                where=each.definition.where,
                files=None if each.definition.files is None else tuple(each.definition.files),
                attempt=None if each.attempt is None else views[each.attempt.attempt_id],
            )
            for each in found
        )
    )


@router.post("/v1/workloads/{workload_id}/attempts")
def next_attempt(
    notary: NotaryPart,
    grant: Caller,
    workload_id: WorkloadId,
    body: Annotated[OpenAttemptRequest, Depends(body_of(OpenAttemptRequest))],
) -> AttemptView:
    """Open the next attempt at a chunk, with a branch and a place of its own; a live one is a conflict, and named."""
    made = notary.workloads.next_attempt(grant, workload_id, body.chunk_id, body.reason, body.attempt_id)
    return notary.work.views(grant, [made])[0]


@router.post("/v1/workloads/{workload_id}/abandon")
def abandon(notary: NotaryPart, grant: Caller, workload_id: WorkloadId, body: ReasonBody) -> WorkloadView:
    """Give the workload up: live attempts are rolled back; what is published stays."""
    found = notary.workloads.abandon(grant, workload_id, body.reason)
    return _with_newest_source(notary, notary.work.view(found))


@router.get("/v1/attempts/{attempt_id}")
async def attempt(
    notary: NotaryPart,
    waiting: WaitingPart,
    grant: Caller,
    attempt_id: AttemptId,
    wait: Annotated[int, Query(ge=0, le=WAIT_MAX_SECONDS)] = 0,
) -> AttemptView:
    """One attempt; with `wait`, as soon as it is settled, or as it is after so many seconds (fewer, if limits say)."""
    seconds = min(wait, notary.config.service.limits.request_seconds)
    return await waiting.attempt(grant, attempt_id, seconds)


@router.post("/v1/attempts/{attempt_id}/staged", dependencies=[Depends(require_empty)])
def staged(notary: NotaryPart, grant: Caller, attempt_id: AttemptId) -> AttemptView:
    """The write is complete: from now on the Steward verifies what is on the branch. Once more changes nothing."""
    return notary.work.views(grant, [notary.workloads.staged(grant, attempt_id)])[0]


@router.post("/v1/attempts/{attempt_id}/abort")
def abort(notary: NotaryPart, grant: Caller, attempt_id: AttemptId, body: ReasonBody) -> AttemptView:
    """Give the attempt up; one that was given up stays so. Its branch and its files are removed."""
    return notary.work.abort(grant, attempt_id, body.reason)


@router.post("/v1/attempts/{attempt_id}/tokens")
def attempt_token(
    notary: NotaryPart,
    grant: Caller,
    attempt_id: AttemptId,
    body: Annotated[AttemptTokenRequest, Depends(body_of(AttemptTokenRequest))],
) -> IssuedToken:
    """A short-lived token for this attempt alone; the bearer draws its text, so asking twice is safe."""
    return IssuedToken(identity=identity_of(notary.access.attempt_token(grant, attempt_id, body.secret_sha256)))


@router.post("/v1/publications")
def publish(
    notary: NotaryPart, grant: Caller, body: Annotated[PublishBranchRequest, Depends(body_of(PublishBranchRequest))]
) -> AttemptView:
    """Verify and publish a branch that was staged without an attempt: one chunk, and always the Steward's copies."""
    found = notary.workloads.adopt(grant, body.workload_id, body.table, body.branch, body.parameters, body.reason)
    return notary.work.views(grant, [found])[0]


def _with_newest_source(notary: NotaryPart, view: _W) -> _W:
    newest = notary.workloads.source_newest(view.workload_id)
    return view.model_copy(update={"source_newest_snapshot_id": newest})


@router.get("/v1/orphans")
def orphans(notary: NotaryPart, grant: Caller, table: Table) -> OrphanList:
    """The files that ended attempts at the table left behind, and that nothing refers to."""
    return OrphanList(orphans=tuple(notary.leftovers.orphans(grant, table)))


@router.post("/v1/orphans/remove")
def remove_orphans(
    notary: NotaryPart, grant: Caller, body: Annotated[RemoveOrphansRequest, Depends(body_of(RemoveOrphansRequest))]
) -> OrphanList:
    """Remove them; gives those that were removed."""
    return OrphanList(orphans=tuple(notary.leftovers.remove(grant, body.table)))


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
    return QuarantinedList(quarantine=tuple(notary.quarantine.listed(grant, table=table, after=after)))


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
                attempt_id=each.attempt_id, files=each.files, bytes=each.size_bytes, name=each.name, reason=each.reason
            )
            for each in removed
        )
    )
