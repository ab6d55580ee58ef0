"""Routes of workloads, attempts and jobs, and of the files that attempts leave: orphans and quarantine."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Final, TypeVar

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Path, Query

from pvdm.api import leases
from pvdm.api import work as api
from pvdm.api.base import (
    HEX_16_BYTES,
    PAGE_ROWS_MAX,
    TABLE_NAME_MAX_CHARACTERS,
    WORKLOAD_ID,
    WORKLOAD_ID_MAX_CHARACTERS,
)
from pvdm.api.service import AttemptTokenRequest, IssuedToken
from pvdm.ledger.work.chunks import CHUNKS_MAX
from pvdm.ledger.work.plannings import Planning
from pvdm.ledger.work.workloads import Workload
from pvdm.steward.http.body import ReasonBody, body_of, require_empty
from pvdm.steward.http.dependencies import Caller, LongPollsPart, NotaryPart
from pvdm.steward.http.v1.service import identity_of
from pvdm.steward.notary import Notary
from pvdm.steward.work.opened import list_tables_and_workloads
from pvdm.steward.work.queries import job_view, planning_view

WAIT_MAX_SECONDS: Final = 300
PLAN_WAIT_SECONDS: Final = 2.0  # how long one request waits for a plan
_View = TypeVar("_View", bound=api.WorkloadView)

router = APIRouter(tags=["work"])

AttemptId = Annotated[str, Path(pattern=HEX_16_BYTES)]
WorkloadId = Annotated[str, Path(max_length=WORKLOAD_ID_MAX_CHARACTERS, pattern=WORKLOAD_ID)]
ChunkCount = Annotated[int, Query(ge=0, le=CHUNKS_MAX)]
PageRows = Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)]
TableName = Annotated[str, Query(min_length=1, max_length=TABLE_NAME_MAX_CHARACTERS)]


@router.get("/v1/workloads")
def workloads(
    notary: NotaryPart,
    grant: Caller,
    after: Annotated[str | None, Query(max_length=WORKLOAD_ID_MAX_CHARACTERS, pattern=WORKLOAD_ID)] = None,
    limit: PageRows = 100,
) -> api.WorkloadList:
    """Workloads of the token's domain in order of id, after the id `after`."""
    return api.WorkloadList(workloads=tuple(notary.work.list_workloads(grant, after=after, count=limit)))


@router.get("/v1/newest-workloads")
def newest_workloads(notary: NotaryPart, grant: Caller, limit: PageRows = 100) -> api.NewestWorkloads:
    """The workloads of the token's domain that were opened or ended last, the latest first."""
    views, total = notary.work.list_newest_workloads(grant, count=limit)
    return api.NewestWorkloads(workloads=tuple(views), total=total)


@router.post("/v1/workloads")
async def open_workload(
    notary: NotaryPart, grant: Caller, body: Annotated[api.OpenWorkloadRequest, body_of(api.OpenWorkloadRequest)]
) -> api.OpenedWorkload:
    """Open a workload under the table's contract: pin the source, fix the plan, set the deadline.

    A plan that needs the source's rows is made by a job. Until the plan is made, the response shows its progress, and
    the caller repeats the request. A repetition changes nothing, except that another `timeout_seconds` changes the
    deadline of an open workload.
    """
    loop, changed = asyncio.get_running_loop(), asyncio.Event()
    wanted = (grant, body.workload_id, body.table, body.parameters, body.timeout_seconds)

    def wake() -> None:
        loop.call_soon_threadsafe(changed.set)

    def open_first() -> Workload | Planning:
        opened = notary.workloads.open(*wanted, plan_again=not body.waits)
        if isinstance(opened, Planning) and not body.waits:
            notary.jobs.hurry_plan(body.workload_id)
        return opened

    with notary.changes.listen(body.workload_id, wake):
        opened = await run_sync(open_first)
        if isinstance(opened, Planning):
            # This wait holds no thread: many runs may wait for plans, and others need the threads to renew leases.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), PLAN_WAIT_SECONDS)
            if changed.is_set():
                opened = await run_sync(notary.workloads.open, *wanted)
    return await run_sync(_view_opened, notary, opened)


def _view_opened(notary: Notary, opened: Workload | Planning) -> api.OpenedWorkload:
    if isinstance(opened, Planning):
        job = notary.jobs.find_plan(opened.opening.workload_id)
        return api.OpenedWorkload(workload=None, planning=planning_view(opened, job))
    workload = _with_newest_source(notary, notary.work.view_workload(opened))
    return api.OpenedWorkload(workload=workload, planning=None)


@router.get("/v1/jobs")
def jobs(notary: NotaryPart, limit: PageRows = 100) -> api.JobList:
    """The jobs of this Steward that are not done; a failed job runs again when the Steward starts again."""
    order = (api.JobState.FAILED, api.JobState.WAITING, api.JobState.RUNNING, api.JobState.QUEUED)
    listed = sorted(notary.jobs.list_jobs(), key=lambda job: order.index(job.state))[:limit]
    subjects = list_tables_and_workloads(notary.ledger, [job.subject for job in listed])
    views = [
        api.ListedJob(
            **dict(job_view(job)), kind=job.kind.value, subject=job.subject, table=table, workload_id=workload_id
        )
        for job, (table, workload_id) in zip(listed, subjects, strict=True)
    ]
    return api.JobList(jobs=tuple(views))


@router.get("/v1/workloads/{workload_id}")
def workload(
    notary: NotaryPart,
    grant: Caller,
    workload_id: WorkloadId,
    chunks_after: ChunkCount = 0,
    limit: PageRows = PAGE_ROWS_MAX,
    newest: bool = True,
) -> api.WorkloadDetail:
    """One workload with a page of its plan, the attempts at this page's chunks, and what is published of these chunks.

    With `newest` set to false, as frequent callers should do, the source's newest snapshot is not looked up.
    """
    view = notary.work.get_workload_detail(grant, workload_id, chunks_after=chunks_after, count=limit)
    return _with_newest_source(notary, view) if newest else view


@router.get("/v1/workloads/{workload_id}/chunks")
def chunks(
    notary: NotaryPart, grant: Caller, workload_id: WorkloadId, after: ChunkCount = 0, limit: PageRows = PAGE_ROWS_MAX
) -> api.ChunkList:
    """The chunks of the plan after its first `after` chunks, each with the last attempt at it."""
    found = notary.workloads.list_chunks(grant, workload_id, after=after, count=limit)
    attempts = [attempt for _, attempt in found if attempt is not None]
    views = {view.attempt_id: view for view in notary.work.view_attempts(grant, attempts)}
    return api.ChunkList(
        chunks=tuple(
            api.ChunkView(
                chunk_id=chunk.chunk_id,
                where=chunk.where,
                files=None if chunk.files is None else tuple(chunk.files),
                attempt=None if attempt is None else views[attempt.attempt_id],
            )
            for chunk, attempt in found
        )
    )


@router.post("/v1/workloads/{workload_id}/lease")
def acquire_lease(
    notary: NotaryPart,
    grant: Caller,
    workload_id: WorkloadId,
    body: Annotated[leases.LeaseRequest, body_of(leases.LeaseRequest)],
) -> leases.LeaseView:
    """Acquire the lease of an open workload, or renew the run's own. While another run holds it, this is a conflict."""
    return notary.leases.acquire(grant, workload_id, body)


@router.post("/v1/workloads/{workload_id}/lease/renew")
def renew_lease(
    notary: NotaryPart,
    grant: Caller,
    workload_id: WorkloadId,
    body: Annotated[leases.HeldLeaseRequest, body_of(leases.HeldLeaseRequest)],
) -> leases.LeaseView:
    """Renew a lease before it expires. If it has expired, or another run has a newer lease, this is a conflict."""
    return notary.leases.renew(grant, workload_id, body)


@router.post("/v1/workloads/{workload_id}/lease/release")
def release_lease(
    notary: NotaryPart,
    grant: Caller,
    workload_id: WorkloadId,
    body: Annotated[leases.HeldLeaseRequest, body_of(leases.HeldLeaseRequest)],
) -> leases.LeaseView:
    """End a lease before its expiry. A lease that has ended stays as it is; the response shows the newest lease."""
    return notary.leases.release(grant, workload_id, body)


@router.post("/v1/workloads/{workload_id}/attempts")
def next_attempt(
    notary: NotaryPart,
    grant: Caller,
    workload_id: WorkloadId,
    body: Annotated[api.OpenAttemptRequest, body_of(api.OpenAttemptRequest)],
) -> api.AttemptView:
    """Open the next attempt at a chunk, with its own branch and folder; a live attempt at the chunk is a conflict."""
    opened = notary.workloads.next_attempt(
        grant, workload_id, body.chunk_id, body.reason, body.attempt_id, lease_number=body.lease_number
    )
    return notary.work.view_attempts(grant, [opened])[0]


@router.post("/v1/workloads/{workload_id}/abandon")
def abandon(notary: NotaryPart, grant: Caller, workload_id: WorkloadId, body: ReasonBody) -> api.AbandonedWorkload:
    """Abandon the workload: live attempts are rolled back; published chunks stay published.

    If the workload is not open yet, its plan is abandoned, and the id stays free.
    """
    abandoned = notary.workloads.abandon(grant, workload_id, body.reason)
    if isinstance(abandoned, Planning):
        notary.jobs.hurry_plan(workload_id)  # a job that waits for a retry, or has failed, ends now
        return api.AbandonedWorkload(workload=None, planning=planning_view(abandoned, None))
    workload = _with_newest_source(notary, notary.work.view_workload(abandoned))
    return api.AbandonedWorkload(workload=workload, planning=None)


@router.get("/v1/attempts/{attempt_id}")
async def attempt(
    notary: NotaryPart,
    long_polls: LongPollsPart,
    grant: Caller,
    attempt_id: AttemptId,
    wait: Annotated[int, Query(ge=0, le=WAIT_MAX_SECONDS)] = 0,
) -> api.AttemptView:
    """One attempt. With `wait`, the response comes when the attempt is settled, at the latest after `wait` seconds.

    An attempt is settled if it has ended, if it waits for other chunks of its workload, or if its job has failed.
    """
    return await long_polls.attempt(grant, attempt_id, min(wait, notary.config.service.limits.request_seconds))


@router.post("/v1/attempts/{attempt_id}/staged", dependencies=[Depends(require_empty)])
def staged(notary: NotaryPart, grant: Caller, attempt_id: AttemptId) -> api.AttemptView:
    """Declare the write complete: the Steward then verifies what is on the branch. A repetition changes nothing."""
    return notary.work.view_attempts(grant, [notary.workloads.end_staging(grant, attempt_id)])[0]


@router.post("/v1/attempts/{attempt_id}/abort")
def abort(
    notary: NotaryPart,
    grant: Caller,
    attempt_id: AttemptId,
    body: Annotated[api.AbortAttemptRequest, body_of(api.AbortAttemptRequest)],
) -> api.AttemptView:
    """Abort a STAGING attempt: its branch and its files are removed. A repetition changes nothing."""
    return notary.work.abort(grant, attempt_id, body.reason, lease_number=body.lease_number)


@router.post("/v1/attempts/{attempt_id}/tokens")
def attempt_token(
    notary: NotaryPart,
    grant: Caller,
    attempt_id: AttemptId,
    body: Annotated[AttemptTokenRequest, body_of(AttemptTokenRequest)],
) -> IssuedToken:
    """Issue a short-lived token for this attempt only. The caller makes its secret, so the request may be repeated."""
    return IssuedToken(identity=identity_of(notary.access.issue_attempt_token(grant, attempt_id, body.secret_sha256)))


@router.post("/v1/publications")
def publish(
    notary: NotaryPart, grant: Caller, body: Annotated[api.PublishBranchRequest, body_of(api.PublishBranchRequest)]
) -> api.AttemptView:
    """Verify and publish a branch that was staged without an attempt, as one chunk whose files are copied."""
    attempt = notary.workloads.adopt(grant, body.workload_id, body.table, body.branch, body.parameters, body.reason)
    return notary.work.view_attempts(grant, [attempt])[0]


def _with_newest_source(notary: NotaryPart, view: _View) -> _View:
    newest = notary.workloads.find_newest_source(view.workload_id)
    return view.model_copy(update={"source_newest_snapshot_id": newest})


@router.get("/v1/orphans")
def orphans(notary: NotaryPart, grant: Caller, table: TableName) -> api.OrphanList:
    """Files in the table's folder that an ended attempt or a published branch left, and that no snapshot refers to."""
    return api.OrphanList(orphans=tuple(notary.orphans.find(grant, table)))


@router.post("/v1/orphans/remove")
def remove_orphans(
    notary: NotaryPart, grant: Caller, body: Annotated[api.RemoveOrphansRequest, body_of(api.RemoveOrphansRequest)]
) -> api.OrphanList:
    """Remove the orphans of a table; returns those that were removed."""
    return api.OrphanList(orphans=tuple(notary.orphans.remove(grant, body.table)))


@router.get("/v1/quarantine")
def quarantine(
    notary: NotaryPart,
    grant: Caller,
    table: TableName | None = None,
    after: Annotated[str | None, Query(pattern=HEX_16_BYTES)] = None,
) -> api.QuarantinedList:
    """Failed attempts whose files are kept, oldest first, after the attempt `after`.

    Attempts that the ledger does not know, for example after a restore from a backup, come last.
    """
    return api.QuarantinedList(quarantine=tuple(notary.quarantine.list_page(grant, table=table, after=after)))


@router.post("/v1/quarantine/remove")
def remove_quarantined(
    notary: NotaryPart,
    grant: Caller,
    body: Annotated[api.RemoveQuarantinedRequest, body_of(api.RemoveQuarantinedRequest)],
) -> api.QuarantineRemovalList:
    """Delete the files of these attempts; nothing is deleted if one of the attempts may still be published."""
    removed = notary.quarantine.remove(grant, body.attempt_ids, body.reason)
    views = [
        api.QuarantineRemovalView(
            attempt_id=each.attempt_id, files=each.files, bytes=each.size_bytes, name=each.name, reason=each.reason
        )
        for each in removed
    ]
    return api.QuarantineRemovalList(removed=tuple(views))
